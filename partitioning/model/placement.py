"""Placement: where a producer puts a key, `h(key) mod count`; `partitioning.hashes` has the hashes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import StrEnum
from math import gcd
from typing import NewType

from partitioning.errors import Finding
from partitioning.imports import is_import_path
from partitioning.kinds import Kind
from partitioning.model.key_schemas import KeySchema, key_schema
from partitioning.values import Value, replace

# The name of a hash: one of these, or the import path of a function of a deployment's own.
HashName = NewType("HashName", str)
MURMUR2 = HashName("murmur2")
MURMUR2_UNSIGNED = HashName("murmur2_unsigned")
MURMUR2_KAFKAJS1 = HashName("murmur2_kafkajs1")
CRC32 = HashName("crc32")
CRC32_CONSISTENT = HashName("crc32_consistent")
FNV1A = HashName("fnv1a")
FNV1A_MASKED = HashName("fnv1a_masked")
JAVA = HashName("java")
JAVA_MASKED = HashName("java_masked")
MURMUR3 = HashName("murmur3")
ICEBERG = HashName("iceberg")
OPAQUE = HashName("opaque")
# The hashes of bytes, whoever wrote them, first those of most producers.
HASHES_OF_BYTES = (
    *(MURMUR2, CRC32, CRC32_CONSISTENT, FNV1A, FNV1A_MASKED),
    *(MURMUR2_UNSIGNED, MURMUR2_KAFKAJS1, MURMUR3),
)
# Those that anybody can compute.
KNOWN_HASHES = (*HASHES_OF_BYTES, JAVA, JAVA_MASKED, ICEBERG)
HASHES = (*KNOWN_HASHES, OPAQUE)
# The word by which a stream declares that its producers write keys of several columns as JSON objects.
JSON = "json"
_OF = " of "
_OF_JSON = f"{_OF}{JSON}("
# Between the hashes by any of which records lie: before no bracket closes that is not opened after it.
_OR = re.compile(r" or (?![^(]*\))")


def json_hash(of_bytes: HashName, fields: Sequence[str]) -> HashName:
    """The name of the hash of keys of several columns that are hashed as a JSON object with these fields.

    >>> json_hash(MURMUR2, ["customer", "country"])
    'murmur2 of json(customer, country)'
    """
    return HashName(f"{of_bytes}{_OF_JSON}{', '.join(fields)})")


def json_fields(name: str) -> tuple[str, ...]:
    """The fields of the JSON object that a hash is of; none if it is of no such object.

    >>> json_fields("murmur2 of json(customer, country)"), json_fields("murmur2")
    (('customer', 'country'), ())
    """
    _, of_json, fields = newest_of(name).partition(_OF_JSON)
    return tuple(fields[:-1].split(", ")) if of_json else ()


def schema_hash(of_bytes: HashName, schema: KeySchema) -> HashName:
    """The name of the hash of keys that a registry's serialiser writes by this schema.

    >>> schema_hash(MURMUR2, key_schema("avro 7(long)"))
    'murmur2 of avro 7(long)'
    """
    return HashName(f"{of_bytes}{_OF}{schema}")


def hash_schema(name: str) -> KeySchema | None:
    """The registry's schema of the keys that a hash is of; None if it is of no such keys.

    >>> str(hash_schema("murmur2 of avro 7(id long)")), hash_schema("murmur2 of json(id)")
    ('avro 7(id long)', None)
    """
    return key_schema(newest_of(name).partition(_OF)[2])


def hashed_columns(name: str) -> tuple[str, ...]:
    """The columns of the keys that a hash is of, as their producer wrote them; none if it is of one value.

    >>> hashed_columns("murmur2 of json(customer, country)"), hashed_columns("murmur2 of avro 7(long)")
    (('customer', 'country'), ())
    """
    schema = hash_schema(name)
    return schema.columns if schema else json_fields(name)


def any_of(names: Sequence[HashName]) -> HashName:
    """The name of a hash by any of which records lie, the newest last: that is the one by which they go on.

    >>> any_of([MURMUR2, HashName("crc32 of avro 7(a or b long)")])
    'murmur2 or crc32 of avro 7(a or b long)'
    """
    return HashName(" or ".join(dict.fromkeys(names)))


def each_of(name: str) -> tuple[HashName, ...]:
    """The hashes by any of which records lie, the newest last; the hash alone if it is one.

    >>> each_of("murmur2 or crc32 of avro 7(a or b long)"), each_of("murmur2")
    (('murmur2', 'crc32 of avro 7(a or b long)'), ('murmur2',))
    """
    return tuple(map(HashName, _OR.split(name)))


def newest_of(name: str) -> HashName:
    """The hash by which records go on that lie by any of several.

    >>> newest_of("murmur2 or crc32"), newest_of("murmur2")
    ('crc32', 'murmur2')
    """
    return each_of(name)[-1]


def earlier_of(name: str) -> HashName:
    """The hashes by which records lie that do not lie by the newest of several.

    >>> earlier_of("murmur2 or fnv1a or crc32")
    'murmur2 or fnv1a'
    """
    return any_of(each_of(name)[:-1])


def hash_of_bytes(name: HashName) -> HashName:
    """The hash of the bytes that a hash makes of keys: its own name, if they are its format's.

    >>> hash_of_bytes(HashName("crc32 of json(customer, country)")), hash_of_bytes(MURMUR2)
    ('crc32', 'murmur2')
    """
    return HashName(newest_of(name).partition(_OF)[0])


def keeps_empty(name: str) -> bool:
    """Whether producers put an empty key where it hashes. By `crc32` they put it anywhere, as a record without a key.

    >>> keeps_empty(CRC32), keeps_empty(CRC32_CONSISTENT)
    (False, True)
    """
    return name != CRC32


def is_known(name: str) -> bool:
    """Whether anybody can compute the hash of that name."""
    return all(hash_of_bytes(each) in KNOWN_HASHES for each in each_of(name))


class KeyFormat(StrEnum):
    """How a key is serialised before it is hashed: Kafka's serialisers."""

    STRING = "string"
    LONG = "long"
    INT = "int"
    DOUBLE = "double"
    UUID = "uuid"
    BYTES = "bytes"

    @property
    def column_types(self) -> tuple[str, ...]:
        """The DuckDB column types that can hold such keys."""
        return _COLUMN_TYPES[self]


