"""Claims: how much of a stream partition is done where tasks have stopped at different offsets.

Coset itself commits one offset for a whole stream partition, with the batch, and needs none of this. Systems that
commit by task do, as soon as their tasks stop at different offsets and their number changes.
"""

from __future__ import annotations

from math import lcm

from partitioning.values import Value


class SlotClaims(Value, frozen=True):
    """What is done of one stream partition, by slot: the keys with `h(key) mod len(done) = slot`.

    `done[slot]` claims that all their records before this offset are done; None claims nothing. No method drops
    or lowers a claim. Task t of L has the slots ≡ t mod L, so that any number of tasks may follow any other:

    >>> halves = SlotClaims().claim(0, 2, 51).claim(1, 2, 21)
    >>> [halves.start(task, 3, beginning=0) for task in range(3)]
    [21, 21, 21]
    >>> halves.refined(3).done
    (51, 21, 51, 21, 51, 21)
    >>> halves.holds(4, offset=30), halves.holds(5, offset=30)
    (True, False)
    """

    done: tuple[int | None, ...] = (None,)

    def refined(self, tasks: int) -> SlotClaims:
        """The same claims in so many slots that each is of one task of `tasks`: the least common multiple."""
        return SlotClaims(self.done * (lcm(len(self.done), tasks) // len(self.done)))

    def claim(self, task: int, tasks: int, done: int) -> SlotClaims:
        """Claim all records of `task` (of `tasks`) before the offset `done`; what is claimed already stays."""
        return SlotClaims(
            tuple(
                max(done, -1 if before is None else before) if slot % tasks == task else before
                for slot, before in enumerate(self.refined(tasks).done)
            )
        )

    def start(self, task: int, tasks: int, beginning: int) -> int:
        """Where `task` (of `tasks`) starts to read: no later than any of its slots, also those without a claim.

        It leaves out the records that `holds`.
        """
        return min(beginning if done is None else done for done in self.refined(tasks).done[task::tasks])

    def holds(self, h: int, offset: int) -> bool:
        """Whether the record at `offset`, whose key has the hash `h`, is claimed."""
        done = self.done[h % len(self.done)]
        return done is not None and offset < done
