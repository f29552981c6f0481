"""Outlook: how much work a backfill is, and what depends on its batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from coset.batches.attempt import Attempt
from coset.batches.backfills.swap.swaps import newest_dependent
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.model.graph import Write
from partitioning.model.plan import Plan
from partitioning.values import Value


class Later(Value, frozen=True):
    """A later batch that depends on the state after a backfill's last batch. An `open` one is not published yet."""

    batch: int
    open: bool


class Touched(Value, frozen=True):
    """A result table that the batches write, and how many rows they wrote to it."""

    write: Write
    rows: int


class Outlook(Value, frozen=True):
    """The seconds that the tasks of each batch worked in its first run, where that is known; the steps with state; the
    later batches that depend on it; and the tables that are written."""

    seconds: dict[int, float]
    keeps: tuple[str, ...]
    later: tuple[Later, ...]
    tables: tuple[Touched, ...]


def outlook(store: Store, pipeline: str, stored: Sequence[Plan]) -> Outlook:
    """The outlook on a backfill of these published batches."""
    ledger, last = Ledger(store, pipeline), stored[-1]
    keeps = tuple(sorted({step.name for stage in last.stages for step in stage.steps if step.state}))
    worked = {plan.batch: seconds_worked(ledger, plan) for plan in stored}
    return Outlook(
        {batch: seconds for batch, seconds in worked.items() if seconds is not None},
        keeps,
        tuple(_later(ledger, last.batch)) if keeps else (),
        tuple(_touched(ledger, stored)),
    )


def seconds_worked(ledger: Ledger, plan: Plan) -> float | None:
    """How long all tasks of a published batch worked, together. None if a receipt is gone."""
    attempt = Attempt.published(ledger, plan)
    return None if attempt is None or attempt.missing else sum(task.milliseconds for task in attempt.tasks) / 1000


def _later(ledger: Ledger, last: int) -> Iterator[Later]:
    newest = newest_dependent(ledger.store, ledger.pipeline)
    for batch in range(last + 1, (newest or 0) + 1):
        if ledger.verdict(batch) is None:
            yield Later(batch, open=True)
        elif ledger.published(batch):
            yield Later(batch, open=False)


def _touched(ledger: Ledger, stored: Sequence[Plan]) -> Iterator[Touched]:
    rows, writes = Counter[str](), dict[str, Write]()
    for plan in stored:
        verdict = ledger.published(plan.batch)
        for write in (write.declared for write in plan.writes()):
            writes[write.table] = write
            rows[write.table] += sum(file.records for file in verdict.rows_of(write.table)) if verdict else 0
    for table, write in sorted(writes.items()):
        yield Touched(write, rows[table])
