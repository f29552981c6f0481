"""The hash of Iceberg's buckets, against what Iceberg for Java answered and what PyIceberg answers."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import BinaryType, IcebergType, LongType, StringType, UUIDType

from partitioning.hashes import hash_of
from partitioning.model.placement import ICEBERG, MURMUR3
from spark_jobs.engine.hashing import placement_hashes

ANSWERED = Path(__file__).parents[1] / "vectors" / "iceberg" / "buckets.jsonl"
# Whole numbers of any size have one hash, so those of 32 bits are read as long ones.
_AS = {"int": "long"}
_HASHES = {"long": ICEBERG, "uuid": ICEBERG, "string": MURMUR3, "bytes": MURMUR3}
_TYPES = {"long": pa.int64(), "uuid": pa.string(), "string": pa.string(), "bytes": pa.binary()}


def test_keys_lie_where_iceberg_for_java_puts_them() -> None:
    said = [json.loads(line) for line in ANSWERED.read_text().splitlines()]
    assert {each["format"] for each in said} == {*_HASHES, *_AS}
    for each in said:
        key_format = _AS.get(each["format"], each["format"])
        key = bytes.fromhex(each["key"]) if key_format == "bytes" else each["key"]
        h = hash_of(_HASHES[key_format], "here")(key, key_format)
        assert {count: h % int(count) for count in each["placed"]} == each["placed"], each
        assert placement_hashes(pa.array([key], _TYPES[key_format]), key_format, _HASHES[key_format]).tolist() == [h]


@pytest.mark.parametrize(
    ("key_format", "type", "keys"),
    [
        ("long", LongType(), st.integers(-(2**63), 2**63 - 1)),
        ("uuid", UUIDType(), st.uuids()),
        ("string", StringType(), st.text()),
        ("bytes", BinaryType(), st.binary(max_size=20)),
    ],
)
@given(data=st.data())
def test_keys_lie_where_pyiceberg_puts_them(
    key_format: str, type: IcebergType, keys: st.SearchStrategy[object], data: st.DataObject
) -> None:
    some = [*data.draw(st.lists(st.none() | keys, max_size=20)), None]
    place = BucketTransform(12).transform(type)
    plain = pa.array([str(key) if isinstance(key, uuid.UUID) else key for key in some], _TYPES[key_format])
    hashes = placement_hashes(plain, key_format, _HASHES[key_format])
    assert [None if key is None else int(h % 12) for key, h in zip(some, hashes, strict=True)] == [*map(place, some)]
