"""Jobs on a Spark server whose client was killed: the next client reads their answers, and no job runs beside them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from coset.batches.runners.connect import Connect, lasting_job
from coset.batches.runners.connection import connected
from coset.batches.runners.given_settings import GIVEN
from coset.batches.runners.spark_server import SparkServer, start_spark
from demo.s3_server import S3Server
from partitioning.errors import CosetError
from spark_jobs.on_connect import run_orders
from tests.held import held_batch, met, waits
from tests.small import until

RECONNECTS = "reconnects to the job that was left on the Spark server"
OTHER = "ends the job that was left on the Spark server, which does something else, and begins anew"


def noting(folder: str) -> Callable[[bytes], bytes]:
    """What answers orders, and writes down each: one `waits` for a gate, and one `fails` behind it."""

    def answer(order: bytes) -> bytes:
        with (Path(folder) / "ran").open("ab") as file:
            file.write(order + b"\n")
        while order in {b"waits", b"fails"} and not (Path(folder) / "gate").exists():
            time.sleep(0.1)
        if order == b"fails":
            raise ValueError(order)
        return order.upper()

    return answer


@contextmanager
def lasting(
    server: SparkServer, folder: Path, orders: list[bytes], content: bytes, said: list[str]
) -> Iterator[list[bytes]]:
    """The answers of a job, which is the same one for the same folder and content."""
    with connected(server.address, server.token) as spark:

        def run() -> list[bytes]:
            return list(run_orders(spark, orders, noting(str(folder))))

        with lasting_job(spark, f"coset-{folder.name}", content, run, said.append, retried=True) as answers:
            yield list(answers)


def ran(folder: Path) -> list[bytes]:
    """The orders that were run, as often as they were."""
    return sorted((folder / "ran").read_bytes().split()) if (folder / "ran").exists() else []


@contextmanager
def killed(server: SparkServer, folder: Path, orders: list[bytes], then: str = "") -> Iterator[None]:
    """A client that asks for a job, and is killed when the context is left."""
    code = f"""
from pathlib import Path; from tests.spark.test_lasting_jobs import *
server = SparkServer(None, {server.port}, {server.token!r}, Path())
with lasting(server, Path({str(folder)!r}), {orders!r}, b"job", []): {then or "pass"}"""
    with subprocess.Popen([sys.executable, "-c", code]) as client:
        yield
        client.kill()


def test_a_job_that_was_left_is_read_from_its_first_answer_and_runs_once(
    spark_server: SparkServer, tmp_path: Path
) -> None:
    orders, said = [b"one", b"two", b"waits"], list[str]()
    with killed(spark_server, tmp_path, orders):
        assert until(lambda: ran(tmp_path) == sorted(orders))
        # Spark sends each answer as soon as those before it are there.
        time.sleep(3)
    (tmp_path / "gate").touch()
    with lasting(spark_server, tmp_path, orders, b"job", said) as answers:
        assert answers == [b"ONE", b"TWO", b"WAITS"]
    assert said == [RECONNECTS]
    assert ran(tmp_path) == sorted(orders)


@pytest.mark.long
def test_a_job_may_take_longer_than_a_server_sends_at_a_stretch(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(GIVEN, "spark.connect.execute.reattachable.senderMaxStreamDuration=1s")
    server = start_spark("local[2]", tmp_path / "spark.log")
    orders, said = [b"one", b"waits"], list[str]()
    try:
        with ThreadPoolExecutor(1) as pool:
            opened = lasting(server, tmp_path, orders, b"job", said)
            asked = pool.submit(opened.__enter__)
            assert until(lambda: ran(tmp_path) == orders)
            time.sleep(4)
            (tmp_path / "gate").touch()
            assert asked.result(timeout=60) == [b"ONE", b"WAITS"]
        opened.__exit__(None, None, None)
    finally:
        server.stop()
    assert ran(tmp_path) == orders


def test_a_job_that_ended_while_nobody_asked_is_not_run_again_until_its_answers_are_given_back(
    spark_server: SparkServer, tmp_path: Path
) -> None:
    orders, said = [b"one", b"two"], list[str]()
    with killed(spark_server, tmp_path, orders, f"Path({str(tmp_path / 'read')!r}).touch(); time.sleep(600)"):
        assert until((tmp_path / "read").exists)
    for _ in range(2):
        with lasting(spark_server, tmp_path, orders, b"job", said) as answers:
            assert answers == [b"ONE", b"TWO"]
    assert said == [RECONNECTS, "begins anew, as no job was left on the Spark server"]
    assert ran(tmp_path) == sorted(orders * 2)


def test_a_job_that_was_left_and_does_something_else_is_ended(spark_server: SparkServer, tmp_path: Path) -> None:
    said = list[str]()
    with killed(spark_server, tmp_path, [b"waits"]):
        assert until(lambda: ran(tmp_path) == [b"waits"])
    with lasting(spark_server, tmp_path, [b"other"], b"another job", said) as answers:
        assert answers == [b"OTHER"]
    assert said == [OTHER]
    with lasting(spark_server, tmp_path, [b"other"], b"job", said) as answers:
        assert answers == [b"OTHER"], "the job that was left is gone"


@pytest.mark.long
def test_a_job_that_was_left_and_failed_is_run_anew(spark_server: SparkServer, tmp_path: Path) -> None:
    said = list[str]()
    with killed(spark_server, tmp_path, [b"waits", b"fails"]):
        assert until(lambda: b"fails" in ran(tmp_path))
    (tmp_path / "gate").touch()
    with lasting(spark_server, tmp_path, [b"other"], b"job", said) as answers:
        assert answers == [b"OTHER"]
    reconnects, anew = said
    assert reconnects == RECONNECTS
    assert anew.startswith("begins anew, as the job that was left has failed: ")


@pytest.mark.long
def test_a_group_whose_client_was_killed_is_not_run_again(spark_server: SparkServer, tmp_path: Path) -> None:
    batch, said = held_batch(gate := tmp_path / "gate"), list[str]()
    code = f"""
