"""Swaps: decide which rows of a batch readers see, those of its first run or of a backfill, and carry that out.

The swaps of a pipeline are numbered. A document, put once, decides a swap; then each table gets one commit; then a
receipt is put. Every process finishes a decided swap before it does anything else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial

from coset.batches.backfills.blockers import newest_dependent, turn_blockers
from coset.batches.backfills.effects import Effect, Layers, check_possible, effect_of
from coset.batches.tables.acceptance import accepted_in
from coset.batches.tables.exchanged import exchange, pass_over, replace_rows, restore_rows, version_with
from partitioning import commands
from partitioning.commands import Backfills, Undo
from partitioning.documents.document import decode, digest, encode
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store, numbered
from partitioning.errors import Conflict, Finding, Refused
from partitioning.kinds import Kind
from partitioning.model.backfill import Backfill, Comparison, Swap, SwapKind, Swapped
from partitioning.model.plan import Plan
from partitioning.planning.beginnings import beginnings
from partitioning.sections import many
from partitioning.values import Value, replace


def swaps(store: Store, pipeline: str) -> Iterator[Swap]:
    """All decisions, oldest first."""
    return numbered(store, Swap, partial(_decision, pipeline))


def in_force(store: Store, pipeline: str, decided: Iterable[Swap] | None = None) -> Layers:
    """The layers of each batch, as readers see them now, or after the decisions given."""
    return Layers(store, pipeline, _given(decided, store, pipeline))


def in_place(store: Store, backfill: Backfill) -> bool:
    """Whether readers see the backfill's rows of a batch."""
    layers = in_force(store, backfill.pipeline)
    return any(layers.names(batch)[-1] == backfill.name for batch in backfill.batches)


def state_ledger(store: Store, pipeline: str, batch: int, decided: Iterable[Swap] | None = None) -> Ledger:
    """The ledger with the state after a batch, for later batches; by the decisions of now, or by those given.

    A backfill with the same state does not count here: the upserted tables still have the files of the earlier run.
    """
    return Layers(store, pipeline, (swap for swap in _given(decided, store, pipeline) if swap.keeps)).top(batch)


def newest_shown(store: Store, pipeline: str, batch: int, decided: Iterable[Swap] | None = None) -> Plan | None:
    """The plan of the newest batch whose rows readers see, with all tables that somebody took as they are by their
    names, also in a backfill of earlier batches."""
    layers = in_force(store, pipeline, decided)
    shown, lasts = layers.top(batch).plan(batch), {name: each for each, name in layers.exchanged().items()}
    plans = (Ledger(store, name).plan(each) for name, each in lasts.items())
    taken = {table: since for plan in (*plans, shown) if plan for table, since in plan.accepted.items()}
    return replace(shown, accepted=taken) if shown else None


def finish(store: Store, pipeline: str) -> Swapped | None:
    """Finish the newest swap if it is half done, and return its receipt. None if there has been no swap."""
    decided = whole(store, pipeline)
    return _receipt_of(store, decided[-1]) if decided else None


class Half(Value, frozen=True):
    """A decided swap that is carried out only in the tables that are `done`."""

    swap: Swap
    done: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def plain(self) -> dict[str, object]:
        """For programs."""
        of = {"backfill": self.swap.backfill, "turn": self.swap.turn}
        return of | {"done": self.done, "missing": self.missing}

    def __str__(self) -> str:
        state = "half in place" if self.swap.turn is SwapKind.SWAP else "half taken back"
        done = f" ({', '.join(self.done)})" if self.done else ""
        tables = many(len(self.done) + len(self.missing), "table")
        return f"{state}: {len(self.done)} of {tables}{done}, not yet {', '.join(self.missing)}"


def half(store: Store, pipeline: str) -> Half | None:
    """The newest swap if it is half done. Writes nothing."""
    decided = list(swaps(store, pipeline))
    if not decided or _receipt_of(store, decided[-1]) is not None:
        return None
    effect = _effect(store, decided)
    done = _versions(store, decided[-1], effect)
    missing = tuple(table for table in sorted(effect.exchanges | effect.replacements) if table not in done)
    return Half(decided[-1], tuple(done), missing) if missing else None


def taken_back(store: Store, backfill: Backfill) -> Swap | None:
    """The swap that took a backfill back, if none has put it in place again since."""
    mine = [swap for swap in swaps(store, backfill.pipeline) if swap.backfill == backfill.number]
    return mine[-1] if mine and mine[-1].turn is SwapKind.UNDO else None


