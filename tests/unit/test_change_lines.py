"""Change events of a real Debezium on a real PostgreSQL (tests/vectors/debezium), read as rows of its tables."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, cast

import fastavro
import pyarrow as pa
import pytest

from coset.sources.formats.changes_seen import types_of
from coset.sources.formats.landed_file import LandedFile, Unreadable
from coset.sources.formats.opening import open_landed, undeclared
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.words import FormatName
from partitioning.model.streams import ChangeForm
from tests.source_tables import VECTORS, Event, with_offset
from tests.typed_changes import files_of
from tests.written import values

# As types.sql has them, by DuckDB's names.
COLUMNS = {
    "id": "BIGINT",
    "small": "SMALLINT",
    "whole": "INTEGER",
    "good": "BOOLEAN",
    "single": "FLOAT",
    "double": "DOUBLE",
    "price": "DECIMAL(10,2)",
    "free": "DECIMAL(38,4)",
    "paid": "DECIMAL(19,2)",
    "word": "VARCHAR",
    "code": "VARCHAR",
    "padded": "VARCHAR",
    "day": "DATE",
    "at": "TIMESTAMP",
    "at_ms": "TIMESTAMP_MS",
    "at_zone": "TIMESTAMP WITH TIME ZONE",
    "clock": "TIME",
    "clock_ms": "INTEGER",
    "clock_zone": "VARCHAR",
    "span": "BIGINT",
    "uid": "VARCHAR",
    "doc": "VARCHAR",
    "docb": "VARCHAR",
    "raw": "BLOB",
    "feels": "VARCHAR",
    "place": "STRUCT(x DOUBLE, y DOUBLE)",
    "numbers": "INTEGER[]",
    "words": "VARCHAR[]",
    "prices": "VARCHAR[]",
    "address": "VARCHAR",
    "markup": "VARCHAR",
    "bits": "BLOB",
    "object": "BIGINT",
    "valid": "VARCHAR",
    "long": "VARCHAR",
    "long_raw": "BLOB",
    "long_numbers": "INTEGER[]",
    "given": "VARCHAR",
}
FIRST = {
    "id": 1,
    "small": -2,
    "whole": 2147483647,
    "good": True,
    "single": 1.5,
    "double": 0.1,
    "price": Decimal("12345678.91"),
    "free": Decimal("123456789012345678901234.5678"),
    "paid": Decimal("12.34"),
    "word": 'ä "x"',
    "code": "vc",
    "padded": "c    ",
    "day": date(2026, 2, 3),
    "at": datetime(2026, 2, 3, 4, 5, 6, 123456),  # noqa: DTZ001
    "at_ms": datetime(2026, 2, 3, 4, 5, 6, 123000),  # noqa: DTZ001
    "at_zone": datetime(2026, 2, 3, 2, 5, 6, 123456, UTC),
    "clock": time(4, 5, 6, 123456),
    "clock_ms": 14_706_123,
    "clock_zone": "02:05:06Z",
    "span": 27 * 3600 * 10**6,
    "uid": "bb3e6c1a-0000-4000-8000-00000000000a",
    "doc": '{"a": 1}',
    "docb": '{"b": 2}',
    "raw": b"\x00\xff\x10",
    "feels": "ok",
    "place": {"x": 1.5, "y": -2.0},
    "numbers": [1, 2, None],
    "words": ["a", None],
    "prices": ["fQ==", "AMg="],
    "address": "10.0.0.1",
    "markup": "<a/>",
    "bits": b"\x15",
    "object": 4_000_000_000,
    "valid": "[1,5)",
    "long": "t" * 2100,
    "long_raw": b"\xab" * 2100,
    "long_numbers": [7 * number for number in range(1, 601)],
    "given": "given",
}
UNKNOWN = dict.fromkeys(COLUMNS)
CUSTOMERS = {"id": "BIGINT", "name": "VARCHAR", "tier": "VARCHAR", "balance": "DECIMAL(10,2)", "since": "DATE"}


def events(name: str) -> list[Event]:
    return [json.loads(line) for line in (VECTORS / f"{name}.jsonl").read_text().splitlines()]


def opened(lines: Sequence[str], columns: Mapping[str, str], **declared: Any) -> LandedFile:
    pipeline = Pipeline("p", source="s3://landing/topics")
    pipeline.cdc("shop.public.t", key="id", partitions=1, columns=columns, **declared)
    (stream,) = pipeline.streams
    assert not list(undeclared(stream))
    data = "".join(f"{with_offset(line, number)}\n" for number, line in enumerate(lines))
    return open_landed(stream, pa.BufferReader(data.encode()), 0)


def read(lines: Sequence[str], columns: Mapping[str, str], **declared: Any) -> list[dict[str, Any]]:
    file = opened(lines, columns, **declared)
    rows = values(file.batches(file.schema.names, 0, len(lines)))
    assert [row.pop("_offset") for row in rows] == list(range(len(lines)))
    assert file.facts().rows == len(lines)
    return rows


def types(name: str, *ids: int, **columns: str) -> list[dict[str, Any]]:
    """The rows of a snapshot of the table of types."""
    first = [each["value"] for each in events(name) if json.loads(each["value"] or "{}").get("op") == "r"]
    chosen = [line for line in first if json.loads(line)["after"]["id"] in ids]
    return read(chosen, COLUMNS | columns)


def test_each_type_of_a_real_database_is_read_as_it_has_it() -> None:
    """NULL in a column with a default is the default: Connect's converter did that, unless it is told not to."""
    rows = types("usual", 1, 2, 3, 4)
    assert rows[0] == FIRST | {"_deleted": False}
    assert rows[1] == UNKNOWN | {"id": 2, "given": "none", "_deleted": False}
    assert rows[2] == UNKNOWN | {
        "id": 3,
        "price": Decimal("-99999999.99"),
        "free": Decimal("-12.5000"),
        "day": date(1, 1, 1),
        "at": datetime(1582, 10, 15),  # noqa: DTZ001
        "at_zone": datetime(1582, 10, 15, tzinfo=UTC),
        "clock": time(),
        "given": "none",
        "_deleted": False,
    }
    assert rows[3] == UNKNOWN | {
        "id": 4,
        "price": Decimal("0.00"),
        "free": Decimal("100000000000000000000.0000"),
        "day": date(9999, 12, 31),
        "at": datetime(9999, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001
        "at_zone": datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
        "clock": time(23, 59, 59, 999999),
        "given": "none",
        "_deleted": False,
    }


def test_a_schema_beside_a_value_says_of_which_types_its_columns_are() -> None:
    """But for a time in milliseconds, structs, and bytes in arrays, of which it names none."""
    (event,) = events("schema")
    found = types_of([[json.loads(event["with_schema"])]], ChangeForm.ENVELOPE)
    ours = {name: kind for name, kind in COLUMNS.items() if name not in {"place", "prices"}}
    assert found == ours | {"free": "DECIMAL(38,6)", "paid": "DECIMAL(38,2)"}
    row = read([event["with_schema"]], COLUMNS)[0]
    assert row == FIRST | {"_deleted": False}
    for name, wrong in (("at", "TIMESTAMP_MS"), ("at_ms", "TIMESTAMP"), ("price", "DECIMAL(10,3)"), ("whole", "DATE")):
        with pytest.raises(
            Unreadable, match=f"line 1: column '{name}' is written as {COLUMNS[name].partition('(')[0]}"
        ):
            read([event["with_schema"]], {"id": "BIGINT", name: wrong})


def test_other_ways_to_write_decimals_and_times_are_declared() -> None:
    as_text = dict.fromkeys(("price", "free", "paid", "span"), "VARCHAR")
    rows = types("texts", 1, 3, at="TIMESTAMP_MS", clock="INTEGER", **as_text)
    milliseconds = {"at": FIRST["at_ms"], "clock": 14_706_123}
    decimals = {"price": "12345678.91", "free": "123456789012345678901234.5678", "paid": "12.34"}
    others = {"span": "P0Y0M1DT3H0M0S", "prices": ["1.25", "2.00"], "_deleted": False}
    assert rows[0] == FIRST | milliseconds | decimals | others
    assert rows[1]["price"] == "-99999999.99"
    assert types("texts", 2, **as_text, at="TIMESTAMP_MS", clock="INTEGER")[0]["given"] is None
    rows = types("doubles", 1, 3, free="DOUBLE", clock_ms="TIME", prices="DOUBLE[]")
    numbers = {"free": 1.2345678901234569e23, "clock_ms": time(4, 5, 6, 123000), "prices": [1.25, 2.0]}
    assert rows[0] == FIRST | numbers | {"_deleted": False}


@pytest.mark.parametrize(
    ("row", "column", "what"),
    [
        (100, "day", "column 'day' is not DATE: a value is no day of the years 1 to 9999"),
        (101, "at", "column 'at' is not TIMESTAMP: a value is no time from 1582-10-15 to 9999"),
        (102, "at_zone", "column 'at_zone' is not TIMESTAMP WITH TIME ZONE"),
        (
            103,
            "at_zone",
            "column 'at_zone' is not TIMESTAMP WITH TIME ZONE: a value is no time from 1582-10-15 to 9999",
        ),
        (107, "at", "column 'at' is not TIMESTAMP: a value is no time from 1582-10-15 to 9999"),
        (104, "clock", "column 'clock' is not TIME: a value is no time of a day"),
        (105, "double", "column 'double' is not DOUBLE"),
    ],
)
def test_what_no_type_holds_is_refused(row: int, column: str, what: str) -> None:
    with pytest.raises(Unreadable, match="line 2: ") as refused:
        types("usual", 1, row)
    assert what in str(refused.value)
    others = {name: kind for name, kind in COLUMNS.items() if name != column}
    lines = [each["value"] for each in events("usual") if json.loads(each["key"])["id"] == row]
    assert read(lines, others)[0]["id"] == row


@pytest.mark.parametrize(
    ("name", "columns", "what"),
    [
        ("texts", {}, "column 'price' is not DECIMAL(10,2)"),
        ("usual", {"free": "DECIMAL(12,4)"}, "column 'free' is not DECIMAL(12,4)"),
        ("usual", {"free": "DECIMAL(38,2)"}, "column 'free' is not DECIMAL(38,2)"),
    ],
)
def test_decimals_that_a_type_does_not_hold_are_refused(name: str, columns: dict[str, str], what: str) -> None:
    with pytest.raises(Unreadable) as refused:
        types(name, 1, **columns)
    assert what in str(refused.value)


@pytest.mark.parametrize("column", ["long", "long_raw", "long_numbers"])
def test_a_long_value_that_the_database_did_not_say_is_refused_and_never_read(column: str) -> None:
    of_one = [each["value"] for each in events("usual") if each["key"] == '{"id":1}' and each["value"]]
    there, updated, deleted = of_one
    moved, whole = (each["value"] for each in events("usual") if each["key"] == '{"id":10}')
    columns = {"id": "BIGINT", "whole": "INTEGER", column: COLUMNS[column]}
    others = [json.loads(updated)["after"][name] for name in ("long", "long_raw") if name != column]
    alone = updated.replace(others[0], "x").replace(others[-1], "x").replace(",", ", ")
    for unsaid in (updated, moved, alone):
        with pytest.raises(Unreadable, match=f"line 2: column '{column}' has no value") as refused:
            read([there, unsaid], columns)
        assert "REPLICA IDENTITY FULL" in refused.value.then
        assert [row["whole"] for row in read([there, unsaid], {"id": "BIGINT", "whole": "INTEGER"})] == [2147483647, 9]
    rows = read([there, whole, deleted], columns)
    assert [row[column] for row in rows] == [FIRST[column], FIRST[column], None]


def written_by_java(name: str, columns: Mapping[str, str], **declared: Any) -> LandedFile:
    """The record with its schema, as AvroData and the writers of Avro and Parquet leave it."""
    pipeline = Pipeline("p", source="s3://landing/topics")
    pipeline.cdc(
        "shop.public.t", partitions=1, columns=columns, format=cast("FormatName", name), **{"key": "id", **declared}
    )
    (stream,) = pipeline.streams
    assert not list(undeclared(stream))
    return open_landed(stream, pa.BufferReader((VECTORS / f"types.{name}").read_bytes()), 0)


@pytest.mark.parametrize("name", ["avro", "parquet"])
def test_avro_and_parquet_say_the_same_as_json(name: str) -> None:
    """Where they say more, the type is theirs: of decimals in arrays, and of bytes in structs."""
    typed = {"prices": "DECIMAL(10,2)[]", "place": "STRUCT(x DOUBLE, wkb BLOB, srid INTEGER)"}
    file = written_by_java(name, COLUMNS | typed)
    facts = file.facts()
    assert (facts.rows, facts.first, facts.last) == (1, 0, 0)
    (row,) = values(file.batches(file.schema.names, 0, 1))
    wkb = b"\1\1" + bytes(9) + b"\xf8?" + bytes(7) + b"\xc0"
    others = {"prices": [Decimal("1.25"), Decimal("2.00")], "place": {"x": 1.5, "wkb": wkb, "srid": None}}
    assert row == FIRST | others | {"_deleted": False, "_offset": 0}
    (row,) = values(written_by_java(name, {"id": "BIGINT", "gone": "VARCHAR"}).batches(["gone", "id"], 0, 1))
    assert row == {"gone": None, "id": 1}


@pytest.mark.parametrize("name", ["avro", "parquet"])
@pytest.mark.parametrize(
    ("columns", "what"),
    [
        ({"at": "TIMESTAMP_MS"}, "column 'at' is written as TIMESTAMP, and not"),
        ({"at_ms": "TIMESTAMP"}, "column 'at_ms' is written as TIMESTAMP_MS, and not"),
        ({"price": "DECIMAL(10,3)"}, "column 'price' is written as DECIMAL(10,2), and not"),
        ({"whole": "DATE"}, "column 'whole' is written as INTEGER, and not"),
        ({"word": "INTEGER"}, "offset 0: column 'word' is not INTEGER: it is written as VARCHAR"),
        ({"whole": "VARCHAR"}, "offset 0: column 'whole' is not VARCHAR: it is written as INTEGER"),
        ({"object": "INTEGER"}, "offset 0: column 'object' is not INTEGER: Integer value 4000000000"),
        ({"raw": "VARCHAR"}, "offset 0: column 'raw' is not VARCHAR: it is written as BLOB"),
        ({"place": "STRUCT(wkb VARCHAR)"}, "it is written as BLOB"),
        ({"prices": "VARCHAR[]"}, "it is written as DECIMAL(10,2)"),
        ({"free": "DECIMAL(38,2)"}, "column 'free' is not DECIMAL(38,2)"),
    ],
)
def test_a_type_that_avro_and_parquet_do_not_say_is_refused(name: str, columns: dict[str, str], what: str) -> None:
    file = written_by_java(name, {"id": "BIGINT", **columns})
    with pytest.raises(Unreadable) as refused:
        list(file.batches(file.schema.names, 0, 1))
    assert what in str(refused.value)
    # A record that is as its schema says, and not as declared, can be set aside; a whole file of such not.
    if str(refused.value).startswith("offset"):
        aside = written_by_java(name, {"id": "BIGINT", **columns}, bad_records="set aside")
        (row,) = values(aside.batches(["id"], 0, 1))
        assert row["id"] is None
        assert what in row["@why"]


def test_bytes_in_structs_are_bytes_in_json_too() -> None:
    (row,) = types("usual", 1, place="STRUCT(x DOUBLE, wkb BLOB)")
    assert row["place"] == {"x": 1.5, "wkb": b"\1\1" + bytes(9) + b"\xf8?" + bytes(7) + b"\xc0"}


@pytest.mark.parametrize("name", ["avro", "parquet"])
def test_avro_and_parquet_say_what_no_json_says_and_nothing_for_what_was_not_said(name: str) -> None:
    """NaN is a number of PostgreSQL's. A long value that stays as it is has no value in any format."""
    (event,) = events("schema")
    text = event["with_schema"].replace('"double":0.1', '"double":NaN')
    unsaid = text.replace('"long":"t', '"long":"__debezium_unavailable_value')
    ((_, data),) = files_of([(0, {"with_schema": text}), (1, {"with_schema": unsaid})], name)
    columns = {"id": "BIGINT", "double": "DOUBLE", "long": "VARCHAR"}
    pipeline = Pipeline("p", source="s3://landing/topics")
    pipeline.cdc("shop.public.t", key="id", partitions=1, columns=columns, format=cast("FormatName", name))
    file = open_landed(pipeline.streams[0], pa.BufferReader(data), 0)
    first, second = values(file.batches(["double"], 0, 2))
    assert math.isnan(first["double"])
    assert math.isnan(second["double"])
    with pytest.raises(Unreadable, match="offset 1: column 'long' has no value"):
        list(file.batches(["long"], 0, 2))


@pytest.mark.parametrize("name", ["avro", "parquet"])
def test_a_file_of_something_else_is_refused_by_name(name: str) -> None:
    for declared, what in (
        ({"key": "uid2"}, "there is no column 'uid2' of the key"),
        ({"unwrapped": True}, "does not say"),
    ):
        file = written_by_java(name, {"id": "BIGINT", "uid2": "VARCHAR"}, **declared)
        with pytest.raises(Unreadable, match=what):
            list(file.batches(file.schema.names, 0, 1))


def test_the_tests_own_avro_is_what_avrodata_makes() -> None:
    (event,) = events("schema")
    ((_, made),) = files_of([(0, event)], "avro")
    with (VECTORS / "types.avro").open("rb") as real:
        ours, theirs = fastavro.reader(io.BytesIO(made)), fastavro.reader(real)
        assert list(ours) == list(theirs)
        assert _typed(ours.writer_schema) == _typed(theirs.writer_schema)


def _typed(schema: Any) -> Any:
    """A schema without defaults, versions and texts, which say nothing of types."""
    match schema:
        case list():
            return sorted(map(_typed, schema), key=str)
        case dict():
            rest = {"default", "connect.default", "connect.version", "connect.doc", "doc"}
            # The sink's own way to write a type that says nothing else.
            kept = {name: _typed(each) for name, each in schema.items() if name not in rest}
            return kept["type"] if kept.keys() == {"type"} else kept
        case _:
            return schema


@pytest.mark.parametrize("form", ["value", "with_schema", "unwrapped"])
def test_each_form_says_the_same_of_rows_and_deletes(form: str) -> None:
    """A changed key deletes the row of the old one. Columns that are not there yet, or no longer, are null."""
    lines = [each[form] for each in events("customers")[:-1] if each[form]]
    rows = read(lines, CUSTOMERS, unwrapped=form == "unwrapped")
    assert [tuple(row.values()) for row in rows] == [
        (1, "ann", "gold", Decimal("10.00"), None, False),
        (2, "bob", None, Decimal("-0.50"), None, False),
        (3, "cid", "tin", Decimal("99999999.99"), None, False),
        (2, "bob", "iron", Decimal("0.50"), None, False),
        (1, None, None, None, None, True),
        (4, "ann", "gold", Decimal("10.00"), None, False),
        (3, None, None, None, None, True),
        (3, "cid again", "tin", Decimal("1.00"), None, False),
        (5, "eve", "tin", Decimal("1.00"), date(2026, 11, 29), False),
        (6, "fay", None, Decimal("2.00"), date(2026, 11, 30), False),
    ]


def test_columns_may_be_called_as_parts_of_an_envelope() -> None:
    columns = {"id": "BIGINT", "op": "INTEGER", "after": "VARCHAR", "payload": "STRUCT(x BIGINT)", "schema": "VARCHAR"}
    row = '{"id":1,"op":2,"after":"a","payload":{"x":3},"schema":"s"'
    expected = {"id": 1, "op": 2, "after": "a", "payload": {"x": 3}, "schema": "s", "_deleted": False}
    assert read([f'{{"before":null,"after":{row}}},"op":"c"}}'], columns) == [expected]
    assert read([f'{row},"__deleted":"false"}}'], columns, unwrapped=True) == [expected]


def test_what_is_no_change_of_a_row_is_refused_by_name() -> None:
    customers, others = events("customers"), events("others")
    (message,) = (each["value"] for each in others if each["topic"] == "shop.message")
    for line, what in (
        (customers[-1]["value"], "it is a TRUNCATE of the whole table"),
        (others[0]["value"], "it is no change of a row by Debezium"),
        (message, "it is a message, and no change of a row"),
        (customers[0]["unwrapped"], "it is no change of a row by Debezium"),
        (customers[0]["value"].replace('"op":"c"', '"op":"d"'), "it has no row"),
    ):
        with pytest.raises(Unreadable) as refused:
            read([customers[0]["value"], line], {"id": "BIGINT"})
        assert f"line 2: {what}" in str(refused.value)
        good, bad = read([customers[0]["value"], line], {"id": "BIGINT"}, bad_records="set aside")
        assert good["id"] == 1
        assert what in next(each for name, each in bad.items() if isinstance(each, str))
    for wrong in (customers[0]["value"], customers[0]["unwrapped"].replace('"__deleted":"false"', '"x":1')):
        with pytest.raises(Unreadable, match="does not say whether its row is deleted") as unwrapped:
            read([wrong], {"id": "BIGINT"}, unwrapped=True)
        assert "delete.tombstone.handling.mode=rewrite" in unwrapped.value.then
