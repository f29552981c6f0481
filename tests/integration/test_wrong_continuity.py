"""A batch that does not go on from the last published one is refused, whatever its own plan says of where that ended.

What is made wrong is the stored plan or a table's log; the batch itself runs as it is planned.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from batches.ref import BatchRef
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.document import digest
from partitioning.documents.store import S3Store
from partitioning.model.plan import Plan
from partitioning.values import replace
from tests.batches import erase
from tests.judged import CONTINUES, HOLD, Refusal, caught_by, refusal, results
from tests.real_batches import TAILS, delays, land_flights, land_planes, ran, stored, with_start
from tests.running import run_and_publish, run_groups

LOG = "tables/delays/_delta_log"


@pytest.fixture
def published(store: S3Store, tmp_path: Path) -> S3Store:
    """Three flights of each plane, of which a first batch took and published four of each partition."""
    land_flights(store, [*TAILS, *TAILS, *TAILS])
    land_planes(store)
    run_and_publish(stored(store, delays(store), settings=Settings(limit=4)), tmp_path)
    return store


@caught_by(CONTINUES)
def test_a_plan_that_leaves_records_out_is_refused(published: S3Store, tmp_path: Path) -> Refusal:
    said = refusal(ran(published, delays(published), lambda plan: with_start(plan, "flights", 3, 6)), tmp_path)
    assert "- flights-3: the last published batch ended at 4: 2 records left out" in said.findings[0]
    return said


@caught_by(CONTINUES)
def test_a_plan_that_takes_records_once_more_is_refused(published: S3Store, tmp_path: Path) -> Refusal:
    said = refusal(ran(published, delays(published), lambda plan: with_start(plan, "flights", 3, 1)), tmp_path)
    assert "- flights-3: the last published batch ended at 4: 3 records before it would count twice" in said.findings[0]
    return said


@caught_by(CONTINUES)
def test_a_plan_that_says_itself_that_the_last_batch_ended_elsewhere_is_refused_all_the_same(
    published: S3Store, tmp_path: Path
) -> Refusal:
    def lying(plan: Plan) -> Plan:
        later = with_start(plan, "flights", 3, 6)
        flights, planes = later.streams
        partitions = tuple(replace(each, committed=each.start, beginning=each.start) for each in flights.partitions)
        return replace(later, streams=(replace(flights, partitions=partitions), planes), starts={"flights-3": 6})

    said = refusal(ran(published, delays(published), lying), tmp_path)
    assert "- flights-3: the last published batch ended at 4: 2 records left out" in said.findings[0]
    return said


@caught_by(CONTINUES)
def test_a_table_that_is_not_read_whole_is_refused(store: S3Store, tmp_path: Path) -> Refusal:
    land_flights(store, TAILS)
    land_planes(store)
    made = delays(store, planes_are_a_table=True)
    said = refusal(ran(store, made, lambda plan: with_start(plan, "planes", 1, 2)), tmp_path)
    assert "- planes-1: the table begins at offset 0, but is read from 2 on" in said.findings[0]
    return said


@caught_by(CONTINUES)
def test_a_first_batch_that_begins_later_than_it_has_to_is_refused(store: S3Store, tmp_path: Path) -> Refusal:
    land_flights(store, TAILS)
    land_planes(store)
    said = refusal(ran(store, delays(store), lambda plan: with_start(plan, "flights", 3, 1)), tmp_path)
    assert "- flights-3: it begins at 0: 1 record left out" in said.findings[0]
    return said


def test_a_first_batch_that_begins_where_the_settings_say_passes_and_what_it_skips_is_counted(
    store: S3Store, tmp_path: Path
) -> None:
    land_flights(store, [*TAILS, *TAILS])
    land_planes(store)
    ref = stored(store, delays(store), settings=Settings(starts={"flights-3": 3, "planes-1": 2}))
    run_and_publish(ref, tmp_path)
    (found,) = (result for result in results(ref) if result["expectation"] == CONTINUES)
    assert found["success"]
    assert found["result"]["observed_value"] == (
        "12 stream partitions, 12 of them for the first time; 5 records skipped in 2 of these, as [starts] asks"
    )


# ---- tables hold what the ledger says


def next_batch(store: S3Store) -> BatchRef:
    """The second batch, after its task groups have run and before anybody looks at the table again."""
    ref = stored(store, delays(store))
    run_groups(ref)
    return ref


@caught_by(HOLD)
def test_a_table_that_was_rolled_back_is_refused(published: S3Store, tmp_path: Path) -> Refusal:
    ref = next_batch(published)
    erase(published.root, f"{LOG}/00000000000000000001.json")
    said = refusal(ref, tmp_path)
    assert "- delays: its log says no batch, the ledger batch 0" in said.findings[0]
    return said


@caught_by(HOLD)
def test_a_table_that_was_rolled_back_while_no_batch_wrote_to_it_is_refused(store: S3Store, tmp_path: Path) -> Refusal:
    def writing(*tables: str) -> Pipeline:
        made = Pipeline("delays", source=f"{store.root}/topics")
        flights = made.stream("flights", key="tailnum", partitions=8)
        for table in tables:
            flights.filter("delay >= 0", name=f"for_{table}").write(table)
        return made

    for tables in (("all", "delays"), ("all",)):
        land_flights(store, TAILS)
        run_and_publish(stored(store, writing(*tables)), tmp_path)
    erase(store.root, f"{LOG}/00000000000000000001.json")
    land_flights(store, TAILS)
    said = refusal(ran(store, writing("all", "delays")), tmp_path)
    assert "- delays: its log says no batch, the ledger batch 0" in said.findings[0]
    return said


@caught_by(HOLD)
def test_a_table_that_holds_the_batch_of_another_plan_is_refused(published: S3Store, tmp_path: Path) -> Refusal:
    ref = next_batch(published)
    ledger, _ = ref.load()
    first = ledger.plan(0)
    assert first is not None
    other = digest(replace(first, key_sample=7))
    key = f"{LOG}/00000000000000000001.json"
    log = (published.get(key) or b"").decode()
    assert digest(first) in log
    published.put(key, log.replace(digest(first), other).encode())
    said = refusal(ref, tmp_path)
    assert f"- delays: batch 0 in its log is of the plan {other}, in the ledger of {digest(first)}" in said.findings[0]
    return said


def test_a_table_that_holds_a_batch_which_the_ledger_does_not_know_is_refused(
    published: S3Store, tmp_path: Path
) -> None:
    ref = next_batch(published)
    erase(published.root, "delays/verdicts/0.json", "delays/commits/0.json")
    said = refusal(ref, tmp_path)
    # By the ledger nothing was published, so that this batch should have begun where the streams do.
    assert said.failed == (CONTINUES, HOLD)
    assert "it begins at 0: 4 records left out" in said.findings[0]
    assert "- delays: its log says batch 0, the ledger no batch" in said.findings[1]
