"""The query of a table and the rows of any step, printed and shown of what has landed, without storing anything."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from coset import Pipeline
from coset.batches.step_rows import Sample, step_rows
from coset.batches.tables.first_rows import first_rows
from coset.cli import pipelines, plans
from coset.sources.landing import land, land_rows
from coset.testing import engine
from partitioning.authoring.settings import DEFAULTS
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from partitioning.model.private import MASK
from partitioning.model.streams import DiscoveredPartition, InputFile
from tests.forked import coset
from tests.there import there

_PIPELINE = """
from datetime import timedelta
from coset import Pipeline

pipeline = Pipeline("shop", source="file://{folder}/landing")
columns = {{"k": "VARCHAR", "n": "BIGINT", "seen": "TIMESTAMP"}}
clicks = pipeline.stream("clicks", key="k", partitions=1, format="json", columns=columns, null_keys="drop", time="seen")
views = pipeline.stream("views", key="k", partitions=2, offset=None, cast={{"n": "BIGINT"}})
pairs = pipeline.stream("pairs", key=("p", "q"), key_format="json", partitions=2)
users = pipeline.table("users", key="k", partitions=2, deletes="n < 0")
clicks.write("raw", lineage=True)
clicks.windows("sum(n)::BIGINT AS n", time="seen", every=timedelta(hours=1), name="hours").write("hours")
views.latest("n", name="newest").filter("n > 2").write("newest", mode="upsert")
pairs.latest("n", name="newest_pair").write("pairs", mode="upsert")
users.write("users", mode="replace")
newest_pair = pipeline.flow("newest_pair").rekey("p", name="by_p").select("n > 2 AS many", name="moved")
newest_pair.write("moves", mode="changelog")
clicks.join(users, "clicks.n, users.n AS m", how="left", name="with_users").write("with_users")
clicks.aggregate("count(*) AS clicks", name="counts").write("counts")
values = clicks.select("n AS v", name="values")
values.process("tests.functions:doubled", {{"k": "VARCHAR", "twice": "BIGINT"}}, name="twice").write("twice")
newest = pipeline.flow("newest")
newest.rekey("n", key_format="long", name="by_n").aggregate("count(*) AS keys").write("by_n", mode="upsert")
"""
_BEGIN = datetime.fromisoformat("2026-11-01")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """After two batches of a pipeline: by table what was published, and what its query gave after each batch."""
    folder = tmp_path_factory.mktemp("shop")
    file, root = folder / "shop.py", f"file://{folder}/store"
    file.write_text(_PIPELINE.format(folder=folder))
    pipeline, answers = pipelines.load(str(file)), list[dict[str, Any]]()
    for batch in range(2):
        for stream in pipeline.streams:
            lines = folder / "new.jsonl"
            lines.write_text("".join(f"{json.dumps(row)}\n" for row in _rows(stream.name, batch)))
            land(stream, lines)
        assert engine.run(pipeline, root, DEFAULTS, twice=False).startswith(f"Batch {batch}:")
        answers.append(
            {write.table: plans.query(str(file), root, write.table, None).value for write in pipeline.writes}
        )
    return {"file": file, "root": root, "answers": answers}


def _rows(stream: str, batch: int) -> list[dict[str, object]]:
    at = _BEGIN + timedelta(hours=4 * batch)
    match stream:
        case "clicks":
            keys = ["a", "b", None, "c", "a"]
            times = [(at + timedelta(minutes=45 * n)).isoformat() for n in range(5)]
            return [{"k": key, "n": n, "seen": time} for n, (key, time) in enumerate(zip(keys, times, strict=True))]
        case "views":
            return [{"k": f"k{n % 3}", "n": str((n * 5 + batch) % 7)} for n in range(4)]
        case "pairs":
            return [{"p": "x", "q": n % 2, "n": n + batch} for n in range(3)]
        case _:
            return [{"k": key, "n": 1 - 2 * batch * (key == "a")} for key in "ab"]


def published(shop: Mapping[str, Any], table: str, query: str) -> tuple[Counter[tuple[str, ...]], ...]:
    """The rows of a query, and those of a table, in the query's columns."""
    there = first_rows(store_at(shop["root"]), table, 1000)
    assert there is not None
    with duckdb.connect() as alone:
        right = alone.sql(query)
        listed = ", ".join(f'"{name}"::VARCHAR' for name in right.columns)
        rows = alone.from_arrow(there.rows)
        if log := re.search(r"^-- (SELECT .* FROM \"moves\" WHERE .*)$", query, re.M):
            alone.register("moves", there.rows)
            rows = alone.sql(log[1])
            assert rows.columns == right.columns
        return Counter(right.project(listed).fetchall()), Counter(rows.project(listed).fetchall())


