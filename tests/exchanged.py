"""Graphs run record by record over a few tasks, by what plans say: the oracle for exchanges."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from partitioning.model.graph import Graph, Step
from partitioning.planning.exchanges.cuts import Cut
from partitioning.planning.exchanges.placements import Placed, Way, changes_keys, gathers, placements, places, target

TASKS = 3
GATHERED = "in one partition"
Place = int | str


@dataclass(frozen=True)
class Record:
    """Its key, what it is made of, and the task in which it is."""

    key: int
    made_of: str
    place: Place


def place_of(key_format: str, named: str, key: int) -> Place:
    """The task of a key: another for each hash and key format."""
    return mixed(f"{key_format} {named} {key}") % TASKS


def mixed(text: str) -> int:
    """A number that looks random."""
    return zlib.crc32(text.encode())


def stream_records(graph: Graph) -> dict[str, list[Record]]:
    """Six records of each stream, of four keys, where their producers put them."""
    return {
        stream.name: [
            Record(number % 4, f"{stream.name}{number}", place_of(stream.key_format, stream.placement, number % 4))
            for number in range(6)
        ]
        for stream in graph.streams
    }


def tables(graph: Graph, cuts: Sequence[Cut], placed: Mapping[str, Placed]) -> dict[str, Counter[tuple[int, str]]]:
    """What each table holds when each record stays in its task but for the exchanges.

    Fails if a step that needs equal keys together gets a key in two tasks. `placed` are the placements of the
    graph as it was written.
    """
    exchanged = {(cut.source, reader): cut for cut in cuts for reader in cut.readers}
    found = stream_records(graph)
    for step in graph.steps:
        read = [_moved(found[name], exchanged.get((name, step.name))) for name in step.inputs]
        found[step.name] = _met(step, read, target(step, placed)) if places(step) else _given(step, read)
    return {write.table: Counter((each.key, each.made_of) for each in found[write.step]) for write in graph.writes}


def tables_of_one_task(graph: Graph) -> dict[str, Counter[tuple[int, str]]]:
    """What each table holds if there is one task only."""
    found = {name: [Record(r.key, r.made_of, GATHERED) for r in some] for name, some in stream_records(graph).items()}
    for step in graph.steps:
        read = [found[name] for name in step.inputs]
        found[step.name] = _met(step, read, None) if places(step) else _given(step, read)
    return {write.table: Counter((each.key, each.made_of) for each in found[write.step]) for write in graph.writes}


def _moved(records: list[Record], cut: Cut | None) -> list[Record]:
    if cut is None:
        return records
    return [
        Record(each.key, each.made_of, GATHERED)
        if cut.partitions == 1
        else Record(each.key, each.made_of, place_of(cut.key_format, cut.hash, each.key))
        for each in records
    ]


def _named(step: Step) -> str:
    """What a step does, by the name it was given; all its versions do the same."""
    return step.expressions[0] if step.expressions else step.name


def _given(step: Step, read: list[list[Record]]) -> list[Record]:
    given = [record for records in read for record in records]
    if step.op == "filter":
        return [each for each in given if mixed(f"{_named(step)} {each.made_of}") % 4]
    return [_rekeyed(step, each) for each in given]


def _rekeyed(step: Step, record: Record) -> Record:
    named_only = step.op == "rekey" and step.expressions == (f'"{step.key}"',)
    if not step.rekeys or named_only:
        return record
    return Record(mixed(f"{_named(step)} {record.made_of}") % 4, record.made_of, record.place)


def _met(step: Step, read: list[list[Record]], way: Way | None) -> list[Record]:
    """One record per key, or for a repartition those that it reads."""
    given = [record for records in read for record in records]
    if step.op == "repartition":
        return given
    if way is not None and gathers(step):
        assert all(each.place == GATHERED for each in given), f"{step.name} gets records that are not gathered"
    if way is not None and not way.gathered:
        # One partition holds the keys of all tasks, so that each task can take its own from it.
        given = [
            Record(each.key, each.made_of, place_of(way.key_format, way.hash, each.key))
            if each.place == GATHERED
            else each
            for each in given
        ]
    met: dict[int, list[Record]] = {}
    for each in given:
        met.setdefault(0 if gathers(step) and step.keyed else each.key, []).append(each)
    results = []
    for key, some in sorted(met.items()):
        where = {each.place for each in some}
        assert len(where) == 1, f"{step.name} gets key {key} in {where}"
        made = f"{_named(step)}({','.join(sorted(each.made_of for each in some))})"
        results.append(_rekeyed(step, Record(key, str(mixed(made)), some[0].place)))
    return results


@dataclass(frozen=True)
class Path:
    """A way of records to an input of the step `wants`: from a stream, a step that placed them or one that gave them
    their keys, through `steps`. It crosses `exchanges`, given by their sources."""

    wants: str
    start: str
    steps: tuple[str, ...]
    exchanges: tuple[str, ...]


def paths(written: Graph, graph: Graph, cuts: Sequence[Cut]) -> Iterator[Path]:
    """All paths to steps that need their records placed, in the `graph` that was made of the one `written`."""
    exchanged = {(cut.source, reader) for cut in cuts for reader in cut.readers}
    steps = {step.name: step for step in graph.steps}
    placed = placements(written)
    starts = {step.name for step in written.steps if places(step) or changes_keys(step, placed)}

    def back(reader: str, name: str, through: tuple[str, ...], crossed: tuple[str, ...]) -> Iterator[Path]:
        crossed = (*crossed, name) if (name, reader) in exchanged else crossed
        if name in starts or name not in steps:
            yield Path(through[0], name, through[1:], crossed)
        else:
            for each in steps[name].inputs:
                yield from back(name, each, (*through, name), crossed)

    for step in graph.steps:
        if places(step):
            for name in step.inputs:
                yield from back(step.name, name, (step.name,), ())
