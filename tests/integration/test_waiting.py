"""A batch whose checks fail in the same way again and again: it waits, and one command plans it anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from coset.batches import steps
from coset.batches.pace import OpenBecause, open_because
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.errors import Refused
from partitioning.model.streams import NullKeys
from tests.real_batches import delays, land_delays
from tests.running import next_batch, run_and_publish


@pytest.fixture
def landed(store: Store) -> Store:
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


def test_a_batch_that_fails_twice_in_the_same_way_waits_and_says_for_what(landed: Store, tmp_path: Path) -> None:
    ledger = Ledger(landed, "delays")
    first = attempt(landed, tmp_path)
    assert open_because(ledger, ledger.standing()) is OpenBecause.FAILED
    second = attempt(landed, tmp_path)
    assert [finding.what for finding in first.findings] == [finding.what for finding in second.findings]
    assert 'declare null_keys="drop" or "own task" for the stream' in first.findings[0].then
    assert ledger.attempt(0) == 2
    assert open_because(ledger, ledger.standing()) is OpenBecause.WAITS
    waiting = attempt(landed, tmp_path)
    assert [finding.what for finding in waiting.findings] == [
        f"the batch waits, its checks failed twice in the same way: {finding.what}" for finding in first.findings
    ]
    assert ledger.attempt(0) == 2, "nothing was run"
    attempt(landed, tmp_path, again=True)
    assert ledger.attempt(0) == 3, "it was asked for again"


def test_a_batch_waits_too_if_many_rows_of_many_tasks_do_not_meet_an_expectation(landed: Store, tmp_path: Path) -> None:
    """Only the first of them are noted, and these are the same in each attempt."""
    wrong = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "delay", "max_value": -1}}
    pipeline = delays(landed, expect=[wrong])
    for expected in ("not met: delay", "not met: delay", "the batch waits"):
        with pytest.raises(Refused, match=expected):
            plan_and_publish(pipeline, landed, tmp_path, Settings.parse(scheme="tasks(12)"))


def test_one_command_plans_a_corrected_pipeline_anew_and_keeps_the_reason(landed: Store, tmp_path: Path) -> None:
    for _ in range(2):
        attempt(landed, tmp_path)
    abandoned, ref, sentence = steps.replan(delays(landed), landed.root, DEFAULTS, "planes may be unknown")
    assert abandoned == "Batch 0 is abandoned (planes may be unknown)"
    assert sentence.startswith("Batch 1 is planned: 121 records")
    assert ref is not None
    run_and_publish(ref, tmp_path)
    ledger = Ledger(landed, "delays")
    verdict = ledger.verdict(0)
    assert verdict is not None
    assert str(verdict.why) == "planes may be unknown"
    assert ledger.commit(1) is not None


def test_without_an_open_batch_there_is_nothing_to_plan_anew(landed: Store) -> None:
    with pytest.raises(Refused, match="no batch is open"):
        steps.replan(delays(landed), landed.root, DEFAULTS, "for no reason")
