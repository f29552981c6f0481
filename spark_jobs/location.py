"""Where a task group runs, told by its environment."""

from __future__ import annotations

import os
import socket

VARIABLE = "COSET_LOCATION"


class EnvironmentLocation:
    """COSET_LOCATION of the Spark driver's environment, else the name of its host."""

    def location(self) -> str:
        # A pod's host name is a new one each time; there the variable has to give the node's.
        return os.environ.get(VARIABLE) or socket.gethostname()


ENVIRONMENT = EnvironmentLocation()
