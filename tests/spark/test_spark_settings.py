"""Spark's settings, and executors as Kubernetes starts them: what tasks on other machines are told."""

from __future__ import annotations

import os
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark import SparkConf

from coset.batches.runners import children
from coset.batches.runners.children import free_ports
from coset.batches.runners.choice import runner
from coset.batches.runners.given_settings import GIVEN, as_variable, parsed
from coset.batches.runners.runner import RunnerKind
from coset.batches.runners.spark import Spark
from coset.batches.runners.spark_settings import PYTHON, configuration, environment
from demo.s3_server import S3Server
from partitioning.errors import Refused
from partitioning.imports import ALLOWED
from partitioning.kinds import Kind
from spark_jobs.on_spark import with_secrets
from spark_jobs.waiting_for_workers import LIMIT
from tests.hosts import HERE, QUICK, standalone
from tests.small import small_batch, until

SECRET = "not to be seen"
ELSEWHERE = "spark://somewhere:7077"


@pytest.fixture(autouse=True)
def _unset(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (GIVEN, "PYSPARK_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))


def defaults(folder: Path, *lines: str) -> None:
    (folder / "spark-defaults.conf").write_text("\n".join(lines))


@pytest.mark.parametrize("master", ["local[2]", "spark://somewhere:7077"])
def test_executors_may_call_what_this_process_may(master: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALLOWED, "shop,lab.codecs")
    assert configuration(master)["spark.executorEnv.COSET_IMPORTS"] == "shop,lab.codecs"
    monkeypatch.delenv(ALLOWED)
    assert "spark.executorEnv.COSET_IMPORTS" not in configuration(master)


def test_a_driver_may_be_in_yarn_and_in_no_pod_that_spark_starts() -> None:
    there = {"spark.submit.deployMode": "cluster"}
    assert configuration("yarn", there)["spark.submit.deployMode"] == "cluster"
    with pytest.raises(Refused, match="a driver in a pod of its own"):
        configuration("k8s://https://kubernetes.default.svc", there)


@pytest.mark.parametrize("master", ["local[2]", "spark://somewhere:7077"])
def test_what_becomes_an_argument_has_no_credentials(master: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", SECRET)
    assert SECRET not in str(configuration(master))


def test_executors_elsewhere_are_told_by_the_driver_where_the_store_is_and_who_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("AWS_SESSION_TOKEN", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    variables = {
        "AWS_ENDPOINT_URL": "http://store:8333",
        "AWS_ACCESS_KEY_ID": "coset",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "eu-west-1",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_PROFILE", "a file of this machine has it")
    told = with_secrets(settings("spark://somewhere:7077")).getAll()
    assert {name: value for name, value in told if name != "spark.master"} == {
        f"spark.executorEnv.{name}": value for name, value in variables.items()
    }


def test_pods_are_told_where_the_store_is_and_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    given = {"AWS_ENDPOINT_URL": "http://store:8333", "AWS_REGION": "eu-west-1"}
    secret = dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"), SECRET)
    for name, value in (given | secret).items():
        monkeypatch.setenv(name, value)
    reference = "spark.kubernetes.executor.secretKeyRef.AWS_SECRET_ACCESS_KEY"
    told = dict(with_secrets(settings("k8s://https://kubernetes.default.svc").set(reference, "lake:key")).getAll())
    del told["spark.master"]
    assert told.pop(reference) == "lake:key"
    assert told == {f"spark.executorEnv.{name}": value for name, value in given.items()}


def test_what_a_deployment_says_of_its_executors_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:8333")
    name = "spark.executorEnv.AWS_ENDPOINT_URL"
    assert (
        with_secrets(settings("spark://somewhere:7077").set(name, "http://store:8333")).get(name) == "http://store:8333"
    )


def test_executors_of_a_local_master_have_the_environment_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    assert with_secrets(settings("local[2]")).getAll() == [("spark.master", "local[2]")]


def test_a_cluster_of_the_application_itself_has_a_secret_that_is_no_argument() -> None:
    master, secret = "local-cluster[2,1,1024]", "spark.authenticate.secret"
    assert configuration(master)["spark.authenticate"] == "true"
    assert secret not in configuration(master)
    one, other = (with_secrets(settings(master)).get(secret) for _ in range(2))
    assert one
    assert one != other
    assert with_secrets(settings(master).set(secret, "ours")).get(secret) == "ours"
    assert with_secrets(settings(master).set(f"{secret}.file", "/ours")).get(secret) is None


@pytest.mark.parametrize(
    ("master", "on_loopback"),
    [
        ("local[*]", True),
        ("spark://127.0.0.1:7077", True),
        ("spark://localhost:7077", True),
        ("spark://[::1]:7077", True),
        ("spark://127.0.0.1:7077,spark-master:7077", False),
        ("spark://spark-master:7077", False),
        ("k8s://https://127.0.0.1:6443", False),
        ("yarn", False),
    ],
)
def test_a_driver_listens_on_loopback_if_all_its_executors_are_there(master: str, on_loopback: bool) -> None:
    said = configuration(master)
    address = "127.0.0.1" if on_loopback else None
    assert (said.get("spark.driver.host"), said.get("spark.driver.bindAddress")) == (address, address)


def test_tasks_of_this_machine_run_in_this_python_and_others_in_the_workers_own() -> None:
    assert configuration("local[2]")[PYTHON] == sys.executable
    assert configuration("spark://127.0.0.1:7077")[PYTHON] == sys.executable
    elsewhere = configuration(ELSEWHERE)
    assert (elsewhere[PYTHON], elsewhere["spark.pyspark.driver.python"]) == ("python3", sys.executable)


@pytest.mark.parametrize("master", ["local[2]", ELSEWHERE])
def test_the_python_that_users_say_counts(master: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/by/variable")
    assert configuration(master)[PYTHON] == "/by/variable"
    defaults(tmp_path, "# ours", "spark.pyspark.python   /by/file")
    assert configuration(master)[PYTHON] == "/by/file"
    monkeypatch.setenv(GIVEN, f"{PYTHON}=/by/environment")
    assert configuration(master)[PYTHON] == "/by/environment"
    assert configuration(master, {PYTHON: "/by/option"})[PYTHON] == "/by/option"
    # That it has Coset's own daemon is not known.
    assert "spark.python.daemon.module" not in configuration(master)


def test_what_users_say_counts_instead_of_what_coset_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    defaults(tmp_path, "spark.ui.enabled=true", "spark.driver.extraJavaOptions: -Dours=1", "spark.executor.memory 1g")
    said = configuration("local[2]")
    # Spark reads its file itself, unless an argument says otherwise.
    assert not {"spark.ui.enabled", "spark.executor.memory"} & said.keys()
    assert said["spark.driver.extraJavaOptions"].endswith(" -Dours=1")
    monkeypatch.setenv(GIVEN, "spark.executor.memory=2g 'spark.executor.extraJavaOptions=-Xss4m -Dtwo=2'")
    said = configuration("local[2]", {"spark.executor.memory": "3g", "spark.driver.host": "here"})
    assert (said["spark.executor.memory"], said["spark.driver.host"]) == ("3g", "here")
    assert said["spark.executor.extraJavaOptions"] == "-Xss4m -Dtwo=2"
    assert parsed(["spark.a=b=c"], "--conf") == {"spark.a": "b=c"}
    assert as_variable({"spark.a": "b c"}) == "'spark.a=b c'"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("spark.hadoop.fs.s3a.secret.key=hunter2", Kind.SECRET),
        ("spark.executorEnv.AWS_SECRET_ACCESS_KEY=hunter2", Kind.SECRET),
        ("spark.hadoop.fs.s3a.access.key=hunter2", Kind.SECRET),
        ("spark.jars.repositories=https://me:hunter2@example.org", Kind.SECRET),
        ("executor.memory=hunter2", Kind.SETTING),
        ("spark.executor.memory", Kind.SETTING),
        ("spark.master=hunter2", Kind.SETTING),
    ],
)
def test_settings_that_are_none_or_secret_are_refused_and_not_repeated(
    text: str, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Refused) as caught:
        parsed([text], "--conf")
    assert [finding.kind for finding in caught.value.findings] == [kind]
    assert "hunter2" not in str(caught.value)
    monkeypatch.setenv(GIVEN, text)
    with pytest.raises(Refused):
        configuration(ELSEWHERE)


@pytest.mark.parametrize(
    "name",
    [
        "spark.kubernetes.executor.secretKeyRef.AWS_SECRET_ACCESS_KEY",
        "spark.kubernetes.executor.secrets.aws",
        "spark.authenticate.secret.file",
        "spark.authenticate.secret.driver.file",
    ],
)
def test_a_setting_that_says_where_a_secret_is_may_be_given(name: str) -> None:
    assert parsed([f"{name}=there"], "--conf") == {name: "there"}


@pytest.mark.parametrize("kind", [RunnerKind.LOCAL, RunnerKind.CONNECT])
def test_runners_that_start_no_spark_take_no_settings_of_it(kind: RunnerKind) -> None:
    with pytest.raises(Refused, match="starts no Spark"):
        runner(kind, "sc://127.0.0.1:1", "1GB", {"spark.cores.max": "2"})


def settings(master: str) -> SparkConf:
    """Settings of a driver with that master and nothing else."""
    return SparkConf(loadDefaults=False).setMaster(master)


@pytest.mark.long
def test_an_executor_that_knows_variables_only_runs_a_group(s3: S3Server, tmp_path: Path) -> None:
    batch, (port,) = small_batch(), free_ports(1)
    # As in BasicExecutorFeatureStep of Spark. The driver waits in vain for a worker of its master.
    said = {
        "SPARK_DRIVER_URL": f"spark://CoarseGrainedScheduler@{HERE}:{port}",
        "SPARK_EXECUTOR_CORES": "1",
        "SPARK_EXECUTOR_MEMORY": "512m",
        "SPARK_APPLICATION_ID": "spark-1",
        "SPARK_CONF_DIR": str(tmp_path / "conf"),
        "SPARK_EXECUTOR_ID": "1",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_EXECUTOR_POD_IP": HERE,
        "SPARK_EXECUTOR_POD_NAME": "sums-exec-1",
        "SPARK_JAVA_OPT_0": QUICK,
        "SPARK_JAVA_OPT_1": "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
        "SPARK_JAVA_OPT_10": f"-Dspark.driver.port={port}",
    }
    with standalone(tmp_path) as empty:
        settings = {**empty.settings, "spark.driver.port": str(port), PYTHON: sys.executable, LIMIT: "120s"}
        with Spark(empty.master, "1GB", settings) as runner, ThreadPoolExecutor(1) as pool:
            group = pool.submit(runner.group, batch.ref, 0)
            assert until(lambda: listens(port), within=120)
            with (tmp_path / "pod.log").open("wb") as log:
                command, bare = [sys.executable, "-m", "spark_jobs.executor_pod"], {**os.environ, **environment()}
                pod = children.start(command, {**bare, "COSET_LOCATION": "node-1", **said}, log)
            try:
                assert group.result().endswith(", at node-1"), (tmp_path / "pod.log").read_text()
            finally:
                children.stop(pod, within_seconds=5)


def listens(port: int) -> bool:
    """Whether somebody does at this port."""
    with socket.socket() as asked:
        return asked.connect_ex((HERE, port)) == 0
