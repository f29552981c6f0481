"""Diff: two plans side by side: what changed, which keys change hands, and whether results stay the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from partitioning.diff.declarations import DeclarationChange, changes
from partitioning.diff.kept_states import StateChange, state_changes
from partitioning.diff.moved_keys import Handover, Portion, handovers, moved
from partitioning.diff.table_changes import Results, results
from partitioning.explain.reason_texts import move_reason
from partitioning.model.plan import Plan, TaskMove
from partitioning.planning.added_tables import added_tables
from partitioning.planning.origins import graph_of
from partitioning.sections import Section, many, percent, section, size
from partitioning.values import Value, replace


class Diff(Value, frozen=True):
    """What differs between two plans. Plans that are not `identical` may differ in offsets only."""

    before: int
    now: int
    identical: bool
    changes: tuple[DeclarationChange, ...]
    handovers: tuple[Handover, ...]
    moves: tuple[TaskMove, ...]
    results: Results
    states: tuple[StateChange, ...] = ()

    @property
    def sentences(self) -> tuple[str, ...]:
        """The diff in a few sentences."""
        if self.identical:
            return ("No change: both are the same plan.",)
        if not (self.changes or self.handovers or self.moves):
            return ("Nothing changed but the offsets.",)
        return (f"Compared with batch {self.before}.", str(self.results))


def diff(before: Plan, now: Plan) -> Diff:
    """Compare a plan with a later one, or with one that is only planned."""
    return Diff(
        before.batch,
        now.batch,
        before == now,
        changes(before, now),
        handovers(before, now),
        moved(before, now),
        replace(results(before, now), lack=tuple(_lack(before, now))),
        tuple(state_changes(before, now)),
    )


def _lack(before: Plan, now: Plan) -> Iterator[str]:
    """The new tables that have nothing of what the batch before took, or an earlier one."""
    if now.batch > before.batch:
        yield from (each.write.table for each in added_tables(graph_of(now), before, before.ends, now.rows_held))


def diff_sections(difference: Diff) -> tuple[Section, ...]:
    """The diff as tables: steps that do not simply continue; keys, state and tasks that move; and all changes. Empty
    tables are left out."""
    return (
        *states_section(difference.states),
        *_handovers(difference),
        *moves_section(difference.moves),
        _changes(difference),
    )


def states_section(states: tuple[StateChange, ...]) -> Iterator[Section]:
    """The steps that begin anew, or continue although something before them changed, if there are any."""
    if states:
        rows = [(each.step, each.outcome, "; ".join(each.why), ", ".join(each.tables), each.costs) for each in states]
        columns = ("step", "it", "why", "tables that come from it", "what that means")
        optional = ("tables that come from it", "what that means")
        yield section("State that does not simply go on", columns, rows, optional=optional)


def moves_section(moves: tuple[TaskMove, ...]) -> Iterator[Section]:
    """The tasks that moved to another task group, if any did."""
    if moves:
        rows = [(str(move.task), f"group {move.before}", f"group {move.now}", move_reason(move.why)) for move in moves]
        notes = [f"{many(len(moves), 'task')} moved to another task group."]
        yield section("Task moves", ("task", "before", "now", "why"), rows, notes)


def _handovers(difference: Diff) -> Iterator[Section]:
    if difference.handovers:
        columns = (
            "stage",
            "what",
            "keys in another task",
            "in another group",
            "tasks that take over",
            "stream partitions",
            "records",
            "bytes",
            "why",
        )
        optional = ("stream partitions", "records", "bytes")
        rows = [_handover(handover) for handover in difference.handovers]
        yield section("Keys that change hands", columns, rows, _meaning(difference), optional=optional)


def _meaning(difference: Diff) -> Iterator[str]:
    if any(handover.state and handover.keys for handover in difference.handovers):
        yield "State is read by the new owner of its keys where the old one left it; nothing is rewritten."


def _handover(handover: Handover) -> tuple[str, ...]:
    return (
        handover.stage,
        f"state of {handover.name}" if handover.state else handover.name,
        percent(handover.keys),
        percent(handover.groups),
        _of(handover.tasks, "{:,}".format),
        _of(handover.partitions, "{:,}".format),
        _of(handover.records, "{:,}".format),
        _of(handover.bytes, size),
        handover.why,
    )


def _of(part: Portion | None, write: Callable[[int], str]) -> str:
    return f"{'' if part.exact else '~'}{write(part.some)} of {write(part.all)}" if part else ""


def _changes(difference: Diff) -> Section:
    rows = [(change.what, change.before, change.now) for change in difference.changes]
    return section("Changes", ("what", "before", "now"), rows, difference.sentences)
