"""The scalar placement hash against what kafka-clients itself answered."""

from __future__ import annotations

import json
import math
import struct
import uuid
from pathlib import Path
from typing import Any

import pytest

from partitioning.authoring.pipeline import Pipeline
from partitioning.errors import Refused
from partitioning.hashes import hash_of, java_hash, key_bytes, murmur2, placement_hash
from partitioning.model.placement import HashName, KeyFormat
from partitioning.model.stream_rules import stream_findings
from partitioning.model.streams import Stream

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "vectors/kafka-streams/murmur2.json").read_text()
)["vectors"]
READERS = {"string": str, "long": int, "int": int, "double": float, "uuid": uuid.UUID}


def test_each_key_format_has_vectors_and_odd_keys_the_bytes_of_java() -> None:
    assert {vector["type"] for vector in VECTORS} >= set(KeyFormat)
    (vector,) = [vector for vector in VECTORS if vector["type"] == "string_lone_surrogate"]
    assert key_bytes("\ud83d", "string").hex() == vector["hex"]
    key = uuid.UUID("bb3e975f-2c37-65ab-7197-cdc39ec2e62a")
    assert key_bytes(str(key).upper(), "uuid") == key_bytes(key, "uuid")
    (other,) = struct.unpack(">d", bytes.fromhex("fff8000000000001"))
    assert math.isnan(other)
    assert key_bytes(other, "double").hex() == "7ff8000000000000"


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: f"{vector['type']}-{vector['hex'][:16]}")
def test_bytes_hash_and_place_as_kafka_does(vector: dict[str, Any]) -> None:
    found = murmur2(bytes.fromhex(vector["hex"]))
    assert found == vector["positive"] == vector["murmur2"] & 0x7FFFFFFF
    assert {count: found % int(count) for count in vector["partition"]} == vector["partition"]


@pytest.mark.parametrize("key_format", KeyFormat)
def test_keys_are_serialised_as_kafka_does(key_format: str) -> None:
    checked = 0
    for vector in VECTORS:
        if vector["type"] == key_format:
            key = bytes.fromhex(vector["hex"]) if key_format == "bytes" else READERS[key_format](vector["key"])
            assert key_bytes(key, key_format).hex() == vector["hex"], vector
            assert placement_hash(key, key_format) == vector["positive"], vector
            checked += 1
    assert checked >= 3


@pytest.mark.parametrize(
    ("key", "key_format"),
    [
        ("x", "long"),
        (2**63, "long"),
        (2**31, "int"),
        (1.5, "int"),
        ("1.5", "double"),
        (10**400, "double"),
        ("no uuid", "uuid"),
        (5, "string"),
        (None, "string"),
        (3, "bytes"),
        ("text", "bytes"),
        ("x", "avro"),
    ],
)
def test_a_key_that_its_format_cannot_hold_is_refused(key: object, key_format: str) -> None:
    with pytest.raises(Refused):
        placement_hash(key, key_format)


@pytest.mark.parametrize(
    ("key", "key_format", "expected"),
    [
        ("user-1", "string", -836031825),
        ("\ud83d\ude00", "string", 1772899),
        ("\U0001f600", "string", 1772899),
        (-1, "int", -1),
        (-1, "long", 0),
        (2**63 - 1, "long", -(2**31)),
        (-0.0, "double", -(2**31)),
        (1.5, "double", 1073217536),
        (math.nan, "double", 2146959360),
        (uuid.UUID(int=7 << 96 | 2), "uuid", 5),
        (str(uuid.UUID(int=7 << 96 | 2)), "uuid", 5),
    ],
)
def test_java_hashes_a_key_by_its_type(key: object, key_format: str, expected: int) -> None:
    assert java_hash(key, key_format) == expected


def test_a_placement_by_java_is_the_absolute_hash_nought_where_there_is_none_and_none_of_bytes() -> None:
    h = hash_of("java", "here")
    assert [h(key, "string") for key in ("user-1", "polygenelubricants", "A")] == [836031825, 0, 65]
    assert h(-10, "int") % 3 == 1
    with pytest.raises(Refused, match="no common hash"):
        hash_of("java", "here")(b"key", "bytes")


