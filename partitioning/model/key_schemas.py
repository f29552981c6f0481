"""Key schemas: how the serialisers of a schema registry write keys, as the name of a hash says it.

Confluent's put a zero byte and the schema's id before a key, Protobuf's also which message it is; producers hash all of
it. What a hash says of a key, `avro 7(id long)`, is all that its bytes depend on: no plan holds a schema's text.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache

from partitioning.values import Value


class Framing(StrEnum):
    """Whose serialiser wrote a key behind a schema's id, by the word that a stream declares."""

    AVRO = "avro"
    PROTOBUF = "protobuf"
    JSON_SCHEMA = "json-schema"


_SCHEMA = re.compile(rf"({'|'.join(Framing)}) (\d+)((?:\.\d+)*)\((.*)\)")
_NULL = "null"
_OPTIONAL = "optional"


class KeyField(Value, frozen=True):
    """A field of a key as it is written: its type, in Protobuf its number. `null` says how a null is: as the first or
    the second of an Avro union, `0` or `1`, in Protobuf as no field, `0`; None if no value can be null."""

    name: str
    type: str = ""
    number: int = 0
    null: int | None = None


class KeySchema(Value, frozen=True):
    """A schema of keys: its id in the registry, the fields in the order of the schema, and in Protobuf which `message`
    it is, by the indexes in its file. An Avro schema that is no record has one field, without a name.

    >>> print(KeySchema(Framing.AVRO, 7, (KeyField("id", "long"), KeyField("land", "string", null=0))))
    avro 7(id long, land null|string)
    >>> print(KeySchema(Framing.PROTOBUF, 6, (KeyField("id", "int64", 1), KeyField("land", "string", 2, 0)), (1,)))
    protobuf 6.1(id 1 int64, land 2 optional string)
    >>> print(KeySchema(Framing.AVRO, 8, (KeyField("", "string"),)))
    avro 8(string)
    """

    framing: Framing
    id: int
    fields: tuple[KeyField, ...]
    message: tuple[int, ...] = (0,)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a key has; none if it is one value."""
        return tuple(field.name for field in self.fields if field.name)

    def __str__(self) -> str:
        message = "" if self.message == (0,) else "".join(f".{index}" for index in self.message)
        return f"{self.framing} {self.id}{message}({', '.join(map(self._text, self.fields))})"

    def _text(self, field: KeyField) -> str:
        match self.framing:
            case Framing.JSON_SCHEMA:
                return field.name
            case Framing.PROTOBUF:
                optional = () if field.null is None else (_OPTIONAL,)
                return " ".join((field.name, str(field.number), *optional, field.type))
            case Framing.AVRO:
                union = [field.type] if field.null is None else [field.type, _NULL]
                return f"{field.name} {'|'.join(union[::-1] if field.null == 0 else union)}".strip()


@lru_cache(1024)
def key_schema(text: str) -> KeySchema | None:
    """The schema of which `text` is the form; None if it is of none.

    >>> [str(key_schema(text)) for text in ("avro 7(string|null)", "protobuf 6.1.0(a b 1 optional bool)", "json(id)")]
    ['avro 7(string|null)', 'protobuf 6.1.0(a b 1 optional bool)', 'None']
    """
    if (match := _SCHEMA.fullmatch(text)) is None:
        return None
    framing = Framing(match[1])
    fields = tuple(_field(framing, text) for text in match[4].split(", "))
    return KeySchema(framing, int(match[2]), fields, tuple(map(int, match[3].split(".")[1:])) or (0,))


def _field(framing: Framing, text: str) -> KeyField:
    match framing:
        case Framing.JSON_SCHEMA:
            return KeyField(text)
        case Framing.PROTOBUF:
            named, _, kind = text.rpartition(" ")
            always = named.removesuffix(f" {_OPTIONAL}")
            name, _, number = always.rpartition(" ")
            return KeyField(name, kind, int(number), None if always == named else 0)
        case Framing.AVRO:
            name, _, kinds = text.rpartition(" ")
            first, _, second = kinds.partition("|")
            if not second:
                return KeyField(name, first)
            return KeyField(name, second, null=0) if first == _NULL else KeyField(name, first, null=1)
