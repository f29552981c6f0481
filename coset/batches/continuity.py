"""Continuity: where earlier batches ended, by the ledger and the tables' own logs, beside where a plan begins.

The plan that is judged is asked only where it begins, what it remembers, and for its watermarks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from coset.batches.backfills.request import backfills
from coset.batches.backfills.swaps import state_ledger
from coset.batches.ends import balance, ends_before
from coset.batches.tables.delta import Held, held
from coset.batches.tables.logs import Logs
from coset.sources.discovery import earlier_starts
from coset.sources.rows import frame_of
from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger
from partitioning.errors import Finding, Refused, about
from partitioning.kinds import Kind
from partitioning.model.gaps import Explained, doubtful
from partitioning.model.graph import Graph
from partitioning.model.offsets import StreamPartition
from partitioning.model.plan import Plan
from partitioning.model.read_ends import End, Ends, StreamProgress
from partitioning.model.stage_inputs import PlannedStream
from partitioning.model.streams import Stream
from partitioning.model.watermarks import LatestTimes, Watermark
from partitioning.planning.watermarks import watermarks, with_watermarks
from partitioning.values import Value, replace


def reached(ledger: Ledger, published: Plan | None, declared: Sequence[Stream] = ()) -> tuple[Watermark, ...]:
    """The watermarks after the last published batch, by which the next one goes unless its partitions fall idle, if
    streams are declared as they were or, those that are named, as now."""
    if published is None or not published.watermarks:
        return ()
    source, plan = _source(ledger, published)
    now = {stream.name: stream for stream in declared}
    streams = [replace(stream, declared=now.get(stream.name, stream.declared)) for stream in plan.streams]
    return watermarks(streams, plan, _counted(source, plan), plan.as_of)


def followed(ledger: Ledger, plan: Plan) -> pd.DataFrame:
    """A row for each time by which a plan goes: of what, which, by the plan, and by the ledger; both may be null."""
    rows = []
    if plan.watermarks:
        published = ledger.published_before(plan.batch)
        source, before = _source(ledger, published) if published else (ledger, None)
        known = watermarks(plan.streams, before, _counted(source, before) if before else (), plan.as_of)
        planned = plan.graph
        by_plan = dict((*_times(plan.watermarks), *_passed(planned)))
        by_ledger = dict((*_times(known), *_passed(with_watermarks(planned, known, before))))
        rows = [
            {"of": of, "which": which, "by_plan": by_plan.get((of, which)), "by_ledger": by_ledger.get((of, which))}
            for of, which in dict.fromkeys((*by_plan, *by_ledger))
        ]
    return frame_of(rows, {"of": "string", "which": "string", "by_plan": "Int64", "by_ledger": "Int64"})


_Time = tuple[tuple[str, str], int | None]


def _times(marks: tuple[Watermark, ...]) -> Iterator[_Time]:
    for mark in marks:
        yield (mark.stream, "watermark"), mark.time
        for number, latest in enumerate(mark.latest):
            yield (str(StreamPartition(mark.stream, number)), "latest time before"), latest


def _passed(graph: Graph) -> Iterator[_Time]:
    for step in graph.steps:
        if step.state and step.state.watermark:
            yield (step.name, "watermark before"), step.state.watermark.before
            yield (step.name, "watermark"), step.state.watermark.now


def _source(ledger: Ledger, published: Plan) -> tuple[Ledger, Plan]:
    """A published plan and the ledger with its verdict: the backfill's own, or the one that counts now."""
    if published.pipeline == ledger.pipeline and ledger.original is not None:
        return ledger, published
    source = state_ledger(ledger.store, (ledger.original or ledger).pipeline, published.batch)
    return source, source.plan(published.batch) or published


def _counted(ledger: Ledger, plan: Plan) -> tuple[LatestTimes, ...]:
    verdict = ledger.verdict(plan.batch)
    return verdict.latest_times if verdict else ()


@dataclass(frozen=True)
class Continuity:
    """Four tables for the expectations.

    `ends` has a row for each stream partition of the plan: stream, partition, `whole` (it is read from the first offset
    each time), beginning, start, end. `published` is the end by published batches, `asked` the offset that the first
    batch was asked to begin with, `found` the log start offset if it is earlier than the plan says; each may be null.
    `missing` counts missing offsets by the plan, `lack` by its files, `declared` and `unexplained` those of `lack` that
    the stream declares and that nothing explains. `gap` is the first unexplained gap.

    `remembered` has a row for each partition that was read before and is not read now: stream, partition (null for the
    stream as a whole), the end by the plan (`plan_end`, `plan_batch`) and by the ledger (`ledger_end`, `ledger_batch`),
    and the name of what else differs (`differs`). Each but the stream may be null.

    `tables` has a row for each result table: the newest batch and plan by its log (`log_batch`, `log_plan`) and by the
    ledger (`ledger_batch`, `ledger_plan`), each of which may be null. It has no row for a table that already holds this
    batch, and none in a backfill.

    `watermarks` has a row for each time that a plan goes by (see `followed`).
    """

    ends: pd.DataFrame
    remembered: pd.DataFrame
    tables: pd.DataFrame
    watermarks: pd.DataFrame


