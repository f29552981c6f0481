"""Verifications: up to which batch the keys of a table were held against its query, and whether they were equal.

They are remembered by the parts of the keys that were taken together. They decide nothing but which part is next.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd
from typing import ClassVar

from partitioning.values import Document, Value, replace

# A table is verified in so many parts, one a night, if nobody says otherwise.
PARTS = 16


class Verification(Value, frozen=True):
    """The keys of which h(key) mod `parts` is `part` were held against their query up to a `batch`: how many `keys`
    differ, `at` this many milliseconds since 1970. `swaps` had put rows of backfills in place until then, or back.
    Rows of batches before `since` were not looked at, as their records are gone."""

    part: int
    parts: int
    batch: int
    keys: int
    at: int
    swaps: int = 0
    since: int = 0

    @property
    def equal(self) -> bool:
        return not self.keys

    def holds(self, part: int, parts: int) -> bool:
        """Whether all keys of this part were looked at.

        >>> whole, third = Verification(0, 1, 214, 0, 0), Verification(2, 16, 214, 0, 0)
        >>> whole.holds(2, 16), third.holds(2, 32), third.holds(18, 32), third.holds(2, 8)
        (True, True, True, False)
        """
        return parts % self.parts == 0 and part % self.parts == self.part

    def meets(self, part: int, parts: int) -> bool:
        """Whether a key may be in both."""
        return (self.part - part) % gcd(self.parts, parts) == 0

    def __str__(self) -> str:
        return f"{self.part + 1}/{self.parts}"


class Verifications(Document, frozen=True):
    """What is known of a table after one more verification, the `last`: what was found of parts of its keys that were
    not looked at again since, the oldest first.

    The documents are numbered. If two processes put the same number, the second goes on from what the first put.
    """

    FORMAT: ClassVar[str] = "coset.verifications/1"

    pipeline: str
    table: str
    number: int = -1
    known: tuple[Verification, ...] = ()
    last: Verification | None = None

    def after(self, found: Verification) -> Verifications:
        """With one more. It replaces what was found of the same keys, unless that was up to a later batch.

        >>> whole, part = Verification(0, 1, 3, 0, at=1000), Verification(2, 16, 4, 1, at=2000)
        >>> now = Verifications("shop", "spent").after(whole).after(part)
        >>> [str(each) for each in now.known], [str(each) for each in now.after(replace(whole, batch=4)).known]
        (['1/1', '3/16'], ['1/1'])
        """
        known = self.known
        if not any(each.batch > found.batch and each.holds(found.part, found.parts) for each in known):
            kept = (each for each in known if each.batch > found.batch or not found.holds(each.part, each.parts))
            known = (*kept, found)
        return replace(self, number=self.number + 1, known=known, last=found)

    def next_of(self, parts: int) -> int:
        """Which of so many parts was not looked at for the longest time.

        >>> now = Verifications("shop", "spent").after(Verification(0, 3, 4, 0, 1000))
        >>> now.next_of(3), now.after(Verification(1, 3, 4, 0, 2000)).after(Verification(2, 3, 4, 0, 3000)).next_of(3)
        (1, 0)
        """
        return min(range(parts), key=lambda part: (self._looked(part, parts), part))

    def _looked(self, part: int, parts: int) -> int:
        """How many verifications ago, from the oldest that is known, all keys of a part were looked at; -1: never."""
        holding = [place for place, each in enumerate(self.known) if each.holds(part, parts)]
        return max(holding, default=-1)

    @property
    def differing(self) -> tuple[Verification, ...]:
        """The parts in which keys differ, as far as nobody has looked at them again."""
        return tuple(each for each in self.known if not each.equal)

    def samples(self, swaps: int) -> VerifiedSamples | None:
        """What is known by now, after so many swaps; None if nobody has verified the table."""
        if self.last is None:
            return None
        parts = self._parts()
        equal = [each for part in range(parts) if (each := self._equal(part, parts, swaps))]
        batches = [each.batch for each in equal]
        return VerifiedSamples(
            max(batches, default=None),
            min(batches, default=None),
            max((each.since for each in equal), default=0),
            len(batches),
            parts,
            self.differing,
            self.last.at,
        )

    def _parts(self) -> int:
        """In how many parts it is verified: as often as any other number, and last."""
        given = [each.parts for each in self.known]
        return max(reversed(given), key=given.count)

    def _equal(self, part: int, parts: int, swaps: int) -> Verification | None:
        """What says that the keys of a part are equal. None if that is not known, or rows were exchanged since."""
        met = [each for each in self.known if each.meets(part, parts)]
        holding = [each for each in met if each.equal and each.swaps == swaps and each.holds(part, parts)]
        return holding[-1] if holding and all(each.equal for each in met) else None


class VerifiedSamples(Value, frozen=True):
    """How much of a table is known to be its query: `equal` samples of `samples`, up to `batch`, the oldest up to
    `oldest`, and rows of batches `since` then; the parts that are `differing`; looked at last `at` this many
    milliseconds since 1970."""

    batch: int | None
    oldest: int | None
    since: int
    equal: int
    samples: int
    differing: tuple[Verification, ...]
    at: int

    def __str__(self) -> str:
        """In words.

        >>> print(VerifiedSamples(214, 190, 0, 11, 16, (Verification(2, 16, 214, 1, 0),), 0))
        verified to batch 214: 11 of 16 samples, the oldest to batch 190; other rows than its query's in 3/16
        """
        return "; ".join(self._said())

    def _said(self) -> Iterator[str]:
        if self.batch is None:
            yield "no sample is known to be equal"
        else:
            of = "all keys" if self.samples == 1 else f"{self.equal} of {self.samples} samples"
            oldest = "" if self.oldest == self.batch else f", the oldest to batch {self.oldest}"
            since = f", rows from batch {self.since} on" if self.since else ""
            yield f"verified to batch {self.batch}: {of}{oldest}{since}"
        if self.differing:
            listed = ", ".join("some key" if each.parts == 1 else str(each) for each in self.differing)
            yield f"other rows than its query's in {listed}"
