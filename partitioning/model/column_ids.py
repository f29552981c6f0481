"""Ids of columns in an Iceberg table, by which a column is known whatever its name, and of their parts."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import UnsetType

# Before the name of a part: columns may have dots in their names.
PART = "\x1f"


def renamed(then: Mapping[str, int] | UnsetType, now: Mapping[str, int] | UnsetType) -> Mapping[str, str]:
    r"""The columns and parts of now that had another name then, with that name: empty if they are new, and another had
    theirs.

    >>> renamed({"a": 1, "b": 2, "of": 3, "of\x1fx": 4}, {"a": 5, "c": 2, "to": 3, "to\x1fx": 4, "more": 6})
    {'a': '', 'c': 'b', 'to': 'of'}
    """
    if isinstance(then, UnsetType) or isinstance(now, UnsetType):
        return {}
    names, found = {number: name for name, number in then.items()}, dict[str, str]()
    for name, number in now.items():
        (column, _, part), was = name.partition(PART), names.get(number, "")
        # The parts of a column have moved with it.
        if (was != name if was else name in then) and not (part and column in found and part == was.partition(PART)[2]):
            found[name] = was
    return found