_COLUMN_TYPES = {
    KeyFormat.STRING: ("VARCHAR",),
    KeyFormat.LONG: ("BIGINT",),
    KeyFormat.INT: ("INTEGER",),
    KeyFormat.DOUBLE: ("DOUBLE",),
    KeyFormat.UUID: ("VARCHAR", "UUID"),
    KeyFormat.BYTES: ("BLOB",),
}


class KeyHash(Value, frozen=True, order=True):
    """How a key is placed: the hash of the key serialised as `key_format`.

    With `gathered`, all records lie in one partition, where any hash would put them too.
    """

    key_format: KeyFormat
    hash: HashName
    gathered: bool = False

    def serves(self, target: KeyHash) -> bool:
        """Whether records placed so are already where `target` puts them.

        >>> text, number = KeyHash(KeyFormat.STRING, MURMUR2), KeyHash(KeyFormat.LONG, MURMUR2)
        >>> text.serves(number), number.serves(GATHERED)
        (False, False)
        """
        if target.gathered:
            return self.gathered
        return (self.key_format, self.hash) == (target.key_format, target.hash)

    @property
    def settled(self) -> KeyHash:
        """How keys are placed from here on: by the newest, if they lie by any of several hashes."""
        return replace(self, hash=newest_of(self.hash))

    def __str__(self) -> str:
        return f"{self.hash} keys" if _OF in self.hash else f"{self.hash} of {self.key_format} keys"


GATHERED = KeyHash(KeyFormat.STRING, MURMUR2, gathered=True)


