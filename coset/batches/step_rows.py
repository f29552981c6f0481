"""Rows of a step, made of what has landed, for people who write a pipeline. Nothing that is stored is touched."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from tempfile import TemporaryDirectory

import pyarrow as pa

from coset.batches.attempt import Attempt
from coset.batches.planning import take_up
from coset.batches.ref import BatchRef
from coset.batches.result_rows import table_files
from coset.batches.runners.local import Local
from coset.batches.tables.first_rows import in_order
from coset.sources.discovery import discover
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.commands import Run
from partitioning.documents.ledger import Ledger
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.plan import TaskGroup
from partitioning.model.read_ends import NOTHING
from partitioning.model.streams import Discovered, DiscoveredPartition
from partitioning.values import replace
from spark_jobs.tables.table_schema import table_schema

_TABLE = "shown"


@dataclass(frozen=True, slots=True)
class Sample:
    """How many of the newest records of each stream partition to look at: a number, or a percentage of them."""

    number: int | None = None
    percent: float = 100.0

    @classmethod
    def parse(cls, text: str) -> Sample:
        """The sample that `1000` or `5%` means. Raises Refused for anything else."""
        try:
            sample = cls(percent=float(text[:-1])) if text.endswith("%") else cls(int(text))
        except ValueError:
            sample = cls(0)
        if (sample.number is None and 0 < sample.percent <= 100) or (sample.number or 0) > 0:
            return sample
        then = "give a number of records, as 1000, or a share of them, as 5%"
        raise Refused.of(Kind.ARGUMENT, f"{text!r} is no sample", "--sample", then, sample=text)

    def __str__(self) -> str:
        if self.number is None:
            return "all" if self.percent == 100 else f"the newest {self.percent:g}%"
        return f"the newest {self.number:,}"

    def start(self, partition: DiscoveredPartition) -> int:
        """The offset from which on that many of a partition have landed. Of a file with gaps nobody knows how many of
        its records lie behind an offset: it is looked at whole."""
        held = sum(file.records for file in partition.files)
        left = -int(-held * self.percent // 100) if self.number is None else self.number
        start = partition.end
        for file in reversed(partition.files):
            if left <= 0:
                break
            start = file.start if file.missing or file.records <= left else file.end - left
            left -= file.records
        return start


@dataclass(frozen=True, slots=True)
class StepRows:
    """Rows of a step, ordered by its columns and with private values masked; how many it gave, of how many records of
    all that have landed."""

    rows: pa.Table
    of: int
    looked: int
    landed: int


def step_rows(
    pipeline: Pipeline,
    step: str,
    sample: Sample,
    most: int,
    through: Callable[[Sequence[TaskGroup]], Iterable[TaskGroup]] = iter,
) -> StepRows | None:
    """Up to `most` rows that a step gives of a sample of what has landed, by the tasks that a batch runs. None if
    nothing has landed.

    It reads no state and no earlier batch: a step with state begins without any. Tables are read whole. Raises Refused
    for an unknown step, for functions on Spark's DataFrames, and as a batch does. Task groups go `through` what shows
    how far it is.
    """
    only = pipeline.up_to(step, _TABLE)
    _check_runs_here(only)
    found = discover(only.streams, replace(NOTHING, pipeline=pipeline.name))
    starts = dict(_starts(only, found, sample)) if sample != Sample() else {}
    import pyarrow.dataset as ds  # noqa: PLC0415  it takes as long to import as the rest

    with TemporaryDirectory(prefix="coset-show-") as folder:
        store = store_at(f"file://{folder}")
        plan = take_up(only, store, Settings(groups=1, starts=starts)).plan
        if plan is None:
            return None
        with Local(processes=1) as runner:
            for group in through(plan.groups):
                runner.group(BatchRef.of(store, plan), group.group)
        attempt = Attempt.of_open(Ledger(store, only.name), plan)
        files = table_files(attempt, _TABLE)
        schema = table_schema(plan.writes()[0])
        held = ds.dataset([f"{folder}/{file.path}" for file in files], schema=schema, format="parquet")
        landed = sum(file.records for stream in found for partition in stream.partitions for file in partition.files)
        return StepRows(in_order(held, most, only.private), held.count_rows(), plan.records, landed)


def _starts(pipeline: Pipeline, found: tuple[Discovered, ...], sample: Sample) -> Iterator[tuple[str, int]]:
    for stream, discovered in zip(pipeline.streams, found, strict=True):
        for partition in () if stream.table else discovered.partitions[: stream.partitions]:
            yield f"{stream.name}-{partition.partition}", sample.start(partition)


def _check_runs_here(pipeline: Pipeline) -> None:
    if named := [step.name for step in pipeline.steps if step.on_dataframes]:
        listed, what = ", ".join(named), "functions on Spark's DataFrames are not run to show rows"
        then = ("show a step before it, or run a batch: ", Run(pipeline.name))
        raise Refused.of(Kind.RUNNER, what, f"step {listed}", then, step=listed)
