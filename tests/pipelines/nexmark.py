"""The queries of the Nexmark suite as pipelines: `pipeline("q4")` publishes the table q4.

https://github.com/nexmark/nexmark has them in Flink's SQL; docs/how-to/coming-from.md says what they cost.
"""

from __future__ import annotations

from datetime import timedelta
from functools import cached_property

from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline

_SECOND, _WEEK = timedelta(seconds=1), timedelta(weeks=1)
_DAY = "strftime(date_time, '%Y-%m-%d') AS day"
_CHANNEL_ID = "nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '')"
_OF_SLIDES = "time_bucket(INTERVAL 2 SECONDS, date_time)"
_RANKS = ("price < 10000", "price >= 10000 AND price < 1000000", "price >= 1000000")


class Site:
    """The streams of an auction site and what several queries make of them, each declared when it is asked for."""

    def __init__(self, name: str) -> None:
        self.pipeline = Pipeline(name, source="s3://landing/topics")

    @cached_property
    def person(self) -> Flow:
        return self._stream("person", "id", 2)

    @cached_property
    def auction(self) -> Flow:
        return self._stream("auction", "id", 2)

    @cached_property
    def bid(self) -> Flow:
        return self._stream("bid", "auction", 4)

    @cached_property
    def people(self) -> Flow:
        """Each person ever."""
        return self.person.latest("date_time", name="people")

    @cached_property
    def auctions(self) -> Flow:
        """Each auction ever."""
        return self.auction.latest("date_time", name="auctions")

    @cached_property
    def bids(self) -> Flow:
        """Each bid ever."""
        return self.bid.kept(name="bids")

    @cached_property
    def winning(self) -> Flow:
        """Of each auction the highest bid while it was open, of these the first."""
        columns = "auctions.* EXCLUDE (id), bids.auction, bids.bidder, bids.price"
        columns += ", bids.date_time AS bid_date_time, bids.extra AS bid_extra"
        while_open = "bids.date_time BETWEEN auctions.date_time AND auctions.expires"
        valid = self.auctions.join(self.bids, columns, on=while_open, name="valid")
        return valid.latest("(price, -epoch_us(bid_date_time))", name="winning")

    def _stream(self, name: str, key: str, partitions: int) -> Flow:
        late = 4 * _SECOND
        return self.pipeline.stream(
            name, key=key, key_format="long", partitions=partitions, time="date_time", late=late
        )


def pipeline(query: str) -> Pipeline:
    """The pipeline of a query."""
    site = Site(query)
    globals()[query](site)
    return site.pipeline


def q0(site: Site) -> None:
    """Pass through."""
    site.bid.select("bidder, price, date_time, extra").write("q0")


def q1(site: Site) -> None:
    """Prices in euros."""
    site.bid.select("bidder, 0.908 * price AS price, date_time, extra").write("q1")


def q2(site: Site) -> None:
    """Bids on some auctions."""
    site.bid.filter("auction % 123 = 0").select("price").write("q2")


def q3(site: Site) -> None:
    """Who sells in three states in category 10."""
    sellers = site.auctions.filter("category = 10").rekey("seller", key_format="long", name="sellers")
    there = site.people.filter("state IN ('OR', 'ID', 'CA')")
    selling = sellers.join(there, "people.name, people.city, people.state, sellers.id", name="selling")
    selling.rekey("id", key_format="long").latest("name").write("q3", mode="upsert")


def q4(site: Site) -> None:
    """The average winning bid of each category."""
    of_category = site.winning.rekey("category", key_format="long")
    of_category.aggregate("avg(price) AS final").write("q4", mode="upsert")


def q5(site: Site) -> None:
    """Which auctions had most bids in the last ten seconds, every two seconds."""
    window = f"unnest(generate_series({_OF_SLIDES} - INTERVAL 8 SECONDS, {_OF_SLIDES}, INTERVAL 2 SECONDS))"
    in_windows = site.bid.select(f"{window} AS opened").rekey(("auction", "opened"), name="in_windows")
    # A window ends with the last of its slides.
    counts = in_windows.windows("count(*) AS num", time="opened + INTERVAL 8 SECONDS", every=2 * _SECOND)
    of_window = counts.rekey("ended", sql="window_end::VARCHAR").select("auction, num, window_start AS last_slide")
    most = "max(num) AS most, list({'auction': auction, 'num': num} ORDER BY auction) AS auctions"
    hot = of_window.windows(most, time="last_slide", every=2 * _SECOND, name="hot")
    hot.select("unnest(list_filter(auctions, lambda one: one.num = most), recursive := true)").write("q5")


