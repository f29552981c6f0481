"""What docs/internals/landed-files.md says must not be landed is refused."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coset import Pipeline, Refused
from coset.batches.interpreter import run_batch
from coset.batches.planning import preview
from coset.batches.runners.local import Local
from coset.cli.output import step
from coset.sources.landed import discover
from partitioning.documents.store import Store
from tests.batches import erase
from tests.landed import land_file
from tests.running import next_batch

VIEWS = pa.table({"member": ["anna", "bert", "carl", "dora", "emma"], "page": ["home"] * 5})


def test_a_codec_in_the_name_is_read(store: Store) -> None:
    sink = io.BytesIO()
    pq.write_table(VIEWS.append_column("_offset", pa.array(range(7, 12), pa.int64())), sink, compression="snappy")
    store.put("topics/views/partition=0/views+0+0000000007.snappy.parquet", sink.getvalue())
    (found,) = discover(views(store).streams)
    assert (found.partitions[0].beginning, found.partitions[0].end) == (7, 12)


def views(store: Store, name: str = "views", key: str = "member", **declared: Any) -> Pipeline:
    """A pipeline with opaque placement: which partition a key lies in is no matter here."""
    pipeline = Pipeline("pages", source=f"{store.root}/topics")
    flow = pipeline.stream(name, key=key, partitions=4, hash="opaque", **declared)
    flow.select("page").write("pages")
    return pipeline


def land(
    store: Store, partition: int = 0, first: int = 0, *, table: pa.Table = VIEWS, offsets: list[int] | None = None
) -> str:
    return land_file(table, "views", f"{store.root}/topics", partition, first, offsets=offsets)


def move(store: Store, name: str) -> None:
    """Land a file under another name."""
    data = store.get(land(store).removeprefix(f"{store.root}/"))
    assert data is not None
    store.put(f"topics/views/{name}", data)


def without_offsets(store: Store) -> None:
    sink = io.BytesIO()
    pq.write_table(VIEWS.append_column("_offset", pa.array([None, 0, 1, 2, None], pa.int64())), sink)
    store.put("topics/views/partition=0/views+0+0000000000.parquet", sink.getvalue())


def numbered(store: Store) -> None:
    land(store, table=pa.table({"member": pa.array(range(5), pa.int64()), "page": ["home"] * 5}))


def retyped(store: Store) -> None:
    land(store)
    land(store, 1, table=VIEWS.set_column(1, "page", pa.array(range(5), pa.int64())))


def dropped(store: Store) -> None:
    never_null = pa.schema([pa.field("member", pa.string()), pa.field("page", pa.string(), nullable=False)])
    land(store, table=VIEWS.cast(never_null))
    land(store, first=5, table=VIEWS.select(["member"]))


def keyless(store: Store) -> None:
    land(store)
    land(store, 1, table=VIEWS.select(["page"]))


WRONG: list[tuple[str, Callable[[Store], object], dict[str, Any]]] = [
    ("no such stream 'veiws'", land, {"name": "veiws"}),
    ("the file's name cannot be read", lambda store: move(store, "partition=0/views.parquet"), {}),
    (
        "the file's name says stream 'clicks', its folder 'views'",
        lambda store: move(store, "partition=0/clicks+0+0000000000.parquet"),
        {},
    ),
    (
        "the file's name says partition 1, its folder 0",
        lambda store: move(store, "partition=0/views+1+0000000000.parquet"),
        {},
    ),
    ("the file's name says first offset 0, its records 1", lambda store: land(store, offsets=[1, 2, 3, 4, 5]), {}),
    ("1 file of partition 4, but 4 partitions are declared, 0-3", lambda store: land(store, 4), {}),
    ("5 records have the offsets [0,6): a gap", lambda store: land(store, offsets=[0, 1, 2, 3, 5]), {}),
    ("5 records have the offsets [0,4): a duplicate", lambda store: land(store, offsets=[0, 1, 2, 3, 3]), {}),
    ("gap: no file holds views-0@[5,9)", lambda store: (land(store), land(store, first=9)), {}),
    (
        "two files hold views-0@[3,5), and differ from offset 3 on",
        lambda store: (land(store), land(store, first=3)),
        {},
    ),
    ("2 records have no offset", without_offsets, {}),
    ("there is no key column 'membr'", land, {"key": "membr"}),
    ("there is no offset column 'offset'", land, {"offset": "offset"}),
    ("key column 'member' is BIGINT, not VARCHAR under key format 'string'", numbered, {}),
    ("columns differ: page is BIGINT, not VARCHAR", retyped, {}),
    ("columns differ: page is missing, not VARCHAR, and it was never null", dropped, {}),
    ("columns differ: member is missing, not VARCHAR", keyless, {}),
    ("there is no column 'pages' to cast", lambda store: land(store), {"cast": {"pages": "BIGINT"}}),
    (
        "the file is truncated or no Parquet",
        lambda store: store.put("topics/views/partition=0/views+0+0000000000.parquet", b"PAR1"),
        {},
    ),
]


@pytest.mark.parametrize(("said", "spoil", "declared"), WRONG, ids=[said for said, _, _ in WRONG])
def test_what_is_wrong_is_refused(
    store: Store, said: str, spoil: Callable[[Store], object], declared: dict[str, Any]
) -> None:
    spoil(store)
    with pytest.raises(Refused, match=re.escape(said)):
        preview(views(store, **declared), store)


def test_what_does_not_continue_what_is_committed_is_refused(store: Store, tmp_path: Path) -> None:
    pipeline = views(store)
    first = land(store)
    land(store, 1)
    ref = next_batch(pipeline, store.root)
    with Local(processes=1) as local:
        run_batch(ref, local, tmp_path, step)
    erase(store.root, first.removeprefix(f"{store.root}/"))
    # All that is gone was read: the partition is idle.
    assert preview(pipeline, store).plan is None
    land(store, table=VIEWS.slice(0, 3))
    with pytest.raises(Refused, match=re.escape("offsets end at 3, but 5 is committed: the topic was reset")):
        preview(pipeline, store)
    erase(store.root, first.removeprefix(f"{store.root}/"))
    land(store, first=9)
    with pytest.raises(Refused, match=re.escape("offsets start at 9, but only those before 5 are committed: [5,9) is")):
        preview(pipeline, store)
    erase(store.root, f"topics/views/partition=0/views+0+{9:010}.parquet")
    land(store, first=5)
    taken = preview(pipeline, store)
    assert taken.plan is not None
    assert [str(one) for one in taken.plan.ranges()][:2] == ["views-0@[5,10)", "views-1@[5,5)"]
