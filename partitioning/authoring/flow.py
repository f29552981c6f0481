"""Flows: the steps that may follow the output of a stream or step, each compiled to one SELECT.

Expressions are DuckDB's SQL. Planning checks them against the discovered columns. Joins and aggregates always use the
flow's key, so no expression can break co-location.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from partitioning.authoring.arguments import checked
from partitioning.authoring.keyed_steps import KeyedSteps, named, new_key
from partitioning.authoring.step_output import listed
from partitioning.authoring.step_rules import bad_key, cannot_meet, cannot_take_changes, cannot_write, no_key
from partitioning.authoring.timed_steps import TimedSteps
from partitioning.authoring.words import KeyFormatName, UpdateWay, WriteMode
from partitioning.errors import Finding, noting, refuse
from partitioning.imports import import_path
from partitioning.kinds import Kind
from partitioning.model.composite_key import key_parts
from partitioning.model.graph import ColumnComment, Join, Op, StateSpec, quote, union
from partitioning.model.offsets import check_name
from partitioning.model.placement import MURMUR2, OPAQUE, HashName, hash_findings
from partitioning.model.streams import DELETED, Column, Stream
from partitioning.model.table_mode import CHANGELOG, Mode, Updates
from partitioning.numbers import PARTITIONS
from partitioning.values import replace


@checked
class Flow(KeyedSteps, TimedSteps, frozen=True):
    """The output of a stream or step, and the steps that may follow it.

    Those that bring keys together are in `KeyedSteps`, those that go by times in `TimedSteps`, all others here.
    """

    def filter(self, condition: str, *, name: str | None = None) -> Flow:
        """Keep the records for which the SQL condition is true."""
        return self._step(Op.FILTER, f"SELECT * FROM {self._source} WHERE {condition}", (condition,), name)

    def select(self, columns: str, *, name: str | None = None) -> Flow:
        """Keep the key and these value columns: a list of SQL expressions, `a, b + 1 AS c`.

        `_partition` and the stream's offset column may be selected too: the lineage of a record.
        """
        rows = listed(self._key_columns, self._selecting(columns))
        return self._step(Op.SELECT, f"SELECT {rows} FROM {self._source}", (columns,), name)

    def rekey(
        self,
        key: str | Sequence[str],
        *,
        sql: str | None = None,
        key_format: KeyFormatName = "string",
        name: str | None = None,
    ) -> Flow:
        """Use another key: the column `key`, or a new column of that name made by the expression `sql`, or several
        columns, `key=("customer", "country")`.

        Nothing moves here. Records move only before a step that needs equal keys together.
        """
        where = f"rekey of {self.step}"
        called, made = new_key(key, key_format, where, sql)
        old = f"* EXCLUDE ({quote(self.key)})" if key_parts(self.key) else "*"
        columns, flow = f"{made} AS {quote(called)}, {old}" if made else old, self._moving()
        select, expressions = f"SELECT {columns} FROM {flow._source}", (sql,) if sql else named(key)
        called_as = name or f"{self.step}.{Op.REKEY}"
        made_flow = flow._step(Op.REKEY, select, expressions, called_as, key=called, key_format=key_format, rekeys=True)
        return replace(made_flow, alias=name or self.alias)

    def repartition(self, partitions: int | None = None, *, hash: str = MURMUR2, name: str | None = None) -> Flow:
        """Move the records even if no step needs it: into `partitions` if given, by the hash of that name.

        `hash` is `murmur2`, another by name, or the import path of a function that gives each key a number,
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
        refuse(findings)
        flow = self._changes() if self.means.leaves_out else self
        sql, called = f"SELECT * FROM {flow._source}", name or f"{self.step}.{Op.REPARTITION}"
        moved = flow._step(Op.REPARTITION, sql, (), called, partitions=partitions, hash=HashName(hash))
        return replace(moved, alias=name or self.alias)

    def merge(self, *others: Flow, name: str | None = None) -> Flow:
        """The records of all flows, which must have the same columns and the same key.

        A column that is a bare NULL in one of them is of the type that it has in the others.
        """
        flows, called = self._with(others, Op.MERGE), name or f"{self.step}.{Op.MERGE}"
        if self._meet_changing(flows):
            flows = self._all_changes(flows, Op.MERGE)
        merged = flows[0]._step(Op.MERGE, union(flow.step for flow in flows), (), called, inputs=flows)
        return replace(merged, alias=name or self.alias)

    def process(
        self,
        function: str | Callable[..., Any],
        columns: Mapping[str, str],
        *,
        key: str | None = None,
        key_format: KeyFormatName = "string",
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
        findings = list(cannot_take_changes(self, Op.PROCESS)) if self._is_weighed or state is not None else []
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
        key_format: KeyFormatName = "string",
        name: str | None = None,
    ) -> Flow:
        """Run a function on Spark's DataFrames: of this flow, then of the others. `columns` are as for `process`.

        All records of a key are in the DataFrames of one call. One call may get the records of several tasks, depending
        on their number, so the function must treat records by key only. Without `key`, it must return keys that it got.
        It needs Spark: the runner `local` refuses it.
        """
        flows = (self, *others)
        findings = list(cannot_meet(Op.SPARK, Join.FULL, flows)) if others else []
        findings += [each for flow in flows for each in cannot_take_changes(flow, Op.SPARK)]
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
        with noting(findings):
            path = import_path(function, where)
        refuse(findings)
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
        mode: WriteMode = "append",
        deletes: str | None = None,
        lineage: bool = False,
        expect: Iterable[Mapping[str, Any]] = (),
        comment: str = "",
        comments: Mapping[str, str] | None = None,
        updates: UpdateWay = "rewrite",
    ) -> None:
        """Publish the rows to a result table. With `lineage` they have columns `_batch` and `_task`.

        Mode `append` adds the rows. Mode `upsert` keeps one row for each key, the latest; where the SQL condition
        `deletes` is true of it, a filter leaves it out, or it expires, none. Mode `replace` keeps the rows of one
        batch. Mode `changelog` adds what comes and what goes: `_change_type` is insert or delete, `_batch` the batch.
        Of an upserted table, `updates` says how a small batch changes rows: `rewrite` writes the files that hold them
        again, `beside` writes the new rows beside them and a deletion vector of the dead ones, which not all readers
        know.
        `expect` holds Great Expectations configurations as plain data: `{"type": …, "kwargs": {…}}`. `comment`
        says what the table is, `comments` what its columns are: they go into its log, where catalogues and query
        engines find them.
        """
        refuse(cannot_write(self, check_name(table, "table"), mode, deletes, updates))
        flow, stored = self._as_given, mode
        if mode == Mode.UPSERT:
            flow = flow._upserted(f"{table}.upsert", deletes)
        elif mode == CHANGELOG:
            flow, stored, lineage = self._changelog(f"{table}.changelog"), Mode.APPEND, True
        said = tuple(ColumnComment(*each) for each in (comments or {}).items())
        self.pipeline._write(table, flow, lineage, tuple(expect), Mode(stored), comment, said, Updates(updates))

    def _as_table(self, stream: Stream, deletes: str | None, alias: str) -> Flow:
        """The latest records of a table without those that delete their key, under that name in SQL."""
        flow, sql, expressions = self, *self._undeleted(deletes)
        if stream.tells_deletes:
            # Where engines write rows of an Iceberg table again as they are, nothing of them changes.
            told = quote(DELETED)
            without = told if stream.changes else f"{told}, {quote(stream.offset)}"
            sql, expressions = f"SELECT * EXCLUDE ({without}) FROM {self._source} WHERE {told} IS NOT TRUE", (told,)
        if stream.kept:
            flow = self._step(Op.TABLE, sql, expressions, f"{self.step}.kept", keyed=True, state=StateSpec())
        if deletes is not None and not (stream.kept and deletes in expressions):
            flow = flow.filter(f"({deletes}) IS NOT TRUE")
        return replace(flow, alias=alias)


def _declared(columns: Mapping[str, str]) -> tuple[Column, ...]:
    return tuple(Column(column, kind) for column, kind in columns.items())
