"""Deletion vectors: files with the numbers of the rows of data files that are dead.

Source: the Delta protocol, "Deletion Vectors" and "Deletion Vector Format". Roaring bitmaps are those of pyroaring.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any
from uuid import UUID

from pyroaring import BitMap64

from partitioning.documents.store import Store
from partitioning.errors import Refused
from partitioning.kinds import Kind

Vector = Mapping[str, Any]

_MAGIC = struct.pack("<I", 1681511377)
_FORMAT = b"\x01"
_AROUND = 4
# Both are base 85 in the same order, with other digits: those of RFC 1924, which Python has, and those of ZeroMQ's Z85.
_RFC = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
PREFIX = "deletion_vector_"
_NAME = PREFIX + "{}.bin"
WRITTEN_AGAIN = (
    'set updates="rewrite" for the table in the pipeline and plan the batch anew: partitions that it has keys of are '
    "written from state"
)


def packed(version: int, rows: Sequence[BitMap64]) -> tuple[str, bytes, list[dict[str, Any]]]:
    """The name and the content of a file with these rows of several data files, and for each its vector in the log.

    The name says the `version` of the table that is to have it, so that it is known when nothing can need it any more.
    """
    content, places = bytearray(_FORMAT), list[tuple[int, int]]()
    for each in rows:
        payload = _MAGIC + each.serialize()
        places.append((len(content), len(payload)))
        content += struct.pack(">I", len(payload)) + payload + struct.pack(">I", zlib.crc32(payload))
    named = bytearray(struct.pack(">Q", version)[2:] + sha256(content).digest()[:10])
    # Version 8 of RFC 9562, whose bits are the application's own.
    named[6], named[8] = 0x80 | named[6] & 0x0F, 0x80 | named[8] & 0x3F
    identity = UUID(bytes=bytes(named))
    text = base64.b85encode(identity.bytes).translate(bytes.maketrans(_RFC, _Z85)).decode()
    vectors = [
        {"storageType": "u", "pathOrInlineDv": text, "offset": start, "sizeInBytes": size, "cardinality": len(each)}
        for (start, size), each in zip(places, rows, strict=True)
    ]
    return _NAME.format(identity), bytes(content), vectors


def file_of(vector: Vector) -> str | None:
    """The file of a vector, below its table's folder. None if it lies in the log or elsewhere."""
    if vector["storageType"] != "u":
        return None
    *prefix, text = vector["pathOrInlineDv"][:-20], vector["pathOrInlineDv"][-20:]
    folder = f"{prefix[0]}/" if prefix[0] else ""
    return folder + _NAME.format(UUID(bytes=_decoded(text)))


def version_of(name: str) -> int | None:
    """The version for which a file of vectors was made. None if Coset did not make it.

    >>> name, _, (vector,) = packed(300, [BitMap64([1, 7])])
    >>> version_of(name), file_of(vector) == name, vector["cardinality"]
    (300, True, 2)
    >>> version_of("deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin")
    """
    try:
        identity = UUID(name.removeprefix(PREFIX).removesuffix(".bin"))
    except ValueError:
        return None
    return int.from_bytes(identity.bytes[:6]) if identity.version == 8 else None


def dead(store: Store, vector: Vector | None, contents: dict[str, bytes | None]) -> BitMap64:
    """The rows that a vector names; `store` is the table's folder, and `contents` what is known of its files.

    Raises Refused if the file is not as the log says.
    """
    if vector is None:
        return BitMap64()
    name = file_of(vector)
    if vector["storageType"] == "i":
        payload: bytes | None = _decoded(vector["pathOrInlineDv"])[: vector["sizeInBytes"]]
    elif name is None:
        raise _damaged(store, vector["pathOrInlineDv"], "it lies outside its table, where Coset does not read it")
    else:
        if name not in contents:
            contents[name] = store.get(name)
        payload = _payload(contents[name], vector)
    if payload is None or payload[:_AROUND] != _MAGIC:
        raise _damaged(store, name or "", "it is missing, or not what the log says")
    rows = BitMap64.deserialize(payload[_AROUND:])
    if len(rows) != vector["cardinality"]:
        raise _damaged(store, name or "", "it has another number of rows than the log says")
    return rows


def _payload(content: bytes | None, vector: Vector) -> bytes | None:
    """The part of a file that is a vector, if it has the size and the checksum that stand around it."""
    start = vector.get("offset", 1)
    begins, ends = start + _AROUND, start + _AROUND + vector["sizeInBytes"]
    if content is None or len(content) < ends + _AROUND:
        return None
    size, check = content[start:begins], content[ends : ends + _AROUND]
    payload = content[begins:ends]
    intact = int.from_bytes(size) == len(payload) and int.from_bytes(check) == zlib.crc32(payload)
    return payload if intact else None


def _decoded(text: str) -> bytes:
    return base64.b85decode(text.encode().translate(bytes.maketrans(_Z85, _RFC)))


def _damaged(store: Store, name: str, why: str) -> Refused:
    what = f"a deletion vector cannot be read: {why}"
    then = f"restore it from a backup; or {WRITTEN_AGAIN}"
    return Refused.of(Kind.FILE_GONE, what, store.uri(name), then, file=name, why=why)
