"""Objects of state that were lost: whoever meets that is told the command that makes them anew, and it does."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from coset.batches.backfills import actions
from coset.batches.backfills.actions import Asked
from coset.batches.backfills.request import backfills
from coset.batches.backfills.swaps import cancelled
from coset.batches.interpreter import silently
from coset.batches.kept import kept_states
from coset.batches.ref import BatchRef
from coset.batches.restoring import restore
from coset.batches.runners.local import Local
from coset.batches.sweeping import sweep
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.artefact import Artefact
from tests import functions
from tests.backfilled import Batches, counted, stored
from tests.begun import Begun
from tests.commands import coset, refused, succeeded
from tests.histories import Click, History, Oracle, pipeline_of
from tests.refused import finding_of
from tests.running import run_groups
from tests.three_batches import NEWEST, three_batches

__all__ = ["three_batches"]


def state_of(store: Store, batch: int) -> list[Artefact]:
    """The objects of state that a batch left, and the next goes on from."""
    runs = [
        run for state in kept_states(Ledger(store, "kept")) for run in zip(state.read.runs, state.runs, strict=True)
    ]
    return [file for run, files in runs if run.batch == batch for file in files]


def restored(store: Store) -> list[str]:
    with Local(processes=1) as runner:
        return [file.path for file in restore("kept", store, runner, silently)]


def clicks(batch: int) -> list[Click]:
    return [Click(f"key-{key}", 10 * batch + key, batch + 1) for key in range(2 * batch, 9)]


TWO = Settings.parse(scheme="tasks(2)")


def batches(store: Store, count: int) -> tuple[History, Oracle, BatchRef]:
    """So many published batches of all kinds of state, and one more that is planned."""
    history, oracle = History(store, Path()), Oracle()
    for number in range(count):
        history.land(clicks(number), clicks(number)[:3], 4)
        wanted = oracle.batch(clicks(number), clicks(number)[:3])
        assert history.publish(history.plan(TWO, 4), judged=False) == wanted
    history.land(clicks(count), clicks(count)[:3], 4)
    return history, oracle, history.plan(TWO, 4)


def one_batch(store: Store) -> None:
    batches(store, 1)


@pytest.fixture
def one(begun: Begun) -> Store:
    """A published batch, and one more that is planned."""
    return begun.by(one_batch)


@pytest.mark.parametrize("damaged", [False, True])
def test_are_made_anew_as_they_were(damaged: bool, store: Store) -> None:
    history, oracle, ref = batches(store, 3)
    gone = sorted({batch: state_of(store, batch)[-1].path for batch in range(3) if state_of(store, batch)}.values())
    assert gone
    before = {path: store.get(path) for path in gone}
    for path in gone:
        store.put(path, b"damaged") if damaged else store.delete(path)
    with pytest.raises(Refused) as told:
        run_groups(ref)
    assert {finding.kind for finding in told.value.findings} == {Kind.STATE_GONE}
    assert {finding.then for finding in told.value.findings} == {"`coset restore kept`"}
    assert sorted(restored(store)) == gone
    assert {path: store.get(path) for path in gone} == before
    # The batch that met it goes on, under the plan that it has.
    assert history.publish(ref, judged=False) == oracle.batch(clicks(3), clicks(3)[:3])
    assert restored(store) == []
    # What was run again is left over.
    sweep(pipeline_of(f"{store.root}/topics", 4), store)
    assert not [key for key in stored(store) if re.search(r"\.backfill-\d+/left/", key)]
    assert {one.number for one in backfills(store, "kept")} == cancelled(store, "kept").keys()


@pytest.mark.long
def test_are_made_anew_from_what_was_lost_as_well(store: Store, tmp_path: Path) -> None:
    """What the lost object was made from is gone too: it is made first."""
    history = Batches(store, tmp_path)
    for number in range(3):
        history.batch(number)
    gone = [key for key in stored(store) if "/left/" in key and "newest" in key]
    assert {key.split("/left/")[1].partition("/")[0] for key in gone} == {"0", "1", "2"}
    for key in gone:
        store.delete(key)
    assert restored(store)
    history.batch(3)
    newest = {f"key-{(n + key) % 13}": 10 * n + key for n in range(4) for key in range(9)}
    assert [row[:2] for row in history.seen("newest")] == sorted(newest.items())


def test_that_were_stopped_go_on(one: Store) -> None:
    store, gone = one, state_of(one, 0)[0]
    store.delete(gone.path)

    class Stopped(Local):
        def group(self, batch: BatchRef, number: int) -> str:
            super().group(batch, number)
            raise KeyboardInterrupt

    with Stopped(processes=1) as runner, pytest.raises(KeyboardInterrupt):
        restore("kept", store, runner, silently)
    assert restored(store) == [gone.path]
    assert [one.number for one in backfills(store, "kept")] == [0]


def newest(name: str) -> Callable[[str, int], Pipeline]:
    def pipeline(source: str, partitions: int) -> Pipeline:
        one = Pipeline("kept", source=source)
        one.stream("clicks", key="k", partitions=partitions).latest("seen", name=name).write("newest", mode="upsert")
        return one

    return pipeline


def test_whose_input_is_gone_are_told_before_anything_runs(store: Store, tmp_path: Path) -> None:
    history, again = (History(store, tmp_path, newest(name)) for name in ("newest", "another"))
    for number in range(2):
        history.land(clicks(number), [], 4)
        history.publish(history.plan(Settings(), 4), judged=False)
    (lost, *_) = state_of(store, 0)
    store.delete(lost.path)
    landed = next(key for key in stored(store) if key.startswith("topics/clicks/"))
    store.delete(landed)
    before = stored(store)
    finding = finding_of(restored, store)
    assert (finding.kind, finding.where) == (Kind.STATE_GONE, f"{store.root}/{landed}")
    assert "restore the file as it was" in finding.then
    assert "rename newest and let it begin anew under the new name" in finding.then
    assert stored(store) == before
    # As it says.
    again.land(clicks(2), [], 4)
    again.publish(again.plan(Settings(begin_anew=("another",)), 4), judged=False)


def test_that_come_out_otherwise_are_told(one: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that gives another answer each time cannot make again what it kept."""
    store = one
    (gone, *_) = [file for file in state_of(store, 0) if "streak" in file.name]
    store.delete(gone.path)
    first = functions.streak

    def forgetful(clicks: pa.Table, kept: pa.Table) -> tuple[pa.Table, pa.Table]:
        rows, keeps = first(clicks, kept)
        return rows, keeps.slice(1)

    monkeypatch.setattr(functions, "streak", forgetful)
    with pytest.raises(Refused, match="now writes other state than the lost one"):
        restored(store)
    assert store.head(gone.path) is None


