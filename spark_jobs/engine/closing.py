"""Closing: the records whose time is over in a batch, and whether each met a partner or was given alone, or was given
in a window, once.

Of a join as of a time, whether a version is valid is worked out in another way than the join does it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from partitioning.authoring.state_sql import ALONE, DELETES, NEW, OPEN
from partitioning.model.composite_key import key_parts
from partitioning.model.graph import Op, StateSpec, Step, quote
from partitioning.model.leaving import BATCH, TIME
from partitioning.model.mark_columns import AT, FROM, IN, OVER, RECORDS
from partitioning.model.receipt import MODULUS, Closed, GivenVersions, Keyed
from spark_jobs.engine.relations import Relations
from spark_jobs.engine.states import found_of


def closed(relations: Relations, giving: Step, sides: Sequence[Step]) -> Iterator[Closed]:
    """The closed records of each input of a step that waits."""
    if giving.state:
        yield _of_lives(relations, giving)
    elif giving.op is Op.AGGREGATE:
        yield from (_in_windows(relations, giving, side) for side in sides)
    else:
        yield from _of_sides(relations, giving, sides)


def _of_lives(relations: Relations, step: Step) -> Closed:
    """What expired: lives of keys, by the times of new records and of all rows that were kept. Each counts with its end
    and the number of its records."""
    assert step.state
    passed, keep, where = step.state.watermark, step.state.microseconds, f"step {step.name!r}"
    now, before = (passed.now, passed.before) if passed else (None, None)
    over, late = f"SELECT NULL AS {quote(step.key)}, 0 AS told WHERE false", "false"
    given = over
    time, new = quote(TIME.name), f"SELECT * FROM ({step.state.times}) AS own WHERE"
    if now is not None:
        over = _ended(step, before, now - keep)
        told = f"{time} || ' ' || {quote(RECORDS)} AS told"
        given = f"SELECT {quote(step.key)}, {told} FROM {quote(step.name)} WHERE {time} < {now - keep}"
    if before is not None:
        late = f"{time} < {before - keep}"
    return Closed(
        step.name,
        _keyed(relations, over, step.key, where, beside="told"),
        _keyed(relations, "SELECT NULL AS key WHERE false", "key", where),
        _keyed(relations, given, step.key, where, beside="told"),
        _keyed(relations, f"{new} {late}", step.key, where).rows,
        _keyed(relations, f"{new} {time} IS NULL", step.key, where).rows,
    )


def _ended(step: Step, before: int | None, since: int) -> str:
    """The query for the lives that ended before `since`, of those that had not by the watermark `before`."""
    assert step.state
    keep, found = step.state.microseconds, quote(found_of(step))
    key, begun, time, records, batch = map(quote, (step.key, FROM, TIME.name, RECORDS, BATCH.name))
    newest = f"SELECT {key} AS of_key, max({batch}) AS in_batch FROM {found} GROUP BY 1"
    counts = f"kept.{key} IS NOT DISTINCT FROM of_key AND kept.{batch} = in_batch"
    there = "true" if before is None else f"{time} >= {before - keep}"
    marks = f"{key}, {begun}, {time}, {records}"
    kept = f"SELECT {marks} FROM {found} AS kept SEMI JOIN ({newest}) ON {counts} WHERE {there}"
    new = f"SELECT {key}, {time}, {time}, 1 FROM ({step.state.times}) WHERE {time} IS NOT NULL"
    # Only these keys can have a life that is over.
    old = f"SELECT DISTINCT {key} AS of_key FROM parts WHERE {time} < {since}"
    alike = f"PARTITION BY {key} ORDER BY {begun}"
    reached = (
        f'SELECT *, max({time}) OVER ({alike}) AS "@reached", lead({begun}) OVER ({alike}) AS "@next" '
        f"FROM parts SEMI JOIN ({old}) ON {key} IS NOT DISTINCT FROM of_key"
    )
    ends = _with_end(f"FROM ({reached})", f'coalesce("@next" - "@reached" > {keep}, true)', '"@reached"', alike)
    told = f"\"@end\" || ' ' || sum({records}) AS told"
    return (
        f"WITH parts AS ({kept} UNION ALL {new}) SELECT {key}, {told} FROM ({ends}) "
        f'WHERE "@end" < {since} GROUP BY {key}, "@end"'
    )


def _in_windows(relations: Relations, counted: Step, side: Step) -> Closed:
    """What closed of windows: counted by the times of records, and by what windows say of how many they are."""
    assert side.state
    assert side.state.waits is not None
    passed, where, rows = side.state.watermark, f"step {side.name!r}", f"FROM {quote(side.name)} AS own WHERE"
    now, before = (passed.now, passed.before) if passed else (None, None)
    time, new, key = (f"own.{quote(name)}" for name in (TIME.name, NEW, side.key))
    # A key counts with the end of the window, so that records are counted in the right one.
    end = f"{quote(TIME.name)} + {side.state.waits + 1}"
    late, over, dropped = "false", "false", f"{new} AND {time} IS NULL"
    if now is not None:
        over = f"{time} < {now - side.state.waits}"
    if before is not None:
        given, kept = before - side.state.waits, before - side.state.microseconds
        late, dropped = f"{new} AND {time} < {given}", f"{new} AND ({time} IS NULL OR {time} < {kept})"
        again = (
            f"SELECT 1 FROM {quote(side.name)} AS other WHERE other.{quote(NEW)} "
            f"AND other.{quote(TIME.name)} = {time} AND other.{quote(side.key)} IS NOT DISTINCT FROM {key}"
        )
        over = f"{over} AND ({time} >= {given} OR ({time} >= {kept} AND EXISTS ({again})))"
    if side.state.gap:
        if before is not None:
            late = f"{new} AND own.{quote(AT)} < {before}"
            dropped = f"{new} AND ({time} IS NULL OR own.{quote(AT)} < {before})"
        rows, over = f"FROM ({_ending(side)}) AS own WHERE", _is_over(side.state, now, before)
        end = f'least("@end" + {side.state.gap}, {end})'
    return Closed(
        side.name,
        _keyed(relations, f"SELECT * {rows} {over}", side.key, where, beside=end),
        _keyed(relations, "SELECT NULL AS key WHERE false", "key", where),
        _keyed(
            relations,
            f"SELECT * FROM {quote(counted.name)}",
            counted.key,
            where,
            quote(RECORDS),
            "epoch_us(window_end)",
        ),
        _keyed(relations, f"SELECT * FROM {quote(side.name)} AS own WHERE {late}", side.key, where).rows,
        _keyed(relations, f"SELECT * FROM {quote(side.name)} AS own WHERE {dropped}", side.key, where).rows,
    )


def _ending(side: Step) -> str:
    """The records of sessions, each with the time of the last one of its session as `@end`."""
    assert side.state
    passed, at = side.state.watermark, quote(AT)
    before = passed.before if passed else None
    in_time = "true" if before is None else f"(NOT {quote(NEW)} OR {at} >= {before})"
    alike = f"PARTITION BY {quote(side.key)}, {quote(TIME.name)} ORDER BY {at}"
    ends = f"coalesce(lead({at}) OVER ({alike}) - {at} > {side.state.gap}, true)"
    there = f"FROM {quote(side.name)} WHERE {quote(TIME.name)} IS NOT NULL AND {in_time}"
    return _with_end(there, ends, at, alike)


def _with_end(rows: str, is_last: str, at: str, alike: str) -> str:
    """The query for the rows, each with the time `at` of the first that is the last of its kind from it on, as
    `@end`; the window `alike` has a kind's rows in their order."""
    last = f'SELECT *, CASE WHEN {is_last} THEN {at} END AS "@last" {rows}'
    from_here = f"OVER ({alike} RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)"
    return f'SELECT *, min("@last") {from_here} AS "@end" FROM ({last})'


