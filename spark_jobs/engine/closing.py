"""Closing: the records whose time is over in a batch, and whether each met a partner or was given alone, once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from partitioning.authoring.state_sql import ALONE, NEW, OPEN
from partitioning.model.composite_key import key_parts
from partitioning.model.graph import Step, quote
from partitioning.model.leaving import TIME
from partitioning.model.receipt import MODULUS, Closed, Keyed
from spark_jobs.engine.relations import Relations


def closed(relations: Relations, joined: Step, sides: Sequence[Step]) -> Iterator[Closed]:
    """What closed of each side whose records are given alone: counted by time, by partners, and by what was given."""
    for side in (side for side in sides if side.state and side.state.waits):
        (other,) = (each for each in sides if each is not side)
        where, mine, late = f"step {side.name!r}", _over(side), _late(side)
        met = f"{mine} AND EXISTS (SELECT 1 FROM {quote(other.name)} AS other WHERE {_valid(side, other)})"
        alone = f"SELECT * FROM {quote(joined.name)} WHERE {quote(ALONE)} = '{side.name}'"
        yield Closed(
            side.name,
            _keyed(relations, f"SELECT * FROM {quote(side.name)} AS own WHERE {mine}", side.key, where),
            _keyed(relations, f"SELECT * FROM {quote(side.name)} AS own WHERE {met}", side.key, where),
            _keyed(relations, alone, joined.key, where),
            _keyed(relations, f"SELECT * FROM {quote(side.name)} AS own WHERE {late}", side.key, where).rows,
        )


def _over(side: Step) -> str:
    """Whether a record closes in this batch, by its time and the plan's watermark."""
    assert side.state
    passed, time, new = side.state.watermark, f"own.{quote(TIME.name)}", f"own.{quote(NEW)}"
    timeless = f"{time} IS NULL"
    if passed is None or passed.now is None:
        return f"({timeless})"
    since = "true" if passed.before is None else f"{time} >= {passed.before - side.state.waits}"
    return f"({timeless} OR ({time} < {passed.now - side.state.waits} AND ({new} OR {since})))"


def _late(side: Step) -> str:
    """Whether a record came when its time was over."""
    assert side.state
    passed = side.state.watermark
    if passed is None or passed.now is None:
        return "false"
    return f"own.{quote(NEW)} AND own.{quote(TIME.name)} < {passed.now - side.state.waits}"


def _valid(side: Step, other: Step) -> str:
    """Whether a record of the other side is a partner: near in time, and come while that which waited was open."""
    assert side.state
    assert other.state
    near = f"abs(other.{quote(TIME.name)} - own.{quote(TIME.name)}) <= {side.state.waits}"
    own_key, other_key = f"own.{quote(side.key)}", f"other.{quote(other.key)}"
    open_side = f"(own.{quote(OPEN)} OR NOT other.{quote(NEW)})"
    both = f"{open_side} AND (other.{quote(OPEN)} OR NOT own.{quote(NEW)})" if other.state.waits else open_side
    # As in SQL, keys with a NULL are equal to none.
    known = [f"other.{quote(part)} IS NOT NULL" for part in key_parts(other.key)]
    return " AND ".join([f"{own_key} = {other_key}", *known, near, both])


def _keyed(relations: Relations, sql: str, key: str, where: str) -> Keyed:
    """How many rows a query has, and the digest of their keys, which does not depend on their order."""
    text = f"coalesce({quote(key)}::VARCHAR, '')"
    digest = f"coalesce(sum((hash({text}) % {MODULUS})::HUGEINT) % {MODULUS}, 0)::BIGINT"
    (row,) = relations.query(f"SELECT count(*) AS rows, {digest} AS keys FROM ({sql})", where).read_all().to_pylist()
    return Keyed(row["rows"], f"{row['keys']:016x}")
