"""PySpark comes compiled, from where it is installed, unless Spark brings another one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

ARCHIVES = sorted((Path(pyspark.__file__).parent / "python" / "lib").glob("*.zip"))


@pytest.mark.parametrize("module", ["spark_jobs.daemon", "spark_jobs.run_group"])
def test_the_archive_of_what_is_installed_is_not_read(module: str) -> None:
    assert imported_from(ARCHIVES, module) == pyspark.__file__


def test_another_spark_brings_its_own(tmp_path: Path) -> None:
    others = [Path(shutil.copy(archive, tmp_path)) for archive in ARCHIVES]
    assert imported_from(others, "spark_jobs.daemon").startswith(str(tmp_path))


def imported_from(archives: list[Path], module: str) -> str:
    """Where PySpark is imported from by a module, if Spark names these archives first."""
    path = os.pathsep.join([*map(str, archives), os.environ.get("PYTHONPATH", "")])
    code = f"import {module}, pyspark; print(pyspark.__file__)"
    environment = os.environ | {"PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    return done.stdout.strip()
