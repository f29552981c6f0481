"""Tasks: what each reads of its stage's inputs, and what it leaves to others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, order=True, slots=True)
class Residues:
    """Keep only the records whose `h(key) mod modulus` is one of `residues`, ascending.

    >>> print(Residues(8, (3,)), Residues(8, (3, 5)), sep="; ")
    h(key) mod 8 = 3; h(key) mod 8 in 3, 5
    """

    modulus: int
    residues: tuple[int, ...]

    def __str__(self) -> str:
        listed = ", ".join(map(str, self.residues))
        return f"h(key) mod {self.modulus} {'=' if len(self.residues) == 1 else 'in'} {listed}"


@dataclass(frozen=True, slots=True)
class Task:
    """The unit of a stage: `reads` maps each input to partition numbers, ascending.

    `owns` are the residues, modulo the stage's cosets, of the keys that are the task's: its own number under
    the coset rule, none where keys are not kept together. `filters` has an entry for each input of which it
    reads partitions that hold other tasks' keys as well. A `null_keys` task takes nothing but the records
    without a key of the inputs it reads; exchanges, results and state hold those in partition 0. Where no task
    is for them, nor are they dropped as their stream wants it, the owner of residue 0 takes them.
    """

    task: int
    reads: Mapping[str, tuple[int, ...]]
    filters: Mapping[str, Residues] = field(default_factory=dict)
    null_keys: bool = False
    owns: tuple[int, ...] = ()
