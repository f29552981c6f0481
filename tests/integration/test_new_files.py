"""What planning looks at once batches are published: what landed since, and changes meanwhile."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from coset.batches import steps
from coset.batches.ends import forget
from coset.batches.planning import preview
from coset.batches.ref import BatchRef
from coset.sources.landed import discover
from coset.sources.layouts import listed
from coset.sources.pinned import not_as_planned
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.commands import Replan
from partitioning.documents import s3_store as stores
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from partitioning.model.plan import Plan
from partitioning.model.read_ends import What
from partitioning.model.streams import InputFile
from tests.batches import erase
from tests.faults import FaultProxy
from tests.landed import land_file, land_table
from tests.running import next_batch, run_and_publish, run_groups
from tests.there import there

PARTITIONS, FILES, ROWS = 3, 30, 2


def views(store: Store, table: bool = False) -> Pipeline:
    made = Pipeline("seen", source=f"{store.root}/topics")
    declare = made.table if table else made.stream
    declare("views", key="ad", partitions=PARTITIONS, hash="opaque").select("n").to_stream().write("seen")
    return made


def land(store: Store, partition: int, first: int, rows: int = ROWS) -> str:
    keys = pa.array([f"{partition}-{first + n}" for n in range(rows)], pa.string())
    table = pa.table({"ad": keys, "n": pa.array(range(rows), pa.int64())})
    return land_file(table, "views", f"{store.root}/topics", partition, first)


def published(store: Store, made: Pipeline, docs: Path, settings: Settings = DEFAULTS) -> Plan:
    ref = next_batch(made, store.root, settings)
    run_and_publish(ref, docs)
    return ref.load()[1]


def next_plan(store: Store, made: Pipeline) -> Plan:
    plan = there(preview(made, store).plan)
    return plan


def last(store: Store) -> Plan:
    plan = there(Ledger(store, "seen").standing().published)
    return plan


@pytest.fixture
def landed(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A published batch of many files, of which one listing gives only ten."""
    for partition in range(PARTITIONS):
        for number in range(FILES):
            land(store, partition, number * ROWS)
    published(store, views(store), tmp_path)
    monkeypatch.setattr(stores, "PAGE_KEYS", 10)
    return store


@dataclass
class Requests:
    """How often landed files are listed and opened."""

    proxy: FaultProxy

    def opened(self, do: Callable[[], object]) -> int:
        return self.proxy.count("GET|HEAD", r"views\+\d\+\d+\.parquet", do)

    def listed(self, do: Callable[[], object]) -> int:
        return self.proxy.count("GET|HEAD", r"list-type=2.*topics/views", do)


@pytest.fixture
def requests(proxy: FaultProxy) -> Requests:
    return Requests(proxy)


def test_only_footers_of_new_files_are_read_and_only_from_where_a_partition_was_read(
    landed: Store, requests: Requests
) -> None:
    made, plan = views(landed), last(landed)
    one_file = requests.opened(lambda: discover(made.streams)) // (PARTITIONS * FILES)
    assert one_file >= 1
    assert requests.listed(lambda: discover(made.streams)) == PARTITIONS * FILES // 10
    assert requests.opened(lambda: discover(made.streams, plan.ends)) == 0
    # Each request of these ends in what was read of the next partition.
    assert requests.listed(lambda: discover(made.streams, plan.ends)) == PARTITIONS
    land(landed, 1, FILES * ROWS)
    land(landed, 1, FILES * ROWS + ROWS)
    assert requests.opened(lambda: discover(made.streams, plan.ends)) == 2 * one_file
    assert requests.listed(lambda: discover(made.streams, plan.ends)) == PARTITIONS
    later = next_plan(landed, made)
    assert [str(offsets) for offsets in later.ranges()] == ["views-0@[60,60)", "views-1@[60,64)", "views-2@[60,60)"]
    assert [partition.beginning for partition in later.streams[0].partitions] == [0, 0, 0]


def test_a_partition_that_had_nothing_to_read_goes_on_where_it_was(
    landed: Store, requests: Requests, tmp_path: Path
) -> None:
    made = views(landed)
    for _ in range(2):
        land(landed, 1, last(landed).streams[0].partitions[1].end)
        published(landed, made, tmp_path)
    plan = last(landed)
    assert plan.streams[0].partitions[0].files == ()
    assert requests.opened(lambda: discover(made.streams, plan.ends)) == 0
    assert requests.listed(lambda: discover(made.streams, plan.ends)) == PARTITIONS
    land(landed, 0, FILES * ROWS)
    assert str(next_plan(landed, made).ranges()[0]) == "views-0@[60,62)"


