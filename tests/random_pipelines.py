"""Random pipelines of real SQL, the records that arrive for them, and what DuckDB makes of all records at once."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence

import duckdb
import pyarrow as pa

from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.hashes import java_hash, placement_hash
from partitioning.model.composite_key import key_parts
from partitioning.model.graph import Step, quote
from partitioning.model.placement import JAVA, MURMUR2, OPAQUE
from partitioning.model.streams import NullKeys
from partitioning.values import Value

# All flows have these columns, beside their key.
VALUES = ("a", "b", "n")
COLUMNS = pa.schema([("k", pa.string()), ("a", pa.string()), ("b", pa.string()), ("n", pa.int64())])
Row = tuple[str | None, str | None, str | None, int]


class Declared(Value, frozen=True):
    """How a stream is declared: the hash by which its producers place keys, and what becomes of missing ones."""

    hash: str
    null_keys: NullKeys


class Move(Value, frozen=True):
    """A step: the operation, and numbers by which its inputs and its key are chosen."""

    op: str
    first: int
    second: int


OPS = (
    "filter",
    "select",
    "rekey",
    "merge",
    "join",
    "cogroup",
    "aggregate",
    "combine",
    "repartition",
    "running",
    "latest",
)


def declarations(chance: random.Random) -> list[Declared]:
    """One to three streams."""
    hashes, policies = (MURMUR2, MURMUR2, MURMUR2, JAVA, OPAQUE), (NullKeys.DROP, NullKeys.OWN_TASK)
    return [Declared(chance.choice(hashes), chance.choice(policies)) for _ in range(chance.randint(1, 3))]


def moves(chance: random.Random) -> list[Move]:
    """Up to eight steps."""
    return [Move(chance.choice(OPS), chance.randrange(10), chance.randrange(10)) for _ in range(chance.randint(2, 8))]


def pipeline_of(
    source: str, streams: Sequence[Declared], counts: Sequence[int], steps: Sequence[Move], name: str = "p"
) -> Pipeline:
    """The steps on what is there, as far as they can follow; what nothing follows is written."""
    pipeline = Pipeline(name, source=source)
    flows = [
        pipeline.stream(f"s{n}", key="k", partitions=count, hash=stream.hash, null_keys=stream.null_keys)
        for n, (stream, count) in enumerate(zip(streams, counts, strict=False))
    ]
    used: set[str] = set()
    for number, move in enumerate(steps):
        one = flows[move.first % len(flows)]
        flow, inputs = _followed(one, flows, move, f"{move.op}{number}")
        if flow is not None:
            used.update(inputs)
            flows.append(flow)
    for flow in flows:
        if flow.step not in used:
            flow.write(f"t-{flow.step}")
    return pipeline


def _followed(one: Flow, flows: Sequence[Flow], move: Move, name: str) -> tuple[Flow | None, list[str]]:
    """A step on `one`, None if there can be none, and what it reads."""
    keyed = [flow for flow in flows if flow.key and flow.step != one.step]
    keyed = [flow for flow in keyed if len(key_parts(flow.key)) == len(key_parts(one.key))]
    alike = [flow for flow in keyed if flow.key == one.key]
    # What is joined twice may grow without bound.
    few = [flow for flow in keyed if flow.step.startswith(("aggregate", "cogroup"))]
    others = {"merge": alike, "join": few, "cogroup": keyed}.get(move.op, []) if one.key else []
    other = others[move.second % len(others)] if others else None
    if other is None:
        step = _ALONE.get(move.op)
        return step and step(one, move, name), [one.step]
    return _TOGETHER[move.op](one, other, name), [one.step, other.step]


def _rekeyed(one: Flow, move: Move, name: str) -> Flow | None:
    if move.second % 4 == 3:
        if key_parts(one.key):
            return None
        # Their names are no values' names, so that both are there.
        made = one.select("a, b, n, a AS p, b AS q", name=f"{name}s").rekey(("p", "q"), name=f"{name}r")
        return made.select("a, b, n", name=name)
    key, sql = (("x", "a"), ("y", "b"), ("k", "a || b"))[move.second % 4]
    if one.key == key or (key == "k" and not one.key):
        return None
    return one.rekey(key, sql=sql, name=f"{name}r").select("a, b, n", name=name)


def _combined(one: Flow, move: Move, name: str) -> Flow:
    by = (None, one.key or None, one.key or None)[move.second % 3]
    return one.partial(_SUMS, by=by, name=f"{name}p").combine(_SUMS, fan_in=2 + move.first % 3, name=name)


def _running(one: Flow, move: Move, name: str) -> Flow:
    by = (None, one.key or None)[move.second % 2]
    return one.partial(_SUMS, by=by, name=f"{name}p").combine(_SUMS, running=True, name=name)


def _repartitioned(one: Flow, move: Move, name: str) -> Flow | None:
    if not one.key:
        return None
    return one.repartition((move.second % 5) or None, hash=(MURMUR2, JAVA)[move.first % 2], name=name)


def _merged(one: Flow, other: Flow, name: str) -> Flow:
    if int(name.removeprefix("merge")) % 2:
        other = other.select("NULL AS a, b, n", name=f"{name}n")
    return one.merge(other, name=name)


def _joined(one: Flow, other: Flow, name: str) -> Flow:
    here, there = quote(one.alias), quote(other.alias)
    return one.join(other, f"{here}.a AS a, {here}.b AS b, {here}.n + {there}.n AS n", name=name)


def _cogrouped(one: Flow, other: Flow, name: str) -> Flow:
    right = (other, "max(b) AS b, sum(n)::BIGINT AS m")
    both = one.cogroup("min(a) AS a, count(*) AS c", right, name=f"{name}c")
    return both.select("a, b, coalesce(c, 0) + coalesce(m, 0) AS n", name=name)


_SUMS = "min(a) AS a, max(b) AS b, sum(n)::BIGINT AS n"
_ALONE: Mapping[str, Callable[[Flow, Move, str], Flow | None]] = {
    "filter": lambda one, move, name: one.filter(f"n % 3 <> {move.second % 3}", name=name),
    "select": lambda one, move, name: one.select("a, b, n + 1 AS n", name=name),
    "rekey": _rekeyed,
    "aggregate": lambda one, move, name: one.aggregate(_SUMS, name=name) if one.key else None,
    "combine": _combined,
    "repartition": _repartitioned,
    "running": _running,
    "latest": lambda one, move, name: one.latest("n", name=name) if one.key else None,
}
_TOGETHER: Mapping[str, Callable[[Flow, Flow, str], Flow]] = {
    "merge": _merged,
    "join": _joined,
    "cogroup": _cogrouped,
}


def rows(seed: int, count: int) -> list[Row]:
    """Records with few keys, some without."""
    chance = random.Random(seed)

    def some(letter: str, many: int) -> str | None:
        number = chance.randrange(many + 1)
        return f"{letter}{number}" if number else None

    return [(some("k", 12), some("a", 6), some("b", 3), chance.randrange(100)) for _ in range(count)]


def place(declared: Declared, key: str | None, turn: int, count: int) -> int:
    """The partition in which a producer puts a record."""
    if key is None:
        return turn % count
    if declared.hash == OPAQUE:
        return zlib.crc32(key.encode()) % count
    return (placement_hash(key, "string") if declared.hash == MURMUR2 else java_hash(key, "string")) % count


def expected(
    pipeline: Pipeline, read: Mapping[str, Sequence[Row]], kept: dict[str, pa.Table]
) -> Iterator[tuple[str, list[tuple[object, ...]]]]:
    """The rows of each table, if all records are in one place: the steps' SQL, and no plan.

    `kept` is what steps have kept from batch to batch, and keep from now on.
    """
    with duckdb.connect() as connection:
        for stream in pipeline.streams:
            given = [row for row in read[stream.name] if row[0] is not None or stream.null_keys != NullKeys.DROP]
            table = pa.Table.from_arrays(
                [pa.array(column, field.type) for field, column in zip(COLUMNS, _columns(given), strict=True)],
                schema=COLUMNS,
            )
            connection.register(f"@{stream.name}", table)
            connection.execute(f'CREATE TABLE "{stream.name}" AS SELECT * FROM "@{stream.name}"')
        for step in pipeline.steps:
            if step.state:
                kept[step.name] = _goes_on(connection, step, pipeline.flow(step.inputs[0]).key, kept.get(step.name))
            else:
                connection.execute(f"CREATE VIEW {quote(step.name)} AS {step.sql}")
        for write in pipeline.writes:
            hidden = f" EXCLUDE ({quote(write.key)})" if key_parts(write.key) else ""
            result = connection.execute(f"SELECT *{hidden} FROM {quote(write.step)}").to_arrow_table()
            yield write.table, in_order(result)


def _goes_on(connection: duckdb.DuckDBPyConnection, step: Step, key: str, kept: pa.Table | None) -> pa.Table:
    """Run a step that reads what it kept of this batch's keys as more of its input; what it keeps then."""
    name, read = quote(step.name), quote(step.inputs[0])
    there = (
        f"EXISTS (FROM main.{read} AS it WHERE it.{quote(key)} IS NOT DISTINCT FROM kept.{quote(key)})"
        if key
        else "true"
    )
    if kept is None:
        connection.execute(f"CREATE TABLE {name} AS {step.sql}")
        return connection.execute(f"FROM {name}").to_arrow_table()
    connection.register("kept", kept)
    both = f"FROM main.{read} UNION ALL BY NAME SELECT * FROM kept WHERE {there}"
    connection.execute(f"CREATE TABLE {name} AS WITH {read} AS ({both}) {step.sql}")
    others = f"SELECT * FROM kept WHERE NOT {there} UNION ALL BY NAME FROM {name}"
    left = connection.execute(others).to_arrow_table()
    connection.unregister("kept")
    return left


def _columns(kept: Sequence[Row]) -> Sequence[Sequence[object]]:
    return list(zip(*kept, strict=True)) or [[]] * len(COLUMNS)


def in_order(table: pa.Table) -> list[tuple[object, ...]]:
    """Rows, by the names of their columns, in an order that does not depend on theirs."""
    names = sorted(table.column_names)
    return sorted(zip(*(table[name].to_pylist() for name in names), strict=True), key=str)
