"""Steps that bring the records of a key together: aggregates, joins, what is latest of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Literal, Self

from partitioning.authoring.arguments import checked
from partitioning.authoring.changing_steps import ChangingSteps
from partitioning.authoring.state_sql import alive, combined_lives, expired, latest_of_lives, lives_keep
from partitioning.authoring.step_output import StepOutput, any_of, met_by_key, names
from partitioning.authoring.step_rules import bad_key, cannot_expire, cannot_keep, cannot_take_changes
from partitioning.authoring.words import How, KeyFormatName
from partitioning.errors import Finding, Refused, refuse
from partitioning.kinds import Kind
from partitioning.model.composite_key import bad_parts, canonical, composite, key_parts
from partitioning.model.graph import Join, Op, StateSpec, Step, alive_of, list_items, quote
from partitioning.model.placement import KeyFormat
from partitioning.model.watermarks import AHEAD
from partitioning.numbers import FAN_IN
from partitioning.values import replace


@checked
class KeyedSteps(ChangingSteps, frozen=True):
    """The steps of a flow that bring the records of a key together."""

    def aggregate(self, columns: str, *, by: str | None = None, name: str | None = None) -> Self:
        """One row per key (and per value of the expressions `by`) of this batch's records.

        Of rows that take the place of others it aggregates all that there are, not only those of the batch.
        """
        if self.means.changes:
            called = name or f"{self.step}.{Op.AGGREGATE}"
            return self._aggregated_again(columns, by, called, name or self.alias)
        sql = self.aggregated(f"{by}, {columns}" if by else columns)
        return self._step(Op.AGGREGATE, sql, (columns, by) if by else (columns,), name, keyed=True)

    def cogroup(self, columns: str, *others: tuple[Self, str], name: str | None = None) -> Self:
        """One row for each key of any flow, with the aggregates of each flow. `columns` are those of this flow.

        `views.cogroup("count(*) AS views", (clicks, "count(*) AS clicks"))`. Each list of expressions sees its own flow
        only, and gives null where that flow has no record of the key.
        """
        flows = self._with([flow for flow, _ in others], Op.COGROUP)
        listed, called = (columns, *(text for _, text in others)), name or f"{self.step}.{Op.COGROUP}"
        flows = self._all_kept(flows, Op.COGROUP, called) if self._meet_changing(flows) else flows
        sides = [f"({flow.aggregated(text)}) AS {quote(flow.alias)}" for flow, text in zip(flows, listed, strict=True)]
        kept = ", ".join(f"{quote(flow.alias)}.* EXCLUDE ({names(flow._key_columns)})" for flow in flows)
        # Records without a key are one group here too.
        joined = _joined(sides, flows, "FULL JOIN", "IS NOT DISTINCT FROM")
        sql = f"SELECT {self._keys_of(flows)}, {kept} FROM {joined}"
        grouped = flows[0]._step(Op.COGROUP, sql, listed, called, inputs=flows, keyed=True)
        return replace(grouped, alias=name or self.alias)

    def join(
        self,
        other: Self | Sequence[Self],
        columns: str,
        *,
        how: How = "inner",
        on: str | None = None,
        name: str | None = None,
    ) -> Self:
        """Join with one or several flows by their keys. `on` is a further condition, for the last flow.

        `columns` are SQL expressions over all flows by their aliases: `flights.dep_delay, planes.seats`.
        The result has this flow's key column and alias. `how` is inner, left or full.
        """
        flows = self._with([other] if isinstance(other, StepOutput) else other, Op.JOIN, how)
        called = name or f"{self.step}.{Op.JOIN}"
        flows = self._all_kept(flows, Op.JOIN, called) if self._meet_changing(flows) else flows
        joined = _joined([flow._source for flow in flows], flows, Join(how).sql, "=") + (f" AND ({on})" if on else "")
        keys = flows[0]._keys_of(flows if how == Join.FULL else flows[:1])
        sql, said = f"SELECT {keys}, {columns} FROM {joined}", (columns, on) if on else (columns,)
        met = flows[0]._step(Op.JOIN, sql, said, called, inputs=flows, keyed=True)
        return replace(met, alias=name or self.alias)

    def partial(
        self,
        columns: str,
        *,
        by: str | Sequence[str] | None = None,
        key_format: KeyFormatName = "string",
        name: str | None = None,
    ) -> Self:
        """Aggregate the records of each task: one row for each value of the column `by`, or of several columns, or one
        row for each task.

        The number of rows depends on the number of tasks, so only `combine` may follow. `key_format` is that of `by`,
        unless `by` is the flow's own key.
        """
        refuse(cannot_take_changes(self, Op.PARTIAL))
        if by == self.key:
            key_format = self.key_format
        where = f"partial of {self.step}"
        called, made = ("", "") if by is None else new_key(by, key_format, where, None)
        if same := by is not None and called == self.key:
            made = ""
        keys = (
            [f"{made} AS {quote(called)}" if made else quote(called), *map(quote, key_parts(called))] if called else []
        )
        listed, expressions = ", ".join((*keys, columns)), (columns, *named(by or ()))
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
    ) -> Self:
        """Aggregate the rows of each key to one, in columns of the same names and types (Apex: unifier).

        The step may be applied to its own results, so `fan_in` can limit how many parts are combined at once; more are
        combined in levels. With `running` it continues from its results of earlier batches: a batch gives the rows of
        its keys, over all batches so far.

        With `keep`, a key expires: its row is dropped once the watermark is more than `keep` past the last `time` of
        its rows, an SQL expression. It begins anew with a row of a later time. See `expired`. Rows whose time is
        infinite, or more than `ahead` after the day on which the batch is planned, are dropped.
        """
        refuse(cannot_expire(self, Op.COMBINE, time, keep, ahead, running=running))
        if fan_in is not None and fan_in < 2:
            what = f"a fan-in of {fan_in} combines nothing"
            raise Refused.of(Kind.DECLARATION, what, f"combine of {self.step}", "use 2 or more", fan_in=fan_in)
        if fan_in is not None:
            FAN_IN.check(fan_in, f"combine of {self.step}")
        if self.means.changes:
            refuse(cannot_take_changes(self, Op.COMBINE) if time is not None else ())
            called = name or f"{self.step}.{Op.COMBINE}"
            return self._aggregated_again(columns, None, called, name or self.alias)
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
    ) -> Self:
        """The latest record of each key of this batch, over all batches so far: the one with the greatest `by`.

        `by` is an SQL expression, or several in parentheses. Of records equal in it, the one with the greatest columns
        counts, so arrival order does not matter. With `keep`, a key expires as in `combine`.
        """
        refuse([*cannot_keep(self, Op.LATEST, {}), *cannot_expire(self, Op.LATEST, time, keep, ahead, running=True)])
        if time is not None and keep is not None:
            refuse(cannot_take_changes(self, Op.LATEST))
            sql = latest_of_lives(self.step, self.alias, self.key, by, time, keep, ahead)
            return self._expiring(Op.LATEST, sql, (by, time), name, keep, ahead)
        flow, called = self, name or f"{self.step}.{Op.LATEST}"
        if self.means.changes:
            (flow,) = self._all_kept([self], Op.LATEST, called)
        row = quote(flow.alias)
        newest = f"row_number() OVER (PARTITION BY {flow._qualified_key} ORDER BY ({by}) DESC NULLS LAST, {row} DESC)"
        sql = f"SELECT * FROM {flow._source} QUALIFY {newest} = 1"
        keeps: StateSpec | Literal[False] = False if self.means.changes else StateSpec()
        newest_flow = flow._step(Op.LATEST, sql, (by,), called, keyed=True, state=keeps)
        return replace(newest_flow, alias=name or self.alias)

    def _expiring(
        self,
        op: Op,
        sql: str,
        expressions: tuple[str, ...],
        name: str | None,
        keep: timedelta,
        ahead: timedelta,
        **more: Any,
    ) -> Self:
        """The rows of keys that have not expired, of a step that keeps a row for each life of a key."""
        keeps = lives_keep(self._source, self.key, expressions[-1], keep, ahead)
        lives = self._step(op, sql, expressions, name, keyed=True, state=keeps, **more)
        shown = lives._step(Op.FILTER, alive(lives.step, self.key, keep), (), alive_of(lives.step))
        return replace(shown, alias=lives.alias)

    def expired(self, *, name: str | None = None) -> Self:
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


def _joined(sides: Sequence[str], flows: Sequence[StepOutput], word: str, equal: str) -> str:
    """The sides joined in turn, each by its key to the key of the sides before it."""
    text, keys = sides[0], [flow._qualified_key for flow in flows]
    for number in range(1, len(sides)):
        before = any_of(keys[:number]) if word == "FULL JOIN" else keys[0]
        text += f" {word} {sides[number]} ON {met_by_key(before, flows[number], equal)}"
    return text


def new_key(key: str | Sequence[str], key_format: str, where: str, sql: str | None) -> tuple[str, str]:
    """The column of a new key, and the SQL that makes it, empty if it is there. Raises Refused with all findings."""
    if isinstance(key, str):
        several = sql is not None and len([*list_items(sql)]) > 1
        then = 'write one, or name the columns of the key: rekey(("a", "b"))'
        what = f"{sql!r} are several expressions, and a key is made by one"
        found = [Finding.of(Kind.DECLARATION, what, where, then, sql=sql)] if several else []
        refuse([*bad_key(key, key_format, where), *found])
        return key, sql or ""
    findings = list(bad_parts(key, where, 1))
    if sql or key_format != KeyFormat.STRING:
        what = "a key of several columns has no expression and no key format of its own"
        then = "select the columns before, as they are to be"
        findings.append(Finding.of(Kind.DECLARATION, what, where, then, columns=list(key)))
    refuse(findings)
    return composite(key), canonical(key)


def named(key: str | Sequence[str]) -> tuple[str, ...]:
    """The columns of a key, as expressions."""
    return (quote(key),) if isinstance(key, str) else tuple(map(quote, key))
