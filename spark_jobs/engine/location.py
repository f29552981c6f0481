"""The location of a process that runs tasks or a task group."""

from __future__ import annotations

import os
import socket
from collections import Counter
from collections.abc import Iterable

LOCATION = "COSET_LOCATION"


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
    """The location of most tasks; of several the first by name. Empty if none is known.

    >>> most_frequent(["sea", "land", "sea"]), most_frequent(["sea", "land"]), most_frequent([])
    ('sea', 'land', '')
    """
    counts = Counter(filter(None, locations))
    return min(counts, key=lambda location: (-counts[location], location), default="")
