"""The SQL of steps that keep records for a time: their output of a batch, and their state after it.

Times are microseconds in the column `@time`, a name that no expression of a pipeline has by chance. A time counts only
if it is finite and at most `ahead` after the end of the day on which the batch was planned; otherwise one wrong time
would be the latest for ever. A record whose time does not count has no time.
"""

from __future__ import annotations

from datetime import timedelta

from partitioning.model.graph import StateSpec, quote, state_of
from partitioning.model.leaving import DAY_END, TIME
from partitioning.model.watermarks import Late

# Whether a record is of this batch.
NEW = "@new"
# Whether a record's time is over in this batch, and whether it was not yet over before.
CLOSES = "@closes"
OPEN = "@open"
# Of which side a row is that has no partner.
ALONE = "@alone"
# Of how many records a row of a window is.
RECORDS = "@records"
# Whether a version ends the validity of those before it.
DELETES = "@deletes"
# The columns that no table has.
MARKS = frozenset({TIME.name, NEW, CLOSES, OPEN, ALONE, RECORDS, DELETES})
# The key and time of a version, also of a deletion.
OF = "@of"
SINCE = "@since"
_IDENTITY = "@identity"
_BEFORE = "@before"
_MICROSECOND = timedelta(microseconds=1)


def recent(source: str, time: str, ahead: timedelta, step: str) -> str:
    """The records of this batch, and those that the step kept."""
    new = f"SELECT *, {_numbered(time, ahead)} AS {quote(TIME.name)}, true AS {quote(NEW)} FROM {source}"
    return f"{new} UNION ALL BY NAME SELECT *, false AS {quote(NEW)} FROM {quote(state_of(step))}"


def marked(recent: str, step: str, waits: timedelta) -> str:
    """Recent records, each with whether it is open, and whether it closes: in the one batch in which the watermark
    passes its time by more than `waits`, or in its own if it comes later than that or has no time."""
    before, now = (f"getvariable('{passed}')" for passed in passed_by(step))
    span, time, new = waits // _MICROSECOND, quote(TIME.name), quote(NEW)
    is_open = f"coalesce({new} OR {time} >= {before} - {span}, true)"
    closes = f"coalesce({time} < {now} - {span} AND {is_open}, {time} IS NULL)"
    return f"SELECT *, {is_open} AS {quote(OPEN)}, {closes} AS {quote(CLOSES)} FROM ({recent})"


def duration(time: timedelta) -> str:
    """A time as SQL."""
    return f"to_microseconds({time // _MICROSECOND})"


def window_of(time: str, every: timedelta) -> str:
    """The start of the window in which a time is. Windows begin at multiples of their length from Monday, 3 January
    2000."""
    return f"time_bucket({duration(every)}, CAST(({time}) AS TIMESTAMP))"


def windowed(
    source: str, step: str, keys: str, columns: str, every: timedelta, corrected: timedelta, late: Late
) -> str:
    """A row for each window that the watermark passes in this batch, of all its records; and again for each that was
    given, if it gets further records while it may be `corrected`. A record that comes later than that is in none."""
    before, now = (f"getvariable('{passed}')" for passed in passed_by(step))
    time, new, length = quote(TIME.name), quote(NEW), every // _MICROSECOND
    span, kept = waiting_for(every) // _MICROSECOND, corrected // _MICROSECOND
    bounds = f"make_timestamp({time}) AS window_start, make_timestamp({time} + {length}) AS window_end"
    is_in_time = f"coalesce({time} >= {before} - {span + kept}, true)"
    is_given = f"{time} < {now} - {span} AND {is_in_time}"
    if late is Late.SET_ASIDE:
        cases = {
            f"{new} AND {time} IS NULL": "it has no time that counts",
            f"{new} AND NOT {is_in_time}": "its window was given before it came",
        }
        told = " ".join(f"WHEN {case} THEN error('{why}')::BOOLEAN" for case, why in cases.items())
        is_given = f"CASE {told} ELSE {is_given} END"
    return (
        f"SELECT {keys}, {bounds}, {columns}, count(*) AS {quote(RECORDS)} FROM {source} WHERE {is_given} "
        f"GROUP BY ALL HAVING coalesce(min({time}) >= {before} - {span}, true) OR bool_or({new})"
    )


def waiting_for(every: timedelta) -> timedelta:
    """By how much the watermark has to exceed the start of a window, for the window to be over."""
    return every - _MICROSECOND


def versions_of(recent: str, alias: str, deletes: str | None) -> str:
    """Recent versions, each with whether it ends the validity of those before it."""
    gone = f"coalesce(({deletes}), false)" if deletes else "false"
    return f"SELECT *, {gone} AS {quote(DELETES)} FROM ({recent}) AS {quote(alias)}"


