"""Empty keys that producers put anywhere, as librdkafka does: they are records without a key, and keep their value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from coset.batches.attempt import Attempt
from coset.batches.records import of_keys
from coset.cli import pipelines, plans
from coset.testing import engine
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.authoring.words import NullKey
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.hashes import hash_of
from partitioning.model.placement import CRC32, CRC32_CONSISTENT, MURMUR2, OPAQUE, KeyFormat, Placement
from spark_jobs.row_routing import RowRouting
from tests.judged import HAVE_KEYS, refusal
from tests.landed import land_file
from tests.real_batches import ran

KEYS = [*(f"user-{number}" for number in range(30)), "", "", "", "user-1", "", "user-2"]


def landed(store: Store, stream: str, partitions: int, hash: str, keys: Sequence[str | None] = KEYS) -> None:
    """Land a stream as its producers do: records without a key in turn, and by crc32 those with an empty one."""
    places: dict[int, list[int]] = {}
    for number, key in enumerate(keys):
        by_turns = key is None or (hash == CRC32 and not key)
        h = number if by_turns else hash_of(MURMUR2 if hash == OPAQUE else hash, "here")(key, "string")
        places.setdefault(h % partitions, []).append(number)
    for partition, rows in places.items():
        table = pa.table({"k": pa.array([keys[row] for row in rows], pa.string()), "n": pa.array(rows, pa.int64())})
        land_file(table, stream, f"{store.root}/topics", partition, 0)


def met(store: Store, null_keys: NullKey = "own task", hash: str = CRC32, name: str = "met") -> Pipeline:
    """Orders that librdkafka has placed, which meet others of it, and visits that Java has placed."""
    made = Pipeline(name, source=f"{store.root}/topics")
    orders = made.stream("orders", key="k", partitions=6, hash=hash, null_keys=null_keys)
    paid = made.stream("paid", key="k", partitions=4, hash=CRC32, null_keys=null_keys)
    visits = made.stream("visits", key="k", partitions=4, null_keys=null_keys)
    spent = orders.aggregate("count(*) AS orders, sum(n)::BIGINT AS spent", name="spent")
    spent.join(paid, "orders, spent, paid.n", name="both").write("both")
    orders.aggregate("count(*) AS n", name="counts").write("counts")
    visits.join(spent, "visits.n, orders", name="seen").write("seen")
    known = orders.filter("k IS NOT NULL", name="known")
    known.combine("sum(n)::BIGINT AS n", running=True, name="totals").write("totals", mode="upsert")
    return made


@pytest.mark.parametrize("scheme", ["cogroup", "tasks(5)"])
def test_all_meet_and_count_in_the_task_of_records_without_a_key(store: Store, scheme: str) -> None:
    keys = [*KEYS, None, None]
    for stream, partitions, hash in (("orders", 6, CRC32), ("paid", 4, CRC32), ("visits", 4, MURMUR2)):
        landed(store, stream, partitions, hash, keys)
    engine.run(met(store), store.root, Settings.parse(scheme=scheme), twice=False)
    given = pa.table({"k": pa.array(keys, pa.string()), "n": pa.array(range(len(keys)), pa.int64())})
    spent = "(SELECT k, count(*) AS orders, sum(n)::BIGINT AS spent FROM given GROUP BY k)"
    right = {
        "counts": "SELECT k, count(*) AS n FROM given GROUP BY k",
        "totals": "SELECT k, sum(n)::BIGINT AS n FROM given WHERE k IS NOT NULL GROUP BY k",
        "both": f"SELECT k, orders, spent, n FROM given JOIN {spent} USING (k)",
        "seen": f"SELECT k, n, orders FROM given JOIN {spent} USING (k)",
    }
    with duckdb.connect() as alone:
        alone.register("given", given)
        for table, query in right.items():
            there, asked = engine.rows(store.root, table), alone.sql(query).to_arrow_table().to_pylist()
            assert sorted(map(_plain, there)) == sorted(map(_plain, asked)), table


def _plain(row: Mapping[str, object]) -> tuple[str, ...]:
    return tuple(f"{name}={row[name]!r}" for name in sorted(row))


def test_state_of_them_goes_on_under_another_number_of_tasks(store: Store) -> None:
    made = met(store)
    for stream, partitions, hash in (("orders", 6, CRC32), ("paid", 4, CRC32), ("visits", 4, MURMUR2)):
        landed(store, stream, partitions, hash)
    engine.run(made, store.root, DEFAULTS, twice=False)
    for number, partition in enumerate((1, 4)):
        file = pa.table({"k": pa.array(["", ""]), "n": pa.array([1000, 1000 + number], pa.int64())})
        land_file(file, "orders", f"{store.root}/topics", partition, _end(store, partition))
    engine.run(made, store.root, Settings.parse(scheme="tasks(5)"), twice=False)
    totals = {row["k"]: row["n"] for row in engine.rows(store.root, "totals")}
    assert totals[""] == sum(number for number, key in enumerate(KEYS) if not key) + 4001
    assert len(totals) == len(set(KEYS))


def _end(store: Store, partition: int) -> int:
    plan = Ledger(store, "met").standing().published
    assert plan is not None
    return plan.stream("orders").partitions[partition].end


def test_dropped_they_are_in_no_query(store: Store, tmp_path: Path) -> None:
    landed(store, "orders", 6, CRC32)
    file = tmp_path / "dropped.py"
    file.write_text(
        "from coset import Pipeline\n"
        f'pipeline = Pipeline("dropped", source={store.root + "/topics"!r})\n'
        'orders = pipeline.stream("orders", key="k", partitions=6, hash="crc32", null_keys="drop")\n'
        'orders.combine("sum(n)::BIGINT AS n", running=True).write("counts", mode="upsert")\n'
    )
    engine.run(pipelines.load(str(file)), store.root, DEFAULTS, twice=False)
    answer: Any = plans.query(str(file), store.root, "counts", None).value
    with duckdb.connect() as alone:
        right = dict(alone.sql(answer["query"]).fetchall())
    assert right == {row["k"]: row["n"] for row in engine.rows(store.root, "counts")}
    assert right == {key: sum(n for n, other in enumerate(KEYS) if other == key) for key in KEYS if key}


def test_refused_they_are_told_as_records_without_a_key_with_what_to_declare(store: Store) -> None:
    landed(store, "orders", 6, CRC32)
    made = Pipeline("refused", source=f"{store.root}/topics")
    made.stream("orders", key="k", partitions=6, hash=CRC32).aggregate("count(*) AS n").write("counts")
    said = refusal(ran(store, made))
    assert said.failed[0] == HAVE_KEYS
    assert "orders-0@[0,5): 1 record without a key" in said.findings[0]
    assert 'declare null_keys="drop" or "own task" for the stream' in said.next[0]
    assert "an empty key of orders counts as none, as librdkafka puts it anywhere" in said.next[0]
    assert f'if its producer puts it into partition 0, declare hash="{CRC32_CONSISTENT}"' in said.next[0]


def test_where_producers_hash_them_they_are_keys_like_others(store: Store) -> None:
    landed(store, "orders", 6, CRC32_CONSISTENT)
    made = Pipeline("hashed", source=f"{store.root}/topics")
    orders = made.stream("orders", key="k", partitions=6, hash=CRC32_CONSISTENT)
    orders.aggregate("count(*) AS n").write("counts")
    engine.run(made, store.root, DEFAULTS, twice=False)
    assert {row["k"]: row["n"] for row in engine.rows(store.root, "counts")}[""] == KEYS.count("")


def test_one_hides_no_advice(store: Store) -> None:
    landed(store, "orders", 6, CRC32)
    made = Pipeline("advised", source=f"{store.root}/topics")
    made.stream("orders", key="k", partitions=6).aggregate("count(*) AS n").write("counts")
    said = refusal(ran(store, made))
    assert 'if their producer hashes so, declare hash="crc32"' in said.next[0]


def test_records_of_an_empty_key_are_found_in_all_partitions(store: Store) -> None:
    for stream, partitions, hash in (("orders", 6, CRC32), ("paid", 4, CRC32), ("visits", 4, MURMUR2)):
        landed(store, stream, partitions, hash)
    ref = ran(store, met(store))
    ledger, plan = ref.load()
    found = of_keys(Attempt(ledger, plan, 0), "orders", [""], 100).found
    assert sorted(record.columns["n"] for record in found) == [n for n, key in enumerate(KEYS) if not key]
    assert len({record.partition for record in found}) > 1


def test_rows_of_dataframes_go_where_the_kernel_takes_them() -> None:
    keys = pa.array(["", "user-1", None, "user-2", "user-3"])
    for hash, empty in ((CRC32, 2), (CRC32_CONSISTENT, 0)):
        placement = Placement("k", KeyFormat.STRING, hash, 2)
        routing = RowRouting("k", "VARCHAR", placement, 3, 2, {0: 0, 1: 1}, 2)
        homes = [hash_of(hash, "here")(key, "string") % 2 for key in ("user-1", "user-2", "user-3")]
        places = routing.places_of(pa.record_batch({"k": keys}))
        assert places.tolist() == [empty, homes[0], 2, *homes[1:]]
        assert places.dtype == np.int64


def test_a_topic_that_is_written_by_turns_is_told_so_and_is_right_once_its_records_move(store: Store) -> None:
    keys = [f"user-{number % 24}" for number in range(120)]
    for partition in range(7):
        rows = [number for number in range(120) if number % 7 == partition]
        table = pa.table({"k": [keys[row] for row in rows], "n": pa.array(rows, pa.int64())})
        land_file(table, "orders", f"{store.root}/topics", partition, 0)
    made = Pipeline("turns", source=f"{store.root}/topics")
    made.stream("orders", key="k", partitions=7).aggregate("count(*) AS n").write("counts")
    said = refusal(ran(store, made))
    by_key = 'let it place records by key; to take its records from where they lie, declare hash="opaque" and move them'
    assert all("24 keys compared of orders lie in several partitions" in then for then in said.next[:1])
    assert by_key in said.next[0]

    unmoved = Pipeline("unmoved", source=f"{store.root}/topics")
    unmoved.stream("orders", key="k", partitions=7, hash=OPAQUE).aggregate("count(*) AS n").write("unmoved")
    said = refusal(ran(store, unmoved))
    assert "if no hash of the key places the records of orders, move them: orders.repartition()" in said.next[0]

    moved = Pipeline("moved", source=f"{store.root}/topics")
    orders = moved.stream("orders", key="k", partitions=7, hash=OPAQUE).repartition()
    orders.aggregate("count(*) AS n").write("moved")
    engine.run(moved, store.root, DEFAULTS, twice=False)
    assert {row["n"] for row in engine.rows(store.root, "moved")} == {5}
