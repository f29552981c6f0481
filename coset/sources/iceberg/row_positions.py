"""Positions of rows in a data file: which of them count, as plans say it."""

from __future__ import annotations

import numpy as np


def rows_at(positions: np.ndarray, count: int) -> str:
    """These positions, in order, in a file of so many rows: how many are left out and taken, by turns; nothing if all
    are.

    >>> rows_at(np.array([3, 7, 8]), 20), rows_at(np.arange(20), 20)
    ('3,1,3,2', '')
    """
    if len(positions) == count:
        return ""
    ends = np.flatnonzero(np.diff(positions, append=count + 1) > 1)
    firsts, lasts = positions[np.concatenate([[0], ends[:-1] + 1])], positions[ends] + 1
    turns = np.stack([firsts - np.concatenate([[0], lasts[:-1]]), lasts - firsts], 1)
    return ",".join(map(str, turns.ravel().tolist()))


def taken(rows: str, count: int) -> np.ndarray:
    """Of each row of a file of so many whether it counts.

    >>> taken("3,1,3,2", 10).nonzero()[0].tolist()
    [3, 7, 8]
    """
    turns = [int(turn) for turn in rows.split(",")] if rows else [0, count]
    found = np.zeros(count, np.bool_)
    found[: sum(turns)] = np.repeat(np.arange(len(turns)) % 2 == 1, turns)
    return found
