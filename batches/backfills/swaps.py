"""Swaps: which rows readers see of each batch, those of its first run or those of a backfill; and the change of it.

A pipeline's swaps are numbered. Each is decided by a document, put once; then each table has one commit; then a receipt
is put. Whoever comes finishes what was decided before anything else is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from batches.backfills.tables import Exchange, check_held, check_version, exchange, replace_rows, restore_rows
from batches.publication import check_files
from partitioning.documents.document import decode, digest, encode
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.errors import Conflict, Finding, Refused
from partitioning.model.artefact import Artefact
from partitioning.model.backfill import Backfill, Comparison, Swap, Swapped, Turn, name_of
from partitioning.model.graph import Mode
from partitioning.model.plan import PlannedWrite


def swaps(store: Store, pipeline: str) -> Iterator[Swap]:
    """All that was decided, oldest first."""
    number = 0
    while (data := store.get(_decision(pipeline, number))) is not None:
        yield decode(Swap, data, f"{store.root}/{_decision(pipeline, number)}")
        number += 1


def in_force(store: Store, pipeline: str, batch: int) -> Ledger:
    """The ledger whose rows readers see of a batch."""
    return Ledger(store, _standing(pipeline, swaps(store, pipeline)).get(batch, [pipeline])[-1])


def shown(store: Store, pipeline: str) -> dict[int, str]:
    """The batches of which readers see the rows of a backfill, and its name."""
    standing = _standing(pipeline, swaps(store, pipeline))
    return {batch: names[-1] for batch, names in sorted(standing.items()) if names[-1] != pipeline}


def in_place(store: Store, backfill: Backfill) -> bool:
    """Whether readers see its rows of some batch."""
    return any(in_force(store, backfill.pipeline, batch).pipeline == backfill.name for batch in backfill.batches)


def gone_on_from(store: Store, pipeline: str, batch: int) -> Ledger:
    """The ledger with what is kept after a batch, for the batches after it.

    Where a backfill keeps the same, it is still what the batch itself left: upserted tables lie as that does.
    """
    decided = (swap for swap in swaps(store, pipeline) if swap.keeps)
    return Ledger(store, _standing(pipeline, decided).get(batch, [pipeline])[-1])


def _standing(pipeline: str, decided: Iterator[Swap]) -> dict[int, list[str]]:
    """By batch the names under which its rows lie, the one that counts last: an undo takes that away."""
    standing: dict[int, list[str]] = {}
    for swap in decided:
        for batch in swap.batches:
            names = standing.setdefault(batch, [pipeline])
            if swap.turn is Turn.SWAP:
                names.append(name_of(pipeline, swap.backfill))
            else:
                names.pop()
    return standing


def finish(store: Store, pipeline: str) -> Swapped | None:
    """Finish the newest swap, if somebody left it half done; its receipt, None if there was never one."""
    decided = list(swaps(store, pipeline))
    if not decided:
        return None
    data = store.get(_receipt(pipeline, decided[-1].number))
    if data is not None:
        return decode(Swapped, data, f"{store.root}/{_receipt(pipeline, decided[-1].number)}")
    return _carried_out(store, decided)


def turn(store: Store, backfill: Backfill, comparison: Comparison, to: Turn, *, who: str, why: str, at: str) -> Swapped:
    """Let readers see the rows of a backfill, or those again that there were before it.

    It may be repeated: what is so already is found so. Raises Refused, with all findings, if what is published is not
    what was compared, or if later batches went on from something else; Conflict if somebody else decided at the same
    time.
    """
    pipeline = backfill.pipeline
    finish(store, pipeline)
    decided = list(swaps(store, pipeline))
    mine = [swap for swap in decided if swap.backfill == backfill.number]
    if mine and (mine[-1].turn, mine[-1].approved) == (to, digest(comparison)):
        # Somebody may have decided it just now, and may not have put the receipt yet.
        return _carried_out(store, decided) if mine[-1] is decided[-1] else _receipt_of(store, mine[-1])
    standing = _standing(pipeline, iter(decided))
    findings = list(_misfits(store, backfill, comparison, to, standing))
    if findings:
        raise Refused(*findings)
    keeps = not all(state.same for state in comparison.states)
    swap = Swap(
        pipeline,
        len(decided),
        backfill.number,
        to,
        backfill.batches,
        keeps,
        digest(comparison),
        who=who,
        why=why,
        at=at,
    )
    # What cannot be carried out must not be decided: everybody would have to finish it first.
    _check_possible(store, [*decided, swap])
    stored = decode(
        Swap,
        store.put_new(_decision(pipeline, swap.number), encode(swap)),
        f"{store.root}/{_decision(pipeline, swap.number)}",
    )
    if stored != swap:
        what = f"swap {swap.number} is decided otherwise: {stored.turn} of backfill {stored.backfill}"
        raise Conflict(Finding(what, f"pipeline {pipeline!r}", f"run `coset backfills {pipeline}`"))
    return _carried_out(store, [*decided, swap])


def _misfits(
    store: Store, backfill: Backfill, comparison: Comparison, to: Turn, standing: Mapping[int, list[str]]
) -> Iterator[Finding]:
    then = f"run `coset backfills {backfill.pipeline}` to see what counts"
    for batch in backfill.batches:
        names = standing.get(batch, [backfill.pipeline])
        where = f"batch {batch} of {backfill.pipeline}"
        if to is Turn.UNDO and names[-1] != backfill.name:
            yield Finding(f"its rows are those of {names[-1]}, not of {backfill.name}", where, then)
        if to is Turn.SWAP:
            if backfill.name in names:
                yield Finding(f"{backfill.name} is in place already", where, then)
                continue
            plan = Ledger(store, names[-1]).plan(batch)
            if plan is None or digest(plan) != comparison.compared_with[batch]:
                what = f"it was compared with the plan {comparison.compared_with[batch]}, which does not count any more"
                yield Finding(what, where, "run `coset backfill` again: it compares with what counts now")
    changed = [state.step for state in comparison.states if not state.same]
    if changed and (newest := _newest(store, backfill.pipeline)) != backfill.batches[-1]:
        yield Finding(
            f"what {', '.join(changed)} keep after it is not what later batches, up to {newest}, went on from",
            f"batch {backfill.batches[-1]} of {backfill.pipeline}",
            f"run them too: `coset backfill {backfill.pipeline} --from {backfill.batches[0]} --cascade`",
        )


def _newest(store: Store, pipeline: str) -> int | None:
    """The batch that was planned last, and not given up: others go on from what was kept before it."""
    standing = Ledger(store, pipeline).standing()
    if standing.open and standing.plan:
        return standing.plan.batch
    return standing.published.batch if standing.published else None


def _check_possible(store: Store, decided: list[Swap]) -> None:
    """Raise Refused if the newest decision cannot be carried out: files are gone, or are in no table any more."""
    exchanges, upserts = _exchanges(store, decided), _upserts(store, decided[-1])
    come = [file for change in exchanges.values() for files in change.come.values() for file in files]
    if decided[-1].turn is Turn.SWAP:
        come += [file for _, files in upserts.values() for file in files]
    else:
        for table, version in _versions_before(store, decided, upserts).items():
            check_version(store.root, table, version)
    check_files(Ledger(store, decided[-1].pipeline), come, "restore the file from a backup")
    for change in exchanges.values():
        check_held(store.root, change)


def _carried_out(store: Store, decided: list[Swap]) -> Swapped:
    """Commit the newest decision to every table, and put its receipt."""
    swap, root = decided[-1], store.root
    versions = {table: exchange(root, swap, change) for table, change in sorted(_exchanges(store, decided).items())}
    upserts = _upserts(store, swap)
    before = _versions_before(store, decided, upserts) if swap.turn is Turn.UNDO else {}
    for table, (write, files) in sorted(upserts.items()):
        if swap.turn is Turn.SWAP:
            versions[table] = replace_rows(root, swap, write, files)
        else:
            versions[table] = restore_rows(root, swap, write, before[table])
    receipt = Swapped(swap.pipeline, swap.number, digest(swap), versions)
    where = _receipt(swap.pipeline, swap.number)
    return decode(Swapped, store.put_new(where, encode(receipt)), f"{root}/{where}")


def _exchanges(store: Store, decided: list[Swap]) -> dict[str, Exchange]:
    """What the newest decision exchanges in each table but the upserted ones."""
    swap, pipeline = decided[-1], decided[-1].pipeline
    before, now = _standing(pipeline, iter(decided[:-1])), _standing(pipeline, iter(decided))
    changed: dict[str, Exchange] = {}
    for batch in swap.batches:
        old = Ledger(store, before.get(batch, [pipeline])[-1])
        new = Ledger(store, now[batch][-1])
        were, are = _rows(old, batch), _rows(new, batch)
        for table in sorted(were.keys() | are.keys()):
            write = (are.get(table) or were[table])[0]
            change = changed.setdefault(table, Exchange(write, {}, {}))
            change.gone[batch] = old.pipeline, were[table][1] if table in were else ()
            change.come[batch] = are[table][1] if table in are else ()
    return changed


def _upserts(store: Store, swap: Swap) -> dict[str, tuple[PlannedWrite, list[Artefact]]]:
    """The upserted tables that come from what a backfill keeps, if that changes, with all their rows after it."""
    if not swap.keeps:
        return {}
    held: dict[str, tuple[PlannedWrite, dict[int, list[Artefact]]]] = {}
    ledger = Ledger(store, name_of(swap.pipeline, swap.backfill))
    for batch in swap.batches:
        for write, files in _all_rows(ledger, batch):
            if write.declared.mode is Mode.UPSERT:
                _, rows = held.get(write.declared.table, (write, {}))
                held[write.declared.table] = write, _after(rows, write, files)
    return {table: (write, [file for some in rows.values() for file in some]) for table, (write, rows) in held.items()}


def _versions_before(store: Store, decided: list[Swap], tables: Iterable[str]) -> dict[str, int]:
    """The versions that tables had before the swap that is taken back."""
    undone = decided[-1].backfill
    last = next(swap for swap in reversed(decided[:-1]) if (swap.backfill, swap.turn) == (undone, Turn.SWAP))
    versions = _receipt_of(store, last).tables
    return {table: versions[table] - 1 for table in tables}


def _after(
    rows: dict[int, list[Artefact]], write: PlannedWrite, files: tuple[Artefact, ...]
) -> dict[int, list[Artefact]]:
    """The files of each partition of an upserted table after a batch."""
    touched: dict[int, list[Artefact]] = {}
    for file in files:
        for part in file.parts:
            touched.setdefault(part.partition, []).append(file)
    return touched if write.anew else rows | touched


def _receipt_of(store: Store, swap: Swap) -> Swapped:
    """The receipt of a swap that is done."""
    where = _receipt(swap.pipeline, swap.number)
    data = store.get(where)
    assert data is not None
    return decode(Swapped, data, f"{store.root}/{where}")


def _all_rows(ledger: Ledger, batch: int) -> Iterator[tuple[PlannedWrite, tuple[Artefact, ...]]]:
    plan, verdict = ledger.plan(batch), ledger.verdict(batch)
    assert plan is not None
    assert verdict is not None
    for write in plan.writes():
        yield write, verdict.rows_of(write.declared.table)


def _rows(ledger: Ledger, batch: int) -> dict[str, tuple[PlannedWrite, tuple[Artefact, ...]]]:
    """The files with a batch's rows of each table, but for those whose rows come from state."""
    return {
        write.declared.table: (write, files)
        for write, files in _all_rows(ledger, batch)
        if write.declared.mode is not Mode.UPSERT
    }


def _decision(pipeline: str, number: int) -> str:
    return f"{pipeline}/swaps/{number}.json"


def _receipt(pipeline: str, number: int) -> str:
    return f"{pipeline}/swapped/{number}.json"
