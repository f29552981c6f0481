"""A standalone master with workers on other hosts, which have none of our variables, and neither our folders nor our
Python."""

from __future__ import annotations

import gzip
import re
import shutil
import tarfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from coset.batches.runners.runner import Runner
from coset.batches.runners.shipped import SHIPPED, pack, settings_for
from coset.batches.runners.spark import Spark
from coset.batches.runners.spark_settings import PYTHON
from coset.batches.runners.spark_submit import SparkSubmit
from demo.s3_server import S3Server
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.store import Store
from partitioning.errors import CosetError, Refused, Unreachable
from partitioning.imports import ALLOWED
from partitioning.kinds import Kind
from partitioning.values import replace
from spark_jobs.waiting_for_workers import LIMIT
from spark_jobs.worker_code import installed
from tests.activity import rows_of
from tests.examples import share
from tests.hosts import Host, Standalone, standalone
from tests.identity import IDENTITY, STATIC, identity
from tests.logs import log_of
from tests.refused import finding_of
from tests.running import next_batch, run_and_publish
from tests.small import KEYS, ROWS, SLOW, SmallBatch, land, small_batch, until, working
from tests.there import there

DIGEST = "@digest"
RUNNERS: Mapping[str, Callable[..., Runner]] = {"spark": Spark, "spark-submit": SparkSubmit}


