"""Keys behind a registry's schema id, or as JSON objects: bytes and hashes are those of real serialisers."""

from __future__ import annotations

import json
import re
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coset.sources.kafka.keys import Wrong, keys_of
from coset.sources.keys_seen import FRAMINGS, FramedSample, framed_sample
from coset.sources.landed_keys import making_keys
from partitioning.authoring.pipeline import Pipeline
from partitioning.errors import Refused
from partitioning.framed_keys import json_object, written_key
from partitioning.hashes import hash_of, murmur2
from partitioning.model.composite_key import bad_part
from partitioning.model.key_schemas import key_schema
from partitioning.model.placement import (
    CRC32,
    MURMUR2,
    OPAQUE,
    HashName,
    KeyFormat,
    Placement,
    each_of,
    hash_schema,
    json_hash,
)
from partitioning.model.streams import Stream
from spark_jobs.engine.hashing import placement_hashes
from tests.examples import examples

_FILE = Path(__file__).parents[1] / "vectors" / "framed-keys" / "keys.jsonl"
VECTORS = [json.loads(line) for line in _FILE.read_text().splitlines()]
_TYPES = {str: pa.string(), int: pa.int64(), bool: pa.bool_()}
RECORD = (
    '{"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}, {"name": "land", "type": "string"}]}'
)


def declared(**options: Any) -> Stream:
    pipeline = Pipeline("p", source="s3://landing/topics")
    pipeline.stream("s", **{"partitions": 12, **options})
    return pipeline.streams[0]


def stream_of(vector: dict[str, Any], **more: Any) -> Stream:
    """A stream with these keys, declared as a user does."""
    ids = [vector["id"]] if vector["framing"] == "json-schema" else {vector["id"]: vector["schema"]}
    return declared(key=tuple(vector["columns"]) or "k", key_format=vector["framing"], key_schemas=ids, **more)


def columns_of(vector: dict[str, Any]) -> pa.Array:
    """The keys as readers have them."""
    columns = list(zip(*vector["keys"], strict=True))
    kinds = [_TYPES[type(next(value for value in column if value is not None))] for column in columns]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    if not vector["columns"]:
        return arrays[0].cast(pa.int32()) if vector["schema"] == '"int"' else arrays[0]
    with making_keys(vector["columns"]) as keys_of:
        return keys_of(pa.table(arrays, vector["columns"]))


@pytest.mark.parametrize("vector", VECTORS, ids=lambda each: f"{each['client']} {each['framing']} {each['id']}")
def test_keys_are_written_and_hashed_as_real_serialisers_do(vector: dict[str, Any]) -> None:
    stream, keys = stream_of(vector), columns_of(vector)
    known = [(key, bytes.fromhex(data)) for key, data in zip(keys.to_pylist(), vector["hex"], strict=True)]
    assert len(known) >= 9
    assert [written_key(key, stream.hash) for key, _ in known] == [data for _, data in known]
    h = hash_of(stream.hash, "here")
    assert [h(key, stream.key_format) for key, _ in known] == [murmur2(data) for _, data in known]
    everywhere = placement_hashes(keys, stream.key_format, stream.hash)
    assert everywhere.tolist() == [h(key, stream.key_format) for key in keys.to_pylist()]
    # The name says all that the bytes depend on.
    assert str(key_schema(str(hash_schema(stream.hash)))) == str(hash_schema(stream.hash))


@pytest.mark.parametrize("vector", VECTORS, ids=lambda each: f"{each['client']} {each['framing']} {each['id']}")
def test_keys_in_a_broker_are_read_from_the_bytes_of_real_serialisers(vector: dict[str, Any]) -> None:
    stream = stream_of(vector, source="kafka://broker:9092", format="json", columns={"id": "BIGINT", "land": "VARCHAR"})
    found = keys_of([bytes.fromhex(data) for data in vector["hex"]], stream)
    assert list(found) == (vector["columns"] or ["k"])
    assert [list(row) for row in zip(*(column.to_pylist() for column in found.values()), strict=True)] == vector["keys"]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda each: f"{each['client']} {each['framing']} {each['id']}")
