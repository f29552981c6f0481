"""Discovery takes what a sink writes and refuses everything else, in folders of partitions and of hours."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coset.batches.ends import forget
from coset.batches.interpreter import run_batch
from coset.batches.planning import preview
from coset.batches.runners.local import Local
from coset.cli.output import step
from coset.sources.known import KnownStream
from coset.sources.landed import discover
from coset.sources.new_files import NewFiles
from coset.sources.pinned import not_as_planned
from demo.s3_server import S3Server
from partitioning.authoring.pipeline import Pipeline
from partitioning.commands import Replan
from partitioning.documents import s3_store as stores
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.errors import CosetError, Finding, Refused, Unreachable
from partitioning.model.placement import KeyFormat
from partitioning.model.plan import Plan
from partitioning.model.read_ends import What
from partitioning.model.streams import Column, Layout, Stream
from partitioning.values import replace
from tests.batches import erase
from tests.faults import FaultProxy
from tests.landed import land_file, land_table
from tests.running import next_batch, run_and_publish
from tests.there import there
from tests.written import WRITERS, file_key, row

VIEWS = pa.table({"ad": ["a", "b", "c", "d", "e"], "shown": pa.array([1, 2, 3, 4, 5], pa.int32())})


def views(store: Store, **declared: Any) -> Stream:
    given: dict[str, Any] = {"name": "views", "source": store.root, "key": "ad", "partitions": 2} | declared
    return Stream(**given)


def refusal(*streams: Stream) -> str:
    """What discovery refuses with; each finding says where and what next."""
    with pytest.raises(Refused) as caught:
        discover(streams)
    assert all("://" in finding.where and finding.then for finding in caught.value.findings)
    return str(caught.value)


def test_files_are_found_by_partition_in_the_order_of_their_offsets(store: Store) -> None:
    land_table(VIEWS, "views", store.root, key="ad", partitions=2, files=2)
    land_table(VIEWS, "views", store.root, key="ad", partitions=2)
    (found,) = discover([views(store)])
    assert found.columns == (Column("ad", "VARCHAR"), Column("shown", "INTEGER"), Column("_offset", "BIGINT"))
    assert sum(each.end - each.beginning for each in found.partitions) == 10
    for partition in found.partitions:
        starts = [file.start for file in partition.files]
        assert starts[0] == 0
        assert starts[1:] == [file.end for file in partition.files[:-1]]
        for file in partition.files:
            entry = there(store.head(file.path.removeprefix(f"{store.root}/")))
            assert (file.size, file.etag) == (entry.size, entry.etag)


def test_a_partition_without_files_is_empty(store: Store) -> None:
    land_file(VIEWS, "views", store.root, 1, 7)
    (found,) = discover([views(store, partitions=3)])
    assert [(each.beginning, each.end) for each in found.partitions] == [(0, 0), (7, 12), (0, 0)]


def test_a_file_without_records_is_ignored(store: Store) -> None:
    land_file(VIEWS, "views", store.root, 0, 0)
    land_file(VIEWS.slice(0, 0).rename_columns(["other", "names"]), "views", store.root, 0, 99)
    (found,) = discover([views(store)])
    assert len(found.partitions[0].files) == 1
    assert found.columns[0].name == "ad"


def test_offsets_are_read_where_the_footer_has_no_statistics(store: Store) -> None:
    sink = io.BytesIO()
    pq.write_table(VIEWS.append_column("_offset", pa.array(range(3, 8), pa.int64())), sink, write_statistics=False)
    store.put("views/partition=0/views+0+0000000003.parquet", sink.getvalue())
    (found,) = discover([views(store)])
    assert (found.partitions[0].beginning, found.partitions[0].end) == (3, 8)


def test_an_unknown_stream_is_refused_with_the_streams_there_are(store: Store) -> None:
    land_file(VIEWS, "views", store.root, 0, 0)
    land_file(VIEWS, "clicks", store.root, 0, 0)
    said = refusal(views(store, name="veiws"))
    assert "no such stream 'veiws'" in said
    assert "streams there: clicks, views" in said


def test_an_object_that_is_no_parquet_is_refused(store: Store) -> None:
    store.put("views/partition=0/views+0+0000000000.parquet", b'{"ad": "a"}\n' * 20)
    said = refusal(views(store))
    assert "truncated or no Parquet" in said
    assert "views+0+0000000000.parquet" in said


@pytest.mark.parametrize("kept", [0, 3, 0.5, -1])
def test_a_truncated_file_is_refused(store: Store, kept: float) -> None:
    land_file(VIEWS, "views", store.root, 0, 0)
    key = "views/partition=0/views+0+0000000000.parquet"
    data = there(store.get(key))
    store.put(key, data[: int(len(data) * kept) if isinstance(kept, float) else kept])
    assert "truncated or no Parquet" in refusal(views(store))


@pytest.mark.parametrize(
    "name",
    [
        "partition=0/views.parquet",
        "partition=0/views+0+12.parquet",
        "partition=0/views+0+0000000000.json",
        "partition=x/views+0+0000000000.parquet",
        "partition=00/views+0+0000000000.parquet",
        "partition=0/more/views+0+0000000000.parquet",
    ],
)
def test_a_name_that_cannot_be_read_is_refused(store: Store, name: str) -> None:
    store.put(f"views/{name}", b"")
    said = refusal(views(store))
    assert "the file's name cannot be read" in said
    assert f"{store.root}/views/{name}" in said


BESIDE = (
    "_SUCCESS",
    ".views+0+0000000000.parquet.crc",
    "_views+0+0000000005.parquet",
    "_tmp/views+0+0000000005.parquet",
)


@pytest.mark.parametrize("layout", ["partition", "time"])
def test_objects_whose_names_begin_with_an_underscore_or_a_dot_are_passed_over(store: Store, layout: str) -> None:
    land_file(VIEWS, "views", store.root, 0, 0)
    (alone,) = discover((views(store, layout=Layout(layout)),))
    for name in BESIDE:
        store.put(f"views/partition=0/{name}", b"no Parquet")
    store.put("views/_SUCCESS", b"")
    store.put("views/.hoodie/views+0+0000000009.parquet", b"no Parquet")
    (found,) = discover((views(store, layout=Layout(layout)),))
    assert replace(found, looked=alone.looked) == alone
    assert (alone.looked.hidden, found.looked.hidden) == (0, len(BESIDE) + (2 if layout == "time" else 0))


def test_a_stream_without_other_objects_has_no_files(store: Store) -> None:
    store.put("views/partition=0/_SUCCESS", b"")
    assert "no file lies in a folder views/partition=<n>/" in refusal(views(store))


def test_a_stream_whose_own_name_begins_with_an_underscore_is_read(store: Store) -> None:
    land_file(VIEWS, "_views", store.root, 0, 0)
    (found,) = discover((replace(views(store), name="_views"),))
    assert found.partitions[0].end == len(VIEWS)


def test_a_topic_that_has_grown_is_one_finding_with_both_counts_and_what_to_declare(store: Store) -> None:
    for partition in (0, 1, 2, 5, 4):
        for first in range(0, 60 * len(VIEWS), len(VIEWS)):
            land_file(VIEWS, "views", store.root, partition, first)
    said = refusal(views(store))
    assert "180 files of partitions 2, 4-5, but 2 partitions are declared, 0-1" in said
    assert "views+2+0000000000.parquet, and 179 more\n" in said
    assert "if the topic has grown, declare partitions=6, or its count if that is more" in said
    assert len(said.splitlines()) == 3
    discover((replace(views(store), partitions=6),))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("views+1+0000000000", "the file's name says partition 1, its folder 0"),
        ("clicks+0+0000000000", "the file's name says stream 'clicks', its folder 'views'"),
    ],
)
def test_a_name_that_disagrees_with_its_folder_is_refused(store: Store, name: str, said: str) -> None:
    land_file(VIEWS, "views", store.root, 0, 0)
    data = there(store.get("views/partition=0/views+0+0000000000.parquet"))
    store.put(f"views/partition=0/{name}.parquet", data)
    assert said in refusal(views(store))


def test_a_file_whose_records_are_not_those_that_its_name_says_is_refused(store: Store) -> None:
    land_file(VIEWS, "views", store.root, 0, 5, offsets=range(6, 11))
    assert "the file's name says first offset 5, its records 6" in refusal(views(store))
    land_file(VIEWS, "views", store.root, 0, 5, offsets=[5, 6, 8, 9, 10])
    assert "5 records have the offsets [5,11): a gap" in refusal(views(store))
    land_file(VIEWS, "views", store.root, 0, 5, offsets=[5, 6, 6, 7, 8])
    assert "5 records have the offsets [5,9): a duplicate" in refusal(views(store))


@pytest.mark.parametrize(
    ("second", "said"),
    [(7, "gap: no file holds views-1@[5,7)"), (3, "two files hold views-1@[3,5), and differ from offset 3 on")],
)
def test_a_gap_or_another_record_between_files_is_refused_with_both_files(store: Store, second: int, said: str) -> None:
    uris = [land_file(VIEWS, "views", store.root, 1, first) for first in (0, second)]
    told = refusal(views(store))
    assert said in told
    assert all(uri in told for uri in uris)


def test_of_two_files_with_the_same_records_one_counts(store: Store) -> None:
    uri = land_file(VIEWS, "views", store.root, 1, 0)
    data = there(store.get(uri.removeprefix(f"{store.root}/")))
    # Eleven digits name the same offset in another file.
    store.put("views/partition=1/views+1+00000000000.parquet", data)
    (found,) = discover([views(store)])
    (file,), (double,) = found.partitions[1].files, found.partitions[1].doubles
    assert (file.start, file.end, double.start, double.end) == (0, 5, 0, 5)
    assert {file.path, double.path} == {uri, f"{store.root}/views/partition=1/views+1+00000000000.parquet"}


def test_a_small_file_inside_a_large_one_is_one_difference(store: Store) -> None:
    land_file(pa.concat_tables([VIEWS, VIEWS]), "views", store.root, 0, 0)
    land_file(VIEWS.slice(0, 2), "views", store.root, 0, 3)
    land_file(VIEWS, "views", store.root, 0, 10)
    said = refusal(views(store))
    assert "two files hold views-0@[3,5), and differ from offset 3 on" in said
    assert "gap" not in said


def test_a_missing_or_mistyped_key_or_offset_column_is_refused(store: Store) -> None:
    land_file(VIEWS, "views", store.root, 0, 0)
    said = refusal(views(store, key="advert"))
    assert "there is no key column 'advert'" in said
    assert "there are ad, shown, _offset" in said
    assert "there is no offset column 'place'" in refusal(views(store, offset="place"))
    assert "offset column 'shown' is INTEGER, not BIGINT" in refusal(views(store, offset="shown"))


@pytest.mark.parametrize(
    ("key_format", "type_", "fits"),
    [
        ("string", pa.string(), True),
        ("string", pa.large_string(), True),
        ("string", pa.binary(), False),
        ("string", pa.int64(), False),
        ("long", pa.int64(), True),
        ("long", pa.int32(), False),
        ("int", pa.int32(), True),
        ("int", pa.int64(), False),
        ("double", pa.float64(), True),
        ("double", pa.float32(), False),
        ("uuid", pa.string(), True),
        ("uuid", pa.binary(), False),
        ("bytes", pa.binary(), True),
        ("bytes", pa.string(), False),
    ],
)
def test_the_key_column_must_fit_the_key_format(store: Store, key_format: str, type_: pa.DataType, fits: bool) -> None:
    land_file(pa.table({"ad": pa.nulls(3, type_)}), "views", store.root, 0, 0)
    stream = views(store, key_format=KeyFormat(key_format))
    if fits:
        assert discover([stream])[0].columns[0].name == "ad"
    else:
        assert f"under key format {key_format!r}" in refusal(stream)


def test_files_with_other_columns_are_refused_with_both_types(store: Store) -> None:
    land_file(VIEWS, "views", store.root, 0, 0)
    other = VIEWS.set_column(1, "shown", VIEWS["shown"].cast(pa.string())).append_column("new", VIEWS["ad"])
    land_file(other, "views", store.root, 1, 0)
    said = refusal(views(store))
    assert "shown is VARCHAR, not INTEGER" in said
    # A column that is added is read as null where it is not.
    assert "new" not in said
    assert "partition=0" in said
    assert "partition=1" in said


def test_all_findings_of_all_streams_come_at_once(store: Store) -> None:
    land_file(VIEWS, "views", store.root, 0, 5, offsets=[6, 7, 8, 9, 11])
    store.put("views/partition=1/views+1+0000000000.parquet", b"no")
    with pytest.raises(Refused) as caught:
        discover([views(store), views(store, name="clicks")])
    assert len(caught.value.findings) == 4


def test_a_file_that_the_store_does_not_give_is_not_called_truncated(
    s3: S3Server, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    land_file(VIEWS, "views", store.root, 0, 0)
    proxy = FaultProxy(s3.environment["AWS_ENDPOINT_URL"])
    proxy.spoil(r"before:403 get \.parquet$")
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
    said = refusal(views(store))
    proxy.stop()
    assert "the store denies access" in said
    assert "truncated" not in said


@pytest.mark.parametrize(
    ("name", "value", "kind", "said"),
    [
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:9", Unreachable, "cannot be reached"),
        ("AWS_SECRET_ACCESS_KEY", "wrong", Refused, "the store denies access"),
        ("AWS_ACCESS_KEY_ID", "nobody", Refused, "the store denies access"),
    ],
)
@pytest.mark.usefixtures("s3")
def test_a_store_that_gives_nothing_is_named(
    store: Store, monkeypatch: pytest.MonkeyPatch, name: str, value: str, kind: type[CosetError], said: str
) -> None:
    land_file(VIEWS, "views", store.root, 0, 0)
    monkeypatch.setenv(name, value)
    with pytest.raises(kind, match=said):
        discover([views(store)])


def test_a_missing_bucket_is_named(store: Store) -> None:
    assert "there is no bucket 'nowhere'" in refusal(views(store, source="s3://nowhere/topics"))


WRITER = next(writer for writer in WRITERS if str(writer) == "json-plain")
HOURS, ROWS = 12, 2


def views_by_time(store: Store, partitions: int = 2) -> Pipeline:
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
    plan = preview(views_by_time(store), store).plan
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
    published(store, views_by_time(store), tmp_path)
    monkeypatch.setattr(stores, "PAGE_KEYS", 10)
    return store


def last(store: Store) -> Plan:
    plan = there(Ledger(store, "hourly").standing().published)
    return plan


def test_a_record_that_comes_late_is_found_in_the_folder_of_its_hour(landed: Store, tmp_path: Path) -> None:
    land(landed, 3, 0, HOURS * ROWS)
    assert ranges(landed) == ["views-0@[24,26)", "views-1@[24,24)"]
    published(landed, views_by_time(landed), tmp_path)
    land(landed, HOURS, 0, HOURS * ROWS + ROWS)
    land(landed, 0, 1, HOURS * ROWS)
    assert ranges(landed) == ["views-0@[26,28)", "views-1@[24,26)"]


def test_all_folders_are_listed_and_only_new_files_opened(landed: Store, proxy: FaultProxy) -> None:
    made, plan, opened = views_by_time(landed), last(landed), r"^[^?]*views\+\d\+\d+\.json"
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
    plan = there(preview(views_by_time(landed), landed).plan)
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
    assert "[24,26) is lost" in refused(views_by_time(landed), landed).what


def test_files_that_were_put_together_since_are_gone_on_with_once_somebody_says_that_they_are_the_same(
    landed: Store,
) -> None:
    plan = last(landed)
    erase(landed.root, *(file.path.removeprefix(f"{landed.root}/") for file in plan.streams[0].partitions[0].files))
    land(landed, 0, 0, 0, rows=30)
    assert "and another file has the last of these offsets now" in refused(views_by_time(landed), landed).what
    forget(Ledger(landed, "hourly"), "views", 0, What.SOURCE, "put together")
    assert ranges(landed) == ["views-0@[24,30)", "views-1@[24,24)"]


def test_names_decide_and_each_object_has_to_have_one(landed: Store) -> None:
    finding = refused(views_by_time(landed, partitions=1), landed)
    assert "of partition 1, but 1 partition is declared, 0" in finding.what
    landed.put("topics/views/year=2026/views+0+24.json", b"")
    assert "the file's name cannot be read" in refused(views_by_time(landed), landed).what
    landed.delete("topics/views/year=2026/views+0+24.json")
    landed.put("topics/views/year=2026/clicks+0+0000000024.json", b"")
    finding = refused(views_by_time(landed), landed)
    assert re.search("says stream 'clicks', its folder 'views'", finding.what)


RECORDS = pa.table({"member": ["anna", "bert", "carl", "dora", "emma"], "page": ["home"] * 5})


def test_a_codec_in_the_name_is_read(store: Store) -> None:
    sink = io.BytesIO()
    pq.write_table(RECORDS.append_column("_offset", pa.array(range(7, 12), pa.int64())), sink, compression="snappy")
    store.put("topics/views/partition=0/views+0+0000000007.snappy.parquet", sink.getvalue())
    (found,) = discover(plain_views(store).streams)
    assert (found.partitions[0].beginning, found.partitions[0].end) == (7, 12)


def plain_views(store: Store, name: str = "views", key: str = "member", **declared: Any) -> Pipeline:
    """A pipeline with opaque placement: which partition a key lies in is no matter here."""
    pipeline = Pipeline("pages", source=f"{store.root}/topics")
    flow = pipeline.stream(name, key=key, partitions=4, hash="opaque", **declared)
    flow.select("page").write("pages")
    return pipeline


def land_records(
    store: Store, partition: int = 0, first: int = 0, *, table: pa.Table = RECORDS, offsets: list[int] | None = None
) -> str:
    return land_file(table, "views", f"{store.root}/topics", partition, first, offsets=offsets)


def move(store: Store, name: str) -> None:
    """Land a file under another name."""
    data = store.get(land_records(store).removeprefix(f"{store.root}/"))
    assert data is not None
    store.put(f"topics/views/{name}", data)


def without_offsets(store: Store) -> None:
    sink = io.BytesIO()
    pq.write_table(RECORDS.append_column("_offset", pa.array([None, 0, 1, 2, None], pa.int64())), sink)
    store.put("topics/views/partition=0/views+0+0000000000.parquet", sink.getvalue())


def numbered(store: Store) -> None:
    land_records(store, table=pa.table({"member": pa.array(range(5), pa.int64()), "page": ["home"] * 5}))


def retyped(store: Store) -> None:
    land_records(store)
    land_records(store, 1, table=RECORDS.set_column(1, "page", pa.array(range(5), pa.int64())))


def dropped(store: Store) -> None:
    never_null = pa.schema([pa.field("member", pa.string()), pa.field("page", pa.string(), nullable=False)])
    land_records(store, table=RECORDS.cast(never_null))
    land_records(store, first=5, table=RECORDS.select(["member"]))


def keyless(store: Store) -> None:
    land_records(store)
    land_records(store, 1, table=RECORDS.select(["page"]))


WRONG: list[tuple[str, Callable[[Store], object], dict[str, Any]]] = [
    ("no such stream 'veiws'", land_records, {"name": "veiws"}),
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
    (
        "the file's name says first offset 0, its records 1",
        lambda store: land_records(store, offsets=[1, 2, 3, 4, 5]),
        {},
    ),
    ("1 file of partition 4, but 4 partitions are declared, 0-3", lambda store: land_records(store, 4), {}),
    ("5 records have the offsets [0,6): a gap", lambda store: land_records(store, offsets=[0, 1, 2, 3, 5]), {}),
    ("5 records have the offsets [0,4): a duplicate", lambda store: land_records(store, offsets=[0, 1, 2, 3, 3]), {}),
    ("gap: no file holds views-0@[5,9)", lambda store: (land_records(store), land_records(store, first=9)), {}),
    (
        "two files hold views-0@[3,5), and differ from offset 3 on",
        lambda store: (land_records(store), land_records(store, first=3)),
        {},
    ),
    ("2 records have no offset", without_offsets, {}),
    ("there is no key column 'membr'", land_records, {"key": "membr"}),
    ("there is no offset column 'offset'", land_records, {"offset": "offset"}),
    ("key column 'member' is BIGINT, not VARCHAR under key format 'string'", numbered, {}),
    ("columns differ: page is BIGINT, not VARCHAR", retyped, {}),
    ("columns differ: page is missing, not VARCHAR, and it was never null", dropped, {}),
    ("columns differ: member is missing, not VARCHAR", keyless, {}),
    ("there is no column 'pages' to cast", lambda store: land_records(store), {"cast": {"pages": "BIGINT"}}),
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
        preview(plain_views(store, **declared), store)


def test_what_does_not_continue_what_is_committed_is_refused(store: Store, tmp_path: Path) -> None:
    pipeline = plain_views(store)
    first = land_records(store)
    land_records(store, 1)
    ref = next_batch(pipeline, store.root)
    with Local(processes=1) as local:
        run_batch(ref, local, tmp_path, step)
    erase(store.root, first.removeprefix(f"{store.root}/"))
    # All that is gone was read: the partition is idle.
    assert preview(pipeline, store).plan is None
    land_records(store, table=RECORDS.slice(0, 3))
    with pytest.raises(Refused, match=re.escape("offsets end at 3, but 5 is committed: the topic was reset")):
        preview(pipeline, store)
    erase(store.root, first.removeprefix(f"{store.root}/"))
    land_records(store, first=9)
    with pytest.raises(Refused, match=re.escape("offsets start at 9, but only those before 5 are committed: [5,9) is")):
        preview(pipeline, store)
    erase(store.root, f"topics/views/partition=0/views+0+{9:010}.parquet")
    land_records(store, first=5)
    taken = preview(pipeline, store)
    assert taken.plan is not None
    assert [str(one) for one in taken.plan.ranges()][:2] == ["views-0@[5,10)", "views-1@[5,5)"]
