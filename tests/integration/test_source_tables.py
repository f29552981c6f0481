"""Tables whose changes Debezium tells: what is published is what the database has.

The events of the quick tests are those that a real Debezium said (tests/vectors/debezium); the long one runs it.
"""

from __future__ import annotations

import io
import json
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from coset.batches import steps
from coset.batches.records import Record
from coset.batches.tables.first_rows import all_rows
from coset.batches.verifying import verify
from coset.cli.found_records import of_records
from coset.sources.landing import land as land_lines
from coset.sources.landing import land_rows
from demo.kafka_server import KafkaServer
from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.errors import Refused
from partitioning.explain.table_query import table_query
from partitioning.hashes import murmur2
from partitioning.values import replace as with_values
from spark_jobs.tables.table_schema import RESIDUE
from tests.commands import coset, refused, succeeded
from tests.kafka import create, new_topic, produce
from tests.registry import Registry
from tests.running import next_batch, run_and_publish, run_and_publish_unjudged
from tests.small import until
from tests.source_tables import TOPIC, VECTORS, Event, SourceTables, format_of, land, source_tables
from tests.typed_changes import message_of

PARTITIONS = 6
CUSTOMERS = f"{TOPIC}customers"
COLUMNS = {"id": "BIGINT", "name": "VARCHAR", "tier": "VARCHAR", "balance": "DECIMAL(10,2)", "since": "DATE"}
# What customers has before it is truncated, by changes.sql; no event says that a column was dropped.
AT_LAST = [
    (2, "bob", "iron", Decimal("0.50"), None),
    (3, "cid again", "tin", Decimal("1.00"), None),
    (4, "ann", "gold", Decimal("10.00"), None),
    (5, "eve", "tin", Decimal("1.00"), date(2026, 11, 29)),
    (6, "fay", None, Decimal("2.00"), date(2026, 11, 30)),
]
# As JSON, as which brokers have them too, and as a sink lands them otherwise.
LINES_FORMS = ("value", "with_schema", "unwrapped")
FORMS = (*LINES_FORMS, "avro", "parquet", "unwrapped-avro", "unwrapped-parquet")
Row = tuple[Any, ...]


def events() -> list[Event]:
    return [json.loads(line) for line in (VECTORS / "customers.jsonl").read_text().splitlines()]


def shop(store: Store, form: str = "value", columns: Mapping[str, str] = COLUMNS, **declared: Any) -> Flow:
    """The source's table, published as it is."""
    pipeline = Pipeline("shop", source=f"{store.root}/topics")
    options: dict[str, Any] = {"key": "id", "partitions": PARTITIONS, "columns": columns, **said_of(form), **declared}
    customers = pipeline.cdc(CUSTOMERS, **options)
    customers.write("customers", mode="upsert")
    return customers


def said_of(form: str) -> dict[str, Any]:
    """What a declaration says of the form of its records."""
    return {"unwrapped": "unwrapped" in form, "format": format_of(form)}


def landed(store: Store, some: Sequence[Event], ends: dict[int, int], form: str = "value") -> None:
    land(some, form, PARTITIONS, f"{store.root}/topics", ends)


def publish(pipeline: Pipeline, store: Store) -> None:
    run_and_publish_unjudged(next_batch(pipeline, store.root))


def published(store: Store, table: str = "customers", columns: Sequence[str] = ()) -> list[Row]:
    with all_rows(store, table) as held:
        rows = held.read_all()
    names = columns or [name for name in rows.column_names if name != RESIDUE]
    return sorted(zip(*(rows[name].to_pylist() for name in names), strict=True), key=lambda row: row[:2])


def verified(pipeline: Pipeline, store: Store, *tables: str) -> list[int]:
    """How many rows tables have; they are those of their queries."""
    found = [each.difference for each in verify(pipeline, store, tables)]
    return [each.rows[1] for each in found if each and each.same]


@pytest.mark.parametrize("form", FORMS)
def test_the_table_of_its_changes_is_the_sources_table(store: Store, form: str) -> None:
    """However they are cut into batches: updates, deletes, a changed key, a row that comes again, another column."""
    customers, ends, said = shop(store, form), dict[int, int](), events()[:-1]
    for some in (said[:5], said[5:9], said[9:]):
        landed(store, some, ends, form)
        publish(customers.pipeline, store)
    assert published(store) == AT_LAST
    assert verified(customers.pipeline, store) == [5]


