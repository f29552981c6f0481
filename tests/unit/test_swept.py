"""What sweeping looks at: the newest batches, those since the last time, and those of which it kept something."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from coset.batches.backfills.request import comparison_key
from coset.batches.sweeping import left_over, sweep, swept
from partitioning.documents.document import digest, encode
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Entry
from partitioning.model.backfill import Backfill, Swap, SwapKind, key_of
from partitioning.model.placement import MURMUR2, KeyFormat, Placement
from partitioning.model.plan import Plan
from partitioning.model.receipt import Artefact, Role
from partitioning.model.stage_inputs import StateInput, StateRun
from partitioning.model.verdict import Decision, GivenUp, Verdict
from partitioning.values import replace
from tests.counts import Counts
from tests.memory_store import MemoryStore
from tests.plans import plan_of, tails, tails_found

PIPELINE = tails()
BASE = plan_of(PIPELINE, tails_found())


class Listing(MemoryStore):
    """Notes what is listed and what is fetched."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.listed, self.gets = list[str](), list[str]()

    def get(self, key: str) -> bytes | None:
        self.gets.append(key)
        return super().get(key)

    def list(self, prefix: str, limit: int | None = None) -> Iterator[Entry]:
        self.listed.append(prefix)
        return super().list(prefix, limit)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    # Its tables have no log there.
    return Ledger(Listing(f"file://{tmp_path}"), PIPELINE.name)


def planned(ledger: Ledger, batches: range) -> None:
    for batch in batches:
        before = ledger.plan(batch - 1) if batch else None
        ledger.put_plan(replace(BASE, batch=batch, parent=digest(before) if before else None))


def decided(ledger: Ledger, batches: range) -> None:
    for batch in batches:
        plan = ledger.plan(batch)
        assert isinstance(plan, Plan)
        ledger.put_verdict(Verdict(digest(plan), batch, Decision.PUBLISH, 0, GivenUp("because"), ()))


def published(ledger: Ledger, batches: range) -> None:
    planned(ledger, batches)
    decided(ledger, batches)


def orphan(ledger: Ledger, batch: int, name: str = "late") -> str:
    key = f"tables/tail_activity/data/plan-{batch}/attempt-0-{name}/flights-0.parquet"
    ledger.store.put(key, b"PAR1")
    return key


def swept_away(ledger: Ledger, *, everything: bool = False) -> list[str]:
    return [file.key for file in sweep(PIPELINE, ledger.store, everything=everything).files]


def test_the_first_sweep_looks_at_all_batches_and_later_ones_at_new_ones(ledger: Ledger) -> None:
    published(ledger, range(30))
    old = orphan(ledger, 3)
    assert swept_away(ledger) == [old]
    published(ledger, range(30, 45))
    new = orphan(ledger, 31)
    assert swept_away(ledger) == [new]
    assert swept_away(ledger) == []


def test_what_a_sweep_goes_through_is_counted(ledger: Ledger) -> None:
    published(ledger, range(3))
    orphan(ledger, 1)
    orphan(ledger, 1, "again")
    orphan(ledger, 2)
    counts = Counts()
    sweep(PIPELINE, ledger.store, counting=counts)
    assert counts.ended == ["4 of 4 folders listed", "2 of 2 batches looked at", "3 of 3 files removed"]


def test_what_a_sweep_costs_does_not_grow_with_the_batches_before(ledger: Ledger) -> None:
    assert isinstance(ledger.store, Listing)
    costs = list[int]()
    for batches in (range(40), range(40, 160)):
        published(ledger, batches)
        sweep(PIPELINE, ledger.store)
        ledger.store.listed.clear()
        sweep(PIPELINE, ledger.store)
        costs.append(len(ledger.store.listed))
    assert costs[0] == costs[1] < 60
    assert "tables/tail_activity/data/" not in ledger.store.listed


