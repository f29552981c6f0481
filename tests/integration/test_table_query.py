"""`coset explain --query` prints the query of a table, which DuckDB alone answers as it is published."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from coset.batches.tables.first_rows import first_rows
from coset.cli import pipelines, plans
from coset.sources.landing import land
from coset.testing import engine
from partitioning.authoring.settings import DEFAULTS
from partitioning.documents.stores import store_at
from partitioning.errors import Refused

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
        rows = alone.from_arrow(there.rows).project(listed).fetchall()
        return Counter(right.project(listed).fetchall()), Counter(rows)


@pytest.mark.parametrize("table", ["raw", "hours", "newest", "pairs", "users"])
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


def test_a_function_is_named(shop: Mapping[str, Any]) -> None:
    query = shop["answers"][0]["twice"]["query"]
    assert '"twice" AS (\n  -- tests.functions:doubled on Arrow tables\n' in query


def test_the_query_of_rows_that_change_has_nothing_of_what_batches_need(shop: Mapping[str, Any]) -> None:
    answer = shop["answers"][1]["by_n"]
    assert answer["is_query"]
    assert "@" not in answer["query"].partition('"by_n" AS')[2]
    assert 'SELECT "n", count(*) AS keys FROM "by_n" AS "by_n" GROUP BY ALL' in answer["query"]


def test_an_unknown_table_is_refused(shop: Mapping[str, Any]) -> None:
    with pytest.raises(Refused, match="the pipeline writes no table 'nix'"):
        plans.query(str(shop["file"]), shop["root"], "nix", None)
    later = Path(shop["file"]).with_name("later.py")
    later.write_text(Path(shop["file"]).read_text() + 'clicks.write("again")\n')
    with pytest.raises(Refused, match="batch 0 writes no table 'again'"):
        plans.query(str(later), shop["root"], "again", 0)
