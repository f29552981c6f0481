"""Streams whose own key has several columns in JSON: read where they lie, met where they lie, and not believed.

Records are put where a producer puts them by what stands here alone: its JSON, its murmur2, its partition.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coset.batches import steps
from coset.batches.planning import preview
from coset.batches.ref import BatchRef
from coset.batches.tables.first_rows import first_rows
from coset.sources.discovery import discover
from coset.sources.landing import land as land_given
from coset.testing import assert_same_everywhere
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.diff.plan_diff import DeclarationChange, changes
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from partitioning.hashes import murmur2
from partitioning.model.plan import Plan
from tests.examples import examples
from tests.judged import HASH, IN_PLACE, refusal
from tests.landed import land_file
from tests.real_batches import ran
from tests.running import run_and_publish_unjudged, task_receipts

Row = Mapping[str, Any]
Written = Callable[[Row], str]
KEY = ("customer", "n")
CUSTOMERS = ["ann", "bob", "é", "\U0001f600", '","', "\\", "\x1f\n", "", None]
KINDS = {"customer": pa.string(), "client": pa.string(), "n": pa.int64(), "m": pa.int32(), "x": pa.int64()}
TABLES = {
    "met": "SELECT customer, n, (sum(x) FILTER (stream = 'paid'))::BIGINT AS a, "
    "nullif(count(*) FILTER (stream = 'sent'), 0) AS b "
    "FROM (SELECT *, 'paid' AS stream FROM paid UNION ALL SELECT *, 'sent' FROM sent) GROUP BY ALL",
    "joined": "SELECT customer, n, paid.x, other.x AS y FROM paid JOIN other ON customer = client AND n = m",
}


def placed(data: bytes, partitions: int) -> int:
    """The partition of the bytes of a key, as in Java: `toPositive(murmur2(key)) % count`, in signed arithmetic."""

    def int32(number: int) -> int:
        return (number + 2**31) % 2**32 - 2**31

    def shifted(number: int, by: int) -> int:
        return (number % 2**32) >> by

    h = int32(0x9747B28C ^ len(data))
    for at in range(0, len(data) - 3, 4):
        k = int32(int.from_bytes(data[at : at + 4], "little", signed=True) * 0x5BD1E995)
        k = int32((k ^ shifted(k, 24)) * 0x5BD1E995)
        h = int32(h * 0x5BD1E995) ^ k
    rest = data[len(data) // 4 * 4 :]
    for number in reversed(range(len(rest))):
        h ^= rest[number] << 8 * number
    if rest:
        h = int32(h * 0x5BD1E995)
    h = int32((h ^ shifted(h, 13)) * 0x5BD1E995)
    return ((h ^ shifted(h, 15)) & 0x7FFFFFFF) % partitions


def as_jackson(row: Row, names: Sequence[str]) -> str:
    """The key as Connect and Flink write it: Python's JSON but for the characters that Jackson alone escapes."""
    text = json.dumps({name: row[name] for name in names}, ensure_ascii=False, separators=(",", ":"))
    text = text.replace("\\u001f", "\\u001F")
    return "".join(one if one <= "\uffff" else _as_two(one.encode("utf-16-be").hex().upper()) for one in text)


def _as_two(units: str) -> str:
    return f"\\u{units[:4]}\\u{units[4:]}"


def land(
    store: Store, stream: str, partitions: int, rows: Sequence[Row], written: Written, ends: dict[Any, int]
) -> None:
    """Land the records behind those that landed before, each where its written key hashes."""
    homes = [placed(written(row).encode(), partitions) for row in rows]
    for home, those in groupby(sorted(zip(homes, range(len(rows)), strict=True)), key=lambda pair: pair[0]):
        mine = [rows[number] for _, number in those]
        table = pa.table({name: pa.array([row[name] for row in mine], KINDS[name]) for name in mine[0]})
        land_file(table, stream, f"{store.root}/topics", home, ends.get((stream, home), 0))
        ends[stream, home] = ends.get((stream, home), 0) + len(mine)


def three(store: Store, counts: Sequence[int], **sent: Any) -> Pipeline:
    pipeline = Pipeline("met", source=f"{store.root}/topics")
    paid = pipeline.stream("paid", key=KEY, key_format="json", partitions=counts[0])
    sent_ones = pipeline.stream("sent", partitions=counts[1], **{"key": KEY, "key_format": "json", **sent})
    other = pipeline.stream("other", key=("client", "m"), key_format="json", partitions=counts[2])
    paid.cogroup("sum(x)::BIGINT AS a", (sent_ones, "count(*) AS b"), name="both").write("met")
    paid.join(other, "paid.x, other.x AS y", name="joins").write("joined")
    paid.latest("x", name="newest").write("newest", mode="upsert")
    return pipeline


