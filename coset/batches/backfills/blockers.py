"""Blockers: what keeps a backfill from being put in place, or from being taken back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coset.batches.backfills.effects import Layers, first_behind, keeping, last_before, unlike
from partitioning import commands
from partitioning.authoring.settings import Settings
from partitioning.commands import Backfills, Run, Then
from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.errors import Finding
from partitioning.kinds import Kind
from partitioning.model.backfill import Backfill, Comparison, Swap, SwapKind
from partitioning.model.plan import Plan


def turn_blockers(
    store: Store,
    backfill: Backfill,
    comparison: Comparison,
    to: SwapKind,
    decided: Sequence[Swap],
    changed: Sequence[str],
    *,
    half_done: bool,
) -> Iterator[Finding]:
    """A finding for each reason why a turn of a backfill is not to be decided now. What `changed` are the steps that
    keep other rows, or mean something else. What is `half_done` can always be taken back."""
    then = (Backfills(backfill.pipeline), " shows what counts")
    layers = Layers(store, backfill.pipeline, decided)
    for batch in backfill.batches:
        names = layers.names(batch)
        where = f"batch {batch} of {backfill.pipeline}"
        if to is SwapKind.UNDO and names[-1] != backfill.name:
            above = commands.backfill_of(names[-1]) if backfill.name in names else None
            what = f"its rows are those of {names[-1]}, not of {backfill.name}"
            first = ("take that back first: ", commands.Undo(*above)) if above else then
            yield Finding.of(Kind.BACKFILL_TURN, what, where, first, rows_of=names[-1], backfill=backfill.name)
        if to is SwapKind.SWAP:
            if backfill.name in names:
                what = f"{backfill.name} is in place already"
                yield Finding.of(Kind.BACKFILL_TURN, what, where, then, backfill=backfill.name)
                continue
            plan = layers.top(batch).plan(batch)
            if plan is None or digest(plan) != comparison.compared_with[batch]:
                what = f"it was compared with the plan {comparison.compared_with[batch]}, which no longer counts"
                compared = (Run(backfill.name), " compares with what counts now")
                yield Finding.of(Kind.BACKFILL_UNREADY, what, where, compared, backfill=backfill.name, batch=batch)
    kept = _added_columns(store, backfill, layers) if to is SwapKind.UNDO else ""
    back = f"make the pipeline what it was before{kept}, and run them again: "
    repaired, first_one = backfill.repaired is True, backfill.batches[0]
    cascade = commands.BackfillAsking(backfill.pipeline, first_one, cascade=True, repaired=repaired)
    again = ("run them too: " if to is SwapKind.SWAP else back, cascade)
    taken_back = comparison.taken_back
    if (changed or taken_back) and (newest := newest_dependent(store, backfill.pipeline)) != backfill.batches[-1]:
        where = f"batch {backfill.batches[-1]} of {backfill.pipeline}"
        if changed:
            what = f"it changes the state of {', '.join(changed)}, on which later batches, up to {newest}, depend"
            yield Finding.of(Kind.BACKFILL_LATER, what, where, again, changed=changed, newest=newest)
        if taken_back:
            took = "would take" if to is SwapKind.SWAP else "took"
            what = f"it {took} back changes of others in {', '.join(taken_back)}, and batches up to {newest} come later"
            anew: Then = again if to is SwapKind.SWAP else "change the rows once more as others did, and accept that"
            yield Finding.of(Kind.BACKFILL_LATER, what, where, anew, tables=taken_back, newest=newest)
    for plan, table, why in () if half_done else _unlike(store, backfill, to, layers, decided):
        what, where = f"table {table!r} would not be its query: {why}", f"batch {plan.batch} of {backfill.pipeline}"
        yield Finding.of(Kind.BACKFILL_LATER, what, where, again, table=table, newest=plan.batch)


def _added_columns(store: Store, backfill: Backfill, layers: Layers) -> str:
    """The columns that only rows of the backfill have, for people. A table keeps them."""
    last = backfill.batches[-1]
    names = layers.names(last)
    if names[-1] != backfill.name:
        return ""
    before, now = (Ledger(store, name).plan(last) for name in names[-2:])
    assert before is not None
    assert now is not None
    had = {write.declared.table: {column.name for column in write.columns} for write in before.writes()}
    added = [
        f"{column.name} of table {write.declared.table!r}"
        for write in now.writes()
        for column in write.columns
        if column.name not in had.get(write.declared.table, {column.name})
    ]
    return f", but for new columns, which stay ({', '.join(added)})" if added else ""


def _unlike(
    store: Store, backfill: Backfill, to: SwapKind, layers: Layers, decided: Sequence[Swap]
) -> Iterator[tuple[Plan, str, str]]:
    """The tables that would have other rows than their query's after a turn, for what batches beside the backfill
    wrote, unless that is asked for by their names. Each is given with the plan of such a batch, and why."""
    ledger, batches = Ledger(store, backfill.pipeline), (backfill.batches[0], backfill.batches[-1])
    names = [layers.names(batch) for batch in batches]
    if any((of[-1] == backfill.name) is not (to is SwapKind.UNDO) for of in names):
        return
    comes = [of[-2] if to is SwapKind.UNDO else backfill.name for of in names]
    first, last = (Ledger(store, name).plan(batch) for name, batch in zip(comes, batches, strict=True))
    gone = Ledger(store, names[-1][-1]).plan(batches[-1])
    assert first is not None
    assert last is not None
    assert gone is not None
    settings = Settings.read(backfill.settings, str(backfill))
    asked = {*settings.go_on, *settings.begin_anew}
    lost = set(gone.tables) - set(last.tables)
    asks = keeping(last) | lost | last.accepted.keys()
    for plan, tables in first_behind(ledger, layers, last.batch, asks):
        yield from ((plan, table, "its rows of earlier batches would go") for table in sorted(tables & lost))
        for table in sorted(tables & last.accepted.keys() - plan.accepted.keys() - asked):
            since = last.accepted[table]
            why = f"it was taken as it is in batch {since}, and this batch went on from what makes it whole"
            yield plan, table, why
        for each in unlike(last, plan, tables):
            if each.write.table not in asked and plan.accepted.get(each.write.table) != plan.batch:
                yield plan, each.write.table, f"{each} from batch {last.batch} to this one"
    put = [n for n, swap in enumerate(decided) if (swap.backfill, swap.turn) == (backfill.number, SwapKind.SWAP)]
    then = Layers(store, backfill.pipeline, decided[: put[-1]]) if put and to is SwapKind.UNDO else None
    named = asked if to is SwapKind.SWAP else set[str]()
    for plan, tables in last_before(ledger, layers, first):
        # A state of before the backfill may come back.
        if then is not None and then.names(plan.batch)[-1] == layers.names(plan.batch)[-1]:
            continue
        for each in unlike(plan, first, tables):
            if each.write.table not in named and first.accepted.get(each.write.table) != first.batch:
                yield plan, each.write.table, f"{each} from this batch to batch {first.batch}"


def newest_dependent(store: Store, pipeline: str) -> int | None:
    """The newest batch that is open or published, and so may depend on the state before it."""
    standing = Ledger(store, pipeline).standing()
    if standing.open and standing.plan:
        return standing.plan.batch
    return standing.published.batch if standing.published else None