def _is_over(state: StateSpec, now: int | None, before: int | None) -> str:
    """Whether the session of a record is over now, and was not before."""
    assert state.waits is not None
    is_over, was_over = (
        "false" if time is None else f'("@end" < {time - state.gap} OR {quote(TIME.name)} < {time - state.waits})'
        for time in (now, before)
    )
    return f"{is_over} AND NOT {was_over}"


def _of_sides(relations: Relations, joined: Step, sides: Sequence[Step]) -> Iterator[Closed]:
    """What closed of each side whose records are given alone: counted by time, by partners, and by what was given."""
    for side in (side for side in sides if side.state and side.state.waits is not None):
        (other,) = (each for each in sides if each is not side)
        where, mine, late = f"step {side.name!r}", _over(side), _late(side, other)
        versioned = other.state is not False and other.state.newest
        met = _met(side, other)
        if versioned:
            # It sorts whole versions.
            keys, name = {side.name: side.key, other.name: other.key}, f"{side.name}@met"
            relations.create_by_keys(name, _met_version(side, other), keys, where)
            met = f"SELECT * FROM {quote(name)}"
        alone = f"SELECT * FROM {quote(joined.name)} WHERE {quote(ALONE)} = '{side.name}'"
        yield Closed(
            side.name,
            _keyed(relations, f"SELECT * FROM {quote(side.name)} AS own WHERE {mine}", side.key, where),
            _keyed(relations, met, side.key, where),
            _keyed(relations, alone, joined.key, where),
            _keyed(relations, f"SELECT * FROM {quote(side.name)} AS own WHERE {late}", side.key, where).rows,
            versions=_versions(relations, joined, side, other) if versioned else None,
        )


