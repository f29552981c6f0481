"""A Spark server that stays: who may use it, what it is sent, and what happens when it, or a client of it, is gone.

The next client reads the answers of a job whose client was killed, and no job runs beside it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import psutil
import pytest

from coset.batches.runners.connect import Connect, lasting_job
from coset.batches.runners.connection import connected
from coset.batches.runners.given_settings import GIVEN
from coset.batches.runners.spark_server import SparkServer, start_spark
from demo.s3_server import S3Server
from partitioning.errors import CosetError, Refused
from spark_jobs.on_connect import cores_of, run_orders
from tests.held import held_batch, met, waits
from tests.small import ENDLESS, SLOW, small_batch, until, working

CLOSED = "sc://127.0.0.1:1"


@pytest.fixture
def own_server(s3: S3Server, tmp_path: Path) -> Iterator[SparkServer]:
    """A server that a test may kill."""
    server = start_spark("local[2]", tmp_path / "spark.log")
    yield server
    server.stop()


def test_each_task_is_sent_its_own_order_and_no_other(spark_server: SparkServer) -> None:
    def whose(order: bytes) -> bytes:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        return b"%d ran %b" % (context.partitionId(), order)

    orders = [b"order %d" % number for number in range(7)]
    with connected(spark_server.address, spark_server.token) as spark:
        answers = run_orders(spark, orders, whose)
    assert answers == [b"%d ran order %d" % (number, number) for number in range(7)]


def test_a_server_says_how_many_tasks_it_runs_at_once(spark_server: SparkServer) -> None:
    with connected(spark_server.address, spark_server.token) as spark:
        assert cores_of(spark) == 2


def test_orders_may_be_larger_than_a_message(spark_server: SparkServer) -> None:
    orders = [os.urandom(3_000_000) for _ in range(3)]
    with connected(spark_server.address, spark_server.token) as spark:
        assert run_orders(spark, orders, lambda order: order[::-1]) == [order[::-1] for order in orders]


def test_clients_share_python_processes(spark_server: SparkServer) -> None:
    seen = []
    for _ in range(2):
        with connected(spark_server.address, spark_server.token) as spark:
            seen.append(run_orders(spark, [b""], lambda _: str(os.getppid()).encode()))
    assert seen[0] == seen[1]


def test_a_session_that_was_closed_for_ever_is_replaced(spark_server: SparkServer) -> None:
    with connected(spark_server.address, spark_server.token) as spark:
        spark.client.release_session()
    with connected(spark_server.address, spark_server.token) as spark:
        assert run_orders(spark, [b"one"], bytes.upper) == [b"ONE"]


@pytest.mark.parametrize("token", [None, "wrong"])
def test_nobody_without_the_token_is_served(
    token: str | None, spark_server: SparkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_CONNECT_AUTHENTICATE_TOKEN", raising=False)
    with (
        Connect(spark_server.address, token=token) as runner,
        pytest.raises(Refused, match="does not accept the token"),
    ):
        runner.group(small_batch().ref, 0)


def test_the_token_may_come_from_the_environment(spark_server: SparkServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in spark_server.environment.items():
        monkeypatch.setenv(name, value)
    with connected(os.environ["SPARK_MASTER"]) as spark:
        assert spark.version


def test_the_token_is_on_no_command_line_and_all_ports_are_on_loopback(spark_server: SparkServer) -> None:
    with connected(spark_server.address, spark_server.token) as spark:
        run_orders(spark, [b""], bytes.upper)
    server = psutil.Process(spark_server.process.pid)
    commands, listening = list[str](), set[str]()
    for member in (server, *server.children(recursive=True)):
        # A worker that ends meanwhile has neither.
        with suppress(psutil.NoSuchProcess):
            commands.append(" ".join(member.cmdline()))
            listening |= {at.laddr.ip for at in member.net_connections("tcp") if at.status == "LISTEN"}
    assert len(commands) > 1
    assert not [command for command in commands if spark_server.token in command]
    assert {ip.removeprefix("::ffff:") for ip in listening} == {"127.0.0.1"}


@pytest.mark.parametrize("address", ["sc://", "sc://127.0.0.1:15002/path", "sc://127.0.0.1:port", "spark://here:7077"])
def test_what_is_no_address_of_a_server_is_refused(address: str) -> None:
    with pytest.raises(Refused, match="not the address of a Spark server"):
        Connect(address)


@pytest.mark.long
def test_a_server_that_cannot_be_reached_is_named_and_the_group_submitted(s3: S3Server) -> None:
    batch = small_batch()
    with Connect(CLOSED, master="local[1]") as runner:
        said = runner.group(batch.ref, 0)
    assert said.startswith(
        f"the Spark server {CLOSED} cannot be reached; submitted instead: group 0 of batch 0 of sums: "
    )
    assert batch.ledger.receipt(0, 0, 0) is not None


@pytest.mark.long
def test_a_server_that_dies_in_the_middle_is_named_and_the_group_submitted(own_server: SparkServer) -> None:
    batch = small_batch(SLOW)
    with Connect(own_server.address, token=own_server.token, master="local[2]") as runner:
        with ThreadPoolExecutor(1) as pool:
            said = pool.submit(runner.group, batch.ref, 0)
            assert until(lambda: working(own_server.process.pid))
            own_server.process.kill()
        assert said.result().startswith(f"the Spark server {own_server.address} went away; submitted instead: group 0 ")
    assert batch.ledger.receipt(0, 0, 0) is not None


def test_cancelling_ends_the_job_on_the_server_and_nobody_elses(spark_server: SparkServer) -> None:
    batch, others = small_batch(ENDLESS), small_batch()
    with Connect(spark_server.address, token=spark_server.token) as runner, ThreadPoolExecutor(2) as pool:
        asked = pool.submit(runner.group, batch.ref, 0)
        assert until(lambda: working(spark_server.process.pid))
        with Connect(spark_server.address, token=spark_server.token) as other:
            waiting = pool.submit(other.group, others.ref, 0)
            runner.cancel()
            with pytest.raises(CosetError, match="the Spark job was ended"):
                asked.result(timeout=10)
            assert "2 tasks read" in waiting.result(timeout=60)
    assert batch.ledger.receipt(0, 0, 0) is None
    assert until(lambda: not working(spark_server.process.pid))


def test_the_session_of_a_step_on_dataframes_that_was_left_is_ended_by_the_next_client(
    spark_server: SparkServer,
) -> None:
    def session_of(rows: int) -> None:
        with Connect(spark_server.address, token=spark_server.token)._dataframes("a group", "coset-one") as spark:
            spark.sql("CREATE TEMP VIEW mine AS SELECT 1")
            spark.range(rows).selectExpr("sum(hash(id))").collect()

    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(session_of, 10**13)
        until(asked.done, within=5)
        session_of(3)
        assert isinstance(asked.exception(timeout=10), CosetError)


@pytest.mark.long
def test_a_server_ends_with_the_process_that_started_it(s3: S3Server, tmp_path: Path) -> None:
    code = f"""
from pathlib import Path; import time
from coset.batches.runners.spark_server import start_spark
print(start_spark("local[1]", Path({str(tmp_path / "spark.log")!r})).process.pid, flush=True)
time.sleep(600)"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        server = psutil.Process(int(parent.stdout.readline()))
        family = [server, *server.children(recursive=True)]
        parent.send_signal(signal.SIGKILL)
    assert psutil.wait_procs(family, timeout=20)[1] == []


def test_a_server_that_cannot_start_is_told_with_its_log(tmp_path: Path) -> None:
    with pytest.raises(CosetError, match="the Spark server does not start") as caught:
        start_spark("nonsense", tmp_path / "spark.log")
    assert "Master must either be yarn or start with" in Path(caught.value.findings[0].where).read_text()


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
from pathlib import Path; from tests.spark.test_connect import *
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
