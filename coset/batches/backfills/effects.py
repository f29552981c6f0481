"""Effects: works out from the documents what a swap does to the result tables, before anything is done.

A batch's rows have layers: those of its first run below those of its backfills. Readers see the top layer. A swap adds
a layer, and an undo removes it. Other batches before and behind it may then have rows of another query.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain

from coset.batches.publication import check_files
from coset.batches.tables.exchanged import Exchange, check_held, check_kept, check_version
from coset.batches.tables.logs import Logs, check_exchangeable
from coset.batches.tables.others import check_untouched
from coset.batches.tables.owners import Owner
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.model.backfill import Swap, SwapKind, name_of
from partitioning.model.plan import Plan, PlannedWrite
from partitioning.model.receipt import Artefact
from partitioning.model.table_parts import Buckets, buckets_of
from partitioning.planning.changed_queries import ChangedQuery, Now, changed_queries
from partitioning.values import replace


class Layers:
    """The layers of a pipeline's batches after these swaps."""

    def __init__(self, store: Store, pipeline: str, decided: Iterable[Swap]) -> None:
        self._store = store
        self._pipeline = pipeline
        self._names: dict[int, list[str]] = {}
        for swap in decided:
            self._turn(swap)

    def _turn(self, swap: Swap) -> None:
        for batch in swap.batches:
            names = self._names.setdefault(batch, [self._pipeline])
            match swap.turn:
                case SwapKind.SWAP:
                    names.append(name_of(self._pipeline, swap.backfill))
                case SwapKind.UNDO:
                    names.pop()
                case SwapKind.CANCEL:
                    pass

    def names(self, batch: int) -> Sequence[str]:
        """The names of a batch's layers, the lowest first."""
        return self._names.get(batch, [self._pipeline])

    def top(self, batch: int) -> Ledger:
        """The ledger of a batch's top layer, whose rows count."""
        return Ledger(self._store, self.names(batch)[-1])

    def exchanged(self) -> dict[int, str]:
        """The batches whose rows are a backfill's, with the name of that backfill."""
        tops = {batch: names[-1] for batch, names in sorted(self._names.items())}
        return {batch: name for batch, name in tops.items() if name != self._pipeline}


@dataclass(frozen=True, slots=True)
class Replacement:
    """The new rows of an upserted table: these files, in `buckets` if so, or those of an earlier `version`."""

    write: PlannedWrite
    files: tuple[Artefact, ...]
    version: int | None = None
    buckets: Buckets | None = None


@dataclass(frozen=True, slots=True)
class Effect:
    """What a swap does to each table: it exchanges files of batches, or replaces all files of an upserted table.

    Tables that are `passed` over need no change: the swap that is taken back was never carried out in them.
    """

    exchanges: dict[str, Exchange]
    replacements: dict[str, Replacement]
    passed: tuple[PlannedWrite, ...] = ()

    def within(self, tables: Collection[str]) -> Effect:
        """The effect on these tables. The others are passed over."""
        writes = [change.write for change in self.exchanges.values()]
        writes += [change.write for change in self.replacements.values()]
        return Effect(
            {table: change for table, change in self.exchanges.items() if table in tables},
            {table: change for table, change in self.replacements.items() if table in tables},
            tuple(write for write in writes if write.declared.table not in tables),
        )


def effect_of(store: Store, decided: Sequence[Swap], undone: Mapping[str, int] | None) -> Effect:
    """The effect of the last of these swaps. If it takes one back, `undone` has the table versions with that one."""
    swap = decided[-1]
    if swap.turn is SwapKind.CANCEL:
        return Effect({}, {})
    replacements = dict(replaced(store, swap.pipeline, swap.backfill, swap.batches)) if swap.keeps else {}
    if undone is not None:
        replacements = {
            table: Replacement(change.write, (), undone[table] - 1 if table in undone else None)
            for table, change in replacements.items()
        }
    return Effect(_exchanges(store, decided), replacements)


