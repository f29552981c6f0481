"""Documents: frozen values as canonical JSON with a format, a version and a digest of their own.

The same value always gives the same bytes. A document that was changed, cut short or written by a
version that this one does not know is refused when it is read.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from typing import Any, TypeVar

import msgspec

from partitioning.documents.plan_form import from_form, to_form
from partitioning.errors import Finding, Refused
from partitioning.model.plan import Plan
from partitioning.values import Document

D = TypeVar("D", bound=Document)

_DIGEST = "digest of this value"


def canonical(value: Any) -> bytes:
    """JSON with sorted keys and no spaces, in UTF-8, of plain data and values.

    >>> canonical({"b": (1, 2), "a": "é"})
    b'{"a":"\\xc3\\xa9","b":[1,2]}'
    """
    return msgspec.json.encode(value, order="sorted")


def digest_of(data: bytes) -> str:
    """`sha256:` and the hexadecimal digest."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def digest(document: Document) -> str:
    """The identity of a document: the digest of its canonical bytes. It is worked out once."""
    kept: dict[str, str] = document.__dict__
    if _DIGEST not in kept:
        kept[_DIGEST] = digest_of(canonical(_members(document)))
    return kept[_DIGEST]


def encode(document: Document) -> bytes:
    """The bytes to store; `decode` gives the document back."""
    return canonical(_members(document) | {"digest": digest(document)})


def plain(document: Document) -> dict[str, Any]:
    """A document as plain data for people and programs: nothing is drawn together, as it is when it is stored."""
    fields: dict[str, Any] = msgspec.to_builtins(document)
    return {"format": document.FORMAT, "digest": digest(document)} | fields


def pack(data: bytes) -> bytes:
    """The bytes in gzip's format, always the same for the same bytes and version of zlib."""
    return gzip.compress(data, mtime=0)


def unpack(data: bytes, where: str) -> bytes:
    """What `pack` compressed. Raises Refused for anything that is not whole."""
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise Refused(_corrupt(where, f"cannot be unpacked: {error}")) from error


def decode(kind: type[D], data: bytes, where: str) -> D:
    """Read a stored document back. `where` names the object in errors.

    Raises Refused for anything that `encode` of this version did not write.
    """
    try:
        stored = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(_corrupt(where, f"is no JSON: {error}")) from error
    if not isinstance(stored, dict) or "format" not in stored or "digest" not in stored:
        raise Refused(_corrupt(where, "has no format and digest"))
    if stored["format"] != kind.FORMAT:
        raise Refused(
            Finding(
                f"the document is {stored['format']!r}, this version reads {kind.FORMAT!r}",
                where,
                "use the version of Coset that wrote it",
            )
        )
    stated = stored.pop("digest")
    if stated != (actual := digest_of(canonical(stored))):
        raise Refused(_corrupt(where, f"has digest {actual} but states {stated}"))
    del stored["format"]
    try:
        document = msgspec.convert(from_form(stored) if kind is Plan else stored, kind)
    except (msgspec.ValidationError, Refused, TypeError, KeyError, ValueError, AttributeError, IndexError) as error:
        raise Refused(_corrupt(where, f"does not fit {kind.FORMAT}: {error}")) from error
    if encode(document) != data:
        raise Refused(_corrupt(where, "was written by something else: its bytes are not in canonical form"))
    return document


def _members(document: Document) -> dict[str, Any]:
    """A document's format and fields, as they are stored."""
    if isinstance(document, Plan):
        return {"format": document.FORMAT} | to_form(document)
    fields = msgspec.structs.asdict(document)
    return {"format": document.FORMAT} | {name: value for name, value in fields.items() if value is not msgspec.UNSET}


def _corrupt(where: str, what: str) -> Finding:
    return Finding(f"the document {what}", where, "restore it from a backup; it is never rebuilt by guessing")
