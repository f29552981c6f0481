"""A folder as a store: what it cannot be and leaves behind, what it says when the disk says no, a Delta log in it."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction

from coset import Pipeline
from coset.batches.tables.log_copy import LogCopy, TableLog
from partitioning.documents.stores import store_at
from partitioning.errors import Refused, Unreachable


@pytest.mark.parametrize(
    ("root", "why"),
    [
        ("landing", "is neither an S3 URI nor the whole path of a folder"),
        ("http://host/x", "is neither an S3 URI nor the whole path of a folder"),
        ("file://host/x", "is neither an S3 URI nor the whole path of a folder"),
        ("s3:///x", "names no bucket"),
        ("s3://bucket//x", "has '//' in it"),
        ("s3://bucket/x//y/", "has '//' in it"),
        ("s3://bucket/x/../y", r"has '\.\.' in it"),
        ("s3://bucket/./y", r"has '\.' in it"),
        ("s3://bucket/%41", "has '%' in it"),
        ("s3://bucket/x#y", "has '#' in it"),
        ("s3://bucket/x?y", r"has '\?' in it"),
        ("/a/../b", r"has '\.\.' in it"),
        ("/a%20b", "has '%' in it"),
        ("/a\nb", r"has '\\n' in it"),
        ("file:///?", r"has '\?' in it"),
    ],
)
def test_an_address_that_names_no_store_is_refused(root: str, why: str) -> None:
    with pytest.raises(Refused, match=why):
        store_at(root)
    with pytest.raises(Refused, match=why):
        Pipeline("p", source=root).stream("views", key="k", partitions=1)


def test_a_folder_is_the_same_by_its_path_and_by_its_address(tmp_path: Path) -> None:
    folder = tmp_path / "a store"
    by_path, by_address = store_at(str(folder)), store_at(f"file://{folder}/")
    assert by_path.root == by_address.root == f"file://{folder}"
    assert Pipeline("p", source=folder).source == f"file://{folder}"
    by_path.put("a", b"1")
    assert by_address.get("a") == b"1"


def test_an_empty_store_makes_no_folder(tmp_path: Path) -> None:
    store = store_at(str(tmp_path / "store"))
    assert list(store.list("")) == []
    assert store.get("a") is None
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("put", ["put", "put_new"])
def test_an_object_is_whole_and_on_the_disk_before_it_has_its_name(
    put: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = list[tuple[int, bool]]()

    def synced(descriptor: int) -> None:
        seen.append((os.fstat(descriptor).st_size, (tmp_path / "a").exists()))

    monkeypatch.setattr(os, "fsync", synced)
    getattr(store_at(str(tmp_path)), put)("a", b"12345")
    assert seen == [(5, False)]


def test_a_new_object_is_stored_though_others_come_and_go(tmp_path: Path) -> None:
    def come_and_go(name: bytes) -> set[bytes]:
        store, seen = store_at(str(tmp_path)), set[bytes]()
        for _ in range(1_000):
            seen.add(store.put_new("a", name))
            store.delete("a")
        return seen

    names = {b"1", b"2", b"3"}
    with ThreadPoolExecutor(3) as pool:
        assert all(seen <= names for seen in pool.map(come_and_go, sorted(names)))


def test_links_and_names_that_no_waiting_mends_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "nowhere")
    with pytest.raises(Unreachable, match="No such file or directory"):
        store_at(str(tmp_path)).put_new("a", b"1")
    store = store_at(str(tmp_path))
    with pytest.raises(Refused, match="correct the name or the link"):
        store.put("a" * 300, b"1")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(Refused, match="correct the name or the link"):
        store.get("loop")


def test_what_a_killed_writer_left_is_no_object(tmp_path: Path) -> None:
    store = store_at(str(tmp_path))
    store.put("a/b", b"whole")
    (tmp_path / "a" / ".unfinished-1-00").write_bytes(b"ha")
    assert [entry.key for entry in store.list("")] == ["a/b"]


def test_a_writer_that_is_done_or_came_second_leaves_nothing_behind(tmp_path: Path) -> None:
    store = store_at(str(tmp_path))
    for _ in range(2):
        store.put_new("a/b", b"1")
        store.put("a/c", b"2")
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["b", "c"]


def test_a_folder_where_a_file_is_needed_and_the_other_way_round_are_refused(tmp_path: Path) -> None:
    (tmp_path / "store").write_bytes(b"")
    store = store_at(str(tmp_path / "store"))
    assert store.get("a/b") is None
    with pytest.raises(Refused, match="a file stands where a folder is needed"):
        store.put_new("a/b", b"1")
    (tmp_path / "store-id").mkdir()
    for put in (store_at(str(tmp_path)).put, store_at(str(tmp_path)).put_new):
        with pytest.raises(Refused, match="a folder stands where a file is needed"):
            put("store-id", b"1")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_folder_that_may_not_be_written_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    folder.mkdir(mode=0o555)
    for parent in (tmp_path, *tmp_path.parents):
        if parent.stat().st_uid == os.getuid() and str(parent).startswith("/tmp/"):
            parent.chmod(0o755)
    child = os.fork()
    if child == 0:
        os.setuid(65534)
        try:
            store_at(str(folder)).put("a", b"1")
        except Refused as error:
            os._exit(0 if "access is denied" in str(error) and "user 65534" in str(error) else 2)
        os._exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


SCHEMA = Schema.from_arrow(pa.schema([("n", pa.int64())]))


@pytest.fixture
def where(tmp_path: Path) -> str:
    address = f"file://{tmp_path}/t"
    LogCopy(address).create(SCHEMA, configuration={"delta.checkpointInterval": "5"})
    return address


def commit(table: TableLog, number: int) -> int:
    """Commit to the copy; returns the version before."""
    before = table.version()
    table.create_write_transaction(
        [AddAction(f"{number}.parquet", 1, {}, 0, True, '{"numRecords": 1}')],
        "append",
        table.schema(),
        commit_properties=CommitProperties(app_transactions=[Transaction("p:t", number)]),
    )
    return before


def read(copy: LogCopy) -> TableLog:
    table = copy.table()
    assert table is not None
    return table


def test_what_is_pushed_is_what_others_read_with_its_checkpoints(where: str) -> None:
    copy, late = LogCopy(where), LogCopy(where)
    for number in range(23):
        copy.push(commit(read(copy), number))
        if number % 6 == 0:
            assert read(late).version() == number + 1
    whole = DeltaTable(where)
    for table in (read(copy), read(late), read(LogCopy(where))):
        assert table.version() == whole.version() == 23
        assert table.transaction_version("p:t") == whole.transaction_version("p:t") == 22
        assert sorted(table.get_add_actions()["path"].to_pylist()) == sorted(f"{n}.parquet" for n in range(23))
        assert table.table_uri == where
        assert [entry["version"] for entry in table.entries()] == [*range(23, -1, -1)]
        assert [{**entry} for entry in table.history(3)] == whole.history(3)
    log = Path(where.removeprefix("file://")) / "_delta_log"
    assert {path.name for path in log.glob("*.checkpoint.parquet")} == {
        f"{n:020}.checkpoint.parquet" for n in (4, 9, 14, 19)
    }


def test_of_two_that_commit_the_same_version_one_is_refused_and_reads_the_other(where: str) -> None:
    one, two = LogCopy(where), LogCopy(where)
    first, second = commit(read(one), 1), commit(read(two), 2)
    one.push(first)
    with pytest.raises(CommitFailedError, match=r"00000000000000000001\.json"):
        two.push(second)
    assert read(two).transaction_version("p:t") == 1
    assert DeltaTable(where).version() == 1


def test_a_commit_that_was_not_pushed_is_not_read(where: str) -> None:
    copy = LogCopy(where)
    commit(read(copy), 1)
    assert read(copy).version() == 0
    copy.push(commit(read(copy), 1))
    assert read(copy).version() == DeltaTable(where).version() == 1


def test_a_log_that_was_rolled_back_replaced_or_removed_is_read_anew(where: str) -> None:
    copy = LogCopy(where)
    for number in range(8):
        copy.push(commit(read(copy), number))
    log = Path(where.removeprefix("file://")) / "_delta_log"
    for version in (8, 7):
        (log / f"{version:020}.json").unlink()
    assert read(copy).version() == 6
    write_deltalake(where, pa.table({"n": [1]}), mode="append")
    assert read(copy).version() == 7
    assert read(copy).transaction_version("p:t") == 5
    (log / "00000000000000000004.checkpoint.parquet").unlink()
    assert read(copy).version() == 7
    for path in log.iterdir():
        path.unlink()
    assert copy.table() is None


def test_a_hint_that_is_damaged_or_names_no_checkpoint_hides_nothing(where: str) -> None:
    copy = LogCopy(where)
    for number in range(8):
        copy.push(commit(read(copy), number))
    hint = Path(where.removeprefix("file://")) / "_delta_log/_last_checkpoint"
    for damaged in ("{", '{"version": 7}', "{}"):
        hint.write_text(damaged)
        assert read(LogCopy(where)).version() == 8
