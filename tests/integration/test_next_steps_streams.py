"""What is wrong with landed files is done as its finding says; then the same command goes on, or the one it names."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from coset.sources.s3 import storage_options
from partitioning.documents.store import Store
from partitioning.hashes import placement_hash
from partitioning.kinds import Kind
from spark_jobs.tables.table_schema import folder
from tests.followed import Told, done, told
from tests.landed import land_file
from tests.sparse import land

LOCAL = ("--runner", "local")
FOLDER = "topics/views/partition=0/"


@dataclass(frozen=True)
class Views:
    """A pipeline in a file, and a landed topic of one partition."""

    store: Store
    file: Path

    def written(self, declared: str = "", source: str = "topics", *, partitions: int = 1, then: str = "views") -> str:
        """The pipeline's file, with its stream so declared, and what its step begins from."""
        self.file.write_text(
            "from coset import Pipeline\n"
            f'pipeline = Pipeline("counted", source="{self.store.root}/{source}")\n'
            f'views = pipeline.stream("views", key="ad", partitions={partitions}{declared})\n'
            f'{then}.aggregate("count(*) AS views, sum(n)::BIGINT AS n").write("counted")\n'
        )
        return str(self.file)

    def published(self, *offsets: list[int]) -> str:
        """Land files with these offsets, and publish a batch of them."""
        for each in offsets:
            land(self.store, each)
        done("run", self.written(), *LOCAL)
        return str(self.file)

    def take(self, first: int) -> bytes:
        """Remove a file; what it was."""
        key = self.key(first)
        data = self.store.get(key)
        assert data is not None
        self.store.delete(key)
        return data

    def key(self, first: int) -> str:
        return f"{FOLDER}views+0+{first:010}.parquet"


