"""Pages about a backfill, in Markdown: what it would run, and what it gives beside what there is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from batches.backfills.swaps import in_force
from partitioning.diff.diff import diff
from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.model.backfill import Backfill, Comparison
from partitioning.model.plan import Plan
from partitioning.sections import Section, markdown, section, size

_BATCHES = ("batch", "records", "bytes", "tasks before", "tasks now", "groups before", "groups now", "results")


def preview_sections(pipeline: str, pairs: Sequence[tuple[Plan, Plan]]) -> tuple[Section, ...]:
    """Each batch as it was planned, and as the backfill would plan it."""
    return (_batches(f"What a backfill of {pipeline} would run", pairs, _needs(pairs)),)


def comparison_sections(found: Comparison) -> tuple[Section, ...]:
    """Which rows are others than they were, and the first of them."""
    first = [(str(table.batch), table.table, *rows) for table in found.tables for rows in table.first]
    last = str(found.plans[-1][0])
    first += [(last, state.step, *rows) for state in found.states for rows in state.first]
    columns = ("batch", "table", "key", "before", "now")
    return (_tables(found), *([section("The first keys that differ", columns, first)] if first else []))


def comparison_page(store: Store, backfill: Backfill, found: Comparison) -> str:
    """What a reviewer has to see: what was asked and why, how it was run, and which rows are others than they were."""
    shown = [_batches("How its batches were run", tuple(_run_again(store, backfill))), *comparison_sections(found)]
    asked = f"Asked by {backfill.who} at {backfill.at}: {backfill.why or 'no reason was given'}."
    head = f"## {str(backfill).capitalize()}\n\n{asked}\n\n"
    return f"{head}{markdown(shown)}\nThe digest of this comparison is {digest(found)}.\n"


def _run_again(store: Store, backfill: Backfill) -> Iterator[tuple[Plan, Plan]]:
    layers, now = in_force(store, backfill.pipeline), Ledger(store, backfill.name)
    for batch in backfill.batches:
        before, again = layers.top(batch).plan(batch), now.plan(batch)
        assert before is not None
        assert again is not None
        yield before, again


def _batches(title: str, pairs: Sequence[tuple[Plan, Plan]], notes: Iterable[str] = ()) -> Section:
    return section(title, _BATCHES, [_batch(before, now) for before, now in pairs], notes)


def _needs(pairs: Sequence[tuple[Plan, Plan]]) -> Iterator[str]:
    last = pairs[-1][0]
    keeps = sorted({step.name for stage in last.stages for step in stage.steps if step.state})
    if keeps:
        yield f"Later batches go on from what {', '.join(keeps)} keep after batch {last.batch}: it must stay the same."


def _batch(before: Plan, now: Plan) -> tuple[str, ...]:
    read = sum(partition.bytes for stream in before.streams for partition in stream.partitions)
    counts = (_tasks(before), _tasks(now), len(before.groups), len(now.groups))
    results = str(diff(before, now).results).partition(":")[0]
    return str(before.batch), f"{before.records:,}", size(read), *(f"{count:,}" for count in counts), results


def _tasks(plan: Plan) -> int:
    return sum(len(stage.tasks) for stage in plan.stages)


def _tables(found: Comparison) -> Section:
    sides = [(str(table.batch), table.table, table.rows, table.keys) for table in found.tables]
    last = str(found.plans[-1][0])
    sides += [(last, f"what {state.step} keeps", state.rows, state.keys) for state in found.states]
    rows = [(batch, name, *(f"{count:,}" for count in (*counts, keys))) for batch, name, counts, keys in sides]
    columns = ("batch", "table", "rows before", "rows now", "keys that differ")
    return section(f"Backfill {found.backfill} of {found.pipeline}", columns, rows, _notes(found))


def _notes(found: Comparison) -> Iterator[str]:
    yield f"Compared: {found}."
    if found.changes:
        yield f"The pipeline was changed: {'; '.join(found.changes)}."
    if found.functions:
        yield f"Of functions only the names are known to be the same: {', '.join(found.functions)}."
