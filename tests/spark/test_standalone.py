"""A standalone master with a worker that has no variables of ours, as on another machine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from coset.batches.runners import children
from coset.batches.runners.class_archive import archive_option
from coset.batches.runners.ports import free_ports
from coset.batches.runners.runner import Runner
from coset.batches.runners.spark import Spark
from coset.batches.runners.spark_settings import environment
from coset.batches.runners.spark_submit import SparkSubmit
from demo.s3_server import S3Server
from tests.examples import few
from tests.small import small_batch, until

RUNNERS: Mapping[str, Callable[[str], Runner]] = {"spark": Spark, "spark-submit": SparkSubmit}
HERE = "127.0.0.1"
# What a JVM runs that soon ends is not worth optimising.
QUICK = "-XX:TieredStopAtLevel=1"


@dataclass(frozen=True)
class Standalone:
    """A running master and its worker; `folder` has their logs and those of executors, and Spark's event logs."""

    master: str
    folder: Path

    def texts(self) -> list[str]:
        """All that was said, by whomever."""
        files = [path for path in self.folder.rglob("*") if path.is_file() and path.suffix != ".jar"]
        return [path.read_text(errors="replace") for path in files]


@pytest.fixture(scope="module")
def standalone(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    folder, (port,) = tmp_path_factory.mktemp("standalone"), free_ports(1)
    master = f"spark://{HERE}:{port}"
    ours = ("AWS_", "COSET_")
    bare = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    bare |= environment()
    bare["PYTHONPATH"] = str(Path(__file__).parents[2])
    bare["SPARK_DAEMON_JAVA_OPTS"] = f"{QUICK} {archive_option(bare)}"
    processes = list[subprocess.Popen[bytes]]()

    def start(kind: str, *arguments: str, until_it_says: str) -> None:
        command = [f"{bare['SPARK_HOME']}/bin/spark-class", f"org.apache.spark.deploy.{kind}", "--host", HERE]
        log = folder / f"{kind}.log"
        with log.open("wb") as to:
            processes.append(children.start([*command, "--webui-port", "0", *arguments], bare, to))
        assert until(lambda: until_it_says in log.read_text()), log.read_text()

    try:
        start("master.Master", "--port", str(port), until_it_says="New state: ALIVE")
        work = ("--work-dir", str(folder / "work"), "--cores", "2", "--memory", "2g")
        start("worker.Worker", *work, master, until_it_says="Successfully registered")
        yield Standalone(master, folder)
    finally:
        for process in processes:
            children.stop(process, within_seconds=5)


@pytest.fixture
def event_logs(standalone: Standalone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A deployment whose own settings have Spark write down its settings and all events."""
    events = standalone.folder / "events"
    events.mkdir(exist_ok=True)
    where = f"spark.eventLog.dir {events.as_uri()}"
    quick = f"spark.executor.extraJavaOptions {QUICK} {archive_option(os.environ | environment())}"
    settings = ("spark.eventLog.enabled true", "spark.eventLog.compress false", where, quick)
    (tmp_path / "spark-defaults.conf").write_text("\n".join(settings))
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    return events


@pytest.mark.parametrize("kind", few(RUNNERS))
def test_executors_elsewhere_reach_the_store_and_no_text_has_the_secret(
    kind: str, standalone: Standalone, s3: S3Server, event_logs: Path
) -> None:
    batch, secret = small_batch(), s3.environment["AWS_SECRET_ACCESS_KEY"]
    with RUNNERS[kind](standalone.master) as runner, ThreadPoolExecutor(1) as pool:
        running, seen = pool.submit(runner.group, batch.ref, 0), set[str]()
        while not running.done():
            seen |= commands()
            until(running.done, within=0.5)
        assert running.result().startswith("group 0 of batch 0 of sums: 2 tasks read")
    assert any("CoarseGrainedExecutorBackend" in command for command in seen)
    assert not [command for command in seen if secret in command]
    texts = standalone.texts()
    assert any("spark.executorEnv.AWS_ENDPOINT_URL" in text for text in texts), "Spark's settings are among them"
    assert not [text for text in texts if secret in text]


def commands() -> set[str]:
    """The command lines of all processes on this machine."""
    return {" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])}
