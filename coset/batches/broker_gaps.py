"""Broker gaps: offsets of a topic's log without a record, which are known after reading the log."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from partitioning.model.gaps import Explained, Gap
from partitioning.model.plan import Plan


def broker_gaps(plan: Plan, coverage: pd.DataFrame) -> Iterator[Gap]:
    """How many offsets without a record each planned range of a topic has, by the audit's coverage table."""
    rows = coverage.drop_duplicates(["input", "partition"])
    records = {(row.input, int(row.partition)): int(row.planned) for row in rows.itertuples()}
    for stream in plan.streams:
        if stream.declared.counted_by_plan:
            continue
        for planned in stream.partitions:
            missing = planned.records - records.get((stream.name, planned.partition), planned.records)
            if missing > 0:
                yield Gap(stream.range(planned.partition), missing, Explained.BROKER, planned.files[-1].path)
