"""Declarations: all options of a stream or table beside its name, key and partition count, and the Python of one."""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from os import PathLike, fspath
from typing import Any, TypedDict

from partitioning.authoring.key_texts import avro_fields, protobuf_message
from partitioning.authoring.words import FormatName, KeyFormatName, LayoutName, NullKey
from partitioning.errors import Refused, refuse
from partitioning.imports import is_import_path
from partitioning.kinds import Kind
from partitioning.model.allowance import REFUSE
from partitioning.model.allowance import bad_records as parsed
from partitioning.model.composite_key import bad_parts, composite
from partitioning.model.key_schemas import Framing, KeyField, KeySchema
from partitioning.model.placement import (
    HASHES_OF_BYTES,
    JSON,
    MURMUR2,
    OPAQUE,
    HashName,
    KeyFormat,
    any_of,
    bucket_hash,
    json_hash,
    schema_hash,
)
from partitioning.model.sources import FOLDER, IcebergSource, address_of, source_of
from partitioning.model.stream_rules import checked
from partitioning.model.streams import (
    DELETED,
    DENSE,
    OFFSET,
    USUAL_FORMAT,
    ChangeForm,
    Layout,
    NullKeys,
    Stream,
    sparseness,
)
from partitioning.model.watermarks import AHEAD, IDLE, EventTime

# The options of a declaration that are not as they are by default, with their values.
Options = Mapping[str, Any]
# Terminals would break a longer line of Python anywhere.
_LONGEST_LINE = 80
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
    refuse(bad_parts(key, where, 1 if key_format == JSON else 2))
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


_MICROSECOND = timedelta(microseconds=1)


class Declared(TypedDict, total=False):
    """Options of a stream or table:

    source: where it lies, `s3://…`, `kafka://…`, `iceberg://catalogue.namespace` or a folder's whole path, if not
        where the pipeline's others do.
    key_format: how its producers serialise keys: string (unless given), long, int, double, uuid or bytes; json if they
        write a JSON object of the columns of the key, which are several, or one as `key=("id",)`; avro, protobuf or
        json-schema if a serialiser of a schema registry writes them.
    key_schemas: that registry's schemas that the keys have: their texts by their ids, the newest last.
    key_bytes: the column of landed files that has the key's own bytes, from which the columns of the key are read.
    keys: how the files are written that have keys beside those with values, as Confluent's sinks land them with
        store.kafka.keys=true: "avro", "json" or "parquet".
    offset: the column that holds each record's offset, `_offset` unless given; None if a file's name says that of its
        first record, and the others follow.
    null_keys: what becomes of records without a key: "refuse" (unless given), "drop" or "own task".
    hash: how its producers place keys: "murmur2" (unless given), "crc32", "fnv1a" or another of the page on producers,
        "opaque" or `package.module:function`. Of an Iceberg table its buckets say that.
    offsets: "dense" unless given; of "sparse(N)" ones some may be missing, between two files up to N.
    cast: columns that are read as another type than some files have, by DuckDB's names.
    format: how records are written: "parquet" (unless given), "avro", "json", or in a broker "bytes".
    columns: those of JSON that are of interest, and their types, as it does not say them.
    layout: "time" if files lie in folders of hours or days, and not in those of partitions; "aiven" if they are named
        as Aiven's sinks do by default.
    schema: that of Avro in a broker, as text, if it is not the registry's.
    private: columns whose values are masked wherever people or programs read them; the key may be one.
    bad_records: what becomes of a record that cannot be used: "refuse" (unless given), "set aside", or "set aside up to
        10", "… 0.1 %" or "… 10 or 0.1 %", beyond which the batch stops.
    time: when a record happened, an SQL expression over its columns: from it the stream's watermark comes.
    late: how much later than later ones of its partition a record may come, not at all unless given.
    idle: how long a partition without new records holds the watermark back, by when plans are made: a day unless given.
    behind: by how much at most, in event time, a partition that two batches find without new records holds it back.
    ahead: by how much times may exceed the day on which a batch is planned, a day unless given.
    """

    source: str | PathLike[str] | None
    key_format: KeyFormatName
    key_schemas: KeySchemas
    key_bytes: str | None
    keys: FormatName | None
    offset: str | None
    null_keys: NullKey
    hash: str
    offsets: str
    cast: Mapping[str, str] | None
    format: FormatName
    columns: Mapping[str, str] | None
    layout: LayoutName
    schema: str | None
    private: Sequence[str]
    bad_records: str
    time: str | None
    late: timedelta
    idle: timedelta
    behind: timedelta | None
    ahead: timedelta


