"""Widths: how many cosets a stage has, L, from its scheme and from what it reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import lcm

from partitioning.errors import Finding, Refused
from partitioning.model.schemes import COGROUP, MAX, Scheme
from partitioning.planning.exchanges.placements import gathers
from partitioning.planning.stages.waves import Part

# An exchange that several stages read has as many partitions as serve them all, if that is no more than so many
# times what the largest needs.
MOST_OF_COMMON = 4


@dataclass(frozen=True, slots=True)
class Width:
    """L of a stage; `rule` says how it came about. In a `gathered` one some step needs all records in one task."""

    scheme: Scheme
    cosets: int
    rule: str
    gathered: bool = False


def width(part: Part, scheme: Scheme, counts: Sequence[int | None], feeding: Sequence[int], *, named: bool) -> Width:
    """L of a part whose inputs have these partition counts.

    A count of None is that of an exchange, which gets as many partitions as its reader wants. A stage that reads
    only such has as many cosets as the largest of the stages that feed it, whose cosets are `feeding` (Kafka
    Streams' rule). A stage in which some step needs all records together has one, whatever is chosen for all;
    `named` says that the scheme was chosen for it.

    Raises Refused if such a stage was given more than one task.
    """
    together = [step.name for step in part.steps if gathers(step)]
    if together:
        return _gathered(part, together, scheme, named=named)
    base = max(feeding, default=1)
    if scheme == MAX:
        cosets = scheme.tasks([base if count is None else count for count in counts])
        return Width(scheme, cosets, f"one task per stream partition, {cosets} in all")
    fixed = [count for count in counts if count is not None]
    cosets = scheme.tasks(fixed or [base])
    if scheme.kind == "tasks":
        return Width(scheme, cosets, f"{cosets} as asked")
    source = f"gcd({', '.join(map(str, fixed))})" if fixed else "the most cosets of a stage that feeds it"
    rule = f"{scheme.number} × {source} = {cosets}" if scheme.kind == "elastic" else f"{source} = {cosets}"
    if cosets == 1 and max(fixed or [base]) > 1:
        rule += ": ONE task is all there is, choose elastic(F) or tasks(L) for more"
    return Width(scheme, cosets, rule)


def _gathered(part: Part, steps: Sequence[str], scheme: Scheme, *, named: bool) -> Width:
    who = f"{' and '.join(steps)} {'needs' if len(steps) == 1 else 'need'}"
    if named and scheme not in (COGROUP, Scheme("tasks", 1)):
        what = f"{who} all records in one task, but the scheme is {scheme}"
        raise Refused(Finding(what, f"stage {part.name}", "leave the scheme out"))
    return Width(Scheme("tasks", 1), 1, f"one task, as {who} all records together", gathered=True)


def exchange_count(wanted: Sequence[int]) -> int:
    """How many partitions an exchange has whose readers have so many cosets.

    >>> exchange_count([6]), exchange_count([4, 6]), exchange_count([7, 9])
    (6, 12, 9)
    """
    common = lcm(*wanted)
    return common if common <= MOST_OF_COMMON * max(wanted) else max(wanted)
