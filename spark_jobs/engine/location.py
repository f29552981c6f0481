"""Where a task group runs, told by its environment."""

from __future__ import annotations

import os
import socket

LOCATION = "COSET_LOCATION"


class EnvironmentLocation:
    """COSET_LOCATION of the Spark driver's environment, else the name of its host."""

    def location(self) -> str:
        # A pod's host name is a new one each time; there the variable has to give the node's.
        return os.environ.get(LOCATION) or socket.gethostname()


class NamedLocation:
    """A location that somebody else knows: that of a Spark server, which its client is not told."""

    def __init__(self, location: str) -> None:
        self._location = location

    def location(self) -> str:
        return self._location


ENVIRONMENT = EnvironmentLocation()
