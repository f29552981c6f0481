"""`coset verify`: whether a table is its query, as of each batch, and what is remembered and told of that."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from coset.batches.verifications import verify_and_remember
from coset.batches.verified import ALL, KeyPart, NextPart, Verified
from coset.batches.verifying import verify
from coset.testing.runs import Trial
from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from partitioning.explain.table_query import table_query
from partitioning.hashes import murmur2
from partitioning.model.meaning import RowKind, meanings
from spark_jobs.tables.table_schema import folder
from tests import forked
from tests.begun import Begun

PIPELINE = """
from coset import Pipeline

pipeline = Pipeline("shop", source="{source}")
orders = pipeline.stream("orders", key="k", partitions=2)
users = pipeline.table("users", key="k", partitions=2)
orders.latest("n").write("newest", mode="upsert")
orders.filter("n > 0").write("raw", lineage=True)
users.write("users", mode="replace")
orders.aggregate("count(*) AS n").write("counts")
"""
TABLES = ("newest", "raw", "users")


def shop() -> Pipeline:
    made: dict[str, Pipeline] = {}
    exec(PIPELINE.format(source="s3://lake/topics"), made)
    return made["pipeline"]


@pytest.fixture
def place(begun: Begun) -> Trial:
    """Three published batches, in each of which every key comes, and some that came never before."""
    return trial(begun.by(three_batches))


def three_batches(store: Store) -> None:
    place = trial(store)
    for batch in range(3):
        land(place, batch)
        place.run()


def trial(store: Store) -> Trial:
    return Trial(shop(), Path(urlsplit(store.root).path))


def land(place: Trial, batch: int) -> None:
    keys = [f"k{number}" for number in range(12 + 4 * batch)]
    orders = [{"k": key, "n": 100 * batch + number} for number, key in enumerate(keys)]
    place.land({"orders": orders, "users": [{"k": key, "v": batch} for key in keys[batch:]]})


def store_of(place: Trial) -> Store:
    return store_at(place.root)


def said(found: Sequence[Verified]) -> dict[str, bool | None]:
    """Whether each table is equal; None if nothing can be said."""
    return {each.table: None if each.difference is None else each.difference.same for each in found}


def next_of(place: Trial, parts: int, *tables: str) -> list[Verified]:
    return list(verify_and_remember(place.pipeline, store_of(place), tables, NextPart(parts), print))


def samples(place: Trial, table: str) -> str:
    return str(Ledger(store_of(place), "shop").verifications(table).samples(0))


def file_of(place: Trial, tmp_path: Path) -> str:
    (file := tmp_path / "shop.py").write_text(PIPELINE.format(source=place.pipeline.streams[0].source))
    return str(file)


def coset(place: Trial, *words: str, code: int = 0) -> str:
    done = forked.coset(*words, "--store", place.root)
    assert done.returncode == code, forked.how(done)
    return done.stdout + done.stderr


def remove(place: Trial, table: str) -> None:
    """Remove the files that the table has had and has not any more."""
    DeltaTable(folder(store_of(place), table)).vacuum(0, dry_run=False, enforce_retention_duration=False)


def landed(place: Trial, stream: str, partition: int) -> list[Path]:
    """The landed files of a partition, oldest first."""
    source = Path(urlsplit(place.pipeline.streams[0].source).path)
    return sorted(source.glob(f"{stream}/partition={partition}/*.parquet"))


# ---- what was verified is remembered


def test_each_run_takes_the_part_that_was_verified_longest_ago(place: Trial) -> None:
    for part in (1, 2, 3, 1):
        assert {str(each.part) for each in next_of(place, 3, "newest", "raw")} == {f"{part}/3"}
    assert samples(place, "newest") == "verified to batch 2: 3 of 3 samples"
    DeltaTable(folder(store_of(place), "newest")).delete("k = 'k3'")
    wrong = [str(each.part) for _ in range(3) for each in next_of(place, 3, "newest") if each.is_wrong]
    assert len(wrong) == 1
    assert samples(place, "newest") == f"verified to batch 2: 2 of 3 samples; other rows than its query's in {wrong[0]}"
    # What is not looked at again stays as it was found.
    DeltaTable(folder(store_of(place), "newest")).restore(3)
    looked = set[str]()
    for _ in range(3):
        (found,) = next_of(place, 3, "newest")
        looked.add(str(found.part))
        assert not found.is_wrong
        assert ("other rows" in samples(place, "newest")) == (wrong[0] not in looked)
    assert samples(place, "newest") == "verified to batch 2: 3 of 3 samples"


def test_status_metrics_and_pages_say_how_much_of_each_table_is_verified(place: Trial, tmp_path: Path) -> None:
    file, pages = file_of(place, tmp_path), f"{place.root.removeprefix('file://')}/shop/docs"
    land(place, 3)
    coset(place, "run", file, "--runner", "local", "--docs", str(tmp_path / "docs"))
    assert "never verified" not in coset(place, "status", file)
    assert "Held against its query" not in Path(pages, "index.html").read_text()
    shown = coset(place, "verify", file, "--sample", "next", "--table", "newest")
    assert "Table newest is its query up to batch 3, part 1/16 of its keys" in shown
    newest = "verified to batch 3: 1 of 16 samples"
    for page in ("index.html", "batch-3-attempt-0.html"):
        assert newest in Path(pages, page).read_text()
    status = coset(place, "status", file)
    assert f"Table newest: {newest}." in status
    assert "Table users: never verified." in status
    (value,) = (json.loads(coset(place, "status", file, "--json"))["verified"].values(),)
    assert [(each["batch"], each["equal"], each["samples"]) for each in value] == [(3, 1, 16)]
    told = {each.name: each.samples for each in text_string_to_metric_families(coset(place, "metrics", file))}
    figures = {
        name: told[f"coset_{name}"][0].value for name in ("verified_batch", "verified_ratio", "differing_samples")
    }
    assert figures == {"verified_batch": 3, "verified_ratio": 1 / 16, "differing_samples": 0}
    assert told["coset_verified_batch"][0].labels["table"] == "newest"
    # The page of the batch after it says it as well.
    land(place, 4)
    coset(place, "run", file, "--runner", "local", "--docs", str(tmp_path / "docs"))
    assert newest in Path(pages, "batch-4-attempt-0.html").read_text()


def test_rows_of_a_backfill_are_not_those_that_were_verified(place: Trial, tmp_path: Path) -> None:
    file = file_of(place, tmp_path)
    coset(place, "verify", file, "--table", "raw")
    assert "Table raw: verified to batch 2: all keys." in coset(place, "status", file)
    coset(place, "backfill", file, "--from", "2", "--why", "to see", "--runner", "local", "--scheme", "tasks(4)")
    assert "Table raw: no sample is known to be equal." in coset(place, "status", file)


@pytest.mark.parametrize("cascade", [True, False])
def test_an_upserted_table_that_others_changed_is_its_query_after_the_backfill_that_is_advised(
    place: Trial, tmp_path: Path, cascade: bool
) -> None:
    file, where = file_of(place, tmp_path), folder(store_of(place), "newest")
    DeltaTable(where).delete("k = 'k3'")
    DeltaTable(where).update(predicate="k = 'k4'", updates={"n": "7"})
    words = ("backfill", file, *(("--from", "0", "--cascade") if cascade else ("--from", "2")), "--why", "to see")
    for asked in (
        (*words, "--preview"),
        (*words, "--runner", "local"),
        ("doctor", file),
        ("metrics", file),
        ("status", file),
    ):
        assert "accept-changes newest --up-to 5" in coset(place, *asked, code=3)
    both = coset(place, "verify", file, "--table", "newest", code=3)
    assert both.index("accept-changes newest") < both.index("first settle what others did to it, as is said of that")
    assert 'coset_findings{pipeline="shop"} 1' in coset(place, "metrics", file, code=3)
    assert "shop has no backfills" in coset(place, "backfills", file)
    coset(place, "accept-changes", "newest", "--up-to", "5", "--why", "to see")
    assert 'coset_findings{pipeline="shop"} 0' in coset(place, "metrics", file)
    assert "backfill" in coset(place, "verify", file, "--table", "newest", code=3)
    told = coset(place, *words, "--preview")
    assert "Somebody accepted what others changed in newest: the backfill asks" in told
    assert "Results stay the same, but for what others changed in newest" in told
    told = coset(place, *words, "--runner", "local")
    assert "The changes of others in newest would be taken back." in told
    assert re.search(r"what orders\.latest keeps for newest +20 +20 +0", told)
    (digest,) = re.findall(r"--approve (sha256:[0-9a-f]+)", told)
    coset(place, "swap", file, "0", "--approve", digest, "--why", "to see")
    assert "is its query" in coset(place, "verify", file, "--table", "newest")
    if cascade:
        DeltaTable(where).delete("k = 'k5'")
        coset(place, "accept-changes", "newest", "--up-to", str(DeltaTable(where).version()), "--why", "to see")
        undone = coset(place, "undo", file, "0", "--why", "to see")
        assert "Changes of others that were accepted since are taken back, too: in newest" in undone
        assert "the rows of 2 keys differ" in coset(place, "verify", file, "--table", "newest", code=3)
    # What others did is there again, so the rows of the next batch are not counted; or it is not, and they are.
    land(place, 3)
    coset(place, "run", file, "--runner", "local")
    assert (
        "newest has rows that somebody accepted, and is counted again once " in coset(place, "report", file)
    ) is cascade
    if not cascade:
        later = coset(place, "undo", file, "0", "--why", "to see", code=3)
        assert "it took back changes of others in newest, and batches up to 3 come later" in later


def test_what_others_changed_in_appended_rows_and_somebody_accepted_is_no_difference(
    place: Trial, tmp_path: Path
) -> None:
    file, where = file_of(place, tmp_path), folder(store_of(place), "raw")
    row = DeltaTable(where).to_pyarrow_table().slice(0, 1)
    write_deltalake(where, row.set_column(0, "k", pa.array(["new"])), mode="append")
    DeltaTable(where).delete("k = 'k3'")
    coset(place, "accept-changes", "raw", "--up-to", "5", "--why", "to see")
    land(place, 3)
    coset(place, "run", file, "--runner", "local")
    said_of = "Table raw is its query up to batch 3, but for what others changed up to version 5, as accepted: 69 rows"
    assert said_of in coset(place, "verify", file, "--table", "raw")
    parts = [each for _ in range(2) for each in next_of(place, 2, "raw")]
    assert [each.difference.same for each in parts if each.difference] == [True, True]
    # Of a batch before it, and of what nobody accepted.
    assert str(*verify(place.pipeline, store_of(place), ["raw"], as_of=2)).endswith("as version 3 has it: 47 rows")
    DeltaTable(where).delete("k = 'k5'")
    differs = coset(place, "verify", file, "--table", "raw", code=3)
    assert (
        "Table raw is not its query, but for what others changed up to version 5, as accepted: the rows of 1 key"
        in differs
    )
    # Without the files of then nobody can tell which rows they were.
    remove(place, "raw")
    told = "raw is not verified: somebody accepted what others changed in it, and which rows these are cannot be told"
    assert told in coset(place, "verify", file, "--table", "raw")


def test_who_may_only_read_is_told_the_answer_and_that_nobody_remembers_it(place: Trial, tmp_path: Path) -> None:
    (Path(urlsplit(place.root).path) / "shop" / "verifications").write_text("here no folder can be made")
    notes = list[str]()
    found = list(verify_and_remember(place.pipeline, store_of(place), ["newest"], ALL, notes.append))
    assert said(found) == {"newest": True}
    assert notes[0].startswith("Nobody remembers this of table newest: ")
    # A run that takes the next part would take the first for ever.
    with pytest.raises(Refused):
        next_of(place, 16, "newest")


# ---- as of a batch


@pytest.mark.parametrize("batch", [0, 1, 2])
def test_what_each_batch_published_is_its_query_over_the_records_up_to_it(place: Trial, batch: int) -> None:
    found = list(verify(place.pipeline, store_of(place), as_of=batch))
    assert said(found) == dict.fromkeys(TABLES, True) | {"counts": None}
    rows = {each.table: each.difference.rows[0] for each in found if each.difference}
    assert rows == {"newest": 12 + 4 * batch, "raw": sum(11 + 4 * each + (each > 0) for each in range(batch + 1))} | {
        "users": 12 + 4 * batch
    }
    parts = [
        each for part in range(3) for each in verify(place.pipeline, store_of(place), ["raw"], KeyPart(part, 3), batch)
    ]
    assert sum(each.difference.rows[0] for each in parts if each.difference) == rows["raw"]


def test_what_others_changed_later_is_not_as_of_a_batch(place: Trial) -> None:
    DeltaTable(folder(store_of(place), "newest")).update({"n": "-1"}, predicate="k = 'k3'")
    assert said(list(verify(place.pipeline, store_of(place), ["newest"], as_of=2))) == {"newest": True}
    assert said(list(verify(place.pipeline, store_of(place), ["newest"]))) == {"newest": False}


def test_a_batch_that_is_not_published_has_no_tables(place: Trial, tmp_path: Path) -> None:
    file = file_of(place, tmp_path)
    assert "the newest that is published is batch 2" in coset(place, "verify", file, "--as-of", "3", code=3)
    assert f"coset verify {file} --as-of 2" in coset(place, "verify", file, "--as-of", "3", code=3)
    assert "so no part of it is the next" in coset(place, "verify", file, "--as-of", "1", "--sample", "next", code=3)
    # Nobody takes what was for what is.
    coset(place, "verify", file, "--as-of", "1")
    assert Ledger(store_of(place), "shop").verifications("newest").last is None


def test_a_version_whose_files_or_log_are_gone_is_refused_and_the_other_tables_are_told(place: Trial) -> None:
    remove(place, "newest")
    found = verify(place.pipeline, store_of(place), as_of=0)
    assert said([next(found) for _ in range(3)]) == {"raw": True, "users": True, "counts": None}
    with pytest.raises(Refused, match=r"version 1, which batch 0 made, is gone: 2 of its 2 files were removed") as gone:
        next(found)
    assert "batch 2 is the first whose version is there" in str(gone.value)
    log = DeltaTable(folder(store_of(place), "raw"))
    log.create_checkpoint()
    for version in range(3):
        (Path(urlsplit(log.table_uri).path) / "_delta_log" / f"{version:020}.json").unlink()
    with pytest.raises(Refused, match="the table's log does not have it any more"):
        list(verify(place.pipeline, store_of(place), ["raw"], as_of=0))
    shutil.rmtree(urlsplit(log.table_uri).path)
    with pytest.raises(Refused, match="the table is gone"):
        list(verify(place.pipeline, store_of(place), ["raw"], as_of=0))


# ---- how far back


def test_rows_of_records_are_verified_from_the_first_batch_whose_records_are_all_there(place: Trial) -> None:
    for file in landed(place, "orders", 0)[:1]:
        file.unlink()
    found = verify(place.pipeline, store_of(place))
    first = {each.table: each for each in (next(found), next(found), next(found))}
    assert said([*first.values()]) == {"raw": True, "users": True, "counts": None}
    assert str(first["raw"]) == (
        "Table raw is its query up to batch 2, from batch 1 on, as records before it are gone: 36 rows"
    )
    with pytest.raises(Refused, match="are gone, which published batches took") as gone:
        next(found)
    assert "Of batch 1 and those after it all records are there" in str(gone.value)
    list(verify_and_remember(place.pipeline, store_of(place), ["raw"], ALL, print))
    assert samples(place, "raw") == "verified to batch 2: all keys, rows from batch 1 on"
    # What is wrong since is found.
    DeltaTable(folder(store_of(place), "raw")).delete("n = 105")
    assert said(list(verify(place.pipeline, store_of(place), ["raw"]))) == {"raw": False}


@pytest.mark.parametrize(("stream", "which"), [("orders", -1), ("users", 0), ("users", -1)])
def test_records_that_are_gone_make_no_table_equal_or_wrong(place: Trial, stream: str, which: int) -> None:
    landed(place, stream, 0)[which].unlink()
    table = "newest" if stream == "orders" else "users"
    with pytest.raises(Refused, match="are gone, which published batches took"):
        list(verify(place.pipeline, store_of(place), [table]))


# Each of these is of a table, and what its rows are.
MEANINGS: Mapping[str, RowKind] = {
    "raw": RowKind.RECORDS,
    "filtered": RowKind.RECORDS,
    "once": RowKind.RECORDS,
    "hours": RowKind.RECORDS,
    "newest": RowKind.NEWEST,
    "positive": RowKind.NEWEST,
    "shown": RowKind.NEWEST,
    "totals": RowKind.NEWEST,
    "big": RowKind.NEWEST,
    "alive": RowKind.NEWEST,
    "living": RowKind.NEWEST,
    "expired": RowKind.RECORDS,
    "users": RowKind.ALL,
    "users_selected": RowKind.NEWEST,
    "segments": RowKind.NEWEST,
    "users_now": RowKind.ALL,
    "both_now": RowKind.ALL,
    "by_group": RowKind.NEWEST,
    "total_by_segment": RowKind.NEWEST,
    "histogram": RowKind.NEWEST,
    "counted_again": RowKind.NEWEST,
    "by_batch": RowKind.OF_BATCH,
    "last_sums": RowKind.OF_BATCH,
    "with_users": RowKind.OF_BATCH,
    "with_newest": RowKind.OF_BATCH,
    "changes": RowKind.OF_BATCH,
    "last_records": RowKind.OF_BATCH,
    "last_expired": RowKind.OF_BATCH,
    "moves": RowKind.CHANGES,
    "priced": RowKind.OF_BATCH,
    "adding_up": RowKind.NEWEST,
    "by_two": RowKind.NEWEST,
}


# Each of these has the rows of one batch, made of its records alone.
REPLACED = {"last_records"}


def natural() -> Pipeline:
    """What people write: steps in orders that seem to mean something."""
    pipeline = Pipeline("natural")

    orders = pipeline.stream("orders", key="k", partitions=4, source="s3://lake/orders", time="ts")
    users = pipeline.table("users", key="k", partitions=4, source="s3://lake/users", deletes="gone", kept=True)
    segments = pipeline.table("segments", key="k", partitions=4, source="s3://lake/segments", deletes="gone")
    orders.write("raw")
    orders.filter("amount > 0").select("amount * 2 AS twice").write("filtered")
    orders.distinct("id", time="ts", within=timedelta(days=1)).write("once")
    orders.windows("count(*) AS n", time="ts", every=timedelta(hours=1)).write("hours")
    newest = orders.latest("ts", name="newest_order")
    newest.write("newest", mode="upsert")
    newest.filter("amount > 0").write("positive", mode="upsert")
    newest.select("amount, g", name="some").filter("amount > 0").select("g").write("shown", mode="upsert")
    newest.to_stream().write("changes")
    newest.rekey("g", name="moved").select("amount % 2 AS odd", name="odd").write("moves", mode="changelog")
    newest.rekey("g").aggregate("count(*) AS n").write("by_group", mode="upsert")
    totals = orders.select("amount", name="amounts").combine(
        "sum(amount)::BIGINT AS amount", running=True, name="total"
    )
    totals.write("totals", mode="upsert")
    totals.filter("amount > 5").write("big", mode="upsert")
    totals.rekey("amount", key_format="long").aggregate("count(*) AS n").write("histogram", mode="upsert")
    totals.combine("sum(amount)::BIGINT AS amount", running=True).write("counted_again", mode="upsert")
    totals.join(users, "total.amount, users.seg").write("total_by_segment", mode="upsert")
    lives = orders.select("ts, 1::BIGINT AS n", name="timed").combine(
        "sum(n)::BIGINT AS n, max(ts) AS ts", running=True, time="ts", keep=timedelta(hours=20), name="life"
    )
    lives.write("alive", mode="upsert")
    lives.rekey("n", key_format="long", name="by_n").aggregate("count(*) AS c").write("living", mode="upsert")
    ended = lives.expired()
    ended.write("expired")
    users.write("users", mode="upsert")
    users.select("seg").write("users_selected", mode="upsert")
    segments.write("segments", mode="upsert")
    users.write("users_now", mode="replace")
    both = users.join(segments, "users.seg, segments.seg AS other")
    both.write("both_now", mode="replace")
    orders.aggregate("count(*) AS n").write("by_batch")
    orders.aggregate("sum(amount) AS s", name="sums").to_stream().write("last_sums", mode="upsert")
    orders.join(users, "orders.id, users.seg", name="with_users").write("with_users")
    orders.join(newest, "orders.id, newest_order.id AS newest", name="with_newest").write("with_newest")
    orders.to_stream().write("last_records", mode="replace")
    ended.to_stream().write("last_expired", mode="upsert")
    sums = "sum(amount)::BIGINT AS amount"
    priced = orders.join(users, "orders.amount", name="priced")
    by_batch = priced.aggregate(sums, name="priced_by_batch")
    by_batch.combine(sums, running=True, name="priced_sums").write("priced", mode="upsert")
    orders.aggregate(sums, name="by_order").combine(sums, running=True, name="all").write("adding_up", mode="upsert")
    orders.rekey(("k", "g"), name="of_two").latest("ts", name="newest_of_two").write("by_two", mode="upsert")
    return pipeline


def few() -> Pipeline:
    """Some of these tables: one of each kind, and those of which a row may go."""
    pipeline = Pipeline("few")
    orders = pipeline.stream("orders", key="k", partitions=4, source="s3://lake/orders", time="ts")
    segments = pipeline.table("segments", key="k", partitions=4, source="s3://lake/segments", deletes="gone")
    segments.write("segments", mode="upsert")
    newest = orders.latest("ts", name="newest_order")
    newest.filter("amount > 0").write("positive", mode="upsert")
    newest.rekey("g").aggregate("count(*) AS n").write("by_group", mode="upsert")
    newest.rekey("g", name="moved").select("amount % 2 AS odd", name="odd").write("moves", mode="changelog")
    orders.rekey(("k", "g"), name="of_two").latest("ts", name="newest_of_two").write("by_two", mode="upsert")
    lives = orders.latest("ts", time="ts", keep=timedelta(hours=20), name="life")
    lives.write("alive", mode="upsert")
    lives.rekey("g", name="living_by_group").aggregate("max(amount) AS most").write("living", mode="upsert")
    lives.expired(name="ended").write("expired")
    pipeline.flow("ended").to_stream().write("last_expired", mode="upsert")
    return pipeline


def batch_of(batch: int, seed: int) -> dict[str, list[dict[str, object]]]:
    """Records of a batch, two days after those of the one before."""
    chance, day = random.Random(f"{seed}-{batch}"), datetime.fromisoformat("2026-11-01") + timedelta(days=2 * batch)
    of_users = [
        [
            {"k": f"k{chance.randrange(20)}", "seg": chance.choice("xyz"), "gone": chance.random() < 0.3}
            for _ in range(12)
        ]
        for _ in range(2)
    ]
    orders = [
        {
            "k": f"k{chance.randrange(20)}",
            "g": chance.choice("abc"),
            "amount": chance.randrange(-5, 6),
            "ts": day + timedelta(minutes=chance.randrange(600), microseconds=number),
            "id": chance.randrange(30),
        }
        for number in range(40)
    ]
    return {"orders": orders, "users": of_users[0], "segments": of_users[1]}


def test_what_rows_are_is_known_before_anything_runs() -> None:
    assert {table: means.rows for table, means in meanings(natural().graph).items()} == dict(MEANINGS)


def test_newest_rows_under_another_key_go_from_their_old_place() -> None:
    pipeline = Pipeline("small")
    newest = pipeline.stream("orders", key="k", partitions=4, source="s3://lake/orders").latest("n", name="newest")
    moved = newest.rekey("g", name="moved")
    assert (moved.means.rows, moved.means.several) == (RowKind.CHANGES, True)


@pytest.mark.parametrize(
    ("pipeline", "seed"), [(few(), 0), *(pytest.param(natural(), seed, marks=pytest.mark.long) for seed in (1, 2, 3))]
)
def test_a_table_differs_from_its_query_only_where_that_is_said(pipeline: Pipeline, seed: int) -> None:
    with published(pipeline, seed) as place:
        found = {each.table: each for each in verified(place)}
        rows = place.tables()
        some = ["positive", "by_group", "by_two"]
        parts = [each for part in range(3) for each in verified(place, some, KeyPart(part, 3))]
    for table in rows:
        difference = found[table].difference
        assert (difference is None) == (MEANINGS[table] is RowKind.OF_BATCH and table not in REPLACED), table
        if difference is not None:
            assert difference.same, (table, difference)
    # A key that lives again has still been over once.
    assert {row["k"] for row in rows["last_expired"]} == {row["k"] for row in rows["expired"]}
    for table in some:
        whole, of_parts = found[table].difference, [each.difference for each in parts if each.table == table]
        assert whole is not None
        assert [sum(counts) for counts in zip(*(each.rows for each in of_parts if each), strict=True)] == [*whole.rows]
        assert sum(each.keys for each in of_parts if each) == whole.keys


def test_a_table_that_each_batch_replaces_is_held_against_the_last_one_alone() -> None:
    pipeline = Pipeline("small", source="s3://lake")
    orders, users = pipeline.stream("orders", key="k", partitions=2), pipeline.table("users", key="k", partitions=2)
    orders.join(users, "orders.n, users.seg", name="now").write("now", mode="replace", lineage=True)
    users_of = [{"k": f"k{number}", "seg": "a"} for number in range(20)]
    with Trial.made(pipeline) as place:
        for batch in range(2):
            rows = [{"k": f"k{number}", "n": number + batch} for number in range(10 * batch, 20)]
            place.land({"orders": rows, "users": users_of[: 5 * batch or None]})
            place.run()
        assert place.verify() == {}
        # What the batch before took is not needed any more.
        for partition in range(2):
            landed(place, "orders", partition)[0].unlink()
        (found,) = verified(place)
        assert str(found) == "Table now is its query over the records of batch 1: 10 rows"
        DeltaTable(folder(store_at(place.root), "now")).update({"n": "-1"}, predicate="k = 'k12'")
        wrong = [each for part in range(4) for each in verified(place, part=KeyPart(part, 4)) if each.is_wrong]
        assert [each.difference.keys for each in wrong if each.difference] == [1]
        assert (found.since, found.replaces) == (1, True)


@pytest.mark.parametrize("column", ["_batch", "_task", "_residue"])
def test_a_column_is_compared_although_coset_has_one_of_its_name_elsewhere(column: str) -> None:
    pipeline = Pipeline("small")
    orders = pipeline.stream("orders", key="k", partitions=4, source="s3://lake/orders")
    orders.select(f"n AS {column}").write("each")
    with Trial.made(pipeline) as place:
        place.land({"orders": [{"k": f"k{number}", "n": number} for number in range(20)]})
        place.run()
        assert [each.is_wrong for each in verified(place)] == [False]
        DeltaTable(folder(store_at(place.root), "each")).update({column: "-1"}, predicate="k = 'k7'")
        assert [each.is_wrong for each in verified(place)] == [True]


def test_a_changelog_that_lacks_what_went_is_not_its_query() -> None:
    pipeline = Pipeline("small")
    orders = pipeline.stream("orders", key="k", partitions=4, source="s3://lake/orders")
    orders.latest("n", name="newest").write("log", mode="changelog")
    with Trial.made(pipeline) as place:
        for batch in range(2):
            place.land({"orders": [{"k": f"k{number}", "n": number + batch} for number in range(5 * batch, 20)]})
            place.run()
        assert [str(each) for each in verified(place)] == ["Table log is its query up to batch 1: 20 rows"]
        DeltaTable(folder(store_at(place.root), "log")).delete("_change_type = 'delete' AND k = 'k7'")
        (found,) = verified(place)
        assert found.difference is not None
        assert (found.difference.rows, found.difference.keys) == ((21, 20), 1)


def test_a_row_that_somebody_changed_is_found_by_its_key() -> None:
    pipeline = Pipeline("small")
    orders = pipeline.stream("orders", key="k", partitions=4, source="s3://lake/orders")
    orders.latest("n").write("newest", mode="upsert")
    rows = [{"k": f"k{number}", "n": number} for number in range(20)]
    with Trial.made(pipeline) as place:
        place.land({"orders": rows})
        place.run()
        table = DeltaTable(folder(store_at(place.root), "newest"))
        table.update({"n": "-1"}, predicate="k = 'k7'")
        (found,) = verified(place)
        assert found.difference is not None
        assert found.difference.first == (("k7", '{"k":"k7","n":-1}', '{"k":"k7","n":7}'),)
        mine = [
            each.difference.keys
            for part in range(16)
            for each in verified(place, part=KeyPart(part, 16))
            if each.difference
        ]
        assert sorted(mine) == [*[0] * 15, 1]


def test_a_table_that_lacks_a_column_of_its_query_differs_and_it_is_said_why() -> None:
    def sums(most: str) -> Pipeline:
        pipeline = Pipeline("small", source="s3://lake")
        orders = pipeline.stream("orders", key="k", partitions=2)
        each = orders.aggregate(f"sum(n)::BIGINT AS n{most}", name="each")
        each.combine(f"sum(n)::BIGINT AS n{most}", running=True, name="sums").write("sums", mode="upsert")
        return pipeline

    with Trial.made(sums("")) as place:
        place.land({"orders": [{"k": "a", "n": 1, "m": 2}]})
        place.run()
        place.go_on_with(sums(", max(m) AS m"))
        (found,) = verify(place.pipeline, store_at(place.root))
        assert found.reasons == ("since batch 0 its steps give other columns",)


def test_floating_sums_of_batches_are_nearly_those_of_all_records_at_once() -> None:
    pipeline, chance = Pipeline("real", source="s3://nowhere/topics"), random.Random(0)
    orders = pipeline.stream("orders", key="customer", partitions=3)
    orders.select("amount").combine("sum(amount) AS amount", running=True, name="spent").write("spent", mode="upsert")
    with Trial.made(pipeline) as place:
        for _ in range(3):
            rows = [{"customer": f"c{chance.randrange(5)}", "amount": chance.uniform(-99, 99)} for _ in range(200)]
            place.land({"orders": rows})
            place.run()
        (found,) = verified(place)
        assert str(found) == "Table spent is its query up to batch 2: 5 rows"


def test_of_records_that_are_alike_the_first_that_came_may_not_be_the_earliest() -> None:
    pipeline, hour = Pipeline("late", source="s3://nowhere/topics"), timedelta(hours=1)
    views = pipeline.stream("views", key="k", partitions=1, time="seen", late=9 * hour)
    views.distinct("page", time="seen", within=hour, name="once").write("once")
    noon = datetime.fromisoformat("2026-11-01 12:00:00")
    with Trial.made(pipeline) as place:
        for minute in (30, 10):
            place.land({"views": [{"k": "a", "page": 1, "seen": noon + timedelta(minutes=minute)}]})
            place.run()
        (found,) = verified(place)
        assert found.is_wrong
        assert "step once keeps the first to come, which may not be the earliest" in str(found)
        plan = Ledger(store_at(place.root), "late").standing().published
        assert plan
        assert "-- DISTINCT BY BATCH: of records that are alike" in table_query(pipeline.graph, plan, "once")


def test_a_part_of_the_keys_is_computed_without_the_records_of_others() -> None:
    def declared(amount: str) -> Pipeline:
        pipeline = Pipeline("small")
        orders = pipeline.stream("orders", key="k", partitions=4, source="s3://lake/orders")
        orders.select(f"n, {amount} AS amount", name="amounts").latest("n").write("newest", mode="upsert")
        return pipeline

    with Trial.made(declared("n")) as place:
        place.land({"orders": [{"k": f"k{number}", "n": number} for number in range(100)]})
        place.run()
        place.go_on_with(declared("CASE WHEN k = 'k8' THEN error('it is read') ELSE n END"))
        home = murmur2(b"k8") % 16
        with pytest.raises(Refused, match="it is read"):
            verified(place, part=KeyPart(home, 16))
        others = [KeyPart(part, 16) for part in range(16) if part != home]
        assert [each.is_wrong for part in others for each in verified(place, part=part)] == [False] * 15


def test_of_rows_that_nothing_places_by_their_key_no_part_is_taken() -> None:
    pipeline = Pipeline("small")
    orders = pipeline.stream("orders", key="k", partitions=2, source="s3://lake/orders")
    orders.rekey("n", key_format="long").write("moved")
    with Trial.made(pipeline) as place:
        place.land({"orders": [{"k": "a", "n": 1}]})
        place.run()
        assert [each.found for each in verified(place, part=KeyPart(2, 16))] == [
            "nothing places its rows by its key, so no part of its keys can be taken"
        ]
        (whole,) = verified(place)
        assert whole.difference is not None
        assert whole.difference.same


def test_rows_of_tasks_that_own_no_keys_are_in_their_part() -> None:
    pipeline = Pipeline("small")
    orders = pipeline.stream("orders", key="k", partitions=2, source="s3://lake/orders", null_keys="own task")
    orders.write("raw")
    orders.distinct("n", time="seen", within=timedelta(days=1)).write("once")
    seen = datetime.fromisoformat("2026-11-01")
    with Trial.made(pipeline) as place:
        place.land({"orders": [{"k": key, "n": n, "seen": seen} for n, key in enumerate([None, *"abcdefgh"])]})
        place.run()
        for table in ("raw", "once"):
            parts = [each.difference for part in range(3) for each in verified(place, [table], KeyPart(part, 3))]
            assert [each.same for each in parts if each] == [True] * 3
            assert sum(each.rows[0] for each in parts if each) == 9


def test_records_that_are_gone_are_named() -> None:
    pipeline = Pipeline("small")
    pipeline.stream("orders", key="k", partitions=1, source="s3://lake/orders").latest("n").write("t", mode="upsert")
    with Trial.made(pipeline) as place:
        for at in range(3):
            place.land({"orders": [{"k": "a", "n": at}]})
            place.run()
        first, *_ = sorted(Path(urlsplit(place.pipeline.streams[0].source).path).rglob("*.parquet"))
        first.unlink()
        with pytest.raises(Refused, match=r"offsets \[0,1\) are gone"):
            verified(place)


@contextmanager
def published(pipeline: Pipeline, seed: int) -> Iterator[Trial]:
    """The pipeline after four batches, and those that give what is over."""
    with Trial.made(pipeline) as place:
        for batch in range(4):
            arrived = batch_of(batch, seed)
            place.land({stream.name: arrived[stream.name] for stream in pipeline.streams})
            place.run()
        place.close()
        yield place


def verified(place: Trial, tables: Sequence[str] = (), part: KeyPart = ALL) -> list[Verified]:
    return list(verify(place.pipeline, store_at(place.root), tables, part))