def test_a_second_snapshot_changes_nothing(store: Store) -> None:
    customers, ends, said = shop(store), dict[int, int](), events()[:-1]
    landed(store, said, ends)
    publish(customers.pipeline, store)
    last = {each["key"]: each for each in said if each["value"]}.values()
    left = [each for each in last if '"op":"d"' not in each["value"]]
    assert len(left) == len(AT_LAST)
    again = [{**each, "value": each["value"].replace('"op":"c"', '"op":"r"')} for each in left]
    landed(store, again, ends)
    publish(customers.pipeline, store)
    assert published(store) == AT_LAST


def test_customers_meet_orders_that_librdkafka_placed(store: Store) -> None:
    """By the customer's number, which is text there and placed by another hash; what was spent follows its customer."""
    customers, ends, said = shop(store), dict[int, int](), events()[:-1]
    orders = customers.pipeline.stream("orders", key="customer", partitions=12, hash="crc32")
    by_id = orders.select("customer::BIGINT AS id, amount").rekey(("id",))
    with pytest.raises(Refused, match=r"next:  rekey them alike, as rekey\(\('id',\)\)"):
        orders.join(customers, "orders.amount, customers.name")
    by_id.join(customers, "orders.amount, customers.name").write("named")
    spent = by_id.aggregate("sum(amount)::BIGINT AS spent").combine(
        "sum(spent)::BIGINT AS spent", running=True, name="spent"
    )
    spent.join(customers, "spent.spent, customers.name, customers.tier", name="tiers").write("tiers", mode="upsert")
    for some, rows in (
        (said[:3], {"customer": ["1", "2", "3"], "amount": [5, 6, 7]}),
        (said[3:], {"customer": ["2", "3", "4"], "amount": [10, 20, 30]}),
    ):
        landed(store, some, ends)
        land_rows(customers.pipeline.streams[1], pa.table(rows), "orders")
        publish(customers.pipeline, store)
    assert published(store, "named") == [
        (1, 5, "ann"), (2, 6, "bob"), (2, 10, "bob"), (3, 7, "cid"), (3, 20, "cid again"), (4, 30, "ann")
    ]  # fmt: skip
    assert published(store, "tiers") == [(2, 16, "bob", "iron"), (3, 27, "cid again", "tin"), (4, 30, "ann", "gold")]
    assert verified(customers.pipeline, store, "customers", "tiers") == [5, 3]


def test_who_moves_such_a_table_to_what_changes_is_told_to_move_the_other_side(store: Store) -> None:
    customers = shop(store)
    orders = customers.pipeline.stream("orders", key="name", partitions=12)
    spent = orders.aggregate("sum(amount) AS spent").combine("sum(spent) AS spent", running=True, name="spent")
    with pytest.raises(Refused, match=r"next:  leave that table under its own key, \(id,\), and rekey what it meets"):
        spent.join(customers.rekey("name"), "spent.spent")


@pytest.mark.parametrize("form", LINES_FORMS)
def test_a_topic_in_its_broker_gives_the_same_table(kafka: KafkaServer, store: Store, form: str) -> None:
    """Its tombstones delete too: compaction leaves them alone of what was deleted."""
    topic = f"{new_topic(kafka, PARTITIONS)}.customers"
    create(kafka, topic, PARTITIONS)
    pipeline = Pipeline("shop", source=kafka.source)
    options: dict[str, Any] = {
        "key": "id",
        "partitions": PARTITIONS,
        "columns": COLUMNS,
        "unwrapped": form == "unwrapped",
    }
    pipeline.cdc(topic, **options).write("customers", mode="upsert")
    said = events()[:-1]
    left = [each for each in said[5:] if not (each["value"] and '"op":"d"' in each["value"])]
    assert len(left) == len(said) - 6
    for some in (said[:5], left):
        for each in some:
            record = (each["key"], each[form] and each[form].encode())
            produce(kafka, topic, [record], partition=each["hash"] % PARTITIONS)
        publish(pipeline, store)
    assert published(store) == AT_LAST
    assert verified(pipeline, store) == [5]


KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}


def _in_avro(event: Event, form: str, registry: Registry, topic: str) -> bytes | None:
    if event["value"] is None:
        return None
    schema, data = message_of(event, form)
    return struct.pack(">bI", 0, registry.register(f"{topic}-value", json.dumps(schema))) + data


