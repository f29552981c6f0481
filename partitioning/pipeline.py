"""The pipeline API: a small logical graph of steps over streams, written in Python.

Expressions are DuckDB's SQL. They are compiled here to one SELECT per step and checked against the
discovered columns when a batch is planned. Joins and aggregates are always by the flow's key, so
that no expression can break co-location.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from partitioning.document import canonical
from partitioning.errors import Finding, Refused
from partitioning.graph import Graph, Step, Write, quote
from partitioning.imports import import_path
from partitioning.offsets import check_name
from partitioning.placement import MURMUR2
from partitioning.schemes import Scheme
from partitioning.streams import REFUSE, Column, Stream

JOINS = {"inner": "JOIN", "left": "LEFT JOIN", "full": "FULL JOIN"}


@dataclass(frozen=True, slots=True)
class Flow:
    """What a step gives, to go on from. `alias` is how SQL names its columns' owner, `key` its key column."""

    pipeline: Pipeline
    step: str
    alias: str
    key: str
    key_format: str

    def filter(self, condition: str, *, name: str | None = None) -> Flow:
        """Keep the records for which the SQL condition is true."""
        return self._step("filter", f"SELECT * FROM {self._source()} WHERE {condition}", (condition,), name)

    def select(self, columns: str, *, name: str | None = None) -> Flow:
        """Keep the key and these value columns: a list of SQL expressions, `a, b + 1 AS c`.

        `_partition` and the stream's offset column may be selected too: the lineage of a record.
        """
        return self._step("select", f"SELECT {self._key()}, {columns} FROM {self._source()}", (columns,), name)

    def rekey(self, key: str, *, sql: str | None = None, key_format: str = "string", name: str | None = None) -> Flow:
        """Go on by another key: the column `key`, or a new column of that name made by the expression `sql`.

        Records move to where the new key belongs only before a step that needs them there.
        """
        made = f"{sql} AS {quote(key)}, * FROM" if sql else "* FROM"
        expressions = (sql,) if sql else (quote(key),)
        return self._step(
            "rekey", f"SELECT {made} {self._source()}", expressions, name, key=key, key_format=key_format, rekeys=True
        )

    def repartition(self, partitions: int | None = None, *, placement: str = MURMUR2, name: str | None = None) -> Flow:
        """Move the records, whatever the planner thinks: into `partitions`, by the placement hash `placement`.

        `placement` is `murmur2` or the import path of a function, `package.module:function`, that gives each
        key a number (Apex: stream codec).
        """
        if partitions is not None and partitions < 1:
            raise Refused(
                Finding(f"{partitions} partitions asked for", f"repartition of {self.step}", "ask for 1 or more")
            )
        sql = f"SELECT * FROM {self._source()}"
        return self._step("repartition", sql, (), name, partitions=partitions, placement=placement)

    def merge(self, *others: Flow, name: str | None = None) -> Flow:
        """The records of all flows, which have the same columns and the same key."""
        flows = self._with(others, "merge")
        if len({(flow.key, flow.key_format) for flow in flows}) > 1:
            listed = ", ".join(f"{flow.step}: {flow.key} ({flow.key_format})" for flow in flows)
            raise Refused(
                Finding(f"flows to merge have different keys ({listed})", f"merge of {self.step}", "rekey them alike")
            )
        sql = " UNION ALL BY NAME ".join(f"SELECT * FROM {quote(flow.step)}" for flow in flows)
        return self._step("merge", sql, (), name, inputs=tuple(flow.step for flow in flows))

    def aggregate(self, columns: str, *, by: str | None = None, name: str | None = None) -> Flow:
        """One row per key (and per value of the expressions `by`) of this batch's records."""
        groups = [self._key()] + ([by] if by else [])
        sql = f"SELECT {', '.join(groups)}, {columns} FROM {self._source()} GROUP BY ALL"
        return self._step("aggregate", sql, (columns, *([by] if by else [])), name, keyed=True)

    def cogroup(self, columns: str, *others: tuple[Flow, str], name: str | None = None) -> Flow:
        """One row for each key of any of the flows, with each flow's aggregates: `columns` are this flow's.

        `views.cogroup("count(*) AS views", (clicks, "count(*) AS clicks"))`
        """
        flows = self._with([flow for flow, _ in others], "cogroup")
        listed = [columns, *(text for _, text in others)]
        sides = [
            f"(SELECT {flow._key()} AS {self._key()}, {text} FROM {flow._source()} GROUP BY ALL) AS {quote(flow.alias)}"
            for flow, text in zip(flows, listed, strict=True)
        ]
        kept = ", ".join(f"{quote(flow.alias)}.* EXCLUDE ({quote(self.key)})" for flow in flows)
        keys = [f"{quote(flow.alias)}.{quote(self.key)}" for flow in flows]
        sql = f"SELECT {_any(keys)} AS {quote(self.key)}, {kept} FROM {_joined(sides, keys, 'FULL JOIN')}"
        return self._step("cogroup", sql, tuple(listed), name, inputs=tuple(f.step for f in flows), keyed=True)

    def join(
        self,
        other: Flow | Sequence[Flow],
        columns: str,
        *,
        how: str = "inner",
        on: str | None = None,
        name: str | None = None,
    ) -> Flow:
        """Join one flow or several by the keys of all sides and, if given, the further condition `on`.

        `columns` are SQL expressions over all sides by their aliases: `flights.dep_delay, planes.seats`.
        The result has this flow's key column and alias. `how` is inner, left or full.
        """
        others = [other] if isinstance(other, Flow) else list(other)
        flows = self._with(others, "join")
        if how not in JOINS:
            raise Refused(
                Finding(
                    f"unknown join {how!r}", f"join of {' and '.join(f.step for f in flows)}", "use " + ", ".join(JOINS)
                )
            )
        keys = [f"{quote(flow.alias)}.{quote(flow.key)}" for flow in flows]
        sides = [flow._source() for flow in flows]
        key = _any(keys) if how == "full" else keys[0]
        joined = _joined(sides, keys, JOINS[how], on, left=how == "left")
        sql = f"SELECT {key} AS {quote(self.key)}, {columns} FROM {joined}"
        expressions = (columns, *([on] if on else []))
        return self._step("join", sql, expressions, name, inputs=tuple(flow.step for flow in flows), keyed=True)

    def partial(
        self, columns: str, *, by: str | None = None, key_format: str = "string", name: str | None = None
    ) -> Flow:
        """Aggregate what lies in each task, one row per value of the column `by`, or one row if there is none.

        Its rows depend on the number of tasks; only `combine`, which must follow, makes a result of them.
        """
        group = f"{quote(by)}, " if by else ""
        sql = f"SELECT {group}{columns} FROM {self._source()}" + (" GROUP BY ALL" if by else "")
        expressions = (columns, *([quote(by)] if by else []))
        return self._step("partial", sql, expressions, name, key=by or "", key_format=key_format, rekeys=by != self.key)

    def combine(
        self, columns: str, *, running: bool = False, fan_in: int | None = None, name: str | None = None
    ) -> Flow:
        """Aggregate the rows of `partial` of each key to one, in columns of the same names (Apex: unifier).

        As it may be applied to its own results, `fan_in` bounds how many inputs one unifier has: more are
        combined in levels. `running` goes on from the result of the batch before: its rows are state.
        """
        if fan_in is not None and fan_in < 2:
            raise Refused(Finding(f"a fan-in of {fan_in} combines nothing", f"combine of {self.step}", "use 2 or more"))
        group = f"{self._key()}, " if self.key else ""
        sql = f"SELECT {group}{columns} FROM {self._source()}" + (" GROUP BY ALL" if self.key else "")
        return self._step("combine", sql, (columns,), name, keyed=True, state=running, fan_in=fan_in)

    def process(
        self,
        function: str | Callable[..., Any],
        columns: Mapping[str, str],
        *,
        key: str | None = None,
        key_format: str = "string",
        stateful: bool = False,
        partitionable: bool = True,
        name: str | None = None,
    ) -> Flow:
        """Run a Python function on the Arrow table of each task. `columns` are those it gives, with DuckDB types.

        `function` is one of a module's own, or its import path `package.module:function`. Without `key` it is
        declared to leave each record its key; with it, `key` is the new key column. A `stateful` function
        needs all records of a key in one task and is given its own last table; one that is not
        `partitionable` runs in one task.
        """
        where = f"process of {self.step}"
        path = import_path(function, where)
        kept = key or self.key
        if kept and kept not in columns:
            raise Refused(
                Finding(f"the key column {kept!r} is not among its columns", where, "declare it, or another key=")
            )
        return self._step(
            "process",
            f"SELECT * FROM {self._source()}",
            (),
            name,
            key=kept,
            key_format=key_format if key else self.key_format,
            rekeys=key is not None,
            keyed=stateful,
            state=stateful,
            partitions=None if partitionable else 1,
            function=path,
            columns=tuple(Column(column, kind) for column, kind in columns.items()),
        )

    def write(self, table: str, *, lineage: bool = False, expect: tuple[Mapping[str, Any], ...] = ()) -> None:
        """Publish the rows to a result table. `expect` holds GX expectations on them, as plain data."""
        self.pipeline._write(table, self, lineage, tuple(expect))

    def _source(self) -> str:
        return f"{quote(self.step)} AS {quote(self.alias)}"

    def _key(self) -> str:
        return quote(self.key)

    def _with(self, others: Sequence[Flow], op: str) -> list[Flow]:
        """This flow and the others. Raises Refused if SQL could not tell them apart."""
        flows = [self, *others]
        where = f"{op} of {' and '.join(flow.step for flow in flows)}"
        aliases = [(flow.step if op == "merge" else flow.alias).lower() for flow in flows]
        if not others:
            raise Refused(Finding(f"there is nothing to {op} with", where, "name another flow"))
        if any(flow.pipeline is not self.pipeline for flow in flows) or len(set(aliases)) < len(flows):
            raise Refused(
                Finding(
                    f"{' and '.join(flow.step for flow in flows)} cannot be told apart or are of different pipelines",
                    where,
                    f"{op} flows of one pipeline with different aliases; give one a name=",
                )
            )
        return flows

    def _step(
        self,
        op: str,
        sql: str,
        expressions: tuple[str, ...],
        name: str | None,
        *,
        inputs: tuple[str, ...] | None = None,
        key: str | None = None,
        key_format: str | None = None,
        **more: Any,
    ) -> Flow:
        step = Step(
            name or f"{self.step}.{op}",
            op,
            inputs or (self.step,),
            sql,
            expressions,
            key=self.key if key is None else key,
            key_format=key_format or self.key_format,
            **more,
        )
        self.pipeline._add(step)
        return Flow(self.pipeline, step.name, name or self.alias, step.key, step.key_format)


