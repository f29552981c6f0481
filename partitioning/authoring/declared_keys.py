"""Declared keys: the key, its format and its hash, as a stream's declaration says how producers write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from partitioning.authoring.key_texts import avro_fields, protobuf_message
from partitioning.errors import Refused
from partitioning.imports import is_import_path
from partitioning.kinds import Kind
from partitioning.model.composite_key import bad_parts, composite
from partitioning.model.key_schemas import Framing, KeyField, KeySchema
from partitioning.model.placement import (
    HASHES_OF_BYTES,
    JSON,
    OPAQUE,
    HashName,
    KeyFormat,
    any_of,
    json_hash,
    schema_hash,
)

# The schemas by their ids in the registry, or the ids alone where keys say the rest.
KeySchemas = Mapping[int, str] | Sequence[int]
_FORMATS = {"string": KeyFormat.STRING, "long": KeyFormat.LONG, "int": KeyFormat.INT}


def declared_key(
    name: str, key: str | Sequence[str], key_format: str, hash: str, key_schemas: KeySchemas
) -> tuple[str, str, str]:
    """The key, key format and hash of a stream. Several columns are one key of text, whose hash says of which bytes it
    is, as does that of keys behind a registry's id. Raises Refused with all findings."""
    parts = None if isinstance(key, str) else tuple(key)
    if key_format in tuple(Framing):
        return _framed(name, key if isinstance(key, str) else tuple(key), Framing(key_format), hash, key_schemas)
    if key_schemas:
        what = f"key_schemas= is given, and keys of the format {key_format!r} have no schema's id"
        raise _wrong(name, what, f"leave it out, or declare key_format={_or(tuple(Framing))}", key_format=key_format)
    return (str(key), key_format, hash) if parts is None else _of_several(name, parts, key_format, hash)


def _framed(
    name: str, key: str | tuple[str, ...], framing: Framing, hash: str, key_schemas: KeySchemas
) -> tuple[str, str, str]:
    where, parts = f"stream {name!r}", () if isinstance(key, str) else key
    if parts and (findings := tuple(bad_parts(parts, where, 1))):
        raise Refused(*findings)
    if hash not in HASHES_OF_BYTES:
        what = f"the hash {hash!r} is not of the bytes that a serialiser of {framing} writes"
        then = f"declare hash={_or(HASHES_OF_BYTES)}; with another, leave key_format= and key_schemas= out"
        raise _wrong(name, what, then, hash=hash)
    if not key_schemas:
        what = f"keys in {framing} begin with the id of their schema, which is hashed, and no id is said"
        raise _wrong(name, what, f"declare those that keys have, the newest last: {_example(framing)}")
    if not parts and framing is not Framing.AVRO:
        what = f"keys in {framing} have fields, and key= names one column"
        raise _wrong(name, what, f'declare key=("{key}",), with the brackets, if the key has this field alone', key=key)
    schemas = [_schema(name, parts, framing, id, key_schemas) for id in key_schemas]
    hashed = any_of([schema_hash(HashName(hash), schema) for schema in schemas])
    if not isinstance(key, str):
        return composite(parts), KeyFormat.STRING, hashed
    kinds = sorted({schema.fields[0].type for schema in schemas})
    if len(kinds) > 1 or kinds[0] not in _FORMATS:
        what = f"the key {key!r} is one column, of {_or(kinds)}"
        raise _wrong(name, what, f"let it have one of the types {', '.join(_FORMATS)}, for all ids", kinds=kinds)
    return key, _FORMATS[kinds[0]], hashed


def _schema(name: str, parts: tuple[str, ...], framing: Framing, id: int, key_schemas: KeySchemas) -> KeySchema:
    if not isinstance(id, int) or isinstance(id, bool) or not 0 < id < 2**31:
        raise _wrong(name, f"{id!r} is no id of a schema", "write the registry's number of it", id=id)
    text = key_schemas[id] if isinstance(key_schemas, Mapping) else None
    if (text is None) is not (framing is Framing.JSON_SCHEMA):
        what = f"schema {id} is given {'without' if text is None else 'with'} its text"
        raise _wrong(name, what, f"write {_example(framing)}", id=id)
    message: tuple[int, ...] = (0,)
    try:
        match framing:
            case Framing.AVRO:
                fields = avro_fields(str(text))
            case Framing.PROTOBUF:
                message, fields = protobuf_message(str(text), parts)
            case Framing.JSON_SCHEMA:
                fields = tuple(map(KeyField, parts))
    except ValueError as error:
        then = 'correct it; keys of other types are declared with hash="package.module:function", or land as bytes'
        raise _wrong(name, f"key schema {id}: {error}", then, id=id) from error
    schema = KeySchema(framing, id, fields, message)
    if schema.columns != parts:
        of = f"the fields {', '.join(schema.columns)}" if schema.columns else "one value, without fields"
        columns = f"({', '.join(map(repr, schema.columns))},)" if schema.columns else "the name of one column"
        named = f"the fields {', '.join(parts)}" if parts else "one column, which is no field"
        what = f"key schema {id} has {of}, and key= names {named}"
        raise _wrong(name, what, f"write it as the schema does, in its order: key={columns}", id=id)
    return schema


def _of_several(name: str, key: tuple[str, ...], key_format: str, hash: str) -> tuple[str, str, str]:
    """The key, key format and hash of a stream whose key has several columns: the column that they make is text, and
    its hash says of which bytes it is. Raises Refused with all findings."""
    where = f"stream {name!r}"
    # An object of one column is another text than that column.
    if findings := tuple(bad_parts(key, where, 1 if key_format == JSON else 2)):
        raise Refused(*findings)
    by_function = is_import_path(hash)
    if key_format == JSON and not by_function:
        if hash == OPAQUE:
            return composite(key), KeyFormat.STRING, hash
        if hash in HASHES_OF_BYTES:
            return composite(key), KeyFormat.STRING, json_hash(HashName(hash), key)
        what = f"the hash {hash!r} is of no bytes that JSON could be"
        then = f"declare hash={' or '.join(map(repr, (*HASHES_OF_BYTES, OPAQUE)))}"
    elif key_format == KeyFormat.STRING and (by_function or hash == OPAQUE):
        return composite(key), KeyFormat.STRING, hash
    elif by_function or hash == OPAQUE:
        what = f"key_format={key_format!r} says nothing beside hash={hash!r}, which is of the columns' values"
        then = "leave key_format= out"
    else:
        what = f"the key has several columns, {', '.join(key)}: how its producer writes them together is not known"
        then = (
            f'declare key_format="{JSON}" if it writes a JSON object of them, in this order; else hash="{OPAQUE}", or '
            "hash='package.module:function', which is given their values as a JSON array"
        )
    raise _wrong(name, what, then, key=list(key), key_format=key_format, hash=hash)


def _example(framing: Framing) -> str:
    match framing:
        case Framing.AVRO:
            return """key_schemas={7: '"long"'}, or the text of a record"""
        case Framing.PROTOBUF:
            return "key_schemas={7: '…'}, with the text of the .proto file"
        case Framing.JSON_SCHEMA:
            return "key_schemas=[7]: its fields are the columns of key=, in their order"


def _or(words: Sequence[str]) -> str:
    return " or ".join(map(repr, words))


def _wrong(name: str, what: str, then: str, **values: object) -> Refused:
    return Refused.of(Kind.DECLARATION, what, f"stream {name!r}", then, stream=name, **values)