@pytest.mark.parametrize("framed", [False, True], ids=["json-keys", "avro-keys"])
@pytest.mark.parametrize("form", ["envelope", "unwrapped"])
def test_a_topic_of_avro_in_its_broker_gives_the_same_table(
    kafka: KafkaServer, store: Store, registry: Registry, form: str, framed: bool
) -> None:
    """Each record by its writer's schema, of which the table had two; tombstones delete by their keys."""
    topic, id = f"{CUSTOMERS}-{form}-{framed}", registry.register("of-keys", json.dumps(KEY))
    create(kafka, topic, PARTITIONS)
    pipeline = Pipeline("shop", source=kafka.source)
    keys: dict[str, Any] = {"key_format": "avro", "key_schemas": {id: json.dumps(KEY)}} if framed else {}
    options: dict[str, Any] = {
        "key": "id",
        "partitions": PARTITIONS,
        "columns": COLUMNS,
        "unwrapped": form == "unwrapped",
    }
    pipeline.cdc(topic, format="avro", **options, **keys).write("customers", mode="upsert")
    said = events()[:-1]
    left = [each for each in said[5:] if not (each["value"] and '"op":"d"' in each["value"])]
    assert len(left) == len(said) - 6
    for some in (said[:5], left):
        for each in some:
            key = each["key"].encode()
            if framed:
                made = io.BytesIO()
                fastavro.schemaless_writer(made, fastavro.parse_schema(KEY), json.loads(key))
                key = struct.pack(">bI", 0, id) + made.getvalue()
            produce(kafka, topic, [(key, _in_avro(each, form, registry, topic))], partition=murmur2(key) % PARTITIONS)
        publish(pipeline, store)
    assert len(registry.subjects[f"{topic}-value"]) > 1
    assert published(store) == AT_LAST
    assert verified(pipeline, store) == [5]


# What PostGIS' ST_AsEWKB says of what is in places, at last, and ST_SRID; an SRID of 0 is none.
POINT, LINE, POLYGON, SPOT = (
    "0101000020e6100000000000000000f03f0000000000000040",
    "01020000a0e96400000200000000000000000000000000000000000000000000000000f03f000000000000f03f000000000000f03f"
    "0000000000000040",
    "0103000000010000000400000000000000000000000000000000000000000000000000104000000000000000000000000000001040"
    "000000000000084000000000000000000000000000000000",
    "0101000020e6100000cdcccccccccc0240ae47e17a146e4840",
)
PLACES = [
    (1, ("0101000020e6100000cdcccccccccc2a400000000000404a40", 4326), (POLYGON, None), (SPOT, 4326)),
    (2, (POINT, 4326), (LINE, 25833), None),
]


@pytest.mark.parametrize("form", LINES_FORMS)
def test_geometries_are_those_of_postgis(store: Store, form: str) -> None:
    said = [json.loads(line) for line in (VECTORS / "places.jsonl").read_text().splitlines()]
    land(said, form, PARTITIONS, f"{store.root}/topics", {})
    pipeline = Pipeline("shop", source=f"{store.root}/topics")
    columns = {"id": "BIGINT", **dict.fromkeys(("at", "area", "spot"), "STRUCT(wkb BLOB, srid INTEGER)")}
    places = pipeline.cdc(f"{TOPIC}places", key="id", partitions=PARTITIONS, columns=columns, **said_of(form))
    places.write("places", mode="upsert")
    publish(pipeline, store)
    found = [
        (row[0], *((each and (each["wkb"].hex(), each["srid"])) for each in row[1:]))
        for row in published(store, "places")
    ]
    assert found == PLACES


FIELD = '{"type":"int64","optional":false,"field":"id"}'
KEY_SCHEMA = f'{{"type":"struct","fields":[{FIELD}],"optional":false,"name":"{CUSTOMERS}.Key"}}'


