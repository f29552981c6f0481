"""Flows: the output of a stream or step, and the steps that may follow it, each compiled to one SELECT.

Expressions are DuckDB's SQL. Planning checks them against the discovered columns. Joins and aggregates always use the
flow's key, so no expression can break co-location.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from partitioning.authoring.state_sql import (
    ALONE,
    CLOSES,
    NEW,
    OF,
    OPEN,
    SINCE,
    alive,
    beside,
    by_time,
    came,
    combined_lives,
    distinct,
    distinct_keeps,
    duration,
    expired,
    in_sessions,
    is_beside,
    latest_of_lives,
    lives_keep,
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
from partitioning.authoring.step_rules import (
    bad_key,
    cannot_be_given_alone,
    cannot_be_valid,
    cannot_close,
    cannot_expire,
    cannot_keep,
    cannot_meet,
    cannot_write,
    no_key,
    unfinished,
)
from partitioning.errors import Finding, Refused
from partitioning.imports import import_path
from partitioning.kinds import Kind
from partitioning.model.composite_key import bad_parts, canonical, composite, key_parts
from partitioning.model.graph import ColumnComment, Join, Missing, Mode, Op, StateSpec, Step, alive_of, quote, union
from partitioning.model.leaving import TIME
from partitioning.model.mark_columns import RECORDS
from partitioning.model.offsets import check_name
from partitioning.model.placement import MURMUR2, OPAQUE, HashName, KeyFormat, hash_findings
from partitioning.model.streams import Column
from partitioning.model.watermarks import AHEAD, Late
from partitioning.numbers import FAN_IN, PARTITIONS
from partitioning.values import Value, replace

if TYPE_CHECKING:
    from partitioning.authoring.pipeline import Pipeline


class Flow(Value, frozen=True):
    """The output of a stream or step. `alias` is its name in SQL, `key` its key column, empty if it has none; one that
    is made of several has their names (see `partitioning.model.composite_key`).

    A step has the name that the user gives it, otherwise one made from its input: `flights.filter`. A given name is
    also the alias from there on. An `unfinished` flow has a row for each key of each task (see `partial`).
    """

    pipeline: Pipeline
    step: str
    alias: str
    key: str
    key_format: KeyFormat
    unfinished: bool = False

    def filter(self, condition: str, *, name: str | None = None) -> Flow:
        """Keep the records for which the SQL condition is true."""
        return self._step(Op.FILTER, f"SELECT * FROM {self._source} WHERE {condition}", (condition,), name)

    def select(self, columns: str, *, name: str | None = None) -> Flow:
        """Keep the key and these value columns: a list of SQL expressions, `a, b + 1 AS c`.

        `_partition` and the stream's offset column may be selected too: the lineage of a record.
        """
        return self._step(
            Op.SELECT, f"SELECT {_listed(self._key_columns, columns)} FROM {self._source}", (columns,), name
        )

    def rekey(
        self,
        key: str | Sequence[str],
        *,
        sql: str | None = None,
        key_format: str = KeyFormat.STRING,
        name: str | None = None,
    ) -> Flow:
        """Use another key: the column `key`, or a new column of that name made by the expression `sql`, or several
        columns, `key=("customer", "country")`.

        Nothing moves here. Records move only before a step that needs equal keys together.
        """
        where = f"rekey of {self.step}"
        called, made = _new_key(key, key_format, where, sql)
        old = f"* EXCLUDE ({quote(self.key)})" if key_parts(self.key) else "*"
        columns = f"{made} AS {quote(called)}, {old}" if made else old
        select, expressions = f"SELECT {columns} FROM {self._source}", (sql,) if sql else _named(key)
        return self._step(Op.REKEY, select, expressions, name, key=called, key_format=key_format, rekeys=True)

    def repartition(self, partitions: int | None = None, *, hash: str = MURMUR2, name: str | None = None) -> Flow:
        """Move the records even if no step needs it: into `partitions` if given, by the hash of that name.

        `hash` is `murmur2`, `java`, or the import path of a function that gives each key a number,
        `package.module:function` (Apex: stream codec).
        """
        where = f"repartition of {self.step}"
        findings = list(hash_findings(hash, self.key_format, where))
        if hash == OPAQUE:
            what = "an opaque hash cannot place records"
            findings.append(Finding.of(Kind.DECLARATION, what, where, "name the hash to place them by", step=self.step))
        if partitions is not None and partitions < 1:
            what = f"{partitions} partitions asked for"
            findings.append(Finding.of(Kind.DECLARATION, what, where, "ask for 1 or more", partitions=partitions))
        elif partitions is not None and (finding := PARTITIONS.finding(partitions, where)):
            findings.append(finding)
        if not self.key:
            findings.append(no_key(self, where))
        _refuse(findings)
        sql = f"SELECT * FROM {self._source}"
        return self._step(Op.REPARTITION, sql, (), name, partitions=partitions, hash=HashName(hash))

    def merge(self, *others: Flow, name: str | None = None) -> Flow:
        """The records of all flows, which must have the same columns and the same key.

        A column that is a bare NULL in one of them is of the type that it has in the others.
        """
        flows = self._with(others, Op.MERGE)
        return self._step(Op.MERGE, union(flow.step for flow in flows), (), name, inputs=flows)

    def aggregate(self, columns: str, *, by: str | None = None, name: str | None = None) -> Flow:
        """One row per key (and per value of the expressions `by`) of this batch's records."""
        sql = self.aggregated(f"{by}, {columns}" if by else columns)
        return self._step(Op.AGGREGATE, sql, (columns, by) if by else (columns,), name, keyed=True)

    def cogroup(self, columns: str, *others: tuple[Flow, str], name: str | None = None) -> Flow:
        """One row for each key of any flow, with the aggregates of each flow. `columns` are those of this flow.

        `views.cogroup("count(*) AS views", (clicks, "count(*) AS clicks"))`. Each list of expressions sees its own flow
        only, and gives null where that flow has no record of the key.
        """
        flows = self._with([flow for flow, _ in others], Op.COGROUP)
        listed = (columns, *(text for _, text in others))
        sides = [f"({flow.aggregated(text)}) AS {quote(flow.alias)}" for flow, text in zip(flows, listed, strict=True)]
        kept = ", ".join(f"{quote(flow.alias)}.* EXCLUDE ({_names(flow._key_columns)})" for flow in flows)
        # Records without a key are one group here too.
        joined = _joined(sides, flows, "FULL JOIN", "IS NOT DISTINCT FROM")
        sql = f"SELECT {self._keys_of(flows)}, {kept} FROM {joined}"
        return self._step(Op.COGROUP, sql, listed, name, inputs=flows, keyed=True)

    def join(
        self,
        other: Flow | Sequence[Flow],
        columns: str,
        *,
        how: str = Join.INNER,
        on: str | None = None,
        name: str | None = None,
    ) -> Flow:
        """Join with one or several flows by their keys. `on` is a further condition, for the last flow.

        `columns` are SQL expressions over all flows by their aliases: `flights.dep_delay, planes.seats`.
        The result has this flow's key column and alias. `how` is inner, left or full.
        """
        flows = self._with([other] if isinstance(other, Flow) else other, Op.JOIN, how)
        joined = _joined([flow._source for flow in flows], flows, Join(how).sql, "=") + (f" AND ({on})" if on else "")
        keys = self._keys_of(flows if how == Join.FULL else [self])
        sql = f"SELECT {keys}, {columns} FROM {joined}"
        return self._step(Op.JOIN, sql, (columns, on) if on else (columns,), name, inputs=flows, keyed=True)

    def partial(
        self,
        columns: str,
        *,
        by: str | Sequence[str] | None = None,
        key_format: str = KeyFormat.STRING,
        name: str | None = None,
    ) -> Flow:
        """Aggregate the records of each task: one row for each value of the column `by`, or of several columns, or one
        row for each task.

        The number of rows depends on the number of tasks, so only `combine` may follow. `key_format` is that of `by`,
        unless `by` is the flow's own key.
        """
        if by == self.key:
            key_format = self.key_format
        where = f"partial of {self.step}"
        called, made = ("", "") if by is None else _new_key(by, key_format, where, None)
        if same := by is not None and called == self.key:
            made = ""
        keys = (
            [f"{made} AS {quote(called)}" if made else quote(called), *map(quote, key_parts(called))] if called else []
        )
        listed, expressions = ", ".join((*keys, columns)), (columns, *_named(by or ()))
        sql = f"SELECT {listed} FROM {self._source} GROUP BY ALL"
        return self._step(Op.PARTIAL, sql, expressions, name, key=called, key_format=key_format, rekeys=not same)

    def combine(
        self,
        columns: str,
        *,
        running: bool = False,
        time: str | None = None,
        keep: timedelta | None = None,
        ahead: timedelta = AHEAD,
        fan_in: int | None = None,
        name: str | None = None,
    ) -> Flow:
        """Aggregate the rows of each key to one, in columns of the same names and types (Apex: unifier).

        The step may be applied to its own results, so `fan_in` can limit how many parts are combined at once; more are
        combined in levels. With `running` it continues from its results of earlier batches: a batch gives the rows of
        its keys, over all batches so far.

        With `keep`, a key expires: what it has is dropped once the watermark is more than that past the last `time` of
        its rows, an SQL expression, and it begins anew with a row that happened later than that. See `expired`. Rows
        whose time is infinite, or more than `ahead` after the day on which the batch is planned, are dropped.
        """
        _refuse(cannot_expire(self, Op.COMBINE, time, keep, ahead, running=running))
        if fan_in is not None and fan_in < 2:
            what = f"a fan-in of {fan_in} combines nothing"
            raise Refused.of(Kind.DECLARATION, what, f"combine of {self.step}", "use 2 or more", fan_in=fan_in)
        if fan_in is not None:
            FAN_IN.check(fan_in, f"combine of {self.step}")
        if time is not None and keep is not None:
            sql = combined_lives(self.step, self.alias, self._key_columns, columns, time, keep, ahead)
            return self._expiring(Op.COMBINE, sql, (columns, time), name, keep, ahead, fan_in=fan_in)
        sql = self.aggregated(columns)
        return self._step(Op.COMBINE, sql, (columns,), name, keyed=True, state=running and StateSpec(), fan_in=fan_in)

    def latest(
        self,
        by: str,
        *,
        time: str | None = None,
        keep: timedelta | None = None,
        ahead: timedelta = AHEAD,
        name: str | None = None,
    ) -> Flow:
        """The latest record of each key of this batch, over all batches so far: the one with the greatest `by`.

        `by` is an SQL expression, or several in parentheses. Of records equal in it, the one with the greatest columns
        counts, so arrival order does not matter. With `keep`, a key expires as in `combine`.
        """
        _refuse([*cannot_keep(self, Op.LATEST, {}), *cannot_expire(self, Op.LATEST, time, keep, ahead, running=True)])
        if time is not None and keep is not None:
            sql = latest_of_lives(self.step, self.alias, self.key, by, time, keep, ahead)
            return self._expiring(Op.LATEST, sql, (by, time), name, keep, ahead)
        row = quote(self.alias)
        newest = f"row_number() OVER (PARTITION BY {self._qualified_key} ORDER BY ({by}) DESC NULLS LAST, {row} DESC)"
        sql = f"SELECT * FROM {self._source} QUALIFY {newest} = 1"
        return self._step(Op.LATEST, sql, (by,), name, keyed=True, state=StateSpec())

    def _expiring(
        self,
        op: Op,
        sql: str,
        expressions: tuple[str, ...],
        name: str | None,
        keep: timedelta,
        ahead: timedelta,
        **more: Any,
    ) -> Flow:
        """The rows of keys that have not expired, of a step that keeps a row for each life of a key."""
        keeps = lives_keep(self._source, self.key, expressions[-1], keep, ahead)
        lives = self._step(op, sql, expressions, name, keyed=True, state=keeps, **more)
        shown = lives._step(Op.FILTER, alive(lives.step, self.key, keep), (), alive_of(lives.step))
        return replace(shown, alias=lives.alias)

    def expired(self, *, name: str | None = None) -> Flow:
        """The rows of keys that have expired, of a `combine` or `latest` with `keep`: each once, as it was last, in the
        batch in which the watermark is more than `keep` past it, also without a record of its key."""
        lives = self.keeping
        if lives is None or not lives.state:
            what, then = f"nothing of {self.step} expires", "give it to what combine or latest with keep= returned"
            raise Refused.of(Kind.DECLARATION, what, f"expired of {self.step}", then, step=self.step)
        keep = timedelta(microseconds=lives.state.microseconds)
        flow = replace(self, step=lives.name)
        made = flow._step(Op.FILTER, expired(lives.name, keep), (), name or f"{lives.name}.expired")
        return replace(made, alias=name or self.alias)

    @property
    def keeping(self) -> Step | None:
        """The step that keeps the lives of whose keys this flow has the rows."""
        steps = {step.name: step for step in self.pipeline.steps}
        here = steps.get(self.step)
        before = steps.get(here.inputs[0]) if here and here.op is Op.FILTER else None
        return before if before and before.state and before.state.of_lives else None

    def distinct(
        self,
        identity: str,
        *,
        time: str,
        within: timedelta,
        keep: timedelta | None = None,
        ahead: timedelta = AHEAD,
        name: str | None = None,
    ) -> Flow:
        """Drop duplicates: records with the same key and `identity` as an earlier one, at a `time` no more than
        `within` away.

        Both are SQL expressions; records where one of them is null all stay. Records are remembered until they are
        `keep` older than the latest time seen (twice `within` by default), so a duplicate may come that late. A time
        that is infinite, or more than `ahead` after the day on which the batch is planned, does not count.
        """
        kept = keep or _twice(within)
        _refuse(cannot_keep(self, Op.DISTINCT, {"within": within, "keep": kept}))
        _refuse(cannot_keep(self, Op.DISTINCT, {"ahead": ahead}))
        called = self.step + ".distinct" if name is None else name
        sql = distinct(self._source, self.key, identity, time, within, ahead, called)
        keeps = distinct_keeps(self._source, self.key, identity, time, kept, ahead, called)
        return self._step(Op.DISTINCT, sql, (identity, time), name, keyed=True, state=keeps)

    def join_within(
        self,
        other: Flow,
        columns: str,
        *,
        times: tuple[str, str],
        within: timedelta,
        how: str = Join.INNER,
        keep: timedelta | None = None,
        ahead: timedelta = AHEAD,
        name: str | None = None,
    ) -> Flow:
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
        kept = keep or _twice(within)
        for flow in flows:
            _refuse(cannot_keep(flow, Op.JOIN, {"within": within, "keep": kept}))
        _refuse(cannot_keep(self, Op.JOIN, {"ahead": ahead}))
        inner = how == Join.INNER
        if not inner:
            _refuse(cannot_be_given_alone(flows, keep))
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
            on = f"{_met(left._qualified_key, right, '=')} AND {near} AND ({left._new} OR {right._new})"
            both = f"{left._source} JOIN {beside(right.step, right.alias, span)}"
            sql = f"SELECT {left._keys_of([left])}, {columns} FROM {both} ON {on}"
            flow = left._step(Op.JOIN, sql, (columns,), joined, inputs=(left, right), keyed=True)
            return replace(flow, alias=name or self.alias)
        given = left._given_once(right, left._joined_in_time(right, columns, Join(how), span), columns, joined, "true")
        return replace(given, alias=name or self.alias)

    def join_as_of(
        self,
        versions: Flow,
        columns: str,
        *,
        times: tuple[str, str],
        keep: timedelta,
        wait: timedelta = timedelta(),
        missing: str = Missing.NULL,
        deletes: str | None = None,
        ahead: timedelta = AHEAD,
        name: str | None = None,
    ) -> Flow:
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
        kept = {"wait": wait, "keep": keep} if wait else {"keep": keep}
        _refuse([*cannot_keep(versions, Op.JOIN, kept), *cannot_keep(self, Op.JOIN, {"ahead": ahead})])
        _refuse([*cannot_be_given_alone(flows, None), *cannot_be_valid(flows, missing, deletes)])
        joined = name or f"{self.step}.join"
        left = self._recent(f"{joined}.{self.alias}", times[0], wait, ahead, wait)
        right = versions._versions(f"{joined}.{versions.alias}", times[1], keep, ahead, deletes)
        shown = f"{quote(ALONE)} IS NULL" if missing == Missing.DROP else "true"
        given = left._given_once(right, left._joined_as_of(right, columns), columns, joined, shown)
        return replace(given, alias=name or self.alias)

    def _given_once(self, right: Flow, sql: str, columns: str, name: str, shown: str) -> Flow:
        """The rows of a join in time, of which the SQL marks those without a partner, as far as they are shown."""
        # What is kept of both has the names of the flows.
        inner = "marked" if "marked" not in {self.alias.lower(), right.alias.lower()} else "of_both"
        marked = self._step(Op.JOIN, sql, (columns,), f"{name}.{inner}", inputs=(self, right), keyed=True)
        rows = f"SELECT * EXCLUDE ({quote(ALONE)}) FROM {quote(marked.step)} WHERE {shown}"
        return marked._step(Op.FILTER, rows, (), name)

    def _joined_as_of(self, right: Flow, columns: str) -> str:
        """The SELECT of the records that close, each beside its version, with a mark where none is valid."""
        row, valid = quote(right.alias), by_time(right.step, right.alias, right._without_nulls)
        return (
            f"SELECT {self._keys_of([self])}, {columns}, "
            f"CASE WHEN {right._time} IS NULL THEN '{self.step}' END AS {quote(ALONE)} "
            f"FROM (SELECT * FROM {quote(self.step)} WHERE {quote(CLOSES)}) AS {quote(self.alias)} "
            f"ASOF LEFT JOIN ({valid}) AS {row} "
            f"ON {self._qualified_key} = {row}.{quote(OF)} AND {self._time} >= {row}.{quote(SINCE)}"
        )

    def _versions(self, name: str, time: str, keep: timedelta, ahead: timedelta, deletes: str | None) -> Flow:
        """The versions of this batch, and those of earlier batches that are not older, or the newest of their key."""
        keeps = versions_keep(self._source, self.key, time, keep, ahead)
        sql = versions_of(recent(self._source, time, ahead, name), self.alias, deletes)
        said = (time, deletes) if deletes else (time,)
        return replace(self._step(Op.RECENT, sql, said, name, keyed=True, state=keeps), alias=self.alias)

    def _joined_in_time(self, right: Flow, columns: str, how: Join, span: int) -> str:
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
    ) -> Flow:
        """The records of this batch, and those of earlier batches that are not older than that. Of windows, `time` is
        their start, and they may be `corrected` for so long; of a `session` there is the records' own time, and the
        gap; of a full join also when they `came`."""
        source = with_own_time(self._source, session[0], self.alias) if session else self._source
        keeps = recent_keeps(source, self.key, time, keep, ahead, waits, name, came)
        keeps = of_sessions(keeps, name, session[1]) if session else keeps
        sql = recent(source, time, ahead, name, came)
        sql = sql if waits is None or corrected is not None else marked(sql, name, waits)
        # What is kept for corrections has to be all of a window, so another `keep` is another state.
        expressions = (time, *([duration(corrected)] if corrected else []))
        expressions += (session[0], duration(session[1])) if session else ()
        flow = self._step(Op.RECENT, sql, expressions, name, keyed=True, state=keeps)
        return replace(flow, alias=self.alias)

    def windows(
        self,
        columns: str,
        *,
        time: str,
        every: timedelta,
        gap: timedelta | None = None,
        late: str = Late.DROP,
        keep: timedelta | None = None,
        ahead: timedelta = AHEAD,
        name: str | None = None,
    ) -> Flow:
        """One row per key and window of event time, with these aggregates of its records, `window_start` and
        `window_end`: given once, when the watermark passes the end.

        `time` is an SQL expression; windows are `every` long, one after the other. Its streams have to say their times.
        A record that comes when its window was given is `late`: "drop" counts it, "set aside" leaves it to its stream's
        bad_records, and "correct" gives the window again with it, for `keep` after it was given. A time that is
        infinite, or more than `ahead` after the day on which the batch is planned, is in no window.

        With a `gap`, a row is a session: records of a key of which each is no more than that after the one before, and
        all in one window. It closes when the watermark is `gap` past its last record, or at the window's end.
        """
        _refuse(cannot_close(self, every, gap, late, keep, ahead))
        called, corrected, waits = name or f"{self.step}.windows", keep or timedelta(), waiting_for(every)
        start, kept = window_of(time, every), waits + corrected
        recently = self._recent(
            f"{called}.{self.alias}", start, kept, ahead, waits, corrected, (time, gap) if gap else ()
        )
        keys, policy = recently._key_columns, Late(late)
        if gap:
            sql = in_sessions(recently._source, self.alias, recently.step, keys, columns, every, gap, policy)
        else:
            sql = windowed(recently._source, recently.step, _names(keys), columns, every, corrected, policy)
        # What is kept has the name of this flow.
        inner = "counted" if self.alias.lower() != "counted" else "in_windows"
        counted = recently._step(Op.AGGREGATE, sql, (columns,), f"{called}.{inner}", keyed=True)
        shown = f"SELECT * EXCLUDE ({quote(RECORDS)}) FROM {quote(counted.step)}"
        return replace(counted._step(Op.FILTER, shown, (), called), alias=name or self.alias)

    def process(
        self,
        function: str | Callable[..., Any],
        columns: Mapping[str, str],
        *,
        key: str | None = None,
        key_format: str = KeyFormat.STRING,
        state: Mapping[str, str] | None = None,
        partitionable: bool = True,
        name: str | None = None,
    ) -> Flow:
        """Run a Python function on the Arrow table of each task. `columns` declares its output, with DuckDB types.

        `function` is a function of a module, or its import path `package.module:function`. Without `key`, it must leave
        each record its key; with it, `key` is the new key column. A function that is not `partitionable` runs in one
        task.

        `state` declares the columns of its state, among them the flow's key. The function then gets two tables: the
        records of this batch, and its state of their keys. It returns two: rows, and the new state of these keys.
        """
        findings = []
        if state is not None and self.key not in state:
            what = f"the state has no column {self.key!r}" if self.key else f"{self.step} has no key"
            where = f"process of {self.step}"
            then = "add it to state"
            findings.append(
                Finding.of(Kind.DECLARATION, f"{what}: state is kept by key", where, then, step=self.step, key=self.key)
            )
        return self._called(
            Op.PROCESS,
            function,
            columns,
            (self,),
            key,
            key_format,
            name,
            findings,
            sql=f"SELECT * FROM {self._source}",
            keyed=state is not None,
            state=state is not None and StateSpec(columns=_declared(state)),
            partitions=None if partitionable else 1,
        )

    def spark(
        self,
        function: str | Callable[..., Any],
        columns: Mapping[str, str],
        *others: Flow,
        key: str | None = None,
        key_format: str = KeyFormat.STRING,
        name: str | None = None,
    ) -> Flow:
        """Run a function on Spark's DataFrames: of this flow, then of the others. `columns` are as for `process`.

        All records of a key are in the DataFrames of one call. One call may get the records of several tasks, depending
        on their number, so the function must treat records by key only. Without `key`, it must return keys that it got.
        It needs Spark: the runner `local` refuses it.
        """
        findings = list(cannot_meet(Op.SPARK, Join.FULL, [self, *others])) if others else []
        flows = (self, *others)
        return self._called(Op.SPARK, function, columns, flows, key, key_format, name, findings, sql="", keyed=True)

    def _called(
        self,
        op: Op,
        function: str | Callable[..., Any],
        columns: Mapping[str, str],
        inputs: Sequence[Flow],
        key: str | None,
        key_format: str,
        name: str | None,
        findings: list[Finding],
        *,
        sql: str,
        **more: Any,
    ) -> Flow:
        """A step that calls a function. Raises Refused with these findings and others."""
        where = f"{op} of {self.step}"
        kept, kept_format = (self.key, self.key_format) if key is None else (key, key_format)
        if key is not None:
            findings.extend(bad_key(key, key_format, where))
        if kept and kept not in columns:
            what, then = f"the key column {kept!r} is not declared", "add it to columns, or name key="
            findings.append(Finding.of(Kind.KEYS_DO_NOT_MEET, what, where, then, kept=kept))
        path = ""
        try:
            path = import_path(function, where)
        except Refused as refusal:
            findings.extend(refusal.findings)
        _refuse(findings)
        return self._step(
            op,
            sql,
            (),
            name,
            inputs=inputs,
            key=kept,
            key_format=kept_format,
            rekeys=key is not None,
            function=path,
            columns=_declared(columns),
            **more,
        )

    def write(
        self,
        table: str,
        *,
        mode: str = Mode.APPEND,
        deletes: str | None = None,
        lineage: bool = False,
        expect: Iterable[Mapping[str, Any]] = (),
        comment: str = "",
        comments: Mapping[str, str] | None = None,
    ) -> None:
        """Publish the rows to a result table. With `lineage` they have columns `_batch` and `_task`.

        Mode `append` adds the rows. Mode `upsert` keeps one row for each key, the latest; where the SQL condition
        `deletes` is true of it, none. Mode `replace` keeps the rows of one batch. `expect` holds Great Expectations
        configurations as plain data: `{"type": …, "kwargs": {…}}`. `comment` says what the table is, `comments` what
        its columns are: they go into its log, where catalogues and query engines find them.
        """
        _refuse(cannot_write(self, check_name(table, "table"), mode, deletes))
        flow = self._upserted(f"{table}.upsert", deletes) if mode == Mode.UPSERT else self
        said = tuple(ColumnComment(*each) for each in (comments or {}).items())
        self.pipeline._write(table, flow, lineage, tuple(expect), Mode(mode), comment, said)

    def _as_table(self, deletes: str | None, *, kept: bool) -> Flow:
        """The latest records of a table without those that delete their key, under the table's name."""
        flow = self
        if kept:
            sql, expressions = self._undeleted(deletes)
            flow = self._step(Op.TABLE, sql, expressions, f"{self.step}.kept", keyed=True, state=StateSpec())
        elif deletes is not None:
            flow = self.filter(f"({deletes}) IS NOT TRUE")
        return replace(flow, alias=self.alias)

    def _undeleted(self, deletes: str | None) -> tuple[str, tuple[str, ...]]:
        """The SELECT of the records that do not delete their key, and its expressions."""
        if deletes is None:
            return f"SELECT * FROM {self._source}", ()
        return f"SELECT * FROM {self._source} WHERE ({deletes}) IS NOT TRUE", (deletes,)

    def _upserted(self, name: str, deletes: str | None) -> Flow:
        """A flow whose step keeps its output, one row for each key."""
        step = next((step for step in self.pipeline.steps if step.name == self.step), None)
        if step and step.keeps_its_rows and deletes is None:
            return self
        sql, expressions = self._undeleted(deletes)
        return self._step(Op.UPSERT, sql, expressions, name, keyed=True, state=StateSpec())

    def aggregated(self, columns: str) -> str:
        """The SELECT of these aggregates by the flow's key."""
        return f"SELECT {_listed(self._key_columns, columns)} FROM {self._source} GROUP BY ALL"

    @property
    def _source(self) -> str:
        return f"{quote(self.step)} AS {quote(self.alias)}"

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

    @property
    def _without_nulls(self) -> str:
        """The key; null if a column that it is made of is."""
        known = " AND ".join(f"{quote(self.alias)}.{quote(part)} IS NOT NULL" for part in key_parts(self.key))
        return f"CASE WHEN {known} THEN {self._qualified_key} END" if known else self._qualified_key

    @property
    def _key_columns(self) -> tuple[str, ...]:
        """The key column, then those that it is made of."""
        return (self.key, *key_parts(self.key)) if self.key else ()

    @property
    def _qualified_key(self) -> str:
        return f"{quote(self.alias)}.{quote(self.key)}"

    def _keys_of(self, flows: Sequence[Flow]) -> str:
        """A SELECT list of this flow's key columns, each as the first of these flows that has a row has it."""
        sides = [[f"{quote(flow.alias)}.{quote(column)}" for column in flow._key_columns] for flow in flows]
        keys = zip(map(_any, zip(*sides, strict=True)), self._key_columns, strict=True)
        return ", ".join(f"{key} AS {quote(column)}" for key, column in keys)

    def _with(self, others: Sequence[Flow], op: Op, how: str = Join.FULL) -> list[Flow]:
        """This flow and the others. Raises Refused, with all findings, if `op` cannot combine them."""
        flows = [self, *others]
        _refuse(cannot_meet(op, how, flows))
        return flows

    def _step(
        self,
        op: Op,
        sql: str,
        expressions: tuple[str, ...],
        name: str | None,
        *,
        inputs: Sequence[Flow] = (),
        key: str | None = None,
        key_format: str | None = None,
        **more: Any,
    ) -> Flow:
        read = inputs or (self,)
        _refuse(unfinished(op, read))
        step = Step(
            name or f"{self.step}.{op}",
            op,
            tuple(flow.step for flow in read),
            sql,
            expressions,
            key=self.key if key is None else key,
            key_format=KeyFormat(key_format or self.key_format),
            **more,
        )
        flow = Flow(self.pipeline, step.name, name or self.alias, step.key, step.key_format, op is Op.PARTIAL)
        self.pipeline._add(step, flow)
        return flow


