"""`python -m bench.nexmark`: what Nexmark's queries cost here and in PySpark, over the same events, all in one batch.

The events are those of the tests, so many times over, each time with other people, auctions and later times. Both read
the same landed files of the local disk and are warm: a query was answered before. Spark writes Parquet and is asked in
its SQL; windows that have not closed are in its answers too.
"""

from __future__ import annotations

import argparse
import gzip
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import duckdb
from pyspark.sql import SparkSession
from rich.table import Table

from bench.measure import alone, measured
from bench.on_spark import SETTINGS
from bench.party import CORES, MASTER
from coset.batches import steps
from coset.batches.interpreter import run_batch, silently
from coset.batches.runners.spark import Spark
from coset.cli.output import console
from coset.sources.landing import land_rows
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS
from partitioning.values import replace
from tests.pipelines.nexmark import Site, pipeline

_EVENTS = Path(__file__).parents[1] / "tests" / "vectors" / "nexmark" / "events.jsonl.gz"
# The events span so many seconds, and no id is greater.
_SECONDS, _IDS = 80, 10_000
# The ids and times of records.
_COLUMNS = {
    "person": (("id",), ("date_time",)),
    "auction": (("id", "seller"), ("date_time", "expires")),
    "bid": (("auction", "bidder"), ("date_time",)),
}
_DAY = "date_format(date_time, 'yyyy-MM-dd')"
_VALID = (
    "SELECT a.*, b.auction, b.bidder, b.price, b.date_time AS bid_date_time FROM auction a JOIN bid b "
    "ON a.id = b.auction WHERE b.date_time BETWEEN a.date_time AND a.expires"
)
_RANKED = "row_number() OVER (PARTITION BY {} ORDER BY {}) AS place"
_WINNING = (
    f"SELECT * FROM (SELECT *, {_RANKED.format('id', 'price DESC, bid_date_time')} FROM ({_VALID})) WHERE place = 1"
)
_COUNTS = ", ".join(
    f"count({what}) AS n_{name}, count({what}) FILTER (WHERE price < 10000) AS low_{name}, "
    f"count({what}) FILTER (WHERE price >= 10000 AND price < 1000000) AS some_{name}, "
    f"count({what}) FILTER (WHERE price >= 1000000) AS high_{name}"
    for what, name in (("*", "bids"), ("DISTINCT bidder", "bidders"), ("DISTINCT auction", "auctions"))
)
_OPENED = "window(date_time, '10 seconds').start"
QUERIES: Mapping[str, str] = {
    "q0": "SELECT auction, bidder, price, date_time, extra FROM bid",
    "q1": "SELECT auction, bidder, 0.908 * price AS price, date_time, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    "q3": "SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id "
    "WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')",
    "q4": f"SELECT category, avg(final) AS final FROM (SELECT max(price) AS final, category FROM ({_VALID}) "
    "GROUP BY id, category) GROUP BY category",
    "q5": "SELECT a.auction, a.n FROM (SELECT auction, window(date_time, '10 seconds', '2 seconds') AS w, "
    "count(*) AS n FROM bid GROUP BY ALL) a JOIN (SELECT w, max(n) AS most FROM (SELECT auction, "
    "window(date_time, '10 seconds', '2 seconds') AS w, count(*) AS n FROM bid GROUP BY ALL) GROUP BY w) m "
    "ON a.w = m.w AND a.n >= m.most",
    "q7": f"SELECT b.* FROM (SELECT *, {_OPENED} AS opened FROM bid) b JOIN (SELECT max(price) AS most, "
    f"{_OPENED} AS opened FROM bid GROUP BY ALL) m ON b.opened = m.opened AND b.price = m.most",
    "q8": f"SELECT p.* FROM (SELECT DISTINCT id, name, {_OPENED} AS opened FROM person) p JOIN (SELECT DISTINCT "
    f"seller, {_OPENED} AS opened FROM auction) a ON p.id = a.seller AND p.opened = a.opened",
    "q9": _WINNING,
    "q11": "SELECT bidder, count(*) AS n, session_window(date_time, '10 seconds') AS w FROM bid GROUP BY ALL",
    "q15": f"SELECT {_DAY} AS day, {_COUNTS} FROM bid GROUP BY ALL",
    "q16": f"SELECT channel, {_DAY} AS day, max(date_format(date_time, 'HH:mm')) AS minute, {_COUNTS} FROM bid "
    "GROUP BY ALL",
    "q17": f"SELECT auction, {_DAY} AS day, count(*) AS n, min(price) AS least, max(price) AS most, "
    "avg(price) AS mean, sum(price) AS sum FROM bid GROUP BY ALL",
    "q18": f"SELECT * FROM (SELECT *, {_RANKED.format('bidder, auction', 'date_time DESC')} FROM bid) WHERE place = 1",
    "q19": f"SELECT * FROM (SELECT *, {_RANKED.format('auction', 'price DESC, date_time DESC')} FROM bid) "
    "WHERE place <= 10",
    "q20": "SELECT b.*, a.item_name, a.description, a.reserve, a.expires, a.seller FROM bid b JOIN auction a "
    "ON b.auction = a.id WHERE a.category = 10",
    "q22": "SELECT auction, bidder, price, channel, split(url, '/')[3] AS dir1, split(url, '/')[4] AS dir2, "
    "split(url, '/')[5] AS dir3 FROM bid",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=60, help="so many times eight thousand events")
    parser.add_argument("--query", choices=QUERIES, nargs="+", default=list(QUERIES))
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="coset-nexmark-"))
    try:
        _land(folder, asked.times)
        here, spark = (alone(of, folder, asked.query) for of in (on_coset, on_spark))
    finally:
        shutil.rmtree(folder)
    shown = Table("query", "Coset, CPU s", "PySpark, CPU s", "ratio", title=f"{8_000 * asked.times:,} events")
    for query in asked.query:
        shown.add_row(query, *(f"{each[query]:.1f}" for each in (here, spark)), f"{here[query] / spark[query]:.2f}")
    console(stderr=False).print(shown)


