"""Steps that go by the times of records: what is distinct within a time, joins in time, windows."""

from __future__ import annotations

from datetime import timedelta
from typing import Self

from partitioning.authoring.arguments import checked
from partitioning.authoring.changing_steps import ChangingSteps
from partitioning.authoring.state_sql import (
    ALONE,
    CLOSES,
    NEW,
    OF,
    OPEN,
    SINCE,
    beside,
    by_time,
    came,
    distinct,
    distinct_keeps,
    duration,
    in_sessions,
    is_beside,
    marked,
    met,
    of_sessions,
    recent,
    recent_keeps,
    versions_keep,
    versions_of,
    waiting_for,
    window_of,
    windowed,
    with_own_time,
)
from partitioning.authoring.step_output import met_by_key, names
from partitioning.authoring.step_rules import (
    cannot_be_given_alone,
    cannot_be_valid,
    cannot_close,
    cannot_keep,
    cannot_take_changes,
)
from partitioning.authoring.words import How, LateRecord, MissingVersion
from partitioning.errors import refuse
from partitioning.model.graph import Join, Missing, Op, list_items, quote
from partitioning.model.leaving import TIME
from partitioning.model.mark_columns import RECORDS
from partitioning.model.watermarks import AHEAD, Late
from partitioning.values import replace