@pytest.fixture
def views(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Views:
    monkeypatch.setenv("COSET_STORE", store.root)
    monkeypatch.setenv("COSET_DOCS", str(tmp_path / "docs"))
    return Views(store, tmp_path / "by hand.py")


# ---- what has landed is mended


def stray(views: Views) -> None:
    views.store.put(f"{FOLDER}notes.txt", b"?")


def elsewhere(views: Views) -> None:
    land(views.store, [0, 1], partition=3)


def with_nothing(views: Views) -> None:
    table = pa.table({"ad": ["a", "b"], "n": pa.array([1, 2], pa.int64())})
    land_file(table, "views", f"{views.store.root}/topics", 0, 4, offsets=[4, None])


def in_words(views: Views) -> None:
    table = pa.table({"ad": ["a", "b"], "n": ["one", "two"]})
    land_file(table, "views", f"{views.store.root}/topics", 0, 4)


def otherwise(views: Views) -> None:
    table = pa.table({"ad": ["a", "b"], "n": pa.array([1, 2], pa.int64())})
    land_file(table, "views", f"{views.store.root}/topics", 0, 2)


MENDED: dict[str, tuple[Kind, Callable[[Views], object], str, str]] = {
    "a stray file": (Kind.FOLDERS, stray, "or remove it", f"{FOLDER}notes.txt"),
    "another partition": (
        Kind.PARTITIONS,
        elsewhere,
        "move the old files away",
        "topics/views/partition=3/views+3+0000000000.parquet",
    ),
    "a hole": (Kind.STREAM_GAP, lambda views: land(views.store, [6, 7]), "land", f"{FOLDER}views+0+0000000006.parquet"),
    "twice": (
        Kind.STREAM_TWICE,
        otherwise,
        "remove the other",
        f"{FOLDER}views+0+0000000002.parquet",
    ),
    "no offset": (
        Kind.RECORD,
        with_nothing,
        "remove the file and land it again",
        f"{FOLDER}views+0+0000000004.parquet",
    ),
    "another type": (Kind.STREAM_COLUMNS, in_words, "another name", f"{FOLDER}views+0+0000000004.parquet"),
    "no Parquet": (
        Kind.FILE_UNREADABLE,
        lambda views: views.store.put(views.key(4), b"PAR1 no more"),
        "again",
        f"{FOLDER}views+0+0000000004.parquet",
    ),
}


@pytest.mark.parametrize("name", MENDED)
def test_files_are_mended(name: str, views: Views) -> None:
    kind, spoil, said, key = MENDED[name]
    land(views.store, [0, 1, 2, 3])
    spoil(views)
    found = told(kind, "plan", views.written())
    assert said in found.next
    views.store.delete(key)
    found.again()


# ---- what is declared is corrected


def test_a_stream_is_declared_sparse_as_it_is_said(views: Views) -> None:
    land(views.store, [0, 1, 2, 3])
    land(views.store, [6, 7])
    found = told(Kind.STREAM_GAP, "plan", views.written())
    (declared,) = re.findall(r'offsets="sparse\(\d+\)"', found.next)
    views.written(f", {declared}")
    found.again()


def test_a_column_is_cast_as_it_is_said(views: Views) -> None:
    land(views.store, [0, 1, 2, 3])
    table = pa.table({"ad": ["a", "b"], "n": ["1", "2"]})
    land_file(table, "views", f"{views.store.root}/topics", 0, 4)
    found = told(Kind.STREAM_COLUMNS, "run", views.written(), *LOCAL)
    (declared,) = re.findall(r"cast=\{[^}]*\}", found.next)
    views.written(f", {declared}")
    found.again()


def test_a_key_has_the_format_that_is_declared(views: Views) -> None:
    table = pa.table({"ad": pa.array([b"a", b"\xff"]).view(pa.string()), "n": pa.array([1, 2], pa.int64())})
    land_file(table, "views", f"{views.store.root}/topics", 0, 0)
    found = told(Kind.KEY, "run", views.written(), *LOCAL)
    assert "land it with a column of bytes and declare key_format='bytes'" in found.next
    land_file(table.set_column(0, "ad", pa.array([b"a", b"\xff"])), "views", f"{views.store.root}/topics", 0, 0)
    views.written(", key_format='bytes'")
    done("replan", str(views.file), "--why", "the key is bytes")
    found.again()


@pytest.mark.parametrize("declared", [r"cast=\{[^}]*\}", "bad_records='set aside'"])
def test_text_that_is_not_utf8_is_read_as_bytes_or_set_aside_as_it_is_said(views: Views, declared: str) -> None:
    columns = {"ad": ["a", "b"], "n": pa.array([1, 2], pa.int64()), "x": pa.array([b"a", b"\xff"]).view(pa.string())}
    land_file(pa.table(columns), "views", f"{views.store.root}/topics", 0, 0)
    reading = 'views.filter("x IS NOT NULL")'
    found = told(Kind.RECORD, "run", views.written(then=reading), *LOCAL)
    (said,) = re.findall(declared, found.next)
    views.written(f", {said}", then=reading)
    done("replan", str(views.file), "--why", "its text is no UTF-8")
    found.again()


# ---- what was read, or lost


def test_a_topic_that_was_made_anew_with_fewer_records_is_begun_anew(views: Views) -> None:
    views.published([0, 1, 2, 3])
    views.take(0)
    land(views.store, [0, 1])
    found = told(Kind.STREAM_RESET, "plan", str(views.file))
    found.follow()
    found.again()


@pytest.mark.long
@pytest.mark.parametrize("which", [0, 1])
def test_a_topic_that_was_made_anew_is_begun_anew_or_gone_on_with(which: int, views: Views) -> None:
    views.published([0, 1, 2, 3])
    views.take(0)
    land(views.store, [0, 1, 2, 3, 4, 5])
    found = told(Kind.STREAM_REPLACED, "plan", str(views.file))
    assert ("--keep-offsets" in found.commands[which]) is (which == 1)
    found.follow(which=which)
    assert f"{(6, 2)[which]} records" in found.again()


@pytest.mark.parametrize("restored", [True, False])
def test_what_was_lost_unread_is_put_back_or_named(restored: bool, views: Views) -> None:
    views.published([0, 1, 2, 3])
    land(views.store, [4, 5])
    land(views.store, [6, 7])
    data = views.take(4)
    found = told(Kind.STREAM_LOST, "plan", str(views.file))
    if restored:
        views.store.put(views.key(4), data)
        assert "4 records" in found.again()
        return
    (option,) = re.findall(r"`--accept-loss '([^']*)'`", found.next)
    assert "2 records" in found.again("--accept-loss", option)


def test_a_loss_that_is_none_is_left_out(views: Views) -> None:
    land(views.store, [0, 1, 2, 3])
    found = told(Kind.LOSS_UNFOUNDED, "plan", views.written(), "--accept-loss", "views-0@[1,3)")
    assert "leave it out" in found.next
    done(*found.words[:2])


def test_a_batch_begins_with_a_file(views: Views, tmp_path: Path) -> None:
    land(views.store, [0, 1, 4, 5, 9])
    land(views.store, [12, 13])
    settings = tmp_path / "settings.toml"
    settings.write_text("[starts]\nviews-0 = 5\n")
    found = told(Kind.STREAM_START, "plan", views.written(', offsets="sparse"'), "--settings", str(settings))
    (start,) = re.findall(r"or (\d+), or", found.next)
    settings.write_text(f"[starts]\nviews-0 = {start}\n")
    assert "2 records" in found.again()


def spoiled(views: Views) -> Callable[[], object]:
    data = views.take(0)
    views.store.put(views.key(0), b"PAR1 no more")
    return lambda: views.store.put(views.key(0), data)


def gone(views: Views) -> Callable[[], object]:
    data = views.take(0)
    return lambda: views.store.put(views.key(0), data)


@pytest.mark.long
@pytest.mark.parametrize(("kind", "spoil"), [(Kind.FILE_CHANGED, spoiled), (Kind.FILE_GONE, gone)])
@pytest.mark.parametrize("restored", [True, False])
def test_a_planned_file_is_put_back_or_planned_anew(
    restored: bool, kind: Kind, spoil: Callable[[Views], Callable[[], object]], views: Views
) -> None:
    land(views.store, [0, 1, 2, 3])
    done("plan", views.written())
    restore = spoil(views)
    found: Told = told(kind, "run", str(views.file), *LOCAL)
    if restored:
        restore()
    else:
        land(views.store, [0, 1, 2, 3], ["a", "b", "c", "d"])
        found.follow()
    found.again()


# ---- what lies where nobody's hash puts it is moved


def test_records_that_no_known_hash_placed_are_moved_as_it_is_said(views: Views) -> None:
    ads = [f"ad-{number}" for number in range(24)]
    for partition in range(3):
        table = pa.table({"ad": ads[partition::3], "n": pa.array([1] * 8, pa.int64())})
        land_file(table, "views", f"{views.store.root}/topics", partition, 0)
    found = told(Kind.PROOF, "run", views.written(partitions=3), *LOCAL)
    way = re.compile(r'declare (hash="\w+") and move them, (views\.repartition\(\))')
    misplaced = [each for each in found.findings if way.search(each["next"])]
    assert [each["what"].partition(",")[0] for each in misplaced] == ["Placement", "Keys of views in stage views"]
    declared, moved = way.findall(misplaced[0]["next"])[0]
    views.written(f", {declared}", partitions=3, then=moved)
    (anew,) = (words for words in found.commands if words[0] == "replan")
    done(*anew)
    done("run", str(views.file), *LOCAL)
    rows = json.loads(done("rows", str(views.file), "--limit", "50", "--json"))
    assert rows[0]["rows"] == len(ads)


def test_records_from_before_a_topic_grew_are_moved_as_it_is_said_and_the_next_batch_is_declared_as_it_is(
    views: Views,
) -> None:
    def come(first: int, count: int) -> None:
        by_partition: dict[int, list[int]] = {}
        for number in range(first, first + 30):
            by_partition.setdefault(placement_hash(f"ad-{number % 20}") % count, []).append(number)
        for partition, numbers in by_partition.items():
            table = pa.table({"ad": [f"ad-{n % 20}" for n in numbers], "n": pa.array(numbers, pa.int64())})
            at = ends.get(partition, 0)
            land_file(table, "views", f"{views.store.root}/topics", partition, at)
            ends[partition] = at + len(numbers)

    ends: dict[int, int] = {}
    come(0, 2)
    come(30, 6)
    sums = '"sum(views)::BIGINT AS views, sum(n)::BIGINT AS n", running=True, name="sums"'
    running = f'combine({sums}).write("counted", mode="upsert"'

    def written(declared: str = "", then: str = "views") -> str:
        views.written(declared, partitions=6, then=then)
        views.file.write_text(views.file.read_text().replace('write("counted"', running))
        return str(views.file)

    found = told(Kind.PROOF, "run", written(), *LOCAL)
    assert "if the topic has 2, declare partitions=2; if it has 6, so do records from before it grew" in found.next
    ((declared, moved),) = set(re.findall(r'declare (hash="\w+") and move them, (views\.repartition\(\))', found.next))
    written(f", {declared}", moved)
    (anew,) = (words for words in found.commands if words[0] == "replan")
    done(*anew)
    done("run", str(views.file), *LOCAL)
    come(60, 6)
    done("run", written(), *LOCAL)
    where = folder(views.store, "counted")
    rows = DeltaTable(where, storage_options=storage_options()).to_pyarrow_table(columns=["ad", "views", "n"])
    wanted = {f"ad-{key}": [n for n in range(90) if n % 20 == key] for key in range(20)}
    assert sorted(map(tuple, (row.values() for row in rows.to_pylist()))) == sorted(
        (ad, len(numbers), sum(numbers)) for ad, numbers in wanted.items()
    )
