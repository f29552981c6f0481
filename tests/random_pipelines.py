"""Random pipelines of real SQL, the records that arrive for them, and what DuckDB makes of all records at once."""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

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
from tests import random_times
from tests.random_times import END, EPOCH, MINUTE, TOGETHER, InTime, given

# All flows have these columns, beside their key.
VALUES = "a, b, n, t"
_TYPES = [("k", pa.string()), ("a", pa.string()), ("b", pa.string()), ("n", pa.int64()), ("t", pa.timestamp("us"))]
COLUMNS = pa.schema(_TYPES)
# As they land: a number is text, and may be none.
LANDED = pa.schema([(name, pa.string() if name == "n" else type) for name, type in _TYPES])
# The columns of a key in JSON, if it is. Their names are no values' names, so that both are there.
FIELDS = ((), (), ("r", "j"), ("g", "h"))
Row = tuple[str | None, str | None, str | None, int | None, datetime]
# By how many minutes a record may be later than others of its partition.
LATE = 5
# What is a day before that or later is not looked at: its time may not be over.
LAST = EPOCH + (END - 1440) * MINUTE


class Declared(Value, frozen=True):
    """How a stream is declared: the hash by which its producers place keys, what becomes of missing ones, and whether
    a record that cannot be used is set aside; none comes otherwise. If it has `fields`, its key is a JSON object of
    these columns: of what is `k` elsewhere, and of what is in `b` too."""

    hash: str
    null_keys: NullKeys
    sets_aside: bool
    fields: tuple[str, ...] = ()

    @property
    def key(self) -> dict[str, Any]:
        """What is said of its key."""
        if self.fields:
            return {"key": self.fields, "key_format": "json", "hash": OPAQUE if self.hash == OPAQUE else MURMUR2}
        return {"key": "k", "hash": self.hash, "null_keys": self.null_keys}


class Move(Value, frozen=True):
    """A step: the operation, and numbers by which its inputs and its key are chosen."""

    op: str
    first: int
    second: int


OPS = (
    "filter", "select", "rekey", "merge", "join", "cogroup", "aggregate", "combine", "repartition", "running",
    "latest", *random_times.OPS,
)  # fmt: skip
# What may follow a step that gives rows once their time is over: nothing whose rows depend on the batch.
_AFTER_TIME = {"filter", "select", "rekey", "merge", "repartition", *random_times.OPS}


@dataclass
class Made:
    """A pipeline, with its steps `in_time` by name, the steps `inside` of them, and all steps that they and others
    behind them are."""

    pipeline: Pipeline
    in_time: dict[str, InTime] = field(default_factory=dict)
    inside: set[str] = field(default_factory=set)
    late: set[str] = field(default_factory=set)


def declarations(chance: random.Random) -> list[Declared]:
    """One to three streams."""
    hashes, policies = (MURMUR2, MURMUR2, MURMUR2, JAVA, OPAQUE), (NullKeys.DROP, NullKeys.OWN_TASK)
    # Of its own, so that nothing else of a history depends on it.
    fields = random.Random(f"{chance.getstate()} in JSON")
    return [
        Declared(chance.choice(hashes), chance.choice(policies), chance.random() < 0.5, fields.choice(FIELDS))
        for _ in range(chance.randint(1, 3))
    ]


def moves(chance: random.Random) -> list[Move]:
    """Up to eight steps."""
    return [Move(chance.choice(OPS), chance.randrange(10), chance.randrange(10)) for _ in range(chance.randint(2, 8))]


