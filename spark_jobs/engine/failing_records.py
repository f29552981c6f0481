"""Records on which a step fails, found by halving what the task reads of the streams that set such records aside."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import pyarrow as pa

from partitioning.errors import Finding, Refused
from partitioning.kinds import Kind
from partitioning.model.graph import quote
from partitioning.model.leaving import given_to
from partitioning.model.offsets import Span, StreamPartition
from partitioning.model.order import Order, Ordered, OrderedStream
from partitioning.values import replace
from spark_jobs.engine.order_steps import Steps
from spark_jobs.engine.take import Unusable
from spark_jobs.engine.task_database import connect

# If a step fails on more records than this of a task, the step is wrong, and not the records.
MOST_FOUND = 100
# Errors that one record may cause.
_OF_RECORDS = (Kind.SQL, Kind.FUNCTION, Kind.RECORD)

# By input and partition, the offsets of records that cannot be used.
Failed = Mapping[tuple[str, int], Mapping[int, Unusable]]
# The steps of an order in a database, with a folder for what is spilled, and without records that failed.
Trial = Callable[[duckdb.DuckDBPyConnection, Order, Path, Failed], Steps]
# The offsets of partitions of an input, each partition once.
_Spans = Sequence[tuple[int, Span]]


def failed_before(order: Order) -> Failed:
    """The records that were set aside in earlier attempts, of that stage or of another."""
    failed: dict[tuple[str, int], dict[int, Unusable]] = {}
    for record in order.failed or ():
        unusable = Unusable(record.why, record.step)
        failed.setdefault((record.stream, record.partition), {})[record.offset] = unusable
    return failed


def may_be_of_records(order: Order, error: BaseException) -> bool:
    """Whether an error of a task may be that of single records which may be set aside."""
    of_records = isinstance(error, Refused) and all(finding.kind in _OF_RECORDS for finding in error.findings)
    return of_records and any(map(_sets_aside, order.inputs))


def failing_records(order: Order, trial: Trial, memory: str, known: Failed) -> Failed:
    """The records of streams on which a step of the task fails, with the step and its error, beside those that are
    `known`; no others if no single record is to blame.

    The steps run on ever smaller parts of the records, beside all of the task's other input: for each record that is
    found about twice as long as the task itself, as halves are passed over on which no step fails. Raises Refused, with
    the error of a step, if it fails on more than `MOST_FOUND` records.
    """
    return _Search(order, trial, memory, known).found()


class _Search:
    """One search. Inputs that are not looked at yet are empty."""

    def __init__(self, order: Order, trial: Trial, memory: str, known: Failed) -> None:
        self._order, self._trial, self._memory = order, trial, memory
        self._spans: dict[int, _Spans] = {
            number: () for number, ordered in enumerate(order.inputs) if _sets_aside(ordered)
        }
        self._failed = {place: dict(records) for place, records in known.items()}
        self._count = 0

    def found(self) -> Failed:
        if self._error() is not None:
            return self._failed
        for number in self._spans:
            whole = [(one.partition, Span(one.start, one.end)) for one in self._order.inputs[number].partitions]
            self._look(number, [(partition, span) for partition, span in whole if span.start < span.end])
            # Later inputs are looked at beside what is left of this one.
            self._spans[number] = whole
        return self._failed

    def _look(self, number: int, spans: _Spans) -> None:
        """Add the failing records of these spans."""
        self._spans[number] = spans
        error = self._error()
        if error is None:
            return
        if (count := sum(span.end - span.start for _, span in spans)) == 1:
            ((partition, span),) = spans
            self._add(self._order.inputs[number].name, partition, span.start, error.findings[0])
        else:
            for half in (_cut(spans, 0, count // 2), _cut(spans, count // 2, count)):
                self._look(number, half)

    def _add(self, stream: str, partition: int, offset: int, finding: Finding) -> None:
        self._count += 1
        if self._count > MOST_FOUND:
            what = f"{finding.what}; so it is on more than {MOST_FOUND} records, of which this is one"
            where = f"{StreamPartition(stream, partition)} at offset {offset:,}, {finding.where}"
            raise Refused(replace(finding, what=what, where=where))
        self._failed.setdefault((stream, partition), {})[offset] = Unusable(finding.what, self._failing_step())

    def _failing_step(self) -> str:
        """The first step that fails on the records that are looked at."""
        for count, step in enumerate(self._order.steps, start=1):
            if step.on_dataframes:
                break
            if self._error(count) is not None:
                return step.name
        return ""

    def _error(self, steps: int | None = None) -> Refused | None:
        """The error of the task on the records that are looked at; or of reading only what one step makes, the last of
        so many `steps`."""
        order = self._narrowed()
        if steps is not None:
            order = replace(order, steps=order.steps[:steps], writes=(), leaves=())
        with TemporaryDirectory(prefix="coset-trial-") as folder, connect(self._memory) as connection:
            try:
                made = self._trial(connection, order, Path(folder), self._failed)
                if steps is None:
                    _read_all(order, made)
                else:
                    name = order.steps[-1].name
                    _read(made.query(f"SELECT * FROM {quote(name)}", f"step {name!r}"))
            except Refused as error:
                if not may_be_of_records(self._order, error):
                    raise
                return error
        return None

    def _narrowed(self) -> Order:
        """The order with the records that are looked at."""
        inputs = list(self._order.inputs)
        for number, spans in self._spans.items():
            ordered = inputs[number]
            assert isinstance(ordered, OrderedStream)
            planned = {one.partition: one for one in ordered.partitions}
            parts = tuple(planned[partition].within(span) for partition, span in spans)
            inputs[number] = replace(ordered, partitions=parts)
        return replace(self._order, inputs=tuple(inputs))


def _cut(spans: _Spans, start: int, end: int) -> _Spans:
    """The offsets of spans, by their place among all, from `start` on and before `end`."""
    parts, before = list[tuple[int, Span]](), 0
    for partition, span in spans:
        first, last = max(start - before, 0), min(end - before, span.end - span.start)
        if first < last:
            parts.append((partition, Span(span.start + first, span.start + last)))
        before += span.end - span.start
    return parts


def _sets_aside(ordered: Ordered) -> bool:
    return isinstance(ordered, OrderedStream) and ordered.declared.sets_aside


def _read_all(order: Order, steps: Steps) -> None:
    """Read all output of the steps."""
    later = {step.name for step in order.steps if step.on_dataframes}
    for write in order.writes:
        if write.declared.step not in later:
            _read(steps.upserted(write) if write.declared.mode.by_key else steps.table(write))
    for leaving in order.leaves:
        if leaving.step not in later:
            _read(steps.left(leaving))
    for step in order.steps:
        for number, _ in enumerate(given_to(step)):
            _read(steps.given(step, number))


def _read(rows: pa.RecordBatchReader) -> None:
    for _ in rows:
        pass
