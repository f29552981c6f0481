"""The location of a process that runs tasks or a task group."""

from __future__ import annotations

import os
import socket
from collections import Counter
from collections.abc import Iterable
from typing import Protocol

from partitioning.errors import Refused
from partitioning.kinds import Kind

LOCATION = "COSET_LOCATION"
LONGEST_LOCATION = 253


class LocationIdProvider(Protocol):
    """Says where a task group runs: at a host, a node, a rack, anything that holds caches and local state. If it is not
    `said`, where most tasks of a group ran counts instead.

    It does not say which group runs: several groups may run at one location, and one group at another each time.
    """

    @property
    def said(self) -> bool:
        """Whether the deployment says the location."""

    def location(self) -> str:
        """The location, the same text whenever it is the same place. Raises Refused if it cannot be told."""


class EnvironmentLocation:
    """COSET_LOCATION of this process's environment, else the name of its host."""

    @property
    def said(self) -> bool:
        return bool(os.environ.get(LOCATION))

    def location(self) -> str:
        # A pod has a new host name each time, so on Kubernetes the variable has to name the node.
        return os.environ.get(LOCATION) or socket.gethostname()


class NamedLocation:
    """A location that is configured, for a Spark server that stands for a place."""

    said = True

    def __init__(self, location: str) -> None:
        self._location = location

    def location(self) -> str:
        return self._location


ENVIRONMENT = EnvironmentLocation()


def most_frequent(locations: Iterable[str]) -> str:
    """The location of most tasks; of several the first by name. Empty if none is known, or what is said is none.

    >>> most_frequent(["sea", "land", "sea"]), most_frequent(["sea", "land"]), most_frequent(["", "rack\\n7"])
    ('sea', 'land', '')
    """
    counts = Counter(filter(is_location, locations))
    return min(counts, key=lambda location: (-counts[location], location), default="")


def is_location(text: str) -> bool:
    """Whether a text is 1 to 253 printable characters, as long as a host's name may be."""
    return text.isprintable() and bool(text.strip()) and len(text) <= LONGEST_LOCATION


def check_location(location: str) -> str:
    """The location itself. Raises Refused if it is none.

    >>> check_location("rack 7/h2.example")
    'rack 7/h2.example'
    """
    if not is_location(location):
        what = f"{location[: LONGEST_LOCATION + 1]!r} is no location"
        then = f"use 1 to {LONGEST_LOCATION} printable characters, as in a host's name"
        raise Refused.of(Kind.LOCATION, what, "location", then, location=location[: LONGEST_LOCATION + 1])
    return location