def stream_of(
    name: str,
    key: str | Sequence[str],
    partitions: int,
    usual_source: str,
    *,
    table: bool,
    kept: bool = False,
    changes: ChangeForm | None = None,
    source: str | PathLike[str] | None = None,
    key_format: str = KeyFormat.STRING,
    key_schemas: KeySchemas = (),
    key_bytes: str | None = None,
    keys: str | None = None,
    offset: str | None = OFFSET,
    null_keys: str = NullKeys.REFUSE,
    hash: str | None = None,
    offsets: str = DENSE,
    cast: Mapping[str, str] | None = None,
    format: str = USUAL_FORMAT,
    columns: Mapping[str, str] | None = None,
    layout: str = Layout.PARTITION,
    schema: str | None = None,
    private: Sequence[str] = (),
    bad_records: str = REFUSE,
    time: str | None = None,
    late: timedelta = timedelta(),
    idle: timedelta = IDLE,
    behind: timedelta | None = None,
    ahead: timedelta = AHEAD,
) -> Stream:
    """The declared stream. Raises Refused, with all findings."""
    uri = address_of(fspath(source)) if source else usual_source
    is_iceberg = isinstance(source_of(uri), IcebergSource)
    hash = hash or (bucket_hash(key_format) if is_iceberg else MURMUR2)
    key, key_format, hash = declared_key(name, key, key_format, hash, key_schemas)
    # Its own check says which words are none.
    words: Any = {
        "key_format": key_format,
        "null_keys": null_keys,
        "format": format,
        "layout": layout,
        "keys": keys or None,
    }
    stream = Stream(
        name,
        uri,
        key,
        partitions,
        offset=OFFSET if offset is None else offset,
        hash=HashName(hash),
        table=table,
        sparse=sparseness(offsets, f"stream {name!r}"),
        cast=cast or {},
        columns=columns or {},
        schema=schema or "",
        counted=offset is None or is_iceberg,
        kept=kept,
        changes=changes,
        key_bytes=key_bytes or "",
        # Somebody who names one column may forget the brackets.
        private=(private,) if isinstance(private, str) else tuple(private),
        bad_records=parsed(bad_records, f"stream {name!r}"),
        time=None if time is None else _event_time(time, late, idle, ahead, behind),
        **words,
    )
    return checked(stream)


def _event_time(sql: str, late: timedelta, idle: timedelta, ahead: timedelta, behind: timedelta | None) -> EventTime:
    late_, idle_, ahead_ = (span // _MICROSECOND for span in (late, idle, ahead))
    return EventTime(sql, late_, idle_, ahead_, None if behind is None else behind // _MICROSECOND)


def variable_of(name: str) -> str:
    """What Python calls a stream of this name."""
    variable = re.sub(r"\W", "_", name, flags=re.ASCII)
    taken = keyword.iskeyword(variable) or variable in {"pipeline", "Pipeline"}
    return f"_{variable}" if variable[0].isdigit() or taken else variable


def declaration(stream: Stream, options: Options, moved: str = "") -> list[str]:
    """The lines of Python that declare a stream, without what is so by default."""
    variable = variable_of(stream.name)
    given: Options = {"key": options["key"], "partitions": stream.partitions, **options}
    if stream.changes:
        given = _of_changes(given, stream.changes)
    words = [_python(stream.name), *(f"{name}={_python(value)}" for name, value in given.items())]
    call = f"{variable} = pipeline.{'cdc' if stream.changes else 'table' if stream.table else 'stream'}("
    lines = [f"{call}{', '.join(words)}){moved}"]
    if len(lines[0]) > _LONGEST_LINE:
        words = [words[0], *(f"{name}={_python(value, by_line=True)}" for name, value in given.items())]
        lines = [call, *(f"    {line}" for word in words for line in f"{word},".split("\n")), f"){moved}"]
    source = stream.source.removeprefix(FOLDER)
    return [
        "from coset import Pipeline",
        "",
        f"pipeline = Pipeline({_python(stream.name)}, source={_python(source)})",
        *lines,
    ]


def _of_changes(given: Options, form: ChangeForm) -> Options:
    """What `cdc` is given of what a stream would be."""
    usual = {"key_format": "json", "format": "json", "offsets": "sparse"}
    given = {**given, "format": given.get("format", "parquet")}
    if given.get("key_format") not in tuple(Framing):
        # A key of one column that stands for what nothing tells is an object too.
        given["key_format"] = "json"
    left = {name: value for name, value in given.items() if usual.get(name) != value}
    if isinstance(left["key"], tuple) and len(left["key"]) == 1:
        left["key"] = left["key"][0]
    columns = {name: kind for name, kind in left["columns"].items() if name != DELETED}
    return {**left, **({"unwrapped": True} if form is ChangeForm.UNWRAPPED else {}), "columns": columns}


def _python(value: object, *, by_line: bool = False) -> str:
    """A value as Python writes it, with the quotes of our own pages; what has names has each on a line, if asked."""
    match value:
        case str():
            return json.dumps(value, ensure_ascii=False)
        case dict():
            pairs = [f"{_python(name)}: {_python(each)}" for name, each in value.items()]
            return "{\n" + "".join(f"    {pair},\n" for pair in pairs) + "}" if by_line else f"{{{', '.join(pairs)}}}"
        case tuple():
            return f"({', '.join(map(_python, value))}{',' if len(value) == 1 else ''})"
        case _:
            return repr(value)