def some(chance: random.Random, names: Sequence[str], first: int) -> list[dict[str, Any]]:
    few = chance.sample(CUSTOMERS, 4)
    return [
        {names[0]: chance.choice(few), names[1]: chance.choice([1, -7, 2**30, None]), "x": first + number}
        for number in range(chance.randrange(1, 25))
    ]


def rows_of(store: Store, table: str) -> list[dict[str, Any]]:
    found = first_rows(store_at(store.root), table, 10_000)
    return [] if found is None else found.rows.to_pylist()


@settings(max_examples=examples(6), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(seed=st.integers(0, 2**40), tasks=st.integers(1, 7))
def test_records_are_met_where_their_producers_put_them_under_any_scheme(seed: int, tasks: int) -> None:
    chance, ends = random.Random(seed), dict[Any, int]()
    counts = [chance.randint(1, 6) for _ in range(3)]
    wanted: dict[str, list[Any]] = {table: [] for table in TABLES}
    every: list[dict[str, Any]] = []
    with TemporaryDirectory() as folder, duckdb.connect() as connection:
        store = store_at(folder)
        made = three(store, counts)
        for batch in range(2):
            arrived = {name: some(chance, KEY, 100 * batch) for name in ("paid", "sent")}
            arrived["other"] = some(chance, ("client", "m"), 100 * batch)
            for count, (name, rows) in zip(counts, arrived.items(), strict=True):
                land(store, name, count, rows, partial(as_jackson, names=tuple(rows[0])[:2]), ends)
                connection.register(name, pa.Table.from_pylist(rows, pa.schema([(n, KINDS[n]) for n in rows[0]])))
            for table, sql in TABLES.items():
                wanted[table] += connection.sql(sql).to_arrow_table().to_pylist()
            every += arrived["paid"]
            plan = planned(store, made, scheme=f"tasks({tasks})")
            # What lies by the same JSON stays, whatever the counts are. Of two with other fields the smaller moves.
            assert [exchange.source for exchange in plan.exchanges] in (["other"], ["paid"])
            assert "both" not in plan.exchanges[0].wanted_by
            run_and_publish_unjudged(BatchRef.of(store, Ledger(store, "met").put_plan(plan)))
        newest = {(row["customer"], row["n"]): row for row in sorted(every, key=lambda row: row["x"])}
        wanted["newest"] = list(newest.values())
        for table, rows in wanted.items():
            assert comparable(rows_of(store, table)) == comparable(rows), table


def comparable(rows: Sequence[Row]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


def planned(store: Store, made: Pipeline, **settings: Any) -> Plan:
    plan = preview(made, store, Settings.parse(**settings)).plan
    assert plan is not None
    return plan


ROWS = [{"customer": f"c{number}", "n": number, "x": number} for number in range(30)]


COUNTS = [{"customer": row["customer"], "n": row["n"], "times": 1} for row in ROWS]


def counted(store: Store, **declared: Any) -> Pipeline:
    pipeline = Pipeline("counted", source=f"{store.root}/topics")
    stream = pipeline.stream("sent", **{"key": KEY, "key_format": "json", "partitions": 8, **declared})
    if declared.get("hash") == "opaque":
        stream = stream.repartition()
    stream.aggregate("count(*) AS times", name="counts").write("counts")
    return pipeline


def otherwise(row: Row) -> str:
    """Fields in another order."""
    return as_jackson(row, ("n", "customer"))


def spaced(row: Row) -> str:
    """Spaces after colons and commas, as `json.dumps` writes by default."""
    return json.dumps({name: row[name] for name in KEY})


def enveloped(row: Row) -> str:
    """With a schema beside the values, as JsonConverter writes by default."""
    return f'{{"schema":{{}},"payload":{as_jackson(row, KEY)}}}'


def place_spaced(key: str) -> int:
    """The hash of a producer that writes keys as `spaced` does, declared by its import path."""
    return murmur2(spaced(dict(zip(KEY, json.loads(key), strict=True))).encode())


@pytest.mark.parametrize("written", [otherwise, spaced, enveloped])
def test_a_producer_that_writes_otherwise_is_refused_and_the_declared_form_is_named(
    store: Store, tmp_path: Path, written: Written
) -> None:
    land(store, "sent", 8, ROWS, written, {})
    said = refusal(ran(store, counted(store)), tmp_path)
    assert said.failed == (IN_PLACE, HASH)
    form = 'by its declaration as {"customer":…,"n":…}, with the fields in this order, no spaces and no others'
    assert form in said.next[0]
    if written is otherwise:
        # What the finding says next, and what the page says for producers that write otherwise.
        assert 'hash="opaque" and move them, sent.repartition()' in said.next[0]
        run(store, counted(store, hash="opaque"))
        assert comparable(rows_of(store, "counts")) == comparable(COUNTS)
    if written is spaced:
        plan = run(store, counted(store, key_format="string", hash=f"{__name__}:place_spaced"))
        assert plan.exchanges == ()
        assert comparable(rows_of(store, "counts")) == comparable(COUNTS)


def run(store: Store, made: Pipeline) -> Plan:
    """Plan the records of the batch that was refused again, and publish them."""
    _, ref, _ = steps.replan(made, store.root, DEFAULTS, "the declaration was wrong")
    assert ref is not None
    run_and_publish_unjudged(ref)
    return ref.load()[1]


def test_a_producer_of_the_other_hash_is_refused_and_its_hash_is_named(store: Store) -> None:
    land(store, "sent", 8, ROWS, partial(as_jackson, names=KEY), {})
    wrong = ran(store, counted(store, hash="crc32"))
    assert 'declare hash="murmur2"' in refusal(wrong).next[1]
    right = run(store, counted(store))
    assert changes(wrong.load()[1], right)[:1] == (
        DeclarationChange("stream sent: hash", "crc32 of json(customer, n)", "murmur2 of json(customer, n)"),
    )


@pytest.mark.parametrize(
    ("column", "kind", "what"),
    [
        ("n", pa.float64(), "sent: key column 'n' is DOUBLE, which no key of several columns can have"),
        ("n", pa.timestamp("us"), "sent: key column 'n' is TIMESTAMP, which producers write in JSON in several ways"),
        ("m", pa.int64(), "sent: there is no key column 'n'"),
    ],
)
def test_columns_that_were_not_written_so_are_refused_when_they_are_found(
    store: Store, column: str, kind: pa.DataType, what: str
) -> None:
    table = pa.table({"customer": ["a"], column: pa.array([None], kind), "x": [1]})
    land_file(table, "sent", f"{store.root}/topics", 0, 0)
    with pytest.raises(Refused) as refused:
        discover(counted(store).streams)
    assert [finding.what for finding in refused.value.findings] == [what]


def test_a_text_of_a_key_that_is_not_utf8_is_refused_or_set_aside(store: Store) -> None:
    broken = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")])
    good = ROWS[0]
    home = placed(as_jackson(good, KEY).encode(), 8)
    table = pa.table({"customer": pa.chunked_array([["c0"], broken]), "n": [0, 1], "x": [0, 1]})
    land_file(table, "sent", f"{store.root}/topics", home, 0)
    with pytest.raises(Refused, match="column 'customer' at offset 1 is not UTF-8"):
        ran(store, counted(store))
    run(store, counted(store, bad_records="set aside"))
    assert rows_of(store, "counts") == COUNTS[:1]


def test_lines_are_landed_by_their_keys_and_one_that_is_no_json_is_set_aside(store: Store, tmp_path: Path) -> None:
    columns = {"customer": "VARCHAR", "n": "BIGINT", "x": "BIGINT"}
    made = counted(store, format="json", columns=columns, bad_records="set aside")
    (tmp_path / "rows.jsonl").write_text("\n".join([*map(json.dumps, ROWS), '{"customer": "c1", "n"']))
    land_given(made.streams[0], tmp_path / "rows.jsonl")
    ref = BatchRef.of(store, Ledger(store, made.name).put_plan(planned(store, made)))
    run_and_publish_unjudged(ref)
    assert comparable(rows_of(store, "counts")) == comparable(COUNTS)
    assert sum(partition.set_aside for task in task_receipts(ref) for partition in task.partitions) == 1


@pytest.mark.long
def test_what_a_pipeline_publishes_is_the_same_everywhere() -> None:
    pipeline = three(store_at("/nowhere"), (4, 3, 2))
    rows = {
        "paid": [dict(ROWS[0]), dict(ROWS[1])],
        "sent": [dict(ROWS[0])],
        "other": [{"client": "c1", "m": 1, "x": 2}],
    }
    assert len(assert_same_everywhere(pipeline, rows)) > 5
