"""Runs for tests: a pipeline on rows of a test, with the planner, tasks, proof and commit that production has.

All of it happens in this process and in a folder that goes away; neither a server nor Java is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.errors import Finding, Refused, refuse
from partitioning.kinds import Kind
from partitioning.model.graph import gives_what_is_over
from partitioning.model.streams import DELETED, Stream
from partitioning.values import replace

if TYPE_CHECKING:
    from coset.testing.engine import Types

Rows = Sequence[Mapping[str, object]]
# The records of a batch, by stream.
Landed = Mapping[str, Rows]
# Tables that were not held against their queries, and why, of each run whose test has not asked for them.
unasked = list[Mapping[str, str]]()


@dataclass(frozen=True, slots=True)
class PublishedRows:
    """What a pipeline published: the rows of each result table, sorted, without lineage, times as text; of each batch
    the sentence that its verdict says, and what it was warned of."""

    tables: Mapping[str, list[dict[str, object]]]
    verdicts: tuple[str, ...]
    warnings: tuple[tuple[str, ...], ...] = ()
    _unverified: Mapping[str, str] = field(default_factory=dict)

    @property
    def unverified(self) -> Mapping[str, str]:
        """The tables that could not be held against their queries, and why. Those that a test does not ask for are
        listed when all tests have run."""
        unasked[:] = [each for each in unasked if each is not self._unverified]
        return self._unverified

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
    If joins give what finds no partner in time, batches without records follow, as long as something is over by what
    has come. Then each table is held against its query over all records, as `Trial.verify` does.

    Raises what a step of a batch raises: Refused with all findings, for instance, if an expectation is not met. Steps
    on Spark's DataFrames are refused. Raises AssertionError if a table is not its query.
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
        unasked.append(unverified := place.verify())
        return PublishedRows(place.tables(), tuple(verdicts), tuple(warnings), unverified)


class Trial:
    """A folder with landed records and a store, for one pipeline: to look at each batch before the next."""

    def __init__(self, pipeline: Pipeline, folder: Path) -> None:
        self._folder = folder
        self._root = f"file://{folder}/store"
        self._types: Types = {}
        self._landed = set[str]()
        self._has_changed = False
        self._take(pipeline)

    def go_on_with(self, pipeline: Pipeline) -> None:
        """Run the next batches by this pipeline. Tables that it has not made alone are not verified."""
        self._has_changed |= pipeline.graph != self._given.graph
        self._take(pipeline)

    def _take(self, pipeline: Pipeline) -> None:
        self._given = pipeline
        self._declared = {stream.name: stream for stream in pipeline.streams}
        self.pipeline = pipeline.with_streams(lambda stream: _landed_in(stream, self._folder / "landing"))

    @classmethod
    @contextmanager
    def made(cls, pipeline: Pipeline) -> Iterator[Trial]:
        """A place that goes away afterwards."""
        with TemporaryDirectory(prefix="coset-test-") as folder:
            yield cls(pipeline, Path(folder))

    def land(self, batch: Landed) -> None:
        """Land records behind those that have landed. Raises Refused for a stream that the pipeline does not have."""
        from coset.testing import engine  # noqa: PLC0415

        for stream in self.pipeline.streams:
            if rows := batch.get(stream.name):
                declared = self._declared[stream.name]
                said = {DELETED: "BOOLEAN"} if declared.tells_deletes else {}
                engine.land(stream, rows, {**declared.columns, **said}, self._types)
                self._landed.add(stream.name)
        if unknown := sorted(set(batch) - set(self._declared)):
            what, then = f"the pipeline has no stream {unknown[0]!r}", f"name one of {', '.join(self._declared)}"
            raise Refused.of(Kind.ARGUMENT, what, self.pipeline.name, then, stream=unknown[0])

    @property
    def root(self) -> str:
        """The root of the store, for who reads the tables in `tables/` in another way."""
        return self._root

    def run(self, settings: Settings = DEFAULTS, *, twice: bool = False) -> str:
        """Run what has landed as one batch; its verdict in a sentence. If `twice`, a first attempt is given up.

        Raises what a step of a batch raises, and Refused for a stream of which no record has landed yet.
        """
        from coset.testing import engine  # noqa: PLC0415

        refuse([self._empty(name) for name in self._declared if name not in self._landed])
        return engine.run(self.pipeline, self._root, settings, twice=twice)

    def _empty(self, stream: str) -> Finding:
        what = f"stream {stream!r} has no record yet, so nobody knows its columns"
        then = f"give the first batch one: {{{stream!r}: [{{…}}], …}}"
        return Finding.of(Kind.ARGUMENT, what, f"pipeline {self.pipeline.name!r}", then, stream=stream)

    def close(self, settings: Settings = DEFAULTS) -> None:
        """Run batches without records, as the next runs would, as long as something is over by what has come."""
        if gives_what_is_over(self.pipeline.steps):
            while self.run(settings).startswith("Batch "):
                pass

    def verify(self) -> dict[str, str]:
        """Hold each table against its query over all records that batches took. Returns, by table, why it has no query,
        or none that can be told: of rows of a batch, or if records came too late.

        Raises AssertionError with the first keys of which other rows are published, and both rows.
        """
        if self._has_changed:
            return {write.table: "the pipeline has changed between batches" for write in self.pipeline.writes}
        from coset.testing import queries  # noqa: PLC0415

        return queries.check(self.pipeline, self._root)

    def warnings(self) -> tuple[str, ...]:
        """What the batch that was published last was warned of."""
        from coset.testing import engine  # noqa: PLC0415

        return engine.warnings(self.pipeline.name, self._root)

    def tables(self) -> dict[str, list[dict[str, object]]]:
        """The rows of each result table, sorted and without lineage; none of a table to which nothing is published."""
        from coset.testing import engine  # noqa: PLC0415

        return {write.table: engine.rows(self._root, write.table) for write in self.pipeline.writes}


def _landed_in(stream: Stream, folder: Path) -> Stream:
    """The stream as it lies in a folder, in the way that `land` writes."""
    others = ("format", "columns", "schema", "layout", "counted", "changes", "key_bytes", "keys")
    usual = Stream(stream.name, f"file://{folder}", stream.key, stream.partitions)
    return replace(stream, source=usual.source, **{name: getattr(usual, name) for name in others})
