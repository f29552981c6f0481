"""Hot keys: what a plan does about keys with so many records that one of them makes its task heavy."""

from __future__ import annotations

from enum import StrEnum


class HotKeys(StrEnum):
    """`split`: several tasks read ranges of the stream partitions that hold hot keys, where all steps allow it.

    `leave`: all records of a key are in one task, whatever the key weighs.
    """

    SPLIT = "split"
    LEAVE = "leave"
