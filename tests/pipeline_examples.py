"""Random pipelines, what is landed for them, and how they are declared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from hypothesis import strategies as st

from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.errors import Refused
from partitioning.model.placement import JAVA, MURMUR2, OPAQUE
from partitioning.model.plan import Plan
from partitioning.model.streams import NullKeys
from partitioning.values import Value
from tests.runner import HASHES, Row

COLUMN_TYPES = {"k": "VARCHAR", "a": "VARCHAR", "b": "VARCHAR", "n": "BIGINT"}


class Declared(Value, frozen=True):
    """How a random pipeline's streams are declared: the hash of each and what becomes of missing keys."""

    hash: str
    null_keys: NullKeys


class Move(Value, frozen=True):
    """A step of a random pipeline: the operation, and numbers to choose its inputs and its key by."""

    op: str
    first: int
    second: int
    key: str


OPS = (
    "filter",
    "select",
    "rekey",
    "merge",
    "join",
    "cogroup",
    "aggregate",
    "process",
    "gather",
    "combine",
    "repartition",
    "spark",
)
declared = st.builds(
    Declared, st.sampled_from([MURMUR2, MURMUR2, JAVA, OPAQUE]), st.sampled_from([NullKeys.DROP, NullKeys.OWN_TASK])
)
moves = st.builds(Move, st.sampled_from(OPS), st.integers(0, 9), st.integers(0, 9), st.sampled_from("ab"))
streams_of = st.lists(declared, min_size=1, max_size=3)
counts = st.integers(1, 6)


def pipeline_of(streams: Sequence[Declared], counts: Sequence[int], steps: Sequence[Move]) -> Pipeline:
    """The steps on what is there, as far as they can follow; what nothing follows is written."""
    pipeline = Pipeline("p", source="s3://landing/topics")
    flows = [
        pipeline.stream(f"s{n}", key="k", partitions=count, hash=each.hash, null_keys=each.null_keys)
        for n, (each, count) in enumerate(zip(streams, counts, strict=False))
    ]
    used: set[str] = set()
    for number, step in enumerate(steps):
        one = flows[step.first % len(flows)]
        others = [flow for flow in flows if flow.step != one.step and flow.key and bool(one.key)]
        alike = [flow for flow in others if (flow.key, flow.key_format) == (one.key, one.key_format)]
        name = f"{step.op}{number}"
        # Some steps do not take rows that take the place of others.
        made = None
        with suppress(Refused):
            made = _FOLLOW[step.op](one, alike if step.op == "merge" else others, step, name)
        if made is not None:
            flow, inputs = made
            used.update(inputs)
            flows.append(flow)
    for flow in flows:
        if flow.step not in used:
            flow.to_stream().write(f"t-{flow.step}")
    return pipeline


Made = tuple[Flow, list[str]] | None


def _one(make: Callable[[Flow, Move, str], Flow], *, keyed: bool = False) -> Callable[..., Made]:
    def follow(one: Flow, others: Sequence[Flow], step: Move, name: str) -> Made:
        return None if keyed and not one.key else (make(one, step, name), [one.step])

    return follow


def _two(make: Callable[[Flow, Flow, str], Flow]) -> Callable[..., Made]:
    def follow(one: Flow, others: Sequence[Flow], step: Move, name: str) -> Made:
        if not others:
            return None
        other = others[step.second % len(others)]
        return make(one, other, name), [one.step, other.step]

    return follow


def _combined(one: Flow, step: Move, name: str) -> Flow:
    by = {0: None, 1: one.key or None}.get(step.second % 3, step.key)
    partial = one.partial("count(*) AS n", by=by, name=f"{name}p")
    return partial.combine("sum(n) AS n", running=step.first % 2 == 0, fan_in=2 + step.second % 3, name=name)


def _processed(one: Flow, step: Move, name: str) -> Flow:
    state = COLUMN_TYPES if one.key and step.second % 2 else None
    return one.process("tests.runner:apply", COLUMN_TYPES, state=state, name=name)


_FOLLOW: Mapping[str, Callable[..., Made]] = {
    "filter": _one(lambda one, step, name: one.filter("n > 0", name=name)),
    "select": _one(lambda one, step, name: one.select("n", name=name)),
    "rekey": _one(lambda one, step, name: one.rekey(step.key, sql="n" if step.second % 3 else None, name=name)),
    "merge": _two(lambda one, other, name: one.merge(other, name=name)),
    "join": _two(lambda one, other, name: one.join(other, "1 AS n", name=name)),
    "cogroup": _two(lambda one, other, name: one.cogroup("1 AS n", (other, "2 AS m"), name=name)),
    "spark": _two(lambda one, other, name: one.spark("tests.runner:apply", COLUMN_TYPES, other, name=name)),
    "aggregate": _one(lambda one, step, name: one.aggregate("count(*) AS n", name=name), keyed=True),
    "process": _one(_processed),
    "gather": _one(
        lambda one, step, name: one.process("tests.runner:apply", COLUMN_TYPES, partitionable=False, name=name)
    ),
    "combine": _one(_combined),
    "repartition": _one(
        lambda one, step, name: one.repartition((step.second % 5) or None, hash=MURMUR2, name=name), keyed=True
    ),
}
keys = st.lists(st.tuples(st.integers(0, 2), st.one_of(st.none(), st.integers(0, 12))), max_size=25).map(tuple)


class Landing:
    """The streams as producers fill them: they know the hash and the partition count, whatever is declared."""

    def __init__(self, streams: Sequence[Declared]) -> None:
        self._hashes = [HASHES.get(each.hash, HASHES[JAVA]) for each in streams]
        self.landed: dict[str, list[list[Row]]] = {f"s{number}": [] for number in range(len(streams))}
        self._produced = 0

    def resize(self, counts: Sequence[int]) -> None:
        for partitions, count in zip(self.landed.values(), counts, strict=False):
            partitions.extend([] for _ in range(count - len(partitions)))
            del partitions[count:]

    def produce(self, keys: Sequence[tuple[int, int | None]]) -> None:
        for stream, number in keys:
            place = stream % len(self.landed)
            partitions = self.landed[f"s{place}"]
            key = None if number is None else f"key{number}"
            h = self._produced if key is None else self._hashes[place](key)
            partitions[h % len(partitions)].append((key, (self._produced,)))
            self._produced += 1

    def read(self, plan: Plan) -> dict[str, list[Row]]:
        """The records that a batch reads, those without a key only where they have a task."""
        rows: dict[str, list[Row]] = {}
        for stream in plan.streams:
            read = (row for p in stream.partitions for row in self.landed[stream.name][p.partition][p.start : p.end])
            drops = stream.declared.null_keys == NullKeys.DROP
            rows[stream.name] = [row for row in read if row[0] is not None or not drops]
        return rows
