"""Continuity: up to where streams were read before a batch, by what the ledger and the tables' own logs say now.

Nothing of it is taken from the plan that is judged, which says only where it starts itself and what it remembers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from coset.batches.backfills.request import backfills
from coset.batches.ends import ends_before
from coset.batches.tables.delta import Held, held
from coset.sources.log_starts import earlier
from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger
from partitioning.errors import Finding, Refused, about
from partitioning.kinds import Kind
from partitioning.model.gaps import Explained, planned_gaps
from partitioning.model.plan import Plan, PlannedPartition, PlannedStream
from partitioning.model.read_ends import End, Ends, StreamProgress
from partitioning.values import Value, replace


@dataclass(frozen=True, slots=True)
class Continuity:
    """Three tables: `ends` has a row for each stream partition, `remembered` one for each that was read before and of
    which nothing is read now, `tables` one for each result table.

    `ends`: stream, partition, whether it is read `whole`, beginning, start, end; `published` is up to where published
    batches have read it, `asked` where a first batch was asked to begin, `found` where it begins, if that
    is earlier than the plan says; all three may be missing. How many offsets are `missing` by the plan; how many its
    files `lack`, of which nobody explains so many (`unexplained`); and the first such gap (`gap`).
    `remembered`: stream, partition, which is missing for what is remembered of the stream as a whole; up to where it
    was read by the plan (`plan_end`, `plan_batch`), and by the ledger (`ledger_end`, `ledger_batch`); what else is
    not remembered as it was (`differs`). All of them may be missing.
    `tables`: table; the batch and plan that it holds by its log (`log_batch`, `log_plan`), and those that the ledger
    published last to it (`ledger_batch`, `ledger_plan`); all may be missing. A table that
    has later batches, as in a backfill, or this very one, has none.
    """

    ends: pd.DataFrame
    remembered: pd.DataFrame
    tables: pd.DataFrame


def continuity(ledger: Ledger, plan: Plan) -> Continuity:
    """What a batch has to go on from, read anew. Raises Refused if the ledger or a log cannot be read."""
    published, before = ledger.published_before(plan.batch), ends_before(ledger, plan.batch)
    return Continuity(
        _ends(ledger, plan, published, before), _remembered(ledger, plan, before), _tables(ledger, plan, published)
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
            **gap_figures(plan, stream, partition),
        }
        for stream in plan.streams
        for partition in stream.partitions
    ]
    numbers = {"published": "Int64", "asked": "Int64", "found": "Int64"}
    return pd.DataFrame(rows).astype(numbers | {"gap": "string"})


def _earlier(stream: PlannedStream, before: Ends) -> Mapping[int, int]:
    """Where partitions begin of which the plan says that they are read from a later offset, the first, on."""
    whole = before.is_read_whole(stream.declared)
    beginnings = {
        partition.partition: partition.beginning
        for partition in stream.partitions
        if whole or before.end(stream.name, partition.partition) is None
    }
    return earlier(stream.declared, beginnings) if beginnings else {}


class _ByLedger:
    """Up to where partitions were read, by the plans of the batches that read them last."""

    def __init__(self, ledger: Ledger, published: Plan | None, before: Ends) -> None:
        self._ledger = ledger
        self._before = before
        self._plans = {published.batch: published} if published else {}
        self._newest = published

    def end(self, stream: str, partition: int) -> int | None:
        """None if no published batch has read it. Raises Refused if that is remembered of one that has not."""
        known = self._before.end(stream, partition)
        if known is None:
            return None
        ends = [_end_in(plan, stream, partition) for plan in (self._newest, self._plan(known.batch))]
        end = next((end for end in ends if end is not None), None)
        if end == known.end:
            return end
        where = f"{stream}-{partition}, by {self._ledger.uri(self._ledger.key('plans', self._before.batch))}"
        what = (
            f"it is remembered that batch {known.batch} has read it up to {known.end}, but by its plan that is not so"
        )
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
    # A plan of an older version remembers nothing, and is not gone on from without asking the plans before it.
    by_plan = _by_partition(plan.remembered) if isinstance(plan.remembered, tuple) else {}
    by_ledger = _by_partition(after.remembered()) if isinstance(plan.remembered, tuple) else {}
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
    columns = ["stream", *numbers, "differs"]
    frame = pd.DataFrame(rows, columns=columns).astype(numbers | {"stream": "string", "differs": "string"})
    return frame.assign(partition=frame["partition"].replace(_ALL, pd.NA))


# In place of a partition's number: the stream, of which it may be remembered what is no partition's.
_ALL = -1
_Remembered = tuple[StreamProgress, End | None]


def _by_partition(reads: Sequence[StreamProgress]) -> dict[tuple[str, int], _Remembered]:
    streams: dict[tuple[str, int], _Remembered] = {(read.name, _ALL): (read, None) for read in reads}
    return streams | {(read.name, end.partition): (read, end) for read in reads for end in read.ends}


def _figures(whose: str, remembered: _Remembered | None) -> dict[str, int | None]:
    end = remembered[1] if remembered else None
    return {f"{whose}_end": end.end if end else None, f"{whose}_batch": end.batch if end else None}


class _Others:
    """What may be remembered of backfills as well: a swap between a plan and its check changes whose files count."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger.original or ledger

    def differs(self, by_plan: _Remembered | None, by_ledger: _Remembered | None) -> str | None:
        """What else than the position is remembered otherwise."""
        if by_plan is None or by_ledger is None:
            return None if by_plan is by_ledger else "the stream"
        (read, end), (known, known_end) = by_plan, by_ledger
        if end is None or known_end is None:
            wrong = _unlike(read, known, ("declared", "batch", "columns", "required", "topic"))
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
        """Those that backfills have of a batch."""
        for asked in backfills(self._ledger.store, self._ledger.pipeline):
            if batch in asked.batches and (plan := Ledger(self._ledger.store, asked.name).plan(batch)):
                yield plan


