"""Commands that install packages: from what uv has kept of earlier ones if all is there, else from the registry.

From the registry uv fetches again what it has, and builds again what comes as source, as pyspark does: that takes it
twenty seconds of the processor and half a gigabyte each time.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


def installing(
    words: Sequence[object], folder: Path, environment: Mapping[str, str] = os.environ
) -> subprocess.CompletedProcess[str]:
    """What became of a command that calls uv."""
    for offline in ("1", "0"):
        variables = {**environment, "UV_OFFLINE": offline}
        done = subprocess.run(
            [*map(str, words)], cwd=folder, env=variables, capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            break
    return done
