"""Notes: what was not proved of a batch, for its page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pandas as pd

from coset.sources.rows import each_row
from partitioning.explain.doubled import said
from partitioning.model.plan import Plan
from partitioning.model.shared_reads import read_together
from partitioning.sections import many


def not_proved(plan: Plan, tables: pd.DataFrame, gaps: pd.DataFrame, produced: pd.DataFrame) -> Iterator[str]:
    """What nobody checked, and why, a sentence each."""
    yield from _by_its_readers(plan)
    yield from _read_once(plan)
    if told := said(plan):
        yield f"{told} Nobody read them again."
    if unseen := sorted({write.declared.table for write in plan.writes()} - set(tables["table"])):
        yield (
            f"Whether {', '.join(unseen)} held the batch before was not looked at: it holds this very batch already "
            "or, if this is a backfill, later ones."
        )
    for row in each_row(gaps):
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


def _by_its_readers(plan: Plan) -> Iterator[str]:
    """If only readers know the offsets, there is nothing else to compare them with."""
    if by_readers := sorted(stream.name for stream in plan.streams if stream.declared.may_lack_offsets):
        yield (
            f"Which offsets of {', '.join(by_readers)} have a record is what those say who read them: there is nothing "
            "else to hold it against."
        )


def _read_once(plan: Plan) -> Iterator[str]:
    """Tasks that read together share one reader's figures."""
    tasks = Counter[str]()
    for group in plan.groups:
        for together in read_together(plan, group):
            if len(together) > 1:
                tasks[together[0].stage] += len(together)
    for stage, count in sorted(tasks.items()):
        yield (
            f"One reader read for several tasks of stage {stage} ({count:,} of them): what these say to have read "
            "agrees by construction. That each record was taken by one of them alone is proved."
        )