def by_time(step: str, alias: str, key: str) -> str:
    """One version for each key and time, as the columns `@of` and `@since`; a deletion has nulls in all others.

    The one with the greatest columns counts, so that the order of arrival does not matter.
    """
    time, row, gone = quote(TIME.name), quote(alias), quote(DELETES)
    newest = f"row_number() OVER (PARTITION BY {key}, {time} ORDER BY {row} DESC) = 1"
    return (
        f"SELECT {key} AS {quote(OF)}, {time} AS {quote(SINCE)}, CASE WHEN NOT {gone} THEN COLUMNS(*) END "
        f"FROM (SELECT * FROM {quote(step)} AS {row} WHERE {time} IS NOT NULL QUALIFY {newest}) AS {row}"
    )


def passed_by(step: str) -> tuple[str, str]:
    """The SQL variables with the watermark of a step in the batch before, and now."""
    return f"{step}@before".replace("'", "''"), f"{step}@now".replace("'", "''")


def recent_keeps(
    source: str, key: str, time: str, keep: timedelta, ahead: timedelta, waits: timedelta | None
) -> StateSpec:
    """All records that have a time."""
    number = _numbered(time, ahead)
    sql = f"SELECT *, {number} AS {quote(TIME.name)} FROM {source} WHERE {number} IS NOT NULL"
    apart = _apart(source, key, time, ahead)
    return StateSpec(sql, keep // _MICROSECOND, apart=apart, waits=None if waits is None else waits // _MICROSECOND)


def distinct(source: str, key: str, identity: str, time: str, within: timedelta, ahead: timedelta, step: str) -> str:
    """The records of this batch without duplicates, in it or among those that the step kept."""
    near, (time_, identity_, before) = within // _MICROSECOND, map(quote, (TIME.name, _IDENTITY, _BEFORE))
    # Among records with the same time, the choice must not depend on their order.
    last = f'lag({time_}) OVER (PARTITION BY {quote(key)}, {identity_} ORDER BY {time_}, "@row")'
    named = f"SELECT *, {identity} AS {identity_}, {_numbered(time, ahead)} AS {time_} FROM {source}"
    kept = (
        f'SELECT 1 FROM {quote(state_of(step))} AS "@kept" WHERE "@kept".{quote(key)} IS NOT DISTINCT FROM '
        f'"@row".{quote(key)} AND "@kept".{identity_} = "@row".{identity_} '
        f'AND abs("@kept".{time_} - "@row".{time_}) <= {near}'
    )
    return (
        f"SELECT * EXCLUDE ({time_}, {identity_}, {before}) "
        f'FROM (SELECT *, {last} AS {before} FROM ({named}) AS "@row") AS "@row" '
        f"WHERE {time_} IS NULL OR {identity_} IS NULL "
        f"OR (({before} IS NULL OR {time_} - {before} > {near}) AND NOT EXISTS ({kept}))"
    )


def distinct_keeps(source: str, key: str, identity: str, time: str, keep: timedelta, ahead: timedelta) -> StateSpec:
    """Key, identity and time of all records that have these."""
    number = _numbered(time, ahead)
    columns = f"{quote(key)}, {identity} AS {quote(_IDENTITY)}, {number} AS {quote(TIME.name)}"
    known = f"({identity}) IS NOT NULL AND {number} IS NOT NULL"
    sql = f"SELECT DISTINCT {columns} FROM {source} WHERE {known}"
    return StateSpec(sql, keep // _MICROSECOND, apart=_apart(source, key, time, ahead))


def _apart(source: str, key: str, time: str, ahead: timedelta) -> str:
    """The key and time of the records whose time does not count."""
    columns = f"{quote(key)} AS key, CAST(({time}) AS TIMESTAMP) AS time"
    return f"SELECT {columns} FROM {source} WHERE ({time}) IS NOT NULL AND {_numbered(time, ahead)} IS NULL"


def _numbered(time: str, ahead: timedelta) -> str:
    """A time as a number, null if it does not count."""
    return _counts(f"epoch_us(CAST(({time}) AS TIMESTAMP))", ahead // _MICROSECOND)


def time_that_counts(column: str, ahead: int) -> str:
    """A column of timestamps as numbers, null where one is more than `ahead` microseconds after the day of planning."""
    return _counts(f"epoch_us({quote(column)})", ahead)


def _counts(number: str, ahead: int) -> str:
    """The number, if it counts. DuckDB gives null for infinite times."""
    most = f"coalesce(getvariable('{DAY_END}') + {ahead}, {2**63 - 1})"
    return f"CASE WHEN {number} <= {most} THEN {number} END"
