"""What happened at each airport up to now: departures, arrivals, and how often its weather was observed."""

from coset import Pipeline

pipeline = Pipeline("airport_traffic", source="s3://landing/topics")

flights = pipeline.stream("flights", key="tailnum", partitions=12, null_keys="own task")
# It lies by airport already: of what meets here, only flights move.
weather = pipeline.stream("weather", key="origin", partitions=3)

observed = weather.select("1 AS observations, 0 AS departures, 0 AS arrivals, 0 AS dep_delay, 0 AS arr_delay")
departures = flights.rekey("origin", name="departed")
departures = departures.select("0 AS observations, 1 AS departures, 0 AS arrivals, dep_delay, 0 AS arr_delay")
arrivals = flights.select("dest, arr_delay").rekey("origin", sql="dest", name="at_destination")
arrivals = arrivals.select("0 AS observations, 0 AS departures, 1 AS arrivals, 0 AS dep_delay, arr_delay")

SUMS = ", ".join(
    f"sum({column})::BIGINT AS {column}"
    for column in ("observations", "departures", "arrivals", "dep_delay", "arr_delay")
)

batch = observed.merge(departures, arrivals, name="all").aggregate(SUMS, name="batch")
batch.combine(SUMS, running=True, name="traffic").to_stream().write("airport_traffic", lineage=True)
