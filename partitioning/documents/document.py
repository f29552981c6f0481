"""Documents: frozen values as canonical JSON with a format, a version and a digest of their own.

The same value always gives the same bytes. A document that was changed, cut short or written by a
version that this one does not know is refused when it is read.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from partitioning.documents.plan_form import from_form, to_form
from partitioning.errors import Finding, Refused
from partitioning.model.plan import Plan
from partitioning.values import Document

D = TypeVar("D", bound=Document)

_DIGEST = "digest of this value"
_NOT_CANONICAL = "was written by something else: its bytes are not in canonical form"
_NO_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_UNFIT = (msgspec.DecodeError, Refused, TypeError, KeyError, ValueError, AttributeError, IndexError, RecursionError)


def canonical(value: Any) -> bytes:
    """JSON with sorted keys and no spaces, in UTF-8, of plain data and values.

    >>> canonical({"b": (1, 2), "a": "é"})
    b'{"a":"\\xc3\\xa9","b":[1,2]}'
    """
    return msgspec.json.encode(value, order="sorted")


def digest_of(data: bytes) -> str:
    """`sha256:` and the hexadecimal digest."""
    return _digest([data])


def digest(document: Document) -> str:
    """The identity of a document: the digest of its canonical bytes. It is worked out once."""
    kept: dict[str, str] = document.__dict__
    if _DIGEST not in kept:
        kept[_DIGEST] = _digest(_pieces(_members(document)))
    return kept[_DIGEST]


def encode(document: Document) -> bytes:
    """The bytes to store; `decode` gives the document back."""
    return b"".join(_pieces(_members(document) | {"digest": digest(document)}))


def plain(document: Document) -> dict[str, Any]:
    """A document as plain data for people and programs: nothing is drawn together, as it is when it is stored."""
    fields: dict[str, Any] = msgspec.to_builtins(document, enc_hook=tuple)
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
    members, stated = _read(kind, data, where)
    if _digest(_pieces(members)) != stated:
        raise Refused(_corrupt(where, _spoiled(data, stated)))
    try:
        document = msgspec.convert(from_form(members) if kind is Plan else _decoded(members), kind)
    except _UNFIT as error:
        raise Refused(_corrupt(where, f"does not fit {kind.FORMAT}: {error}")) from error
    if not _consists_of(data, _pieces(_members(document) | {"digest": digest(document)})):
        raise Refused(_corrupt(where, _NOT_CANONICAL))
    return document


def _read(kind: type[Document], data: bytes, where: str) -> tuple[dict[str, msgspec.Raw], Any]:
    """A document's members, each in JSON as a plan's are long, and the digest that it states."""
    try:
        members = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        form, stated = msgspec.json.decode(members["format"]), msgspec.json.decode(members.pop("digest"))
    except (msgspec.ValidationError, KeyError):
        raise Refused(_corrupt(where, "has no format and digest")) from None
    except _NO_JSON as error:
        raise Refused(_corrupt(where, f"is no JSON: {error}")) from error
    if form != kind.FORMAT:
        raise Refused(
            Finding(
                f"the document is {form!r}, this version reads {kind.FORMAT!r}",
                where,
                "use the version of Coset that wrote it",
            )
        )
    return members, stated


def _decoded(members: Mapping[str, msgspec.Raw]) -> dict[str, Any]:
    return {name: msgspec.json.decode(raw) for name, raw in members.items() if name != "format"}


def _spoiled(data: bytes, stated: Any) -> str:
    """What is wrong with a document whose bytes do not have the digest that it states."""
    try:
        stored = msgspec.json.decode(data)
    except _NO_JSON as error:
        return f"is no JSON: {error}"
    del stored["digest"]
    actual = digest_of(canonical(stored))
    return _NOT_CANONICAL if actual == stated else f"has digest {actual} but states {stated}"


def _consists_of(data: bytes, pieces: Iterable[bytes | memoryview]) -> bool:
    """Whether the data are these pieces one after the other."""
    view, place = memoryview(data), 0
    for piece in pieces:
        if view[place : place + len(piece)] != piece:
            return False
        place += len(piece)
    return place == len(data)


def _pieces(members: Mapping[str, Any]) -> Iterator[bytes | memoryview]:
    """An object's canonical bytes; those of what it iterates over one after the other."""
    opening = b"{"
    for name in sorted(members):
        yield opening + canonical(name) + b":"
        match members[name]:
            case msgspec.Raw() as raw:
                yield memoryview(raw)
            case Iterator() as values:
                yield from _listed(values)
            case value:
                yield canonical(value)
        opening = b","
    yield b"}"


def _listed(values: Iterator[Any]) -> Iterator[bytes]:
    opening = b"["
    for value in values:
        yield opening + canonical(value)
        opening = b","
    yield b"]" if opening == b"," else b"[]"


def _digest(pieces: Iterable[bytes | memoryview]) -> str:
    hashed = hashlib.sha256()
    for piece in pieces:
        hashed.update(piece)
    return f"sha256:{hashed.hexdigest()}"


def _members(document: Document) -> dict[str, Any]:
    """A document's format and fields, as they are stored."""
    if isinstance(document, Plan):
        return {"format": document.FORMAT} | to_form(document)
    fields = msgspec.structs.asdict(document)
    return {"format": document.FORMAT} | {name: value for name, value in fields.items() if value is not msgspec.UNSET}


def _corrupt(where: str, what: str) -> Finding:
    return Finding(f"the document {what}", where, "restore it from a backup; it is never rebuilt by guessing")
