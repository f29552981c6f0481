"""Every runner behaves alike: one suite over all of them, which leave the same receipts and the same findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest

from coset.batches.interpreter import run_batch
from coset.batches.ref import BatchRef
from coset.batches.runners.connect import Connect
from coset.batches.runners.local import Local
from coset.batches.runners.runner import Runner
from coset.batches.runners.spark import Spark
from coset.batches.runners.spark_server import SparkServer
from coset.batches.runners.spark_submit import SparkSubmit
from demo.s3_server import S3Server
from partitioning.documents.document import digest
from partitioning.errors import CosetError, Refused
from partitioning.model.receipt import Receipt
from partitioning.model.verdict import Decision, GivenUp, Verdict
from partitioning.values import replace
from tests.examples import few
from tests.held import held_batch, met, waits
from tests.small import ROWS, SmallBatch, land, small_batch, until
from tests.there import there

WRONG = "sum(CAST(k AS INTEGER)) AS v"
IN_THIS_PROCESS = "local in one process"
RUNNERS: dict[str, Callable[[SparkServer], Runner]] = {
    IN_THIS_PROCESS: lambda _: Local(processes=1),
    "local in two processes": lambda _: Local(processes=2),
    "connect": lambda server: Connect(server.address, token=server.token, master="nowhere"),
    "spark": lambda _: Spark("local[2]"),
    "spark-submit": lambda _: SparkSubmit("local[2]"),
}


@pytest.fixture(scope="module", params=few(RUNNERS, 3))
def runner(request: pytest.FixtureRequest, spark_server: SparkServer) -> Iterator[Runner]:
    with RUNNERS[request.param](spark_server) as made:
        yield made


@pytest.fixture(scope="module")
def source(s3: S3Server) -> str:
    return land()


@pytest.fixture(scope="module")
def done_here(source: str) -> SmallBatch:
    """The batch as this very process runs it."""
    batch = small_batch(source=source)
    with Local(processes=1) as here:
        for group in batch.plan.groups:
            here.group(batch.ref, group.group)
    return batch


def receipts(batch: SmallBatch) -> list[Receipt]:
    """The receipts without what differs from run to run: times, and the names that files got."""
    found = [batch.ledger.receipt(0, 0, group.group) for group in batch.plan.groups]
    return [
        replace(
            receipt,
            ran=None,
            tasks=tuple(map(_comparable, receipt.tasks)),
            keys=receipt.keys and replace(receipt.keys, path=""),
        )
        for receipt in found
        if receipt is not None
    ]


def _comparable(task):
    artefacts = tuple(replace(artefact, path=str(Path(artefact.path).parent.parent)) for artefact in task.artefacts)
    return replace(task, milliseconds=0, cpu_milliseconds=None, artefacts=artefacts)


def test_a_batch_leaves_the_same_receipts_whoever_runs_it(
    runner: Runner, source: str, done_here: SmallBatch, tmp_path: Path
) -> None:
    batch, shown = small_batch(source=source), list[tuple[str, list[str]]]()

    def show(name: str) -> nullcontext[list[str]]:
        shown.append((name, []))
        return nullcontext(shown[-1][1])

    assert digest(batch.plan) == digest(done_here.plan)
    run_batch(batch.ref, runner, tmp_path, show)
    assert receipts(batch) == receipts(done_here)
    assert [tuple(task.task for task in receipt.tasks) for receipt in receipts(batch)] == [
        group.tasks for group in batch.plan.groups
    ]
    assert sum(part.read for one in receipts(batch) for task in one.tasks for part in task.partitions) == ROWS
    assert {name: said[0].partition(":")[0] for name, said in shown if name.startswith("run")} == {
        f"run group {number}": f"group {number} of batch 0 of sums" for number in (0, 1)
    }
    assert batch.ledger.commit(0) is not None


def test_the_findings_of_all_tasks_come_back_with_their_kind(runner: Runner, source: str) -> None:
    batch = small_batch(WRONG, source)
    with pytest.raises(Refused) as caught:
        runner.group(batch.ref, 1)
    assert type(caught.value) is Refused
    (finding,) = caught.value.findings
    assert len(finding.places) == len(batch.plan.groups[1].tasks) == 2
    for place, task in zip(finding.places, batch.plan.groups[1].tasks, strict=True):
        assert "Could not convert string 'key-" in place.what
        assert place.where == f"table 'sums', task {task} of batch 0"
    assert batch.ledger.receipt(0, 0, 1) is None


def test_a_group_that_has_run_is_not_run_again(runner: Runner, done_here: SmallBatch) -> None:
    before = done_here.ledger.receipt(0, 0, 0)
    assert "nothing to do, attempt 0 has run" in runner.group(done_here.ref, 0)
    assert done_here.ledger.receipt(0, 0, 0) == before


def test_a_batch_that_is_decided_is_not_run(runner: Runner, source: str) -> None:
    batch = small_batch("min(v) AS v", source)
    batch.ledger.put_verdict(Verdict(digest(batch.plan), 0, Decision.ABANDON, 0, GivenUp("no longer wanted"), ()))
    assert "decided (abandon)" in runner.group(batch.ref, 0)
    assert batch.ledger.receipt(0, 0, 0) is None


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda ref: BatchRef(ref.plan_uri.replace("/plans/0", "/plans/7"), ref.digest), "no such plan"),
        (lambda ref: BatchRef(ref.plan_uri, "sha256:0"), "the plan is sha256:"),
    ],
)
def test_a_plan_that_is_not_the_one_meant_is_refused(
    change: Callable[[BatchRef], BatchRef], what: str, runner: Runner, done_here: SmallBatch
) -> None:
    with pytest.raises(Refused, match=what):
        runner.group(change(done_here.ref), 0)


def test_a_group_that_there_is_not_is_refused(runner: Runner, done_here: SmallBatch) -> None:
    with pytest.raises(Refused, match="no task group 9"):
        runner.group(done_here.ref, 9)


def test_after_a_failed_check_groups_run_as_a_new_attempt_and_may_be_asked_for_at_once(
    runner: Runner, source: str
) -> None:
    batch = small_batch("count(*) AS n", source)
    batch.ledger.close_attempt(0, 0, b"{}")
    with ThreadPoolExecutor(2) as pool:
        said = list(pool.map(partial(runner.group, batch.ref), (0, 1)))
    for number, sentence in enumerate(said):
        assert sentence.startswith(f"group {number} of batch 0 of sums: ")
        assert "attempt 1" in sentence
        receipt = there(batch.ledger.receipt(0, 1, number))
        paths = [artefact.path for task in receipt.tasks for artefact in task.artefacts]
        assert paths
        assert all("attempt-1" in path for path in paths)


def test_a_group_without_records_leaves_its_receipt(runner: Runner) -> None:
    batch = small_batch(source=land(keys=1))
    empty = next(group for group in batch.plan.groups if not group.records)
    assert f"{len(empty.tasks)} tasks read 0 records and wrote 0 rows" in runner.group(batch.ref, empty.group)
    receipt = there(batch.ledger.receipt(0, 0, empty.group))
    assert tuple(task.task for task in receipt.tasks) == empty.tasks


@pytest.mark.long
@pytest.mark.parametrize("kind", few([kind for kind in RUNNERS if kind != IN_THIS_PROCESS]))
def test_cancelling_ends_what_runs(kind: str, spark_server: SparkServer, tmp_path: Path) -> None:
    batch = held_batch(gate := tmp_path / "gate")
    with RUNNERS[kind](spark_server) as runner, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(runner.group, batch.ref, 0)
        assert until(lambda: met(gate) or asked.done())
        runner.cancel()
        with pytest.raises(CosetError) as caught:
            asked.result(timeout=60)
    assert type(caught.value) is CosetError
    assert batch.ledger.receipt(0, 0, 0) is None
    assert until(lambda: not waits(gate))


@pytest.mark.usefixtures("s3")
def test_cancelling_what_runs_in_this_process_begins_no_other_task(tmp_path: Path) -> None:
    batch = held_batch(gate := tmp_path / "gate")
    with Local(processes=1) as runner, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(runner.group, batch.ref, 0)
        assert until(lambda: met(gate) or asked.done())
        runner.cancel()
        gate.unlink()
        with pytest.raises(CosetError, match="the task group was ended"):
            asked.result()
    assert batch.ledger.receipt(0, 0, 0) is None


@pytest.mark.parametrize("kind", few(RUNNERS, 3))
def test_what_is_cancelled_runs_nothing_more(kind: str, spark_server: SparkServer, source: str) -> None:
    with RUNNERS[kind](spark_server) as made:
        made.cancel()
        batch = small_batch(source=source)
        with pytest.raises(CosetError):
            made.group(batch.ref, 0)
        assert batch.ledger.receipt(0, 0, 0) is None
