"""Vectorised placement hashes against the answers of Kafka and of Iceberg's own, and against the scalar twin."""

from __future__ import annotations

import json
import math
import struct
import uuid
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import BinaryType, IcebergType, LongType, StringType, UUIDType

from expectations.key_hashes import murmur2_of
from partitioning.errors import Refused
from partitioning.hashes import hash_of, murmur2, placement_hash, read_key
from partitioning.model.placement import ICEBERG, KNOWN_HASHES, MURMUR3, hash_findings
from spark_jobs.engine import compiled_hashes
from spark_jobs.engine.hashing import key_texts, one_of_equals, placement_hashes
from spark_jobs.engine.residues import all_among, among, is_one_of, residues, rows_among, rows_by_residue, rows_of

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "kafka-streams" / "murmur2.json").read_text())["vectors"]

_UNPACK = {
    "string": lambda data: data.decode(),
    "long": lambda data: struct.unpack(">q", data)[0],
    "int": lambda data: struct.unpack(">i", data)[0],
    "double": lambda data: struct.unpack(">d", data)[0],
    "uuid": lambda data: data.decode(),
    "bytes": bytes,
}
_TYPES = {
    "string": pa.string(),
    "long": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "uuid": pa.string(),
    "bytes": pa.binary(),
}
_KEYS = {
    "string": st.text(),
    "long": st.integers(-(2**63), 2**63 - 1),
    "int": st.integers(-(2**31), 2**31 - 1),
    "double": st.floats(),
    "uuid": st.uuids().map(str),
    "bytes": st.binary(max_size=40),
}


def _keys_of(key_format: str) -> st.SearchStrategy[tuple[str, list[object]]]:
    return st.tuples(st.just(key_format), st.lists(st.none() | _KEYS[key_format], max_size=20))


@given(st.lists(st.binary(max_size=70)))
def test_expectations_compute_it_in_a_way_of_their_own(keys: list[bytes]) -> None:
    assert murmur2_of(keys).tolist() == [murmur2(key) for key in keys]


@pytest.mark.parametrize("key_format", sorted(_UNPACK))
def test_equals_every_vector_that_kafka_made(key_format: str) -> None:
    vectors = [vector for vector in VECTORS if vector["type"] == key_format]
    keys = [_UNPACK[key_format](bytes.fromhex(vector["hex"])) for vector in vectors]
    assert vectors
    hashes = placement_hashes(pa.array(keys, _TYPES[key_format]), key_format)
    assert hashes.tolist() == [vector["positive"] for vector in vectors]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(_KEYS)).flatmap(_keys_of), st.integers(0, 3))
def test_equals_the_scalar_hash_for_any_slice_with_any_nulls(keyed: tuple[str, list[object]], skip: int) -> None:
    key_format, keys = keyed
    array = pa.array(keys, _TYPES[key_format])[skip:]
    found = [h for h, valid in zip(placement_hashes(array, key_format), array.is_valid(), strict=True) if valid.as_py()]
    assert found == [placement_hash(key, key_format) for key in keys[skip:] if key is not None]


# The placements that have a hash for keys of the format, and a function of a user's own.
_OWN = {"long": "builtins:abs", "int": "builtins:abs", "double": "tests.unit.test_hashing:sign", "bytes": "zlib:crc32"}
_PLACEMENTS = {
    key_format: [
        *(name for name in KNOWN_HASHES if not any(hash_findings(name, key_format, "here"))),
        _OWN.get(key_format, "builtins:len"),
    ]
    for key_format in _KEYS
}


def sign(key: float) -> int:
    """A placement function of a user's own."""
    assert isinstance(key, float)
    return 1 if key > 0 else 0


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data(), st.sampled_from(sorted(_KEYS)).flatmap(_keys_of), st.integers(0, 3))
def test_equals_the_scalar_hash_of_every_placement(
    data: st.DataObject, keyed: tuple[str, list[object]], skip: int
) -> None:
    key_format, keys = keyed
    placement = data.draw(st.sampled_from(_PLACEMENTS[key_format]))
    keys = [None if key == -(2**63) else key for key in keys]
    array = pa.array(keys, _TYPES[key_format])[skip:]
    hashes, h = placement_hashes(array, key_format, placement), hash_of(placement, "here")
    expected = [None if key is None else h(key, key_format) for key in keys[skip:]]
    assert [None if key is None else int(found) for key, found in zip(keys[skip:], hashes, strict=True)] == expected


