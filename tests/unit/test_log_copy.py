"""A copy of a Delta log is as the log is, and what is committed to it counts once it is stored, if nobody was first."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction

from coset.batches.tables.log_copy import LogCopy, TableLog

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
