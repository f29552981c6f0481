"""The queries of the Nexmark suite, over events of a public generator that come in four landings.

The oracle is each query in DuckDB over all events, after https://github.com/nexmark/nexmark, in its own order of
columns. Of windows it has those that have closed.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from coset.batches.tables.first_rows import first_rows
from coset.batches.verifying import verify
from coset.testing.runs import Landed, Trial
from partitioning.authoring.settings import Settings
from partitioning.documents.stores import store_at
from partitioning.hashes import placement_hash
from partitioning.model.schemes import Scheme
from tests.pipelines.nexmark import pipeline

EVENTS = Path(__file__).parents[1] / "vectors" / "nexmark" / "events.jsonl.gz"
# A landing ends before the event of this number; and by which scheme its batch runs.
LANDINGS = ((2007, "cogroup"), (4011, "tasks(3)"), (6023, "elastic(2)"), (8000, "cogroup"))
# The key of each stream, and how many partitions it has.
PLACED = {"person": ("id", 2), "auction": ("id", 2), "bid": ("auction", 4)}

DAY = "strftime(date_time, '%Y-%m-%d')"
TEN = "INTERVAL 10 SECONDS"
CHANNEL_ID = "nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '')"
VALID = (
    "SELECT A.* EXCLUDE (landing, partition), B.auction, B.bidder, B.price, B.date_time AS bid_date_time, "
    "B.extra AS bid_extra FROM auction A, bid B "
    "WHERE A.id = B.auction AND B.date_time BETWEEN A.date_time AND A.expires"
)
# The first of the highest valid bids.
WINNING = f"SELECT * FROM ({VALID}) QUALIFY row_number() OVER (PARTITION BY id ORDER BY price DESC, bid_date_time) = 1"
# Windows of ten seconds, one every two.
HOPS = (
    "SELECT auction, opened + INTERVAL 10 SECONDS AS ended, count(*) AS num FROM (SELECT auction, unnest(range("
    "time_bucket(INTERVAL 2 SECONDS, date_time) - INTERVAL 8 SECONDS, date_time + INTERVAL 1 MICROSECOND, "
    "INTERVAL 2 SECONDS)) AS opened FROM bid) GROUP BY ALL"
)
COUNTS = ", ".join(
    f"count({what}) AS total_{name}, count({what}) FILTER (WHERE price < 10000) AS rank1_{name}, "
    f"count({what}) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_{name}, "
    f"count({what}) FILTER (WHERE price >= 1000000) AS rank3_{name}"
    for what, name in (("*", "bids"), ("DISTINCT bidder", "bidders"), ("DISTINCT auction", "auctions"))
)

RECORDS: Mapping[str, str] = {
    "q14": "SELECT auction, bidder, 0.908 * price AS price, CASE WHEN hour(date_time) >= 8 AND hour(date_time) <= 18 "
    "THEN 'dayTime' WHEN hour(date_time) <= 6 OR hour(date_time) >= 20 THEN 'nightTime' ELSE 'otherTime' END "
    "AS bid_time_type, date_time, extra, len(list_filter(string_split(extra, ''), lambda c: c = 'c')) AS c_counts "
    "FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000",
    "q0": "SELECT auction, bidder, price, date_time, extra FROM bid",
    "q1": "SELECT auction, bidder, 0.908 * price AS price, date_time, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE mod(auction, 123) = 0",
    "q10": f"SELECT auction, bidder, price, date_time, extra, {DAY} AS dt, strftime(date_time, '%H:%M') AS hm FROM bid",
    "q12": "SELECT landing AS _batch, bidder, count(*) AS bid_count FROM bid GROUP BY ALL",
    "q13": "SELECT B.auction, B.bidder, B.price, B.date_time, S.value FROM bid B JOIN side_input S "
    "ON mod(B.auction, 10000) = S.key",
    "q21": "SELECT auction, bidder, price, channel, CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' "
    f"WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3' ELSE {CHANNEL_ID} END AS channel_id FROM bid "
    f"WHERE {CHANNEL_ID} IS NOT NULL OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu')",
    "q22": "SELECT auction, bidder, price, channel, string_split(url, '/')[4] AS dir1, string_split(url, '/')[5] "
    "AS dir2, string_split(url, '/')[6] AS dir3 FROM bid",
}
CLOSED: Mapping[str, str] = {
    "q5": f"SELECT A.auction, A.num FROM ({HOPS}) A JOIN (SELECT ended, max(num) AS maxn FROM ({HOPS}) GROUP BY ended) "
    "M ON A.ended = M.ended AND A.num >= M.maxn WHERE A.ended <= (FROM bids_closed)",
    "q7": "SELECT B.auction, B.price, B.bidder, B.date_time, B.extra FROM bid B JOIN (SELECT max(price) AS maxprice, "
    f"time_bucket({TEN}, date_time) + {TEN} AS ended FROM bid GROUP BY ended) B1 ON B.price = B1.maxprice "
    f"WHERE B.date_time BETWEEN B1.ended - {TEN} AND B1.ended AND B1.ended <= (FROM bids_closed)",
    "q8": "SELECT P.id, P.name, P.starttime AS stime FROM (SELECT DISTINCT id, name, "
    f"time_bucket({TEN}, date_time) AS starttime FROM person) P JOIN (SELECT DISTINCT seller, "
    f"time_bucket({TEN}, date_time) AS starttime FROM auction) A ON P.id = A.seller AND P.starttime = A.starttime "
    f"WHERE P.starttime + {TEN} <= (FROM sales_closed)",
    "q11": f"SELECT bidder, count(*) AS bid_count, min(date_time) AS starttime, max(date_time) + {TEN} AS endtime FROM "
    "(SELECT *, count(*) FILTER (WHERE begins) OVER (PARTITION BY bidder ORDER BY date_time) AS session FROM "
    f"(SELECT *, date_time - lag(date_time) OVER (PARTITION BY bidder ORDER BY date_time) <= {TEN} IS NOT TRUE "
    "AS begins FROM bid)) GROUP BY bidder, session HAVING endtime <= (FROM bids_closed)",
}
CHANGING: Mapping[str, str] = {
    "q4": f"SELECT category, avg(final) AS final FROM (SELECT max(price) AS final, category FROM ({VALID}) "
    "GROUP BY id, category) GROUP BY category",
    "q3": "SELECT P.name, P.city, P.state, A.id FROM auction A JOIN person P ON A.seller = P.id "
    "WHERE A.category = 10 AND (P.state = 'OR' OR P.state = 'ID' OR P.state = 'CA')",
    "q6": "SELECT seller, id, avg(price) OVER (PARTITION BY seller ORDER BY bid_date_time "
    f"ROWS BETWEEN 10 PRECEDING AND CURRENT ROW) AS avg_price FROM ({WINNING})",
    "q9": WINNING,
    "q15": f"SELECT {DAY} AS day, {COUNTS} FROM bid GROUP BY day",
    "q16": f"SELECT channel, {DAY} AS day, max(strftime(date_time, '%H:%M')) AS minute, {COUNTS} FROM bid "
    "GROUP BY channel, day",
    "q17": f"SELECT auction, {DAY} AS day, count(*) AS total_bids, "
    "count(*) FILTER (WHERE price < 10000) AS rank1_bids, "
    "count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids, "
    "count(*) FILTER (WHERE price >= 1000000) AS rank3_bids, min(price) AS min_price, max(price) AS max_price, "
    "avg(price) AS avg_price, sum(price) AS sum_price FROM bid GROUP BY auction, day",
    "q18": "SELECT auction, bidder, price, channel, url, date_time, extra FROM bid "
    "QUALIFY row_number() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC) <= 1",
    # Nexmark leaves open which of two bids of one price is before the other.
    "q19": "SELECT auction, bidder, price, channel, url, date_time, extra, row_number() OVER (PARTITION BY auction "
    "ORDER BY price DESC, date_time DESC) AS rank_number FROM bid QUALIFY rank_number <= 10",
    "q20": "SELECT auction, bidder, price, channel, url, B.date_time AS bid_date_time, B.extra AS bid_extra, "
    "item_name, description, initial_bid, reserve, A.date_time AS auction_date_time, expires, seller, category, "
    "A.extra AS auction_extra FROM bid B JOIN auction A ON B.auction = A.id WHERE A.category = 10",
}
# Tables of which nobody can verify that they are their query, and why.
OF_BATCH = {"q12": "it has a row for each batch in which a key comes", "q13": "it joins what comes in one batch"}


@dataclass(frozen=True)
class Events:
    """All that happens: as it lands, and in a database."""

    landings: tuple[Landed, ...]
    database: duckdb.DuckDBPyConnection


@pytest.fixture(scope="module")
def events() -> Iterator[Events]:
    landings = [{name: list[Mapping[str, object]]() for name in PLACED} for _ in LANDINGS]
    for number, line in enumerate(gzip.decompress(EVENTS.read_bytes()).splitlines()):
        ((kind, event),) = json.loads(line).items()
        times = {name: _time(event[name]) for name in ("date_time", "expires") if name in event}
        landing = next(place for place, (end, _) in enumerate(LANDINGS) if number < end)
        landings[landing][kind.lower()].append(event | times)
    # As the suite makes it, with fewer rows than there are auctions.
    side = [{"key": number, "value": str(number)} for number in range(1300)]
    landed: list[Landed] = [{**landings[0], "side_input": side}, *landings[1:]]
    with duckdb.connect() as database:
        for name, (key, partitions) in PLACED.items():
            rows = [
                {**row, "landing": number, "partition": placement_hash(row[key], "long") % partitions}
                for number, arrived in enumerate(landings)
                for row in arrived[name]
            ]
            _table(database, name, rows)
        _table(database, "side_input", side)
        for view, streams in {"bids_closed": ("bid",), "sales_closed": ("person", "auction")}.items():
            each = " UNION ALL ".join(f"SELECT '{name}' AS s, partition, date_time FROM {name}" for name in streams)
            slowest = f"SELECT max(date_time) AS last FROM ({each}) GROUP BY s, partition"
            database.execute(f"CREATE VIEW {view} AS SELECT min(last) - INTERVAL 4 SECONDS FROM ({slowest})")
        yield Events(tuple(landed), database)


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).replace(tzinfo=None)


def _table(database: duckdb.DuckDBPyConnection, name: str, rows: list[dict[str, object]]) -> None:
    arrow = pa.Table.from_pylist(rows)
    database.register("given", arrow)
    database.execute(f"CREATE TABLE {name} AS FROM given")


@pytest.mark.parametrize("query", RECORDS)
def test_rows_of_records_are_what_duckdb_alone_answers(query: str, events: Events) -> None:
    check(query, RECORDS[query], events)


@pytest.mark.parametrize("query", CLOSED)
def test_windows_that_have_closed_are_what_duckdb_alone_answers(query: str, events: Events) -> None:
    check(query, CLOSED[query], events)


@pytest.mark.parametrize("query", CHANGING)
def test_rows_that_change_are_what_duckdb_alone_answers(query: str, events: Events) -> None:
    check(query, CHANGING[query], events)


def check(query: str, sql: str, events: Events) -> None:
    """The table after all landings has the rows of the oracle, and is found to be its query."""
    with Trial.made(pipeline(query)) as place:
        streams = {stream.name for stream in place.pipeline.streams}
        for arrived, (_, scheme) in zip(events.landings, LANDINGS, strict=True):
            place.land({name: rows for name, rows in arrived.items() if name in streams})
            place.run(Settings(scheme=Scheme.parse(scheme)))
        place.close()
        published = first_rows(store_at(place.root), query, 10**6)
        (verified,) = verify(place.pipeline, store_at(place.root))
    assert published
    asked = events.database.sql(sql)
    events.database.register("published", published.rows)
    found, right = _texts(events.database.sql("FROM published"), asked.columns), _texts(asked, asked.columns)
    assert right
    assert (found - right, right - found) == (Counter(), Counter())
    if query in OF_BATCH:
        assert OF_BATCH[query] in str(verified)
    else:
        assert verified.difference
        assert verified.difference.same


def _texts(rows: duckdb.DuckDBPyRelation, columns: list[str]) -> Counter[tuple[str, ...]]:
    return Counter(rows.project(", ".join(f'"{name}"::VARCHAR' for name in columns)).fetchall())
