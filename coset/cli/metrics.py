"""Metrics: where a pipeline stands as OpenMetrics text, for whatever collects such."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from coset.batches.attempt import Attempt
from coset.batches.backfills.limits import Unfinished, unfinished
from coset.batches.continuity import reached
from coset.batches.ends import known_after
from coset.batches.history import set_apart
from coset.batches.pace import OpenBecause, open_because
from coset.batches.progress import PipelineProgress, progress
from coset.batches.steps import outcome
from coset.batches.tables.others import stopping
from coset.batches.tables.table_rows import parts_held
from coset.batches.verifications import verified_samples
from coset.batches.watch import IncidentLog
from coset.cli import pipelines
from coset.cli.output import Answer
from coset.cli.status import not_read
from coset.reports.overview import rows_of
from coset.reports.timeliness import timeliness
from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.ledger import Ledger, Standing
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.model.figures import Figures, figures_of
from partitioning.model.gaps import doubtful
from partitioning.model.incident import Severity, WatchedRuns
from partitioning.model.journal import Part
from partitioning.model.offsets import StreamPartition
from partitioning.model.plan import Plan
from partitioning.model.read_ends import End
from partitioning.model.receipt import Role
from partitioning.model.table_parts import Upkeep
from partitioning.model.verdict import Judged, Outcome
from partitioning.texts import environment, visible

_MOVED = (Role.EXCHANGE, Role.RESULT)
_OF_PAGES = (
    ("batch_keys", "keys", "The keys of the last proved batch that were compared.", ""),
    ("batch_spared_records", "spared", "Its records that were spared a move, as planned.", ""),
    (
        "batch_mistimed_ratio",
        "mistimed",
        "The share by which the time of its task groups was expected wrongly.",
        "ratio",
    ),
)
# A metric's labels and value.
_Sample = tuple[dict[str, str], float]


def printed(named: str, root: str) -> Answer:
    """Where the pipeline stands, and what is wrong with the landed files and stops batches at result tables."""
    pipeline = pipelines.load(named)
    ledger = Ledger(store_at(root), pipeline.name)
    standing = ledger.standing()
    ends = known_after(ledger, standing.published).ends
    now = progress(pipeline, ends, datetime.now(UTC), stopping(ledger.store, pipeline.name, pipeline.writes))
    last = None if standing.published is None else Attempt.published(ledger, standing.published)
    newest = None if standing.plan is None else outcome(ledger, standing.plan)
    told = metrics(pipeline.name, standing, now, list(not_read(pipeline, ends)), last, newest)
    waits = open_because(ledger, standing)
    reasons: list[_Sample] = [
        (_of_pipeline(pipeline.name) | {"reason": each}, int(each is waits)) for each in OpenBecause
    ]
    lines = [
        *told,
        *_metric("batch_open_reason", "Why the newest batch is open: 1 at the reason, if it is.", reasons),
        *_of_pages(pipeline.name, ledger.store, time.time_ns() // 1_000_000),
        *_of_backfills(pipeline.name, ledger.store),
        *_of_incidents(pipeline.name, ledger.store),
        *_of_tables(pipeline.name, ledger, [write.table for write in pipeline.writes]),
        *_of_parts(pipeline, ledger.store),
        "# EOF",
    ]
    return Answer({"openmetrics": "\n".join(lines)}, lines, now.wrong)


def metrics(
    pipeline: str,
    standing: Standing,
    now: PipelineProgress,
    unread: Sequence[tuple[StreamPartition, End]],
    last: Attempt | None,
    newest: Outcome | None = None,
) -> Iterator[str]:
    """The lines of all metrics, but for the last. Of what is not read any more `unread` says up to where it was;
    `last` is the attempt that was published last, `newest` the outcome of the newest batch."""
    whole = _of_pipeline(pipeline)
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
    yield from _of_time(whole, last)
    states: list[_Sample] = [(whole | {"outcome": each}, int(each is newest)) for each in Outcome if newest]
    yield from _metric("batch_outcome", "What became of the newest batch: 1 at its outcome, 0 at the others.", states)
    yield from _metric("batch_open", "Whether the newest batch has still to be run.", [(whole, int(standing.open))])
    findings = len(now.wrong.findings) if now.wrong else 0
    says = "What is wrong with the landed files, and what stops batches at result tables."
    yield from _metric("findings", says, [(whole, findings)])


def _of_time(whole: dict[str, str], last: Attempt | None) -> Iterator[str]:
    """The watermarks after the last published batch, and the latest event time of each stream partition."""
    marks = reached(last.ledger, last.plan) if last else ()
    known = [(whole | {"stream": mark.stream}, mark.time / 10**6) for mark in marks if mark.time is not None]
    yield from _metric("watermark_timestamp_seconds", "No earlier record is expected any more.", known, "seconds")
    latest = [
        (whole | _of(StreamPartition(mark.stream, number)), time / 10**6)
        for mark in marks
        for number, time in enumerate(mark.latest)
        if time is not None
    ]
    yield from _metric("event_timestamp_seconds", "The latest event time that counts.", latest, "seconds")


def _of_attempt(whole: dict[str, str], last: Attempt) -> Iterator[str]:
    """When the last published batch was decided, and what it took. Earlier versions did not say."""
    verdict, effort = last.ledger.published(last.plan.batch), last.effort
    decided = [(whole, verdict.taken.ended / 1000)] if verdict and verdict.taken else []
    yield from _metric("published_timestamp_seconds", "When the last published batch was decided.", decided, "seconds")
    why = verdict.why if verdict else None
    unmet = [(whole, why.expectations - why.met)] if isinstance(why, Judged) else []
    says = "Its expectations that are not met and whose severity is a warning."
    yield from _metric("batch_warnings", says, unmet)
    took = [(whole, effort.seconds)] if effort else []
    yield from _metric("batch_seconds", "How long the last published batch's task groups ran.", took, "seconds")
    cpu = [(whole, effort.cpu_milliseconds / 1000)] if effort and effort.cpu_milliseconds is not None else []
    yield from _metric("batch_cpu_seconds", "The CPU time that its tasks took, without Spark's own.", cpu, "seconds")
    judged = verdict.why if verdict else None
    read = [(whole, judged.records)] if isinstance(judged, Judged) else []
    yield from _metric("batch_records", "The records of the last published batch.", read)
    if not last.missing:
        receipts = last.receipts.values()
        left = (file for receipt in receipts for task in receipt.tasks for role in _MOVED for file in task.left(role))
        moved = sum(file.records for file in left)
        yield from _metric("batch_moved_records", "Its records that tasks left for later tasks.", [(whole, moved)])
        yield from _figures(whole, figures_of(last.plan, tuple(last.receipts.values())))


def _figures(whole: dict[str, str], figures: Figures) -> Iterator[str]:
    """What the last published batch read, left and wrote."""
    for name, says, value, unit in (
        ("batch_missing_offsets", "Offsets of the last published batch without a record.", figures.missing, ""),
        ("batch_tasks", "How many tasks the last published batch had.", figures.tasks, ""),
        ("batch_read_bytes", "The bytes of the files that it read.", figures.read_bytes, "bytes"),
        ("batch_records_without_key", "Its records without a key.", figures.without_key, ""),
        ("batch_records_set_aside", "Its records that cannot be used and were set aside.", figures.set_aside, ""),
        ("batch_expired_keys", "The keys that expired in it.", figures.expired, ""),
        ("batch_rows", "The rows that it wrote to result tables.", figures.rows, ""),
        ("batch_written_bytes", "The bytes that it wrote to result tables.", figures.row_bytes, "bytes"),
        ("batch_state_rows", "The rows that it left for later batches.", figures.state, ""),
        (
            "batch_group_skew_ratio",
            "The most records of a group, as a multiple of its wave's mean.",
            figures.group_skew,
            "ratio",
        ),
        (
            "batch_misjudged_ratio",
            "The share of records by which groups were planned wrongly.",
            figures.misjudged,
            "ratio",
        ),
        ("batch_skew_ratio", "The most records of a task, as a multiple of its stage's mean.", figures.skew, "ratio"),
        ("batch_heaviest_key_ratio", "The share of the most frequent key.", figures.heaviest, "ratio"),
    ):
        yield from _metric(name, says, [] if value is None else [(whole, value)], unit)


def _of_pages(pipeline: str, store: Store, now: int) -> Iterator[str]:
    """What only the page of all pipelines knows: whether this one is late, and what else its last proved attempt has in
    the history."""
    whole = _of_pipeline(pipeline)
    for row in rows_of(store, [pipeline]):
        when = timeliness(row, now)
        says = "Whether it should have published, by its schedule, or else by what is usual."
        yield from _metric("late", says, [(whole, int(when.late))])
        due = [] if when.due is None else [(whole, when.due / 1000)]
        yield from _metric("due_timestamp_seconds", "When it should publish next, by its schedule.", due, "seconds")
        last = row["proved"] or {}
        parts = [(whole | {"part": part}, last[f"{part}_seconds"]) for part in Part if f"{part}_seconds" in last]
        yield from _metric("batch_part_seconds", "How long parts of the last proved batch took.", parts, "seconds")
        for name, figure, says, unit in _OF_PAGES:
            found = [(whole, last[figure])] if last.get(figure) is not None else []
            yield from _metric(name, says, found, unit)


def _of_backfills(pipeline: str, store: Store) -> Iterator[str]:
    """How many backfills are not at an end."""
    found, whole = Counter(unfinished(store, pipeline)), _of_pipeline(pipeline)
    samples: list[_Sample] = [(whole | {"state": each}, found[each]) for each in Unfinished]
    yield from _metric("unfinished_backfills", "Backfills that are neither swapped in nor cancelled.", samples)


def _of_incidents(pipeline: str, store: Store) -> Iterator[str]:
    """How many incidents are open, of all runs, with each severity. None are where nobody is told."""
    logs = (IncidentLog(store, pipeline, runs) for runs in WatchedRuns)
    found = Counter(incident.severity for log in logs for incident in log.latest().open)
    whole = _of_pipeline(pipeline)
    samples: list[_Sample] = [(whole | {"severity": each}, found[each]) for each in Severity]
    yield from _metric("open_incidents", "Incidents that have not ended.", samples)


def _of_tables(pipeline: str, ledger: Ledger, tables: Sequence[str]) -> Iterator[str]:
    """How much of each table that somebody has verified is known to be its query."""
    known = [
        (_of_pipeline(pipeline) | {"table": table}, each) for table, each in verified_samples(ledger, tables).items()
    ]
    to = [(labels, each.batch) for labels, each in known if each.batch is not None]
    yield from _metric("verified_batch", "The batch up to which samples of a table are known to be its query.", to)
    shares = [(labels, each.equal / each.samples) for labels, each in known]
    yield from _metric("verified_ratio", "The share of these samples.", shares, "ratio")
    differ: list[_Sample] = [(labels, len(each.differing)) for labels, each in known]
    yield from _metric("differing_samples", "The samples of a table that have other rows than its query.", differ)
    last = [(labels, each.at / 1000) for labels, each in known]
    yield from _metric("verified_timestamp_seconds", "When a sample was verified last.", last, "seconds")


def _of_parts(pipeline: Pipeline, store: Store) -> Iterator[str]:
    """How near each table, beside whose rows new ones are written, is to having partitions written again."""
    held = parts_held(store, pipeline.writes)
    whole, known = _of_pipeline(pipeline.name), [Upkeep.of(*one) for one in held.items()]
    dead = [(whole | {"table": each.table}, each.dead) for each in known]
    yield from _metric("table_dead_rows", "The rows of a table's files that are dead.", dead)
    files = [(whole | {"table": each.table}, each.files) for each in known]
    yield from _metric("table_partition_files", "The most files that a partition of a table has.", files)


def _doubtful(whole: dict[str, str], published: Plan) -> Iterator[_Sample]:
    """The missing offsets that only a stream's declaration explains. A file may be lost there."""
    for partition, gaps in sorted(published.gaps.items()):
        if missing := doubtful(gaps):
            yield whole | _of(partition), missing


def _of_pipeline(pipeline: str) -> dict[str, str]:
    """The labels of all metrics: the pipeline, and the environment if there is one."""
    name = environment()
    return {"pipeline": pipeline} | ({"environment": name} if name else {})


def _of(partition: StreamPartition) -> dict[str, str]:
    return {"stream": partition.stream, "partition": str(partition.partition)}


def _metric(name: str, says: str, samples: Sequence[_Sample], unit: str = "") -> Iterator[str]:
    yield f"# TYPE coset_{name} gauge"
    if unit:
        yield f"# UNIT coset_{name} {unit}"
    yield f"# HELP coset_{name} {says}"
    for labels, value in samples:
        escaped = {label: visible(text).replace("\\", "\\\\").replace('"', '\\"') for label, text in labels.items()}
        listed = ",".join(f'{label}="{text}"' for label, text in escaped.items())
        yield f"coset_{name}{{{listed}}} {value}"
