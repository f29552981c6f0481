"""Documents: frozen dataclasses as canonical JSON with a format, a version and a digest of their own.

The same value always gives the same bytes. A document that was changed, cut short or written by a
version that this one does not know is refused when it is read.
"""

from __future__ import annotations

import dataclasses
import functools
import gzip
import hashlib
import json
import types
import typing
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeVar

from partitioning.documents.columns import from_columns, to_columns
from partitioning.errors import Finding, Refused

# Marks in a dataclass field's metadata: a long tuple is stored by columns; or as what differs from the tuple
# that a function makes of the other fields.
COLUMNS, RULE = "columns", "rule"


class Document(Protocol):
    """A frozen dataclass that names its `FORMAT`, such as `coset.plan/1`."""

    FORMAT: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Any]]


D = TypeVar("D", bound=Document)


def canonical(value: Any) -> bytes:
    """JSON with sorted keys, no spaces and no NaN, in UTF-8.

    >>> canonical({"b": (1, 2), "a": "é"})
    b'{"a":"\\xc3\\xa9","b":[1,2]}'
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode()


def digest_of(data: bytes) -> str:
    """`sha256:` and the hexadecimal digest."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def digest(document: Document) -> str:
    """The identity of a document: the digest of its canonical bytes."""
    return _digest(_members(document))


def encode(document: Document) -> bytes:
    """The bytes to store; `decode` gives the document back."""
    members = _members(document)
    return b"".join(_joined(members | {"digest": canonical(_digest(members))}))


def plain(document: Document) -> dict[str, Any]:
    """A document as plain data for people and programs: nothing is drawn together, as it is when it is stored."""
    return {"format": document.FORMAT, "digest": digest(document)} | dataclasses.asdict(typing.cast(Any, document))


def pack(data: bytes) -> bytes:
    """The bytes in gzip's format, always the same for the same bytes and version of zlib."""
    return gzip.compress(data, mtime=0)


def unpack(data: bytes, where: str) -> bytes:
    """What `pack` compressed. Raises Refused for anything that is not whole."""
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise Refused(_corrupt(where, f"cannot be unpacked: {error}")) from error


def decode(cls: type[D], data: bytes, where: str) -> D:
    """Read a stored document back. `where` names the object in errors.

    Raises Refused for anything that `encode` of this version did not write.
    """
    try:
        stored = json.loads(data, object_pairs_hook=_object, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Refused(_corrupt(where, f"is no JSON: {error}")) from error
    if not isinstance(stored, dict) or "format" not in stored or "digest" not in stored:
        raise Refused(_corrupt(where, "has no format and digest"))
    if stored["format"] != cls.FORMAT:
        raise Refused(
            Finding(
                f"the document is {stored['format']!r}, this version reads {cls.FORMAT!r}",
                where,
                "use the version of Coset that wrote it",
            )
        )
    _check_digest(stored, where)
    try:
        built = _build(cls, {name: stored[name] for name in stored if name not in {"format", "digest"}})
    except (TypeError, KeyError, ValueError, AttributeError, IndexError) as error:
        raise Refused(_corrupt(where, f"does not fit {cls.FORMAT}: {error}")) from error
    document = typing.cast(D, built)
    if encode(document) != data:
        raise Refused(_corrupt(where, "was written by something else: its bytes are not in canonical form"))
    return document


def _check_digest(stored: dict[str, Any], where: str) -> None:
    try:
        found = digest_of(canonical({name: value for name, value in stored.items() if name != "digest"}))
    except (ValueError, RecursionError) as error:
        raise Refused(_corrupt(where, f"has no canonical form: {error}")) from error
    if stored["digest"] != found:
        raise Refused(_corrupt(where, f"has digest {found} but states {stored['digest']}"))


def _corrupt(where: str, what: str) -> Finding:
    return Finding(f"the document {what}", where, "restore it from a backup; it is never rebuilt by guessing")


def _members(document: Document) -> dict[str, bytes]:
    """A document's fields and its format, each as canonical JSON."""
    fields = dataclasses.fields(typing.cast(Any, document))
    return {"format": canonical(document.FORMAT)} | {field.name: _member(document, field) for field in fields}


def _member(document: Document, field: dataclasses.Field[Any]) -> bytes:
    value = getattr(document, field.name)
    if isinstance(value, tuple) and not field.metadata:
        # One item after the other: a plan's streams as plain data would take as much memory as the plan.
        return b"[" + b",".join(canonical(_plain(item)) for item in value) + b"]"
    return canonical(_field(document, field))


def _joined(members: Mapping[str, bytes]) -> Iterator[bytes]:
    for place, name in enumerate(sorted(members)):
        yield (b"," if place else b"{") + canonical(name) + b":"
        yield members[name]
    yield b"}"


def _digest(members: Mapping[str, bytes]) -> str:
    found = hashlib.sha256()
    for part in _joined(members):
        found.update(part)
    return f"sha256:{found.hexdigest()}"


def _plain(value: Any) -> Any:
    """A value as JSON has it; fields that say so are drawn together."""
    if isinstance(value, str | int | None):
        return value
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, float):
        return value
    return {field.name: _field(value, field) for field in dataclasses.fields(value)}