def blockers(store: Store, backfill: Backfill, comparison: Comparison) -> tuple[Finding, ...]:
    """The findings that keep a backfill from being put in place, whoever approves it. Empty if it is in place."""
    if in_place(store, backfill):
        return ()
    try:
        _checked(store, list(swaps(store, backfill.pipeline)), backfill, comparison, SwapKind.SWAP)
    except Refused as refusal:
        return refusal.findings
    return ()


def turn(
    store: Store, backfill: Backfill, comparison: Comparison, to: SwapKind, *, who: str, why: str, at: str
) -> Swapped:
    """Let readers see the rows of a backfill, or the rows before it again.

    This may be repeated. Raises Refused with all findings if the published rows are not those that were compared, or if
    later batches depend on other state, and Conflict if another process decided at the same time.
    """
    try:
        decided = whole(store, backfill.pipeline)
    except Refused:
        # A swap that cannot be finished can be taken back in the tables that have it.
        decided = list(swaps(store, backfill.pipeline))
        if not _turns_back(decided[-1], backfill.number, to):
            raise
    mine = [swap for swap in decided if swap.backfill == backfill.number]
    if mine and (mine[-1].turn, mine[-1].approved) == (to, digest(comparison)):
        # Another process may have decided it just now without its receipt.
        return _finished(store, decided[: mine[-1].number + 1])
    try:
        # A swap that cannot be carried out must not be decided, because every process would have to finish it first.
        swap, effect = _checked(store, decided, backfill, comparison, to, who, why, at)
    except Refused:
        if list(swaps(store, backfill.pipeline)) == decided:
            raise
        # What tables lack another process has just taken out of them.
        return turn(store, backfill, comparison, to, who=who, why=why, at=at)
    _decide(store, swap)
    return _carried_out(store, swap, effect)


def accepted_since(store: Store, backfill: Backfill) -> tuple[str, ...]:
    """The upserted tables in which changes of others were accepted since the backfill was put in place. What takes it
    back takes these back, too."""
    mine = [swap for swap in swaps(store, backfill.pipeline) if swap.backfill == backfill.number]
    receipt = _receipt_of(store, mine[-1]) if mine and mine[-1].turn is SwapKind.SWAP and mine[-1].keeps else None
    plan = Ledger(store, backfill.name).plan(backfill.batches[-1])
    upserted = {write.declared.table for write in plan.writes() if write.declared.mode.by_key} if plan else ()
    versions = {table: version for table, version in receipt.tables.items() if table in upserted} if receipt else {}
    return tuple(table for table, version in versions.items() if accepted_in(store, table) > version)


def cancel(store: Store, backfill: Backfill, *, who: str, why: str, at: str) -> Swap:
    """Decide that readers never see the rows of a backfill. Returns the decision that counts.

    Raises Refused if readers have seen them, because a batch may depend on them, and Conflict as `turn`.
    """
    decided = whole(store, backfill.pipeline)
    mine = [swap for swap in decided if swap.backfill == backfill.number]
    if mine and mine[-1].turn is SwapKind.CANCEL:
        return mine[-1]
    if mine:
        then = ("take it back instead: ", Undo(backfill.pipeline, backfill.number))
        what = f"it was put in place by {mine[0].who} at {mine[0].at}"
        raise Refused.of(Kind.BACKFILL_TURN, what, str(backfill), then, who=mine[0].who, at=mine[0].at)
    pipeline, number = backfill.pipeline, len(decided)
    swap = Swap(
        pipeline, number, backfill.number, SwapKind.CANCEL, backfill.batches, False, "", who=who, why=why, at=at
    )
    _decide(store, swap)
    _carried_out(store, swap, Effect({}, {}))
    return swap


def cancelled(store: Store, pipeline: str) -> dict[int, Swap]:
    """The decisions to cancel backfills, by the number of the backfill."""
    return {swap.backfill: swap for swap in swaps(store, pipeline) if swap.turn is SwapKind.CANCEL}


def cancelled_by(swap: Swap, backfill: Backfill) -> Finding:
    """The finding on a cancelled backfill."""
    what = f"{swap.who} cancelled it at {swap.at}: {swap.why or 'no reason was given'}"
    where = f"backfill {swap.backfill} of {swap.pipeline}"
    repaired = backfill.repaired is True
    another = commands.BackfillAsking(swap.pipeline, swap.batches[0], swap.batches[-1], repaired=repaired)
    return Finding.of(Kind.BACKFILL_HELD, what, where, ("begin another: ", another), who=swap.who, at=swap.at)