def test_a_sample_of_real_keys_says_how_they_are_declared(vector: dict[str, Any]) -> None:
    id, kinds = vector["id"], {str(framing): kind for kind, framing in FRAMINGS.items()}
    keys = [bytes.fromhex(data) for data in vector["hex"]]
    sample = framed_sample(
        [*keys, None, keys[0]], lambda ids: dict.fromkeys(ids, (kinds[vector["framing"]], vector["schema"]))
    )
    assert sample
    assert (sample.ids, sample.columns) == ({id: len(keys) + 1}, tuple(vector["columns"]))
    assert sample.framing
    more: Any = {"source": "kafka://broker:9092", "format": "json", "columns": {"id": "BIGINT", "land": "VARCHAR"}}
    given: Any = {"key": sample.columns or "k", "key_format": sample.framing, "key_schemas": sample.schemas}
    assert declared(**given, **more).hash == stream_of(vector).hash

    # By themselves, keys of one value say it, and JSON its fields.
    alone = framed_sample(keys, None)
    assert alone
    assert alone.ids == {id: len(keys)}
    if vector["framing"] == "json-schema":
        assert alone == replace(sample, ids=alone.ids)
    elif vector["framing"] == "avro" and not vector["columns"] and vector["schema"] != '"boolean"':
        read = keys_of(keys, declared(key="k", key_format=alone.framing, key_schemas=alone.schemas, **more))
        assert [[value] for value in read["k"].to_pylist()] == vector["keys"]
    else:
        assert (
            (alone.framing, alone.schemas) == (None, ())
            or vector["schema"] == '"boolean"'
            or len(vector["columns"]) == 1
        )


@pytest.mark.parametrize(
    "keys",
    [
        [],
        [None],
        [b"ann"],
        [bytes.fromhex("0000000007d20f"), b"ann"],
        # A serialiser of numbers made these: large ones, ones that look like Avro as long as they are few, small ones.
        [struct.pack(">q", 10**12 + n) for n in range(100)],
        [bytes.fromhex(f"0000000007d0d0{n:02x}") for n in range(1, 128)],
        [struct.pack(">qB", n, 7) for n in range(100)],
        # So many schemas no topic has.
        [struct.pack(">bIH", 0, id, 2) for id in range(1, 22)],
    ],
)
def test_keys_that_are_no_registrys_are_not_taken_for_such(keys: list[bytes | None]) -> None:
    assert framed_sample(keys, None) is None


def test_keys_of_eight_bytes_are_a_registrys_where_many_are_or_it_says_so() -> None:
    few = [bytes.fromhex(f"0000000007d0d0{n:02x}") for n in range(1, 100)]
    many = [bytes.fromhex(f"0000000007{first}d0{n:02x}") for n in range(1, 100) for first in ("d0", "d1")]
    for found in (framed_sample(few, lambda _: {7: ("AVRO", '"long"')}), framed_sample(many, None)):
        assert found
        assert (found.framing, found.schemas) == ("avro", {7: '"long"'})


