"""Graphs run record by record over a few tasks, by what plans say: the oracle for exchanges.

Where records lie is seen from the records alone: nothing here asks the planner where it thinks that they are.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from partitioning.explain.reason_texts import exchange_because, moved
from partitioning.model.graph import Graph, Op, Step, quote
from partitioning.model.placement import MURMUR2, KeyFormat, Placement
from partitioning.planning.exchanges.cuts import Cut

TASKS = 3
PlaceOf = Callable[[str, str, int], int]


@dataclass(frozen=True)
class Record:
    """Its key, what it is made of, and the task that takes it: of `gathered` ones, from a partition that all read."""

    key: int
    made_of: str
    place: int
    gathered: bool = False


def place_of(key_format: str, hash: str, key: int) -> int:
    """The task of a key: another for each hash and key format."""
    return mixed(f"{key_format} {hash} {key}") % TASKS


def the_only_task(key_format: str, hash: str, key: int) -> int:
    """The task of a key where there is one only."""
    return 0


def mixed(text: str) -> int:
    """A number that looks random."""
    return zlib.crc32(text.encode())


def stream_records(graph: Graph, place: PlaceOf = place_of) -> dict[str, list[Record]]:
    """Six records of each stream, of four keys, where their producers put them."""
    return {
        stream.name: [
            Record(number % 4, f"{stream.name}{number}", place(stream.key_format, stream.hash, number % 4))
            for number in range(6)
        ]
        for stream in graph.streams
    }


def tables(graph: Graph, cuts: Sequence[Cut]) -> dict[str, Counter[tuple[int, str]]]:
    """What each table holds when each record stays in its task but for the exchanges.

    Fails if a step that needs equal keys together gets a key in two tasks.
    """
    exchanged = {(cut.source, reader): cut for cut in cuts for reader in cut.readers}
    records = stream_records(graph)
    for step in graph.steps:
        read = [_moved(records[name], exchanged.get((name, step.name))) for name in step.inputs]
        if needs_all(step):
            assert all(record.gathered for given in read for record in given), f"{step.name} does not get all records"
        records[step.name] = _given(step, read, place_of)
    return _tables(graph, records)


def tables_of_one_task(graph: Graph) -> dict[str, Counter[tuple[int, str]]]:
    """What each table holds if there is one task only."""
    records = stream_records(graph, the_only_task)
    for step in graph.steps:
        records[step.name] = _given(step, [records[name] for name in step.inputs], the_only_task)
    return _tables(graph, records)


def needs_all(step: Step) -> bool:
    """Whether a step needs all records in one task: it cannot be partitioned, or it has no key to be partitioned by."""
    return (step.op is Op.PROCESS and step.partitions == 1) or (step.keyed and not step.key)


def meets(step: Step) -> bool:
    """Whether a step needs equal keys, or all records, together."""
    return step.keyed or needs_all(step)


def why(cut: Cut) -> str:
    """The sentence that people get to read of an exchange."""
    target = Placement(cut.key, cut.key_format, cut.hash, cut.partitions or TASKS)
    return exchange_because(cut.why, cut.wanted_by, target) + moved(cut.moves, cut.spares)


def _tables(graph: Graph, records: Mapping[str, Sequence[Record]]) -> dict[str, Counter[tuple[int, str]]]:
    return {
        write.table: Counter((record.key, record.made_of) for record in records[write.step]) for write in graph.writes
    }


def _moved(records: list[Record], cut: Cut | None) -> list[Record]:
    if cut is None:
        return records
    return [
        replace(record, place=place_of(cut.key_format, cut.hash, record.key), gathered=cut.partitions == 1)
        for record in records
    ]


def _named(step: Step) -> str:
    """What a step does, by the name it was given; all its versions do the same."""
    return step.expressions[0] if step.expressions else step.name


def _given(step: Step, read: list[list[Record]], place: PlaceOf) -> list[Record]:
    """What a step makes of what it reads."""
    given = [record for records in read for record in records]
    if meets(step):
        return _met(step, given, place)
    match step.op:
        case Op.FILTER:
            return [record for record in given if mixed(f"{_named(step)} {record.made_of}") % 4]
        case Op.REPARTITION:
            return given
        case _:
            return [_rekeyed(step, record) for record in given]


def _rekeyed(step: Step, record: Record) -> Record:
    named_only = step.op is Op.REKEY and step.expressions == (quote(step.key),)
    if not step.rekeys or named_only:
        return record
    return replace(record, key=mixed(f"{_named(step)} {record.made_of}") % 4)


def _met(step: Step, given: list[Record], place: PlaceOf) -> list[Record]:
    """One record per key, in the task that had all of that key; or of all records, in one partition."""
    met: dict[int, list[Record]] = {}
    for record in given:
        met.setdefault(0 if step.keyed and not step.key else record.key, []).append(record)
    results = []
    for key, together in sorted(met.items()):
        where = {record.place for record in together}
        if needs_all(step):
            # What is left in one partition lies there by any hash; Coset says murmur2.
            where = {place(step.key_format, MURMUR2, key)}
        assert len(where) == 1, f"{step.name} gets key {key} in tasks {where}"
        made = f"{_named(step)}({','.join(sorted(record.made_of for record in together))})"
        gathered = all(record.gathered for record in together)
        results.append(_rekeyed(step, Record(key, str(mixed(made)), where.pop(), gathered)))
    return results


@dataclass(frozen=True)
class Path:
    """A way of records to an input of the step `wants`: from a stream, a step that placed them or one that gave them
    their keys, through `steps`. It crosses `exchanges`, given by their sources."""

    wants: str
    start: str
    steps: tuple[str, ...]
    exchanges: tuple[str, ...]


def rekeying(graph: Graph) -> set[str]:
    """The steps after which records may have other keys than before."""
    keys: dict[str, tuple[str, KeyFormat]] = {stream.name: (stream.key, stream.key_format) for stream in graph.streams}
    keys |= {step.name: (step.key, step.key_format) for step in graph.steps}
    return {
        step.name
        for step in graph.steps
        if step.rekeys
        and (
            step.op is not Op.REKEY or step.expressions != (quote(step.key),) or keys[step.name] != keys[step.inputs[0]]
        )
    }


def paths(written: Graph, graph: Graph, cuts: Sequence[Cut]) -> Iterator[Path]:
    """All paths to steps that need their records placed, in the `graph` that was made of the one `written`."""
    exchanged = {(cut.source, reader) for cut in cuts for reader in cut.readers}
    steps = {step.name: step for step in graph.steps}
    starts = rekeying(written) | {step.name for step in written.steps if places(step)}

    def back(reader: str, name: str, through: tuple[str, ...], crossed: tuple[str, ...]) -> Iterator[Path]:
        crossed = (*crossed, name) if (name, reader) in exchanged else crossed
        if name in starts or name not in steps:
            yield Path(through[0], name, through[1:], crossed)
        else:
            for read in steps[name].inputs:
                yield from back(name, read, (*through, name), crossed)

    for step in graph.steps:
        if places(step):
            for name in step.inputs:
                yield from back(step.name, name, (step.name,), ())


def places(step: Step) -> bool:
    """Whether a step has the records of its inputs lie in a certain way."""
    return meets(step) or step.op is Op.REPARTITION