def _checked(
    store: Store,
    decided: Sequence[Swap],
    backfill: Backfill,
    comparison: Comparison,
    to: SwapKind,
    who: str = "",
    why: str = "",
    at: str = "",
) -> tuple[Swap, Effect]:
    """The next decision and its effect. Raises Refused with all findings if it cannot be carried out."""
    findings = [
        cancelled_by(swap, backfill)
        for swap in decided
        if (swap.backfill, swap.turn) == (backfill.number, SwapKind.CANCEL)
    ]
    changed = comparison.kept_otherwise or _meant_otherwise(store, backfill, to, decided)
    half_done = bool(decided) and _is_half_done(store, decided[-1], backfill.number, to)
    findings += turn_blockers(store, backfill, comparison, to, decided, changed, half_done=half_done)
    if findings:
        raise Refused(*findings)
    batches, keeps = backfill.batches, bool(changed or comparison.taken_back)
    swap = Swap(
        backfill.pipeline,
        len(decided),
        backfill.number,
        to,
        batches,
        keeps,
        digest(comparison),
        who=who,
        why=why,
        at=at,
    )
    effect = _effect(store, [*decided, swap])
    try:
        check_possible(store, swap.pipeline, effect)
    except Refused as refusal:
        raise refusal.saying(lambda finding: _made_again(swap, finding)) from None
    return swap, effect


def _made_again(swap: Swap, finding: Finding) -> Finding:
    """A finding on a file that is gone or changed, with how its rows are made again."""
    if finding.kind not in {Kind.FILE_GONE, Kind.TASK_FILES}:
        return finding
    before = " with the pipeline as it was before" if swap.turn is SwapKind.UNDO else ""
    again = commands.BackfillAsking(swap.pipeline, swap.batches[0], swap.batches[-1])
    return replace(finding, next=(*finding.steps, f"; or make its rows again{before}: ", again))


def _decide(store: Store, swap: Swap) -> None:
    """Put a decision. Raises Conflict if another decision has its number."""
    key = _decision(swap.pipeline, swap.number)
    stored = decode(Swap, store.put_new(key, encode(swap)), f"{store.root}/{key}")
    if stored != swap:
        what = f"swap {swap.number} is another decision: {stored.turn} of backfill {stored.backfill}"
        where, about = f"pipeline {swap.pipeline!r}", {"turn": stored.turn, "backfill": stored.backfill}
        raise Conflict.of(Kind.BACKFILL_TURN, what, where, Backfills(swap.pipeline), number=swap.number, **about)


def _meant_otherwise(store: Store, backfill: Backfill, to: SwapKind, decided: Sequence[Swap]) -> tuple[str, ...]:
    """The steps that keep the same rows and mean something else in the backfill: only there the next batch continues.

    Later batches that continued from these rows already may do so, so a swap leaves the state to them.
    """
    last = backfill.batches[-1]
    if to is SwapKind.UNDO:
        put = [swap for swap in decided if (swap.backfill, swap.turn) == (backfill.number, SwapKind.SWAP)]
        if not put or not put[-1].keeps:
            return ()
        decided = decided[: put[-1].number]
    elif newest_dependent(store, backfill.pipeline) != last:
        return ()
    before, now = (
        state_ledger(store, backfill.pipeline, last, decided).plan(last),
        Ledger(store, backfill.name).plan(last),
    )
    if before is None or now is None:
        return ()
    if now.planned_for.version != before.planned_for.version:
        return tuple(step.name for step in now.steps if step.state)
    return tuple(each.step for each in beginnings(now.graph, before.graph, {}) if each.changes)


def _effect(store: Store, decided: Sequence[Swap]) -> Effect:
    """The effect of the last of these decisions. If it takes back a half-done swap, only on the tables that have that
    swap."""
    swap, undone = decided[-1], None
    before = decided[-2] if len(decided) > 1 else None
    half_done = before is not None and _is_half_done(store, before, swap.backfill, swap.turn)
    if swap.turn is SwapKind.UNDO:
        undone, tables = dict[str, int](), effect_of(store, decided, {})
        for earlier in decided:
            if (earlier.backfill, earlier.turn) == (swap.backfill, SwapKind.SWAP):
                # A swap without a receipt was carried out in some tables only.
                receipt = _receipt_of(store, earlier)
                undone |= receipt.tables if receipt else _versions(store, earlier, tables)
    effect = effect_of(store, decided, undone)
    if before is not None and half_done:
        effect = effect.within(_versions(store, before, effect))
    assert undone is None or all(given.version is not None for given in effect.replacements.values())
    return effect