def pipeline_of(source: str, streams: Sequence[Declared], counts: Sequence[int], steps: Sequence[Move]) -> Made:
    """The steps on what is there, as far as they can follow; what nothing follows is written."""
    made = Made(pipeline := Pipeline("p", source=source))
    said: dict[str, Any] = {"cast": {"n": "BIGINT"}, "time": "t", "late": LATE * MINUTE}
    flows = [
        pipeline.stream(
            f"s{n}", partitions=count, bad_records="set aside" if stream.sets_aside else "refuse", **stream.key, **said
        )
        for n, (stream, count) in enumerate(zip(streams, counts, strict=False))
    ]
    used: set[str] = set()
    for number, move in enumerate(steps):
        one, before, name = flows[move.first % len(flows)], len(pipeline.steps), f"{move.op}{number}"
        flow, inputs, in_time = _followed(one, flows, move, name, made.late)
        if flow is None:
            continue
        used.update(inputs)
        # Here each batch is compared, so what follows takes the rows of a batch.
        flows.append(flow.to_stream())
        # It is listed once something reads it, as may be what another move made.
        new = [step.name for step in pipeline.steps[before:] if name in step.name]
        new = list(dict.fromkeys([*new, flows[-1].step]))
        if in_time:
            made.in_time.update({each.step: each for each in in_time})
            read, given_first = in_time[0].inputs[-1], in_time[0].step
            first = new.index(read) + 1 if read in new else 0
            made.inside.update({*new[first : new.index(given_first)]} - made.in_time.keys())
            made.late.update(new[first:])
        if made.late.intersection(inputs):
            made.late.update(new)
    for flow in flows:
        if flow.step not in used:
            flow.to_stream().write(f"t-{flow.step}")
    return made


def _followed(
    one: Flow, flows: Sequence[Flow], move: Move, name: str, late: set[str]
) -> tuple[Flow | None, list[str], list[InTime]]:
    """A step on `one`, None if there can be none, what it reads, and what it and others are that go by time."""
    if move.op not in _AFTER_TIME and one.step in late:
        return None, [], []
    keyed = [flow for flow in flows if flow.key and flow.step != one.step]
    keyed = [flow for flow in keyed if len(key_parts(flow.key)) == len(key_parts(one.key))]
    keyed = [flow for flow in keyed if move.op in _AFTER_TIME or flow.step not in late]
    alike = [flow for flow in keyed if flow.key == one.key]
    # What is joined twice may grow without bound.
    few = [flow for flow in keyed if flow.step.startswith(("aggregate", "cogroup"))]
    choices = {"merge": alike, "join": few, "cogroup": keyed, **dict.fromkeys(TOGETHER, keyed)}
    others = choices.get(move.op, []) if one.key else []
    other = others[move.second % len(others)] if others else None
    if move.op in random_times.OPS:
        if not one.key or (other is None and move.op in TOGETHER):
            return None, [], []
        if move.op == "expired":
            # What comes once its time is over may expire in its own batch, and be alive in none.
            flow, in_time = random_times.expiring(one, move.second, name, may_upsert=one.step not in late)
            return flow, [one.step], in_time
        if other is None:
            flow, first = random_times.alone(one, move.op, move.second, name)
            return flow, [one.step], [first]
        flow, first = random_times.together(one, other, move.op, move.second, name)
        return flow, [one.step, other.step], [first]
    if other is None:
        step = _ALONE.get(move.op)
        return step and step(one, move, name), [one.step], []
    return _TOGETHER[move.op](one, other, name), [one.step, other.step], []


def _rekeyed(one: Flow, move: Move, name: str) -> Flow | None:
    if move.second % 4 == 3:
        if key_parts(one.key):
            return None
        # Their names are no values' names, so that both are there.
        made = one.select("a, b, n, t, a AS p, b AS q", name=f"{name}s").rekey(("p", "q"), name=f"{name}r")
        return made.select(VALUES, name=name)
    key, sql = (("x", "a"), ("y", "b"), ("k", "a || b"))[move.second % 4]
    if one.key == key or (key == "k" and not one.key):
        return None
    return one.rekey(key, sql=sql, name=f"{name}r").select(VALUES, name=name)


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
        other = other.select("NULL AS a, b, n, t", name=f"{name}n")
    return one.merge(other, name=name)


def _joined(one: Flow, other: Flow, name: str) -> Flow:
    here, there = quote(one.alias), quote(other.alias)
    return one.join(other, f"{here}.a AS a, {here}.b AS b, {here}.n + {there}.n AS n, {here}.t AS t", name=name)


def _cogrouped(one: Flow, other: Flow, name: str) -> Flow:
    right = (other, "max(b) AS b, sum(n)::BIGINT AS m, max(t) AS u")
    both = one.cogroup("min(a) AS a, count(*) AS c, max(t) AS t", right, name=f"{name}c")
    return both.select("a, b, coalesce(c, 0) + coalesce(m, 0) AS n, greatest(t, u) AS t", name=name)


