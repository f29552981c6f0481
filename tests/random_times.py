"""Steps by event time in random pipelines, and what plain Python makes of all their records at once.

Nothing of it is asked of the product: no SQL of its steps, no watermark, no batch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from partitioning.authoring.flow import Flow
from partitioning.model.composite_key import key_parts
from partitioning.model.graph import quote
from partitioning.values import Value

MINUTE = timedelta(minutes=1)
EPOCH = datetime.fromisoformat("1970-01-01")
# Long after all records: once they have come, everything before is over.
END = 100_000
# From when on windows are counted.
MONDAY = (datetime.fromisoformat("2000-01-03") - EPOCH) // MINUTE
EVERY, LONG, GAP, WITHIN, KEEP, LIFE = 7, 45, 3, 4, 6, 4
# A version with such a number ends the validity of those before it.
GONE = 4
OPS = ("windows", "sessions", "expired", "within", "as_of")
TOGETHER = ("within", "as_of")
Row = dict[str, Any]


class InTime(Value, frozen=True):
    """A step that gives rows once their time is over: the steps that it reads, the columns of their keys, and how."""

    step: str
    op: str
    inputs: tuple[str, ...]
    keys: tuple[tuple[str, ...], ...]
    how: str


def alone(one: Flow, op: str, second: int, name: str) -> tuple[Flow, InTime]:
    """Windows or sessions of a flow."""
    columns = "min(a) AS a, max(b) AS b, sum(n)::BIGINT AS n"
    how: Any = ("drop", "correct")[second % 2]
    if op == "sessions":
        made = one.windows(columns, time="t", every=LONG * MINUTE, gap=GAP * MINUTE, name=f"{name}w")
    elif how == "drop":
        made = one.windows(columns, time="t", every=EVERY * MINUTE, name=f"{name}w")
    else:
        made = one.windows(columns, time="t", every=EVERY * MINUTE, late=how, keep=KEEP * MINUTE, name=f"{name}w")
    shown = made.select(f"a, b, n, {('window_start', 'window_end')[second % 3 % 2]} AS t", name=name)
    return shown, InTime(made.step, op, (one.step,), (columns_of(one),), how)


def expiring(one: Flow, second: int, name: str, *, may_upsert: bool) -> tuple[Flow, list[InTime]]:
    """What expires of a flow, counted or the latest of each key; by chance the others are upserted, if they may be."""
    how = ("combine", "latest")[second % 2]
    upserts = may_upsert and second // 2 % 2
    if upserts:
        # What is upserted has a key.
        one = one.filter(f"{quote(one.key)} IS NOT NULL", name=f"{name}f")
    said: dict[str, Any] = {"time": "t", "keep": LIFE * MINUTE, "name": f"{name}l"}
    columns = "min(a) AS a, max(b) AS b, sum(n)::BIGINT AS n, max(t) AS t"
    newest = "(t, coalesce(n, -1), coalesce(a, ''), coalesce(b, ''))"
    alive = one.combine(columns, running=True, **said) if how == "combine" else one.latest(newest, **said)
    ended = alive.expired(name=name)
    found = [InTime(ended.step, "expired", (one.step,), (columns_of(one),), how)]
    if upserts:
        alive.write(f"t-{alive.step}", mode="upsert")
        found.append(InTime(alive.step, "alive", (one.step,), (columns_of(one),), how))
    return ended, found


def together(one: Flow, other: Flow, op: str, second: int, name: str) -> tuple[Flow, InTime]:
    """Two flows, joined in time."""
    other = other.select("n, t", name=f"{name}v")
    here, there = quote(one.alias), quote(other.alias)
    times = (f"{here}.t", f"{there}.t")
    n = f"coalesce({here}.n, 0) + coalesce({there}.n, 0) AS n, coalesce({here}.t, {there}.t) AS t"
    columns = f"{here}.a AS a, {here}.b AS b, {n}"
    how: Any = ("left", "full", "inner")[second % 3] if op == "within" else ("null", "drop")[second % 2]
    if op == "within":
        made = one.join_within(other, columns, times=times, within=WITHIN * MINUTE, how=how, name=name)
    else:
        said: dict[str, Any] = {"keep": KEEP * MINUTE, "wait": second % 3 * MINUTE, "deletes": f"n % {GONE} = 0"}
        made = one.join_as_of(other, columns, times=times, missing=how, name=name, **said)
    return made, InTime(made.step, op, (one.step, other.step), (columns_of(one), columns_of(other)), how)


def columns_of(flow: Flow) -> tuple[str, ...]:
    """The key column of a flow, then those that it is made of."""
    return (flow.key, *key_parts(flow.key))


def given(step: InTime, rows: Sequence[Sequence[Row]]) -> list[Row]:
    """All rows that a step gives, if these are all rows of its inputs."""
    if step.op in TOGETHER:
        mine, theirs = rows
        # A key of which a part is missing meets nothing.
        by_key = defaultdict[tuple[object, ...], list[Row]](list)
        for row in theirs:
            if None not in _key(row, step.keys[1]):
                by_key[_key(row, step.keys[1])].append(row)
        made = _within(step, mine, theirs, by_key) if step.op == "within" else _as_of(step, mine, by_key)
        return list(made)
    if step.op in {"expired", "alive"}:
        return list(_lives(step, rows[0]))
    groups = defaultdict[tuple[object, ...], list[Row]](list)
    length = LONG if step.op == "sessions" else EVERY
    for row in rows[0]:
        groups[(*_key(row, step.keys[0]), (_minute(row) - MONDAY) // length)].append(row)
    return [_window(step, some) for group in groups.values() for some in _parts(step, group)]


def _lives(step: InTime, rows: Iterable[Row]) -> Iterator[Row]:
    """A row for each life of a key, which ends before the first `LIFE` without a record; of what is alive, the row of
    a key that is so after the `END`."""
    by_key = defaultdict[tuple[object, ...], list[Row]](list)
    for row in rows:
        by_key[_key(row, step.keys[0])].append(row)
    for mine in by_key.values():
        lives = [[(ordered := sorted(mine, key=_minute))[0]]]
        for row in ordered[1:]:
            if _minute(row) > _minute(lives[-1][-1]) + LIFE:
                lives.append([])
            lives[-1].append(row)
        if step.op == "alive":
            lives = [life for life in lives if _minute(life[-1]) + LIFE >= END]
        yield from (_life(step, life) for life in lives)


def _life(step: InTime, rows: Sequence[Row]) -> Row:
    if step.how == "latest":

        def rank(row: Row) -> tuple[object, ...]:
            return row["t"], -1 if row["n"] is None else row["n"], row["a"] or "", row["b"] or ""

        return {name: max(rows, key=rank)[name] for name in (*step.keys[0], "a", "b", "n", "t")}
    return {
        **{name: rows[0][name] for name in step.keys[0]},
        "a": min(_known(rows, "a"), default=None),
        "b": max(_known(rows, "b"), default=None),
        "n": sum(_known(rows, "n")) if _known(rows, "n") else None,
        "t": max(row["t"] for row in rows),
    }


def _parts(step: InTime, group: list[Row]) -> Iterator[list[Row]]:
    """The sessions in a window, one after the other; or the window."""
    if step.op == "windows":
        yield group
        return
    session: list[Row] = []
    for row in sorted(group, key=_minute):
        if session and _minute(row) - _minute(session[-1]) > GAP:
            yield session
            session = []
        session.append(row)
    yield session


def _window(step: InTime, rows: Sequence[Row]) -> Row:
    length = LONG if step.op == "sessions" else EVERY
    start = MONDAY + (_minute(rows[0]) - MONDAY) // length * length
    end = start + length
    if step.op == "sessions":
        start, end = min(map(_minute, rows)), min(end, max(map(_minute, rows)) + GAP)
    return {
        **{name: rows[0][name] for name in step.keys[0]},
        "window_start": EPOCH + start * MINUTE,
        "window_end": EPOCH + end * MINUTE,
        "a": min(_known(rows, "a"), default=None),
        "b": max(_known(rows, "b"), default=None),
        "n": sum(_known(rows, "n")) if _known(rows, "n") else None,
    }


def _within(
    step: InTime, mine: Iterable[Row], theirs: Iterable[Row], by_key: dict[tuple[object, ...], list[Row]]
) -> Iterator[Row]:
    met = set[int]()
    for row in mine:
        partners = [
            each for each in by_key.get(_key(row, step.keys[0]), []) if abs(_minute(row) - _minute(each)) <= WITHIN
        ]
        met |= {id(each) for each in partners}
        yield from (_joined(step, row, each) for each in partners)
        if not partners and step.how != "inner":
            yield _joined(step, row, None)
    if step.how == "full":
        yield from (_joined(step, None, row) for row in theirs if id(row) not in met)


def _as_of(step: InTime, mine: Iterable[Row], by_key: dict[tuple[object, ...], list[Row]]) -> Iterator[Row]:
    for row in mine:
        before = [each for each in by_key.get(_key(row, step.keys[0]), []) if _minute(each) <= _minute(row)]
        newest = max(before, key=lambda each: (_minute(each), each["n"]), default=None)
        valid = None if newest is None or newest["n"] % GONE == 0 else newest
        if valid or step.how == "null":
            yield _joined(step, row, valid)


def _joined(step: InTime, one: Row | None, other: Row | None) -> Row:
    here, there = one or {}, other or {}
    key = _key(here, step.keys[0]) if one else _key(there, step.keys[1])
    n = (here.get("n") or 0) + (there.get("n") or 0)
    return {**dict(zip(step.keys[0], key, strict=True)), **_values(here, there), "n": n}


def _values(here: Row, there: Row) -> Row:
    return {"a": here.get("a"), "b": here.get("b"), "t": here["t"] if here else there["t"]}


def _key(row: Row, columns: Sequence[str]) -> tuple[object, ...]:
    return tuple(row[name] for name in columns)


def _known(rows: Iterable[Row], column: str) -> list[Any]:
    return [row[column] for row in rows if row[column] is not None]


def _minute(row: Row) -> int:
    when: datetime = row["t"]
    return (when - EPOCH) // MINUTE
