"""Notes: what the page of a batch says of that which was not proved, beside the expectations that are met."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from partitioning.model.plan import Plan
from partitioning.sections import many


def not_proved(plan: Plan, tables: pd.DataFrame, gaps: pd.DataFrame, produced: pd.DataFrame) -> Iterator[str]:
    """What nobody looked at, and why, a sentence each."""
    if unseen := sorted({write.declared.table for write in plan.writes()} - set(tables["table"])):
        yield (
            f"Whether {', '.join(unseen)} held the batch before was not looked at: it holds this very batch already "
            "or, if this is a backfill, later ones."
        )
    for row in gaps.itertuples():
        name = f"{row.stream}-{row.partition}"
        if pd.isna(row.gaps):
            yield f"Where {name} has no records is not known: a task of an earlier version has read it."
        elif row.looked < row.gaps:
            yield (
                f"Of {name}, {row.looked:,} of {many(int(row.gaps), 'gap')} were looked into. That the others have no "
                "records is what those say who read it."
            )
    if uncounted := int((~produced["counted"].astype(bool)).sum()):
        yield (
            f"Whether {many(uncounted, 'output')} of tasks have all rows is what their writers say: a task of an "
            "earlier version did not count what was made."
        )
