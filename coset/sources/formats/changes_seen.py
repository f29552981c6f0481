"""Change events of Debezium, as JSON lines tell them that nobody has declared to be some: forms, rows and schemas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from coset.sources.file_columns import UnknownType, columns_of
from partitioning.model.streams import DELETED, ChangeForm

Line = Mapping[str, Any]
# The types of columns by the types of Connect's schemas, and by the names that Debezium and Connect give some.
_PLAIN = {
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
    "string": "VARCHAR",
    "bytes": "BLOB",
}
# Connect's types by those of Avro that are called otherwise.
_OF_AVRO = {"int": "int32", "long": "int64", "enum": "string", "fixed": "bytes", "record": "struct"}
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_VARIABLE = "io.debezium.data.VariableScaleDecimal"
_NAMED = {
    "io.debezium.time.Date": "DATE",
    "io.debezium.time.Timestamp": "TIMESTAMP_MS",
    "io.debezium.time.MicroTimestamp": "TIMESTAMP",
    "io.debezium.time.NanoTimestamp": "TIMESTAMP_NS",
    "io.debezium.time.ZonedTimestamp": "TIMESTAMP WITH TIME ZONE",
    "io.debezium.time.MicroTime": "TIME",
    _VARIABLE: "DECIMAL(38,6)",
    "org.apache.kafka.connect.data.Date": "DATE",
    "org.apache.kafka.connect.data.Timestamp": "TIMESTAMP_MS",
}


def form_of(files: Sequence[Sequence[Line]]) -> ChangeForm | None:
    """The form that all lines of some files have. None if they are no change events."""
    said = [_said(line) for lines in files for line in lines]
    if said and all({"op", "before", "after"} <= each.keys() for each in said):
        return ChangeForm.ENVELOPE
    return ChangeForm.UNWRAPPED if said and all("__deleted" in each for each in said) else None


def form_in(schema: pa.Schema) -> ChangeForm | None:
    """The form that records of typed files have. None if they are no change events."""
    if {"op", "before", "after"} <= {*schema.names} and pa.types.is_struct(schema.field("after").type):
        return ChangeForm.ENVELOPE
    return ChangeForm.UNWRAPPED if "__deleted" in schema.names else None


def types_in(schema: pa.Schema, written: Any, form: ChangeForm) -> dict[str, str]:
    """The types of columns of rows, and of the offset beside them, by the schema of typed files, and the parsed one of
    Avro if it is known."""
    beside = [field for field in schema if "offset" in field.name.lower() and pa.types.is_integer(field.type)]
    row = schema.field("after").type if form is ChangeForm.ENVELOPE else schema
    said, types = fields_of_avro(written, form) if written else {}, dict[str, str]()
    for field in (*row, *beside):
        if field.name.startswith("__"):
            continue
        with suppress(UnknownType):
            types[field.name] = columns_of(pa.schema([field])).columns[0].type
        if field.name in said and (kind := type_in(said[field.name])):
            types[field.name] = kind
    return types


def rows_of(files: Iterable[Sequence[Line]], form: ChangeForm) -> Iterator[list[dict[str, object]]]:
    """The rows that lines leave, each with the offset that its line has beside it."""
    for lines in files:
        yield [dict(_row(_said(line), form)) for line in lines]


def types_of(files: Iterable[Sequence[Line]], form: ChangeForm) -> dict[str, str]:
    """The types of columns, as far as lines have their schema beside them."""
    types = dict[str, str]()
    for line in (line for lines in files for line in lines if isinstance(line.get("schema"), dict)):
        fields = fields_of(line, form).items()
        types |= {name: kind for name, field in fields if (kind := type_in(field)) and not name.startswith("_")}
    return types


def fields_of(line: Line, form: ChangeForm) -> Mapping[str, Line]:
    """What the schema in a line says of each column."""
    fields: Sequence[Line] = line["schema"]["fields"]
    if form is ChangeForm.ENVELOPE:
        fields = next((each["fields"] for each in fields if each["field"] == "after"), ())
    return {each["field"]: each for each in fields}


def fields_of_avro(schema: Any, form: ChangeForm) -> Mapping[str, Line]:
    """What a parsed schema of Avro says of each column, as Connect's would say it. Nothing of those that only Avro
    itself calls dates, times or decimals: their values say what they are."""
    named = dict[str, Line]()
    said = _of_avro(schema, named)
    if form is ChangeForm.ENVELOPE:
        said = next(each for each in said["fields"] if each["field"] == "after")
    return {each["field"]: each for each in said["fields"] if each["type"]}


def _of_avro(written: Any, named: dict[str, Line]) -> Line:
    """What a schema of Avro says, by the names that Connect gives types within it."""
    if isinstance(written, list):
        # One that may be null is what it else is.
        return _of_avro(next((each for each in written if each != "null"), "null"), named)
    if isinstance(written, str):
        return named.get(written) or {"type": _OF_AVRO.get(written, written)}
    kind, name = written["type"], written.get("connect.name")
    if not isinstance(kind, str):
        return _of_avro(kind, named)
    plain = written.get("connect.type") or _OF_AVRO.get(kind, kind)
    said: dict[str, Any] = {"type": "" if "logicalType" in written and not name else plain}
    said |= {"name": name, "parameters": written.get("connect.parameters", {})}
    if kind == "record":
        said["fields"] = [{**_of_avro(each["type"], named), "field": each["name"]} for each in written["fields"]]
    elif kind == "array":
        said["items"] = _of_avro(written["items"], named)
    if "name" in written:
        named[written["name"]] = said
    return said


def has_decimals(field: Line, scale: int) -> bool:
    """Whether a schema says that a column has decimals of this scale, or of several, or numbers."""
    name = field.get("name")
    return (
        (name == _DECIMAL and field["parameters"]["scale"] == f"{scale}")
        or name == _VARIABLE
        or field["type"] in {"float", "double"}
    )


def type_in(field: Line) -> str | None:
    """The type that a schema says of a column. None if it is made of others."""
    name = field.get("name")
    if name == _DECIMAL:
        said = field["parameters"]
        return f"DECIMAL({said.get('connect.decimal.precision', 38)},{said['scale']})"
    if field["type"] == "array":
        inner = field["items"]
        return f"{_PLAIN[inner['type']]}[]" if inner["type"] in _PLAIN.keys() - {"bytes"} else None
    return _NAMED.get(name or "", _PLAIN.get(field["type"]))


def left_by(records: pa.RecordBatch) -> pa.RecordBatch:
    """The records that leave a row, without saying so."""
    return records.filter(pc.invert(records.column(DELETED))).drop_columns([DELETED])


def _said(line: Line) -> Line:
    """What a line says, without its schema."""
    payload = line.get("payload")
    return payload if "schema" in line and isinstance(payload, dict) else line


def _row(said: Line, form: ChangeForm) -> Iterator[tuple[str, object]]:
    beside = {name: value for name, value in said.items() if "offset" in name.lower() and isinstance(value, int)}
    row = said["after"] if form is ChangeForm.ENVELOPE else said if said["__deleted"] == "false" else {}
    for name, value in (row if isinstance(row, dict) else {}).items():
        # Whatever else records were given beside their row begins so.
        if not name.startswith("__") and name not in beside:
            yield name, value
    yield from beside.items()
