"""Files in folders of hours: late ones are found in any of them, and only new ones are opened."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from coset.batches.ends import forget
from coset.batches.planning import preview
from coset.sources.known import KnownStream
from coset.sources.landed import discover
from coset.sources.new_files import NewFiles
from coset.sources.pinned import not_as_planned
from partitioning.authoring.pipeline import Pipeline
from partitioning.commands import Replan
from partitioning.documents import s3_store as stores
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.errors import Finding, Refused
from partitioning.model.plan import Plan
from partitioning.model.read_ends import What
from partitioning.model.streams import Layout
from tests.batches import erase
from tests.faults import FaultProxy
from tests.running import next_batch, run_and_publish
from tests.there import there
from tests.written import WRITERS, file_key, row

WRITER = next(writer for writer in WRITERS if str(writer) == "json-plain")
HOURS, ROWS = 12, 2


def views(store: Store, partitions: int = 2) -> Pipeline:
    made = Pipeline("hourly", source=f"{store.root}/topics")
    flow = made.stream(
        "views", key="member", partitions=partitions, hash="opaque", offset=None, layout="time", **WRITER.declared
    )
    flow.select("n").write("seen")
    return made


def land(store: Store, hour: int, partition: int, first: int, rows: int = ROWS) -> str:
    """Land a file; gives its key below the store's root."""
    key = f"topics/{file_key(WRITER, Layout.TIME, partition, first, hour)}"
    store.put(key, WRITER.write([row(first + n) for n in range(rows)], None))
    return key


def published(store: Store, made: Pipeline, docs: Path) -> Plan:
    ref = next_batch(made, store.root)
    run_and_publish(ref, docs)
    return ref.load()[1]


def ranges(store: Store) -> list[str]:
    """What the next batch reads."""
    plan = preview(views(store), store).plan
    return [str(offsets) for offsets in plan.ranges()] if plan else []


def refused(made: Pipeline, store: Store) -> Finding:
    with pytest.raises(Refused) as caught:
        preview(made, store)
    return caught.value.findings[0]


@pytest.fixture
def landed(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A published batch of a file an hour from both partitions. One listing gives only ten keys."""
    for hour in range(HOURS):
        for partition in range(2):
            land(store, hour, partition, hour * ROWS)
    published(store, views(store), tmp_path)
    monkeypatch.setattr(stores, "PAGE_KEYS", 10)
    return store


def last(store: Store) -> Plan:
    plan = there(Ledger(store, "hourly").standing().published)
    return plan


def test_a_record_that_comes_late_is_found_in_the_folder_of_its_hour(landed: Store, tmp_path: Path) -> None:
    land(landed, 3, 0, HOURS * ROWS)
    assert ranges(landed) == ["views-0@[24,26)", "views-1@[24,24)"]
    published(landed, views(landed), tmp_path)
    land(landed, HOURS, 0, HOURS * ROWS + ROWS)
    land(landed, 0, 1, HOURS * ROWS)
    assert ranges(landed) == ["views-0@[26,28)", "views-1@[24,26)"]


def test_all_folders_are_listed_and_only_new_files_opened(landed: Store, proxy: FaultProxy) -> None:
    made, plan, opened = views(landed), last(landed), r"^[^?]*views\+\d\+\d+\.json"
    assert proxy.count("GET|HEAD", r"list-type=2.*topics/views", lambda: discover(made.streams, plan.ends)) == -(
        -2 * HOURS // 10
    )
    assert proxy.count("GET|HEAD", opened, lambda: discover(made.streams, plan.ends)) == 0
    land(landed, 3, 0, HOURS * ROWS)
    one_file = proxy.count("GET|HEAD", opened, lambda: discover(made.streams, plan.ends))
    assert 1 <= one_file <= 2
    # What was read before the last batch is not even kept in mind.
    stream = made.streams[0]
    land(landed, 5, 0, 0)
    found = NewFiles(stream, KnownStream.by(stream, plan.ends)).find()
    assert len(found) == 2 * HOURS + 1


def test_the_audit_lists_from_the_first_planned_file_to_the_last(landed: Store, proxy: FaultProxy) -> None:
    late = land(landed, 3, 0, HOURS * ROWS)
    plan = there(preview(views(landed), landed).plan)
    assert (
        proxy.count(
            "GET|HEAD", r"list-type=2.*topics/views", lambda: list(not_as_planned(plan.streams, Replan("hourly")))
        )
        == 1
    )
    assert list(not_as_planned(plan.streams, Replan("hourly"))) == []
    landed.put(late, WRITER.write([row(0)], None))
    (finding,) = not_as_planned(plan.streams, Replan("hourly"))
    assert "the file was changed since the batch was planned" in finding.what
    erase(landed.root, late)
    (finding,) = not_as_planned(plan.streams, Replan("hourly"))
    assert finding.what == "the file is gone since the batch was planned"


def test_files_that_were_read_may_go(landed: Store) -> None:
    plan = last(landed)
    read = [file.path.removeprefix(f"{landed.root}/") for file in plan.streams[0].partitions[0].files]
    erase(landed.root, *read[:-1])
    assert ranges(landed) == []
    erase(landed.root, read[-1])
    assert ranges(landed) == []
    land(landed, 0, 0, HOURS * ROWS)
    assert ranges(landed) == ["views-0@[24,26)", "views-1@[24,24)"]
    land(landed, 0, 0, HOURS * ROWS + ROWS)
    erase(landed.root, f"topics/{file_key(WRITER, Layout.TIME, 0, HOURS * ROWS, 0)}")
    assert "[24,26) is lost" in refused(views(landed), landed).what


def test_files_that_were_put_together_since_are_gone_on_with_once_somebody_says_that_they_are_the_same(
    landed: Store,
) -> None:
    plan = last(landed)
    erase(landed.root, *(file.path.removeprefix(f"{landed.root}/") for file in plan.streams[0].partitions[0].files))
    land(landed, 0, 0, 0, rows=30)
    assert "and another file has the last of these offsets now" in refused(views(landed), landed).what
    forget(Ledger(landed, "hourly"), "views", 0, What.SOURCE, "put together")
    assert ranges(landed) == ["views-0@[24,30)", "views-1@[24,24)"]


def test_names_decide_and_each_object_has_to_have_one(landed: Store) -> None:
    finding = refused(views(landed, partitions=1), landed)
    assert "of partition 1, but 1 partition is declared, 0" in finding.what
    landed.put("topics/views/year=2026/views+0+24.json", b"")
    assert "the file's name cannot be read" in refused(views(landed), landed).what
    landed.delete("topics/views/year=2026/views+0+24.json")
    landed.put("topics/views/year=2026/clicks+0+0000000024.json", b"")
    finding = refused(views(landed), landed)
    assert re.search("says stream 'clicks', its folder 'views'", finding.what)