def _any(keys: Sequence[str]) -> str:
    return f"coalesce({', '.join(keys)})"


def _joined(sides: Sequence[str], keys: Sequence[str], word: str, on: str | None = None, *, left: bool = False) -> str:
    """The sides joined one after the other by their keys; `on` holds for the last, when all are there."""
    text = sides[0]
    for number in range(1, len(sides)):
        before = keys[0] if left or word == JOINS["inner"] or number == 1 else _any(keys[:number])
        last = f" AND ({on})" if on and number == len(sides) - 1 else ""
        text += f" {word} {sides[number]} ON {before} = {keys[number]}{last}"
    return text


class Pipeline:
    """A named logical graph. Steps are named by the user or from what they follow, never by a number.

    >>> pipeline = Pipeline("delays", source="s3://landing/topics")
    >>> flights = pipeline.stream("flights", key="tailnum", partitions=12)
    >>> flights.filter("dep_delay > 0").aggregate("count(*) AS late").write("delays")
    >>> [step.name for step in pipeline.steps]
    ['flights.filter', 'flights.filter.aggregate']
    """

    def __init__(self, name: str, *, source: str = "", scheme: str | None = None) -> None:
        self.name = check_name(name, "pipeline")
        if name == "tables":
            raise Refused(
                Finding("a pipeline cannot be named 'tables'", "pipeline", "result tables lie there; rename it")
            )
        self.source = source
        self.scheme = Scheme.parse(scheme) if scheme else None
        self._streams: dict[str, Stream] = {}
        self._steps: dict[str, Step] = {}
        self._writes: dict[str, Write] = {}

    @property
    def streams(self) -> tuple[Stream, ...]:
        """The inputs, in declared order."""
        return tuple(self._streams.values())

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps, in declared order: each after its inputs."""
        return tuple(self._steps.values())

    @property
    def writes(self) -> tuple[Write, ...]:
        """The result tables, in declared order."""
        return tuple(self._writes.values())

    @property
    def graph(self) -> Graph:
        """Streams, steps and writes as one value."""
        return Graph(self.streams, self.steps, self.writes)

    def stream(
        self,
        name: str,
        *,
        key: str,
        partitions: int,
        source: str | None = None,
        key_format: str = "string",
        offset: str = "_offset",
        null_keys: str = REFUSE,
        placement: str = MURMUR2,
    ) -> Flow:
        """Declare an input whose new records are read once, batch by batch."""
        return self._declare(
            Stream(name, source or self.source, key, partitions, key_format, offset, null_keys, placement)
        )

    def table(
        self,
        name: str,
        *,
        key: str,
        partitions: int,
        source: str | None = None,
        key_format: str = "string",
        offset: str = "_offset",
        null_keys: str = REFUSE,
        placement: str = MURMUR2,
    ) -> Flow:
        """Declare an input that is read whole in every batch; the latest record of each key counts."""
        return self._declare(
            Stream(name, source or self.source, key, partitions, key_format, offset, null_keys, placement, table=True)
        )

    def _declare(self, stream: Stream) -> Flow:
        self._once(stream.checked().name)
        self._streams[stream.name] = stream
        return Flow(self, stream.name, stream.name, stream.key, stream.key_format)

    def _add(self, step: Step) -> None:
        self._once(check_name(step.name, "step"))
        self._steps[step.name] = step

    def _write(self, table: str, flow: Flow, lineage: bool, expect: tuple[Mapping[str, Any], ...]) -> None:
        if check_name(table, "table") in self._writes:
            raise Refused(Finding(f"table {table!r} is written twice", self.name, "write each table once"))
        try:
            expectations = tuple(canonical(dict(one)).decode() for one in expect)
        except (TypeError, ValueError) as error:
            raise Refused(
                Finding(f"an expectation is no plain data: {error}", f"table {table!r}", "write it as JSON has it")
            ) from error
        self._writes[table] = Write(table, flow.step, flow.key, lineage, expectations)

    def _once(self, name: str) -> None:
        # SQL takes names that differ in case only for one.
        if name.lower() in {other.lower() for other in (*self._streams, *self._steps)}:
            raise Refused(
                Finding(
                    f"two streams or steps are named {name!r}",
                    f"pipeline {self.name!r}",
                    "give one of them another name=",
                )
            )
