"""Pipelines over flights and planes whose SQL is checked: no files, no records."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.errors import Finding, Refused
from partitioning.model.plan import PlannedWrite
from partitioning.model.streams import Column, Discovered
from spark_jobs.sql.column_check import check_sql
from spark_jobs.sql.left_columns import columns_needed

FLIGHTS = Discovered(
    "flights",
    (
        Column("tailnum", "VARCHAR"),
        Column("dep_delay", "INTEGER"),
        Column("hops", "VARCHAR[]"),
        Column("place", "STRUCT(gate INTEGER)"),
        Column("_offset", "BIGINT"),
    ),
    (),
)
PLANES = Discovered(
    "planes", (Column("tailnum", "VARCHAR"), Column("seats", "INTEGER"), Column("_offset", "BIGINT")), ()
)
Build = Callable[[Flow, Flow], object]


def pipeline(build: Build) -> Pipeline:
    made = Pipeline("p", source="s3://landing/topics")
    build(made.stream("flights", key="tailnum", partitions=12), made.table("planes", key="tailnum", partitions=8))
    return made


def columns(build: Build, table: str = "t") -> list[str]:
    return [column.name for column in check_sql(pipeline(build), [FLIGHTS, PLANES])[table]]


def findings(build: Build) -> tuple[Finding, ...]:
    with pytest.raises(Refused) as caught:
        check_sql(pipeline(build), [FLIGHTS, PLANES])
    return caught.value.findings


def needed(build: Build, stream: Discovered) -> tuple[str, ...]:
    made = pipeline(build)
    results = check_sql(made, [FLIGHTS, PLANES])
    writes = tuple(PlannedWrite(write, results[write.table]) for write in made.writes)
    declared = next(each for each in made.streams if each.name == stream.stream)
    # As far as the columns go, one stage of it all.
    return columns_needed(
        made.steps, [column for write in writes for column in write.columns], declared.key, stream.columns
    )