@pytest.mark.parametrize(
    ("array", "key_format"),
    [
        (pa.array(["a", None, "key-1", "key-1"], pa.large_string()), "string"),
        (pa.array(["a", None, "key-1", "key-1"], pa.string_view()), "string"),
        (pa.array(["a", None, "key-1", "key-1"]).dictionary_encode(), "string"),
        (pa.array([b"a", None, b"key-1"], pa.large_binary()), "bytes"),
        (pa.array([b"abc", None, b"xyz"], pa.binary(3)), "bytes"),
        (pa.array([1, None, -1], pa.int32()), "long"),
        (pa.array([1, None, -1], pa.int64()), "int"),
        (pa.array([1.5, None], pa.float32()), "double"),
        (pa.array(["1D7A9B5E-0F3C-4B7A-8A53-0C9F3F5B6D21", None]), "uuid"),
    ],
)
def test_the_layout_of_the_column_does_not_matter(array: pa.Array, key_format: str) -> None:
    for placement in _PLACEMENTS[key_format]:
        hashes, h = placement_hashes(array, key_format, placement), hash_of(placement, "here")
        for value, found in zip(array.to_pylist(), hashes, strict=True):
            assert value is None or found == h(value, key_format)


def test_for_each_width_of_offsets_a_hash_is_compiled_once() -> None:
    texts = ["b", "", "ab"]
    for array in (pa.array(texts), pa.array(texts, pa.large_string()), pa.array([], pa.string()), pa.array([1, 2])):
        placement_hashes(array, "long" if pa.types.is_integer(array.type) else "string")
    starts = [str(signature[0]) for signature in compiled_hashes.murmur2.signatures]
    assert sorted(starts) == ["readonly array(int32, 1d, C)", "readonly array(int64, 1d, C)"]


def test_uuids_hash_as_their_text_and_no_keys_are_no_error() -> None:
    keys = [uuid.UUID(int=7), uuid.UUID("1d7a9b5e-0f3c-4b7a-8a53-0c9f3f5b6d21")]
    array = pa.array([key.bytes for key in keys], pa.binary(16)).cast(pa.uuid())
    for placement in _PLACEMENTS["uuid"]:
        assert placement_hashes(array, "uuid", placement).tolist() == [
            hash_of(placement, "")(key, "uuid") for key in keys
        ]
    assert placement_hashes(pa.nulls(3), "string").dtype == np.uint32
    assert len(placement_hashes(pa.array([], pa.string()), "string")) == 0
    assert len(placement_hashes(pa.array([], pa.int64()), "long")) == 0
    assert len(placement_hashes(pa.nulls(3), "string", "java")) == 3
    assert placement_hashes(pa.nulls(3), "string", "builtins:len").dtype == np.uint64
    assert len(placement_hashes(pa.array([], pa.string()), "string", "builtins:len")) == 0


def test_java_has_no_hashes_for_bytes_and_a_wrong_answer_of_a_function_is_refused() -> None:
    with pytest.raises(Refused, match="no common hash"):
        placement_hashes(pa.array([b"a"]), "bytes", "java")
    with pytest.raises(Refused, match="gives -7 for the key -7\n  where: placement builtins:int"):
        placement_hashes(pa.array([5, -7]), "long", "builtins:int")


@pytest.mark.parametrize(
    ("array", "key_format"),
    [
        (pa.array(["a"]), "long"),
        (pa.array([2**40]), "int"),
        (pa.array([1.0]), "long"),
        (pa.array([1]), "string"),
        (pa.array(["a"]), "bytes"),
        (pa.array(["a"]), "uuid"),
        (pa.array(["a"]), "avro"),
    ],
)
def test_keys_that_are_not_of_the_format_are_refused(array: pa.Array, key_format: str) -> None:
    with pytest.raises(Refused, match=key_format):
        placement_hashes(array, key_format)


@pytest.mark.parametrize("key_format", sorted(_KEYS))
def test_keys_written_as_text_can_be_read_back(key_format: str) -> None:
    keys = {"string": "é", "long": -7, "int": 7, "double": 0.1, "uuid": str(uuid.UUID(int=7)), "bytes": b"\x00\xff"}
    (text,) = key_texts(pa.array([keys[key_format]], _TYPES[key_format]), key_format).to_pylist()
    assert read_key(text, key_format) == keys[key_format]


@pytest.mark.parametrize("placement", _PLACEMENTS["double"])
def test_noughts_are_one_key_whatever_their_sign(placement: str) -> None:
    keys = pa.array([0.0, -0.0, math.nan, -math.nan])
    nought, minus, *nans = placement_hashes(keys, "double", placement).tolist()
    assert nought == minus == hash_of(placement, "here")(-0.0, "double")
    assert len(set(nans)) == 1
    assert key_texts(one_of_equals(keys), "double").to_pylist() == ["0", "0", "nan", "nan"]


ANSWERED = Path(__file__).parents[1] / "vectors" / "iceberg" / "buckets.jsonl"
# Whole numbers of any size have one hash, so those of 32 bits are read as long ones.
_AS = {"int": "long"}
_HASHES = {"long": ICEBERG, "uuid": ICEBERG, "string": MURMUR3, "bytes": MURMUR3}
_TYPES_ICEBERG = {"long": pa.int64(), "uuid": pa.string(), "string": pa.string(), "bytes": pa.binary()}