def test_a_file_that_was_read_in_part_is_taken_from_the_plan(store: Store, requests: Requests, tmp_path: Path) -> None:
    file = land(store, 0, 0, rows=10)
    made = views(store)
    plan = published(store, made, tmp_path, Settings(limit=4))
    assert requests.opened(lambda: discover(made.streams, plan.ends)) == 0
    (found,) = discover(made.streams, plan.ends)
    assert [each.path for each in found.partitions[0].files] == [file]
    assert str(next_plan(store, made).ranges()[0]) == "views-0@[4,10)"


def test_of_a_table_only_what_is_new_is_opened_though_all_is_read(
    store: Store, requests: Requests, tmp_path: Path
) -> None:
    for number in range(5):
        land(store, 0, number * ROWS)
    made = views(store, table=True)
    plan = published(store, made, tmp_path)
    assert requests.opened(lambda: discover(made.streams, plan.ends)) == 0
    land(store, 0, 5 * ROWS)
    later = next_plan(store, made)
    assert later.records == 6 * ROWS
    assert len(later.streams[0].partitions[0].files) == 6


def test_names_longer_than_ten_digits_are_seen_behind_shorter_ones(store: Store, tmp_path: Path) -> None:
    made = views(store)
    land(store, 0, 9_999_999_998)
    published(store, made, tmp_path)
    # By its name it lies before the other one.
    land(store, 0, 10_000_000_000)
    assert str(next_plan(store, made).ranges()[0]) == "views-0@[10000000000,10000000002)"
    published(store, made, tmp_path)
    land(store, 0, 10_000_000_002)
    assert str(next_plan(store, made).ranges()[0]) == "views-0@[10000000002,10000000004)"


def test_of_long_names_too_the_file_that_was_read_last_may_be_gone(store: Store, tmp_path: Path) -> None:
    made = views(store)
    land(store, 0, 2_000_000_000)
    gone = land(store, 0, 2_000_000_002)
    published(store, made, tmp_path)
    erase(store.root, gone.removeprefix(f"{store.root}/"))
    land(store, 0, 2_000_000_004)
    assert str(next_plan(store, made).ranges()[0]) == "views-0@[2000000004,2000000006)"


def test_files_that_were_put_together_since_are_gone_on_with_once_somebody_says_that_they_are_the_same(
    landed: Store, tmp_path: Path
) -> None:
    plan = last(landed)
    erase(landed.root, *(file.path.removeprefix(f"{landed.root}/") for file in plan.streams[0].partitions[0].files))
    land(landed, 0, 0, rows=70)
    with pytest.raises(Refused, match="views-0 was read up to offset 60 of the file") as refused:
        preview(views(landed), landed)
    (finding,) = refused.value.findings
    assert "coset forget seen views --partition 0 --keep-offsets --why '…'" in finding.then
    forget(Ledger(landed, "seen"), "views", 0, What.SOURCE, "put together")
    later = published(landed, views(landed), tmp_path)
    assert str(later.ranges()[0]) == "views-0@[60,70)"
    assert [str(one.offsets) for one in later.forgotten] == ["views-0@[0,60)"]
    # From now on it is known again.
    land(landed, 0, 70)
    assert str(next_plan(landed, views(landed)).ranges()[0]) == "views-0@[70,72)"


def test_a_name_that_cannot_be_read_is_refused_where_it_is_new(landed: Store) -> None:
    landed.put("topics/views/partition=1/views+1+0000000900.json", b"")
    with pytest.raises(Exception, match=re.escape("the file's name cannot be read")):
        discover(views(landed).streams, last(landed).ends)


def test_the_audit_lists_planned_files_from_the_first_one_on(landed: Store, requests: Requests, tmp_path: Path) -> None:
    file = land(landed, 1, FILES * ROWS)
    plan = next_plan(landed, views(landed))
    assert requests.listed(lambda: list(not_as_planned(plan.streams, Replan("seen")))) == PARTITIONS
    assert list(not_as_planned(plan.streams, Replan("seen"))) == []
    erase(landed.root, file.removeprefix(f"{landed.root}/"))
    (finding,) = not_as_planned(plan.streams, Replan("seen"))
    assert (finding.what, finding.where) == ("the file is gone since the batch was planned", file)


def test_a_listing_of_all_gives_all(landed: Store) -> None:
    there = [found.entry for found in listed(store_at(f"{landed.root}/topics"), "views", {})]
    assert there == list(store_at(f"{landed.root}/topics").list("views/partition="))
    assert len(there) == PARTITIONS * FILES