def check_possible(store: Store, pipeline: str, effect: Effect) -> None:
    """Raise Refused with all findings of a kind if a table belongs to another pipeline, if it would lose changes of
    others that nobody has accepted, or if files are gone from the store or from their table."""
    owner = Owner.here(store, pipeline)
    for table in (*effect.exchanges, *effect.replacements):
        check_exchangeable(store, table, owner)
    overwritten = [change.write.declared for change in effect.exchanges.values() if change.overwrites]
    overwritten += [change.write.declared for change in effect.replacements.values()]
    check_untouched(store, pipeline, overwritten, Logs())
    coming = [file for change in effect.exchanges.values() for files in change.come.values() for file in files]
    for table, replacement in effect.replacements.items():
        coming.extend(replacement.files)
        if replacement.version is not None:
            check_version(store, table, replacement.version)
    check_kept(store, coming)
    check_files(Ledger(store, pipeline), coming, "restore the file from a backup")
    for change in effect.exchanges.values():
        check_held(store, change)


def _exchanges(store: Store, decided: Sequence[Swap]) -> dict[str, Exchange]:
    """The exchanges in all tables but upserted ones."""
    swap = decided[-1]
    before, now = (Layers(store, swap.pipeline, some) for some in (decided[:-1], decided))
    changed, had = dict[str, Exchange](), dict[str, set[str]]()
    for batch in swap.batches:
        old, new = before.top(batch), now.top(batch)
        were, are = _rows(old, batch), _rows(new, batch)
        for table in sorted(were.keys() | are.keys()):
            write, known = (are.get(table) or were[table])[0], changed.get(table)
            # The last batch knows all columns.
            change = changed[table] = Exchange(write, known.gone if known else {}, known.come if known else {})
            change.gone[batch] = old.pipeline, were[table][1] if table in were else ()
            change.come[batch] = are[table][1] if table in are else ()
            had.setdefault(table, set()).update(*(_names(some[table][0]) for some in (were, are) if table in some))
    if swap.turn is SwapKind.SWAP or all(had[table] <= _names(change.write) for table, change in changed.items()):
        return changed
    # Batches have all columns of those before them, but for those of backfills.
    newest = Ledger(store, swap.pipeline).standing().published
    assert newest is not None
    shown = [now.top(batch).plan(batch) for batch in {newest.batch, *now.exchanged()}]
    stay = [
        *(write for plan in shown if plan for write in plan.writes()),
        *(change.write for change in changed.values()),
    ]
    for table, change in changed.items():
        columns = had[table].difference(*(_names(write) for write in stay if write.declared.table == table))
        changed[table] = Exchange(change.write, change.gone, change.come, frozenset(columns))
    return changed


def _names(write: PlannedWrite) -> Set[str]:
    return {column.name for column in write.columns}


def replaced(store: Store, pipeline: str, backfill: int, batches: Sequence[int]) -> Iterator[tuple[str, Replacement]]:
    """The upserted tables of a backfill, with all their rows after it."""
    held: dict[str, tuple[PlannedWrite, dict[int, list[Artefact]]]] = {}
    ledger = Ledger(store, name_of(pipeline, backfill))
    for batch in batches:
        for write, files in _all_rows(ledger, batch):
            if write.declared.mode.by_key:
                _, rows = held.get(write.declared.table, (write, {}))
                held[write.declared.table] = write, _after(rows, write, files)
    last = ledger.plan(batches[-1])
    assert last is not None
    for table, (write, rows) in held.items():
        files = tuple(file for files_of_one in rows.values() for file in files_of_one)
        yield table, Replacement(write, files, buckets=buckets_of(last, write))


def rows_beside(ledger: Ledger, plan: Plan, table: str, files: Sequence[Artefact]) -> list[Artefact]:
    """The files with the other rows of an upserted table after a batch of a backfill, which wrote `files`: those of the
    batches before it in the same backfill that it leaves in place. It looks back only until it knows all partitions."""
    touched = {part.partition for file in files for part in file.parts}
    rows, left = dict[int, list[Artefact]](), _partitions(plan, table) - touched
    before = ledger.published_before(plan.batch)
    while left and before is not None and before.pipeline == plan.pipeline:
        for write, of_batch in _all_rows(ledger, before.batch):
            if write.declared.table == table:
                rows = _after({}, write, of_batch) | rows
                left = set() if write.anew else left - rows.keys()
        before = ledger.published_before(before.batch) if left else None
    return [file for partition, held in sorted(rows.items()) if partition not in touched for file in held]


