"""Pipelines whose records move between tasks, from plan to published table, against DuckDB on the same records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from coset.batches import steps
from coset.batches.runners.local import Local
from coset.batches.runners.runner import Runner
from coset.batches.runners.spark import Spark
from partitioning.authoring.settings import Settings
from partitioning.documents.store import Store
from tests.asked_of_duckdb import published
from tests.examples import few, in_turn
from tests.moved import Build, direct, planned_over
from tests.running import next_batch, run_and_publish

PIPELINES: dict[str, tuple[Build, str]] = {
    "counted by another key": (
        lambda views: views.rekey("page").aggregate("count(*) AS n, sum(v)::BIGINT AS v"),
        "SELECT page, count(*), sum(v) FROM views GROUP BY page",
    ),
    "counted by a key that is made": (
        lambda views: views.rekey("tens", sql="(v // 10)::BIGINT", key_format="long").aggregate("count(*) AS n"),
        "SELECT v // 10, count(*) FROM views GROUP BY 1",
    ),
    "a merge of placed and of re-keyed records": (
        lambda views, clicks: (
            views.rekey("page", name="by_page")
            .merge(clicks.select("v", name="of_clicks").rekey("page", sql="k", name="clicks_by_k"))
            .aggregate("count(*) AS n, sum(v)::BIGINT AS v")
        ),
        """
        SELECT page, count(*), sum(v)
        FROM (SELECT page, v FROM views UNION ALL SELECT k AS page, v FROM clicks) GROUP BY page
        """,
    ),
    "KAFKA-7294: only the re-keyed side moves": (
        lambda views, sales: (
            views.select("v", name="a")
            .merge(sales.rekey("k", name="b").select("v", name="of_b"), name="both")
            .aggregate("count(*) AS n, sum(v)::BIGINT AS v")
        ),
        """
        SELECT k, count(*), sum(v) FROM (SELECT k, v FROM views UNION ALL SELECT k, v FROM sales) GROUP BY k
        """,
    ),
    "a null that moved is of the type of what it is merged with": (
        lambda views, sales: (
            views.select("v > 3 AS big", name="a")
            .merge(sales.select("k, NULL AS big").rekey("k", name="b").select("big", name="of_b"), name="both")
            .aggregate("any_value(typeof(big)) AS kind, count(*) AS n")
        ),
        """
        SELECT k, 'BOOLEAN', count(*) FROM (SELECT k FROM views UNION ALL SELECT k FROM sales) GROUP BY k
        """,
    ),
    "joined after both have moved": (
        lambda views, clicks: (
            views.rekey("page", name="vp")
            .aggregate("count(*) AS views", name="vn")
            .join(clicks.rekey("page", name="cp").aggregate("sum(v)::BIGINT AS clicks", name="cn"), "views, clicks")
        ),
        """
        SELECT page, views, clicks
        FROM (SELECT page, count(*) AS views FROM views GROUP BY page)
        JOIN (SELECT page, sum(v) AS clicks FROM clicks GROUP BY page) USING (page)
        """,
    ),
    "moved twice": (
        lambda views: (
            views.rekey("page", name="by_page")
            .aggregate("count(*) AS n", name="pages")
            .rekey("n", key_format="long", name="by_count")
            .aggregate("count(*) AS pages")
        ),
        "SELECT n, count(*) FROM (SELECT page, count(*) AS n FROM views GROUP BY page) GROUP BY n",
    ),
    "summed over all records": (
        lambda views: views.partial("count(*) AS n, sum(v)::BIGINT AS v").combine(
            "sum(n)::BIGINT AS n, sum(v)::BIGINT AS v"
        ),
        "SELECT count(*), sum(v) FROM views",
    ),
    "summed by key in parts": (
        lambda views: views.partial("count(*) AS n", by="page").combine("sum(n)::BIGINT AS n"),
        "SELECT page, count(*) FROM views GROUP BY page",
    ),
    "put into other partitions": (lambda views: views.repartition(3).select("v"), "SELECT k, v FROM views"),
    "put into other partitions by Java's hash": (
        lambda views: views.repartition(5, hash="java").aggregate("count(*) AS n"),
        "SELECT k, count(*) FROM views GROUP BY k",
    ),
    "a result that a later wave reads where it lies": (
        lambda views: (
            lambda sums: sums.join(
                sums.rekey("page", sql="first", name="by_page")
                .aggregate("sum(n)::BIGINT AS n", name="per_page")
                .rekey("k", sql="page", name="back"),
                "sums.n, back.n AS pages",
            )
        )(views.aggregate("count(*) AS n, min(k) AS first", name="sums")),
        """
        WITH sums AS (SELECT k, count(*) AS n, min(k) AS first FROM views GROUP BY k),
        pages AS (SELECT first AS k, sum(n) AS n FROM sums GROUP BY first)
        SELECT k, sums.n, pages.n FROM sums JOIN pages USING (k)
        """,
    ),
}


@pytest.mark.parametrize(("name", "scheme"), in_turn(PIPELINES, ["tasks(3)", "cogroup", "elastic(2)"]))
def test_the_table_is_as_duckdb_says(name: str, scheme: str, store: Store) -> None:
    build, sql = PIPELINES[name]
    pipeline = planned_over(store, build)
    run_and_publish(next_batch(pipeline, store.root, Settings.parse(scheme=scheme, groups=2)))
    assert published(store) == direct(sql)


@pytest.mark.parametrize("runner", few([lambda: Local(2), lambda: Spark("local[2]")]), ids=["two processes", "spark"])
def test_whoever_runs_it(runner: Callable[[], Runner], store: Store, tmp_path: Path) -> None:
    build, sql = PIPELINES["joined after both have moved"]
    ref = next_batch(planned_over(store, build), store.root, Settings.parse(scheme="elastic(2)", groups=2))
    run_and_publish(ref, tmp_path, runner())
    assert published(store) == direct(sql)


def test_of_kafka_7294_only_the_rekeyed_records_move_and_the_report_says_so(store: Store, tmp_path: Path) -> None:
    build, _ = PIPELINES["KAFKA-7294: only the re-keyed side moves"]
    ref = next_batch(planned_over(store, build), store.root)
    run_and_publish(ref, tmp_path)
    report = steps.report(ref, tmp_path)
    moved = next(line for line in report.splitlines() if line.startswith("| of_b.exchange"))
    name, step, stage, records, size, spared = (cell.strip() for cell in moved.strip("|").split("|"))
    assert (name, step, stage, records, spared) == ("of_b.exchange", "of_b", "sales", "40", "300")
    assert size.endswith("kB")
    page = (tmp_path / "moved" / "batch-0-attempt-0.html").read_text()
    assert "What moved" in page
    assert "<td>of_b.exchange</td>" in page