@pytest.mark.parametrize("table", ["raw", "hours", "newest", "pairs", "users", "moves"])
def test_a_table_is_the_query_that_is_printed_of_it(shop: Mapping[str, Any], table: str) -> None:
    answer = shop["answers"][-1][table]
    right, rows = published(shop, table, answer["query"])
    assert right == rows
    assert answer["is_query"]
    assert rows


@pytest.mark.parametrize("table", ["with_users", "counts"])
def test_rows_of_a_batch_are_the_query_of_its_records(shop: Mapping[str, Any], table: str) -> None:
    of_batches = [answers[table] for answers in shop["answers"]]
    (first, rows), (second, _) = (published(shop, table, answer["query"]) for answer in of_batches)
    assert first + second == rows
    assert first
    assert second
    assert (
        f"over the records of batch 1.\n-- Its rows are of a batch: in step {'counts' if table == 'counts' else table}"
        in of_batches[1]["query"]
    )
    assert ("-- JOIN AS OF BATCH: each batch joins users as it is" in of_batches[1]["query"]) == (table == "with_users")


def test_an_earlier_batch_has_the_query_of_its_time(shop: Mapping[str, Any]) -> None:
    answer = plans.query(str(shop["file"]), shop["root"], "pairs", 0)
    assert answer.value == shop["answers"][0]["pairs"]
    with duckdb.connect() as alone:
        raw: Any = plans.query(str(shop["file"]), shop["root"], "raw", 0).value
        taken = alone.sql(raw["query"]).fetchall()
    assert len(taken) == len([row for row in _rows("clicks", 0) if row["k"]]), "what came later has landed, too"
    with pytest.raises(Refused, match="there is no batch 7 of shop"):
        plans.query(str(shop["file"]), shop["root"], "pairs", 7)


def test_a_function_is_named_and_an_unknown_table_refused(shop: Mapping[str, Any]) -> None:
    query = shop["answers"][0]["twice"]["query"]
    assert '"twice" AS (\n  -- tests.functions:doubled on Arrow tables\n' in query
    with pytest.raises(Refused, match="the pipeline writes no table 'nix'"):
        plans.query(str(shop["file"]), shop["root"], "nix", None)
    later = Path(shop["file"]).with_name("later.py")
    later.write_text(Path(shop["file"]).read_text() + 'clicks.write("again")\n')
    with pytest.raises(Refused, match="batch 0 writes no table 'again'"):
        plans.query(str(later), shop["root"], "again", 0)


def test_of_a_pipeline_that_was_changed_the_query_is_that_of_the_rows_that_are_there(shop: Mapping[str, Any]) -> None:
    query, changed = shop["answers"][-1]["newest"]["query"], Path(shop["file"]).with_name("changed.py")
    for text, other in (('filter("n > 2")', 'filter("n > 3")'), ('filter("n > 2")', 'select("n, n + 1 AS m")')):
        changed.write_text(Path(shop["file"]).read_text().replace(text, other))
        said: Any = plans.query(str(changed), shop["root"], "newest", None).value
        assert (
            said["query"]
            == f"-- The pipeline was changed since: this is the query of the rows that are there.\n{query}"
        )


def test_a_preview_of_a_backfill_calls_modes_as_users_do(shop: Mapping[str, Any]) -> None:
    shown = coset("backfill", str(shop["file"]), "--from", "0", "--preview", "--store", shop["root"]).stdout
    assert {f"{table} {mode}" for table, mode in re.findall(r"^(raw|moves|users) +(\w+)", shown, re.M)} == {
        "raw append",
        "moves changelog",
        "users replace",
    }


