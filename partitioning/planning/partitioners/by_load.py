"""Loads: split the shares that took too much in the last batch, merge those that took too little.

Apex's StatsAwareStatelessPartitioner and StatelessThroughputBasedPartitioner, between batches instead of on a
live system, and with every key in exactly one share whatever is split and merged (Apex loses some: see
docs/internals/cosets.md#partitioners).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from math import lcm

from partitioning.errors import Finding, refuse
from partitioning.kinds import Kind
from partitioning.planning.partitioners.key_shares import Share, reduced, smallest_factor, widest
from partitioning.planning.partitioners.partitioners import Changes, PartitioningContext
from partitioning.values import Value, replace

# A share is not split further than this: what is still hot then is a single key.
FINEST = 1 << 16
PER = ("second", "batch")


def repartitioned(shares: Sequence[Share]) -> tuple[Share, ...]:
    """The shares after one step: hot ones are split, cold ones are merged with siblings, others are kept.

    A hot share of one residue is halved, one of several gives each residue a share of its own. Two cold shares
    of the same modulus are siblings if a residue of one and a residue of the other would be the same by the next
    coarser modulus. If every residue of siblings of siblings has its own there, each two make a share; otherwise
    siblings merge in pairs, which own what both owned. So nothing is lost or doubled, and a new share takes less
    than two cold ones may. Shares made of others take their places, further shares come last.

    >>> shares = [Share(4, (0, 3), load=-1), Share(4, (1,), load=0), Share(4, (2,), load=-1)]
    >>> print(*repartitioned(shares), sep="; ")
    h(key) mod 4 in 0, 2, 3; h(key) mod 4 = 1
    """
    after = _merged(shares)
    modulus = widest(shares)
    further: list[Share] = []
    for number, share in enumerate(shares):
        if share.load > 0:
            parts = _split(share)
            finer = lcm(modulus, parts[0].modulus)
            if finer <= max(modulus, FINEST):
                modulus, after[number] = finer, parts[0]
                further += parts[1:]
    return (*(share for share in after if share is not None), *further)


def _split(share: Share) -> list[Share]:
    if len(share.residues) > 1:
        return [reduced(Share(share.modulus, (residue,))) for residue in share.residues]
    (residue,) = share.residues
    return [Share(2 * share.modulus, (residue,)), Share(2 * share.modulus, (residue + share.modulus,))]


def _merged(shares: Sequence[Share]) -> list[Share | None]:
    """The shares by place, cold siblings merged; None where one has gone."""
    after: list[Share | None] = list(shares)
    cold = {(share.modulus, r): n for n, share in enumerate(shares) if share.load < 0 for r in share.residues}
    for family in _families(shares, cold):
        members = [shares[number] for number in family]
        for number, merged in zip_longest(family, _dissolved(members) or _paired(members)):
            after[number] = merged
    return after


def _families(shares: Sequence[Share], cold: Mapping[tuple[int, int], int]) -> list[list[int]]:
    """Cold shares that are siblings, of one another or through others, by number."""
    families: list[list[int]] = []
    seen: set[int] = set()
    for first in cold.values():
        if first in seen:
            continue
        seen.add(first)
        family = [first]
        for member in family:
            near = dict.fromkeys(cold[slot] for slot in _siblings(shares[member]) if slot in cold)
            family += [number for number in near if number not in seen]
            seen.update(near)
        families.append(sorted(family))
    return families


def _dissolved(family: Sequence[Share]) -> list[Share]:
    """Each residue with its sibling, by half the modulus, if all have one in the family and shares become fewer."""
    modulus, residues = family[0].modulus, {residue for share in family for residue in share.residues}
    half = modulus // 2
    siblings = {(residue + half) % modulus for residue in residues}
    if modulus % 2 or len(residues) >= 2 * len(family) or residues != siblings:
        return []
    return [Share(half, (residue,)) for residue in sorted(residues) if residue < half]


def _paired(family: Sequence[Share]) -> list[Share | None]:
    """The first of each two siblings as both together, the second as None; the others as they were."""
    after: list[Share | None] = list(family)
    waiting: dict[tuple[int, int], int] = {}
    for number, share in enumerate(family):
        first = next((waiting[slot] for slot in _siblings(share) if slot in waiting), None)
        if first is None:
            waiting.update({(share.modulus, residue): number for residue in share.residues})
        else:
            sibling = family[first]
            for residue in sibling.residues:
                del waiting[sibling.modulus, residue]
            after[first] = reduced(Share(share.modulus, sibling.residues + share.residues))
            after[number] = None
    return after


def _siblings(share: Share) -> list[tuple[int, int]]:
    if share.modulus == 1:
        return []
    coarser = share.modulus // smallest_factor(share.modulus)
    same = range(coarser, share.modulus, coarser)
    return [(share.modulus, (residue + step) % share.modulus) for residue in share.residues for step in same]


class ByThroughput(Value, frozen=True):
    """Keep what each task takes between `minimum` and `maximum` records per `second` of work, or per `batch`.

    It starts with one share for each coset of the stage's scheme, then continues from the last batch's shares. It
    judges each share by what it took in that batch. It leaves a new share alone for `cool_down` batches, and a share
    without figures until there are some.

    >>> from partitioning.model.statistics import TaskFigures
    >>> now = (Share(2, (0,), 0, TaskFigures(40_000, 0)), Share(2, (1,), 1, TaskFigures(20_000, 0)))
    >>> context = PartitioningContext("views", 7, 2, ())
    >>> for share in ByThroughput(10_000, 30_000, cool_down=2, per="batch").define(now, context):
    ...     print(share, share.cooling)
    h(key) mod 4 = 0 9
    h(key) mod 2 = 1 0
    h(key) mod 4 = 2 9

    Raises Refused with all findings: bounds that are no numbers, or so close that merged shares are split again.
    """

    minimum: float
    maximum: float
    cool_down: int = 1
    per: str = "second"

    def __post_init__(self) -> None:
        where = "the partitioner's arguments"
        findings = []
        bounds = (self.minimum, self.maximum)
        if not all(isinstance(bound, int | float) and not isinstance(bound, bool) for bound in bounds):
            what, then = f"minimum {self.minimum!r} or maximum {self.maximum!r} is no number", "use numbers"
            findings.append(Finding.of(Kind.PARTITIONER, what, where, then, minimum=self.minimum, maximum=self.maximum))
        elif not 0 <= 2 * self.minimum <= self.maximum:
            what = f"a maximum of {self.maximum} is less than twice the minimum of {self.minimum}"
            then = "set them apart: two shares that are merged would be split again"
            findings.append(Finding.of(Kind.PARTITIONER, what, where, then, maximum=self.maximum, minimum=self.minimum))
        if not isinstance(self.cool_down, int) or isinstance(self.cool_down, bool) or self.cool_down < 1:
            what = f"a cool-down of {self.cool_down!r} batches"
            findings.append(Finding.of(Kind.PARTITIONER, what, where, "use 1 or more", cool_down=self.cool_down))
        if self.per not in PER:
            what = f"throughput per {self.per!r} is not known"
            findings.append(Finding.of(Kind.PARTITIONER, what, where, f"use {' or '.join(PER)}", per=self.per))
        refuse(findings)

    def define(self, current: tuple[Share, ...], context: PartitioningContext) -> Sequence[Share]:
        if not current:
            return [Share(context.cosets, (coset,)) for coset in range(context.cosets)]
        judged = [replace(share, load=0 if context.batch < share.cooling else self.load(share)) for share in current]
        return [
            replace(share, cooling=context.batch + self.cool_down) if share.task is None else share
            for share in repartitioned(judged)
        ]

    def accepted(self, changes: Changes) -> None:
        """Nothing depends on it."""

    def load(self, share: Share) -> int:
        """-1 below the minimum, +1 above the maximum, 0 between them or where it is not known."""
        if share.figures is None:
            return 0
        # Records that a task leaves to others are not its load: parts of a share read what the whole one did.
        throughput = float(share.figures.own)
        if self.per == "second":
            if not share.figures.seconds:
                return 0
            throughput /= share.figures.seconds
        return (throughput > self.maximum) - (throughput < self.minimum)
