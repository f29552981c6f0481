"""The schemas of keys in Avro and Protobuf, read from the texts that a registry has of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from partitioning.framed_keys import AVRO_TYPES, PROTOBUF_TYPES
from partitioning.model.key_schemas import KeyField

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_WORD = re.compile(r"""[\w.]+|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\S""")
# `optional int64 id = 2`, perhaps with options behind it.
_FIELD = re.compile(r"(?:(optional|required|repeated) )?(.+) (\w+) = (\d+)(?: \[.*)?")
_NO_FIELD = ("option", "reserved", "extensions")


def avro_fields(text: str) -> tuple[KeyField, ...]:
    """The fields of an Avro record; one without a name of a schema that is none.

    >>> avro_fields('{"type": "string", "avro.java.string": "String"}')
    (KeyField(name='', type='string', number=0, null=None),)

    Raises ValueError for a text that is no schema, and for what no key is made of here.
    """
    schema = json.loads(text)
    if not (isinstance(schema, dict) and schema.get("type") == "record"):
        return (_avro_field("", schema),)
    if not isinstance(fields := schema.get("fields"), list) or not fields:
        raise ValueError("a record without fields")
    return tuple(_avro_field(field["name"], field["type"]) for field in fields)


def _avro_field(name: str, declared: Any) -> KeyField:
    if name and isinstance(declared, list) and len(declared) == 2 and "null" in declared:
        null = declared.index("null")
        return KeyField(name, _avro_field(name, declared[1 - null]).type, null=null)
    kind = declared
    if isinstance(declared, dict) and "logicalType" not in declared:
        kind = declared.get("type")
    if kind not in AVRO_TYPES:
        of = f"field {name!r} is" if name else "the key is"
        known = f"{', '.join(AVRO_TYPES)} are, in a record each also with null in a union"
        raise ValueError(f"{of} {json.dumps(declared)}, which is not known of keys: {known}")
    return KeyField(name, kind)


def protobuf_message(text: str, columns: Sequence[str]) -> tuple[tuple[int, ...], tuple[KeyField, ...]]:
    """The message of a Protobuf file that has these fields and no others: its indexes in the file, and its fields.

    >>> protobuf_message('syntax = "proto3"; message A {} message K { int64 id = 3; }', ["id"])
    ((1,), (KeyField(name='id', type='int64', number=3, null=None),))

    Raises ValueError if no message or several have these fields, and for types that no key is made of here.
    """
    words = _words(text)
    found = [
        (path, fields) for path, fields in _messages(iter(words), ()) if [each[2] for each in fields] == [*columns]
    ]
    if len(found) != 1:
        have = f"{len(found)} messages have" if found else "no message has"
        raise ValueError(f"{have} the fields {', '.join(columns)}, in this order and no others")
    ((path, fields),) = found
    # Before proto3, a field is there whatever its value.
    implicit = '"proto3"' in words or "'proto3'" in words
    return path, tuple(_protobuf_field(*field, implicit=implicit) for field in fields)


def protobuf_columns(text: str, message: tuple[int, ...]) -> tuple[str, ...]:
    """The names of the fields of a message of a Protobuf file, by its indexes.

    >>> protobuf_columns('syntax = "proto3"; message A {} message K { int64 id = 3; }', (1,))
    ('id',)

    Raises ValueError if the file has no such message.
    """
    for path, fields in _messages(iter(_words(text)), ()):
        if path == message:
            return tuple(name for _, _, name, _ in fields)
    raise ValueError(f"there is no message {message}")


def _words(text: str) -> list[str]:
    return _WORD.findall(_COMMENT.sub(" ", text))


def _protobuf_field(label: str, kind: str, name: str, number: str, *, implicit: bool) -> KeyField:
    if kind not in PROTOBUF_TYPES or label == "repeated":
        what = f"field {name!r} is {f'{label} {kind}'.strip()}, which is not known of keys"
        raise ValueError(f"{what}: {', '.join(PROTOBUF_TYPES)} are")
    return KeyField(name, kind, int(number), None if implicit and not label else 0)


_Fields = list[tuple[str, str, str, str]]


def _messages(words: Iterator[str], path: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], _Fields]]:
    """The messages within a file or message, and at last itself: its indexes, and label, type, name and number of each
    field."""
    fields: _Fields = []
    statement: list[str] = []
    inner = 0
    for word in words:
        if word == "{" and statement[:1] == ["message"]:
            yield from _messages(words, (*path, inner))
            inner += 1
        elif word == "{":
            _pass_over(words)
            if statement[:1] == ["oneof"]:
                fields.append(("", "oneof", statement[-1], "0"))
        elif word == "}":
            break
        elif word != ";":
            statement.append(word)
            continue
        elif (match := _FIELD.fullmatch(" ".join(statement))) and statement[0] not in _NO_FIELD:
            fields.append((match[1] or "", match[2], match[3], match[4]))
        statement = []
    if path:
        yield path, fields


def _pass_over(words: Iterator[str]) -> None:
    """Go on behind the bracket that closes an open one."""
    for word in words:
        if word == "}":
            return
        if word == "{":
            _pass_over(words)