def test_the_query_of_rows_that_change_has_nothing_of_what_batches_need(shop: Mapping[str, Any]) -> None:
    answer = shop["answers"][1]["by_n"]
    assert answer["is_query"]
    assert "@" not in answer["query"].partition('"by_n" AS')[2]
    assert 'SELECT "n", count(*) AS keys FROM "by_n" AS "by_n" GROUP BY ALL' in answer["query"]


FILE = """
from coset import Pipeline

pipeline = Pipeline("spent", source={source!r})
orders = pipeline.stream("orders", key="customer", partitions=2, private=("name",))
customers = pipeline.table("customers", key="customer", partitions=1)
many = orders.filter("amount > 10", name="many")
parts = many.partial("sum(amount)::BIGINT AS spent", by="customer", name="parts")
totals = parts.combine("sum(spent)::BIGINT AS spent", running=True, name="totals")
joined = totals.to_stream().join(customers, "totals.spent, customers.country", name="by_country")
joined.to_stream().write("spent", mode="upsert")
"""


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A pipeline's file, and 40 orders of 2 customers that have landed."""
    file = tmp_path / "spent.py"
    file.write_text(FILE.format(source=str(tmp_path / "topics")))
    for stream, rows in (("orders", _orders()), ("customers", [{"customer": "c0", "country": "NL"}])):
        land_rows(
            next(one for one in _pipeline(file).streams if one.name == stream), pa.Table.from_pylist(rows), stream
        )
    return file


def _orders() -> list[dict[str, object]]:
    return [{"customer": f"c{number % 2}", "amount": number, "name": f"n{number}"} for number in range(40)]


def _pipeline(file: Path) -> Pipeline:
    names: dict[str, Pipeline] = {}
    exec(file.read_text(), names)
    return names["pipeline"]


def test_any_step_and_stream_is_shown_from_a_sample_of_what_has_landed(written: Path) -> None:
    pipeline = _pipeline(written)
    everything = there(step_rows(pipeline, "by_country", Sample(), 20))
    assert everything.rows.to_pylist() == [{"customer": "c0", "spent": sum(range(12, 40, 2)), "country": "NL"}]
    assert (everything.of, everything.looked, everything.landed) == (1, 41, 41)
    newest = there(step_rows(pipeline, "many", Sample(3), 2))
    assert [row["amount"] for row in newest.rows.to_pylist()] == [34, 36]
    assert (newest.of, newest.looked, newest.landed) == (6, 6, 40)
    assert {row["name"] for row in newest.rows.to_pylist()} == {MASK}
    for step in ("orders", "customers", "parts", "totals", "spent.upsert"):
        assert step_rows(pipeline, step, Sample(percent=50), 5) is not None
    with pytest.raises(Refused, match="there is no stream or step 'more'"):
        step_rows(pipeline, "more", Sample(), 5)


def kept(folder: Path) -> list[Path]:
    """What lies there, but for what Python compiled."""
    return sorted(path for path in folder.rglob("*") if "__pycache__" not in path.parts)


def test_the_command_says_in_how_many_records_it_looked_and_stores_nothing(written: Path) -> None:
    there = kept(written.parent)
    done = coset("show", str(written), "--step", "many", "--sample", "50%", "--limit", "1", folder=written.parent)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Step many: 20 rows, the first 1 by their columns")
    assert "Looked at 20 of 40 records that have landed, the newest 50% of each stream partition" in done.stdout
    said = json.loads(coset("show", str(written), "--json", folder=written.parent).stdout)
    assert (said["step"], said["of"], said["looked"], said["landed"]) == ("spent.upsert", 1, 41, 41)
    assert kept(written.parent) == there
    refused = coset("show", str(written), "--sample", "many", folder=written.parent)
    assert (refused.returncode, "'many' is no sample" in refused.stderr) == (3, True)


@pytest.mark.parametrize(("sample", "start"), [("4", 12), ("6", 0), ("50%", 12), ("100%", 0), ("5", 0)])
def test_a_file_with_gaps_is_looked_at_whole(sample: str, start: int) -> None:
    files = (InputFile("a", 1, "", 0, 10, missing=6), InputFile("b", 1, "", 12, 16))
    assert Sample.parse(sample).start(DiscoveredPartition(0, files)) == start
