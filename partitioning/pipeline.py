"""The pipeline API: a small logical graph of steps over streams, written in Python.

Expressions are DuckDB's SQL. They are compiled here to one SELECT per step and checked against the
discovered columns when a batch is planned. Joins and aggregates are always by the stream's key, so
that no expression can break co-location.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from partitioning.document import canonical
from partitioning.errors import Finding, Refused
from partitioning.offsets import check_name
from partitioning.placement import MURMUR2
from partitioning.schemes import Scheme
from partitioning.streams import REFUSE, Stream

JOINS = {"inner": "JOIN", "left": "LEFT JOIN", "full": "FULL JOIN"}


@dataclass(frozen=True, slots=True)
class Step:
    """One step as the plan holds it: `sql` selects from the steps named in `inputs`.

    `keyed` steps need all records of a key in one task. `expressions` are what the user wrote.
    """

    name: str
    op: str
    inputs: tuple[str, ...]
    sql: str
    expressions: tuple[str, ...]
    keyed: bool


@dataclass(frozen=True, slots=True)
class Write:
    """A result table: the step it holds, whether rows carry `_batch` and `_task`, and what is expected of it.

    `expectations` are Great Expectations configurations: `{"type": …, "kwargs": {…}}`, as JSON text.
    """

    table: str
    step: str
    key: str
    lineage: bool
    expectations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Flow:
    """What a step gives, to go on from. `alias` is how SQL names its columns' owner, `key` its key column."""

    pipeline: Pipeline
    step: str
    alias: str
    key: str

    def filter(self, condition: str, *, name: str | None = None) -> Flow:
        """Keep the records for which the SQL condition is true."""
        return self._step("filter", f"SELECT * FROM {self._source()} WHERE {condition}", (condition,), name)

    def select(self, columns: str, *, name: str | None = None) -> Flow:
        """Keep the key and these value columns: a list of SQL expressions, `a, b + 1 AS c`.

        `_partition` and the stream's offset column may be selected too: the lineage of a record.
        """
        return self._step("select", f"SELECT {quote(self.key)}, {columns} FROM {self._source()}", (columns,), name)

    def aggregate(self, columns: str, *, by: str | None = None, name: str | None = None) -> Flow:
        """One row per key (and per value of the expressions `by`) of this batch's records."""
        groups = [quote(self.key)] + ([by] if by else [])
        sql = f"SELECT {', '.join(groups)}, {columns} FROM {self._source()} GROUP BY ALL"
        return self._step("aggregate", sql, (columns, *([by] if by else [])), name, keyed=True)

    def join(
        self, other: Flow, columns: str, *, how: str = "inner", on: str | None = None, name: str | None = None
    ) -> Flow:
        """Join by the keys of both sides and, if given, the further condition `on`.

        `columns` are SQL expressions over both sides by their aliases: `flights.dep_delay, planes.seats`.
        The result has the left side's key column and alias. `how` is inner, left or full.
        """
        if how not in JOINS:
            raise Refused(
                Finding(f"unknown join {how!r}", f"join of {self.step} and {other.step}", "use " + ", ".join(JOINS))
            )
        if other.pipeline is not self.pipeline or other.alias.lower() == self.alias.lower():
            raise Refused(
                Finding(
                    f"{self.step} and {other.step} cannot be told apart or are of different pipelines",
                    f"join of {self.step} and {other.step}",
                    "join flows of one pipeline with different aliases; give one a name=",
                )
            )
        left, right = f"{quote(self.alias)}.{quote(self.key)}", f"{quote(other.alias)}.{quote(other.key)}"
        key = left if how != "full" else f"coalesce({left}, {right})"
        condition = f"{left} = {right}" + (f" AND ({on})" if on else "")
        sql = (
            f"SELECT {key} AS {quote(self.key)}, {columns} FROM {self._source()} "
            f"{JOINS[how]} {other._source()} ON {condition}"
        )
        expressions = (columns, *([on] if on else []))
        return self._step("join", sql, expressions, name, inputs=(self.step, other.step), keyed=True)

    def write(self, table: str, *, lineage: bool = False, expect: tuple[Mapping[str, Any], ...] = ()) -> None:
        """Publish the rows to a result table. `expect` holds GX expectations on them, as plain data."""
        self.pipeline._write(table, self, lineage, tuple(expect))

    def _source(self) -> str:
        return f"{quote(self.step)} AS {quote(self.alias)}"

    def _step(
        self,
        op: str,
        sql: str,
        expressions: tuple[str, ...],
        name: str | None,
        *,
        inputs: tuple[str, ...] | None = None,
        keyed: bool = False,
    ) -> Flow:
        step = Step(name or f"{self.step}.{op}", op, inputs or (self.step,), sql, expressions, keyed)
        self.pipeline._add(step)
        return Flow(self.pipeline, step.name, name or self.alias, self.key)


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
        return Flow(self, stream.name, stream.name, stream.key)

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


def quote(name: str) -> str:
    """A name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'