def continuity(ledger: Ledger, plan: Plan, logs: Logs | None = None) -> Continuity:
    """Where a batch has to continue, read again now. Raises Refused if the ledger or a log cannot be read."""
    published, before = ledger.published_before(plan.batch), ends_before(ledger, plan.batch)
    return Continuity(
        _ends(ledger, plan, published, before),
        _remembered(ledger, plan, before),
        _tables(ledger, plan, published, logs),
        followed(ledger, plan),
    )


def _ends(ledger: Ledger, plan: Plan, published: Plan | None, before: Ends) -> pd.DataFrame:
    by_ledger = _ByLedger(ledger, published, before)
    found = {stream.name: _earlier(stream, before) for stream in plan.streams}
    rows = [
        {
            "stream": stream.name,
            "partition": partition.partition,
            "whole": before.is_read_whole(stream.declared),
            "beginning": partition.beginning,
            "start": partition.start,
            "end": partition.end,
            "published": by_ledger.end(stream.name, partition.partition),
            "asked": plan.starts.get(f"{stream.name}-{partition.partition}"),
            "found": found[stream.name].get(partition.partition),
            "missing": partition.missing,
            **gap_figures(plan, StreamPartition(stream.name, partition.partition)),
        }
        for stream in plan.streams
        for partition in stream.partitions
    ]
    known = {"published": "Int64", "asked": "Int64", "found": "Int64", "gap": "string"}
    return frame_of(rows, {name: known.get(name) for name in rows[0]})


def _earlier(stream: PlannedStream, before: Ends) -> Mapping[int, int]:
    """Earlier log start offsets than the plan's, for partitions that the plan reads from their first offset on."""
    whole = before.is_read_whole(stream.declared)
    beginnings = {
        partition.partition: partition.beginning
        for partition in stream.partitions
        if whole or before.end(stream.name, partition.partition) is None
    }
    return earlier_starts(stream.declared, beginnings) if beginnings else {}


class _ByLedger:
    """The ends of partitions, by the plans of the batches that read them last."""

    def __init__(self, ledger: Ledger, published: Plan | None, before: Ends) -> None:
        self._ledger = ledger
        self._before = before
        self._plans = {published.batch: published} if published else {}
        self._newest = published

    def end(self, stream: str, partition: int) -> int | None:
        """The end of a partition, None if no published batch read it. Raises Refused if those plans disagree."""
        known = self._before.end(stream, partition)
        if known is None:
            return None
        ends = [_end_in(plan, stream, partition) for plan in (self._newest, self._plan(known.batch))]
        end = next((end for end in ends if end is not None), None)
        if end == known.end:
            return end
        where = f"{stream}-{partition}, by {self._ledger.uri(self._ledger.key('plans', self._before.batch))}"
        what = f"later plans say that batch {known.batch} read it up to {known.end}, but its own plan does not"
        then, values = "restore the plans and verdicts from a backup", about(partition=f"{stream}-{partition}")
        raise Refused(Finding(Kind.DOCUMENTS_DISAGREE, what, where, then, values))

    def _plan(self, batch: int) -> Plan | None:
        if batch not in self._plans and self._ledger.published(batch) and (plan := self._ledger.plan(batch)):
            self._plans[batch] = plan
        return self._plans.get(batch)


def _end_in(plan: Plan | None, stream: str, partition: int) -> int | None:
    read = next((read for read in plan.streams if read.name == stream), None) if plan else None
    return read.partitions[partition].end if read and partition < len(read.partitions) else None


def _remembered(ledger: Ledger, plan: Plan, before: Ends) -> pd.DataFrame:
    after = before.then(Ends.by(plan.batch, plan.streams))
    # A plan of an older version remembers nothing; the plans before it are asked instead.
    by_plan = _by_partition(plan.remembered or ())
    by_ledger = _by_partition(after.remembered()) if plan.remembered is not None else {}
    others = _Others(ledger)
    rows = [
        {
            "stream": stream,
            "partition": number,
            **_figures("plan", by_plan.get((stream, number))),
            **_figures("ledger", by_ledger.get((stream, number))),
            "differs": others.differs(by_plan.get((stream, number)), by_ledger.get((stream, number))),
        }
        for stream, number in sorted(by_plan.keys() | by_ledger.keys())
    ]
    numbers = dict.fromkeys(("partition", "plan_end", "plan_batch", "ledger_end", "ledger_batch"), "Int64")
    frame = frame_of(rows, {"stream": "string", **numbers, "differs": "string"})
    return frame.assign(partition=frame["partition"].replace(_ALL, pd.NA))