_SUMS = "min(a) AS a, max(b) AS b, sum(n)::BIGINT AS n, max(t) AS t"
_ALONE: Mapping[str, Callable[[Flow, Move, str], Flow | None]] = {
    "filter": lambda one, move, name: one.filter(f"n % 3 <> {move.second % 3}", name=name),
    "select": lambda one, move, name: one.select("a, b, n + 1 AS n, t", name=name),
    "rekey": _rekeyed,
    "aggregate": lambda one, move, name: one.aggregate(_SUMS, name=name) if one.key else None,
    "combine": _combined,
    "repartition": _repartitioned,
    "running": _running,
    "latest": lambda one, move, name: one.latest("t", name=name) if one.key else None,
}
_TOGETHER: Mapping[str, Callable[[Flow, Flow, str], Flow]] = {"merge": _merged, "join": _joined, "cogroup": _cogrouped}


def rows(seed: int, count: int, clock: Iterator[int], *, unusable: bool) -> list[Row]:
    """Records with few keys, some without, at about the minutes that the clock says; the number of some is none, if
    they may be `unusable`."""
    chance = random.Random(seed)

    def some(letter: str, many: int) -> str | None:
        number = chance.randrange(many + 1)
        return f"{letter}{number}" if number else None

    def number() -> int | None:
        return None if unusable and chance.random() < 0.1 else chance.randrange(100)

    def time(now: int) -> datetime:
        return EPOCH + max(0, now - chance.randrange(LATE + 1)) * MINUTE

    return [(some("k", 12), some("a", 6), some("b", 3), number(), time(next(clock))) for _ in range(count)]


def last_rows(declared: Declared, count: int) -> list[Row]:
    """A record long after all others for each partition."""
    rows: list[Row] = [(f"e{number}", "a1", "b1", 1, EPOCH + END * MINUTE) for number in range(20 * count)]
    by_place = {place(declared, row, 0, count): row for row in rows}
    return [by_place[number] for number in range(count)]


def place(declared: Declared, row: Row, turn: int, count: int) -> int:
    """The partition in which a producer puts a record."""
    key: str | None = row[0]
    if declared.fields:
        key = json.dumps(dict(zip(declared.fields, (row[0], row[2]), strict=True)), separators=(",", ":"))
        return (zlib.crc32(key.encode()) if declared.hash == OPAQUE else placement_hash(key, "string")) % count
    if key is None:
        return turn % count
    if declared.hash == OPAQUE:
        return zlib.crc32(key.encode()) % count
    return (placement_hash(key, "string") if declared.hash == MURMUR2 else java_hash(key, "string")) % count


@dataclass
class Oracle:
    """Has seen all batches up to now: what steps have `kept`, and all rows of those that others read by time."""

    kept: dict[str, pa.Table] = field(default_factory=dict)
    seen: dict[str, list[pa.Table]] = field(default_factory=dict)

    def batch(self, made: Made, read: Mapping[str, Sequence[Row]]) -> Iterator[tuple[str, list[tuple[object, ...]]]]:
        """The rows that a batch gives for each table, but for those in time, if all its records are in one place: the
        steps' SQL, and no plan."""
        pipeline = made.pipeline
        with duckdb.connect() as connection:
            for stream in pipeline.streams:
                taken = [row for row in read[stream.name] if row[0] is not None or stream.null_keys != NullKeys.DROP]
                _create(connection, stream.name, table_of(taken))
                if parts := key_parts(stream.key):
                    key = f"k AS {parts[0]}, b AS {parts[1]}, json_array(k, b)::VARCHAR AS {quote(stream.key)}"
                    connection.execute(f"ALTER TABLE {stream.name} RENAME TO {stream.name}k")
                    connection.execute(f"CREATE VIEW {stream.name} AS SELECT {key}, {VALUES} FROM {stream.name}k")
            for step in (step for step in pipeline.steps if step.name not in made.late):
                if step.state:
                    key = pipeline.flow(step.inputs[0]).key
                    self.kept[step.name] = _goes_on(connection, step, key, self.kept.get(step.name))
                else:
                    connection.execute(f"CREATE VIEW {quote(step.name)} AS {step.sql}")
            late = [step for step in pipeline.steps if step.name in made.late]
            for name in {name for step in late for name in step.inputs} - made.late:
                rows = connection.sql(f"FROM {quote(name)}").to_arrow_table()
                self.seen.setdefault(name, []).append(rows)
            yield from _written(connection, made, late=False)

    def in_time(self, made: Made) -> Iterator[tuple[str, list[tuple[object, ...]]]]:
        """The rows that all batches have given for each table in time."""
        with duckdb.connect() as connection:
            for name, tables in self.seen.items():
                _create(connection, name, pa.concat_tables(tables))
            for step in (step for step in made.pipeline.steps if step.name in made.late - made.inside):
                if found := made.in_time.get(step.name):
                    read = [connection.sql(f"FROM {quote(name)}").to_arrow_table() for name in found.inputs]
                    _create(
                        connection, step.name, _table(found, read, given(found, [each.to_pylist() for each in read]))
                    )
                else:
                    connection.execute(f"CREATE VIEW {quote(step.name)} AS {step.sql}")
            yield from _written(connection, made, late=True)


