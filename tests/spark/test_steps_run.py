"""Steps that need no exchange, run by the kernel from landed files, against DuckDB on the same records."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature

import pyarrow as pa
import pytest

from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.store import Store
from tests.asked_of_duckdb import direct, published
from tests.examples import in_turn
from tests.landed import land_table
from tests.real_batches import stored
from tests.running import run_and_publish_unjudged, task_receipts

# Keys that all have, keys that only some have, and records without a key.
RECORDS = {
    "views": pa.table({"k": [f"key-{n % 67}" if n % 50 else None for n in range(300)], "v": list(range(300))}),
    "more": pa.table({"k": [f"key-{n % 31 + 50}" if n % 40 else None for n in range(200)], "v": list(range(200))}),
    "clicks": pa.table({"k": [f"key-{n % 83 + 20}" for n in range(250)], "c": [n * 7 % 100 for n in range(250)]}),
}
PARTITIONS = {"views": 8, "more": 12, "clicks": 4}

Build = Callable[..., Flow]

# What is built of the streams that it names, and the same in DuckDB's words.
KEYED: dict[str, tuple[Build, str]] = {
    "a merge of streams of 8 and 12 partitions, aggregated": (
        lambda views, more: views.merge(more).aggregate("count(*) AS n, sum(v)::BIGINT AS v"),
        "SELECT k, count(*), sum(v) FROM (FROM views UNION ALL FROM more) GROUP BY k",
    ),
    "a merge of a merge, filtered before and after": (
        lambda views, more, clicks: (
            views.filter("v % 3 > 0")
            .merge(more)
            .merge(clicks.select("c AS v"))
            .filter("v > 20")
            .aggregate("count(*) AS n, max(v) AS v")
        ),
        """
        SELECT k, count(*), max(v)
        FROM (FROM views WHERE v % 3 > 0 UNION ALL FROM more UNION ALL FROM clicks) WHERE v > 20 GROUP BY k
        """,
    ),
    "a merge of three, of which one is an aggregate": (
        lambda views, more, clicks: views.merge(more, clicks.aggregate("sum(c)::BIGINT AS v", name="sums")).aggregate(
            "count(*) AS n, sum(v)::BIGINT AS v"
        ),
        """
        SELECT k, count(*), sum(v)
        FROM (FROM views UNION ALL FROM more UNION ALL SELECT k, sum(c) FROM clicks GROUP BY k) GROUP BY k
        """,
    ),
    "a stream merged with a part of itself": (
        lambda views: views.merge(views.filter("v > 100")).aggregate("count(*) AS n"),
        "SELECT k, count(*) FROM (FROM views UNION ALL FROM views WHERE v > 100) GROUP BY k",
    ),
    "a cogroup of two": (
        lambda views, clicks: views.cogroup("count(*) AS views", (clicks, "count(*) AS clicks, max(c) AS c")),
        """
        WITH a AS (SELECT k, count(*) AS views FROM views GROUP BY k),
        b AS (SELECT k, count(*) AS clicks, max(c) AS c FROM clicks GROUP BY k)
        SELECT coalesce(a.k, b.k), views, clicks, c FROM a FULL JOIN b ON a.k IS NOT DISTINCT FROM b.k
        """,
    ),
    "a cogroup of three": (
        lambda views, more, clicks: views.cogroup(
            "count(*) AS a", (more.filter("v > 10"), "count(*) AS b, sum(v)::BIGINT AS v"), (clicks, "max(c) AS c")
        ),
        """
        WITH keys AS (SELECT k FROM views UNION SELECT k FROM more WHERE v > 10 UNION SELECT k FROM clicks)
        SELECT k, nullif((SELECT count(*) FROM views AS x WHERE x.k IS NOT DISTINCT FROM keys.k), 0),
            nullif((SELECT count(*) FROM more AS x WHERE x.k IS NOT DISTINCT FROM keys.k AND v > 10), 0),
            (SELECT sum(v) FROM more AS x WHERE x.k IS NOT DISTINCT FROM keys.k AND v > 10),
            (SELECT max(c) FROM clicks AS x WHERE x.k = keys.k)
        FROM keys
        """,
    ),
    "an inner join of three": (
        lambda views, more, clicks: views.join([more, clicks], "views.v, more.v AS w, c", on="c > 10"),
        "SELECT k, views.v, more.v, c FROM views JOIN more USING (k) JOIN clicks USING (k) WHERE c > 10",
    ),
    "a left join of three": (
        lambda views, more, clicks: views.join([more, clicks], "views.v, more.v AS w, c", how="left", on="c > 10"),
        """
        SELECT views.k, views.v, more.v, c FROM views LEFT JOIN more ON views.k = more.k
        LEFT JOIN clicks ON views.k = clicks.k AND c > 10
        """,
    ),
    "a full join of three": (
        lambda views, more, clicks: views.join([more, clicks], "views.v, more.v AS w, c", how="full"),
        "SELECT k, views.v, more.v, c FROM views FULL JOIN more USING (k) FULL JOIN clicks USING (k)",
    ),
    "joins one after the other": (
        lambda views, more, clicks: views.join(more, "views.v, more.v AS w", how="left").join(
            clicks, "v, w, c", how="inner"
        ),
        "SELECT k, views.v, more.v, c FROM views LEFT JOIN more USING (k) JOIN clicks USING (k)",
    ),
    "a full join of aggregates, one after the other": (
        lambda views, more, clicks: (
            views.aggregate("count(*) AS a")
            .join(more.aggregate("count(*) AS b"), "a, b", how="full")
            .join(clicks.aggregate("count(*) AS d"), "a, b, d", how="full")
        ),
        """
        SELECT k, a, b, d FROM (SELECT k, count(*) AS a FROM views GROUP BY k)
        FULL JOIN (SELECT k, count(*) AS b FROM more GROUP BY k) USING (k)
        FULL JOIN (SELECT k, count(*) AS d FROM clicks GROUP BY k) USING (k)
        """,
    ),
    "a partial by the key that the flow has, combined": (
        lambda views, more: (
            views.merge(more)
            .partial("v % 2 AS odd, count(*) AS n, max(v) AS v", by="k")
            .combine("odd, sum(n)::BIGINT AS n, max(v) AS v")
        ),
        "SELECT k, v % 2 AS odd, count(*), max(v) FROM (FROM views UNION ALL FROM more) GROUP BY ALL",
    ),
}

STATELESS: dict[str, tuple[Build, str]] = {
    "a merge as it is": (lambda views, more: views.merge(more), "FROM views UNION ALL FROM more"),
    "a merge with what has no offset": (
        lambda views, clicks: views.merge(clicks.select("c AS v")),
        "FROM views UNION ALL FROM clicks",
    ),
    "a rekey by a column": (
        lambda views: views.rekey("v", key_format="long").filter("v > 7").select("k"),
        "SELECT v, k FROM views WHERE v > 7",
    ),
    "a rekey by an expression": (
        lambda clicks: clicks.rekey("c2", sql="upper(k) || c").merge(clicks.rekey("c2", sql="k || '-'", name="other")),
        "SELECT upper(k) || c AS c2, k, c FROM clicks UNION ALL SELECT k || '-', k, c FROM clicks",
    ),
}


@pytest.mark.parametrize(
    ("case", "scheme"),
    [
        *in_turn(KEYED, ["tasks(6)", "cogroup", "elastic(2)", "tasks(1)"]),
        *in_turn(STATELESS, ["tasks(5)", "max", "cogroup", "elastic(3)"]),
    ],
)
def test_steps_give_the_rows_that_duckdb_gives(store: Store, case: str, scheme: str) -> None:
    build, sql = (KEYED | STATELESS)[case]
    pipeline = Pipeline("steps", source=f"{store.root}/topics")
    names = signature(build).parameters
    for name in names:
        land_table(RECORDS[name], name, pipeline.source, key="k", partitions=PARTITIONS[name])
    declared = (pipeline.stream(name, key="k", partitions=PARTITIONS[name], null_keys="own task") for name in names)
    build(*declared).to_stream().write("t")
    ref = stored(store, pipeline, settings=Settings.parse(scheme=scheme))
    run_and_publish_unjudged(ref)
    assert published(store) == direct(sql, **RECORDS)
    receipts = [each for receipt in task_receipts(ref) for each in receipt.partitions]
    assert sum(each.taken for each in receipts) == sum(len(RECORDS[name]) for name in names)
    assert not any(each.offenders for each in receipts)