@pytest.fixture(scope="module")
def cluster(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with standalone(tmp_path_factory.mktemp("standalone")) as started:
        started.host("sea")
        yield started


@pytest.fixture
def event_logs(cluster: Standalone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A deployment whose own settings have Spark write down its settings and all events, and name the workers'
    Python."""
    events = cluster.folder / "events"
    events.mkdir(exist_ok=True)
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": events.as_uri(),
        PYTHON: str(cluster.python),
    }
    (tmp_path / "spark-defaults.conf").write_text("\n".join(f"{name} {value}" for name, value in settings.items()))
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    return events


@pytest.mark.long
@pytest.mark.parametrize("kind", RUNNERS)
def test_executors_elsewhere_reach_the_store_and_no_text_has_the_secret(
    kind: str, cluster: Standalone, s3: S3Server, event_logs: Path
) -> None:
    batch, secret = small_batch(), s3.environment["AWS_SECRET_ACCESS_KEY"]
    runner = RUNNERS[kind](cluster.master, "1GB", cluster.settings)
    with runner, ThreadPoolExecutor(1) as pool:
        running, seen = pool.submit(runner.group, batch.ref, 0), set[str]()
        while not running.done():
            seen |= commands()
            until(running.done, within=0.5)
        assert running.result().startswith("group 0 of batch 0 of sums: 2 tasks read")
    assert running.result().endswith(", at sea"), "where its tasks ran, and not where it was asked for"
    receipt = there(batch.ledger.receipt(0, 0, 0))
    assert {task.location for task in receipt.tasks} == {"sea"}
    assert any("CoarseGrainedExecutorBackend" in command for command in seen)
    assert not [command for command in seen if secret in command]
    texts = [*cluster.texts(), *cluster.pages(), *stored(batch.ledger.store)]
    assert any("spark.executorEnv.AWS_ENDPOINT_URL" in text for text in texts), "Spark's settings are among them"
    # Where a line is cut, a part of it may stand.
    assert not [text for text in texts if secret[:8] in text or secret[-8:] in text]


def stored(store: Store) -> list[str]:
    """All that lies in a store; what is compressed as it was before."""
    objects = ((entry.key, store.get(entry.key) or b"") for entry in store.list(""))
    return [(gzip.decompress(data) if key.endswith(".gz") else data).decode("latin-1") for key, data in objects]


@pytest.mark.long
def test_without_keys_of_the_driver_workers_use_the_identity_of_their_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with identity(tmp_path / "s3", ("test",)) as variables, standalone(tmp_path) as cluster:
        for name in STATIC:
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        cluster.host("sea", variables={IDENTITY: variables[IDENTITY]})
        batch, settings = small_batch(SLOW), {**cluster.settings, PYTHON: str(cluster.python)}
        with Spark(cluster.master, "1GB", settings) as runner:
            assert "2 tasks read" in runner.group(batch.ref, 0)
            assert "2 tasks read" in runner.group(batch.ref, 1)


def works(host: Host) -> bool:
    """Whether a task runs there."""
    return any(working(executor.pid) for executor in host.executors())


def commands() -> set[str]:
    """The command lines of all processes on this machine."""
    return {" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])}


@pytest.mark.long
def test_without_a_worker_a_group_says_so_and_ends_as_unreachable(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch, said = small_batch(), list[tuple[int, str]]()
    monkeypatch.setattr("spark_jobs.waiting_for_workers._FIRST_AFTER_SECONDS", 1)
    with standalone(tmp_path) as empty:
        settings = {**empty.settings, LIMIT: "17s", PYTHON: str(empty.python)}
        submitting, runner = (
            RUNNERS[kind](empty.master, "1GB", settings, lambda *told: said.append(told))
            for kind in ("spark-submit", "spark")
        )

        def check_refused(by: Runner) -> None:
            said.clear()
            with pytest.raises(Unreachable) as caught:
                by.group(batch.ref, 0)
            (finding,) = caught.value.findings
            assert finding.kind is Kind.NO_WORKER
            master = f"the master at {empty.master} has 0 workers"
            assert re.fullmatch(rf"no worker has accepted the job for \d+ s; {master}", finding.what)
            assert {group for group, _ in said} == {0}
            assert said[0][1].endswith(f"s; {master}")

        with submitting:
            check_refused(submitting)
            # It has the worker until it ends.
            with runner:
                check_refused(runner)
                empty.host("late")
                assert "2 tasks read" in runner.group(batch.ref, 0)
            assert "2 tasks read" in submitting.group(batch.ref, 1)


@pytest.mark.long
def test_a_master_that_is_away_is_unreachable(s3: S3Server) -> None:
    batch = small_batch()
    with Spark("spark://127.0.0.1:1") as runner, pytest.raises(Unreachable) as caught:
        runner.group(batch.ref, 0)
    assert "the master at spark://127.0.0.1:1 does not answer: Connection refused" in str(caught.value)


@pytest.mark.long
def test_a_worker_whose_executors_end_at_once_is_named_with_what_they_said(cluster: Standalone, s3: S3Server) -> None:
    batch, settings = small_batch(), {**cluster.settings, "spark.executor.extraJavaOptions": "-Xss1"}
    with Spark(cluster.master, "1GB", {**settings, LIMIT: "8s"}) as runner, pytest.raises(Unreachable) as caught:
        runner.group(batch.ref, 0)
    assert "executors have ended on 127.0.0.1: " in str(caught.value)
    assert "Could not create the Java Virtual Machine" in str(caught.value)


@pytest.mark.long
def test_a_worker_that_cannot_run_the_code_of_the_driver_is_refused_before_it_reads(
    cluster: Standalone, s3: S3Server
) -> None:
    batch, sea = small_batch(), cluster.hosts["sea"]
    bare, other, wanted = sea.folder / "bare", sea.folder / "other", installed()
    changed = shutil.copytree(sea.code, sea.folder / "changed")
    with (changed / "spark_jobs" / "group.py").open("a") as file:
        file.write("# another version\n")
    sea.write_python(other, changed, sea.packages)

    def refused(runner: Runner, what: str) -> None:
        finding = finding_of(runner.group, batch.ref, 0)
        assert finding.kind is Kind.WORKER
        assert re.match(re.escape(what).replace(DIGEST, r"\w{16}"), finding.what), finding.what

    with Spark(cluster.master, "1GB", {**cluster.settings, PYTHON: str(bare)}) as runner:
        refused(runner, f"the worker on 127.0.0.1 has no Python {bare}")
        sea.write_python(bare)
        refused(runner, "the Python of the worker on 127.0.0.1 has no module")
    with Spark(cluster.master, "1GB", {**cluster.settings, PYTHON: str(other)}) as runner:
        refused(runner, f"the worker on sea has {replace(wanted, digest=DIGEST)}; wanted is {wanted}")


@pytest.mark.long
def test_a_worker_with_other_code_of_a_users_module_is_refused_before_it_reads(
    cluster: Standalone, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sea, here = cluster.hosts["sea"], tmp_path / "here"
    there, python = sea.folder / "there", sea.folder / "with_studio"
    for folder, given in ((here, "rows"), (there, "rows.slice(0)")):
        folder.mkdir()
        (folder / "studio.py").write_text(f"def kept(rows):\n    return {given}\n")
    monkeypatch.setenv(ALLOWED, "studio")
    monkeypatch.syspath_prepend(here)
    sea.write_python(python, sea.code, sea.packages, there)
    pipeline = Pipeline("kept", source=land())
    views = pipeline.stream("views", key="k", partitions=4)
    views.process("studio:kept", {"k": "VARCHAR", "v": "BIGINT"}).write("kept")
    ref = next_batch(pipeline, f"s3://test/{uuid.uuid4().hex}", Settings(groups=1))
    with Spark(cluster.master, "1GB", {**cluster.settings, PYTHON: str(python)}) as runner:
        finding = finding_of(runner.group, ref, 0)
        assert finding.kind is Kind.WORKER
        assert re.match(r"the worker on sea has studio:kept with the code says:\w{16}; wanted is says:", finding.what)
    monkeypatch.setenv(SHIPPED, "studio")
    # As it says: what is shipped is what the driver has.
    with Spark(cluster.master, "1GB", {**cluster.settings, PYTHON: str(python)}) as runner:
        assert f"4 tasks read {ROWS} records" in runner.group(ref, 0)


@pytest.mark.long
def test_a_worker_without_coset_runs_what_was_packed(
    cluster: Standalone, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "__init__.py").write_text("NAME = 'lab'\n")
    monkeypatch.syspath_prepend(tmp_path)
    archive = tmp_path / "env.tar.gz"
    code = pack(archive, ["lab"])
    settings = {**cluster.settings, **settings_for(archive)}
    with tarfile.open(archive) as packed:
        names = set(packed.getnames())
    assert {"bin/python", "lib/lab/__init__.py", "lib/duckdb/__init__.py", "lib/spark_jobs/group.py"} <= names
    assert code == installed()
    with Spark(cluster.master, "1GB", settings) as runner:
        assert "2 tasks read" in runner.group(small_batch().ref, 0)


def test_what_is_not_installed_cannot_be_packed(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="the module nowhere_at_all is to be packed, but is not installed"):
        pack(tmp_path / "env.tar.gz", ["nowhere_at_all"])


@pytest.mark.long
@pytest.mark.parametrize("gone", share(["kill", "suspend", "terminate"], 2))
def test_groups_use_both_hosts_and_an_executor_that_is_killed_evicted_or_stopped_in_mid_task_loses_nothing(
    gone: str, cluster: Standalone, s3: S3Server, tmp_path: Path
) -> None:
    batch, coast = small_batch(SLOW), f"coast-{gone}"
    hosts = [cluster.hosts["sea"], cluster.host(coast)]
    # A task that takes longer than half of them is started once more, on the other host.
    twice = {"spark.speculation": "true", "spark.speculation.quantile": "0.5", "spark.speculation.multiplier": "1.1"}
    settings = {
        **cluster.settings,
        **twice,
        PYTHON: str(cluster.python),
        "spark.scheduler.minRegisteredResourcesRatio": "1",
    }
    with Spark(cluster.master, "1GB", settings) as runner, ThreadPoolExecutor(2) as pool:
        groups = [pool.submit(runner.group, batch.ref, number) for number in (0, 1)]
        assert until(lambda: all(map(works, hosts)), within=120), "groups are spread over both"
        for executor in hosts[1].executors():
            getattr(executor, gone)()
        assert all("2 tasks read" in group.result() for group in groups)
    cluster.kill(coast)
    run_and_publish(batch.ref, tmp_path / "docs")
    receipts = [batch.ledger.receipt(0, 0, number) for number in (0, 1)]
    tasks = [task for receipt in receipts if receipt is not None for task in receipt.tasks]
    assert {"sea"} <= {task.location for task in tasks} <= {"sea", coast}
    assert sum(partition.taken for task in tasks for partition in task.partitions) == ROWS
    assert len(rows_of(batch.ledger.store, tasks, "sums")) == KEYS


@pytest.mark.long
def test_of_two_applications_at_once_one_waits_for_its_worker_and_goes_on_with_another_when_that_is_killed(
    cluster: Standalone, s3: S3Server
) -> None:
    batches, settings = [small_batch(), small_batch(SLOW)], {**cluster.settings, PYTHON: str(cluster.python)}
    # As many cores as the worker at sea has not.
    larger, said = {**settings, "spark.executor.cores": "2"}, list[str]()
    waiting = SparkSubmit(cluster.master, "1GB", larger, lambda _, sentence: said.append(sentence))
    # An application takes all cores that there are, also those that come.
    at_sea = Spark(cluster.master, "1GB", {**settings, "spark.cores.max": "1"})
    with at_sea, waiting, ThreadPoolExecutor(1) as pool:
        group = pool.submit(waiting.group, batches[1].ref, 0)
        assert until(lambda: bool(drivers(batches[1])), within=120)
        assert "2 tasks read" in at_sea.group(batches[0].ref, 0)
        assert until(lambda: bool(said) or group.done(), within=120)
        assert "no worker has accepted the job" in said[0]
        land = cluster.host("land", cores=2)
        assert until(lambda: works(land), within=120)
        cluster.kill("land")
        cluster.host("isle", cores=2)
        assert group.result().startswith("group 0 of batch 0 of sums: 2 tasks read")
    cluster.kill("isle")
    for batch, where in zip(batches, ("sea", "isle"), strict=True):
        receipt = there(batch.ledger.receipt(0, 0, 0))
        assert {task.location for task in receipt.tasks} == {where}


@pytest.mark.long
def test_a_driver_that_is_killed_in_mid_task_takes_its_executors_along_and_its_group_runs_again(
    cluster: Standalone, s3: S3Server, tmp_path: Path
) -> None:
    batch, sea = small_batch(SLOW), cluster.hosts["sea"]
    runner = SparkSubmit(cluster.master, "1GB", {**cluster.settings, PYTHON: str(cluster.python)})
    with runner, ThreadPoolExecutor(1) as pool:
        group = pool.submit(runner.group, batch.ref, 0)
        assert until(lambda: works(sea), within=120)
        for driver in drivers(batch):
            driver.kill()
        with pytest.raises(CosetError, match="spark-submit ended with exit code"):
            group.result()
        assert until(lambda: not sea.executors()), "no orphan computes on"
        assert batch.ledger.receipt(0, 0, 0) is None
        assert "2 tasks read" in runner.group(batch.ref, 0)
    run_and_publish(batch.ref, tmp_path / "docs")
    receipts = [batch.ledger.receipt(0, 0, number) for number in (0, 1)]
    tasks = [task for receipt in receipts if receipt is not None for task in receipt.tasks]
    assert sum(partition.taken for task in tasks for partition in task.partitions) == ROWS
    assert len(rows_of(batch.ledger.store, tasks, "sums")) == KEYS


@pytest.mark.long
@pytest.mark.parametrize("who", ["driver", "worker"])
def test_a_driver_or_a_python_worker_that_is_stopped_and_goes_on_once_another_has_published_doubles_none(
    who: str, cluster: Standalone, s3: S3Server, tmp_path: Path
) -> None:
    batch, sea = small_batch(SLOW), cluster.hosts["sea"]
    # Executors soon give up a driver that does not answer, and so it does them.
    soon = {
        "spark.executor.heartbeatInterval": "1s",
        "spark.executor.heartbeat.maxFailures": "3",
        "spark.network.timeout": "5s",
        "spark.network.timeoutInterval": "1s",
    }
    runner = SparkSubmit(cluster.master, "1GB", {**cluster.settings, **soon, PYTHON: str(cluster.python)})
    with runner, ThreadPoolExecutor(1) as pool:
        group = pool.submit(runner.group, batch.ref, 0)
        assert until(lambda: works(sea), within=120)
        workers = (each for executor in sea.executors() for each in executor.children(recursive=True))
        stopped = drivers(batch) if who == "driver" else [each for each in workers if "python" in each.name()]
        for process in stopped:
            process.suspend()
        run_and_publish(batch.ref, tmp_path / "docs")
        published = dict(contents(batch))
        if who == "driver":
            assert until(lambda: not sea.executors()), "nobody waits for a driver for ever"
        for process in stopped:
            process.resume()
        assert "2 tasks read" in group.result()
    assert dict(contents(batch)).items() >= published.items()
    table = log_of(batch.ledger.store, "sums")
    assert (table.version(), table.to_pyarrow_table().num_rows) == (1, KEYS)


def contents(batch: SmallBatch) -> Iterator[tuple[str, bytes]]:
    """All objects of its store."""
    store = batch.ledger.store
    return ((entry.key, there(store.get(entry.key))) for entry in store.list(""))


def drivers(batch: SmallBatch) -> list[psutil.Process]:
    """The processes of applications that run a group of a batch."""
    found = psutil.process_iter(["cmdline"])
    return [process for process in found if {"--plan", batch.ref.plan_uri} <= {*(process.info["cmdline"] or ())}]
