"""Iceberg tables read as tables: what snapshots delete and overwrite goes, and each batch has the rows of now."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.types import LongType, StringType

from bench.elsewhere import python_of, variables_of
from bench.party import JARS, PARTIES
from coset.batches.ends import forget
from coset.batches.steps import plan as planned
from coset.batches.verifying import verify
from coset.testing import run as attempted
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.errors import Refused
from partitioning.explain.table_query import table_query
from partitioning.kinds import Kind
from partitioning.model.read_ends import What
from partitioning.model.schemes import tasks
from tests.bucketed import (
    Row,
    append,
    bucket_of,
    create,
    delete_positions,
    delete_values,
    files_of,
    keep_newest,
    lake,
    live,
    rewrite,
)
from tests.catalogues import rest_catalogues
from tests.commands import coset, succeeded
from tests.examples import share
from tests.followed import told
from tests.logs import log_of
from tests.readers import reader as reader_of
from tests.running import run_and_publish_unjudged
from tests.swapped import NEWEST, entered, land
from tests.there import there

__all__ = ["lake"]
KEYS = 60
_PEOPLE = {"id": LongType(), "region": StringType(), "amount": LongType()}
# What becomes of a table that no batch has read, or of its columns.
UNREAD = {Kind.STREAM_RESET, Kind.STREAM_LOST, Kind.STREAM_COLUMNS}
REGIONS = 5


def regions(buckets: int = 4) -> Pipeline:
    """Two tables that change, each as it is, and what comes of both."""
    pipeline = Pipeline("regions", source="iceberg://lake.shop")
    people = pipeline.table("people", key="id", key_format="long", partitions=buckets, kept=True)
    rates = pipeline.table("rates", key="region", partitions=1, kept=True, deletes="rate = 13")
    rows = people.select("region, amount", name="rows")
    rows.write("people", mode="upsert")
    rates.write("rates", mode="upsert")
    by_region = people.rekey("region", name="by_region")
    sums = "count(*) AS n, sum(amount)::BIGINT AS amount"
    by_region.aggregate(sums, name="sums").write("sums", mode="replace")
    by_region.join(rates, "by_region.id, amount * rate AS paid", how="inner", name="paid").rekey(
        "id", key_format="long", name="paid_by_id"
    ).write("paid", mode="replace")
    rows.write("moves", mode="changelog")
    return pipeline


class Regions:
    """A table in buckets, which is written as engines do, and one that PyIceberg itself writes."""

    def __init__(self, lake: Catalog, random_: random.Random) -> None:
        self._lake = lake
        self._random = random_
        self.people = create(lake, "shop.people", _PEOPLE, 4)
        self.rates = create(lake, "shop.rates", {"region": StringType(), "rate": LongType()}, None)
        self._dead = defaultdict[str, set[int]](set)
        self._dead_at = dict[int, dict[str, set[int]]]()
        self.done = list[str]()

    def change(self, *, wild: bool = False) -> None:
        some = [self.insert, self.insert, self.update, self.delete, self.merge, self.come_and_go]
        some += [self.compact, self.change_rates, self.change_rates]
        if wild:
            some += [self.roll_back, self.branch, self.take_branch, self.expire_some, self.evolve, self.evolve]
            some += [self.make_anew] if self._random.random() < 0.2 else []
        step = self._random.choice(some)
        self.people.refresh()
        self.done.append(step.__name__)
        step()
        if now := self.people.refresh().current_snapshot():
            self._dead_at.setdefault(now.snapshot_id, {path: {*dead} for path, dead in self._dead.items()})

    def roll_back(self) -> None:
        """Undo some snapshots that are still known."""
        at, before = self.people.current_snapshot(), list[int]()
        while at and at.parent_snapshot_id and (at := self.people.snapshot_by_id(at.parent_snapshot_id)):
            before += [at.snapshot_id] * (at.snapshot_id in self._dead_at)
        if before:
            self.people.manage_snapshots().rollback_to_snapshot(self._random.choice(before[:3])).commit()
            self._is_now()

    def branch(self) -> None:
        """Rows come to a branch, and to no other."""
        name, keys = f"b{len(self.done)}", sorted({*range(KEYS)} - self._keys())[:3]
        now = there(self.people.current_snapshot()).snapshot_id
        self.people.manage_snapshots().create_branch(now, name).commit()
        rows = [{**self._row(key), "region": name} for key in keys]
        with self.people.transaction() as change, change.update_snapshot(branch=name).fast_append() as more:
            for file in files_of(self.people, rows):
                more.append_data_file(file)
        branched = there(self.people.refresh().snapshot_by_name(name)).snapshot_id
        self._dead_at[branched] = {path: {*dead} for path, dead in self._dead.items()}

    def take_branch(self) -> None:
        """A branch becomes the table."""
        if names := sorted(self.people.refs().keys() - {"main"}):
            self.people.manage_snapshots().set_current_snapshot(ref_name=self._random.choice(names)).commit()
            self._is_now()

    def _is_now(self) -> None:
        now = there(self.people.refresh().current_snapshot()).snapshot_id
        self._dead = defaultdict(set, {path: {*dead} for path, dead in self._dead_at[now].items()})

    def expire_some(self) -> None:
        """Some snapshots expire, whether they were read or not."""
        held = {ref.snapshot_id for ref in self.people.refs().values()}
        old = [each.snapshot_id for each in self.people.snapshots() if each.snapshot_id not in held]
        if gone := self._random.sample(old, self._random.randrange(len(old) + 1)):
            self.people.maintenance.expire_snapshots().by_ids(gone).commit()

    def evolve(self) -> None:
        names = sorted({field.name for field in self.people.schema().fields} - _PEOPLE.keys())
        one, new = self._random.choice(names or [""]), f"c{len(self.done)}"
        match self._random.randrange(5) if names else 4:
            case 0:
                self._rename(one, new)
            case 1 | 2:
                self._rename("amount", new)
                self._rename(one, "amount")
            case 3:
                with self.people.update_schema() as change:
                    change.delete_column(one)
            case _:
                with self.people.update_schema() as change:
                    change.add_column("c" if "c" not in names else new, LongType())

    def _rename(self, old: str, new: str) -> None:
        with self.people.update_schema() as change:
            change.rename_column(old, new)

    def make_anew(self) -> None:
        rows = self.people.scan().to_arrow().select([*_PEOPLE]).to_pylist()
        self._lake.drop_table("shop.people")
        self.people = create(self._lake, "shop.people", _PEOPLE, 4)
        self._dead.clear()
        append(self.people, rows[1:])

    def _row(self, key: int) -> Row:
        return {"id": key, "region": f"r{self._random.randrange(REGIONS)}", "amount": self._random.randrange(100)}

    def _keys(self) -> set[int]:
        return {*self.people.scan(selected_fields=("id",)).to_arrow()["id"].to_pylist()}

    def insert(self) -> None:
        new = {*range(KEYS)} - self._keys()
        append(self.people, [self._row(key) for key in self._random.sample(sorted(new), min(len(new), 20))])

    def update(self) -> None:
        """Copy on write: the files of some keys are written again, most rows as they were."""
        self._rewrite(lambda row: self._row(row["id"]) if self._random.random() < 0.3 else row)

    def come_and_go(self) -> None:
        """A second row of each key comes, and goes again."""
        before = {file.file_path for file in live(self.people)}
        append(self.people, [self._row(key) for key in self._keys()])
        new = [file for file in live(self.people.refresh()) if file.file_path not in before]
        gone = {file.file_path: [*range(file.record_count)] for file in new}
        delete_positions(self.people, self._said(gone))

    def delete(self) -> None:
        """Copy on write, or by positions."""
        if self._random.random() < 0.5:
            self._rewrite(lambda row: None if self._random.random() < 0.3 else row)
        elif gone := self._some_rows():
            delete_positions(self.people, self._said(gone))

    def merge(self) -> None:
        """Merge on read: old rows go by their positions, and new ones of the same keys come by the next snapshot, or by
        the one before."""
        if gone := self._some_rows():
            keys = [self._held(path)[place]["id"] for path, places in gone.items() for place in places]
            steps = [
                lambda: delete_positions(self.people, self._said(gone)),
                lambda: append(self.people, [self._row(key) for key in keys]),
            ]
            self._random.shuffle(steps)
            for step in steps:
                step()

    def compact(self) -> None:
        self._rewrite(lambda row: row, Operation.REPLACE)

    def change_rates(self) -> None:
        self.rates.refresh()
        region, rate = f"r{self._random.randrange(REGIONS)}", self._random.randrange(11, 15)
        new = pa.Table.from_pylist([{"region": region, "rate": rate}])
        match self._random.randrange(4):
            case 0:
                self.rates.delete(f"region = '{region}'")
            case 1:
                self.rates.delete(f"rate < {rate}")
            case 2:
                self.rates.overwrite(new, f"region = '{region}'")
            case _:
                self.rates.upsert(new, ["region"])

    def expire(self) -> None:
        keep_newest(self.people)
        keep_newest(self.rates)

    def _held(self, path: str) -> list[Row]:
        return pq.read_table(path.removeprefix("file://")).to_pylist()

    def _some_rows(self) -> dict[str, list[int]]:
        """Rows that are there, of several files."""
        found = defaultdict[str, list[int]](list)
        for file in live(self.people):
            for place in {*range(file.record_count)} - self._dead[file.file_path]:
                if self._random.random() < 0.2:
                    found[file.file_path].append(place)
        return found

    def _said(self, gone: dict[str, list[int]]) -> dict[str, set[int]]:
        """What a file of positions says: also some that went before."""
        said = {path: {*places} | self._dead[path] for path, places in gone.items()}
        for path, places in gone.items():
            self._dead[path] |= {*places}
        return said

    def _rewrite(self, new: Callable[[Row], Row | None], operation: Operation = Operation.OVERWRITE) -> None:
        files = live(self.people)
        if not files:
            return
        bucket = self._random.choice(files).partition[0]
        old = [file for file in files if file.partition[0] == bucket]
        rows = [
            made
            for file in old
            for place, row in enumerate(self._held(file.file_path))
            if place not in self._dead[file.file_path] and (made := new(row))
        ]
        self._random.shuffle(rows)
        assert all(bucket_of(self.people, row) == bucket for row in rows)
        rewrite(self.people, old, rows, operation)

    def now(self) -> dict[str, pa.Table]:
        return {
            name: table.refresh().scan().to_arrow() for name, table in (("people", self.people), ("rates", self.rates))
        }


def published(store: Store, table: str, *columns: str) -> list[tuple[object, ...]]:
    rows = log_of(store, table).to_pyarrow_table(columns=[*columns]).to_pylist()
    return sorted((tuple(row.values()) for row in rows), key=repr)


def check(store: Store, made: Regions, found: dict[str, pa.Table], snapshot: int) -> None:
    """Each table is what DuckDB makes of the rows of a snapshot, also by the query that is printed."""
    with duckdb.connect() as connection:
        for name, rows in found.items():
            connection.register(f"{name}_rows", rows)
            connection.execute(
                f"CREATE TABLE {name} AS SELECT *, false AS _deleted, 0 AS _partition, -1 AS _offset FROM {name}_rows"
            )
        connection.execute("CREATE VIEW rated AS FROM rates WHERE rate <> 13")
        for table, sql in {
            "people": "SELECT id, region, amount FROM people",
            "rates": "SELECT region, rate FROM rated",
            "sums": "SELECT region, count(*) AS n, sum(amount)::BIGINT AS amount FROM people GROUP BY ALL",
            "paid": "SELECT id, amount * rate AS paid FROM people JOIN rated USING (region)",
        }.items():
            right = connection.sql(sql)
            assert published(store, table, *right.columns) == sorted(right.fetchall(), key=repr), (table, made.done)
        moves = log_of(store, "moves").to_pyarrow_table().to_pylist()
        alike = Counter((each["_batch"], each["id"], each["region"], each["amount"]) for each in moves)
        assert {*alike.values()} <= {1}, made.done
        signs = {"insert": 1, "delete": -1}
        balance = Counter[tuple[object, ...]]()
        for each in moves:
            balance[each["id"], each["region"], each["amount"]] += signs[each["_change_type"]]
        assert sorted(balance.elements(), key=repr) == published(store, "people", "id", "region", "amount")
        plan = there(Ledger(store, "regions").standing().published)
        query = table_query(regions().graph, plan, "sums")
        assert f"the rows of iceberg://lake.shop.people in snapshot {snapshot}, all with 0 AS _partition" in query
        asked = connection.execute(query).fetchall()
        assert sorted(asked, key=repr) == published(store, "sums", "region", "n", "amount")


def reader(folder: Path, declared: str, written: str) -> str:
    """The file of a pipeline that reads a table of the catalogue."""
    file = folder / "reader.py"
    lines = "from coset import Pipeline", 'pipeline = Pipeline("reader", source="iceberg://lake.shop")'
    file.write_text("\n".join([*lines, f"pipeline.{declared}.{written}", ""]))
    return str(file)


@pytest.fixture
def people(lake: Catalog, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    """A table in eight buckets with ten rows, which a pipeline has published as it is."""
    entered(store, tmp_path / "docs", monkeypatch)
    table = create(lake, "shop.people", {"id": LongType(), "amount": LongType()}, 8)
    append(table, [{"id": key, "amount": key} for key in range(10)])
    declared = 'table("people", key="id", key_format="long", partitions=8, kept=True)'
    succeeded("run", reader(tmp_path, declared, 'write("held", mode="upsert")'), "--runner", "local")
    return table


def is_as_it_is(store: Store, table: Table, *others: str) -> bool:
    names = "id", "amount", *others
    rows = table.refresh().scan().to_arrow().select(names).to_pylist()
    return published(store, "held", *names) == sorted((tuple(row.values()) for row in rows), key=repr)


def test_a_key_with_two_rows_is_refused_until_one_is_left(people: Table, store: Store, tmp_path: Path) -> None:
    words = "run", str(tmp_path / "reader.py"), "--runner", "local"
    first = {file.file_path for file in live(people.refresh())}
    append(people, [{"id": 1, "amount": 100}, {"id": 2, "amount": 200}])
    found = told(Kind.RECORD, *words)
    assert "has 2 rows in the Iceberg table" in found.findings[0]["what"]
    # Of one key the new row goes, of the other the old one.
    for key, amount in ((1, 100), (2, 2)):
        for file in live(people.refresh()):
            rows = pq.read_table(file.file_path.removeprefix("file://")).to_pylist()
            if {"id": key, "amount": amount} in rows:
                assert (file.file_path in first) is (key == 2)
                delete_positions(people, {file.file_path: [rows.index({"id": key, "amount": amount})]})
    found.follow()
    succeeded(*words)
    assert is_as_it_is(store, people)
    assert "Table held is its query" in succeeded("verify", words[1]).output


@pytest.mark.parametrize("lost", [Kind.STREAM_LOST, Kind.FILE_GONE])
def test_what_went_unseen_is_gone_once_the_table_is_begun_anew(
    people: Table, store: Store, tmp_path: Path, lost: Kind
) -> None:
    words = "run", str(tmp_path / "reader.py"), "--runner", "local"
    files = live(people.refresh())
    rewrite(people, files[:2], [{"id": 20, "amount": 1}], Operation.OVERWRITE)
    append(people, [{"id": 21, "amount": 1}])
    if lost is Kind.STREAM_LOST:
        keep_newest(people)
    else:
        # Engines remove such files with the last snapshot that has them, and keep the one that took them away.
        Path(files[0].file_path.removeprefix("file://")).unlink()
    found = told(lost, *words)
    assert not is_as_it_is(store, people)
    found.follow()
    succeeded(*words)
    assert is_as_it_is(store, people)
    assert "Table held is its query" in succeeded("verify", words[1]).output


@pytest.mark.parametrize("again", [False, True], ids=["names are swapped", "a name comes again"])
def test_columns_that_have_names_of_others_are_read_anew(
    people: Table, store: Store, tmp_path: Path, again: bool
) -> None:
    words = "run", str(tmp_path / "reader.py"), "--runner", "local"
    with people.update_schema() as change:
        change.add_column("rank", LongType())
    append(people, [{"id": 10, "amount": 1, "rank": 7}])
    succeeded(*words)
    with people.update_schema() as change:
        if again:
            change.delete_column("amount")
        else:
            change.rename_column("amount", "old")
    with people.update_schema() as change:
        if again:
            change.add_column("amount", LongType())
        else:
            change.rename_column("rank", "amount")
            change.rename_column("old", "rank")
    append(people, [{"id": 11, "amount": 3, "rank": 8}])
    told(Kind.STREAM_COLUMNS, *words).follow()
    succeeded(*words)
    assert is_as_it_is(store, people, "rank")
    assert "Table held is its query" in succeeded("verify", words[1]).output


def test_a_table_of_which_no_snapshot_is_known_is_read_anew(people: Table, store: Store, tmp_path: Path) -> None:
    words = "run", str(tmp_path / "reader.py"), "--runner", "local"
    succeeded("forget", words[1], "people", "--keep-offsets", "--why", "to see what is read")
    file = live(people.refresh())[0]
    delete_positions(people, {file.file_path: [0]})
    told(Kind.STREAM_RESET, *words).follow()
    succeeded(*words)
    assert is_as_it_is(store, people)


def test_its_pipelines_are_tried_without_a_catalogue() -> None:
    pipeline = Pipeline("tried", source="iceberg://lake.shop")
    people = pipeline.table("people", key="id", partitions=8, kept=True)
    people.write("held", mode="upsert")
    first = [{"id": "a", "amount": 1}, {"id": "b", "amount": 2}]
    then = [{"id": "a", "_deleted": True}, {"id": "b", "amount": 3}]
    assert attempted(pipeline, {"people": first}, {"people": then})["held"] == [{"id": "b", "amount": 3}]


def test_rows_that_are_written_again_as_they_are_change_nothing(people: Table, store: Store, tmp_path: Path) -> None:
    words, files = ("run", str(tmp_path / "reader.py"), "--runner", "local"), log_of(store, "held").file_uris()
    rewrite(people, live(people), people.scan().to_arrow().to_pylist(), Operation.OVERWRITE)
    said = succeeded(*words).output
    assert "20 records" in said
    assert log_of(store, "held").file_uris() == files


def is_begun_from(folder: Path) -> None:
    """A repository with a pipeline that reads the table, whose test passes."""
    succeeded("init", str(folder), "--from", "iceberg://lake.shop.people")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    tried = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert tried.returncode == 0, tried.stdout


@pytest.mark.parametrize("known", [False, True], ids=["rows went", "rows are known"])
def test_inspection_writes_the_declaration_of_a_table(lake: Catalog, store: Store, tmp_path: Path, known: bool) -> None:
    columns = {"region": StringType(), "id": LongType(), "amount": LongType()}
    made = create(lake, "shop.people", columns, 4)
    with made.update_schema(allow_incompatible_changes=True) as change:
        change.update_column("id", required=True)
        if known:
            change.set_identifier_fields("id")
    rows = [{"region": f"r{key % 3}", "id": key, "amount": 1} for key in range(10)]
    append(made.refresh(), rows)
    said = json.loads(succeeded("inspect", "iceberg://lake.shop.people", "--json").stdout)["declaration"]
    assert ("pipeline.table(" in said) is known
    rewrite(made.refresh(), live(made.refresh()), rows[1:], Operation.OVERWRITE)
    said = json.loads(succeeded("inspect", "iceberg://lake.shop.people", "--json").stdout)["declaration"]
    is_begun_from(tmp_path / "as_a_table")
    declared: dict[str, Any] = {}
    exec(said, declared)
    declared["people"].write("held", mode="upsert")
    ref, _ = planned(declared["pipeline"], store.root)
    run_and_publish_unjudged(there(ref))
    assert published(store, "held", "id") == [(key,) for key in range(1, 10)]
    append(made.refresh(), [{"region": "r0", "id": 1, "amount": 1}])
    said = succeeded("inspect", "iceberg://lake.shop.people").output
    assert "pipeline.stream(" in said
    assert "is no table by any column" in said
    is_begun_from(tmp_path / "as_a_stream")


def test_other_rows_that_are_said_to_be_the_same_are_refused(people: Table, tmp_path: Path) -> None:
    rewrite(people, live(people), [{"id": 1, "amount": 1}], Operation.REPLACE)
    found = told(Kind.STREAM_DELETES, "run", str(tmp_path / "reader.py"), "--runner", "local")
    assert "it says that it replaces files, and has other rows" in found.findings[0]["what"]


def test_rows_that_are_deleted_by_their_values_are_refused(people: Table, tmp_path: Path) -> None:
    words = "run", str(tmp_path / "reader.py"), "--runner", "local"
    delete_values(people, {"id": 3})
    found = told(Kind.STREAM_DELETES, *words)
    assert "equality deletes" in found.findings[0]["what"]
    found.follow()
    # They are there as long as no engine has written the files again.
    assert "equality deletes" in told(Kind.STREAM_DELETES, *words).findings[0]["what"]


def test_a_table_that_a_pipeline_publishes_is_read_as_a_table(
    lake: Catalog, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered(store, tmp_path / "docs", monkeypatch)
    monkeypatch.setenv("COSET_ICEBERG", "lake.shop")
    file = reader(tmp_path, 'stream("newest", key="k", partitions=1)', 'write("copied")')
    for number in range(3):
        land(store, number)
        succeeded("run", NEWEST, "--runner", "local")
        if number == 1:
            found = told(Kind.STREAM_DELETES, "run", file, "--runner", "local")
            assert found.next.startswith("read what pipeline 'newest' reads; or read the table as it is: declare it by")
            reader(tmp_path, 'table("newest", key="k", partitions=1, kept=True)', 'write("held", mode="upsert")')
            other = told(Kind.STREAM_RESET, "run", file, "--runner", "local")
            assert "it was read as a stream" in other.findings[0]["what"]
            found.follow()
        succeeded("run", file, "--runner", "local")
        if number:
            assert published(store, "held", "k", "id") == published(store, "newest", "k", "id")


@pytest.mark.filterwarnings("ignore:Delete operation did not match")
@pytest.mark.parametrize("seed", share(range(3)))
def test_any_history_of_changing_tables_is_read_as_they_are(lake: Catalog, store: Store, seed: int) -> None:
    random_ = random.Random(seed)
    made, wild = Regions(lake, random_), random_.random() < 0.7
    made.insert()
    made.change_rates()
    buckets = random_.choice([1, 2, 4])
    for _ in range(5):
        for _ in range(random_.randrange(1, 6)):
            made.change(wild=wild)
        settings = Settings(scheme=random_.choice([None, tasks(3), tasks(12)]))
        try:
            ref, _ = planned(regions(buckets), store.root, settings)
        except Refused as refusal:
            if not wild or {found.kind for found in refusal.findings} - UNREAD:
                raise
            made.done.append("forget")
            forget(Ledger(store, "regions"), "people", None, What.POSITION, "as it is said")
            ref, _ = planned(regions(buckets), store.root, settings)
        snapshot = there(made.people.refresh().current_snapshot()).snapshot_id
        found_then = made.now()
        if ref is not None:
            if wild and random_.random() < 0.5:
                made.done.append("planned")
                made.change(wild=True)
            run_and_publish_unjudged(ref)
            check(store, made, found_then, snapshot)
            assert all(
                found.found.same for found in verify(regions(buckets), store) if not isinstance(found.found, str)
            )
        if not wild:
            random_.choice([lambda: None, made.expire])()


_CALL = "CALL lake.system"
_ALL = "(table => 'shop.people', options => map('rewrite-all', 'true'))"
SPARK = (
    "MERGE INTO lake.shop.people t USING (SELECT id * 7 % 60 AS id, id + {amount} AS amount FROM range({key} % 9)) s "
    "ON t.id = s.id WHEN MATCHED AND s.amount < 0 THEN DELETE WHEN MATCHED THEN UPDATE SET * "
    "WHEN NOT MATCHED THEN INSERT *",
    "DELETE FROM lake.shop.people WHERE id % 11 = {key} % 11",
    "UPDATE lake.shop.people SET amount = amount + 1 WHERE id % 5 = {key} % 5",
    "INSERT INTO lake.shop.people SELECT id, 1 FROM range(60) WHERE id NOT IN (SELECT id FROM lake.shop.people)",
    "INSERT OVERWRITE lake.shop.people SELECT id, amount + 1 FROM lake.shop.people WHERE id <> {key}",
    f"{_CALL}.rewrite_data_files{_ALL}",
    f"{_CALL}.rewrite_position_delete_files{_ALL}",
)


@pytest.mark.long
@pytest.mark.parametrize("version", [2, 3])
def test_a_table_that_spark_merges_into_is_read_as_it_is(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """Deletes by positions, by delete files and by vectors, compaction and expiry, all by Iceberg for Spark itself."""
    entered(store, tmp_path / "docs", monkeypatch)
    random_ = random.Random(version)
    (tmp_path / "lake").mkdir()
    with rest_catalogues(tmp_path) as made:
        monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", made(warehouse=f"{tmp_path}/lake"))
        jars = variables_of(PARTIES["iceberg"])[JARS]
        with reader_of("iceberg-spark", str(python_of(PARTIES["iceberg"])), jars) as asked:
            ask = partial(asked, "", None)
            modes = ", ".join(f"'write.{each}.mode' = 'merge-on-read'" for each in ("delete", "update", "merge"))
            ask("CREATE NAMESPACE lake.shop")
            ask(
                "CREATE TABLE lake.shop.people (id BIGINT, amount BIGINT) USING iceberg PARTITIONED BY (bucket(8, id)) "
                f"TBLPROPERTIES ('format-version' = '{version}', {modes})"
            )
            declared = 'table("people", key="id", key_format="long", partitions=4, kept=True)'
            file = reader(tmp_path, declared, 'write("held", mode="upsert")')
            read = 0
            ask("INSERT INTO lake.shop.people SELECT id, id FROM range(60)")
            for number in range(24):
                ask(random_.choice(SPARK).format(key=random_.randrange(60), amount=random_.randrange(-9, 90)))
                if random_.random() < 0.5:
                    result = coset("run", file, "--runner", "local")
                    assert result.exit_code == 0, result.output
                    read += 1
                    rows = [tuple(row) for row in ask("SELECT id, amount FROM lake.shop.people")]
                    assert published(store, "held", "id", "amount") == sorted(rows, key=repr), number
                    if random_.random() < 0.3:
                        ask(f"{_CALL}.expire_snapshots(table => 'shop.people', older_than => now())")
            assert read > 5
