"""A real YARN, of one resource manager and one node manager, on loopback and free ports only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import urlopen
from xml.sax.saxutils import escape

from coset.batches.runners import children
from coset.batches.runners.children import free_ports
from coset.batches.runners.spark_settings import PYTHON, SPARK_HOME
from demo.kafka_jars import jars_of, java
from tests.small import until

_SERVER = "org.apache.hadoop.yarn.server"
_JAVA = (
    *("-Xshare:auto", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m"),
    *("--add-opens", "java.base/java.lang=ALL-UNNAMED", "--add-opens", "java.base/java.util=ALL-UNNAMED"),
)
_LOGGING = """\
log4j.rootLogger=INFO,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d %p %c{1}: %m%n
"""


@dataclass(slots=True)
class Yarn:
    """A running YARN, which keeps all of it in `folder`."""

    folder: Path
    _page: str
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def configuration(self) -> Path:
        """What HADOOP_CONF_DIR has to name."""
        return self.folder / "conf"

    @property
    def settings(self) -> Mapping[str, str]:
        """Spark's settings of small applications, which do not bring Spark's own jars."""
        return {
            "spark.yarn.jars": f"local:{SPARK_HOME}/jars/*",
            "spark.yarn.stagingDir": (self.folder / "staging").as_uri(),
            "spark.yarn.am.memory": "384m",
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.executor.instances": "1",
        }

    def driver_there(self, store: Mapping[str, str]) -> Mapping[str, str]:
        """Settings with which a driver in YARN and its executors reach the store as their hosts do: by a file.

        `store` is the environment of an S3 server.
        """
        file = self.folder / "credentials"
        keys = (f"{name.lower()} = {store[name]}" for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"))
        file.write_text("\n".join(("[default]", *keys)))
        variables = {name: value for name, value in store.items() if "KEY" not in name}
        variables["AWS_SHARED_CREDENTIALS_FILE"] = str(file)
        whose = ("spark.yarn.appMasterEnv", "spark.executorEnv")
        settings = {f"{each}.{name}": value for each in whose for name, value in variables.items()}
        return {**self.settings, **settings, PYTHON: sys.executable, "spark.submit.deployMode": "cluster"}

    def applications(self) -> list[Mapping[str, Any]]:
        """What the resource manager says of each application."""
        listed: list[Mapping[str, Any]] = self._asked("apps")["apps"].get("app", [])
        return listed

    def _asked(self, what: str) -> dict[str, Any]:
        with urlopen(f"http://{self._page}/ws/v1/cluster/{what}") as answer:
            said: dict[str, Any] = json.load(answer)
        return {name: value or {} for name, value in said.items()}

    def _start(self, kind: str, jars: Path) -> None:
        command = [java(), *_JAVA, "-cp", f"{self.configuration}:{jars}/*", f"{_SERVER}.{kind}"]
        with (self.folder / f"{kind.rpartition('.')[2]}.log").open("wb") as log:
            self._processes.append(children.start(command, os.environ, log))

    def _has_a_node(self) -> bool:
        try:
            return bool(self._asked("metrics")["clusterMetrics"]["activeNodes"])
        except OSError:
            return False


@contextmanager
def yarn(folder: Path) -> Iterator[Yarn]:
    """A YARN with one node of four cores. Raises as `jars_of`."""
    jars = jars_of(Path(__file__).with_name("yarn.pom.xml"))
    started = Yarn(folder, _configured(folder))
    try:
        started._start("resourcemanager.ResourceManager", jars)
        started._start("nodemanager.NodeManager", jars)
        assert until(started._has_a_node, within=120), f"see the logs in {folder}"
        yield started
    finally:
        for process in started._processes:
            children.stop(process, within_seconds=5)


def _configured(folder: Path) -> str:
    """Write the configuration; the address of the resource manager's page."""
    ports = iter(free_ports(8))
    addresses = {
        f"yarn.{name}.address": f"127.0.0.1:{next(ports)}"
        for name in (
            *("resourcemanager", "resourcemanager.scheduler", "resourcemanager.resource-tracker"),
            *("resourcemanager.admin", "resourcemanager.webapp"),
            *("nodemanager", "nodemanager.localizer", "nodemanager.webapp"),
        )
    }
    scheduler = "resourcemanager.scheduler"
    settings = {
        **addresses,
        "yarn.nodemanager.hostname": "127.0.0.1",
        "yarn.nodemanager.local-dirs": str(folder / "local"),
        "yarn.nodemanager.log-dirs": str(folder / "logs"),
        "yarn.nodemanager.resource.memory-mb": "6144",
        "yarn.nodemanager.resource.cpu-vcores": "4",
        "yarn.nodemanager.vmem-check-enabled": "false",
        # Otherwise a disk that is nearly full is one to do nothing on.
        "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
        "yarn.resourcemanager.scheduler.class": f"{_SERVER}.{scheduler}.fifo.FifoScheduler",
        "yarn.scheduler.minimum-allocation-mb": "128",
    }
    conf = folder / "conf"
    conf.mkdir()
    (conf / "log4j.properties").write_text(_LOGGING)
    _write(conf / "core-site.xml", {"fs.defaultFS": "file:///", "hadoop.tmp.dir": str(folder / "tmp")})
    _write(conf / "yarn-site.xml", settings)
    return addresses["yarn.resourcemanager.webapp.address"]


def _write(file: Path, settings: Mapping[str, str]) -> None:
    lines = (
        f"<property><name>{name}</name><value>{escape(value)}</value></property>" for name, value in settings.items()
    )
    file.write_text("\n".join(("<configuration>", *lines, "</configuration>")))
