"""Documents: frozen dataclasses as canonical JSON with a format, a version and a digest of their own.

The same value always gives the same bytes. A document that was changed, cut short or written by a
version that this one does not know is refused when it is read.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import types
import typing
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, TypeVar

from partitioning.errors import Finding, Refused


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
    return digest_of(canonical(_plain(document)))


def encode(document: Document) -> bytes:
    """The bytes to store; `decode` gives the document back."""
    return canonical(_plain(document) | {"digest": digest(document)})


def decode(cls: type[D], data: bytes, where: str) -> D:
    """Read a stored document back. `where` names the object in errors.

    Raises Refused for anything that `encode` of this version did not write.
    """
    try:
        plain = json.loads(data, object_pairs_hook=_object, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Refused(_corrupt(where, f"is no JSON: {error}")) from error
    if not isinstance(plain, dict) or "format" not in plain or "digest" not in plain:
        raise Refused(_corrupt(where, "has no format and digest"))
    if plain["format"] != cls.FORMAT:
        raise Refused(
            Finding(
                f"the document is {plain['format']!r}, this version reads {cls.FORMAT!r}",
                where,
                "use the version of Coset that wrote it",
            )
        )
    _check_bytes(plain, data, where)
    try:
        return typing.cast(D, _build(cls, {name: plain[name] for name in plain if name not in {"format", "digest"}}))
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise Refused(_corrupt(where, f"does not fit {cls.FORMAT}: {error}")) from error


def _check_bytes(plain: dict[str, Any], data: bytes, where: str) -> None:
    """Refuse what is not, byte for byte, the canonical form with its own digest."""
    try:
        found = digest_of(canonical({name: value for name, value in plain.items() if name != "digest"}))
        same = canonical(plain) == data
    except (ValueError, RecursionError) as error:
        raise Refused(_corrupt(where, f"has no canonical form: {error}")) from error
    if plain["digest"] != found:
        raise Refused(_corrupt(where, f"has digest {found} but states {plain['digest']}"))
    if not same:
        raise Refused(_corrupt(where, "was written by something else: its bytes are not in canonical form"))


def _corrupt(where: str, what: str) -> Finding:
    return Finding(f"the document {what}", where, "restore it from a backup; it is never rebuilt by guessing")


def _plain(document: Document) -> dict[str, Any]:
    return {"format": document.FORMAT} | dataclasses.asdict(typing.cast(Any, document))


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
    hints = _hints(kind)
    names = [field.name for field in dataclasses.fields(kind)]
    if not isinstance(value, dict) or set(value) != set(names):
        raise TypeError(f"{kind.__name__} has the fields {names}, not {value!r}"[:500])
    return kind(**{name: _build(hints[name], value[name]) for name in names})