@pytest.mark.parametrize("name", ["murmur2", "crc32", "java"])
def test_a_key_that_its_format_cannot_hold_is_refused_by_every_placement(name: str) -> None:
    for key, key_format in [(2**31, "int"), (5, "string"), ("no uuid", "uuid"), ("x", "avro")]:
        with pytest.raises(Refused):
            hash_of(name, "here")(key, key_format)


@pytest.mark.parametrize(
    ("path", "key", "key_format", "expected"),
    [
        ("zlib:crc32", b"key", "bytes", 0x8A90ABA9),
        ("builtins:len", "tail", "string", 4),
        ("builtins:len", uuid.UUID(int=1), "uuid", 36),
        ("builtins:abs", -7, "long", 7),
        ("math:ceil", 1, "double", 1),
    ],
)
def test_a_function_of_ones_own_is_given_the_plain_key(path: str, key: object, key_format: str, expected: int) -> None:
    assert hash_of(path, "here")(key, key_format) == expected


@pytest.mark.parametrize(
    ("path", "key", "key_format"),
    [
        ("builtins:int", -1, "long"),
        ("builtins:str", 7, "long"),
        ("math:sqrt", 4.0, "double"),
        ("builtins:bool", 7, "long"),
        ("math:factorial", 21, "long"),
    ],
)
def test_any_other_answer_than_an_int_of_63_bits_is_refused_and_the_key_shown(
    path: str, key: object, key_format: str
) -> None:
    with pytest.raises(Refused, match=f"for the key {key!r}\n  where: stream 'views'"):
        hash_of(path, "stream 'views'")(key, key_format)


@pytest.mark.parametrize("name", ["opaque", "murmur4", "no.such.module:function", "zlib:no_such_function"])
def test_a_placement_without_a_hash_is_refused(name: str) -> None:
    with pytest.raises(Refused, match="where: stream 'views'"):
        hash_of(name, "stream 'views'")


@pytest.mark.parametrize("hash", ["murmur2", "crc32", "java", "opaque", "shop.codecs:country"])
def test_a_stream_may_be_placed_by_any_of_these(hash: str) -> None:
    assert not tuple(stream_findings(Stream("views", "s3://landing/topics", "member", 4, hash=HashName(hash))))


@pytest.mark.parametrize(
    ("hash", "key_format", "what"),
    [
        ("murmur4", KeyFormat.STRING, "unknown hash 'murmur4'"),
        ("java_masked", KeyFormat.LONG, "the hash 'java_masked' is of text, not of long keys"),
        ("iceberg", KeyFormat.STRING, "the hash 'iceberg' is of long and uuid keys, not of string ones"),
        ("shop.codecs", KeyFormat.STRING, "unknown hash 'shop.codecs'"),
        ("java", KeyFormat.BYTES, "no common hash"),
    ],
)
def test_a_stream_that_declares_no_such_hash_is_refused(hash: str, key_format: KeyFormat, what: str) -> None:
    stream = Stream("views", "s3://landing/topics", "member", 4, key_format, hash=HashName(hash))
    (finding,) = stream_findings(stream)
    assert what in finding.what
    assert finding.where == "stream 'views'"


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"key_format": "int"}, "the hash 'iceberg' is of long and uuid keys, not of int ones"),
        ({"hash": "murmur2"}, "buckets are of one column, by murmur3, and not by murmur2"),
        ({"key": ("member", "country"), "hash": "opaque"}, "buckets are of one column, by murmur3, and not by opaque"),
        ({"format": "json", "columns": {"member": "VARCHAR"}}, "format= is given"),
        ({"offsets": "sparse"}, "no offsets that could be missing"),
        ({"source": "iceberg://lake"}, "names no namespace of a catalogue"),
    ],
)
def test_an_iceberg_table_says_itself_how_it_lies(wrong: dict[str, Any], what: str) -> None:
    said = {"key": "member", "partitions": 8, "source": "iceberg://lake.shop", **wrong}
    with pytest.raises(Refused, match=what):
        Pipeline("views").stream("views", **said)


def test_an_iceberg_table_is_kept_by_key_or_a_stream() -> None:
    with pytest.raises(Refused, match="declare kept=True too"):
        Pipeline("views", source="iceberg://lake.shop").table("views", key="member", partitions=8)
    kept = Pipeline("views", source="iceberg://lake.shop").table("views", key="member", partitions=8, kept=True)
    assert kept.step
