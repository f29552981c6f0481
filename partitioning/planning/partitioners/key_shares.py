"""Shares: the parts of a stage's key space that its tasks own, as partitioners are given them and assign them."""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm
from typing import Any

from partitioning.errors import Finding, Refused, refuse
from partitioning.kinds import Kind
from partitioning.model.statistics import TaskFigures
from partitioning.model.takes import Residues
from partitioning.values import Value, replace

# The finest that a key space is assigned: a plan lists every residue once.
MOST_RESIDUES = 1 << 20
_SHOWN = 8


class Share(Value, frozen=True):
    """The keys that one task owns: `h(key) mod modulus` is in `residues` (Apex: a mask and the keys under it).

    For a task of the last batch, `task` is its number and `figures` what it took; a new share has neither. `load` is -1
    (cold), 0 or +1 (hot) once a partitioner has judged it. The share is left alone until batch `cooling`.

    >>> print(Share(8, (1, 5)), Share(1, (0,)), sep="; ")
    h(key) mod 8 in 1, 5; all keys
    """

    modulus: int
    residues: tuple[int, ...]
    task: int | None = None
    figures: TaskFigures | None = None
    load: int = 0
    cooling: int = 0

    def __str__(self) -> str:
        return "all keys" if self.modulus == 1 and self.residues else str(Residues(self.modulus, self.residues))


def smallest_factor(number: int) -> int:
    """The smallest prime that divides `number`, which is 2 or more.

    >>> smallest_factor(12), smallest_factor(35), smallest_factor(7)
    (2, 5, 7)
    """
    factor = 2
    while factor * factor <= number:
        if number % factor == 0:
            return factor
        factor += 1
    return number


def reduced(share: Share) -> Share:
    """The same keys by the smallest modulus, residues ascending. Shares own the same keys if and only if this is equal.

    >>> print(reduced(Share(8, (5, 1))), reduced(Share(8, (0, 3))), sep="; ")
    h(key) mod 4 = 1; h(key) mod 8 in 0, 3
    """
    modulus, residues, left = share.modulus, set(share.residues), share.modulus
    while left > 1:
        factor = smallest_factor(left)
        left //= factor
        # Residues that repeat every modulus / factor need only the smaller modulus.
        shorter = modulus // factor
        if len(residues) % factor == 0 and residues == {(residue + shorter) % modulus for residue in residues}:
            modulus, residues = shorter, {residue for residue in residues if residue < shorter}
    return replace(share, modulus=modulus, residues=tuple(sorted(residues)))


def widest(shares: Sequence[Share]) -> int:
    """The smallest modulus that can express all shares: the least common multiple of their moduli."""
    return lcm(*(share.modulus for share in shares))


def residues_at(share: Share, modulus: int) -> tuple[int, ...]:
    """The residues of a share modulo a multiple of its own modulus, ascending.

    >>> residues_at(Share(4, (1,)), 8)
    (1, 5)
    """
    return tuple(start + residue for start in range(0, modulus, share.modulus) for residue in sorted(share.residues))


def complete(answer: Any, where: str) -> tuple[Share, ...]:
    """The shares of an answer that assigns every key exactly once, each reduced, in the order of the answer.

    Raises Refused with all findings: no shares, a modulus below 1, empty shares, residues out of range or twice
    in a share, residues of the widest modulus in no share or in several.
    """
    shares = tuple(answer) if isinstance(answer, Sequence) else ()
    if not shares or not all(isinstance(share, Share) for share in shares):
        what = "it gives no shares" if not shares else "it gives something else than shares"
        then = "return a sequence of Share, at least one"
        raise Refused.of(Kind.PARTITIONER, what, where, then, type=type(answer).__name__, shares=len(shares))
    findings = [finding for number, share in enumerate(shares) for finding in _malformed(number, share, where)]
    if not findings:
        findings = _uncovered(shares, where)
    refuse(findings)
    return tuple(reduced(share) for share in shares)


def _malformed(number: int, share: Share, where: str) -> list[Finding]:
    if share.modulus < 1:
        what, then = f"share {number} has the modulus {share.modulus}", "use a modulus of 1 or more"
        return [Finding.of(Kind.PARTITIONER, what, where, then, number=number, modulus=share.modulus)]
    findings = []
    if not share.residues:
        what = f"share {number} is empty"
        then = "leave it out, or give it residues"
        findings.append(Finding.of(Kind.PARTITIONER, what, where, then, number=number, wrong="empty"))
    if strange := [residue for residue in share.residues if not 0 <= residue < share.modulus]:
        what = f"share {number} has residues that modulus {share.modulus} does not have: {_listed(strange)}"
        then = f"use 0 to {share.modulus - 1}"
        findings.append(
            Finding.of(Kind.PARTITIONER, what, where, then, number=number, modulus=share.modulus, strange=strange)
        )
    if len(set(share.residues)) < len(share.residues):
        what = f"share {number} names a residue twice"
        then = "name each residue once"
        findings.append(Finding.of(Kind.PARTITIONER, what, where, then, number=number, wrong="twice"))
    return findings


def _uncovered(shares: Sequence[Share], where: str) -> list[Finding]:
    modulus = widest(shares)
    if modulus > MOST_RESIDUES:
        what = f"its moduli have {modulus:,} residues in common, more than {MOST_RESIDUES:,}"
        return [Finding.of(Kind.PARTITIONER, what, where, "use moduli that divide one another", modulus=modulus)]
    owners: list[list[int]] = [[] for _ in range(modulus)]
    for number, share in enumerate(shares):
        for residue in residues_at(share, modulus):
            owners[residue].append(number)
    lost = [residue for residue, numbers in enumerate(owners) if not numbers]
    twice = [f"{residue} (shares {', '.join(map(str, n))})" for residue, n in enumerate(owners) if len(n) > 1]
    findings = []
    if lost:
        what = f"keys with h(key) mod {modulus} = {_listed(lost)} are in no share"
        then = "assign each residue to one share; these records would be lost"
        findings.append(Finding.of(Kind.PARTITIONER, what, where, then, modulus=modulus, lost=lost))
    if twice:
        what = f"keys with h(key) mod {modulus} = {_listed(twice)} are in several shares"
        then = "assign each residue to one share; these records would count twice"
        findings.append(Finding.of(Kind.PARTITIONER, what, where, then, modulus=modulus, twice=twice))
    return findings


def _listed(values: Sequence[object]) -> str:
    rest = f" and {len(values) - _SHOWN} more" if len(values) > _SHOWN else ""
    return ", ".join(map(str, values[:_SHOWN])) + rest