def on_coset(folder: Path, queries: list[str]) -> dict[str, float]:
    """The processor seconds of each query, planned, run in Spark, proved and published."""
    found = dict[str, float]()
    with Spark(MASTER, memory="4GB") as runner:
        for query in (queries[0], *queries):
            root = f"file://{folder}/store-{query}-{len(found)}"
            with measured() as cost:
                batch, said = steps.take_up(_from(pipeline(query), folder), root, replace(DEFAULTS, groups=CORES))
                assert batch is not None, said
                run_batch(batch, runner, None, silently)
            found[query] = cost.cpu
    return found


def on_spark(folder: Path, queries: list[str]) -> dict[str, float]:
    """The processor seconds of each query, written to Parquet."""
    found = dict[str, float]()
    builder = SparkSession.builder.master(MASTER)
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    for name in _COLUMNS:
        spark.read.parquet(f"{folder}/topics/{name}").createOrReplaceTempView(name)
    for query in (queries[0], *queries):
        with measured() as cost:
            spark.sql(QUERIES[query]).write.mode("overwrite").parquet(f"{folder}/spark/{query}")
        found[query] = cost.cpu
    spark.stop()
    return found


def _from(made: Pipeline, folder: Path) -> Pipeline:
    return made.with_streams(lambda stream: replace(stream, source=f"file://{folder}/topics"))


def _land(folder: Path, times: int) -> None:
    site = Site("nexmark")
    events = gzip.decompress(_EVENTS.read_bytes()).splitlines()
    with duckdb.connect() as database:
        for flow in (site.person, site.auction, site.bid):
            kind, (ids, moments) = flow.step, _COLUMNS[flow.step]
            raw = folder / f"{kind}.json"
            begins = f'{{"{kind.capitalize()}":'.encode()
            raw.write_bytes(b"\n".join(each[len(begins) : -1] for each in events if each.startswith(begins)))
            changed = [f"{each} + {_IDS} * r.range AS {each}" for each in ids]
            changed += [f"make_timestamp({each} * 1000 + r.range * {_SECONDS} * 1000000) AS {each}" for each in moments]
            rows = database.sql(
                f"SELECT e.* REPLACE ({', '.join(changed)}) FROM read_json('{raw}', format='newline_delimited') e, "
                f"range({times}) r ORDER BY date_time"
            ).to_arrow_table()
            (stream,) = _from(site.pipeline, folder).streams_of(kind)
            land_rows(stream, rows, kind)


if __name__ == "__main__":
    main()
