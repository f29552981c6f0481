"""The scalar placement hash against what kafka-clients itself answered."""

from __future__ import annotations

import json
import math
import struct
import uuid
from pathlib import Path
from typing import Any

import pytest

from partitioning.errors import Refused
from partitioning.placement import KEY_FORMATS, key_bytes, murmur2, placement_hash

VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "golden/murmur2.json").read_text())["vectors"]
READERS = {"string": str, "long": int, "int": int, "double": float, "uuid": uuid.UUID}


def test_the_vectors_cover_every_key_format() -> None:
    assert {vector["type"] for vector in VECTORS} >= set(KEY_FORMATS)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: f"{vector['type']}-{vector['hex'][:16]}")
def test_bytes_hash_and_place_as_kafka_does(vector: dict[str, Any]) -> None:
    found = murmur2(bytes.fromhex(vector["hex"]))
    assert found == vector["positive"] == vector["murmur2"] & 0x7FFFFFFF
    assert {count: found % int(count) for count in vector["partition"]} == vector["partition"]


@pytest.mark.parametrize("key_format", KEY_FORMATS)
def test_keys_are_serialised_as_kafka_does(key_format: str) -> None:
    checked = 0
    for vector in VECTORS:
        if vector["type"] == key_format:
            key = bytes.fromhex(vector["hex"]) if key_format == "bytes" else READERS[key_format](vector["key"])
            assert key_bytes(key, key_format).hex() == vector["hex"], vector
            assert placement_hash(key, key_format) == vector["positive"], vector
            checked += 1
    assert checked >= 3


def test_a_lone_surrogate_becomes_a_question_mark_as_in_java() -> None:
    (vector,) = [vector for vector in VECTORS if vector["type"] == "string_lone_surrogate"]
    assert key_bytes("\ud83d", "string").hex() == vector["hex"]


def test_a_uuid_and_its_text_are_one_key_however_the_text_is_written() -> None:
    key = uuid.UUID("bb3e975f-2c37-65ab-7197-cdc39ec2e62a")
    assert key_bytes(str(key).upper(), "uuid") == key_bytes(key, "uuid")


def test_every_nan_is_the_one_that_java_writes() -> None:
    (other,) = struct.unpack(">d", bytes.fromhex("fff8000000000001"))
    assert math.isnan(other)
    assert key_bytes(other, "double").hex() == "7ff8000000000000"


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