def q6(site: Site) -> None:
    """Of each auction the average winning bid of its seller's last eleven."""
    won = "list({'id': id, 'price': price} ORDER BY bid_date_time, id, price) AS won"
    sellers = site.winning.rekey("seller", key_format="long").aggregate(won)
    last = "list_transform(won[greatest(n - 10, 1):n], lambda each: each.price)"
    of_each = f"list_transform(won, lambda one, n: {{'id': one.id, 'avg_price': list_avg({last})}})"
    each = sellers.select(f"unnest({of_each}, recursive := true)")
    each.rekey("id", key_format="long").latest("seller").write("q6", mode="upsert")


def q7(site: Site) -> None:
    """The highest bids of every ten seconds."""
    of_period = site.bid.rekey("period", sql="time_bucket(INTERVAL 10 SECONDS, date_time)::VARCHAR", name="bids")
    highest = of_period.windows("max(price) AS price", time="date_time", every=10 * _SECOND, name="highest")
    columns = "bids.auction, bids.bidder, bids.price, bids.date_time, bids.extra, highest.price AS most"
    times = ("bids.date_time", "highest.window_start")
    met = of_period.join_within(highest, columns, times=times, within=10 * _SECOND)
    met.filter("price = most").select("auction, bidder, price, date_time, extra").write("q7")


def q8(site: Site) -> None:
    """Who came and sold in the same ten seconds."""
    new = site.person.windows("min(name) AS name", time="date_time", every=10 * _SECOND, name="new")
    sellers = site.auction.rekey("seller", key_format="long")
    selling = sellers.windows("count(*) AS auctions", time="date_time", every=10 * _SECOND, name="selling")
    times = ("new.window_start", "selling.window_start")
    new.join_within(selling, "new.name, new.window_start AS stime", times=times, within=_SECOND).write("q8")


def q9(site: Site) -> None:
    """Winning bids."""
    site.winning.write("q9", mode="upsert")


def q10(site: Site) -> None:
    """All bids, with the day and the minute in which they are to lie."""
    minute = "strftime(date_time, '%H:%M') AS hm"
    site.bid.select(f"bidder, price, date_time, extra, {_DAY.replace('day', 'dt')}, {minute}").write("q10")


def q11(site: Site) -> None:
    """Bids of each session of a user."""
    bidders = site.bid.rekey("bidder", key_format="long")
    sessions = bidders.windows("count(*) AS bid_count", time="date_time", every=_WEEK, gap=10 * _SECOND)
    sessions.select("bid_count, window_start AS starttime, window_end AS endtime").write("q11")


def q12(site: Site) -> None:
    """Bids of each user as they come. Coset has no windows of its clock: what a batch brings is one."""
    bidders = site.bid.rekey("bidder", key_format="long")
    bidders.aggregate("count(*) AS bid_count").write("q12", lineage=True)


def q13(site: Site) -> None:
    """Bids with a value of a small table."""
    side = site.pipeline.table("side_input", key="key", key_format="long", partitions=1)
    of_key = site.bid.rekey("key", sql="auction % 10000", key_format="long", name="bids")
    of_key.join(side, "bids.auction, bids.bidder, bids.price, bids.date_time, side_input.value").write("q13")


def q14(site: Site) -> None:
    """Bids of some prices, with the time of day and a count of characters."""
    time_of_day = """CASE
        WHEN hour(date_time) >= 8 AND hour(date_time) <= 18 THEN 'dayTime'
        WHEN hour(date_time) <= 6 OR hour(date_time) >= 20 THEN 'nightTime'
        ELSE 'otherTime' END AS bid_time_type"""
    c_counts = "length(extra) - length(replace(extra, 'c', '')) AS c_counts"
    some = site.bid.filter("0.908 * price > 1000000 AND 0.908 * price < 50000000")
    some.select(f"bidder, 0.908 * price AS price, {time_of_day}, date_time, extra, {c_counts}").write("q14")


def q15(site: Site) -> None:
    """Bids, bidders and auctions of each day, by price."""
    days = site.bids.select(f"{_DAY}, bidder, price").rekey("day")
    days.aggregate(_ranked("*", "DISTINCT bidder", "DISTINCT auction")).write("q15", mode="upsert")


