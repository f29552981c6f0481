"""Metrics: where a pipeline stands as OpenMetrics text, for whatever collects such."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from coset.batches.ends import known_after
from coset.batches.history import set_apart
from coset.batches.progress import PipelineProgress, progress
from coset.cli import pipelines
from coset.cli.ends import not_read
from coset.cli.output import show_error
from partitioning.documents.ledger import Ledger, Standing
from partitioning.documents.stores import store_at
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
    apart = set_apart(ledger, standing.published) if standing.published else {}
    print("\n".join([*metrics(pipeline.name, standing, now, list(not_read(pipeline, ends)), apart), "# EOF"]))
    if now.wrong:
        show_error(now.wrong, as_json=False)
        return now.wrong.exit_code
    return 0


def metrics(
    pipeline: str,
    standing: Standing,
    now: PipelineProgress,
    unread: Sequence[tuple[StreamPartition, End]],
    apart: Mapping[str, int],
) -> Iterator[str]:
    """The lines of all metrics, but for the last. Of what is not read any more `unread` says up to where it was,
    `apart` how many records of each step have times that do not count."""
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
        samples: list[_Sample] = [(whole | {"step": step}, records) for step, records in apart.items()]
        yield from _metric("records_apart", outside, samples)
        yield from _metric("published_batch", "The number of the last published.", [(whole, standing.published.batch)])
    yield from _metric("batch_open", "Whether the newest batch has still to be run.", [(whole, int(standing.open))])
    findings = len(now.wrong.findings) if now.wrong else 0
    yield from _metric("findings", "What is wrong with the landed files.", [(whole, findings)])


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