@pytest.mark.parametrize(
    ("form", "keys"),
    [
        *(("value", "json"), ("unwrapped", "json"), ("with_schema", "with_schema")),
        *(("envelope", "avro"), ("unwrapped-avro", "json")),
    ],
)
def test_what_inspect_prints_of_a_topic_in_its_broker_is_the_table(
    kafka: KafkaServer, store: Store, registry: Registry, form: str, keys: str
) -> None:
    topic, id = f"{CUSTOMERS}-seen-{form}-{keys}", registry.register("of-keys", json.dumps(KEY))
    create(kafka, topic, PARTITIONS)
    in_avro = form in {"envelope", "unwrapped-avro"}
    for each in events()[:-1]:
        key = each["key"].encode()
        if keys == "avro":
            key = struct.pack(">bI", 0, id) + bytes([2 * json.loads(key)["id"]])
        if keys == "with_schema":
            key = f'{{"schema":{KEY_SCHEMA},"payload":{each["key"]}}}'.encode()
        value = each["value" if in_avro else form]
        value = value and value.encode()
        if in_avro:
            value = _in_avro(each, form.partition("-")[0], registry, topic)
        produce(kafka, topic, [(key, value)], partition=(murmur2(key) & 0x7FFFFFFF) % PARTITIONS)
    said = succeeded("inspect", f"{kafka.source}/{topic}").stdout
    made: dict[str, Any] = {}
    exec(said[said.index("from coset import Pipeline") :], made)
    (stream,) = made["pipeline"].streams
    assert (stream.changes, stream.key) == ("unwrapped" if form.startswith("unwrapped") else "envelope", "(id,)")
    hash = {"json": "murmur2 of json(id)", "with_schema": "opaque", "avro": f"murmur2 of avro {id}(id long)"}[keys]
    assert stream.hash == hash
    made[said.partition(" = pipeline.cdc(")[0].split()[-1]].write("customers", mode="upsert")
    publish(made["pipeline"], store)
    if in_avro or form == "with_schema":
        assert published(store) == AT_LAST
    else:
        assert published(store, columns=["id", "name"]) == [row[:2] for row in AT_LAST]


@pytest.mark.parametrize(
    ("key", "what"),
    [
        (None, "they have no key"),
        (b"Struct{id=1}", "their keys are neither JSON objects nor behind a schema registry's ids"),
        (b"\0\0\0\0\7\2", "a schema registry knows what their keys are"),
    ],
)
def test_changes_whose_keys_nobody_can_tell_are_refused(kafka: KafkaServer, key: bytes | None, what: str) -> None:
    topic = new_topic(kafka, 1)
    produce(kafka, topic, [(key, {"op": "c", "before": None, "after": {"id": 1}})])
    said = coset("inspect", f"{kafka.source}/{topic}")
    refused(said, f"the records are a table's changes, and {what}", topic)


def test_changes_in_avro_that_are_not_as_declared_are_refused_by_their_offset(
    kafka: KafkaServer, store: Store, registry: Registry
) -> None:
    topic = new_topic(kafka, 1)
    for each in events()[-2:]:
        value = _in_avro(each, "envelope", registry, topic)
        produce(kafka, topic, [(each["key"] or '{"id":6}', value)])
    produce(kafka, topic, [("no key", None)])

    def made(**declared: Any) -> Pipeline:
        pipeline = Pipeline(f"shop{len(declared)}", source=kafka.source)
        given = {"columns": COLUMNS, "format": "avro", **declared}
        pipeline.cdc(topic, key="id", partitions=1, **given).write("customers", mode="upsert")
        return pipeline

    with pytest.raises(Refused, match=f"{topic}: offset 1: .*it is a TRUNCATE of the whole table"):
        publish(made(), store)
    with pytest.raises(Refused, match="column 'balance' is written as DECIMAL\\(10,2\\), and not as declared"):
        publish(made(columns={**COLUMNS, "balance": "DECIMAL(10,3)"}, null_keys="refuse"), store)
    with pytest.raises(Refused, match="columns are cast"):
        made(cast={"name": "BLOB"})
    publish(made(bad_records="set aside up to 2"), store)
    assert published(store) == AT_LAST[-1:]


@pytest.mark.parametrize("form", ["value", "unwrapped", "avro"])
def test_tombstones_alone_delete_also_by_keys_with_their_schema(
    kafka: KafkaServer, store: Store, registry: Registry, form: str
) -> None:
    """As JsonConverter writes keys by its own settings."""
    topic = new_topic(kafka, 1)
    pipeline = Pipeline("shop", source=kafka.source)
    given: dict[str, Any] = {"unwrapped": form == "unwrapped", **({"format": "avro"} if form == "avro" else {})}
    customers = pipeline.cdc(topic, key="id", partitions=1, hash="opaque", columns=COLUMNS, **given)
    customers.write("customers", mode="upsert")
    made = [each for each in events() if each["value"] and '"op":"c"' in each["value"]][:3]
    for each in made:
        key = json.dumps({"schema": {"type": "struct", "fields": []}, "payload": json.loads(each["key"])})
        value = _in_avro(each, "envelope", registry, topic) if form == "avro" else each[form].encode()
        produce(kafka, topic, [(key.encode(), value)])
    publish(pipeline, store)
    before = published(store)
    produce(kafka, topic, [(key.encode(), None)])
    publish(pipeline, store)
    gone = json.loads(made[-1]["key"])["id"]
    assert published(store) == [row for row in before if row[0] != gone]
    assert len(published(store)) == len(before) - 1
    produce(kafka, topic, [(b"no json", None)])
    with pytest.raises(Refused, match=f"{topic}: offset 4: "):
        publish(pipeline, store)


