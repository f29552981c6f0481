"""Placement: where a producer puts a key, `h(key) mod count`; `partitioning.hashes` has the hashes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from partitioning.errors import Finding
from partitioning.imports import is_import_path

MURMUR2 = "murmur2"
JAVA = "java"
OPAQUE = "opaque"
PLACEMENTS = (MURMUR2, JAVA, OPAQUE)

# Kafka's serialisers, by the name that a stream declares.
KEY_FORMATS = ("string", "long", "int", "double", "uuid", "bytes")

# DuckDB types that can hold the keys of each key format.
KEY_TYPES = {
    "string": ("VARCHAR",),
    "long": ("BIGINT",),
    "int": ("INTEGER",),
    "double": ("DOUBLE",),
    "uuid": ("VARCHAR", "UUID"),
    "bytes": ("BLOB",),
}


@dataclass(frozen=True, order=True, slots=True)
class Placement:
    """Where records lie: in partition `hash(key) mod partitions` of `partitions`, the key column serialised as
    `key_format`. Without a key they were gathered into one partition.

    >>> print(Placement("tailnum", "string", "murmur2", 12))
    murmur2(tailnum) mod 12
    """

    key: str
    key_format: str
    hash: str
    partitions: int

    def __str__(self) -> str:
        if not self.key:
            return "gathered into one" if self.partitions == 1 else f"anywhere in {self.partitions}"
        return f"{self.hash}({self.key}) mod {self.partitions}"


def placement_findings(name: str, key_format: str, where: str) -> Iterator[Finding]:
    """What is wrong with a declared placement. Nothing is imported: that a function exists is seen when it is used."""
    if name not in PLACEMENTS and not is_import_path(name):
        known = ", ".join(PLACEMENTS)
        yield Finding(f"unknown placement {name!r}", where, f"use one of {known}, or package.module:function")
    if name == JAVA and key_format == "bytes":
        yield no_java_hash(where)


def no_java_hash(where: str) -> Finding:
    """What is wrong with bytes as keys under Java's hash."""
    what = "Java hashes a byte array by where it lies in memory, so equal keys have no common hash"
    return Finding(what, where, f"declare how its producers place keys: {MURMUR2}, {OPAQUE} or package.module:function")
