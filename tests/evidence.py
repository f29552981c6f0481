"""A first batch whose receipts lie in memory, what it is judged by, and the judgement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa

from coset.batches.attempt import Attempt
from coset.batches.auditing.audit import audit
from coset.batches.continuity import Continuity, gap_figures
from coset.reports.site import Site
from coset.sources.rows import Rows
from expectations.checkpoint import Judgement, judge
from expectations.questions import Evidence
from partitioning.authoring.words import NullKey
from partitioning.model.journal import Occasion
from partitioning.model.offsets import StreamPartition
from partitioning.model.plan import Plan
from partitioning.model.receipt import Receipt
from partitioning.values import replace
from tests.reference import Seen, log, pipeline, planned, run, store


def evidence(plan: Plan, seen: Sequence[Seen]) -> Evidence:
    """The audit of what was seen, beside the continuity of a first batch."""
    tables, before = audit(store(plan, seen), plan, 0), first_of_all(plan)
    return Evidence(**vars(tables), **vars(before))


def first_of_all(plan: Plan) -> Continuity:
    """What `batches.continuity` says of a plan before which nothing was published."""
    ends = [
        {
            "stream": stream.name,
            "partition": each.partition,
            "whole": stream.declared.table,
            "beginning": each.beginning,
            "start": each.start,
            "end": each.end,
            "published": None,
            "asked": None,
            "found": None,
            "missing": each.missing,
            **gap_figures(plan, StreamPartition(stream.name, each.partition)),
        }
        for stream in plan.streams
        for each in stream.partitions
    ]
    nothing = {"log_batch": None, "log_plan": None, "ledger_batch": None, "ledger_plan": None}
    tables = [{"table": write.declared.table} | nothing for write in plan.writes()]
    figures = ["plan_end", "plan_batch", "ledger_end", "ledger_batch", "differs"]
    remembered = pd.DataFrame(columns=["stream", "partition", *figures])
    return Continuity(pd.DataFrame(ends), remembered, pd.DataFrame(tables), pd.DataFrame())


def receipts(plan: Plan, seen: Sequence[Seen], ran: Occasion, cpu_milliseconds: int = 1_500) -> tuple[Receipt, ...]:
    """The receipts of what was seen, as if all task groups ran at once and one task took all CPU time."""
    stored = Attempt(store(plan, seen), plan, 0).receipts.values()
    spent = iter([cpu_milliseconds])
    return tuple(
        replace(each, ran=ran, tasks=tuple(replace(task, cpu_milliseconds=next(spent, 0)) for task in each.tasks))
        for each in stored
    )


def judged(
    plan: Plan, seen: Sequence[Seen], outputs: Mapping[str, pd.DataFrame] | None = None, *, site: Site | None = None
) -> Judgement:
    """What Great Expectations finds in the first attempt; `outputs` are the rows that it would publish."""
    tables = {name: Rows.of(pa.Table.from_pandas(frame)) for name, frame in (outputs or {}).items()}
    return judge(plan, evidence(plan, seen), tables, attempt=0, site=site)


TAILS = [f"N{number}" for number in range(30)]


def batch(*expect: dict[str, Any], null_keys: NullKey = "drop", scheme: str | None = None) -> tuple[Plan, list[Seen]]:
    """A batch of thirty planes, nine of which flew twice, and of a flight without a tail number."""
    made = pipeline(null_keys=null_keys, expect=expect)
    records = log(made, {"flights": [None, *TAILS, *TAILS[:9]], "planes": TAILS})
    plan = planned(made, records, scheme)
    return plan, run(plan, records)