def test_a_long_value_that_was_not_said_is_right_once_its_row_is_written_again(store: Store) -> None:
    """The records without it are set aside meanwhile, also that of a row whose key changed."""
    said = [json.loads(line) for line in (VECTORS / "usual.jsonl").read_text().splitlines()]
    said = [each for each in said if each["key"] in {'{"id":1}', '{"id":10}'}]

    def made(**declared: Any) -> Pipeline:
        pipeline = Pipeline("shop", source=f"{store.root}/topics")
        columns = {"id": "BIGINT", "whole": "INTEGER", "long": "VARCHAR"}
        types = pipeline.cdc(f"{TOPIC}types", key="id", partitions=PARTITIONS, columns=columns, **declared)
        types.write("types", mode="upsert")
        return pipeline

    ends = dict[int, int]()
    landed(store, said[:2], ends)
    with pytest.raises(Refused, match="column 'long' has no value") as refused:
        next_batch(made(), store.root)
    assert 'write such rows again, and let the stream set this record aside: bad_records="set' in str(refused.value)
    publish(made(bad_records="set aside up to 10"), store)
    assert published(store, "types") == [(1, 2147483647, "t" * 2100)]
    landed(store, said[2:], ends)
    publish(made(bad_records="set aside up to 10"), store)
    assert published(store, "types") == [(10, 8, "t" * 2100)]


def test_a_truncate_in_a_broker_is_refused_or_set_aside(kafka: KafkaServer, store: Store) -> None:
    topic = new_topic(kafka, 1)
    for each in events()[-2:]:
        produce(kafka, topic, [(each["key"] or '{"id":6}', each["value"].encode())])

    def made(**declared: Any) -> Pipeline:
        pipeline = Pipeline(f"shop{len(declared)}", source=kafka.source)
        pipeline.cdc(topic, key="id", partitions=1, **{"columns": COLUMNS, **declared}).write(
            "customers", mode="upsert"
        )
        return pipeline

    with pytest.raises(Refused, match="which is not read from JSON"):
        next_batch(made(columns={"id": "BIGINT", "name": "DATE[]"}), store.root)
    with pytest.raises(Refused, match=f"{topic}: offset 1: .*it is a TRUNCATE of the whole table") as refused:
        publish(made(), store)
    assert "let the stream set this record aside" in str(refused.value)
    publish(made(bad_records="set aside up to 1"), store)
    assert published(store) == AT_LAST[-1:]


def test_lines_of_ones_own_are_landed_as_debezium_wrote_them(store: Store, tmp_path: Path) -> None:
    customers = shop(store)
    lines = tmp_path / "changes.jsonl"
    lines.write_text("".join(f"{each['value']}\n" for each in events()[:-1] if each["value"]))
    (stream,) = customers.pipeline.streams
    land_lines(stream, lines)
    publish(customers.pipeline, store)
    assert published(store) == AT_LAST
    plan = Ledger(store, "shop").plan(0)
    assert plan
    assert f"make a table {CUSTOMERS} of its records" in table_query(customers.pipeline.graph, plan, "customers")


def test_rows_of_ones_own_are_no_changes_in_parquet(store: Store, tmp_path: Path) -> None:
    (stream,) = shop(store, "parquet").pipeline.streams
    (tmp_path / "rows.csv").write_text("id,name\n1,ann\n")
    with pytest.raises(Refused, match="is landed as Parquet with changes in it"):
        land_lines(stream, tmp_path / "rows.csv")


