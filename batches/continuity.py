"""Continuity: where the last published batch ended, by what the ledger and the tables' own logs say now.

Nothing of it is taken from the plan that is judged, which says only where it starts itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from batches.delta import Held, held
from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger
from partitioning.model.gaps import Explained, planned_gaps
from partitioning.model.plan import Plan, PlannedPartition, PlannedStream
from partitioning.model.streams import is_read_whole


@dataclass(frozen=True, slots=True)
class Continuity:
    """Two tables: `ends` has a row for each stream partition, `tables` one for each result table.

    `ends`: stream, partition, whether it is read `whole`, beginning, start, end; `published` is where the last
    published batch ended, `asked` where a first batch was asked to begin; both may be missing. How many offsets are
    `missing` by the plan; how many its files `lack`, of which nobody explains so many (`unexplained`); and the first
    such gap (`gap`).
    `tables`: table; the batch and plan that it holds by its log (`log_batch`, `log_plan`), and those that the ledger
    published last to it (`ledger_batch`, `ledger_plan`); all may be missing.
    """

    ends: pd.DataFrame
    tables: pd.DataFrame


def continuity(ledger: Ledger, plan: Plan) -> Continuity:
    """What a batch has to go on from, read anew. Raises Refused if the ledger or a log cannot be read."""
    published = ledger.published_before(plan.batch)
    return Continuity(_ends(plan, published), _tables(ledger, plan, published))


def _ends(plan: Plan, published: Plan | None) -> pd.DataFrame:
    before = {stream.name: stream.declared for stream in published.streams} if published else {}
    ended = {str(offsets.partition): offsets.end for offsets in published.ranges()} if published else {}
    rows = [
        {
            "stream": stream.name,
            "partition": partition.partition,
            "whole": is_read_whole(stream.declared, before.get(stream.name)),
            "beginning": partition.beginning,
            "start": partition.start,
            "end": partition.end,
            "published": ended.get(f"{stream.name}-{partition.partition}"),
            "asked": plan.starts.get(f"{stream.name}-{partition.partition}"),
            "missing": partition.missing,
            **gap_figures(plan, stream, partition),
        }
        for stream in plan.streams
        for partition in stream.partitions
    ]
    return pd.DataFrame(rows).astype({"published": "Int64", "asked": "Int64", "gap": "string"})


def gap_figures(plan: Plan, stream: PlannedStream, partition: PlannedPartition) -> dict[str, object]:
    """What the planned files of a partition lack, by themselves."""
    gaps = planned_gaps(plan, stream.declared, partition)
    unexplained = [gap for gap in gaps if gap.explained is Explained.NOBODY]
    return {
        "lack": sum(gap.missing for gap in gaps),
        "unexplained": sum(gap.missing for gap in unexplained),
        "gap": str(unexplained[0].offsets) if unexplained else None,
    }


def _tables(ledger: Ledger, plan: Plan, published: Plan | None) -> pd.DataFrame:
    rows = list(_table_rows(ledger, plan, published))
    columns = {"table": "string", "log_batch": "Int64", "log_plan": "string"}
    return pd.DataFrame(rows).astype(columns | {"ledger_batch": "Int64", "ledger_plan": "string"})


def _table_rows(ledger: Ledger, plan: Plan, published: Plan | None) -> Iterator[dict[str, object]]:
    for write in plan.writes():
        table = write.declared.table
        log = held(ledger.store.root, plan.pipeline, table) or Held(None, None)
        last = _last_written(ledger, published, table)
        known = Held(last.batch, digest(last)) if last else Held(None, None)
        if log.plan == digest(plan) or ledger.original:
            # Somebody decided and published this very batch meanwhile, or later ones that a backfill leaves alone: what
            # counts is the batch before.
            log = known
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