def _table(step: InTime, read: Sequence[pa.Table], rows: list[dict[str, Any]]) -> pa.Table:
    """Rows with the types of what the step reads."""
    first = read[0].schema
    names = [*step.keys[0], "a", "b", "n"]
    times = ["window_start", "window_end"] if step.op in {"windows", "sessions"} else ["t"]
    fields = [first.field(name) for name in names] + [pa.field(name, pa.timestamp("us")) for name in times]
    return pa.Table.from_pylist(rows, pa.schema(fields))


def _create(connection: duckdb.DuckDBPyConnection, name: str, rows: pa.Table) -> None:
    connection.register(f"@{name}", rows)
    connection.execute(f'CREATE TABLE {quote(name)} AS SELECT * FROM "@{name}"')
    connection.unregister(f"@{name}")


def _written(
    connection: duckdb.DuckDBPyConnection, made: Made, *, late: bool
) -> Iterator[tuple[str, list[tuple[object, ...]]]]:
    for write in made.pipeline.writes:
        if (write.step in made.late) is late:
            hidden = f" EXCLUDE ({quote(write.key)})" if key_parts(write.key) else ""
            shown = f" WHERE t < TIMESTAMP '{LAST}'" if late else ""
            result = connection.sql(f"SELECT *{hidden} FROM {quote(write.step)}{shown}").to_arrow_table()
            yield write.table, in_order(result)


def table_of(rows: Sequence[Row]) -> pa.Table:
    """The records as they are meant."""
    columns: Sequence[Sequence[object]] = list(zip(*rows, strict=True)) or [[]] * len(COLUMNS)
    arrays = [pa.array(column, field.type) for field, column in zip(COLUMNS, columns, strict=True)]
    return pa.Table.from_arrays(arrays, schema=COLUMNS)


def landed_of(declared: Declared, rows: Sequence[Row]) -> pa.Table:
    """The records as they land."""
    meant = table_of(rows)
    numbers = pa.array(["none" if row[3] is None else str(row[3]) for row in rows], pa.string())
    landed = meant.set_column(COLUMNS.get_field_index("n"), LANDED.field("n"), numbers)
    if not declared.fields:
        return landed
    return landed.rename_columns({"k": declared.fields[0]}).append_column(declared.fields[1], landed["b"])


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
        return connection.sql(f"FROM {name}").to_arrow_table()
    connection.register("kept", kept)
    both = f"FROM main.{read} UNION ALL BY NAME SELECT * FROM kept WHERE {there}"
    connection.execute(f"CREATE TABLE {name} AS WITH {read} AS ({both}) {step.sql}")
    others = f"SELECT * FROM kept WHERE NOT {there} UNION ALL BY NAME FROM {name}"
    left = connection.sql(others).to_arrow_table()
    connection.unregister("kept")
    return left


def in_order(table: pa.Table) -> list[tuple[object, ...]]:
    """Rows, by the names of their columns, in an order that does not depend on theirs."""
    names = sorted(table.column_names)
    return sorted(zip(*(table[name].to_pylist() for name in names), strict=True), key=str)