def test_of_schemas_that_no_stream_can_declare_the_ids_are_told_all_the_same() -> None:
    keys = [bytes.fromhex("0000000007d20f06616e6e"), bytes.fromhex("0000000008d20f06616e6e")]
    for found in (
        {},
        {7: ("AVRO", RECORD)},
        {7: ("AVRO", RECORD), 8: ("PROTOBUF", "")},
        {7: ("AVRO", RECORD), 8: ("AVRO", '"string"')},
        dict.fromkeys((7, 8), ("AVRO", '{"type": "record", "name": "K", "fields": [{"name": "f", "type": "float"}]}')),
        dict.fromkeys((7, 8), ("PROTOBUF", 'syntax = "proto3"; message A {}')),
        dict.fromkeys((7, 8), ("XML", "")),
    ):
        assert framed_sample(keys, lambda ids, found=found: found) == FramedSample({7: 1, 8: 1})  # type: ignore[misc]


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "does not begin with the id of a schema"),
        (bytes.fromhex("0100000007d20f00"), "does not begin with the id of a schema"),
        (bytes.fromhex("0000000009d20f044445"), "its key has the schema 9, and key_schemas= names 7, 8"),
        (bytes.fromhex("0000000007d20f044445ff"), "is not written as avro 7"),
        (bytes.fromhex("0000000007d28f00044445"), "is not written as avro 7"),
        (bytes.fromhex("0000000007d20f0444"), "is not written as avro 7"),
        (bytes.fromhex("0000000008d2"), "ends within a value"),
        (bytes.fromhex("0000000007d20f02ff"), "invalid start byte"),
        (None, "it has no key, from which the columns id, land are read"),
    ],
)
def test_a_key_in_a_broker_that_is_not_as_declared_is_told_by_its_record(data: bytes | None, what: str) -> None:
    schemas = {7: RECORD, 8: RECORD}
    stream = declared(
        key=("id", "land"), key_format="avro", key_schemas=schemas, source="kafka://broker:9092", format="bytes"
    )
    right = bytes.fromhex("0000000008d20f044445")
    with pytest.raises(Wrong, match=re.escape(what)) as wrong:
        keys_of([right, data, b"worse"], stream)
    assert wrong.value.number == 1
    if data is None:
        assert keys_of([right, None], stream, aside={1})["id"].to_pylist() == [1001, None]


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b'{"land":"DE","id":1}', "in this order and no others"),
        (b'{"id":1}', "in this order and no others"),
        (b"[1]", "in this order and no others"),
        (b'{"id": 1,"land":"DE"}', "without spaces"),
        (b'{"id":1,"land":"\\u00e9"}', "escaped as little"),
        (b'{"id":1.5,"land":"DE"}', "is no key of 2 columns"),
        (b'{"id":1', "Expecting"),
        (b'{"id":"a","land":"DE"}', "'a' of its key is no int64"),
        (b'{"id":9223372036854775808,"land":"DE"}', "9223372036854775808 of its key is no int64"),
    ],
)
def test_a_key_that_is_no_such_json_object_is_told_by_its_record(data: bytes, what: str) -> None:
    types = {"format": "json", "columns": {"id": "BIGINT", "land": "VARCHAR"}, "source": "kafka://broker:9092"}
    stream = declared(key=("id", "land"), key_format="json", **types)
    with pytest.raises(Wrong, match=re.escape(what)) as wrong:
        keys_of([b'{"id":1,"land":null}', data], stream)
    assert wrong.value.number == 1


FIELDS = ("land", "id", "number", "good")
WIDE = json.dumps(
    {
        "type": "record",
        "name": "Key",
        "fields": [
            {"name": "land", "type": ["null", "string"]},
            {"name": "id", "type": "long"},
            {"name": "number", "type": ["int", "null"]},
            {"name": "good", "type": "boolean"},
        ],
    }
)
TEXTS = st.text(st.sampled_from('a",[]\\:{}\x00\x0f\x1f\t\b\f\n\r/é\U0001f600\uffff'), max_size=9) | st.text(
    max_size=70
)


@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.none() | TEXTS,
            st.integers(-(2**63), 2**63 - 1) | st.integers(-70, 70),
            st.none() | st.integers(-(2**31), 2**31 - 1),
            st.booleans(),
        ),
        min_size=1,
        max_size=9,
    ),
    st.integers(1, 2**31 - 1),
    st.sets(st.integers(0, 8)),
    st.integers(0, 2),
    st.booleans(),
)
def test_the_compiled_hash_is_the_scalar_one_for_any_slice_with_any_nulls(
    rows: list[tuple[Any, ...]], id: int, without: set[int], skip: int, coded: bool
) -> None:
    stream = declared(key=FIELDS, key_format="avro", key_schemas={id: WIDE}, hash="crc32")
    kinds = (pa.string(), pa.int64(), pa.int32(), pa.bool_())
    with making_keys(FIELDS) as keys_of_columns:
        columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
        made = keys_of_columns(pa.table(columns, FIELDS)).to_pylist()
    keys = [None if place in without else key for place, key in enumerate(made)]
    array = pa.array(keys, pa.string())
    found = placement_hashes((array.dictionary_encode() if coded else array)[skip:], "string", stream.hash)
    h = hash_of(stream.hash, "here")
    there = [number for number, key in enumerate(keys[skip:]) if key is not None]
    assert found[np.array(there, int)].tolist() == [h(keys[skip:][number], "string") for number in there]


@pytest.mark.parametrize(
    "key",
    [
        *("", "[]", "[1]", "ann", '["DE",1,2', '["DE",1,2,true,3]', '["DE",1,2,3]', '["DE",1,2,null]', "[1,1,2,true]"),
        *('["DE",null,2,true]', '["DE",1,2147483648,true]', '["DE",9223372036854775808,2,true]', '["DE,1,2,true]'),
        *('["DE",1.5,2,true]', '["DE",-9223372036854775809,2,true]', '["DE",-,2,true]', '["DE",1,2,true,]'),
    ],
)
def test_a_key_that_the_schema_cannot_hold_is_refused_by_both(key: str) -> None:
    stream = declared(key=FIELDS, key_format="avro", key_schemas={7: WIDE})
    for hashed in (
        lambda: hash_of(stream.hash, "here")(key, "string"),
        lambda: placement_hashes(pa.array(['["DE",1,2,true]', key]), "string", stream.hash),
    ):
        with pytest.raises(Refused, match="is no key of"):
            hashed()