@pytest.mark.parametrize("form", FORMS)
def test_what_inspect_prints_is_the_table_with_columns_as_they_look_or_as_schemas_say(store: Store, form: str) -> None:
    landed(store, events()[:-1], {}, form)
    said = succeeded("inspect", f"{store.root}/topics/{CUSTOMERS}").stdout
    assert "These are a table's changes, by Debezium" in said
    assert "_deleted" not in said
    made: dict[str, Any] = {}
    exec(said[said.index("from coset import Pipeline") :], made)
    customers, declared = made["shop_public_customers"], shop(store, form)
    (stream,), (right,) = customers.pipeline.streams, declared.pipeline.streams
    looks = {"id": "BIGINT", "name": "VARCHAR", "tier": "VARCHAR", "balance": "VARCHAR", "since": "BIGINT"}
    if form not in {"value", "unwrapped"}:
        looks = COLUMNS
    assert stream == with_values(right, columns={**looks, "_deleted": "BOOLEAN"})
    customers.write("customers", mode="upsert")
    publish(customers.pipeline, store)
    assert published(store, columns=["id", "name"]) == [row[:2] for row in AT_LAST]


def by_key(made: Callable[[int], bytes]) -> list[Event]:
    """The events of a topic whose producer makes these bytes of an id."""
    said = events()[:-1]
    return [{**each, "hash": murmur2(made(json.loads(each["key"])["id"])) & 0x7FFFFFFF} for each in said]


def test_keys_that_a_registrys_serialiser_wrote_are_declared_with_their_schema(store: Store) -> None:
    schema = {"type": "record", "name": "Key", "namespace": CUSTOMERS, "fields": [{"name": "id", "type": "long"}]}
    # An Avro long of less than 64 is one byte.
    landed(store, by_key(lambda number: b"\0\0\0\0\7" + bytes([2 * number])), {}, "avro")
    customers = shop(store, "avro", key_format="avro", key_schemas={7: json.dumps(schema)})
    publish(customers.pipeline, store)
    assert published(store) == AT_LAST


def test_keys_with_their_schema_beside_them_are_refused_and_read_as_the_refusal_says(
    store: Store, tmp_path: Path
) -> None:
    """By Connect's own settings all of it is hashed."""
    key = f'{{"schema":{KEY_SCHEMA},"payload":'
    landed(store, by_key(lambda number: f'{key}{{"id":{number}}}}}'.encode()), {})
    with pytest.raises(Refused, match='with their schema beside them, all of it is hashed: declare hash="opaque"'):
        run_and_publish(next_batch(shop(store).pipeline, store.root), tmp_path)
    customers = shop(store, hash="opaque")
    steps.replan(customers.pipeline, store.root, Settings(), "keys with their schema")
    publish(customers.pipeline, store)
    assert published(store) == AT_LAST


def test_a_truncate_stops_a_batch_until_it_is_set_aside(store: Store) -> None:
    customers, ends = shop(store), dict[int, int]()
    landed(store, events(), ends)
    with pytest.raises(Refused, match="it is a TRUNCATE of the whole table") as refused:
        next_batch(customers.pipeline, store.root)
    assert "delete each row that was there before, in the database or" in str(refused.value)
    publish(shop(store, bad_records="set aside up to 1").pipeline, store)
    assert published(store) == AT_LAST


@pytest.mark.parametrize("form", ["avro", "parquet"])
def test_a_truncate_stops_a_batch_that_is_planned_anew_with_it_set_aside(store: Store, form: str) -> None:
    """Of these formats only those who read records know of one."""
    landed(store, events(), {}, form)
    ref = next_batch(shop(store, form).pipeline, store.root)
    with pytest.raises(Refused, match=r"offset \d: it is a TRUNCATE of the whole table") as refused:
        run_and_publish_unjudged(ref)
    assert str(refused.value).endswith("`coset replan shop --why '…'`")
    aside = shop(store, form, bad_records="set aside up to 1").pipeline
    steps.replan(aside, store.root, Settings(), "a TRUNCATE")
    publish(aside, store)
    assert published(store) == AT_LAST


def test_a_truncate_in_lines_of_ones_own_is_replaced_by_deletes_as_the_refusal_says(
    store: Store, tmp_path: Path
) -> None:
    customers, lines = shop(store), tmp_path / "changes.jsonl"
    (stream,) = customers.pipeline.streams
    said = [each["value"] for each in events() if each["value"]]
    lines.write_text("".join(f"{line}\n" for line in said))
    with pytest.raises(Refused, match="it is a TRUNCATE of the whole table") as refused:
        land_lines(stream, lines)
    (template,) = re.findall(r'{"op":"d","before":{…}}', str(refused.value))
    deletes = [template.replace("{…}", f'{{"id":{row[0]}}}') for row in AT_LAST[1:]]
    lines.write_text("".join(f"{line}\n" for line in (*said[:-1], *deletes)))
    land_lines(stream, lines)
    publish(customers.pipeline, store)
    assert published(store) == AT_LAST[:1]


