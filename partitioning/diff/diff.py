"""Diff: two plans side by side: what changed, which keys change hands, and whether results stay the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from partitioning.diff.declarations import Change, changes
from partitioning.diff.moved_keys import Handover, Part, handovers, moved
from partitioning.diff.tables import Results, results
from partitioning.model.plan import STATE, Plan, TaskMove
from partitioning.sections import Section, many, percent, section, size


@dataclass(frozen=True, slots=True)
class Diff:
    """What differs between two plans. Plans that are not `identical` may differ in offsets only."""

    before: int
    now: int
    identical: bool
    changes: tuple[Change, ...]
    handovers: tuple[Handover, ...]
    moves: tuple[TaskMove, ...]
    results: Results

    @property
    def sentences(self) -> tuple[str, ...]:
        """What it comes to."""
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
        results(before, now),
    )


def diff_sections(found: Diff) -> tuple[Section, ...]:
    """The diff as tables: keys and state that change hands and tasks that move, if any do; and all changes."""
    return (*_handovers(found), *moves_section(found.moves), _changes(found))


def moves_section(moves: tuple[TaskMove, ...]) -> Iterator[Section]:
    """The tasks that moved to another task group, if any did."""
    if moves:
        rows = [(str(move.task), f"group {move.before}", f"group {move.now}", move.why) for move in moves]
        notes = [f"{many(len(moves), 'task')} moved to another task group."]
        yield section("Task moves", ("task", "before", "now", "why"), rows, notes)


def _handovers(found: Diff) -> Iterator[Section]:
    if found.handovers:
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
        rows = [_handover(each) for each in found.handovers]
        yield section("Keys that change hands", columns, rows, _meaning(found), optional=optional)


def _meaning(found: Diff) -> Iterator[str]:
    if any(each.kind == STATE and each.keys for each in found.handovers):
        yield "State is read by the new owner of its keys where the old one left it; nothing is rewritten."


def _handover(each: Handover) -> tuple[str, ...]:
    return (
        each.stage,
        f"state of {each.name}" if each.kind == STATE else each.name,
        percent(each.keys),
        percent(each.groups),
        _of(each.tasks, "{:,}".format),
        _of(each.partitions, "{:,}".format),
        _of(each.records, "{:,}".format),
        _of(each.bytes, size),
        each.why,
    )


def _of(part: Part | None, write: Callable[[int], str]) -> str:
    return f"{'' if part.exact else '~'}{write(part.some)} of {write(part.all)}" if part else ""


def _changes(found: Diff) -> Section:
    rows = [(each.what, each.before, each.now) for each in found.changes]
    return section("Changes", ("what", "before", "now"), rows, found.sentences)