def _versions(store: Store, swap: Swap, effect: Effect) -> dict[str, int]:
    """The versions of an effect's tables in which a swap was carried out."""
    tables = sorted(effect.exchanges | effect.replacements)
    there = {table: version_with(store, swap, table) for table in tables}
    return {table: version for table, version in there.items() if version is not None}


def _turns_back(half_done: Swap, backfill: int, to: SwapKind) -> bool:
    """Whether a turn of a backfill takes a half-done one back."""
    return half_done.backfill == backfill and {half_done.turn, to} == {SwapKind.SWAP, SwapKind.UNDO}


def _is_half_done(store: Store, swap: Swap, backfill: int, to: SwapKind) -> bool:
    """Whether a swap is half done, and a turn of a backfill takes it back."""
    return _turns_back(swap, backfill, to) and _receipt_of(store, swap) is None


def whole(store: Store, pipeline: str) -> list[Swap]:
    """All decisions. The last one is carried out first; those before it were, when the next was decided."""
    decided = list(swaps(store, pipeline))
    if decided:
        _finished(store, decided)
    return decided


def _given(decided: Iterable[Swap] | None, store: Store, pipeline: str) -> Iterable[Swap]:
    return swaps(store, pipeline) if decided is None else decided


def _finished(store: Store, decided: Sequence[Swap]) -> Swapped:
    """The receipt of the last of these decisions, which is carried out if it has none. Raises Refused if that is not
    possible, and names how to take the swap back."""
    if receipt := _receipt_of(store, decided[-1]):
        return receipt
    swap, effect = decided[-1], _effect(store, decided)
    tables = effect.exchanges | effect.replacements
    done = _versions(store, swap, effect)
    try:
        check_possible(store, swap.pipeline, effect.within(tables.keys() - done.keys()))
        return _carried_out(store, swap, effect)
    except Refused as refusal:
        if _versions(store, swap, effect) != done:
            # What tables lack another process has just taken out of them, by carrying out the same swap.
            return _finished(store, decided)
        raise refusal.saying(lambda finding: _blocked(swap, finding, done)) from None


def _blocked(swap: Swap, finding: Finding, done: Collection[str]) -> Finding:
    """A finding with why a swap cannot be finished, and how to take it back."""
    undo = commands.Undo(swap.pipeline, swap.backfill)
    again = commands.SwapAsking(swap.pipeline, swap.backfill, swap.approved)
    words, back = ("put in place", undo) if swap.turn is SwapKind.SWAP else ("taken back", again)
    where = f" except in {', '.join(done)}" if done else ""
    what = f"backfill {swap.backfill} cannot be {words}{where}: {finding.what}"
    return replace(finding, what=what, next=(*finding.steps, "; or take that back: ", back))


def _carried_out(store: Store, swap: Swap, effect: Effect) -> Swapped:
    """Commit a decision to each table, and put its receipt."""
    root = store.root
    versions = {table: exchange(store, swap, change) for table, change in sorted(effect.exchanges.items())}
    for table, given in sorted(effect.replacements.items()):
        if given.version is None:
            versions[table] = replace_rows(store, swap, given.write, given.files, given.buckets)
        else:
            versions[table] = restore_rows(store, swap, given.write, given.version)
    for write in effect.passed:
        pass_over(store, swap, write)
    receipt, key = Swapped(swap.pipeline, swap.number, digest(swap), versions), _receipt(swap.pipeline, swap.number)
    return decode(Swapped, store.put_new(key, encode(receipt)), f"{root}/{key}")


def _receipt_of(store: Store, swap: Swap) -> Swapped | None:
    """The receipt of a swap. None if it is not finished."""
    key = _receipt(swap.pipeline, swap.number)
    data = store.get(key)
    return None if data is None else decode(Swapped, data, f"{store.root}/{key}")


def _decision(pipeline: str, number: int) -> str:
    return f"{pipeline}/swaps/{number}.json"


def _receipt(pipeline: str, number: int) -> str:
    return f"{pipeline}/swapped/{number}.json"