def test_that_nothing_has_arrived_is_said_of_what_was_looked_into(store: Store, tmp_path: Path) -> None:
    """How many files were opened, and what was passed over and why."""
    made = views(store)
    land(store, 0, 0, rows=0)
    assert preview(made, store).sentence == "Nothing to do: no records have arrived yet; 1 file of views had none"
    land(store, 1, 0, rows=0)
    for name in ("partition=0/_SUCCESS", "partition=1/_temporary/views+1+0000000000.parquet"):
        store.put(f"topics/views/{name}", b"")
    store.put("topics/views/views+0+0000000000.parquet", b"")
    assert preview(made, store).sentence == (
        "Nothing to do: no records have arrived yet; 2 files of views had none; "
        "passed over by their names: 2 objects of views; "
        "passed over: what of views lies beside its folders partition=<n>/"
    )
    land(store, 0, 0)
    starting = Settings(starts={"views-0": ROWS})
    assert preview(made, store, starting).sentence == (
        "Nothing to do: no records have arrived behind the offsets from which the first batch is to read"
    )
    published(store, made, tmp_path)
    assert preview(made, store).sentence == (
        "Nothing to do: no new records since batch 0 (all 2 landed records are committed); 1 file of views had none; "
        "passed over by their names: 1 object of views"
    )


FILES_CHANGED, TASKS = 6, 4
Change = Callable[[Store, str], None]


def planned(store: Store) -> BatchRef:
    """A batch of one stream partition in many files, which many tasks read."""
    source = f"{store.root}/topics"
    table = pa.table({"tailnum": [f"N{number % 100}" for number in range(960)], "delay": range(960)})
    land_table(table, "flights", source, key="tailnum", partitions=1, files=FILES_CHANGED)
    pipeline = Pipeline("delays", source=source)
    flights = pipeline.stream("flights", key="tailnum", partitions=1)
    flights.aggregate("count(*) AS flights", name="tails").write("delays")
    return next_batch(pipeline, store.root, Settings.parse(scheme=[f"elastic({TASKS})"], groups=2))


def files_of(ref: BatchRef) -> tuple[InputFile, ...]:
    return ref.load()[1].stream("flights").partitions[0].files


def remove(store: Store, key: str) -> None:
    store.delete(key)


def rewrite(store: Store, key: str) -> None:
    """The same bytes but for one."""
    data = bytearray(store.get(key) or b"")
    data[-20] ^= 1
    store.put(key, bytes(data))


@pytest.mark.parametrize(("change", "says"), [(rewrite, "changed"), (remove, "gone")])
def test_a_file_that_changed_after_it_was_opened_is_refused_and_what_was_read_is_not_used(
    change: Change, says: str, store: Store, tmp_path: Path
) -> None:
    ref = planned(store)
    run_groups(ref)
    path = files_of(ref)[5].path
    key = path.removeprefix(f"{store.root}/")
    before = store.get(key)
    assert before is not None
    change(store, key)
    with pytest.raises(Refused, match=f"the file is {says}|the file was {says}") as refused:
        steps.audit(ref)
    (finding,) = refused.value.findings
    assert finding.where == path
    assert "restore the file as it was planned" in finding.then
    assert "coset replan delays" in finding.then

    # What the next step says helps; what was read is read again.
    store.put(key, before)
    with pytest.raises(Refused, match="has no receipt"):
        steps.audit(ref)
    run_groups(ref)
    assert "attempt 1, is audited" in steps.audit(ref)
    assert "attempt 1" in steps.check(ref, tmp_path)


def test_tasks_that_read_together_look_at_a_file_once_and_the_audit_at_none(store: Store, proxy: FaultProxy) -> None:
    ref = planned(store)
    asked = proxy.count("HEAD|GET", "/topics/", lambda: run_groups(ref))
    _, plan = ref.load()
    assert [len(group.tasks) for group in plan.groups] == [TASKS // 2] * 2
    assert asked == FILES_CHANGED * len(plan.groups)
    assert proxy.count("HEAD|GET", "/topics/|prefix=.*topics/", lambda: steps.audit(ref)) == 1


def test_what_is_read_of_a_file_of_some_megabytes_comes_by_one_request(store: Store, proxy: FaultProxy) -> None:
    source = f"{store.root}/topics"
    random = np.random.default_rng(1)
    table = pa.table(
        {"tailnum": ["N1"] * 900, "delay": range(900), "told": [random.bytes(1500).hex() for _ in range(900)]}
    )
    land_table(table, "flights", source, key="tailnum", partitions=1, files=1)
    pipeline = Pipeline("delays", source=source)
    pipeline.stream("flights", key="tailnum", partitions=1).aggregate("sum(delay) AS delay").write("delays")
    ref = next_batch(pipeline, store.root)
    (file,) = files_of(ref)
    assert 1 << 20 < file.size < 4 << 20
    # The columns come before, with the footer.
    assert proxy.count("GET", "/topics/", lambda: run_groups(ref)) == 2
