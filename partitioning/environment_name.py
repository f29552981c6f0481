"""The environment in which a process works, by its name; see `coset.project`."""

from __future__ import annotations

import os

# The variable with the name.
ENVIRONMENT = "COSET_ENV"


def environment() -> str:
    """The name of the environment in which this process works; empty if there is none."""
    return os.environ.get(ENVIRONMENT, "")
