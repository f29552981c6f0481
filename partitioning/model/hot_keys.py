"""Hot keys: what a plan does about keys with so many records that one of them makes its task heavy."""

from __future__ import annotations

from enum import StrEnum


class HotKeys(StrEnum):
    """`split`: several tasks read ranges of the stream partitions that hold hot keys, where all steps allow it. Of
    joins they take the hot keys only, and copy the other sides; where a step does not allow it, the key has one task
    for itself.

    `own task`: each hot key has a task for itself, beside those of the other keys, whatever the steps do. `leave`: all
    records of a key are in one task, whatever the key weighs.
    """

    SPLIT = "split"
    OWN_TASK = "own task"
    LEAVE = "leave"
