"""Keys that producers write as JSON objects: their bytes and hash are those of Kafka Connect and Flink."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coset.sources.composite_keys import making_keys
from partitioning.authoring.pipeline import Pipeline
from partitioning.errors import Refused
from partitioning.hashes import hash_of, json_object
from partitioning.model.composite_key import bad_part
from partitioning.model.placement import CRC32, MURMUR2, OPAQUE, HashName, KeyFormat, Placement, json_hash
from spark_jobs.engine.hashing import placement_hashes
from tests.examples import examples

FIELDS = ("customer", "land", "n", "good")
_FILE = Path(__file__).parents[1] / "vectors" / "json-keys" / "keys.jsonl"
VECTORS = [json.loads(line) for line in _FILE.read_bytes().strip().split(b"\n")]
WIDE: Any = ("customer", "country")


def canonical(rows: list[tuple[Any, ...]], kinds: tuple[pa.DataType, ...]) -> pa.Array:
    names = [f"c{number}" for number in range(len(kinds))]
    columns = [pa.array(values, kind) for values, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
    with making_keys(names) as keys_of:
        return keys_of(pa.table(columns, names))


def test_keys_are_written_and_hashed_as_kafka_connect_and_flink_do() -> None:
    rows = [tuple(vector["values"]) for vector in VECTORS]
    keys = canonical(rows, (pa.string(), pa.string(), pa.int64(), pa.bool_()))
    assert [json_object(key, FIELDS).hex() for key in keys.to_pylist()] == [vector["hex"] for vector in VECTORS]
    positive = [vector["positive"] for vector in VECTORS]
    name = json_hash(MURMUR2, FIELDS)
    assert [hash_of(name, "here")(key, "string") for key in keys.to_pylist()] == positive
    assert placement_hashes(keys, "string", name).tolist() == positive
    # Each of the three says something else of another order.
    other = json_hash(MURMUR2, ("land", "customer", "n", "good"))
    assert placement_hashes(keys, "string", other).tolist() != positive


TEXTS = (
    st.none()
    | st.text(st.sampled_from('a",[]\\:{}\x1f\té\U0001f600\U0010ffff\uffff'), max_size=6)
    | st.text(max_size=4)
)
NAMES = st.lists(st.text(st.sampled_from('ab"\\é\U0001f600 '), min_size=1, max_size=3), min_size=2, max_size=2)


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(st.tuples(TEXTS, st.none() | st.integers(-(2**63), 2**63 - 1)), max_size=12),
    NAMES,
    st.sampled_from([MURMUR2, CRC32]),
    st.integers(0, 2),
)
def test_the_compiled_hash_is_the_scalar_one_for_any_slice_with_any_nulls(
    rows: list[tuple[Any, ...]], names: list[str], of_bytes: HashName, skip: int
) -> None:
    keys = [*(canonical(rows, (pa.string(), pa.int64())).to_pylist() if rows else []), None]
    hash = json_hash(of_bytes, names)
    h = hash_of(hash, "here")
    found = placement_hashes(pa.array(keys, pa.string())[skip:], "string", hash).tolist()
    assert found[:-1] == [h(key, "string") for key in keys[skip:-1]]


@pytest.mark.parametrize("key", ["", "ann", "[]", '["ann"]', '["ann","DE","x"]', '["ann', '"ann","DE"', '["ann,DE]'])
def test_a_text_that_is_no_array_of_as_many_values_is_refused_by_both(key: str) -> None:
    name = json_hash(MURMUR2, WIDE)
    for hashed in (
        lambda: hash_of(name, "here")(key, "string"),
        lambda: placement_hashes(pa.array(['["a","b"]', key]), "string", name),
    ):
        with pytest.raises(Refused, match="is no key of 2 columns"):
            hashed()


def declared(**options: Any) -> Any:
    pipeline = Pipeline("p", source="s3://landing/topics")
    return pipeline.stream("s", **{"key": WIDE, "partitions": 2, **options}), pipeline


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
    flow, pipeline = declared(**options)
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
        declared(**options)


@pytest.mark.parametrize("kind", ["DOUBLE", "TIMESTAMP", "DATE", "DECIMAL(9,2)", "UUID", "BLOB"])
def test_types_that_producers_write_in_several_ways_are_refused_in_json(kind: str) -> None:
    finding = bad_part("key column 'at'", kind, json_hash(MURMUR2, WIDE), "here")
    assert finding is not None
    assert kind in finding.what
    refused_anyway = kind in {"DOUBLE", "BLOB"}
    assert (bad_part("key column 'at'", kind, OPAQUE, "here") is not None) == refused_anyway
    # The text that the page has for it tells whose fields were hashed, and whose are the key.
    text = Placement("(a, b)", KeyFormat.STRING, json_hash(MURMUR2, WIDE), 4)
    assert str(text) == "murmur2 of json(customer, country) mod 4, by (a, b)"


@pytest.mark.parametrize(
    ("declared", "then"),
    [
        ({"key": "id", "key_format": "json"}, 'for a JSON object of that column, key=("id",) and key_format="json"'),
        ({"key": ("id",)}, 'one in brackets is a stream\'s of key_format="json"'),
    ],
)
def test_who_declares_an_object_of_one_column_in_another_way_is_told_how(declared: dict[str, Any], then: str) -> None:
    pipeline = Pipeline("shop", source="s3://landing/topics")
    with pytest.raises(Refused) as refused:
        pipeline.stream("orders", partitions=4, **declared)
    assert then in str(refused.value)
    assert pipeline.stream("orders", partitions=4, key=("id",), key_format="json").key == "(id,)"