def test_are_refused_wherever_they_are_read(three_batches: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(three_batches, "newest")
    for state in kept_states(ledger):
        for file in (file for run in state.runs for file in run):
            three_batches.delete(file.path)
    again = f"`coset restore {NEWEST} --store {three_batches.root}"
    refused(coset("state", NEWEST, "newest"), f"{again}`")
    words = ("backfill", NEWEST, "--from", "2", "--scheme", "tasks(2)", "--runner", "local")
    result = coset(*words)
    assert result.exit_code == 3, result.output
    assert f"{again} --runner local`" in result.stderr
    done = succeeded("restore", NEWEST, "--runner", "local")
    assert re.search(r"Made anew: \d+ objects? of state", done.stdout)
    succeeded("state", NEWEST, "newest")
    assert "There is nothing to make anew" in coset("restore", NEWEST, "--runner", "local").stdout
    succeeded(*words)


@pytest.mark.long
def test_are_no_reason_for_a_traceback_in_a_comparison(store: Store, tmp_path: Path) -> None:
    history = Batches(store, tmp_path, counted)
    for number in range(2):
        history.batch(number)
    backfill = history.backfilled(Asked(0, 1, Settings()))
    for state in kept_states(Ledger(store, "kept")):
        for file in (file for run in state.runs for file in run):
            store.delete(file.path)
    with pytest.raises(Refused, match="coset restore kept"):
        actions.comparison(store, backfill)
