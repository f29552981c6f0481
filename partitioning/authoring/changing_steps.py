"""Flows whose rows take the place of earlier ones: what a batch gives of them as changes, and what steps make of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Self

from partitioning.authoring.arguments import checked
from partitioning.authoring.change_sql import (
    all_come,
    changes,
    coming,
    counted,
    kept,
    logged,
    rows_of,
    selecting,
    totals,
)
from partitioning.authoring.step_output import StepOutput, listed
from partitioning.authoring.step_rules import cannot_change, cannot_keep_all
from partitioning.errors import refuse
from partitioning.model.graph import Op, StateSpec, Step, gives_expired, quote, waiting
from partitioning.model.mark_columns import CHANGE
from partitioning.model.meaning import Meaning, RowKind
from partitioning.values import replace

# Steps that leave a row as it is, or out, or give other columns of it.
_OF_ONE_ROW = {Op.FILTER, Op.SELECT, Op.PROCESS}
_IN_SQL = {Op.FILTER, Op.SELECT}


@checked
class ChangingSteps(StepOutput, frozen=True):
    """Steps of flows whose rows take the place of earlier ones."""

    @property
    def means(self) -> Meaning:
        """What its rows are."""
        return self.pipeline.meaning_of(self.step)

    def to_stream(self, *, name: str | None = None) -> Self:
        """The rows that each batch gives of it, as records: what follows does not know that a row takes the place of an
        earlier one (Kafka Streams: toStream). Its result depends on how records were cut into batches."""
        called = name or f"{self.step}.{Op.TO_STREAM}"
        if name is None and self.pipeline.has(called):
            return replace(self, step=called)
        sql = coming(self.step, self.alias) if self._is_weighed else f"SELECT * FROM {self._source}"
        return self._step(Op.TO_STREAM, sql, (), called, alias=name or self.alias)

    def kept(self, *, name: str | None = None) -> Self:
        """All records of it that ever come: a join, a cogroup or an aggregate of them is over all of them, not over
        those of a batch, and can be with rows that change (Flink SQL: a regular join). What it needs of them is kept
        for ever.

        Raises Refused unless its rows are records.
        """
        refuse(cannot_keep_all(self))
        if name is None:
            return self._changes()
        return replace(self._step(Op.CHANGES, all_come(self.step), (), name), alias=name)

    @property
    def declared_steps(self) -> Mapping[str, Step]:
        """The steps of its pipeline, by name."""
        return {step.name: step for step in self.pipeline.steps}

    @property
    def _is_weighed(self) -> bool:
        """Whether its rows say how often they come or go."""
        return self.means.rows is RowKind.CHANGES

    @property
    def _as_given(self) -> Self:
        """The flow that a batch's rows are taken from as records, if they are taken as they are."""
        step = self.pipeline.step_of(self.step)
        is_given = step and step.op is Op.TO_STREAM and CHANGE not in step.sql
        return replace(self, step=step.inputs[0]) if step and is_given else self

    def _selecting(self, columns: str) -> str:
        """A SELECT list, with how often a row comes or goes if the flow says so."""
        return selecting(columns) if self._is_weighed else columns

    def _moving(self) -> Self:
        """The flow, as changes if its rows take the place of others: what is left at their old places goes."""
        return self._changes() if self.means.rows is RowKind.NEWEST else self

    @property
    def tells_rows(self) -> bool:
        """Whether it is known which row of a key counts: of what keeps newest rows, of a table, and of windows by their
        key and start."""
        before, step = self._before(_OF_ONE_ROW | {Op.TABLE})
        windows = self.pipeline.step_of(step.inputs[0]) if step and step.op is Op.REKEY else None
        while windows and windows.op in {Op.FILTER, Op.SELECT}:
            windows = self.pipeline.step_of(windows.inputs[0])
        of_windows = bool(windows and windows.op is Op.AGGREGATE and waiting(windows, self.declared_steps))
        return before._keeps_newest(step) or bool(self._keys_behind(step)) or of_windows

    def _keys_behind(self, step: Step | None) -> Sequence[Self]:
        """The flows with the keys that changed, of a step that is made of all their rows."""
        steps = self.declared_steps
        rows = steps.get(step.inputs[0]) if step else None
        names = steps[rows.inputs[0]].inputs if rows and rows.op is Op.ROWS else ()
        return [replace(self, step=name) for name in names]

    @property
    def _gives_changes(self) -> bool:
        """Whether it is known what goes and what comes of it: also of a table that is kept."""
        _, step = self._before(_OF_ONE_ROW)
        return self.means.changes or bool(self.means.rows is RowKind.ALL and step and step.keeps_its_rows)

    def _meet_changing(self, flows: Sequence[Self]) -> bool:
        """Whether flows have to be taken as changes, to mean something together."""
        rows = {flow.means.rows for flow in flows}
        return RowKind.CHANGES in rows or (RowKind.NEWEST in rows and rows <= {RowKind.NEWEST, RowKind.ALL})

    def _changes(self) -> Self:
        """What comes and what goes of its rows in a batch. Of records, all come."""
        if self._is_weighed:
            return self
        name = f"{self.step}.changes"
        if self.pipeline.has(name):
            return replace(self, step=name)
        inputs: Sequence[Self] = (self,)
        between = list[Step]()
        if self.means.rows is not RowKind.RECORDS:
            before, step = self._before(_IN_SQL, between)
            if not step or not step.keeps_its_rows or (step.state and step.state.of_lives):
                inputs, between = (self._upserted(f"{self.step}.newest", None),), []
            elif between:
                inputs = (before, self)
        sql = changes(inputs[0].step, [(each.name, each.sql) for each in reversed(between)])
        keyed = self.means.rows is not RowKind.RECORDS
        return self._step(Op.CHANGES, sql, (), name, inputs=inputs, alias=self.alias, keyed=keyed)

    def _all_changes(self, flows: Sequence[Self], op: Op) -> list[Self]:
        """What comes and goes of flows. Raises Refused where that is not known; records only come."""
        where = f"{op} of {' and '.join(flow.step for flow in flows)}"
        unknown = [flow for flow in flows if not flow._gives_changes]
        if op is Op.MERGE:
            unknown = [flow for flow in unknown if flow.means.rows is not RowKind.RECORDS]
        refuse(finding for flow in unknown for finding in cannot_change(flow, where))
        return [flow._changes() for flow in flows]

    def _all_kept(self, flows: Sequence[Self], op: Op, name: str) -> list[Self]:
        """All rows of the keys that changed in any of the flows."""
        given = self._all_changes(flows, op)
        # All are declared before the first step that keeps rows: the sides of a join are placed together.
        read = [[flow, *flow._keys_of_others(given, name)] for flow in given]
        return [one._keeping_rows(others, name) for one, *others in read]

    def _keys_of_others(self, flows: Sequence[Self], name: str) -> list[Self]:
        """The keys that changed in other flows, under the name of this one's."""
        others = [flow for flow in flows if flow.step != self.step]
        return [flow if flow.key == self.key else flow._keys_as(self, name) for flow in others]

    def _keys_as(self, other: Self, name: str) -> Self:
        keys = zip(self._key_columns, other._key_columns, strict=True)
        made = ", ".join(f"{quote(self.alias)}.{quote(mine)} AS {quote(theirs)}" for mine, theirs in keys)
        called = f"{name}.keys.{other.alias}.{self.alias}"
        return self._step(Op.SELECT, f"SELECT {made} FROM {self._source}", (made,), called, key=other.key)

    def _keeping_rows(self, others: Sequence[Self], name: str) -> Self:
        inputs, called = (self, *others), f"{name}.kept.{self.alias}"
        rows = self._step(Op.KEEP, kept(self.step), (), called, inputs=inputs, keyed=True, state=StateSpec())
        return rows._step(Op.ROWS, rows_of(rows.step), (), f"{name}.rows.{self.alias}", alias=self.alias)

    def _aggregated_again(self, columns: str, by: str | None, name: str, alias: str) -> Self:
        """Aggregates of all rows of each key. Those that can be taken back keep totals; others keep the rows."""
        found = totals(columns) if by is None else None
        if found is None:
            (rows,) = self._all_kept([self], Op.AGGREGATE, name)
            sql, said = rows.aggregated(f"{by}, {columns}" if by else columns), (columns, by) if by else (columns,)
            return rows._step(Op.AGGREGATE, sql, said, name, alias=alias, keyed=True)
        flow = self._changes()
        keys = flow._key_columns
        parts = f"SELECT {listed(keys, found.parts)} FROM {counted(flow.step, flow.alias)} GROUP BY ALL"
        part = flow._step(Op.PARTIAL, parts, (columns,), f"{name}.parts")
        added = part.aggregated(found.sums)
        sums = part._step(Op.COMBINE, added, (found.sums,), f"{name}.totals", keyed=True, state=StateSpec())
        kept = f"SELECT * FROM {sums._source} WHERE {found.there}"
        there = sums._step(Op.FILTER, kept, (found.some,), f"{name}.there")
        shown = f"SELECT {listed(keys, found.shown)} FROM {there._source}"
        return there._step(Op.SELECT, shown, (found.shown,), name, alias=alias)

    def _changelog(self, name: str) -> Self:
        """What comes and goes as records: a row for each time, with what it is in the column `_change_type`."""
        flow = self._changes()
        return flow._step(Op.TO_STREAM, logged(flow.step, flow.alias), (), name)

    def _upserted(self, name: str, deletes: str | None) -> Self:
        """A flow whose step keeps its output, one row for each key. A key that comes and has no row loses the one that
        it had: so the step also gets what comes before filters, for its keys."""
        step = self.declared_steps.get(self.step)
        if step and step.keeps_its_rows and step.op is not Op.KEEP and deletes is None:
            return self
        sql, expressions = self._undeleted(deletes)
        inputs: Sequence[Self] = ()
        if self._is_weighed:
            sql = f"SELECT * EXCLUDE ({quote(CHANGE)}) FROM ({sql}) WHERE {quote(CHANGE)} > 0"
        else:
            between = list[Step]()
            before, step = self._before(_OF_ONE_ROW | {Op.TABLE}, between)
            if keys := self._keys_behind(step):
                inputs = (self, *keys)
            elif any(each.op is not Op.SELECT for each in between) and before._keeps_newest(step):
                inputs = (self, before)
        return self._step(Op.UPSERT, sql, expressions, name, inputs=inputs, keyed=True, state=StateSpec())

    def _undeleted(self, deletes: str | None) -> tuple[str, tuple[str, ...]]:
        """The SELECT of the records that do not delete their key, and its expressions."""
        if deletes is None:
            return f"SELECT * FROM {self._source}", ()
        return f"SELECT * FROM {self._source} WHERE ({deletes}) IS NOT TRUE", (deletes,)

    def _before(self, ops: Collection[Op], between: list[Step] | None = None) -> tuple[Self, Step | None]:
        """The flow before steps of these kinds that look at each row alone, and its step. Adds the steps `between`, the
        last first."""
        steps = self.declared_steps
        flow, step = self, steps.get(self.step)
        while step and step.op in ops and _is_of_one_row(step, self.key) and not gives_expired(step, steps):
            if between is not None:
                between.append(step)
            flow = replace(flow, step=step.inputs[0])
            step = steps.get(flow.step)
        return flow, step

    def _keeps_newest(self, step: Step | None) -> bool:
        """Whether a flow has the newest row of each key that comes: of a step that keeps it, or of a table."""
        tables = {stream.name for stream in self.pipeline.streams if stream.table}
        return self.step in tables or bool(step and step.keeps_its_rows)


def _is_of_one_row(step: Step, key: str) -> bool:
    """Whether a step looks at each row alone, and leaves its key."""
    return step.key == key and (step.op is not Op.PROCESS or (not step.state and step.partitions is None))