def _field(owner: Any, field: dataclasses.Field[Any]) -> Any:
    value = getattr(owner, field.name)
    if COLUMNS in field.metadata:
        return to_columns(_row(type(owner), field.name), value)
    if RULE in field.metadata:
        others = {each.name: getattr(owner, each.name) for each in dataclasses.fields(owner)}
        return _exceptions(field.metadata[RULE](others), value)
    return _plain(value)


def _row(owner: type, field: str) -> Any:
    """The dataclass that a tuple field holds."""
    return typing.get_args(_hints(owner)[field])[0]


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise ValueError(f"a name is there twice among {names}")
    return dict(pairs)


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is no JSON number")


def _build(kind: Any, value: Any) -> Any:
    """Turn plain JSON into `kind`: dataclasses, tuples, mappings of text, optional values, scalars."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        return _build_dataclass(kind, value)
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in arguments:
            return None
        (kind,) = [argument for argument in arguments if argument is not type(None)]
        return _build(kind, value)
    if origin is tuple:
        if not isinstance(value, list):
            raise TypeError(f"{value!r} is no list")
        return tuple(_build(arguments[0], item) for item in value)
    if origin is Mapping:
        return {_build(str, name): _build(arguments[1], item) for name, item in value.items()}
    if type(value) is not kind:
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _build_dataclass(kind: Any, value: Any) -> Any:
    hints, fields = _hints(kind), dataclasses.fields(kind)
    names = [field.name for field in fields]
    if not isinstance(value, dict) or set(value) != set(names):
        raise TypeError(f"{kind.__name__} has the fields {names}, not {value!r}"[:500])
    built = {}
    for field in fields:
        if COLUMNS in field.metadata:
            built[field.name] = from_columns(_row(kind, field.name), value[field.name])
        elif RULE not in field.metadata:
            built[field.name] = _build(hints[field.name], value[field.name])
    for field in fields:
        if RULE in field.metadata:
            ruled = field.metadata[RULE](built)
            built[field.name] = _with_exceptions(_row(kind, field.name), ruled, value[field.name])
    return kind(**built)


def _exceptions(ruled: Sequence[Any], there: Sequence[Any]) -> dict[str, Any]:
    """How many there are, and those that are not as the rule says, by their place."""
    differing = {
        str(place): _plain(value) for place, value in enumerate(there) if place >= len(ruled) or value != ruled[place]
    }
    return {"count": len(there), "exceptions": differing}


def _with_exceptions(kind: Any, ruled: Sequence[Any], stored: Any) -> tuple[Any, ...]:
    exceptions = {int(place): _build(kind, value) for place, value in stored["exceptions"].items()}
    return tuple(exceptions[place] if place in exceptions else ruled[place] for place in range(stored["count"]))
