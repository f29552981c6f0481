"""Documents: frozen values as canonical JSON with a format, a version and a digest of their own.

The same value always gives the same bytes. A document that was changed or cut short, or whose format is newer than
this version knows, is refused when it is read. One of an older format is read by the steps of `upgrades`.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from threading import Lock
from typing import Any, TypeVar

import msgspec

from partitioning.documents.plan_form import from_form, to_form
from partitioning.documents.upgrades import steps_from
from partitioning.errors import Finding, Refused
from partitioning.kinds import Kind
from partitioning.model.plan import Plan
from partitioning.values import Document
from partitioning.version import VERSION

D = TypeVar("D", bound=Document)

_DIGEST = "digest of this value"
# For a document read from an older format: the digest of the stored bytes.
_STORED = "digest of the stored bytes"
_FORMAT = re.compile(r"(?P<name>[a-z.]+)/(?P<version>[1-9][0-9]{0,8})")
_RELEASE = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){2}")
_NOT_CANONICAL = "was written by something else: its bytes are not in canonical form"
_LEARNING = Lock()
_NO_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_UNFIT = (msgspec.DecodeError, Refused, TypeError, KeyError, ValueError, AttributeError, IndexError, RecursionError)


def canonical(value: Any) -> bytes:
    """JSON with sorted keys and no spaces, in UTF-8, of plain data and values.

    >>> canonical({"b": (1, 2), "a": "é"})
    b'{"a":"\\xc3\\xa9","b":[1,2]}'

    UTF-8 has no half of a surrogate pair, which arguments and messages of Python may hold: it becomes an escape.

    >>> canonical(["\\udcff"])
    b'["\\\\\\\\udcff"]'
    """
    try:
        return msgspec.json.encode(value, order="sorted")
    except UnicodeEncodeError:
        return msgspec.json.encode(_escaped(msgspec.to_builtins(value)), order="sorted")


def _escaped(value: Any) -> Any:
    match value:
        case str():
            return value.encode(errors="backslashreplace").decode()
        case dict():
            return {_escaped(name): _escaped(each) for name, each in value.items()}
        case list() | tuple():
            return [_escaped(each) for each in value]
        case _:
            return value


def digest_of(data: bytes) -> str:
    """`sha256:` and the hexadecimal digest."""
    return _digest([data])


def digest(document: Document) -> str:
    """The identity of a document: the digest of its canonical bytes, in the format in which it was written.

    It is computed once.
    """
    kept: dict[str, str] = document.__dict__
    if _STORED in kept:
        return kept[_STORED]
    if _DIGEST not in kept:
        kept[_DIGEST] = _digest(_pieces(_members(document)))
    return kept[_DIGEST]


def encode(document: Document) -> bytes:
    """The bytes to store; `decode` gives the document back.

    Raises ValueError for a document that was read from an older format: other bytes would be another document.
    """
    if _STORED in document.__dict__:
        raise ValueError(f"{digest(document)} was read from an older format: the store has its bytes")
    return b"".join(_pieces(_members(document) | {"digest": digest(document)}))


def plain(document: Document) -> dict[str, Any]:
    """A document as plain data for people and programs: nothing is drawn together, as it is when it is stored."""
    fields: dict[str, Any] = msgspec.to_builtins(document, enc_hook=tuple)
    return {"format": document.FORMAT, "digest": digest(document)} | fields


def pack(data: bytes) -> bytes:
    """The bytes in gzip's format, always the same for the same bytes and version of zlib."""
    return gzip.compress(data, mtime=0)


def unpack(data: bytes, where: str) -> bytes:
    """The data that `pack` compressed. Raises Refused if it is not complete."""
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise Refused(_corrupt(where, f"cannot be unpacked: {error}")) from error


def decode(kind: type[D], data: bytes, where: str) -> D:
    """Read a stored document back. `where` names the object in errors.

    Raises Refused for anything that `encode` of this version, or of one before, did not write.
    """
    form, members, stated = _read(data, where)
    version = _version(kind, form, members, where)
    if _digest(_pieces(members)) != stated:
        raise Refused(_corrupt(where, _spoiled(data, stated)))
    # The conversion below goes by what this works out.
    decoder(kind)
    try:
        members = _upgraded(kind, version, members)
        document = msgspec.convert(from_form(members) if kind is Plan else _decoded(members), kind)
    except _UNFIT as error:
        raise Refused(_corrupt(where, f"does not fit {form}: {error}")) from error
    if form != kind.FORMAT:
        document.__dict__[_STORED] = stated
        written: Iterable[bytes | memoryview] = [canonical(msgspec.json.decode(data))]
    else:
        written = _pieces(_members(document) | {"digest": digest(document)})
    if not _consists_of(data, written):
        raise Refused(_corrupt(where, _NOT_CANONICAL))
    return document


@cache
def decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """What decodes the JSON of a kind of document, or of a union of values, worked out once.

    A thread that decodes while another works that out for the same classes ends the process by a segmentation fault.
    """
    with _LEARNING:
        return msgspec.json.Decoder(kind)


def _read(data: bytes, where: str) -> tuple[Any, dict[str, msgspec.Raw], Any]:
    """A document's format, its members, each in JSON as a plan's are long, and the digest that it states."""
    try:
        members = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        return msgspec.json.decode(members["format"]), members, msgspec.json.decode(members.pop("digest"))
    except (msgspec.ValidationError, KeyError):
        raise Refused(_corrupt(where, "has no format and digest")) from None
    except _NO_JSON as error:
        raise Refused(_corrupt(where, f"is no JSON: {error}")) from error


def _version(kind: type[Document], form: Any, members: Mapping[str, msgspec.Raw], where: str) -> int:
    """The version of a document's format. Raises Refused if it is of another kind, or newer than this version knows."""
    name, _, current = kind.FORMAT.partition("/")
    match = _FORMAT.fullmatch(form) if isinstance(form, str) else None
    if match is None or match["name"] != name:
        raise Refused(_corrupt(where, f"is {form!r}, not {kind.FORMAT!r}"))
    if (version := int(match["version"])) > int(current):
        what = f"the document is {form}, and this Coset, {VERSION}, reads up to {kind.FORMAT}"
        then = f"use {_writer(members)}, or a newer one; nothing was changed"
        raise Refused.of(Kind.DOCUMENT_FORMAT, what, where, then, form=form)
    return version


def _writer(members: Mapping[str, msgspec.Raw]) -> str:
    """The version of Coset that wrote a document; only plans say which."""
    planner = str(msgspec.json.decode(members.get("planner", msgspec.Raw(b'""'))))
    return f"Coset {planner}" if _RELEASE.fullmatch(planner) else "the version of Coset that wrote it"


def _upgraded(kind: type[Document], version: int, members: Mapping[str, msgspec.Raw]) -> dict[str, msgspec.Raw]:
    """The members of a document of an older format, as they are in the current one."""
    steps = steps_from(kind.FORMAT.partition("/")[0], version)
    if not steps:
        return dict(members)
    stored = _decoded(members)
    for step in steps:
        stored = step(stored)
    return {name: msgspec.Raw(canonical(value)) for name, value in stored.items()}


def _decoded(members: Mapping[str, msgspec.Raw]) -> dict[str, Any]:
    return {name: msgspec.json.decode(raw) for name, raw in members.items() if name != "format"}


def _spoiled(data: bytes, stated: Any) -> str:
    """The finding for a document whose bytes do not have the digest that it states."""
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
    then = "restore it from a backup; it is never rebuilt by guessing"
    return Finding.of(Kind.DOCUMENT_DAMAGED, f"the document {what}", where, then, document=where, what=what)
