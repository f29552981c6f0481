"""Executors as Kubernetes starts them: a pod of the image with the one word `executor`, and variables."""

from __future__ import annotations

import os
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from coset.batches.runners import children
from coset.batches.runners.children import free_ports
from coset.batches.runners.spark import Spark
from coset.batches.runners.spark_settings import PYTHON, environment
from demo.s3_server import S3Server
from spark_jobs.waiting_for_workers import LIMIT
from tests.hosts import HERE, QUICK, standalone
from tests.small import small_batch, until


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
