"""What kills, races and failed attempts leave behind: it is removed once its batch is decided, and nothing else is."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest

from coset.batches import steps
from coset.batches.ref import BatchRef
from coset.batches.sweeping import left_over, sweep
from coset.batches.tables.acceptance import accept
from coset.batches.tables.handing_over import hand_over
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS
from partitioning.documents.folder_store import FolderStore
from partitioning.documents.store import KeyPage, Store
from partitioning.errors import Refused
from partitioning.model.root_names import LOG
from partitioning.model.streams import NullKeys
from tests.examples import few
from tests.logs import log_of
from tests.real_batches import TAILS, delays, land_delays, land_flights
from tests.running import next_batch, run_and_publish, run_groups


@pytest.fixture
def landed(store: Store) -> Store:
    return land_delays(store)


def planned(store: Store, pipeline: Pipeline | None = None) -> BatchRef:
    return next_batch(pipeline or delays(store), store.root)


def leave_behind(store: Store, batch: int) -> str:
    """A file as a task leaves it that was killed before its receipt."""
    key = f"tables/delays/data/plan-{batch}/attempt-0-0badcafe/flights+planes-0.parquet"
    store.put(key, b"PAR1")
    return key


def rows(store: Store) -> int:
    return log_of(store, "delays").to_pyarrow_table().num_rows


def test_what_a_killed_task_left_goes_once_its_batch_is_decided(landed: Store) -> None:
    ref, pipeline = planned(landed), delays(landed)
    orphan = leave_behind(landed, 0)
    run_groups(ref)
    assert str(sweep(pipeline, landed)) == "0 files (0 B) that no verdict names; batch 0 is open and left alone"
    run_and_publish(ref)
    assert [file.key for file in left_over(pipeline, landed).files] == [orphan]
    assert str(sweep(pipeline, landed)) == "1 file (4 B) that no verdict names"
    assert landed.head(orphan) is None
    assert left_over(pipeline, landed).files == ()
    assert rows(landed) == len(TAILS)


def test_files_of_failed_attempts_and_of_abandoned_batches_go(landed: Store) -> None:
    strict, lenient = delays(landed, null_keys=NullKeys.REFUSE), delays(landed)
    with pytest.raises(Refused):
        run_and_publish(planned(landed, strict))
    _, ref, _ = steps.replan(lenient, landed.root, DEFAULTS, "some flights have no plane")
    assert ref is not None
    run_and_publish(ref)
    removed = sweep(lenient, landed)
    assert {file.key.split("/")[3] for file in removed.files if file.key.startswith("tables/")} == {"plan-0"}
    assert {file.key.split("/")[2] for file in removed.files if file.key.startswith("delays/audits/")} == {"0"}
    assert rows(landed) == len(TAILS)


def test_the_files_of_another_pipelines_open_batch_stay(landed: Store) -> None:
    run_and_publish(planned(landed))
    other = Pipeline("others", source=f"{landed.root}/topics")
    flights = other.stream("flights", key="tailnum", partitions=8, null_keys="drop")
    planes = other.stream("planes", key="tailnum", partitions=4)
    counted = flights.aggregate("count(*) AS flights, max(delay) AS delay")
    counted.join(planes, "flights, delay, seats", name="joined").write("delays")
    hand_over(landed, "delays", "delays", "others", who="somebody", why="the other one writes it now")
    accept(landed, "delays", 2, who="somebody", why="these records are to count twice")
    run_groups(planned(landed, other))
    assert left_over(delays(landed), landed) == left_over(other, landed)
    assert left_over(other, landed).files == ()
    assert left_over(other, landed).open == (0,)


@pytest.mark.parametrize("seed", few(range(1, 8)))
def test_where_a_listing_leaves_something_out_nothing_goes_that_counts(
    seed: int, landed: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_and_publish(planned(landed))
    hand_over(landed, "delays", "delays", "others", who="somebody", why="the other one writes it now")
    chance, page = random.Random(seed), FolderStore.page

    def short(store: FolderStore, prefix: str, *asked: Any) -> KeyPage:
        # What the tables' logs say is believed.
        found = page(store, prefix, *asked)
        return found if prefix == LOG else KeyPage(found.objects[: chance.randint(0, len(found.objects))], False)

    other = Pipeline("others", source=f"{landed.root}/topics")
    other.stream("flights", key="tailnum", partitions=8, null_keys="drop").write("delays")
    for pipeline in (delays(landed), other):
        with monkeypatch.context() as patch, suppress(Refused):
            patch.setattr(FolderStore, "page", short)
            sweep(pipeline, landed, everything=True)
        assert rows(landed) == len(TAILS)


def counts(store: Store) -> Pipeline:
    """A pipeline that has nothing to do with the others: its table is its own."""
    other = Pipeline("counts", source=f"{store.root}/topics")
    flights = other.stream("flights", key="tailnum", partitions=8, null_keys="drop")
    flights.aggregate("count(*) AS flights").write("counts")
    return other


def test_an_open_batch_of_an_unrelated_pipeline_keeps_nothing(landed: Store) -> None:
    run_and_publish(planned(landed))
    run_groups(planned(landed, counts(landed)))
    orphan = leave_behind(landed, 0)
    assert left_over(counts(landed), landed).open == (0,)
    removed = sweep(delays(landed), landed)
    assert ([file.key for file in removed.files], removed.open) == ([orphan], ())


def test_a_damaged_plan_of_another_pipeline_keeps_only_what_it_may_name(landed: Store) -> None:
    pipeline = delays(landed, planes_are_a_table=True)
    run_and_publish(planned(landed, pipeline))
    land_flights(landed, TAILS)
    run_and_publish(planned(landed, pipeline))
    planned(landed, counts(landed))
    landed.put("counts/plans/0.json.gz", b"damaged")
    maybe_its, orphan = leave_behind(landed, 0), leave_behind(landed, 1)
    mine = "delays/audits/0/attempt-0/keys-0badcafe.parquet"
    landed.put(mine, b"PAR1")
    removed = sweep(pipeline, landed)
    assert {file.key for file in removed.files} == {orphan, mine}
    assert removed.open == ()
    assert [finding.where for finding in removed.damaged] == [f"{landed.root}/counts/plans/0.json.gz"]
    assert "left alone" in str(removed)
    assert landed.head(maybe_its) is not None


def test_a_later_batch_does_not_keep_what_an_earlier_one_left(landed: Store) -> None:
    pipeline = delays(landed, planes_are_a_table=True)
    run_and_publish(planned(landed, pipeline))
    orphan = leave_behind(landed, 0)
    land_flights(landed, TAILS)
    ref = planned(landed, pipeline)
    kept = leave_behind(landed, 1)
    removed = sweep(pipeline, landed)
    assert ([file.key for file in removed.files], removed.open) == ([orphan], (1,))
    assert landed.head(kept) is not None
    run_and_publish(ref)
    assert rows(landed) == 2 * len(TAILS)
