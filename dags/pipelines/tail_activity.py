"""What each aircraft did in a batch of flights, with what is known of the aircraft."""

from coset import Pipeline

pipeline = Pipeline("tail_activity", source="s3://landing/topics")

# Some 2,500 of the flights, most of them cancelled, have no tail number.
flights = pipeline.stream("flights", key="tailnum", partitions=12, null_keys="drop")
planes = pipeline.table("planes", key="tailnum", partitions=8)

activity = flights.aggregate(
    """
    count(*) AS flights,
    count(dep_delay) AS departed,
    sum(dep_delay)::BIGINT AS dep_delay,
    sum(distance)::BIGINT AS distance,
    max(air_time) AS longest
    """,
    name="activity",
)

activity.join(
    planes,
    """
    activity.flights, activity.departed, activity.dep_delay, activity.distance, activity.longest,
    planes.manufacturer, planes.model, planes.year AS built
    """,
    how="left",
    name="tails",
).write(
    "tail_activity",
    lineage=True,
    expect=(
        {
            "type": "expect_column_values_to_be_unique",
            "kwargs": {"column": "tailnum"},
            "description": "Each tail number has one row in a batch.",
        },
        {
            "type": "expect_column_pair_values_a_to_be_greater_than_b",
            "kwargs": {"column_A": "flights", "column_B": "departed", "or_equal": True},
            "description": "No aircraft departed more often than it was to fly.",
        },
    ),
)
