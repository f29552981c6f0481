"""PySpark as it is installed, before the archive of the same that Spark names first: to be imported before it.

Of what is in an archive Python keeps nothing compiled: it takes half a second more, in each process.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from pathlib import Path


def prefer_installed() -> None:
    """Look into the archives of the PySpark that is installed last. Those of another Spark stay where they are."""
    installed = PathFinder.find_spec("pyspark", [path for path in sys.path if not path.endswith(".zip")])
    if installed and installed.origin:
        home = Path(installed.origin).resolve().parent
        sys.path.sort(key=lambda path: path.endswith(".zip") and Path(path).resolve().is_relative_to(home))


prefer_installed()
