"""The SQL of steps that keep records for a time: their output of a batch, and their state after it.

Times are microseconds in the column `@time`, a name that no expression of a pipeline has by chance. A time counts only
if it is finite and at most `ahead` after the end of the day on which the batch was planned; otherwise one wrong time
would be the latest for ever. A record whose time does not count has no time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from partitioning.model.graph import Op, StateSpec, Step, quote, state_of
from partitioning.model.leaving import DAY_END, TIME
from partitioning.model.mark_columns import AT, CHANGE, FROM, IDENTITY, IN, OVER, RECORDS
from partitioning.model.watermarks import Late
from partitioning.values import replace

# Whether a record is of this batch.
NEW = "@new"
# Whether a record's time is over in this batch, and whether it was not yet over before.
CLOSES = "@closes"
OPEN = "@open"
# Of which side a row is that has no partner.
ALONE = "@alone"
# Whether a version ends the validity of those before it.
DELETES = "@deletes"
# Near which times a record's partners in time are.
NEAR = "@near"
# The columns that no table has.
MARKS = frozenset({TIME.name, NEW, CLOSES, OPEN, ALONE, NEAR, RECORDS, DELETES, AT, FROM, IN, OVER, CHANGE})
# The SQL variable with the number of the batch.
THIS_BATCH = "@this_batch"
# The key and time of a version, also of a deletion.
OF = "@of"
SINCE = "@since"
_BEFORE = "@before"
_MICROSECOND = timedelta(microseconds=1)
# The spans of time by which a join in time looks for partners are so many times as long as partners may be apart: the
# longer, the fewer records are in two of them, and the more are compared.
_SPANS = 8
# The earliest time that a number can have.
EARLIEST = -(2**63 - 1)
# More batches than there are ever.
_BATCHES = 2**32
_LIFE = '"@life"'
_LIFE_MARKS = ", ".join(map(quote, (FROM, TIME.name, RECORDS)))
# Why a record that is set aside is in no window.
_TIMELESS, _LATE = "it has no time that counts", "its window was given before it came"


def recent(source: str, time: str, ahead: timedelta, step: str, came: str = "") -> str:
    """The records of this batch, and those that the step kept, with when they `came`."""
    new = f"SELECT *, {_numbered(time, ahead)} AS {quote(TIME.name)}{came}, true AS {quote(NEW)} FROM {source}"
    return f"{new} UNION ALL BY NAME SELECT *, false AS {quote(NEW)} FROM {quote(state_of(step))}"


def marked(recent: str, step: str, waits: timedelta) -> str:
    """Recent records, each with whether it is open, and whether it closes: in the one batch in which the watermark
    passes its time by more than `waits`, or in its own if it comes later than that or has no time."""
    before, now = (f"getvariable('{passed}')" for passed in passed_by(step))
    span, time, new = waits // _MICROSECOND, quote(TIME.name), quote(NEW)
    is_open = f"coalesce({new} OR {time} >= {before} - {span}, true)"
    closes = f"coalesce({time} < {now} - {span} AND {is_open}, {time} IS NULL)"
    return f"SELECT *, {is_open} AS {quote(OPEN)}, {closes} AS {quote(CLOSES)} FROM ({recent})"


def came(sides: Sequence[str], waits: timedelta) -> str:
    """The columns that say when a record of one of the sides of a full join came: in which batch, and which records
    were over then."""
    befores = ", ".join(f"getvariable('{passed_by(step)[0]}')" for step in sides)
    over = f"CAST(greatest({befores}) - {waits // _MICROSECOND} AS BIGINT) AS {quote(OVER)}"
    return f", {over}, CAST(getvariable('{THIS_BATCH}') AS BIGINT) AS {quote(IN)}"


def beside(step: str, alias: str, within: int) -> str:
    """The records of a side, each in all spans of time in which it may have partners: in one, or on both sides of a
    boundary. So a key with many records costs no comparison of each with each."""
    time, near, length = quote(TIME.name), quote(NEAR), _SPANS * within
    first, last = (f"({time} {sign} {within}) // {length}" for sign in "-+")
    one, other = (f"SELECT *, {span} AS {near} FROM {quote(step)}" for span in (first, last))
    return f"({one} UNION ALL BY NAME {other} WHERE {last} <> {first}) AS {quote(alias)}"


def is_beside(time: str, other: str, within: int) -> str:
    """The condition that a time is in one of the spans in which a record of the other side is."""
    return f"{time} // {_SPANS * within} = {quote(other)}.{quote(NEAR)}"


def met(one: str, other: str) -> list[str]:
    """The conditions that of the records of two sides the one that came first was not over when the other came.

    Each compares a value of one side with one of the other: when it came, and until when it is open for others, as
    numbers that rise with the batches. A record is open for those of its own batch, and for those that come while its
    time is not over. Of what was kept before it was said when it came, it came first.
    """
    moments, ends = zip(*map(_moment_and_end, (one, other)), strict=True)
    return [f"{moments[1]} <= {ends[0]}", f"{moments[0]} <= {ends[1]}"]


def _moment_and_end(side: str) -> tuple[str, str]:
    over, batch, time = (f"{quote(side)}.{quote(mark)}" for mark in (OVER, IN, TIME.name))
    moment = f"(coalesce({over}, {-(2**62)})::HUGEINT * {_BATCHES} + coalesce({batch}, 0))"
    return moment, f"greatest({time}::HUGEINT * {_BATCHES} + {_BATCHES - 1}, {moment})"


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
        is_given = _failing({f"{new} AND {time} IS NULL": _TIMELESS, f"{new} AND NOT {is_in_time}": _LATE}, is_given)
    return (
        f"SELECT {keys}, {bounds}, {columns}, count(*) AS {quote(RECORDS)} FROM {source} WHERE {is_given} "
        f"GROUP BY ALL HAVING coalesce(min({time}) >= {before} - {span}, true) OR bool_or({new})"
    )


def with_own_time(source: str, time: str, alias: str) -> str:
    """The records of a flow with when they happened, for sessions."""
    return f"(SELECT *, epoch_us(CAST(({time}) AS TIMESTAMP)) AS {quote(AT)} FROM {source}) AS {quote(alias)}"


def of_sessions(keeps: StateSpec, step: str, gap: timedelta) -> StateSpec:
    """What is kept of sessions: no record that came too late for them, as it would be in the session of a later one."""
    before, _ = passed_by(step)
    in_time = f"coalesce({quote(AT)} >= getvariable('{before}'), true)"
    return replace(keeps, sql=f"{keeps.sql} AND {in_time}", gap=gap // _MICROSECOND)


def in_sessions(
    source: str, alias: str, step: str, keys: Sequence[str], columns: str, every: timedelta, gap: timedelta, late: Late
) -> str:
    """A row for each session that is over in this batch: the records of a key in a window of which each is no more than
    `gap` after the one before. It is over when the watermark is that far past the last, or passes the window's end.

    A record before the watermark of the batch before is too late, as what was given may have ended with it.
    """
    before, now = (f"getvariable('{passed}')" for passed in passed_by(step))
    time, new, at, session = map(quote, (TIME.name, NEW, AT, "@session"))
    span, apart, length = waiting_for(every) // _MICROSECOND, gap // _MICROSECOND, every // _MICROSECOND
    is_late = f"{new} AND coalesce({at} < {before}, false)"
    is_counted = f"{time} IS NOT NULL AND NOT ({is_late})"
    if late is Late.SET_ASIDE:
        is_counted = _failing({f"{new} AND {time} IS NULL": _TIMELESS, is_late: _LATE}, is_counted)
    in_order = f"OVER (PARTITION BY {quote(keys[0])}, {time} ORDER BY {at})"
    begins = f'SELECT *, {at} - lag({at}) {in_order} <= {apart} AS "@follows" FROM {source} WHERE {is_counted}'
    # Records of the same time are peers, so that all of them are in the session that the first of them begins.
    sessions = f'SELECT *, count(*) FILTER ("@follows" IS NOT true) {in_order} AS {session} FROM ({begins})'
    listed = ", ".join(map(quote, keys))
    end = f"least(max({at}) + {apart}, {time} + {length})"
    is_over, was_over = (
        f"coalesce(max({at}) < {passed} - {apart} OR {time} < {passed} - {span}, false)" for passed in (now, before)
    )
    return (
        f"SELECT {listed}, make_timestamp(min({at})) AS window_start, make_timestamp({end}) AS window_end, {columns}, "
        f"count(*) AS {quote(RECORDS)} FROM ({sessions}) AS {quote(alias)} GROUP BY {listed}, {time}, {session} "
        f"HAVING {is_over} AND NOT {was_over}"
    )


def sets_late_aside(step: Step) -> bool:
    """Whether a step gives windows and fails on late records, so that they are set aside."""
    return step.op is Op.AGGREGATE and f"error('{_LATE}')" in step.sql


def _failing(cases: Mapping[str, str], otherwise: str) -> str:
    """A condition that fails on records, each case with why."""
    told = " ".join(f"WHEN {case} THEN error('{why}')::BOOLEAN" for case, why in cases.items())
    return f"CASE {told} ELSE {otherwise} END"


def waiting_for(every: timedelta) -> timedelta:
    """By how much the watermark has to exceed the start of a window, for the window to be over."""
    return every - _MICROSECOND


def lives_keep(source: str, key: str, time: str, keep: timedelta, ahead: timedelta) -> StateSpec:
    """A row for each life of a key."""
    span = keep // _MICROSECOND
    times = f"SELECT {quote(key)}, {_numbered(time, ahead)} AS {quote(TIME.name)} FROM {source}"
    return StateSpec(microseconds=span, apart=_apart(source, key, time, ahead), waits=span, times=times)


def combined_lives(
    step: str, alias: str, keys: Sequence[str], columns: str, time: str, keep: timedelta, ahead: timedelta
) -> str:
    """A row for each life of a key: the aggregates of its records, or of such rows."""
    (begun, last, records), listed = map(quote, (FROM, TIME.name, RECORDS)), ", ".join(map(quote, keys))
    return (
        f"SELECT {listed}, {columns}, min({begun}) AS {begun}, max({last}) AS {last}, "
        f"sum({records})::BIGINT AS {records} FROM ({_in_lives(step, alias, keys[0], time, keep, ahead)}) "
        f"AS {quote(alias)} GROUP BY {listed}, {_LIFE}"
    )


def latest_of_lives(step: str, alias: str, key: str, by: str, time: str, keep: timedelta, ahead: timedelta) -> str:
    """The record of each life of a key that has the greatest `by`."""
    (begun, last, records), row, of_life = (
        map(quote, (FROM, TIME.name, RECORDS)),
        quote(alias),
        f"{quote(key)}, {_LIFE}",
    )
    return (
        f"SELECT * EXCLUDE ({_LIFE}) REPLACE (min({begun}) OVER life AS {begun}, max({last}) OVER life AS {last}, "
        f"(sum({records}) OVER life)::BIGINT AS {records}) "
        f"FROM ({_in_lives(step, alias, key, time, keep, ahead)}) AS {row} WINDOW life AS (PARTITION BY {of_life}) "
        f"QUALIFY row_number() OVER (PARTITION BY {of_life} ORDER BY ({by}) DESC NULLS LAST, {row} DESC) = 1"
    )


def alive(step: str, key: str, keep: timedelta) -> str:
    """The newest life of each key that is not over."""
    newest = f"row_number() OVER (PARTITION BY {quote(key)} ORDER BY {quote(TIME.name)} DESC) = 1"
    return f"SELECT * EXCLUDE ({_LIFE_MARKS}) FROM {quote(step)} WHERE NOT {_is_over(step, keep)} QUALIFY {newest}"


def expired(step: str, keep: timedelta) -> str:
    """The lives of keys that are over in this batch."""
    return f"SELECT * EXCLUDE ({_LIFE_MARKS}) FROM {quote(step)} WHERE {_is_over(step, keep)}"


def _is_over(step: str, keep: timedelta) -> str:
    _, now = passed_by(step)
    return f"coalesce({quote(TIME.name)} < getvariable('{now}') - {keep // _MICROSECOND}, false)"


def _in_lives(step: str, alias: str, key: str, time: str, keep: timedelta, ahead: timedelta) -> str:
    """The records that a step gets and the rows that it made of earlier ones, each with the number of its key's life.
    Those without a time that counts are in none."""
    (begun, last, records), number = map(quote, (FROM, TIME.name, RECORDS)), _numbered(time, ahead)
    # Rows that the step did not make have no marks yet.
    marks = ", ".join(f"NULL::BIGINT AS {mark}" for mark in (begun, last, records))
    marked = f"SELECT * FROM {quote(step)} UNION ALL BY NAME SELECT {marks} WHERE false"
    made = {
        begun: f"coalesce({begun}, {number})",
        last: f"coalesce({last}, {number})",
        records: f"coalesce({records}, 1)",
    }
    replaced = ", ".join(f"{sql} AS {mark}" for mark, sql in made.items())
    timed = f"SELECT * REPLACE ({replaced}) FROM ({marked}) AS {quote(alias)}"
    in_order = f"OVER (PARTITION BY {quote(key)} ORDER BY {begun}"
    reached = f"max({last}) {in_order} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    apart = f"coalesce({begun} - {reached} > {keep // _MICROSECOND}, true)"
    begins = f'SELECT *, {apart} AS "@begins" FROM ({timed}) AS timed WHERE {last} IS NOT NULL'
    # Rows of the same time are peers, so that all of them are in the life that the first of them begins.
    return f'SELECT * EXCLUDE ("@begins"), count(*) FILTER ("@begins") {in_order}) AS {_LIFE} FROM ({begins}) AS begun'


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


def kept_since(step: str) -> str:
    """The SQL variable with the earliest time of records that the next batch may read; null if that follows from the
    latest time."""
    return f"{step}@since".replace("'", "''")


def recent_keeps(
    source: str,
    key: str,
    time: str,
    keep: timedelta,
    ahead: timedelta,
    waits: timedelta | None,
    step: str,
    came: str = "",
) -> StateSpec:
    """The records that the next batch may read, with when they `came`."""
    number = _numbered(time, ahead)
    sql = f"SELECT *, {number} AS {quote(TIME.name)}{came} FROM {source} WHERE {_lasts(source, number, keep, step)}"
    apart = _apart(source, key, time, ahead)
    return StateSpec(sql, keep // _MICROSECOND, apart=apart, waits=None if waits is None else waits // _MICROSECOND)


def versions_keep(source: str, key: str, time: str, keep: timedelta, ahead: timedelta) -> StateSpec:
    """All versions that have a time. Which of a key's is the newest that is older, only all batches together know."""
    number = _numbered(time, ahead)
    sql = f"SELECT *, {number} AS {quote(TIME.name)} FROM {source} WHERE {number} IS NOT NULL"
    return StateSpec(sql, keep // _MICROSECOND, apart=_apart(source, key, time, ahead), newest=True)


def _lasts(source: str, number: str, keep: timedelta, step: str) -> str:
    """The condition that the next batch may read a record. Without a watermark that goes by the latest time of all
    tasks, but none after its day, so by no earlier one than this task knows."""
    seen = f"SELECT least(max({number}), getvariable('{DAY_END}')) - {keep // _MICROSECOND} FROM {source}"
    return f"{number} >= coalesce(getvariable('{kept_since(step)}'), ({seen}))"


def distinct(source: str, key: str, identity: str, time: str, within: timedelta, ahead: timedelta, step: str) -> str:
    """The records of this batch without duplicates, in it or among those that the step kept."""
    near, (time_, identity_, before) = within // _MICROSECOND, map(quote, (TIME.name, IDENTITY, _BEFORE))
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


def distinct_keeps(
    source: str, key: str, identity: str, time: str, keep: timedelta, ahead: timedelta, step: str
) -> StateSpec:
    """Key, identity and time of the records that have these and that the next batch may read."""
    number = _numbered(time, ahead)
    columns = f"{quote(key)}, {identity} AS {quote(IDENTITY)}, {number} AS {quote(TIME.name)}"
    known = f"({identity}) IS NOT NULL AND {_lasts(source, number, keep, step)}"
    sql = f"SELECT DISTINCT {columns} FROM {source} WHERE {known}"
    return StateSpec(sql, keep // _MICROSECOND, apart=_apart(source, key, time, ahead))


def _apart(source: str, key: str, time: str, ahead: timedelta) -> str:
    """The key and time of the records whose time does not count."""
    columns = f"{quote(key)} AS key, CAST(({time}) AS TIMESTAMP) AS time"
    return f"SELECT {columns} FROM {source} WHERE ({time}) IS NOT NULL AND {_numbered(time, ahead)} IS NULL"


def _numbered(time: str, ahead: timedelta) -> str:
    """A time as a number, null if it does not count."""
    return _counts(microseconds_of(time), ahead // _MICROSECOND)


def microseconds_of(time: str) -> str:
    """A time as microseconds, null if it is infinite. DuckDB knows the type before it runs, and a cast from one with a
    time zone costs more than all else."""
    known, other = f"TRY_CAST(({time}) AS TIMESTAMPTZ)", f"CAST(({time}) AS TIMESTAMP)"
    return f"CASE typeof({time}) WHEN 'TIMESTAMP WITH TIME ZONE' THEN epoch_us({known}) ELSE epoch_us({other}) END"


def time_that_counts(column: str, ahead: int) -> str:
    """A column of microseconds, null where one is more than `ahead` microseconds after the day of planning."""
    return _counts(quote(column), ahead)


def _counts(number: str, ahead: int) -> str:
    """The number, if it counts. DuckDB gives null for infinite times."""
    most = f"coalesce(getvariable('{DAY_END}') + {ahead}, {2**63 - 1})"
    return f"CASE WHEN {number} <= {most} THEN {number} END"
