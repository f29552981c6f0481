"""Runs for tests: a pipeline on rows of a test, with the planner, tasks, proof and commit that production has.

All of it happens in this process and in a folder that goes away; neither a server nor Java is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from msgspec import UNSET

from coset.batches import steps
from coset.batches.interpreter import run_batch
from coset.batches.ref import BatchRef
from coset.batches.runners.local import Local
from coset.batches.tables.first_rows import first_rows
from coset.batches.waiting import warned
from coset.sources.landing import land_rows
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.documents.document import canonical
from partitioning.documents.ledger import Ledger
from partitioning.documents.stores import store_at
from partitioning.errors import Finding, Refused
from partitioning.kinds import Kind
from partitioning.model.graph import gives_what_is_over, quote
from partitioning.model.placement import MURMUR2, OPAQUE
from partitioning.model.streams import Stream
from partitioning.values import replace
from spark_jobs.sql.database import connect

Rows = Sequence[Mapping[str, object]]
# The records of a batch, by stream.
Landed = Mapping[str, Rows]

_LINEAGE = ("_batch", "_task")
_MOST_ROWS = 1_000_000


@dataclass(frozen=True, slots=True)
class PublishedRows:
    """What a pipeline published: the rows of each result table, sorted, without lineage, times as text; of each batch
    the sentence that its verdict says, and what it was warned of."""

    tables: Mapping[str, list[dict[str, object]]]
    verdicts: tuple[str, ...]
    warnings: tuple[tuple[str, ...], ...] = ()

    def __getitem__(self, table: str) -> list[dict[str, object]]:
        return self.tables[table]


def run(
    pipeline: Pipeline, *batches: Landed, settings: Settings = DEFAULTS, before: Pipeline | None = None
) -> PublishedRows:
    """Run a batch for each of `batches`, one after the other, and give what is in the result tables then.

    Each record goes into the partition that Kafka's own producer would choose for its key, behind those before it.
    Streams may be topics or landed in any format: here they are landed as Parquet. A column that no record has a value
    in is text, unless the stream declares it.

    The first batch is run by the pipeline as it was `before`, if one is given: to see what becomes of what steps kept.

    Raises what a step of a batch raises: Refused with all findings, for instance, if an expectation is not met. Steps
    on Spark's DataFrames are refused. If joins give what finds no partner in time, batches without records follow, as
    long as something is over by what has come.
    """
    with Trial.made(before or pipeline) as place:
        verdicts, warnings = [], []
        for number, batch in enumerate(batches):
            if number:
                place.go_on_with(pipeline)
            place.land(batch)
            verdicts.append(place.run(settings))
            warnings.append(place.warnings())
        place.close(settings)
        return PublishedRows(place.tables(), tuple(verdicts), tuple(warnings))


class Trial:
    """A folder with landed records and a store, for one pipeline: to look at each batch before the next."""

    def __init__(self, pipeline: Pipeline, folder: Path) -> None:
        self._folder = folder
        self._root = f"file://{folder}/store"
        self._types: dict[tuple[str, str], pa.DataType] = {}
        self._landed = set[str]()
        self.go_on_with(pipeline)

    def go_on_with(self, pipeline: Pipeline) -> None:
        """Run the next batches by this pipeline."""
        self._declared = {stream.name: stream for stream in pipeline.streams}
        self._pipeline = pipeline.with_streams(lambda stream: _landed_in(stream, self._folder / "landing"))

    @classmethod
    @contextmanager
    def made(cls, pipeline: Pipeline) -> Iterator[Trial]:
        """A place that goes away afterwards."""
        with TemporaryDirectory(prefix="coset-test-") as folder:
            yield cls(pipeline, Path(folder))

    def land(self, batch: Landed) -> None:
        """Land records behind those that have landed. Raises Refused for a stream that the pipeline does not have."""
        for stream in self._pipeline.streams:
            if rows := batch.get(stream.name):
                named = f"rows of stream {stream.name!r}"
                # Nobody knows how producers place keys of an opaque stream: this way is as good as any.
                placed = replace(stream, hash=MURMUR2) if stream.hash == OPAQUE else stream
                land_rows(placed, self._table(stream.name, rows), named)
                self._landed.add(stream.name)
        if unknown := sorted(set(batch) - set(self._declared)):
            what, then = f"the pipeline has no stream {unknown[0]!r}", f"name one of {', '.join(self._declared)}"
            raise Refused.of(Kind.ARGUMENT, what, self._pipeline.name, then, stream=unknown[0])

    @property
    def root(self) -> str:
        """The root of the store, for who reads the tables in `tables/` in another way."""
        return self._root

    def run(self, settings: Settings = DEFAULTS, *, twice: bool = False) -> str:
        """Run what has landed as one batch; its verdict in a sentence. If `twice`, a first attempt is given up.

        Raises what a step of a batch raises, and Refused for a stream of which no record has landed yet.
        """
        if findings := [self._empty(name) for name in self._declared if name not in self._landed]:
            raise Refused(*findings)
        ref, sentence = steps.plan(self._pipeline, self._root, settings)
        if ref is None:
            return sentence
        with Local(processes=1) as runner:
            if twice:
                _run_in_vain(ref, runner)
            # Nobody would see pages, which a quarter of the time would go into.
            run_batch(ref, runner, None, _silently)
        ledger, plan = ref.load()
        verdict = ledger.verdict(plan.batch)
        return f"Batch {plan.batch}: {verdict.why if verdict else 'no verdict'}"

    def _empty(self, stream: str) -> Finding:
        what = f"stream {stream!r} has no record yet, so nobody knows its columns"
        then = f"give the first batch one: {{{stream!r}: [{{…}}], …}}"
        return Finding.of(Kind.ARGUMENT, what, f"pipeline {self._pipeline.name!r}", then, stream=stream)

    def close(self, settings: Settings = DEFAULTS) -> None:
        """Run batches without records, as the next runs would, as long as something is over by what has come."""
        if gives_what_is_over(self._pipeline.steps):
            while self.run(settings).startswith("Batch "):
                pass

    def warnings(self) -> tuple[str, ...]:
        """What the batch that was published last was warned of."""
        ledger = Ledger(store_at(self._root), self._pipeline.name)
        plan = ledger.standing().published
        verdict = ledger.verdict(plan.batch) if plan else None
        found = warned(ledger, plan.batch, verdict.attempt) if plan and verdict else ()
        return tuple(one.what for one in found)

    def tables(self) -> dict[str, list[dict[str, object]]]:
        """The rows of each result table, sorted and without lineage; none of a table to which nothing is published."""
        return {write.table: self._rows(write.table) for write in self._pipeline.writes}

    def _rows(self, table: str) -> list[dict[str, object]]:
        found = first_rows(store_at(self._root), table, _MOST_ROWS)
        if found is None:
            return []
        lineage = [name for name in _LINEAGE if name in found.rows.column_names]
        return sorted_rows(found.rows.drop_columns(lineage).to_pylist())

    def _table(self, stream: str, rows: Rows) -> pa.Table:
        """The records of a stream with the union of their columns, each of the type that it had before."""
        columns, declared = dict.fromkeys(name for row in rows for name in row), self._declared[stream].columns or {}
        values = {name: pa.array([row.get(name) for row in rows]) for name in columns}
        for name, column in values.items():
            if pa.types.is_null(column.type):
                values[name] = column.cast(self._types.get((stream, name), pa.string()))
            elif name not in declared:
                self._types[stream, name] = column.type
        table = pa.table(values)
        return _as_declared(table, declared) if declared else table


def sorted_rows(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """Rows in an order that does not depend on the last digits of floating-point numbers."""
    return sorted(rows, key=lambda row: [(name, _rough(value)) for name, value in row.items()])


def _rough(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else repr(value)


def _landed_in(stream: Stream, folder: Path) -> Stream:
    """The stream as it lies in a folder, in the way that `land` writes."""
    usual = {"format": UNSET, "columns": UNSET, "schema": UNSET, "layout": UNSET, "counted": UNSET}
    return replace(stream, source=f"file://{folder}", **usual)


def _as_declared(rows: pa.Table, declared: Mapping[str, str]) -> pa.Table:
    """The rows with the columns and types that a stream declares, and those that it does not declare as they are."""
    there = set(rows.column_names)
    cast = [f"CAST({_value(name, there)} AS {kind}) AS {quote(name)}" for name, kind in declared.items()]
    others = [quote(name) for name in rows.column_names if name not in declared]
    with connect() as connection:
        connection.register("given", rows)
        return connection.sql(f"SELECT {', '.join([*others, *cast])} FROM given").to_arrow_table()


def _value(name: str, there: set[str]) -> str:
    return quote(name) if name in there else "NULL"


def _run_in_vain(ref: BatchRef, runner: Local) -> None:
    ledger, plan = ref.load()
    for group in plan.groups:
        runner.group(ref, group.group)
    ledger.close_attempt(plan.batch, ledger.attempt(plan.batch), canonical({"findings": []}))


@contextmanager
def _silently(_: str) -> Iterator[list[str]]:
    yield []