def test_records_that_are_no_changes_are_refused_by_name(store: Store) -> None:
    """Transactions' own records, in a topic of their own that somebody takes for a table's."""
    others = [json.loads(line) for line in (VECTORS / "others.jsonl").read_text().splitlines()]
    land([{**each, "topic": CUSTOMERS} for each in others], "value", PARTITIONS, f"{store.root}/topics", {})
    with pytest.raises(Refused, match="line 1: it is no change of a row by Debezium"):
        next_batch(shop(store).pipeline, store.root)


@pytest.mark.parametrize(
    ("declared", "what"),
    [
        ({"columns": {"name": "VARCHAR"}}, "column 'id' of the key is not declared"),
        ({"columns": {}}, "change events do not say of which types columns are"),
        ({"columns": COLUMNS | {"_offset": "BIGINT"}}, "is the record's, not the row's"),
        ({"columns": COLUMNS | {"_deleted": "VARCHAR"}}, "says whether a row is deleted"),
        ({"cast": {"id": "VARCHAR"}}, "column 'id' cannot be cast"),
    ],
)
def test_what_cannot_be_a_table_of_changes_is_refused(store: Store, declared: dict[str, Any], what: str) -> None:
    with pytest.raises(Refused, match=what):
        shop(store, **declared)


@pytest.mark.parametrize("kind", ["DECIMAL(9,2)[]", "STRUCT(day DATE)", "INTERVAL", "TIME WITH TIME ZONE"])
def test_types_that_debezium_does_not_say_are_refused(store: Store, kind: str) -> None:
    landed(store, events()[:1], {})
    with pytest.raises(Refused, match="which is not read from JSON"):
        next_batch(shop(store, columns={"id": "BIGINT", "name": kind}).pipeline, store.root)


START = """
CREATE TABLE customers (
    id bigint PRIMARY KEY, name text, tier text, balance numeric(10, 2) NOT NULL DEFAULT 0, seen timestamp, born date
);
CREATE TABLE lines (a integer, b text, amount numeric(12, 3), good boolean, PRIMARY KEY (a, b));
CREATE TABLE signals (id text PRIMARY KEY, type text, data text);
INSERT INTO customers
    SELECT n, 'name ' || n, 'tin', n / 3.0,
        timestamp '2026-11-29 01:02:03.456789' + n * interval '1 h', date '1969-11-29' + n
    FROM generate_series(1, 200) n;
INSERT INTO lines SELECT n / 5, 'ü' || n % 5, n / 7.0, n % 2 = 0 FROM generate_series(0, 99) n;
"""
BATCHES, ADDED, AGAIN, DROPPED = 20, 5, 9, 13
AT_FIRST = {
    "id": "BIGINT",
    "name": "VARCHAR",
    "tier": "VARCHAR",
    "balance": "DECIMAL(10,2)",
    "seen": "TIMESTAMP",
    "born": "DATE",
}
LINES = {"a": "INTEGER", "b": "VARCHAR", "amount": "DECIMAL(12,3)", "good": "BOOLEAN"}


def changes(random: Random, tables: SourceTables) -> Iterator[str]:
    """Transactions of a batch: some of several changes, also of one key."""
    ids, new = [row[0] for row in tables.ask("SELECT id FROM customers")], iter(range(10**6))
    last = max(ids)
    one: Mapping[str, Callable[[], str]] = {
        "insert": lambda: f"INSERT INTO customers VALUES ({last + next(new) + 1}, 'new')",
        "update": lambda: f"UPDATE customers SET balance = balance + 1.25, name = NULL WHERE id = {random.choice(ids)}",
        "many": lambda: f"UPDATE customers SET seen = seen + interval '1 us' WHERE id % 7 = {random.randrange(7)}",
        "delete": lambda: f"DELETE FROM customers WHERE id = {random.choice(ids)}",
        "move": lambda: f"UPDATE customers SET id = {last + next(new) + 1} WHERE id = {random.choice(ids)}",
        "again": lambda: (
            f"DELETE FROM customers WHERE id = {(it := random.choice(ids))}; INSERT INTO customers VALUES ({it}, 'it')"
        ),
        "line": lambda: f"UPDATE lines SET amount = -amount WHERE a = {random.randrange(20)}",
        "moved line": lambda: f"UPDATE lines SET b = b || 'x' WHERE a = {random.randrange(20)} AND length(b) < 9",
        "no line": lambda: f"DELETE FROM lines WHERE a = {random.randrange(20)} AND b LIKE '%{random.randrange(5)}'",
    }
    for _ in range(random.randrange(4, 15)):
        yield "BEGIN; " + "; ".join(one[random.choice([*one])]() for _ in range(random.randrange(1, 4))) + "; COMMIT"


