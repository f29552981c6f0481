"""Makes Python import the installed PySpark, not the zip archive of it that Spark puts first on the path.

Python keeps no compiled files for an archive, which costs each process half a second. Import this before PySpark.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from pathlib import Path


def prefer_installed() -> None:
    """Move the archives of the installed PySpark to the end of the path. Those of another Spark stay in place."""
    installed = PathFinder.find_spec("pyspark", [path for path in sys.path if not path.endswith(".zip")])
    if installed and installed.origin:
        home = Path(installed.origin).resolve().parent
        sys.path.sort(key=lambda path: path.endswith(".zip") and Path(path).resolve().is_relative_to(home))


prefer_installed()