def test_an_escape_that_duckdb_does_not_write_is_read_as_json_has_it() -> None:
    stream = declared(key=FIELDS, key_format="avro", key_schemas={7: WIDE})
    escaped, plain = '["\\u00e9",1,2,true]', '["é",1,2,true]'
    assert len(set(placement_hashes(pa.array([escaped, plain]), "string", stream.hash).tolist())) == 1


def test_several_ids_are_named_in_the_order_in_which_they_came() -> None:
    other = RECORD.replace('"string"', '["string", "null"]')
    stream = declared(key=("id", "land"), key_format="avro", key_schemas={7: RECORD, 3: other})
    assert each_of(stream.hash) == (
        "murmur2 of avro 7(id long, land string)",
        "murmur2 of avro 3(id long, land string|null)",
    )
    key = '[1001,"DE"]'
    assert hash_of(stream.hash, "here")(key, "string") == murmur2(bytes.fromhex("0000000003d20f00044445"))


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"key": "id"}, "no id is said"),
        ({"key": "id", "key_schemas": [7]}, "schema 7 is given without its text"),
        ({"key": "id", "key_schemas": {7: "{"}}, "key schema 7: Expecting"),
        ({"key": "id", "key_schemas": {0: '"long"'}}, "0 is no id"),
        ({"key": "id", "key_schemas": {7: '"double"'}}, 'the key is "double", which is not known of keys'),
        ({"key": "id", "key_schemas": {7: '["null", "long"]'}}, "which is not known of keys"),
        ({"key": "id", "key_schemas": {7: '{"type": "int", "logicalType": "date"}'}}, "which is not known of keys"),
        ({"key": "id", "key_schemas": {7: '"long"', 8: '"int"'}}, "is one column, of 'int' or 'long'"),
        ({"key": "id", "key_schemas": {7: '"boolean"'}}, "is one column, of 'boolean'"),
        ({"key": "id", "key_schemas": {7: RECORD}}, r"key=\('id', 'land',\)"),
        (
            {"key": ("land", "id"), "key_schemas": {7: RECORD}},
            "has the fields id, land, and key= names the fields land",
        ),
        ({"key": ("id", "land"), "key_schemas": {7: '"long"'}}, "has one value, without fields"),
        ({"key": ("id", "id"), "key_schemas": {7: RECORD}}, "the column 'id' twice"),
        ({"key": "id", "key_schemas": {7: '"long"'}, "hash": "java"}, "the hash 'java' is not of the bytes"),
        ({"key": "id", "key_schemas": {7: '"long"'}, "hash": "opaque"}, "leave key_format= and key_schemas= out"),
        ({"key": "id", "key_schemas": {7: '"long"'}, "key_format": "long"}, "have no schema's id"),
        ({"key": "id", "key_schemas": [7], "key_format": "json-schema"}, r'declare key=\("id",\), with the brackets'),
        ({"key": ("id",), "key_schemas": {7: "{}"}, "key_format": "json-schema"}, "schema 7 is given with its text"),
        (
            {"key": ("id",), "key_schemas": {7: "message A { int64 id = 1; bool x = 2; }"}, "key_format": "protobuf"},
            "no message has the fields id",
        ),
        (
            {"key": ("id",), "key_schemas": {7: "message A { repeated int64 id = 1; }"}, "key_format": "protobuf"},
            "field 'id' is repeated int64, which is not known of keys",
        ),
        (
            {
                "key": ("id",),
                "key_schemas": {7: "message A { int64 id = 1; } message B { int64 id = 2; }"},
                "key_format": "protobuf",
            },
            "2 messages have the fields id",
        ),
    ],
)
def test_what_no_serialiser_writes_or_is_not_known_is_refused(options: dict[str, Any], what: str) -> None:
    with pytest.raises(Refused, match=what):
        declared(**{"key_format": "avro", **options})