class Placement(Value, frozen=True, order=True):
    """Where records lie: in partition `hash(key) mod partitions`, with the key serialised as `key_format`. Records
    gathered into one partition have no key. If `hash` is any of several, tasks go by the newest.

    >>> print(Placement("tailnum", KeyFormat.STRING, MURMUR2, 12))
    murmur2(tailnum) mod 12
    """

    key: str
    key_format: KeyFormat
    hash: HashName
    partitions: int

    @property
    def key_hash(self) -> KeyHash | None:
        """How keys are placed. None if records may lie anywhere."""
        return KeyHash(self.key_format, self.hash) if self.key else None

    def shared(self, cosets: int) -> int:
        """The modulus by which a partition and a coset have keys in common: their numbers agree modulo it. It is 1 if
        records lie by other hashes than the one that cosets go by.

        >>> [Placement("k", KeyFormat.STRING, HashName(name), 12).shared(8) for name in ("crc32", "crc32 or murmur2")]
        [4, 1]
        """
        return gcd(self.partitions, cosets) if len(each_of(self.hash)) == 1 else 1

    def __str__(self) -> str:
        if not self.key:
            return "gathered into one" if self.partitions == 1 else f"anywhere in {self.partitions}"
        if _OF in self.hash:
            columns = hashed_columns(self.hash)
            named = "" if self.key in (f"({', '.join(columns)})", f"({''.join(columns)},)") else f", by {self.key}"
            return f"{self.hash} mod {self.partitions}{named}"
        return f"{self.hash}({self.key}) mod {self.partitions}"


def hash_findings(name: str, key_format: str, where: str) -> Iterator[Finding]:
    """What is wrong with a declared hash. Nothing is imported: a missing function is found when it is used."""
    if name not in HASHES and not is_import_path(name):
        known = ", ".join(HASHES)
        what = f"unknown hash {name!r}"
        yield Finding.of(Kind.DECLARATION, what, where, f"use one of {known}, or package.module:function", name=name)
    if name == JAVA and key_format == KeyFormat.BYTES:
        yield no_java_hash(where)
    if name == JAVA_MASKED and key_format != KeyFormat.STRING:
        what = f"the hash {name!r} is of text, not of {key_format} keys"
        then = f"leave key_format= out, or declare another hash: {', '.join((*HASHES_OF_BYTES, JAVA, OPAQUE))}"
        yield Finding.of(Kind.DECLARATION, what, where, then, hash=name, key_format=key_format)
    if name == ICEBERG and key_format not in (KeyFormat.LONG, KeyFormat.UUID):
        what = f"the hash {name!r} is of long and uuid keys, not of {key_format} ones"
        then = "declare key_format='long' for whole numbers of any size, and hash='murmur3' for text and bytes"
        yield Finding.of(Kind.DECLARATION, what, where, then, hash=name, key_format=key_format)


def possible_hashes(key_format: str, fields: Sequence[str] = ()) -> list[tuple[HashName, HashName]]:
    """The hashes by which keys of a format may lie, or keys that are a JSON object of these fields: how a stream
    declares each, and its name.

    >>> [declared for declared, _ in possible_hashes("bytes")][-1], possible_hashes("string", ["id"])[0]
    ('murmur3', ('murmur2', 'murmur2 of json(id)'))
    """
    if fields:
        return [(name, json_hash(name, fields)) for name in HASHES_OF_BYTES]
    return [(name, name) for name in KNOWN_HASHES if not any(hash_findings(name, key_format, "key"))]


def bucket_hash(key_format: str) -> HashName:
    """The hash of an Iceberg table's buckets, by the format of their keys."""
    return MURMUR3 if key_format in (KeyFormat.STRING, KeyFormat.BYTES) else ICEBERG


def no_java_hash(where: str) -> Finding:
    """What is wrong with byte keys under Java's hash."""
    what = "Java hashes a byte array by where it lies in memory, so equal keys have no common hash"
    then = f"declare how its producers place keys: {MURMUR2}, {CRC32}, {OPAQUE} or package.module:function"
    return Finding.of(Kind.DECLARATION, what, where, then, hash=JAVA, key_format=KeyFormat.BYTES)
