"""Placement: where a producer puts a key, `h(key) mod count`; `partitioning.hashes` has the hashes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NewType

from partitioning.errors import Finding
from partitioning.imports import is_import_path
from partitioning.kinds import Kind
from partitioning.values import Value

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
OPAQUE = HashName("opaque")
# The hashes of bytes, whoever wrote them, first those of most producers.
HASHES_OF_BYTES = (
    *(MURMUR2, CRC32, CRC32_CONSISTENT, FNV1A, FNV1A_MASKED),
    *(MURMUR2_UNSIGNED, MURMUR2_KAFKAJS1, MURMUR3),
)
# Those that anybody can compute.
KNOWN_HASHES = (*HASHES_OF_BYTES, JAVA, JAVA_MASKED)
HASHES = (*KNOWN_HASHES, OPAQUE)
# The word by which a stream declares that its producers write keys of several columns as JSON objects.
JSON = "json"
_OF_JSON = f" of {JSON}("


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
    _, of_json, fields = name.partition(_OF_JSON)
    return tuple(fields[:-1].split(", ")) if of_json else ()


def hash_of_bytes(name: HashName) -> HashName:
    """The hash of the bytes that a hash makes of keys: its own name, if it is of no JSON object.

    >>> hash_of_bytes(HashName("crc32 of json(customer, country)")), hash_of_bytes(MURMUR2)
    ('crc32', 'murmur2')
    """
    return HashName(name.partition(_OF_JSON)[0])


def keeps_empty(name: str) -> bool:
    """Whether producers put an empty key where it hashes. By `crc32` they put it anywhere, as a record without a key.

    >>> keeps_empty(CRC32), keeps_empty(CRC32_CONSISTENT)
    (False, True)
    """
    return name != CRC32


def is_known(name: str) -> bool:
    """Whether anybody can compute the hash of that name."""
    return name in KNOWN_HASHES or bool(json_fields(name))


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
        match self:
            case KeyFormat.STRING:
                return ("VARCHAR",)
            case KeyFormat.LONG:
                return ("BIGINT",)
            case KeyFormat.INT:
                return ("INTEGER",)
            case KeyFormat.DOUBLE:
                return ("DOUBLE",)
            case KeyFormat.UUID:
                return ("VARCHAR", "UUID")
            case KeyFormat.BYTES:
                return ("BLOB",)


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

    def __str__(self) -> str:
        return f"{self.hash} keys" if json_fields(self.hash) else f"{self.hash} of {self.key_format} keys"


GATHERED = KeyHash(KeyFormat.STRING, MURMUR2, gathered=True)


class Placement(Value, frozen=True, order=True):
    """Where records lie: in partition `hash(key) mod partitions`, with the key serialised as `key_format`. Records
    gathered into one partition have no key.

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

    def __str__(self) -> str:
        if not self.key:
            return "gathered into one" if self.partitions == 1 else f"anywhere in {self.partitions}"
        if fields := json_fields(self.hash):
            named = "" if self.key in (f"({', '.join(fields)})", f"({fields[0]},)") else f", by {self.key}"
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


def possible_hashes(key_format: str, fields: Sequence[str] = ()) -> list[tuple[HashName, HashName]]:
    """The hashes by which keys of a format may lie, or keys that are a JSON object of these fields: how a stream
    declares each, and its name.

    >>> [declared for declared, _ in possible_hashes("bytes")][-1], possible_hashes("string", ["id"])[0]
    ('murmur3', ('murmur2', 'murmur2 of json(id)'))
    """
    if fields:
        return [(name, json_hash(name, fields)) for name in HASHES_OF_BYTES]
    return [(name, name) for name in KNOWN_HASHES if not any(hash_findings(name, key_format, "key"))]


def no_java_hash(where: str) -> Finding:
    """What is wrong with byte keys under Java's hash."""
    what = "Java hashes a byte array by where it lies in memory, so equal keys have no common hash"
    then = f"declare how its producers place keys: {MURMUR2}, {CRC32}, {OPAQUE} or package.module:function"
    return Finding.of(Kind.DECLARATION, what, where, then, hash=JAVA, key_format=KeyFormat.BYTES)