def test_a_sweep_fetches_what_is_known_of_each_backfill_once_however_many_there_were(ledger: Ledger) -> None:
    assert isinstance(ledger.store, Listing)
    published(ledger, range(20))
    for number in range(30):
        again = Backfill(PIPELINE.name, number, (3,), "", "ana", "why", "now")
        ledger.store.put_new(key_of(PIPELINE.name, number), encode(again))
        Ledger(ledger.store, again.name).put_plan(replace(BASE, batch=3, pipeline=again.name))
        ledger.store.put_new(comparison_key(again), b"{}")
        if number % 2:
            turned(ledger, again, number // 2, SwapKind.CANCEL)
    for batch in range(10, 20):
        orphan(ledger, batch)
    ledger.store.gets.clear()
    left_over(PIPELINE, ledger.store)
    there = Counter(key for key in ledger.store.gets if ledger.store.head(key))
    assert max(there.values()) == 1
    of_backfills = Counter(key.split("/")[1] for key in there if ".backfill-" in key)
    assert of_backfills == {"backfill.json": 30}


def test_a_batch_that_was_open_is_looked_at_again_however_many_come_after(ledger: Ledger) -> None:
    published(ledger, range(2))
    planned(ledger, range(2, 3))
    file = orphan(ledger, 2)
    assert swept_away(ledger) == []
    assert swept(ledger.store, PIPELINE.name) is not None
    decided(ledger, range(2, 3))
    published(ledger, range(3, 40))
    assert swept_away(ledger) == [file]


def test_a_file_that_comes_late_goes_with_the_newest_batches_or_when_all_is_looked_at(ledger: Ledger) -> None:
    published(ledger, range(40))
    assert swept_away(ledger) == []
    late, too_late = orphan(ledger, 35), orphan(ledger, 5)
    assert swept_away(ledger) == [late]
    assert left_over(PIPELINE, ledger.store).files == ()
    assert [file.key for file in left_over(PIPELINE, ledger.store, everything=True).files] == [too_late]
    assert swept_away(ledger, everything=True) == [too_late]


def test_the_files_of_a_backfill_go_when_it_is_cancelled_long_after_its_batches(ledger: Ledger) -> None:
    published(ledger, range(40))
    sweep(PIPELINE, ledger.store)
    again = Backfill(PIPELINE.name, 0, (4, 5), "", "ana", "why", "now")
    ledger.store.put_new(key_of(PIPELINE.name, 0), encode(again))
    plan = ledger.plan(4)
    assert plan is not None
    Ledger(ledger.store, again.name).put_plan(replace(plan, pipeline=again.name))
    file = orphan(ledger, 4, "again")
    # The backfill may still name it.
    assert swept_away(ledger) == []
    over = Swap(PIPELINE.name, 0, 0, SwapKind.CANCEL, (4, 5), False, "", who="ana", why="why", at="now")
    ledger.store.put_new(f"{PIPELINE.name}/swaps/0.json", encode(over))
    assert swept_away(ledger) == [file]
    assert swept_away(ledger) == []


def kept_by_backfill(ledger: Ledger, batches: range) -> tuple[Backfill, str]:
    """A backfill of these batches, compared, whose last one goes on from the state that its first one left."""
    again = Backfill(PIPELINE.name, 0, tuple(batches), "", "ana", "why", "now")
    ledger.store.put_new(key_of(PIPELINE.name, 0), encode(again))
    run, (stage, *_) = Ledger(ledger.store, again.name), BASE.stages
    key = f"{again.name}/left/{batches[0]}/attempt-0-again/joined.state/flights-0.arrow"
    ledger.store.put(key, b"rows")
    state = Artefact(Role.STATE, "joined.state", key, 4, "", "", 1)
    place = Placement("tailnum", KeyFormat.STRING, MURMUR2, 1)
    read = StateInput("joined.state", "joined", place, batches[-2], (), (StateRun(batches[0], "sha256:0", 1),))
    for batch in batches:
        reads = (replace(stage, inputs=(*stage.inputs, read)),) if batch == batches[-1] else (stage,)
        plan = run.put_plan(replace(BASE, batch=batch, pipeline=again.name, stages=reads))
        named = (state,) if batch == batches[0] else ()
        run.put_verdict(Verdict(digest(plan), batch, Decision.PUBLISH, 0, GivenUp("because"), named))
    ledger.store.put_new(comparison_key(again), b"{}")
    return again, key


def turned(ledger: Ledger, again: Backfill, number: int, turn: SwapKind) -> None:
    swap = Swap(again.pipeline, number, again.number, turn, again.batches, True, "", who="ana", why="", at="now")
    ledger.store.put_new(f"{again.pipeline}/swaps/{number}.json", encode(swap))


def test_what_the_next_batch_goes_on_from_in_a_backfill_stays_while_that_can_be_put_in_place(ledger: Ledger) -> None:
    published(ledger, range(30))
    _, state = kept_by_backfill(ledger, range(30))
    assert swept_away(ledger) == []
    published(ledger, range(30, 31))
    # The next batch went on from another state, so this one is never in place.
    assert swept_away(ledger) == [state]


def test_what_batches_of_a_backfill_go_on_from_stays_while_it_is_in_place(ledger: Ledger) -> None:
    published(ledger, range(30))
    again, state = kept_by_backfill(ledger, range(30))
    turned(ledger, again, 0, SwapKind.SWAP)
    published(ledger, range(30, 39))
    assert swept_away(ledger) == []
    turned(ledger, again, 1, SwapKind.UNDO)
    assert swept_away(ledger) == [state]
