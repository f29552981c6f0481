"""The weather of each month at the airports of origin, by twice as many tasks as the topic's partitions allow."""

from coset import Pipeline

pipeline = Pipeline("origin_weather", source="s3://landing/topics", scheme="elastic(2)")

weather = pipeline.stream("weather", key="origin", partitions=3)

weather.filter("temp IS NOT NULL").aggregate(
    "count(*) AS hours, avg(temp) AS temp, sum(precip) AS precip, max(wind_speed) AS wind_speed",
    by="month",
    name="months",
).write(
    "origin_weather",
    expect=(
        {"type": "expect_column_values_to_be_between", "kwargs": {"column": "month", "min_value": 1, "max_value": 12}},
        {"type": "expect_compound_columns_to_be_unique", "kwargs": {"column_list": ["origin", "month"]}},
    ),
)
