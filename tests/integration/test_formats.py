"""Whole batches from files of each format, in both layouts, with and without a column of offsets."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from coset.batches.planning import preview
from coset.batches.runners.connect import Connect
from coset.batches.runners.runner import Runner
from coset.batches.runners.spark_server import SparkServer
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.documents.store import Store
from partitioning.model.plan import Plan
from partitioning.model.streams import Layout
from tests.batches import rows
from tests.running import next_batch, run_and_publish
from tests.written import WRITERS, Row, Writer, land_rows, row

PARTITIONS = 3
BY_NAME = {str(writer): writer for writer in WRITERS}
ROWS = [row(number) for number in range(60)]


def views(store: Store, writer: Writer, layout: Layout, *, counted: bool, **declared: Any) -> Pipeline:
    made = Pipeline("read", source=f"{store.root}/topics")
    if counted:
        declared["offset"] = None
    said = {**writer.declared, "layout": layout.value, **declared}
    flow = made.stream("views", key="member", partitions=PARTITIONS, **said)
    flow.select("n, price, day, tags, place, _offset AS at").write("seen")
    return made


def expected(seen: list[Row], store: Store) -> None:
    """The result has these rows, each in its place."""
    found = rows(store.root, "seen")
    assert Counter((n, price) for _, n, price, *_ in found) == Counter((one["n"], one["price"]) for one in seen)
    by_number = {one["n"]: one for one in seen}
    for member, n, price, day, tags, place, _ in found:
        one = by_number[n]
        assert (member, price, day, tags, place) == tuple(
            one[name] for name in ("member", "price", "day", "tags", "place")
        )


def run(store: Store, made: Pipeline, docs: Path, settings: Settings = DEFAULTS, runner: Runner | None = None) -> Plan:
    ref = next_batch(made, store.root, settings)
    run_and_publish(ref, docs, runner)
    return ref.load()[1]


@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize(
    ("name", "counted"),
    [
        ("parquet-snappy", True),
        ("json-plain", False),
        ("json-gzip", True),
        ("avro-deflate", False),
        ("avro-snappy", True),
    ],
)
def test_batches_publish_what_landed(name: str, counted: bool, layout: Layout, store: Store, tmp_path: Path) -> None:
    writer, ends = BY_NAME[name], dict[int, int]()
    made = views(store, writer, layout, counted=counted)

    def land(part: list[Row]) -> None:
        # Of each call the first files are of the first hour, so those of the second call come late.
        source = f"{store.root}/topics"
        land_rows(part, source, writer, layout, counted=counted, partitions=PARTITIONS, ends=ends)

    land(ROWS[:40])
    # A batch may end within a file, and the next one begins there.
    run(store, made, tmp_path, Settings(limit=5))
    run(store, made, tmp_path)
    expected(ROWS[:40], store)
    land(ROWS[40:])
    plan = run(store, made, tmp_path)
    expected(ROWS, store)
    assert {partition.partition: partition.end for partition in plan.streams[0].partitions} == {
        number: ends.get(number, 0) for number in range(PARTITIONS)
    }
    assert preview(made, store).plan is None


def test_a_batch_on_spark(store: Store, spark_server: SparkServer, tmp_path: Path) -> None:
    writer, ends = BY_NAME["json-gzip"], dict[int, int]()
    source = f"{store.root}/topics"
    land_rows(ROWS, source, writer, Layout.TIME, counted=True, partitions=PARTITIONS, ends=ends)
    made = views(store, writer, Layout.TIME, counted=True)
    with Connect(spark_server.address, token=spark_server.token, master="nowhere") as runner:
        run(store, made, tmp_path, runner=runner)
    expected(ROWS, store)