@pytest.mark.parametrize(
    ("text", "columns", "made"),
    [
        ('syntax = "proto3"; message K { int64 id = 1 [deprecated = true]; }', ("id",), "protobuf 7(id 1 int64)"),
        ("message K { required int64 id = 1; }", ("id",), "protobuf 7(id 1 optional int64)"),
        (
            'syntax = "proto3"; option go_package = "x"; enum E { A = 0; } message O { message K { string a = 2; } '
            "oneof b { bool id = 1; } reserved 5, 6; map<string, int64> m = 7; }",
            ("a",),
            "protobuf 7.0.0(a 2 string)",
        ),
    ],
)
def test_the_message_of_a_protobuf_file_is_found_by_its_fields(text: str, columns: Any, made: str) -> None:
    stream = declared(key=columns, key_format="protobuf", key_schemas={7: text})
    assert stream.hash == f"murmur2 of {made}"


def test_types_that_no_schema_is_known_for_are_refused() -> None:
    stream = declared(key=("id", "land"), key_format="avro", key_schemas={7: RECORD})
    finding = bad_part("s: key column 'id'", "DATE", stream.hash, "here")
    assert finding is not None
    assert finding.what.endswith("DATE, which producers write in several ways")


def test_a_table_has_one_schema_of_keys() -> None:
    pipeline = Pipeline("p", source="s3://landing/topics")
    schemas = {7: '"long"', 8: '"long"'}
    with pytest.raises(Refused, match="whose offsets do not compare"):
        pipeline.table("t", key="id", partitions=12, key_format="avro", key_schemas=schemas)


JSON_FIELDS = ("customer", "land", "n", "good")
_JSON_FILE = Path(__file__).parents[1] / "vectors" / "json-keys" / "keys.jsonl"
JSON_VECTORS = [json.loads(line) for line in _JSON_FILE.read_bytes().strip().split(b"\n")]
WIDE_JSON_KEYS: Any = ("customer", "country")


def canonical(rows: list[tuple[Any, ...]], kinds: tuple[pa.DataType, ...]) -> pa.Array:
    names = [f"c{number}" for number in range(len(kinds))]
    columns = [pa.array(values, kind) for values, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
    with making_keys(names) as keys_of:
        return keys_of(pa.table(columns, names))


def test_keys_are_written_and_hashed_as_kafka_connect_and_flink_do() -> None:
    rows = [tuple(vector["values"]) for vector in JSON_VECTORS]
    keys = canonical(rows, (pa.string(), pa.string(), pa.int64(), pa.bool_()))
    assert [json_object(key, JSON_FIELDS).hex() for key in keys.to_pylist()] == [
        vector["hex"] for vector in JSON_VECTORS
    ]
    positive = [vector["positive"] for vector in JSON_VECTORS]
    name = json_hash(MURMUR2, JSON_FIELDS)
    assert [hash_of(name, "here")(key, "string") for key in keys.to_pylist()] == positive
    assert placement_hashes(keys, "string", name).tolist() == positive
    # Each of the three says something else of another order.
    other = json_hash(MURMUR2, ("land", "customer", "n", "good"))
    assert placement_hashes(keys, "string", other).tolist() != positive


JSON_TEXTS = (
    st.none()
    | st.text(st.sampled_from('a",[]\\:{}\x1f\té\U0001f600\U0010ffff\uffff'), max_size=6)
    | st.text(max_size=4)
)
NAMES = st.lists(st.text(st.sampled_from('ab"\\é\U0001f600 '), min_size=1, max_size=3), min_size=2, max_size=2)


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(st.tuples(JSON_TEXTS, st.none() | st.integers(-(2**63), 2**63 - 1)), max_size=12),
    NAMES,
    st.sampled_from([MURMUR2, CRC32]),
    st.integers(0, 2),
)
def test_the_compiled_hash_is_the_scalar_one_for_any_slice_with_any_nulls_json(
    rows: list[tuple[Any, ...]], names: list[str], of_bytes: HashName, skip: int
) -> None:
    keys = [*(canonical(rows, (pa.string(), pa.int64())).to_pylist() if rows else []), None]
    hash = json_hash(of_bytes, names)
    h = hash_of(hash, "here")
    found = placement_hashes(pa.array(keys, pa.string())[skip:], "string", hash).tolist()
    assert found[:-1] == [h(key, "string") for key in keys[skip:-1]]


