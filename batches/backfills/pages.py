"""Pages about a backfill, in Markdown: what it would run, and what it gives beside what there is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from batches.backfills.backfill import Backfill
from batches.backfills.swaps import in_force
from partitioning.diff.diff import diff
from partitioning.documents.document import digest
from partitioning.documents.store import Store
from partitioning.model.backfill import Comparison
from partitioning.model.plan import Plan
from partitioning.sections import Section, markdown, section, size

_BATCHES = ("batch", "records", "bytes", "tasks before", "tasks now", "groups before", "groups now", "results")


def preview_page(pipeline: str, pairs: Sequence[tuple[Plan, Plan]]) -> str:
    """Each batch as it was planned, and as the backfill would plan it."""
    return markdown([_batches(f"What a backfill of {pipeline} would run", pairs)])


def comparison_page(store: Store, backfill: Backfill, comparison: Comparison) -> str:
    """What a reviewer has to see: what was asked and why, how it was run, and which rows are others than they were."""
    shown = [_batches("How its batches were run", tuple(_run_again(store, backfill))), _tables(comparison)]
    first = [(table.batch, table.table, *rows) for table in comparison.tables for rows in table.first]
    if first:
        rows = [(str(batch), *texts) for batch, *texts in first]
        shown.append(section("The first keys that differ", ("batch", "table", "key", "before", "now"), rows))
    asked = f"Asked by {backfill.who} at {backfill.at}: {backfill.why or 'no reason was given'}."
    head = f"## {str(backfill).capitalize()}\n\n{asked}\n\n"
    return f"{head}{markdown(shown)}\nThe digest of this comparison is {digest(comparison)}.\n"


def _run_again(store: Store, backfill: Backfill) -> Iterator[tuple[Plan, Plan]]:
    now = backfill.ledger(store)
    for batch in backfill.batches:
        before, again = in_force(store, backfill.pipeline, batch).plan(batch), now.plan(batch)
        assert before is not None
        assert again is not None
        yield before, again


def _batches(title: str, pairs: Sequence[tuple[Plan, Plan]]) -> Section:
    return section(title, _BATCHES, [_batch(before, now) for before, now in pairs])


def _batch(before: Plan, now: Plan) -> tuple[str, ...]:
    read = sum(partition.bytes for stream in before.streams for partition in stream.partitions)
    counts = (_tasks(before), _tasks(now), len(before.groups), len(now.groups))
    results = str(diff(before, now).results).partition(":")[0]
    return str(before.batch), f"{before.records:,}", size(read), *(f"{count:,}" for count in counts), results


def _tasks(plan: Plan) -> int:
    return sum(len(stage.tasks) for stage in plan.stages)


def _tables(comparison: Comparison) -> Section:
    rows = [
        (str(table.batch), table.table, *(f"{count:,}" for count in (*table.rows, table.keys)))
        for table in comparison.tables
    ]
    columns = ("batch", "table", "rows before", "rows now", "keys that differ")
    return section("What it gives, and what there is", columns, rows, _notes(comparison))


def _notes(comparison: Comparison) -> Iterator[str]:
    yield f"Compared: {comparison}."
    if comparison.changes:
        yield f"The pipeline was changed: {'; '.join(comparison.changes)}."
    if comparison.functions:
        yield f"Of functions only the names are known to be the same: {', '.join(comparison.functions)}."
    differing = [state.step for state in comparison.states if not state.same]
    if differing:
        yield f"What {', '.join(differing)} keep is not what it was: this cannot be put in place."