from coset.batches.ref import BatchRef; from coset.batches.runners.connect import Connect
Connect({spark_server.address!r}).group(BatchRef{(batch.ref.plan_uri, batch.ref.digest)!r}, 0)"""
    with subprocess.Popen([sys.executable, "-c", code], env=os.environ | spark_server.environment) as client:
        assert until(partial(met, gate))
        client.kill()
    with (
        Connect(
            spark_server.address, token=spark_server.token, tell=lambda _, sentence: said.append(sentence)
        ) as runner,
        ThreadPoolExecutor(1) as pool,
    ):
        asked = pool.submit(runner.group, batch.ref, 0)
        assert until(lambda: said == [RECONNECTS])
        gate.unlink()
        assert "4 tasks read 50 records" in asked.result(timeout=60)
    receipt = batch.ledger.receipt(0, 0, 0)
    assert receipt is not None
    named = {file.path for task in receipt.tasks for file in task.artefacts}
    stored = {entry.key for entry in batch.ledger.store.list("") if "/attempt-0-" in entry.key}
    assert stored == named, "nothing was written twice"


def test_of_two_runs_of_a_group_the_later_takes_over(spark_server: SparkServer, tmp_path: Path) -> None:
    batch, said = held_batch(gate := tmp_path / "gate"), list[str]()
    first = Connect(spark_server.address, token=spark_server.token)
    later = Connect(spark_server.address, token=spark_server.token, tell=lambda _, sentence: said.append(sentence))
    with ThreadPoolExecutor(2) as pool:
        asked = pool.submit(first.group, batch.ref, 0)
        assert until(partial(met, gate))
        taking = pool.submit(later.group, batch.ref, 0)
        with pytest.raises(CosetError, match="another run of this group has taken over its Spark job"):
            asked.result(timeout=60)
        gate.unlink()
        assert "4 tasks read 50 records" in taking.result(timeout=60)
    assert said == [RECONNECTS]


def test_who_reconnected_ends_the_job_when_it_is_cancelled(spark_server: SparkServer, tmp_path: Path) -> None:
    batch = held_batch(gate := tmp_path / "gate")
    code = f"""
from coset.batches.ref import BatchRef; from coset.batches.runners.connect import Connect
Connect({spark_server.address!r}).group(BatchRef{(batch.ref.plan_uri, batch.ref.digest)!r}, 0)"""
    with subprocess.Popen([sys.executable, "-c", code], env=os.environ | spark_server.environment) as client:
        assert until(partial(met, gate))
        client.kill()
    said = list[str]()
    runner = Connect(spark_server.address, token=spark_server.token, tell=lambda _, sentence: said.append(sentence))
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(runner.group, batch.ref, 0)
        assert until(lambda: said == [RECONNECTS])
        runner.cancel()
        with pytest.raises(CosetError, match="the Spark job was ended"):
            asked.result(timeout=30)
    assert until(lambda: not waits(gate)), "its tasks end"
    assert said == [RECONNECTS], "nothing began anew"
