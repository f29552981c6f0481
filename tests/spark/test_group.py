"""Task groups beside what all runners do alike (tests/behaviour): what goes wrong with Spark itself, and Java."""

from __future__ import annotations

import gc
import importlib.metadata
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import msgspec
import pyspark
import pytest

from coset.batches.runners.choice import runner
from coset.batches.runners.connect import Connect
from coset.batches.runners.runner import Runner, RunnerKind
from coset.batches.runners.spark import Spark
from coset.batches.runners.spark_server import SparkServer
from coset.batches.runners.spark_settings import environment, java_from_pypi
from coset.batches.runners.spark_submit import SparkSubmit
from demo.s3_server import S3Server
from partitioning.commands import Run
from partitioning.errors import Conflict, CosetError, Finding, OutcomeUnknown, Refused, Unreachable, about
from partitioning.kinds import Kind
from partitioning.model.failure import Answer, Failed
from tests.small import SmallBatch, small_batch


@pytest.fixture(autouse=True)
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files, where logs go, is the test's own."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture(scope="module")
def good(s3: S3Server) -> SmallBatch:
    return small_batch()


@pytest.mark.parametrize("make", [Spark, SparkSubmit])
def test_spark_that_cannot_start_is_told_with_its_log(make: Callable[[str], Runner], good: SmallBatch) -> None:
    with make("nonsense") as started, pytest.raises(CosetError, match=r"Spark cannot start|exit code 1") as caught:
        started.group(good.ref, 0)
    assert type(caught.value) is CosetError
    assert "Master must either be yarn or start with" in _log_named_by(caught.value).read_text()
    with warnings.catch_warnings():
        # PySpark does not close its pipe to a JVM that did not start.
        warnings.simplefilter("ignore", ResourceWarning)
        del caught
        gc.collect()


def test_an_application_that_cannot_start_says_why_though_its_jvm_has_ended(good: SmallBatch) -> None:
    nobodys = {"spark.driver.bindAddress": "198.51.100.1"}
    with Spark("local[1]", settings=nobodys) as started, pytest.raises(CosetError) as caught:
        started.group(good.ref, 0)
    assert type(caught.value) is CosetError
    assert "Spark cannot start: java.net.BindException: " in str(caught.value)


@pytest.mark.parametrize("kind", ["connect", "spark", "spark-submit"])
def test_a_job_that_fails_is_told_with_the_log_of_spark(kind: str, good: SmallBatch, spark_server: SparkServer) -> None:
    # DuckDB does not take it, which is no finding of a task's but a bug of whoever asks for it.
    memory = "999999999TB"
    makers: dict[str, Callable[[], Runner]] = {
        "spark": lambda: Spark("local[1]", memory),
        "spark-submit": lambda: SparkSubmit("local[1]", memory),
        "connect": lambda: Connect(spark_server.address, memory, spark_server.token),
    }
    with (
        makers[kind]() as started,
        pytest.raises(CosetError, match=r"the Spark job failed: .*Memory value out of range") as caught,
    ):
        started.group(good.ref, 0)
    assert type(caught.value) is CosetError
    assert _log_named_by(caught.value).exists()


@pytest.mark.long
def test_a_log_that_nobody_needs_is_not_left(s3: S3Server, logs: Path) -> None:
    batch = small_batch()
    runners: tuple[Runner, ...] = (Spark("local[1]"), SparkSubmit("local[1]"))
    for number, made in enumerate(runners):
        with made as started:
            started.group(batch.ref, number)
    assert list(logs.glob("*.log")) == []


# A group's answers are of one type, which each group's thread reads first in a process of its own.
ANSWERED_AT_ONCE = """
import sys
from threading import Barrier, Thread
from partitioning.documents.document import canonical
from partitioning.model.failure import Done
from spark_jobs import group

sys.setswitchinterval(1e-6)
data, begin, read = canonical(Done(receipts=())), Barrier(8), []

def read_at_once():
    begin.wait()
    read.extend(group._done([data]))

threads = [Thread(target=read_at_once) for _ in range(8)]
for each in threads:
    each.start()
for each in threads:
    each.join()
assert read == [Done(receipts=())] * 8
"""


def test_groups_may_read_their_first_answers_at_once() -> None:
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", ANSWERED_AT_ONCE], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("kind", [CosetError, Refused, Conflict, OutcomeUnknown, Unreachable])
def test_errors_keep_kind_and_findings_on_their_way(kind: type[CosetError]) -> None:
    error = kind(
        Finding(Kind.SQL, "one\nand more", "here", "do this"),
        Finding(Kind.RUNNER, "two", "there", Run("late"), about(n=2)),
    )
    back = msgspec.json.decode(msgspec.json.encode(Failed.of(error)), type=Answer)
    assert isinstance(back, Failed)
    assert type(back.error()) is kind
    assert back.error().findings == error.findings


@pytest.mark.parametrize(("master", "kind"), [("local[*]", "spark"), ("spark://m:1", "spark"), ("sc://m:1", "connect")])
def test_the_runner_follows_from_the_master(master: str, kind: str) -> None:
    assert RunnerKind.at(master) == kind


@pytest.mark.parametrize(
    ("kind", "master", "what"),
    [
        (RunnerKind.SPARK, "sc://127.0.0.1:1", "the runner spark needs a master"),
        (RunnerKind.SPARK_SUBMIT, "sc://127.0.0.1:1", "the runner spark-submit needs a master"),
        (RunnerKind.CONNECT, "local[*]", "not the address of a Spark server"),
    ],
)
def test_a_runner_that_does_not_go_with_the_master_is_refused(kind: RunnerKind, master: str, what: str) -> None:
    with pytest.raises(Refused, match=what):
        runner(kind, master, "1GB")


def test_a_machine_without_java_gets_the_one_from_pypi(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert environment().items() >= java_from_pypi().items()
    monkeypatch.setenv("JAVA_HOME", "/the/users/own")
    assert "JAVA_HOME" not in environment()


@pytest.mark.long
def test_a_group_runs_on_the_java_from_pypi(good: SmallBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in java_from_pypi().items():
        monkeypatch.setenv(name, value)
    with SparkSubmit("local[2]") as started:
        assert "tasks read" in started.group(small_batch("count(*) AS n").ref, 0)


@pytest.mark.long
def test_while_groups_run_nothing_is_added_to_the_environment(
    good: SmallBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SPARK_HOME", "PYSPARK_PYTHON", "SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE"):
        monkeypatch.delenv(name, raising=False)
    with Spark("local[2]") as runner:
        before = set(os.environ)
        runner.group(good.ref, 0)
        assert set(os.environ) == before


def test_spark_and_its_client_are_of_one_version_and_the_jars_are_there() -> None:
    # pyspark-client unpacks over pyspark's own folder.
    assert pyspark.__version__ == importlib.metadata.version("pyspark-client") == importlib.metadata.version("pyspark")
    assert len(os.listdir(Path(pyspark.__file__).parent / "jars")) > 100


def _log_named_by(error: CosetError) -> Path:
    """The file that an error says to look into: it ends at the comma or with the sentence."""
    said = error.findings[0].then
    return Path(next(word.rstrip(",") for word in said.split() if word.startswith("/")))
