"""The steps of a batch as the DAG and commands share them: alone, waiting, and beside others that run it too."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pyarrow as pa
import pytest

from coset.batches import interpreter, publication, steps
from coset.batches.interpreter import BatchStep, OfBatch, run_batch
from coset.batches.pace import OpenBecause, open_because
from coset.batches.ref import BatchRef
from coset.batches.runners.local import Local
from coset.batches.turns import Turn, Turns, group_work
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.documents.document import encode
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.errors import Refused
from partitioning.model.streams import NullKeys
from partitioning.values import replace
from tests.landed import land_table
from tests.logs import log_of
from tests.real_batches import delays, land_delays, stored
from tests.running import next_batch, run_and_publish, run_groups
from tests.small import SmallBatch, small_batch, until

KEYS = [f"N{number}" for number in range(40)]


def landed(store: Store, *expect: dict[str, object]) -> Pipeline:
    """Forty keys in four partitions, one of them landed twice, and records without a key."""
    source = f"{store.root}/topics"
    table = pa.table({"tailnum": pa.array([*KEYS, "N7", None, None], pa.string()), "delay": list(range(43))})
    land_table(table, "flights", source, key="tailnum", partitions=4)
    pipeline = Pipeline("delays", source=source)
    flights = pipeline.stream("flights", key="tailnum", partitions=4, null_keys="drop")
    flights.aggregate("count(*) AS flights, max(delay) AS delay", name="tails").write("delays", expect=expect)
    return pipeline


def planned(store: Store, pipeline: Pipeline, groups: int = 2) -> BatchRef:
    return next_batch(pipeline, store.root, Settings(groups=groups))


def test_an_audit_counts_records_and_not_what_steps_kept(store: Store, tmp_path: Path) -> None:
    pipeline = Pipeline("seen", source=f"{store.root}/topics")
    flights = pipeline.stream("flights", key="tailnum", partitions=4)
    flights.latest("delay", name="newest").rekey("to").aggregate("count(*) AS n").write("delays", mode="upsert")
    for _ in range(2):
        table = pa.table({"tailnum": KEYS, "delay": list(range(40)), "to": ["FRA", "LIS"] * 20})
        land_table(table, "flights", f"{store.root}/topics", key="tailnum", partitions=4)
        ref = planned(store, pipeline)
        run_groups(ref)
        assert "is audited: 40 records planned, 40 taken, 0 dropped" in steps.audit(ref)
        steps.check(ref, tmp_path)
        steps.publish(ref)


def test_a_batch_is_published_and_every_step_may_be_run_again(store: Store, tmp_path: Path) -> None:
    pipeline = landed(store)
    ref = planned(store, pipeline)
    run_groups(ref)
    assert "43 records planned, 41 taken, 2 dropped" in steps.audit(ref)
    assert steps.check(ref, tmp_path).startswith("Batch 0 is decided: publish, attempt 0")
    assert steps.publish(ref) == "Batch 0 is published: delays at version 1"

    assert steps.audit(ref) == steps.check(ref, tmp_path)
    assert steps.publish(ref) == "Batch 0 is published: delays at version 1"
    assert steps.plan(pipeline, store.root) == (
        None,
        "Nothing to do: no new records since batch 0 (all 43 landed records are committed)",
    )
    rows = log_of(store, "delays").to_pyarrow_table()
    assert {row["tailnum"]: (row["flights"], row["delay"]) for row in rows.to_pylist()} == {
        key: (2, 40) if key == "N7" else (1, number) for number, key in enumerate(KEYS)
    }


def test_a_plan_taken_up_again_is_the_same_batch(store: Store) -> None:
    pipeline = landed(store)
    assert planned(store, pipeline) == planned(store, pipeline, groups=4)


def test_a_failed_check_publishes_nothing_and_the_next_run_makes_another_attempt(store: Store, tmp_path: Path) -> None:
    kwargs = {"column": "flights", "max_value": 1}
    ref = planned(store, landed(store, {"type": "expect_column_values_to_be_between", "kwargs": kwargs}))
    ledger, _ = ref.load()
    run_groups(ref)
    steps.audit(ref)
    with pytest.raises(Refused, match="'N7'") as refusal:
        steps.check(ref, tmp_path)
    assert len(refusal.value.findings) == 1
    assert (ledger.verdict(0), ledger.attempt(0)) == (None, 1)
    stored = store.get("delays/audits/0/attempt-0/judgement.json")
    assert stored is not None
    assert json.loads(stored)["success"] is False
    with pytest.raises(Refused, match="not decided"):
        steps.publish(ref)
    assert publication.transaction_version(store, "delays", "delays") is None
    shown = steps.report(ref, tmp_path).splitlines()
    failed = next(number for number, line in enumerate(shown) if line.startswith("- Attempt 0 failed: "))
    offender, step = shown[failed + 1], shown[failed + 2]
    assert offender.startswith("  - ")
    assert "at offset" in offender
    assert step.startswith("  - Next: `coset ")
    page = (tmp_path / "delays/batch-0-attempt-0.html").read_text()
    assert "<h3>Column flights</h3>" in page
    assert "&lt;h3" not in page

    with pytest.raises(Refused, match="has no receipt"):
        steps.audit(ref)
    run_groups(ref)
    assert "attempt 1" in steps.audit(ref)


def test_a_check_that_runs_before_its_audit_is_refused_and_leaves_the_attempt_open(
    store: Store, tmp_path: Path
) -> None:
    ref = planned(store, landed(store))
    run_groups(ref)
    with pytest.raises(Refused, match="audit table is missing"):
        steps.check(ref, tmp_path)
    assert ref.load()[0].attempt(0) == 0


def test_the_report_says_what_was_read_decided_and_published(store: Store, tmp_path: Path) -> None:
    ref = planned(store, landed(store))
    assert "The batch is not decided yet" in steps.report(ref, tmp_path)
    run_groups(ref)
    steps.audit(ref)
    steps.check(ref, tmp_path)
    steps.publish(ref, tmp_path)
    text = steps.report(ref, tmp_path)
    (row,) = [line for line in text.splitlines() if line.startswith("| flights | flights")]
    assert [cell.strip() for cell in row.split("|")[3:-1]] == ["43", "41", "2", "0", "40"]
    assert "Batch 0 is published: delays at version 1" in text
    assert ref.plan_uri in text
    docs = tmp_path / "delays" / "index.html"
    assert docs.is_file()
    assert str(docs) in text


def test_an_abandoned_batch_is_reported_and_not_published(store: Store, tmp_path: Path) -> None:
    ref = planned(store, landed(store))
    ledger, _ = ref.load()
    publication.abandon(ledger, "landed twice")
    assert steps.check(ref, tmp_path).startswith("Batch 0 is decided: abandon, attempt 0 (landed twice), 20")
    with pytest.raises(Refused, match="abandon"):
        steps.publish(ref)
    assert "Nothing is published yet" in steps.report(ref, tmp_path)


def test_a_reference_to_another_plan_is_refused(store: Store) -> None:
    ref = planned(store, landed(store))
    for wrong, said in {
        BatchRef(ref.plan_uri, "sha256:0"): "expected was sha256:0",
        BatchRef(ref.plan_uri.replace("0.json", "1.json"), ref.digest): "no such plan",
        BatchRef(ref.plan_uri.replace("0.json", "zero.json"), ref.digest): "no plan's URI",
        BatchRef(f"{store.root}/delays/verdicts/0.json", ref.digest): "no plan's URI",
    }.items():
        with pytest.raises(Refused, match=said):
            wrong.load()


def test_a_group_is_labelled_by_its_tasks_and_bytes_within_what_airflow_keeps(store: Store) -> None:
    ref = next_batch(landed(store), store.root, Settings.parse(groups=1, scheme="tasks(80)"))
    (text,) = steps.group_labels(ref).values()
    assert text.startswith("group 0: flights/0 1 2 3 ")
    assert text.endswith(" … (0.1 MB)")
    assert len(text) <= 250


@pytest.fixture
def landed_once(store: Store) -> Store:
    """Among the flights is one whose plane is not known."""
    return land_delays(store)


def refused(store: Store) -> Pipeline:
    return delays(store, null_keys=NullKeys.REFUSE)


def attempt(store: Store, docs: Path, *, again: bool = False) -> Refused:
    with pytest.raises(Refused) as caught:
        plan_and_publish(refused(store), store, docs, again=again)
    return caught.value


def plan_and_publish(
    pipeline: Pipeline, store: Store, docs: Path, settings: Settings = DEFAULTS, *, again: bool = False
) -> None:
    run_and_publish(next_batch(pipeline, store.root, settings, again=again), docs)


def test_a_batch_that_fails_twice_in_the_same_way_waits_and_says_for_what(landed_once: Store, tmp_path: Path) -> None:
    ledger = Ledger(landed_once, "delays")
    first = attempt(landed_once, tmp_path)
    assert open_because(ledger, ledger.standing()) is OpenBecause.FAILED
    second = attempt(landed_once, tmp_path)
    assert [finding.what for finding in first.findings] == [finding.what for finding in second.findings]
    assert 'declare null_keys="drop" or "own task" for the stream' in first.findings[0].then
    assert ledger.attempt(0) == 2
    assert open_because(ledger, ledger.standing()) is OpenBecause.WAITS
    waiting = attempt(landed_once, tmp_path)
    assert [finding.what for finding in waiting.findings] == [
        f"the batch waits, its checks failed twice in the same way: {finding.what}" for finding in first.findings
    ]
    assert ledger.attempt(0) == 2, "nothing was run"
    attempt(landed_once, tmp_path, again=True)
    assert ledger.attempt(0) == 3, "it was asked for again"


def test_a_batch_waits_too_if_many_rows_of_many_tasks_do_not_meet_an_expectation(
    landed_once: Store, tmp_path: Path
) -> None:
    """Only the first of them are noted, and these are the same in each attempt."""
    wrong = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "delay", "max_value": -1}}
    pipeline = delays(landed_once, expect=[wrong])
    for expected in ("not met: delay", "not met: delay", "the batch waits"):
        with pytest.raises(Refused, match=expected):
            plan_and_publish(pipeline, landed_once, tmp_path, Settings.parse(scheme="tasks(12)"))


def test_one_command_plans_a_corrected_pipeline_anew_and_keeps_the_reason(landed_once: Store, tmp_path: Path) -> None:
    for _ in range(2):
        attempt(landed_once, tmp_path)
    abandoned, ref, sentence = steps.replan(delays(landed_once), landed_once.root, DEFAULTS, "planes may be unknown")
    assert abandoned == "Batch 0 is abandoned (planes may be unknown)"
    assert sentence.startswith("Batch 1 is planned: 121 records")
    assert ref is not None
    run_and_publish(ref, tmp_path)
    ledger = Ledger(landed_once, "delays")
    verdict = ledger.verdict(0)
    assert verdict is not None
    assert str(verdict.why) == "planes may be unknown"
    assert ledger.commit(1) is not None


def test_without_an_open_batch_there_is_nothing_to_plan_anew(landed_once: Store) -> None:
    with pytest.raises(Refused, match="no batch is open"):
        steps.replan(delays(landed_once), landed_once.root, DEFAULTS, "for no reason")


WORK = group_work(0)
# Longer than a test may take: who is waited for so long is not taken for gone.
PATIENT, IMPATIENT = 3600.0, 0.5


@pytest.fixture
def batch(s3: object) -> SmallBatch:
    return small_batch()


def turns(batch: SmallBatch, silent: float = PATIENT) -> Turns:
    return Turns(batch.ledger, batch.plan, beat=0.05, silent=silent)


def hold(batch: SmallBatch, turn: Turn) -> None:
    """Let the process of a turn have it."""
    batch.ledger.store.put(batch.ledger.key("turns", 0, WORK), encode(turn))


def take(of: Turns, wait: bool = True) -> bool:
    with of.turn(WORK, wait=wait) as ours:
        return ours


@pytest.mark.parametrize("at_once", [1, 2])
def test_runners_of_one_batch_share_its_groups(
    at_once: int, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Local, "at_once", at_once)
    ref = stored(land_delays(store), delays(store), settings=Settings(groups=4))
    said = list[tuple[str, str]]()

    @contextmanager
    def show(name: str) -> Iterator[list[str]]:
        words = list[str]()
        yield words
        said.extend((name, sentence) for sentence in words)

    def run(number: int) -> None:
        with Local(processes=1) as runner:
            run_batch(ref, runner, tmp_path / str(number), show)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, range(4)))
    assert sorted(name for name, sentence in said if "wrote" in sentence) == [f"run group {n}" for n in range(4)]
    assert all("nothing to do" in sentence for name, sentence in said if name.startswith("wait for"))
    ledger, plan = ref.load()
    verdict = ledger.verdict(plan.batch)
    assert verdict is not None
    written = {entry.key for entry in store.list("tables/delays/data/")}
    assert written
    assert written <= {artefact.path for artefact in verdict.artefacts}
    assert not list(store.list("delays/turns/"))


def test_a_turn_is_had_by_one_at_a_time_and_then_by_the_next(batch: SmallBatch) -> None:
    with ThreadPoolExecutor(1) as pool:
        with turns(batch).turn(WORK, wait=False) as ours:
            assert ours
            assert not take(turns(batch), wait=False)
            # It is heard of, so it is waited for.
            waiting = pool.submit(take, turns(batch, IMPATIENT))
            time.sleep(3 * IMPATIENT)
            assert not waiting.done()
        assert waiting.result(timeout=60)


def test_a_process_that_has_ended_is_not_waited_for(batch: SmallBatch) -> None:
    program = "from coset.batches.turns import Turn; from partitioning.documents.document import encode; "
    program += "import sys; sys.stdout.buffer.write(encode(Turn.of_this_process()))"
    ended = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True).stdout
    batch.ledger.store.put(batch.ledger.key("turns", 0, WORK), ended)
    assert not take(turns(batch), wait=False)
    assert take(turns(batch))


def test_a_process_elsewhere_is_waited_for_as_long_as_it_is_heard_of(batch: SmallBatch) -> None:
    elsewhere = replace(Turn.of_this_process(), host="elsewhere.example")
    hold(batch, elsewhere)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(take, turns(batch, silent=IMPATIENT))
        for beats in range(1, 20):
            hold(batch, replace(elsewhere, beats=beats))
            time.sleep(IMPATIENT / 10)
            assert not waiting.done()
        assert waiting.result(timeout=60)


def test_who_is_told_to_end_waits_for_nobody(batch: SmallBatch) -> None:
    hold(batch, replace(Turn.of_this_process(), host="elsewhere.example"))
    ended = turns(batch)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(take, ended)
        assert not waiting.done()
        ended.cancel()
        assert not waiting.result(timeout=60)


def test_what_another_could_not_do_is_tried(batch: SmallBatch, tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool, turns(batch).turn(WORK, wait=False):
        waiting = pool.submit(run_and_publish, batch.ref, tmp_path)
        # All others have run by then.
        assert until(lambda: batch.ledger.receipt(0, 0, 1) is not None)
        assert batch.ledger.receipt(0, 0, 0) is None
    waiting.result(timeout=60)
    assert batch.ledger.receipt(0, 0, 0) is not None


def test_a_turn_that_nobody_wrote_is_refused(batch: SmallBatch) -> None:
    batch.ledger.store.put(batch.ledger.key("turns", 0, WORK), b"{}")
    with pytest.raises(Refused, match="turns/0/group-0"):
        take(turns(batch))


def test_all_steps_that_are_listed_are_done_in_their_order_and_turn(
    batch: SmallBatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def turns_taken(ref: BatchRef, _: object) -> str:
        return str([entry.key for entry in ref.load()[0].store.list("sums/turns/")])

    extra = BatchStep("weigh", "Say whose turn it is.", OfBatch(turns_taken, turn="weigh"))
    monkeypatch.setattr(interpreter, "STEPS", (*interpreter.STEPS, extra))
    shown, pages = list[tuple[str, list[str]]](), list[str]()

    def show(name: str) -> nullcontext[list[str]]:
        shown.append((name, []))
        return nullcontext(shown[-1][1])

    with Local(processes=1) as runner:
        run_batch(batch.ref, runner, tmp_path, show, show_page=pages.append)
    assert [name for name, _ in shown] == ["run group 0", "run group 1", "audit", "check", "publish", "weigh"]
    assert shown[-1][1] == [f"['{batch.ledger.key('turns', 0, 'weigh')}']"]
    assert [page.partition("\n")[0] for page in pages] == ["## sums, batch 0: ✓ proved"]