# The partition number of what is remembered of a stream as a whole.
_ALL = -1
_Remembered = tuple[StreamProgress, End | None]


def _by_partition(reads: Sequence[StreamProgress]) -> dict[tuple[str, int], _Remembered]:
    streams: dict[tuple[str, int], _Remembered] = {(read.name, _ALL): (read, None) for read in reads}
    return streams | {(read.name, end.partition): (read, end) for read in reads for end in read.ends}


def _figures(whose: str, remembered: _Remembered | None) -> dict[str, int | None]:
    end = remembered[1] if remembered else None
    return {f"{whose}_end": end.end if end else None, f"{whose}_batch": end.batch if end else None}


class _Others:
    """What plans may remember of backfills: a swap between a plan and its check changes whose files count."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger.original or ledger

    def differs(self, by_plan: _Remembered | None, by_ledger: _Remembered | None) -> str | None:
        """The name of what the plan remembers wrongly, besides the end."""
        if by_plan is None or by_ledger is None:
            return None if by_plan is by_ledger else "the stream"
        (read, end), (known, known_end) = by_plan, by_ledger
        if end is None or known_end is None:
            wrong = _unlike(read, known, ("declared", "batch", "columns", "required", "topic", "untyped"))
            return None if not wrong or self._is_of_a_backfill(read, known) else wrong
        wrong = _unlike(end, known_end, ("beginning", "epoch"))
        if wrong or end.files == known_end.files:
            return wrong
        read_so = (plan.ends.end(read.name, end.partition) for plan in self._plans(known_end.batch))
        return None if any(other and other.files[-1:] == end.files for other in read_so) else "files"

    def _is_of_a_backfill(self, read: StreamProgress, known: StreamProgress) -> bool:
        read_so = (plan.ends.stream(read.name) for plan in self._plans(known.batch))
        with_ends = (replace(other, ends=read.ends, topic=known.topic) for other in read_so if other)
        return any(other == read for other in with_ends)

    def _plans(self, batch: int) -> Iterator[Plan]:
        """The plans of a batch in backfills."""
        for asked in backfills(self._ledger.store, self._ledger.pipeline):
            if batch in asked.batches and (plan := Ledger(self._ledger.store, asked.name).plan(batch)):
                yield plan


def _unlike(one: Value, other: Value, names: Sequence[str]) -> str | None:
    return next((name for name in names if getattr(one, name) != getattr(other, name)), None)


def gap_figures(plan: Plan, partition: StreamPartition) -> dict[str, object]:
    """The missing offsets of a partition by its files: how many, why, and the first unexplained gap."""
    gaps = plan.gaps.get(partition, ())
    unexplained = [gap for gap in gaps if gap.explained is Explained.NOBODY]
    return {
        "lack": sum(gap.missing for gap in gaps),
        "declared": doubtful(gaps),
        "unexplained": sum(gap.missing for gap in unexplained),
        "gap": str(unexplained[0].offsets) if unexplained else None,
    }


def _tables(ledger: Ledger, plan: Plan, published: Plan | None, logs: Logs | None) -> pd.DataFrame:
    # During a backfill the tables hold later batches.
    rows = [] if ledger.original else list(_table_rows(ledger, plan, published, logs))
    known = {"log_batch": "Int64", "log_plan": "string", "ledger_batch": "Int64", "ledger_plan": "string"}
    return frame_of(rows, {"table": "string", **known})


def _table_rows(ledger: Ledger, plan: Plan, published: Plan | None, logs: Logs | None) -> Iterator[dict[str, object]]:
    for write in plan.writes():
        table = write.declared.table
        log = held(ledger.store, plan.pipeline, table, logs) or Held(None, None)
        if log.plan == digest(plan):
            # Another process has published this batch meanwhile.
            continue
        last = _last_written(ledger, published, table)
        known = Held(last.batch, digest(last)) if last else Held(None, None)
        yield {
            "table": table,
            "log_batch": log.batch,
            "log_plan": log.plan,
            "ledger_batch": known.batch,
            "ledger_plan": known.plan,
        }


def _last_written(ledger: Ledger, published: Plan | None, table: str) -> Plan | None:
    """The newest published plan that writes a table. Later batches may not write it."""
    if published is None or table in published.tables:
        return published
    batch = balance(ledger, published).written.get(table)
    return None if batch is None else ledger.published_before(batch + 1)