@checked
class TimedSteps(ChangingSteps, frozen=True):
    """The steps of a flow that go by the times of records, and keep them for a time."""

    def distinct(
        self,
        identity: str,
        *,
        time: str,
        within: timedelta,
        keep: timedelta | None = None,
        ahead: timedelta = AHEAD,
        name: str | None = None,
    ) -> Self:
        """Drop duplicates: records with the same key and `identity` as an earlier one, at a `time` no more than
        `within` away.

        Both are SQL expressions, `identity` perhaps several; records where one of them is null all stay. Records are
        remembered until they are `keep` older than the latest time seen (twice `within` by default), so a duplicate may
        come that late. A time that is infinite, or more than `ahead` after the day on which the batch is planned, does
        not count.
        """
        kept = keep or _twice(within)
        refuse(cannot_keep(self, Op.DISTINCT, {"within": within, "keep": kept}))
        refuse([*cannot_keep(self, Op.DISTINCT, {"ahead": ahead}), *cannot_take_changes(self, Op.DISTINCT)])
        called = self.step + ".distinct" if name is None else name
        if len([*list_items(identity)]) > 1:
            identity = f"({identity})"
        sql = distinct(self._source, self.key, identity, time, within, ahead, called)
        keeps = distinct_keeps(self._source, self.key, identity, time, kept, ahead, called)
        return self._step(Op.DISTINCT, sql, (identity, time), name, keyed=True, state=keeps)

    def join_within(
        self,
        other: Self,
        columns: str,
        *,
        times: tuple[str, str],
        within: timedelta,
        how: How = "inner",
        keep: timedelta | None = None,
        ahead: timedelta = AHEAD,
        name: str | None = None,
    ) -> Self:
        """Join with another flow by key, where the times of both are at most `within` apart.

        The two records may come in different batches, in any order; the batch that brings the second gives the row.
        `times` are SQL expressions, one for each flow. Records are kept until they are `keep` older than the watermark
        of both flows or, if their streams say no times, the latest time seen of their flow (twice `within` by default).
        A record whose time is infinite, or more than `ahead` after the day on which the batch is planned, joins
        nothing. `columns` are SQL expressions over both flows by their aliases.

        With `how` left or full, a record of this flow, or of both, that has found no partner is given alone, once, when
        the watermark of both flows is `within` past its time. Their streams have to say their times.
        """
        flows = self._with([other], Op.JOIN, how)
        refuse(finding for flow in flows for finding in cannot_take_changes(flow, "join_within"))
        kept = keep or _twice(within)
        for flow in flows:
            refuse(cannot_keep(flow, Op.JOIN, {"within": within, "keep": kept}))
        refuse(cannot_keep(self, Op.JOIN, {"ahead": ahead}))
        inner = how == Join.INNER
        if not inner:
            refuse(cannot_be_given_alone(flows, keep))
        joined = name or f"{self.step}.join"
        # Of which sides a record waits, to be given alone.
        waits = (None if inner else within, within if how == Join.FULL else None)
        sides = [f"{joined}.{flow.alias}" for flow in flows]
        when = came(sides, within) if how == Join.FULL else ""
        left, right = (
            flow._recent(side, time, kept, ahead, waiting, came=when)
            for flow, side, time, waiting in zip(flows, sides, times, waits, strict=True)
        )
        span = within // timedelta(microseconds=1)
        if inner:
            near = f"{is_beside(left._time, right.alias, span)} AND abs({left._time} - {right._time}) <= {span}"
            on = f"{met_by_key(left._qualified_key, right, '=')} AND {near} AND ({left._new} OR {right._new})"
            both = f"{left._source} JOIN {beside(right.step, right.alias, span)}"
            sql = f"SELECT {left._keys_of([left])}, {columns} FROM {both} ON {on}"
            flow = left._step(Op.JOIN, sql, (columns,), joined, inputs=(left, right), keyed=True)
            return replace(flow, alias=name or self.alias)
        given = left._given_once(right, left._joined_in_time(right, columns, Join(how), span), columns, joined, "true")
        return replace(given, alias=name or self.alias)

    def join_as_of(
        self,
        versions: Self,
        columns: str,
        *,
        times: tuple[str, str],
        keep: timedelta,
        wait: timedelta = timedelta(),
        missing: MissingVersion = "null",
        deletes: str | None = None,
        ahead: timedelta = AHEAD,
        name: str | None = None,
    ) -> Self:
        """Give each record beside the version of its key that was valid at its time: the newest whose time is not
        after it.

        `times` are SQL expressions: when a record happened, and from when on a version is valid. A record is given
        once, when the watermark of both flows is `wait` past its time, so that a version that comes late is found;
        their streams have to say their times. Where no version is valid, the columns of `versions` are null or, with
        `missing="drop"`, the record is dropped. A version of which the SQL condition `deletes` is true ends the
        validity of those before it.

        Versions are kept until they are `keep` older than the watermark, the newest of each key that is older for ever.
        Times that are infinite, or more than `ahead` after the day on which the batch is planned, do not count.
        `columns` are SQL expressions over both flows by their aliases.
        """
        flows = self._with([versions], Op.JOIN)
        refuse(finding for flow in flows for finding in cannot_take_changes(flow, "join_as_of"))
        kept = {"wait": wait, "keep": keep} if wait else {"keep": keep}
        refuse([*cannot_keep(versions, Op.JOIN, kept), *cannot_keep(self, Op.JOIN, {"ahead": ahead})])
        refuse([*cannot_be_given_alone(flows, None), *cannot_be_valid(flows, missing, deletes)])
        joined = name or f"{self.step}.join"
        left = self._recent(f"{joined}.{self.alias}", times[0], wait, ahead, wait)
        right = versions._versions(f"{joined}.{versions.alias}", times[1], keep, ahead, deletes)
        shown = f"{quote(ALONE)} IS NULL" if missing == Missing.DROP else "true"
        given = left._given_once(right, left._joined_as_of(right, columns), columns, joined, shown)
        return replace(given, alias=name or self.alias)

    def windows(
        self,
        columns: str,
        *,
        time: str,
        every: timedelta,
        gap: timedelta | None = None,
        late: LateRecord = "drop",
        keep: timedelta | None = None,
        ahead: timedelta = AHEAD,
        name: str | None = None,
    ) -> Self:
        """One row per key and window of event time, with these aggregates of its records, `window_start` and
        `window_end`: given once, when the watermark passes the end.

        `time` is an SQL expression; windows are `every` long, one after the other. Its streams have to say their times.
        A record that comes when its window was given is `late`: "drop" counts it, "set aside" leaves it to its stream's
        bad_records, and "correct" gives the window again with it, for `keep` after it was given. A time that is
        infinite, or more than `ahead` after the day on which the batch is planned, is in no window.

        With a `gap`, a row is a session: records of a key of which each is no more than that after the one before, and
        all in one window. It closes when the watermark is `gap` past its last record, or at the window's end.
        """
        refuse([*cannot_close(self, every, gap, late, keep, ahead), *cannot_take_changes(self, "windows")])
        called, corrected, waits = name or f"{self.step}.windows", keep or timedelta(), waiting_for(every)
        start, kept = window_of(time, every), waits + corrected
        recently = self._recent(
            f"{called}.{self.alias}", start, kept, ahead, waits, corrected, (time, gap) if gap else ()
        )
        keys, policy = recently._key_columns, Late(late)
        if gap:
            sql = in_sessions(recently._source, self.alias, recently.step, keys, columns, every, gap, policy)
        else:
            sql = windowed(recently._source, recently.step, names(keys), columns, every, corrected, policy)
        # The kept records have the name of this flow.
        inner = "counted" if self.alias.lower() != "counted" else "in_windows"
        counted = recently._step(Op.AGGREGATE, sql, (columns,), f"{called}.{inner}", keyed=True)
        shown = f"SELECT * EXCLUDE ({quote(RECORDS)}) FROM {quote(counted.step)}"
        return replace(counted._step(Op.FILTER, shown, (), called), alias=name or self.alias)

    def _given_once(self, right: Self, sql: str, columns: str, name: str, shown: str) -> Self:
        """The rows of a join in time, of which the SQL marks those without a partner, as far as they are shown."""
        # The kept records of both have the names of the flows.
        inner = "marked" if "marked" not in {self.alias.lower(), right.alias.lower()} else "of_both"
        marked = self._step(Op.JOIN, sql, (columns,), f"{name}.{inner}", inputs=(self, right), keyed=True)
        rows = f"SELECT * EXCLUDE ({quote(ALONE)}) FROM {quote(marked.step)} WHERE {shown}"
        return marked._step(Op.FILTER, rows, (), name)

    def _joined_as_of(self, right: Self, columns: str) -> str:
        """The SELECT of the records that close, each beside its version, with a mark where none is valid."""
        row, valid = quote(right.alias), by_time(right.step, right.alias, right._without_nulls)
        return (
            f"SELECT {self._keys_of([self])}, {columns}, "
            f"CASE WHEN {right._time} IS NULL THEN '{self.step}' END AS {quote(ALONE)} "
            f"FROM (SELECT * FROM {quote(self.step)} WHERE {quote(CLOSES)}) AS {quote(self.alias)} "
            f"ASOF LEFT JOIN ({valid}) AS {row} "
            f"ON {self._qualified_key} = {row}.{quote(OF)} AND {self._time} >= {row}.{quote(SINCE)}"
        )

    def _versions(self, name: str, time: str, keep: timedelta, ahead: timedelta, deletes: str | None) -> Self:
        """The versions of this batch, and those of earlier batches that are not older, or the newest of their key."""
        keeps = versions_keep(self._source, self.key, time, keep, ahead)
        sql = versions_of(recent(self._source, time, ahead, name), self.alias, deletes)
        said = (time, deletes) if deletes else (time,)
        return replace(self._step(Op.RECENT, sql, said, name, keyed=True, state=keeps), alias=self.alias)

    def _joined_in_time(self, right: Self, columns: str, how: Join, span: int) -> str:
        """The SELECT of new pairs, and of records that close without a partner, each with the mark of its side.

        All conditions compare a value of one side with one of the other, so that DuckDB joins by hash. What was given
        alone gets no partner any more, and is none of what came later.
        """
        theirs = beside(right.step, right.alias, span)
        valid = [is_beside(self._time, right.alias, span), f"{right._new} <= {self._mark(OPEN)}"]
        closes = [f"WHEN {right._new} IS NULL THEN {self._mark(CLOSES)}"]
        alone = [f"WHEN {right._new} IS NULL THEN '{self.step}'"]
        if how is Join.FULL:
            # A record that may be given alone is there once.
            theirs, valid = right._source, met(self.alias, right.alias)
            closes.append(f"WHEN {self._new} IS NULL THEN {right._mark(CLOSES)}")
            alone.append(f"WHEN {self._new} IS NULL THEN '{right.step}'")
        on = " AND ".join(
            [
                f"{self._qualified_key} = {right._without_nulls}",
                f"{right._time} >= {self._time} - {span}",
                f"{right._time} <= {self._time} + {span}",
                *valid,
            ]
        )
        keys = self._keys_of([self, right] if how is Join.FULL else [self])
        return (
            f"SELECT {keys}, {columns}, CASE {' '.join(alone)} END AS {quote(ALONE)} "
            f"FROM {self._source} {how.sql} {theirs} ON {on} "
            f"WHERE CASE {' '.join(closes)} ELSE {self._new} OR {right._new} END"
        )

    def _recent(
        self,
        name: str,
        time: str,
        keep: timedelta,
        ahead: timedelta,
        waits: timedelta | None,
        corrected: timedelta | None = None,
        session: tuple[()] | tuple[str, timedelta] = (),
        came: str = "",
    ) -> Self:
        """The records of this batch, and those of earlier batches that are not older than that. Of windows, `time` is
        their start, and they may be `corrected` for so long; of a `session` there is the records' own time, and the
        gap; of a full join also when they `came`."""
        source = with_own_time(self._source, session[0], self.alias) if session else self._source
        keeps = recent_keeps(source, self.key, time, keep, ahead, waits, name, came)
        keeps = of_sessions(keeps, name, session[1]) if session else keeps
        sql = recent(source, time, ahead, name, came)
        sql = sql if waits is None or corrected is not None else marked(sql, name, waits)
        # Corrections need all records of a window, so another `keep` is another state.
        expressions = (time, *([duration(corrected)] if corrected else []))
        expressions += (session[0], duration(session[1])) if session else ()
        flow = self._step(Op.RECENT, sql, expressions, name, keyed=True, state=keeps)
        return replace(flow, alias=self.alias)

    @property
    def _time(self) -> str:
        """The time of a record in a flow that is kept for a time."""
        return f"{quote(self.alias)}.{quote(TIME.name)}"

    @property
    def _new(self) -> str:
        """Whether a record is of this batch, in a flow that is kept for a time."""
        return f"{quote(self.alias)}.{quote(NEW)}"

    def _mark(self, mark: str) -> str:
        """A mark of a record in a flow that is kept for a time."""
        return f"{quote(self.alias)}.{quote(mark)}"


def _twice(time: timedelta) -> timedelta:
    """Twice the time; one that is too long to double is refused as it is."""
    return 2 * time if abs(time) < timedelta.max / 2 else time