def _versions(relations: Relations, joined: Step, side: Step, other: Step) -> GivenVersions:
    """What was given with a version, and how many versions came after records that they may be valid for."""
    assert side.state
    where, passed = f"step {other.name!r}", side.state.watermark
    given = f"SELECT * FROM {quote(joined.name)} WHERE {quote(ALONE)} IS NULL"
    since = "NULL" if passed is None or passed.before is None else passed.before - (side.state.waits or 0)
    late = f"SELECT * FROM {quote(other.name)} AS own WHERE own.{quote(NEW)} AND own.{quote(TIME.name)} < {since}"
    return GivenVersions(_keyed(relations, given, joined.key, where), _keyed(relations, late, other.key, where).rows)


def _met(side: Step, other: Step) -> str:
    """The query for the records that are over and had a partner."""
    partner = f"SELECT 1 FROM {quote(other.name)} AS other WHERE {_valid(side, other)}"
    return f"SELECT * FROM {quote(side.name)} AS own WHERE {_over(side)} AND EXISTS ({partner})"


def _met_version(side: Step, other: Step) -> str:
    """The query for the keys of the records that are over and had a valid version: records and versions stand in one
    line by time, and the version before a record is no deletion."""
    time, key, found = quote(TIME.name), quote(side.key), '"@found"'
    known = " AND ".join([f"own.{quote(name)} IS NOT NULL" for name in (TIME.name, other.key, *key_parts(other.key))])
    versions = (
        f'SELECT own.{quote(other.key)} AS {key}, own.{time} AS "@at", false AS "@mine", own AS "@row", '
        f'NOT own.{quote(DELETES)} AS "@live" FROM {quote(other.name)} AS own WHERE {known}'
    )
    mine = f"SELECT own.{key}, own.{time}, true, NULL, NULL FROM {quote(side.name)} AS own WHERE {_over(side)}"
    before = f'PARTITION BY {key} ORDER BY "@at" NULLS FIRST, "@mine", "@row" ROWS UNBOUNDED PRECEDING'
    line = f'SELECT *, last_value("@live" IGNORE NULLS) OVER ({before}) AS {found} FROM ({versions} UNION ALL {mine})'
    return f'SELECT {key} FROM ({line}) WHERE "@mine" AND {found}'


def _over(side: Step) -> str:
    """Whether a record closes in this batch, by its time and the plan's watermark."""
    assert side.state
    passed, waits = side.state.watermark, side.state.waits or 0
    time, new = f"own.{quote(TIME.name)}", f"own.{quote(NEW)}"
    timeless = f"{time} IS NULL"
    if passed is None or passed.now is None:
        return f"({timeless})"
    since = "true" if passed.before is None else f"{time} >= {passed.before - waits}"
    return f"({timeless} OR ({time} < {passed.now - waits} AND ({new} OR {since})))"


def _late(side: Step, other: Step) -> str:
    """Whether a record came when its time was over, by the watermark of both flows: the other side's."""
    assert side.state
    passed = other.state.watermark if other.state else None
    if passed is None or passed.now is None:
        return "false"
    return f"own.{quote(NEW)} AND own.{quote(TIME.name)} < {passed.now - (side.state.waits or 0)}"


def _valid(side: Step, other: Step) -> str:
    """Whether a record of the other side is a partner: near in time, and the second came while the first, if it waited,
    was open."""
    assert side.state
    assert other.state
    near = f"abs(other.{quote(TIME.name)} - own.{quote(TIME.name)}) <= {side.state.waits}"
    own_key, other_key = f"own.{quote(side.key)}", f"other.{quote(other.key)}"
    met = f"(own.{quote(OPEN)} OR NOT other.{quote(NEW)})"
    if other.state.waits is not None:
        met = f"NOT ({_came_when_over('own', 'other')}) AND NOT ({_came_when_over('other', 'own')})"
    # As in SQL, keys with a NULL are equal to none.
    known = [f"other.{quote(part)} IS NOT NULL" for part in key_parts(other.key)]
    return " AND ".join([f"{own_key} = {other_key}", *known, near, met])


def _came_when_over(second: str, first: str) -> str:
    """Whether a record came in a later batch than another, by which the time of that one was over."""
    later = f"{second}.{quote(IN)} > coalesce({first}.{quote(IN)}, -1)"
    return f"coalesce({later} AND {first}.{quote(TIME.name)} < {second}.{quote(OVER)}, false)"


def _keyed(relations: Relations, sql: str, key: str, where: str, of: str = "1", beside: str = "") -> Keyed:
    """How many records a query's rows are, each `of` so many, and the digest of their keys, each with the number
    `beside` it, which does not depend on their order."""
    text = f"coalesce({quote(key)}::VARCHAR, '')" + (f" || ' ' || ({beside})" if beside else "")
    digest = f"coalesce(sum((hash({text}) % {MODULUS})::HUGEINT * {of}) % {MODULUS}, 0)::BIGINT"
    counted = f"SELECT coalesce(sum({of}), 0)::BIGINT AS rows, {digest} AS keys FROM ({sql})"
    (row,) = relations.query(counted, where).read_all().to_pylist()
    return Keyed(row["rows"], f"{row['keys']:016x}")
