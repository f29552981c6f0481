"""What `coset verify` finds is remembered and told; what a batch published is held against its query as of that batch;
and what is gone says how far back anything can be said."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from deltalake import DeltaTable
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from coset.batches.verified import NextPart, verify_and_remember
from coset.batches.verifying import ALL, KeyPart, Verified, verify
from coset.testing.runs import Trial
from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
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