def test_keys_lie_where_iceberg_for_java_puts_them() -> None:
    said = [json.loads(line) for line in ANSWERED.read_text().splitlines()]
    assert {each["format"] for each in said} == {*_HASHES, *_AS}
    for each in said:
        key_format = _AS.get(each["format"], each["format"])
        key = bytes.fromhex(each["key"]) if key_format == "bytes" else each["key"]
        h = hash_of(_HASHES[key_format], "here")(key, key_format)
        assert {count: h % int(count) for count in each["placed"]} == each["placed"], each
        assert placement_hashes(
            pa.array([key], _TYPES_ICEBERG[key_format]), key_format, _HASHES[key_format]
        ).tolist() == [h]


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
    plain = pa.array([str(key) if isinstance(key, uuid.UUID) else key for key in some], _TYPES_ICEBERG[key_format])
    hashes = placement_hashes(plain, key_format, _HASHES[key_format])
    assert [None if key is None else int(h % 12) for key, h in zip(some, hashes, strict=True)] == [*map(place, some)]


NARROW, WIDE = np.dtype(np.uint32), np.dtype(np.uint64)


@st.composite
def cases(draw: st.DrawFn, most: int) -> tuple[int, int, int, int]:
    """A modulus, the first residue, how many, and a hash that is near one of their ends or anywhere."""
    modulus = draw(st.integers(1, 40) | st.integers(1, most))
    first = draw(st.integers(0, modulus - 1))
    many = draw(st.integers(1, modulus - first) | st.just(1))
    near = draw(st.sampled_from([first - 1, first, first + many - 1, first + many])) % modulus
    beside = near + modulus * draw(st.integers(0, (most - near) // modulus))
    return modulus, first, many, draw(st.just(beside) | st.integers(0, most))


def says(case: tuple[int, int, int, int], kind: np.dtype) -> bool:
    modulus, first, many, h = case
    return bool(among(kind.type(h), residues(modulus, first, many, kind)))


@given(cases(2**32 - 1))
@example((1, 0, 1, 2**32 - 1))
@example((2**32 - 1, 2**32 - 2, 1, 2**32 - 2))
def test_narrow_hashes_are_told_by_a_product(case: tuple[int, int, int, int]) -> None:
    modulus, first, many, h = case
    assert says(case, NARROW) == (first <= h % modulus < first + many)
    assert residues(modulus, first, many, NARROW).by_product == (many < modulus)


@given(cases(2**64 - 1))
def test_wide_hashes_are_told_too(case: tuple[int, int, int, int]) -> None:
    modulus, first, many, h = case
    assert says(case, WIDE) == (first <= h % modulus < first + many)


@given(st.integers(2**32, 2**62), st.integers(0, 2**32 - 1), st.data())
def test_a_modulus_may_be_larger_than_any_hash(modulus: int, h: int, data: st.DataObject) -> None:
    many = data.draw(st.integers(1, modulus))
    assert says((modulus, 0, many, h), NARROW) == (h < many)


@pytest.mark.parametrize("owned", [(3,), (0, 3, 5), ()])
def test_one_of_several_residues(owned: tuple[int, ...]) -> None:
    ascending = np.array(owned, np.uint64)
    assert [residue for residue in range(7) if is_one_of(np.uint64(residue), ascending)] == list(owned)


hashes_of_a_batch = st.tuples(st.sampled_from([NARROW, WIDE]), st.lists(st.integers(0, 50) | st.integers(0, 2**32 - 1)))


@given(hashes_of_a_batch, st.integers(1, 60), st.data())
def test_the_rows_of_a_range_of_residues(batch: tuple[np.dtype, list[int]], modulus: int, data: st.DataObject) -> None:
    kind, hashes = batch
    first = data.draw(st.integers(0, modulus - 1))
    many = data.draw(st.integers(1, modulus - first))
    asked = np.array(hashes, kind), residues(modulus, first, many, kind)
    expected = [row for row, h in enumerate(hashes) if first <= h % modulus < first + many]
    assert rows_among(*asked).tolist() == expected
    assert all_among(*asked) == (len(expected) == len(hashes))


@given(hashes_of_a_batch, st.integers(1, 60), st.sets(st.integers(0, 59)))
def test_the_rows_of_each_residue(batch: tuple[np.dtype, list[int]], modulus: int, some: set[int]) -> None:
    kind, hashes = batch
    rows, begins = rows_by_residue(np.array(hashes, kind), kind.type(modulus))
    assert (begins[0], begins[modulus]) == (0, len(hashes))
    for residue in range(modulus):
        found = rows[begins[residue] : begins[residue + 1]].tolist()
        assert found == [row for row, h in enumerate(hashes) if h % modulus == residue]
    chosen = sorted(residue for residue in some if residue < modulus)
    found = rows_of(chosen, rows, begins).tolist()
    assert found == [row for row, h in enumerate(hashes) if h % modulus in chosen]
