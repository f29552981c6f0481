"""Metrics: where a pipeline stands as OpenMetrics text, for whatever collects such."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from coset.batches.attempt import Attempt
from coset.batches.ends import known_after
from coset.batches.history import set_apart
from coset.batches.progress import PipelineProgress, progress
from coset.cli import pipelines
from coset.cli.ends import not_read
from coset.cli.output import show_error
from partitioning.documents.ledger import Ledger, Standing
from partitioning.documents.stores import store_at
from partitioning.model.figures import Figures, figures_of
from partitioning.model.gaps import doubtful
from partitioning.model.offsets import StreamPartition
from partitioning.model.plan import Plan
from partitioning.model.read_ends import End
from partitioning.texts import visible

# A metric's labels and value.
_Sample = tuple[dict[str, str], float]


def show_metrics(named: str, root: str) -> int:
    """Print where the pipeline stands; the exit code is that of what is wrong with the landed files, or 0."""
    pipeline = pipelines.load(named)
    ledger = Ledger(store_at(root), pipeline.name)
    standing = ledger.standing()
    ends = known_after(ledger, standing.published).ends
    now = progress(pipeline, ends, datetime.now(UTC))
    last = None if standing.published is None else Attempt.published(ledger, standing.published)
    lines = metrics(pipeline.name, standing, now, list(not_read(pipeline, ends)), last)
    print("\n".join([*lines, "# EOF"]))
    if now.wrong:
        show_error(now.wrong, as_json=False)
        return now.wrong.exit_code
    return 0


def metrics(
    pipeline: str,
    standing: Standing,
    now: PipelineProgress,
    unread: Sequence[tuple[StreamPartition, End]],
    last: Attempt | None,
) -> Iterator[str]:
    """The lines of all metrics, but for the last. Of what is not read any more `unread` says up to where it was;
    `last` is the attempt that was published last."""
    whole = {"pipeline": pipeline}
    by_partition = [(whole | _of(one.partition), one) for one in now.partitions]

    def of_each(figure: str) -> list[_Sample]:
        figures = ((labels, getattr(one, figure)) for labels, one in by_partition)
        return [(labels, value) for labels, value in figures if value is not None]

    yield from _metric("committed_offset", "Up to where published batches have read.", of_each("committed"))
    yield from _metric("latest_offset", "Up to where records have landed.", of_each("latest"))
    yield from _metric("lag_records", "Records that have landed and are in no published batch.", of_each("lag"))
    waited = "How long ago the oldest file with such records landed."
    yield from _metric("lag_seconds", waited, of_each("lag_seconds"), unit="seconds")
    left = "Up to where published batches have read what the pipeline does not read any more."
    yield from _metric("unread_offset", left, [(whole | _of(partition), end.end) for partition, end in unread])
    if standing.plan is not None:
        yield from _metric("newest_batch", "The number of the newest batch.", [(whole, standing.plan.batch)])
    if standing.published is not None:
        doubted = "Offsets missing in the last published batch, which neither markers nor compaction explain."
        yield from _metric("doubtful_offsets", doubted, list(_doubtful(whole, standing.published)))
        outside = "Records of the last published batch with an event time that does not count."
        apart = set_apart(last) if last else {}
        samples: list[_Sample] = [(whole | {"step": step}, records) for step, records in apart.items()]
        yield from _metric("records_apart", outside, samples)
        yield from _metric("published_batch", "The number of the last published.", [(whole, standing.published.batch)])
    if last is not None:
        yield from _of_attempt(whole, last)
    yield from _metric("batch_open", "Whether the newest batch has still to be run.", [(whole, int(standing.open))])
    findings = len(now.wrong.findings) if now.wrong else 0
    yield from _metric("findings", "What is wrong with the landed files.", [(whole, findings)])


def _of_attempt(whole: dict[str, str], last: Attempt) -> Iterator[str]:
    """When the last published batch was decided, and what it took. Earlier versions did not say."""
    verdict, effort = last.ledger.published(last.plan.batch), last.effort
    decided = [(whole, verdict.taken.ended / 1000)] if verdict and verdict.taken else []
    yield from _metric("published_timestamp_seconds", "When the last published batch was decided.", decided, "seconds")
    took = [(whole, effort.seconds)] if effort else []
    yield from _metric("batch_seconds", "How long the last published batch's task groups ran.", took, "seconds")
    cpu = [(whole, effort.cpu_milliseconds / 1000)] if effort and effort.cpu_milliseconds is not None else []
    yield from _metric("batch_cpu_seconds", "The CPU time that its tasks took, without Spark's own.", cpu, "seconds")
    if not last.missing:
        yield from _figures(whole, figures_of(last.plan, tuple(last.receipts.values())))


def _figures(whole: dict[str, str], figures: Figures) -> Iterator[str]:
    """What the last published batch read, left and wrote."""
    for name, says, value, unit in (
        ("batch_tasks", "How many tasks the last published batch had.", figures.tasks, ""),
        ("batch_read_bytes", "The bytes of the files that it read.", figures.read_bytes, "bytes"),
        ("batch_records_without_key", "Its records without a key.", figures.without_key, ""),
        ("batch_rows", "The rows that it wrote to result tables.", figures.rows, ""),
        ("batch_written_bytes", "The bytes that it wrote to result tables.", figures.row_bytes, "bytes"),
        ("batch_state_rows", "The rows that it left for later batches.", figures.state, ""),
        ("batch_skew_ratio", "The most records of a task, as a multiple of its stage's mean.", figures.skew, "ratio"),
        ("batch_heaviest_key_ratio", "The share of the most frequent key.", figures.heaviest, "ratio"),
    ):
        yield from _metric(name, says, [] if value is None else [(whole, value)], unit)


def _doubtful(whole: dict[str, str], published: Plan) -> Iterator[_Sample]:
    counts = Counter[StreamPartition]()
    for gap in doubtful(published):
        counts[gap.offsets.partition] += gap.missing
    for partition, missing in sorted(counts.items()):
        yield whole | _of(partition), missing


def _of(partition: StreamPartition) -> dict[str, str]:
    return {"stream": partition.stream, "partition": str(partition.partition)}


def _metric(name: str, says: str, samples: Sequence[_Sample], unit: str = "") -> Iterator[str]:
    yield f"# TYPE coset_{name} gauge"
    if unit:
        yield f"# UNIT coset_{name} {unit}"
    yield f"# HELP coset_{name} {says}"
    for labels, value in samples:
        listed = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        yield f"coset_{name}{{{listed}}} {value}"


def _escaped(text: str) -> str:
    return visible(text).replace("\\", "\\\\").replace('"', '\\"')
