"""Task groups on a real YARN, with the driver here and with the driver there."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping

import pytest

from coset.batches.runners.spark import Spark
from coset.batches.runners.spark_settings import PYTHON
from coset.batches.runners.spark_submit import SparkSubmit
from demo.s3_server import S3Server
from tests.small import SLOW, small_batch, until
from tests.yarn import Yarn, yarn

# A process that may be killed.
SUBMIT = """
import json, sys
from coset.batches.ref import BatchRef
from coset.batches.runners.spark_submit import SparkSubmit
settings, batch = map(json.loads, sys.argv[1:])
SparkSubmit("yarn", "1GB", settings).group(BatchRef(**batch), 0)
"""

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yarn]:
    with yarn(tmp_path_factory.mktemp("yarn")) as cluster:
        yield cluster


@pytest.fixture
def hadoop(started: Yarn, monkeypatch: pytest.MonkeyPatch) -> Yarn:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(started.configuration))
    return started


@pytest.fixture
def driver_there(hadoop: Yarn, s3: S3Server) -> Mapping[str, str]:
    return hadoop.driver_there(s3.environment)


@pytest.mark.usefixtures("s3")
def test_a_group_runs_on_yarn(hadoop: Yarn) -> None:
    batch = small_batch()
    with Spark("yarn", "1GB", {**hadoop.settings, PYTHON: sys.executable}) as runner:
        assert "2 tasks read" in runner.group(batch.ref, 0)
    (application,) = hadoop.applications()
    assert until(lambda: hadoop.applications()[0]["finalStatus"] == "SUCCEEDED")
    assert application["applicationType"] == "SPARK"


def test_a_driver_in_yarn_outlives_who_submitted_it(hadoop: Yarn, driver_there: Mapping[str, str]) -> None:
    batch, before = small_batch(SLOW), {each["id"] for each in hadoop.applications()}

    def states() -> set[str]:
        return {each["state"] for each in hadoop.applications() if each["id"] not in before}

    asked = [json.dumps(driver_there), json.dumps(dataclasses.asdict(batch.ref))]
    submitter = subprocess.Popen([sys.executable, "-c", SUBMIT, *asked])
    try:
        assert until(lambda: states() == {"RUNNING"}, within=180)
    finally:
        submitter.kill()
        submitter.wait()
    assert batch.ledger.receipt(0, 0, 0) is None
    assert until(lambda: states() == {"FINISHED"}, within=180)
    assert batch.ledger.receipt(0, 0, 0) is not None
    submit = SparkSubmit("yarn", "1GB", driver_there)
    assert submit.group(batch.ref, 0) == "group 0 of batch 0 of sums: nothing to do, attempt 0 has run"
    assert states() == {"FINISHED"}, "nothing was submitted again"
    assert submit.group(batch.ref, 1) == "group 1 of batch 0 of sums: done; the log of its driver in yarn says more"