def _partitions(plan: Plan, table: str) -> set[int]:
    """The partitions of an upserted table: those of what its step keeps."""
    stage, write = next(
        (stage, write) for stage in plan.stages for write in stage.writes if write.declared.table == table
    )
    state = next(step.state for step in stage.steps if step.name == write.declared.step)
    assert state
    assert state.placement is not None
    return set(range(state.placement.partitions))


def _after(
    rows: dict[int, list[Artefact]], write: PlannedWrite, files: tuple[Artefact, ...]
) -> dict[int, list[Artefact]]:
    """The files of each partition of an upserted table after a batch."""
    touched: dict[int, list[Artefact]] = {}
    for file in files:
        for part in file.parts:
            touched.setdefault(part.partition, []).append(file)
    return touched if write.anew else rows | touched


def _all_rows(ledger: Ledger, batch: int) -> Iterator[tuple[PlannedWrite, tuple[Artefact, ...]]]:
    plan, verdict = ledger.plan(batch), ledger.verdict(batch)
    assert plan is not None
    assert verdict is not None
    for write in plan.writes():
        yield write, verdict.rows_of(write.declared.table)


def _rows(ledger: Ledger, batch: int) -> dict[str, tuple[PlannedWrite, tuple[Artefact, ...]]]:
    """The files with a batch's rows of each table, without upserted tables, whose rows come from state."""
    return {
        write.declared.table: (write, files)
        for write, files in _all_rows(ledger, batch)
        if not write.declared.mode.by_key
    }


def first_behind(ledger: Ledger, layers: Layers, batch: int, tables: Set[str]) -> Iterator[tuple[Plan, Set[str]]]:
    """The plans of later batches than this one, as readers see these, that are the first to write some of the tables
    and keep their rows, and these tables. A batch that is open is one of them."""
    standing, left = ledger.standing(), tables
    newest, open_ = standing.published, standing.plan if standing.open else None
    later = (layers.top(each).plan(each) for each in _published(ledger, batch, newest.batch if newest else 0))
    for plan in chain(later, [open_]):
        if not left:
            break
        if plan is not None and plan.batch > batch:
            if found := left & keeping(plan):
                yield plan, found
            left = left - set(plan.tables)


def last_before(ledger: Ledger, layers: Layers, first: Plan) -> Iterator[tuple[Plan, Set[str]]]:
    """The plans of earlier batches than `first`, as readers see these, that were the last to write tables that it
    writes and that keep rows, and these tables."""
    left = keeping(first)
    for batch in range(first.batch - 1, -1, -1):
        plan = layers.top(batch).plan(batch) if left and ledger.published(batch) else None
        if plan is not None:
            if found := left & set(plan.tables):
                yield plan, found
            left = left - set(plan.tables)


def unlike(earlier: Plan, later: Plan, tables: Set[str]) -> Iterator[ChangedQuery]:
    """The tables whose rows differ from one batch to a later one, whichever of both has a column more."""
    for was, now in ((earlier, later), (later, earlier)):
        graph, columns = now.graph, {write.declared.table: write.columns for write in now.writes()}
        # Rows that are upserted take the place of others, and so lack a column whichever came first.
        kept = (each for each in graph.writes if each.mode.keeps and (each.mode.by_key or now is later))
        writes = tuple(write for write in kept if write.table in tables)
        there = Now(replace(graph, writes=writes), now.streams, columns)
        yield from changed_queries(there, was, was.ends, steps_ask=False)


def keeping(plan: Plan) -> Set[str]:
    """The tables of a plan that keep the rows of batches before it."""
    return {each.declared.table for each in plan.writes() if each.declared.mode.keeps}


def _published(ledger: Ledger, behind: int, newest: int) -> Iterator[int]:
    return (batch for batch in range(behind + 1, newest + 1) if ledger.published(batch))