def snapshot(tables: SourceTables, number: int) -> None:
    """A snapshot that is asked for while changes are told (op r)."""
    asked = '{"data-collections": ["public.customers"], "type": "incremental"}'
    tables.ask(f"INSERT INTO signals VALUES ('{number}', 'execute-snapshot', '{asked}')")
    of_all, before = tables.ask("SELECT count(*) FROM customers")[0][0], len(tables.of("customers"))

    def read_again() -> bool:
        return sum('"op":"r"' in (each["value"] or "") for each in tables.of("customers")[before:]) >= of_all

    assert until(read_again)


@pytest.mark.long
def test_a_real_database_and_what_is_published_are_the_same_after_every_batch(store: Store, tmp_path: Path) -> None:
    """In each form of the records: with keys that change, deletes, snapshots, columns that come and go."""
    random, columns = Random(46), dict(AT_FIRST)
    taken = {"customers": 0, "lines": 0}
    ends = {(form, table): dict[int, int]() for form in FORMS for table in taken}
    settings = ("signal.data.collection=public.signals", "skipped.operations=none")
    with source_tables(tmp_path / "log", START, *settings) as tables:
        for number in range(BATCHES):
            for transaction in changes(random, tables):
                tables.ask(transaction)
            if number == ADDED:
                # No event says that rows have the default now; a snapshot does.
                tables.ask("ALTER TABLE customers ADD COLUMN level integer DEFAULT 5")
                columns["level"] = "INTEGER"
            if number in (ADDED, AGAIN):
                snapshot(tables, number)
            if number == DROPPED:
                tables.ask("ALTER TABLE customers DROP COLUMN tier")
            tables.settle()
            there = [name for name in columns if name != "tier" or number < DROPPED]
            wanted = {
                "customers": tables.ask(f"SELECT {', '.join(there)} FROM customers ORDER BY id"),
                "lines": tables.ask('SELECT * FROM lines ORDER BY a, b COLLATE "C"'),
            }
            for form in FORMS:
                pipeline = Pipeline(form.replace("_", "-"), source=f"{store.root}/{form}")
                for table, kinds, key in (("customers", columns, "id"), ("lines", LINES, ("a", "b"))):
                    more: dict[str, Any] = {"key": key, "columns": kinds, **said_of(form)}
                    flow = pipeline.cdc(f"{TOPIC}{table}", partitions=4, **more)
                    flow.write(f"{form}-{table}", mode="upsert")
                    new = tables.of(table)[taken[table] :]
                    if new:
                        land(new, form, 4, f"{store.root}/{form}", ends[form, table])
                # Rows have the new column as null, until a snapshot says what it is.
                goes_on = (f"{form}-customers",) if number == ADDED else ()
                run_and_publish_unjudged(next_batch(pipeline, store.root, Settings(go_on=goes_on)))
                for table, names in (("customers", there), ("lines", list(LINES))):
                    assert published(store, f"{form}-{table}", names) == wanted[table], (number, form, table)
            taken = {table: len(tables.of(table)) for table in taken}
        said = [json.loads(each["value"])["op"] for each in tables.of("customers") if each["value"]]
        assert {op: said.count(op) > 20 for op in "crud"} == dict.fromkeys("crud", True)
        assert sum(each["value"] is None for each in tables.of("customers")) > 20


@pytest.mark.parametrize("form", ["value", "avro", "unwrapped-parquet"])
def test_records_of_changes_are_told_as_sql_by_file_and_offset(store: Store, form: str) -> None:
    """No SQL makes rows of them: in Parquet too the statement would give the events, or none of the columns shown."""
    customers, said = shop(store, form), events()[:-1]
    landed(store, said, {}, form)
    _, plan = next_batch(customers.pipeline, store.root).load()
    (stream,) = plan.streams
    file = next(file for partition in stream.partitions for file in partition.files)
    partition = next(each.partition for each in stream.partitions if file in each.files)
    record = Record(CUSTOMERS, partition, file.start, file.path, {"id": 1})
    assert list(of_records(plan, [record], ())) == [
        f"-- {CUSTOMERS}-{partition} at offset {file.start}: in {file.path}."
    ]