def _unlike(one: Value, other: Value, names: Sequence[str]) -> str | None:
    return next((name for name in names if getattr(one, name) != getattr(other, name)), None)


def gap_figures(plan: Plan, stream: PlannedStream, partition: PlannedPartition) -> dict[str, object]:
    """What the planned files of a partition lack, by themselves."""
    gaps = planned_gaps(plan, stream.declared, partition)
    unexplained = [gap for gap in gaps if gap.explained is Explained.NOBODY]
    return {
        "lack": sum(gap.missing for gap in gaps),
        "declared": sum(gap.missing for gap in gaps if gap.explained is Explained.DECLARED),
        "unexplained": sum(gap.missing for gap in unexplained),
        "gap": str(unexplained[0].offsets) if unexplained else None,
    }


def _tables(ledger: Ledger, plan: Plan, published: Plan | None) -> pd.DataFrame:
    # What a backfill leaves alone has later batches.
    rows = [] if ledger.original else list(_table_rows(ledger, plan, published))
    columns = {"table": "string", "log_batch": "Int64", "log_plan": "string"}
    names = [*columns, "ledger_batch", "ledger_plan"]
    return pd.DataFrame(rows, columns=names).astype(columns | {"ledger_batch": "Int64", "ledger_plan": "string"})


def _table_rows(ledger: Ledger, plan: Plan, published: Plan | None) -> Iterator[dict[str, object]]:
    for write in plan.writes():
        table = write.declared.table
        log = held(ledger.store.root, plan.pipeline, table) or Held(None, None)
        if log.plan == digest(plan):
            # Somebody decided and published this very batch meanwhile.
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
    """The newest published plan that writes a table, which may have been left out since."""
    plan = published
    while plan is not None and table not in {write.declared.table for write in plan.writes()}:
        plan = ledger.published_before(plan.batch)
    return plan