@pytest.mark.parametrize("key", ["", "ann", "[]", '["ann"]', '["ann","DE","x"]', '["ann', '"ann","DE"', '["ann,DE]'])
def test_a_text_that_is_no_array_of_as_many_values_is_refused_by_both(key: str) -> None:
    name = json_hash(MURMUR2, WIDE_JSON_KEYS)
    for hashed in (
        lambda: hash_of(name, "here")(key, "string"),
        lambda: placement_hashes(pa.array(['["a","b"]', key]), "string", name),
    ):
        with pytest.raises(Refused, match="is no key of 2 columns"):
            hashed()


def declared_as_json(**options: Any) -> Any:
    pipeline = Pipeline("p", source="s3://landing/topics")
    return pipeline.stream("s", **{"key": WIDE_JSON_KEYS, "partitions": 2, **options}), pipeline


@pytest.mark.parametrize(
    ("options", "placed"),
    [
        ({"key_format": "json"}, "murmur2 of json(customer, country)"),
        ({"key_format": "json", "hash": "crc32"}, "crc32 of json(customer, country)"),
        ({"key_format": "json", "hash": "opaque"}, "opaque"),
        ({"hash": "opaque"}, "opaque"),
        ({"hash": "my.producers:place"}, "my.producers:place"),
    ],
)
def test_a_streams_own_key_has_several_columns_if_it_says_how_they_are_written(options: Any, placed: str) -> None:
    flow, pipeline = declared_as_json(**options)
    assert (flow.key, flow.key_format) == ("(customer, country)", KeyFormat.STRING)
    assert pipeline.streams[0].hash == placed


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({}, "how its producer writes them together is not known"),
        ({"key_format": "long"}, "how its producer writes them together is not known"),
        ({"key_format": "json", "hash": "java"}, "the hash 'java' is of no bytes"),
        ({"key_format": "json", "hash": "my.producers:place"}, "says nothing beside hash='my.producers:place'"),
        ({"key_format": "json", "null_keys": "drop"}, "has a key, of nulls"),
        ({"key_format": "json", "cast": {"country": "VARCHAR"}}, "column 'country' cannot be cast"),
        ({"key": ("a", "a"), "key_format": "json"}, "the column 'a' twice"),
        ({"key": "customer", "key_format": "json"}, "unknown key format 'json'"),
        (
            {"source": "kafka://broker:9092", "format": "bytes", "key_format": "json"},
            "of which types customer, country",
        ),
        ({"source": "kafka://broker:9092", "format": "bytes", "hash": "opaque"}, "are not read from their bytes"),
    ],
)
def test_a_key_of_several_columns_is_refused_where_nobody_knows_how_it_was_written(options: Any, what: str) -> None:
    with pytest.raises(Refused, match=what):
        declared_as_json(**options)


@pytest.mark.parametrize("kind", ["DOUBLE", "TIMESTAMP", "DATE", "DECIMAL(9,2)", "UUID", "BLOB"])
def test_types_that_producers_write_in_several_ways_are_refused_in_json(kind: str) -> None:
    finding = bad_part("key column 'at'", kind, json_hash(MURMUR2, WIDE_JSON_KEYS), "here")
    assert finding is not None
    assert kind in finding.what
    refused_anyway = kind in {"DOUBLE", "BLOB"}
    assert (bad_part("key column 'at'", kind, OPAQUE, "here") is not None) == refused_anyway
    # The text that the page has for it tells whose fields were hashed, and whose are the key.
    text = Placement("(a, b)", KeyFormat.STRING, json_hash(MURMUR2, WIDE_JSON_KEYS), 4)
    assert str(text) == "murmur2 of json(customer, country) mod 4, by (a, b)"


@pytest.mark.parametrize(
    ("options", "then"),
    [
        ({"key": "id", "key_format": "json"}, 'for a JSON object of that column, key=("id",) and key_format="json"'),
        ({"key": ("id",)}, 'one in brackets is a stream\'s of key_format="json"'),
    ],
)
def test_who_declares_an_object_of_one_column_in_another_way_is_told_how(options: dict[str, Any], then: str) -> None:
    pipeline = Pipeline("shop", source="s3://landing/topics")
    with pytest.raises(Refused) as refused:
        pipeline.stream("orders", partitions=4, **options)
    assert then in str(refused.value)
    assert pipeline.stream("orders", partitions=4, key=("id",), key_format="json").key == "(id,)"