def _declared(columns: Mapping[str, str]) -> tuple[Column, ...]:
    return tuple(Column(column, kind) for column, kind in columns.items())


def _new_key(key: str | Sequence[str], key_format: str, where: str, sql: str | None) -> tuple[str, str]:
    """The column of a new key, and the SQL that makes it, empty if it is there. Raises Refused with all findings."""
    if isinstance(key, str):
        _refuse(bad_key(key, key_format, where))
        return key, sql or ""
    findings = list(bad_parts(key, where))
    if sql or key_format != KeyFormat.STRING:
        what = "a key of several columns has no expression and no key format of its own"
        then = "select the columns before, as they are to be"
        findings.append(Finding.of(Kind.DECLARATION, what, where, then, columns=list(key)))
    _refuse(findings)
    return composite(key), canonical(key)


def _named(key: str | Sequence[str]) -> tuple[str, ...]:
    """The columns of a key, as expressions."""
    return (quote(key),) if isinstance(key, str) else tuple(map(quote, key))


def _names(columns: Iterable[str]) -> str:
    return ", ".join(map(quote, columns))


def _listed(keys: Sequence[str], columns: str) -> str:
    return f"{_names(keys)}, {columns}" if keys else columns


def _any(keys: Sequence[str]) -> str:
    return keys[0] if len(keys) == 1 else f"coalesce({', '.join(keys)})"


def _joined(sides: Sequence[str], flows: Sequence[Flow], word: str, equal: str) -> str:
    """The sides joined in turn, each by its key to the key of the sides before it."""
    text, keys = sides[0], [flow._qualified_key for flow in flows]
    for number in range(1, len(sides)):
        before = _any(keys[:number]) if word == "FULL JOIN" else keys[0]
        text += f" {word} {sides[number]} ON {_met(before, flows[number], equal)}"
    return text


def _met(key: str, other: Flow, equal: str) -> str:
    """The condition that a key is that of another flow's record. As in SQL, `=` is not true of keys with a NULL."""
    nulls = [f"{quote(other.alias)}.{quote(part)} IS NOT NULL" for part in key_parts(other.key) if equal == "="]
    return " AND ".join([f"{key} {equal} {other._qualified_key}", *nulls])


def _refuse(findings: Iterable[Finding]) -> None:
    if refused := tuple(findings):
        raise Refused(*refused)


def _twice(time: timedelta) -> timedelta:
    """Twice the time; one that is too long to double is refused as it is."""
    return 2 * time if abs(time) < timedelta.max / 2 else time