def q16(site: Site) -> None:
    """The same of each channel and day."""
    columns = f"channel, {_DAY}, strftime(date_time, '%H:%M') AS minute, bidder, price"
    days = site.bids.select(columns).rekey(("channel", "day"))
    ranked = _ranked("*", "DISTINCT bidder", "DISTINCT auction")
    days.aggregate(f"max(minute) AS minute, {ranked}").write("q16", mode="upsert")


def q17(site: Site) -> None:
    """Bids and prices of each auction and day."""
    days = site.bid.select(f"{_DAY}, price").rekey(("auction", "day"))
    ranks = ", ".join(f"({rank})::BIGINT AS rank{number}_bids" for number, rank in enumerate(_RANKS, 1))
    each = f"1::BIGINT AS total_bids, {ranks}, price AS min_price, price AS max_price, price::HUGEINT AS sum_price"
    counts = ("total_bids", "rank1_bids", "rank2_bids", "rank3_bids")
    sums = ", ".join(f"sum({count})::BIGINT AS {count}" for count in counts)
    sums += ", min(min_price) AS min_price, max(max_price) AS max_price, sum(sum_price)::HUGEINT AS sum_price"
    totals = days.select(each).combine(sums, running=True)
    shown = f"{', '.join(counts)}, min_price, max_price, sum_price / total_bids AS avg_price, sum_price"
    totals.select(shown).write("q17", mode="upsert")


def q18(site: Site) -> None:
    """The last bid of each bidder on each auction."""
    site.bid.rekey(("bidder", "auction")).latest("date_time").write("q18", mode="upsert")


def q19(site: Site) -> None:
    """The ten highest bids of each auction."""
    names = ("price", "date_time", "bidder", "channel", "url", "extra")
    each = ", ".join(f"'{name}': {name}" for name in names)
    best = "list_slice(list_reverse_sort(flatten(list(top))), 1, 10) AS top"
    tops = site.bid.select(f"[{{{each}}}] AS top").combine(best, running=True)
    rows = tops.select("unnest(top, recursive := true), generate_subscripts(top, 1) AS rank_number")
    rows.rekey(("auction", "rank_number")).latest("price").write("q19", mode="upsert")


def q20(site: Site) -> None:
    """Bids on auctions of category 10, with the auction."""
    some = site.auctions.filter("category = 10")
    bid = "bids._partition AS part, bids._offset AS pos, bids.bidder, bids.price, bids.channel, bids.url"
    bid += ", bids.date_time AS bid_date_time, bids.extra AS bid_extra"
    auction = "auctions.item_name, auctions.description, auctions.initial_bid, auctions.reserve"
    auction += ", auctions.date_time AS auction_date_time, auctions.expires, auctions.seller, auctions.category"
    met = site.bids.join(some, f"{bid}, {auction}, auctions.extra AS auction_extra")
    met.rekey(("part", "pos")).latest("price").write("q20", mode="upsert")


def q21(site: Site) -> None:
    """Bids with the id of their channel."""
    known = ("apple", "google", "facebook", "baidu")
    whens = " ".join(f"WHEN lower(channel) = '{name}' THEN '{number}'" for number, name in enumerate(known))
    some = site.bid.filter(f"{_CHANNEL_ID} IS NOT NULL OR lower(channel) IN {known}")
    some.select(f"bidder, price, channel, CASE {whens} ELSE {_CHANNEL_ID} END AS channel_id").write("q21")


def q22(site: Site) -> None:
    """The folders of each bid's URL."""
    folders = ", ".join(f"split_part(url, '/', {place + 3}) AS dir{place}" for place in (1, 2, 3))
    site.bid.select(f"bidder, price, channel, {folders}").write("q22")


def _ranked(*counted: str) -> str:
    """Counts of these, each of all prices and of three ranges of them."""
    names = {"*": "bids", "DISTINCT bidder": "bidders", "DISTINCT auction": "auctions"}
    return ", ".join(
        f"count({what}) AS total_{names[what]}, "
        + ", ".join(
            f"count({what}) FILTER (WHERE {rank}) AS rank{number}_{names[what]}"
            for number, rank in enumerate(_RANKS, 1)
        )
        for what in counted
    )
