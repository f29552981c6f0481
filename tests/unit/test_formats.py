"""Formats of landed files at their edges, and by the writers that Kafka Connect has (tests/vectors)."""

from __future__ import annotations

import base64
import gzip
import io
import random
import re
from base64 import b64decode
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as encryption
import pytest

from coset.sources.formats import avro, json_lines
from coset.sources.formats.landed_file import LandedFile, Unreadable
from coset.sources.formats.opening import open_landed
from coset.sources.reader import WHY
from partitioning.model.allowance import SetAside
from partitioning.model.stream_rules import checked
from partitioning.model.streams import Format, Stream
from partitioning.model.task_engine import TaskMemory
from tests import footers
from tests.footers import Struct, of_no_records, with_footer
from tests.written import WRITERS, Writer, row, snappy_of_java, values

ROWS = [row(number) for number in range(30)]
BARE_AVRO = [writer for writer in WRITERS if writer.format is Format.AVRO and not writer.around]
PLAIN = next(writer for writer in WRITERS if str(writer) == "json-plain")


def opened(writer: Writer, data: bytes, *, counted: bool = False) -> LandedFile:
    stream = checked(Stream("views", "s3://landing", "member", 1, counted=counted, **writer.declared))
    return open_landed(stream, pa.BufferReader(data), 0)


@pytest.mark.parametrize("writer", [writer for writer in WRITERS if writer.format is not Format.PARQUET], ids=str)
@pytest.mark.parametrize("size", [2, 7, 1000])
def test_blocks_may_end_anywhere(writer: Writer, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "_BLOCK", size)
    monkeypatch.setattr(avro, "_BATCH_BYTES", size)
    monkeypatch.setattr(avro, "_FETCHED", size)
    file = opened(writer, writer.write(ROWS, 0))
    assert (file.facts().rows, file.facts().first, file.facts().last) == (30, 0, 29)
    batches = list(file.batches(file.schema.names, 0, 30))
    assert values(iter(batches)) == [{**one, "_offset": offset} for offset, one in enumerate(ROWS)]
    assert len(batches) > 1


class Fetched(io.BytesIO):
    """A file that knows the most that was read of it at once."""

    most = 0

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self.most = max(self.most, len(data))
        return data


def test_a_row_group_of_any_size_is_read_in_the_memory_of_a_task() -> None:
    chance, memory = random.Random(1), TaskMemory.of("16MB")
    rows = pa.table({"_offset": range(20_000), "text": [chance.randbytes(200).hex() for _ in range(20_000)]})
    sink = io.BytesIO()
    pq.write_table(rows, sink, use_dictionary=False, data_page_size=1 << 16)
    fetched = Fetched(sink.getvalue())
    file = open_landed(Stream("views", "s3://landing", "member", 1), pa.PythonFile(fetched, "r"), 0, memory)
    batches = list(file.batches(rows.column_names, 0, 20_000))
    assert pa.Table.from_batches(batches) == rows
    assert max(batch.nbytes for batch in batches) <= memory.part
    assert fetched.most <= memory.part


@pytest.mark.parametrize("size", [1, 100, 1 << 20])
def test_the_line_that_is_wrong_is_named_whatever_block_it_is_in(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "_BLOCK", size)
    lines = PLAIN.write(ROWS, 0).splitlines()
    lines[16] = lines[16].replace(b'"good":true', b'"good":1')
    lines[20] = b"{"
    for ending in (b"\n", b"\r\n", b"\n\n"):
        file = opened(PLAIN, ending.join(lines))
        number = 17 if ending != b"\n\n" else 33
        with pytest.raises(Unreadable, match=re.escape(f"line {number}: column 'good' is not BOOLEAN")):
            file.facts()


@pytest.mark.parametrize(
    ("lines", "number"), [(b"null", 1), (b'null\n{"_offset":0}\n', 1), (b'{"_offset":0}\n null\r\n', 2)]
)
def test_a_line_that_is_null_is_refused(lines: bytes, number: int) -> None:
    with pytest.raises(Unreadable, match=f"line {number} is no JSON object: it is null"):
        opened(PLAIN, lines).facts()


def test_lines_that_are_no_utf_8_or_never_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unreadable, match="line 2 is no JSON object: 'utf-8' codec"):
        opened(PLAIN, b'{"_offset":0}\n{"member":"\xff"}\n').facts()
    monkeypatch.setattr(json_lines, "_BLOCK", 100)
    monkeypatch.setattr(json_lines, "_LONGEST_LINE", 300)
    with pytest.raises(Unreadable, match="a line is longer than") as caught:
        opened(PLAIN, gzip.compress(b'{"member":"' + b"a" * 1000)).facts()
    assert caught.value.then == "land it as several records"


@pytest.mark.parametrize("end", [b"", b"\n", b'\n{"_offset":2}\n'])
def test_a_line_without_an_offset_is_named(end: bytes) -> None:
    stream = Stream("views", "s3://landing", "member", 1, bad_records=SetAside(), **PLAIN.declared)
    file = open_landed(checked(stream), pa.BufferReader(b'{"_offset":0}\n{"member":"ann"}' + end), 0)
    read = pa.Table.from_batches(file.batches(["_offset"], 0, 3))
    assert read[WHY.name].to_pylist()[1] == "line 2: there is no '_offset'"


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("writer", WRITERS, ids=str)
def test_a_file_may_have_no_records(writer: Writer, counted: bool) -> None:
    file = opened(writer, writer.write([], None if counted else 0), counted=counted)
    facts = file.facts()
    assert (facts.rows, facts.first, facts.last) == (0, None, None)
    assert values(file.batches(["member", "_offset"], 0, 9)) == []


@pytest.mark.parametrize("writer", WRITERS, ids=str)
def test_a_file_that_is_cut_off_anywhere_is_refused_or_has_all_it_says(writer: Writer) -> None:
    """Where lines or blocks end, a file that is cut off is a whole one with fewer records."""
    data = writer.write(ROWS, 0)
    refused = 0
    for end in range(1, len(data), max(1, len(data) // 60)):
        file = opened(writer, data[:end])
        try:
            rows = file.facts().rows
            read = values(file.batches(["n", "_offset"], 0, 30))
        except (Unreadable, pa.ArrowException, OSError):
            refused += 1
            continue
        assert read == [{"n": one["n"], "_offset": offset} for offset, one in enumerate(ROWS[:rows])]
    assert refused > 40


# Of {"member":"a","n":1} and {"member":"b","n":2}, a line each, as snappy-java 1.1.10.7 writes them.
OF_JAVA = (
    "82534e41505059000000000100000001000000242a507b226d656d626572223a2261222c226e223a317d0a1d152462222c226e223a327d0a"
)


def _lines(data: bytes) -> list[int]:
    schema = pa.schema([("n", pa.int64())])
    return [row["n"] for row in values(json_lines.JsonRows(pa.BufferReader(data), "", schema).batches(["n"], 0, 9))]


def test_snappy_is_read_as_java_writes_it() -> None:
    data = bytes.fromhex(OF_JAVA)
    assert _lines(data) == [1, 2]
    assert _lines(data * 2) == [1, 2, 1, 2]
    # A stream of nothing has its head only.
    assert _lines(data[:16] * 2 + data) == [1, 2]
    assert _lines(snappy_of_java(b'{"n":7}\n' * 99, size=10)) == [7] * 99


@pytest.mark.parametrize(
    ("array", "said"),
    [
        ('[\n{"n":1},\n{"n":2}\n', "the file is truncated: its array does not end"),
        ('[\n{"n":1},\n{"n":2},', "the file is truncated: its array does not end"),
        ('[\n{"n":1}\n{"n":2}\n]', "its array has 0 commas between 2 objects"),
        ('[\n{"n":1},\n\n]', "its array has 1 commas between 1 objects"),
        ('[\n{"n":1},\n[]\n]', "line 3 is no JSON object"),
    ],
)
def test_an_array_that_is_none_is_refused(array: str, said: str) -> None:
    with pytest.raises(Unreadable, match=re.escape(said)):
        _lines(array.encode())


@pytest.mark.parametrize(
    "array", ["[\n\n]", "[\n]\n", '[\n{"n":1}\n]', '[\n{"n":1},\n{"n":2}]', '[\n{"n":1},\n\n{"n":2}\n]\n\n']
)
def test_an_array_has_an_object_a_line(array: str) -> None:
    assert _lines(array.encode()) == [1, 2][: array.count('n":')]


def _group(footer: Struct, number: int) -> Struct:
    group: Struct = footer[footers.ROW_GROUPS][1][1][number]
    return group


def _of_fewer_records(footer: Struct) -> None:
    footer[footers.NUM_ROWS] = 6, 5


def _with_a_smaller_group(footer: Struct) -> None:
    """PyArrow reads as many records as the group says, and tells nobody of those behind them."""
    _of_fewer_records(footer)
    _group(footer, 0)[footers.GROUP_ROWS] = 6, 3


def _with_fewer_values(column: int) -> Callable[[Struct], None]:
    def change(footer: Struct) -> None:
        _group(footer, 1)[footers.GROUP_COLUMNS][1][1][column][footers.META_DATA][1][footers.NUM_VALUES] = 6, 1

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (of_no_records, "its footer says 0 records, and its row groups 6"),
        (_of_fewer_records, "its footer says 5 records, and its row groups 6"),
        (_with_a_smaller_group, "row group 0 says 3 records, and its column '_offset' 4 values"),
        (_with_fewer_values(0), "row group 1 says 2 records, and its column '_offset' 1 values"),
        (_with_fewer_values(1), "row group 1 says 2 records, and its column 'tags.list.element' 1 values"),
    ],
)
@pytest.mark.parametrize("counted", [False, True])
def test_a_parquet_file_that_counts_its_records_in_two_ways_is_refused(
    change: Callable[[Struct], None], said: str, counted: bool
) -> None:
    sink = io.BytesIO()
    tags = [["a"], ["b", "c"], None, [], ["d"], ["e"]]
    pq.write_table(pa.table({"_offset": range(6), "tags": tags}), sink, row_group_size=4)
    if counted:
        stream = Stream("views", "s3://landing", "member", 1, offset="_n", counted=True)
    else:
        stream = Stream("views", "s3://landing", "member", 1)
    with pytest.raises(Unreadable, match=re.escape(said)):
        open_landed(checked(stream), pa.BufferReader(with_footer(sink.getvalue(), change)), 0).facts()


def _parquet(data: bytes) -> LandedFile:
    return open_landed(checked(Stream("views", "s3://landing", "member", 1)), pa.BufferReader(data), 0)


def _of_more_records(footer: Struct) -> None:
    _of_fewer_records(footer)
    _group(footer, 0)[footers.GROUP_ROWS] = 6, 5
    for column in _group(footer, 0)[footers.GROUP_COLUMNS][1][1]:
        column[footers.META_DATA][1][footers.NUM_VALUES] = 6, 5


def test_a_parquet_file_whose_columns_end_early_is_refused_where_it_is_read() -> None:
    """Its footer is of one mind, so PyArrow gives the records that there are, and says nothing."""
    sink = io.BytesIO()
    pq.write_table(pa.table({"_offset": range(2), "n": range(2)}), sink)
    file = _parquet(with_footer(sink.getvalue(), _of_more_records))
    with pytest.raises(Unreadable, match="row group 0 says 5 records, and its columns 2"):
        list(file.batches(["n"], 0, 30))


class _NoKeys(encryption.KmsClient):
    """Keys as they are, for a file that nobody is to read."""

    def __init__(self, _: object) -> None:
        super().__init__()

    def wrap_key(self, key: bytes, _: str) -> bytes:
        return base64.b64encode(key)


@pytest.mark.parametrize(
    ("in_plain", "said"), [(True, "its columns are encrypted"), (False, "its footer is encrypted")]
)
def test_an_encrypted_parquet_file_is_refused_by_name(in_plain: bool, said: str) -> None:
    """Of one with a plain footer PyArrow ends the process when it is asked about an encrypted column."""
    asked = encryption.EncryptionConfiguration(footer_key="f", column_keys={"c": ["n"]}, plaintext_footer=in_plain)
    how = encryption.CryptoFactory(_NoKeys).file_encryption_properties(encryption.KmsConnectionConfig(), asked)
    sink, table = io.BytesIO(), pa.table({"_offset": range(2), "n": range(2)})
    with pq.ParquetWriter(sink, table.schema, encryption_properties=how) as file:
        file.write_table(table)
    with pytest.raises(Unreadable, match=said) as refused:
        _parquet(sink.getvalue()).facts()
    assert refused.value.then.startswith("land it without Parquet's own encryption")


def test_a_parquet_file_with_columns_that_pyarrow_does_not_read_is_no_truncated_one() -> None:
    def change(footer: Struct) -> None:
        (key,) = (each for each in footer[footers.SCHEMA][1][1] if each[footers.ELEMENT_NAME][1] == b"key")
        key[footers.ELEMENT_REPETITION] = 5, 1

    sink = io.BytesIO()
    pq.write_table(pa.table({"m": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))}), sink)
    with pytest.raises(Unreadable, match="its footer says what PyArrow does not read: Map keys must be") as refused:
        _parquet(with_footer(sink.getvalue(), change)).facts()
    assert "by another or without the column" in refused.value.then


def test_enums_of_parquet_are_text() -> None:
    """PyArrow has bytes of them, and DuckDB and Polars text."""
    kinds = {"e": pa.string(), "b": pa.binary(), "l": pa.list_(pa.string())}
    kinds |= {"s": pa.struct([("e", pa.string()), ("n", pa.int64())]), "m": pa.map_(pa.string(), pa.string())}
    kinds |= {
        "both": pa.list_(pa.struct([("b", pa.binary()), ("e", pa.string()), ("m", pa.map_(pa.string(), pa.binary()))]))
    }
    both = [{"b": b"\xff", "e": "NEW", "m": [("PAID", b"\xff")]}, {"b": None, "e": None, "m": None}, None]
    rows = [
        {
            "e": "NEW",
            "b": b"\xff",
            "l": ["NEW", None],
            "s": {"e": "PAID", "n": 1},
            "m": [("NEW", "PAID")],
            "both": both,
        },
        {"e": None, "b": None, "l": None, "s": {"e": None, "n": 2}, "m": [], "both": None},
        {"e": "PAID", "b": b"", "l": [], "s": None, "m": [("PAID", None)], "both": []},
    ]
    sink, table = io.BytesIO(), pa.Table.from_pylist(rows, pa.schema(list(kinds.items())))
    pq.write_table(table, sink, store_schema=False, row_group_size=2)
    file = _parquet(with_footer(sink.getvalue(), footers.with_enums))
    assert [(column.name, column.type) for column in file.facts().columns.columns] == [
        ("e", "VARCHAR"),
        ("b", "BLOB"),
        ("l", "VARCHAR[]"),
        ("s", "STRUCT(e VARCHAR, n BIGINT)"),
        ("m", "MAP(VARCHAR, VARCHAR)"),
        ("both", "STRUCT(b BLOB, e VARCHAR, m MAP(VARCHAR, BLOB))[]"),
    ]
    assert values(file.batches(list(kinds), 0, 9)) == rows


def test_a_footer_may_be_longer_than_what_is_fetched_first() -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"_offset": range(2), **{f"column_{n}": range(2) for n in range(2_000)}}), sink)
    assert len(sink.getvalue()) > 100_000
    facts = _parquet(sink.getvalue()).facts()
    assert (facts.rows, facts.last, len(facts.columns.columns)) == (2, 1, 2_001)


@pytest.mark.parametrize(
    ("column", "value"),
    [("day", 3_000_000), ("day", -800_000), ("at", 2**60), ("at", -(2**60)), ("of", {"day": 1 << 22})],
)
def test_days_and_times_of_avro_that_are_beyond_what_is_read_are_no_damaged_file(column: str, value: object) -> None:
    def schema(*kinds: object) -> dict[str, object]:
        day, at = ({"name": name, "type": kind} for name, kind in zip(("day", "at"), kinds, strict=True))
        of = {"name": "of", "type": ["null", {"type": "record", "name": "of", "fields": [day]}]}
        return {"type": "record", "name": "r", "fields": [day, at, of]}

    times = {"type": "int", "logicalType": "date"}, {"type": "long", "logicalType": "timestamp-micros"}
    numbers, said = (fastavro.parse_schema(schema(*kinds)) for kinds in (("int", "long"), times))
    rows = [{"day": 1, "at": 2, "of": {"day": 3}}, {"day": 1, "at": 2, "of": None} | {column: value}]
    files = list[bytes]()
    for written, records in ((said, []), (numbers, []), (numbers, rows)):
        fastavro.writer(sink := io.BytesIO(), written, records, sync_marker=b"-" * 16)
        files.append(sink.getvalue())
    file = avro.AvroRows(pa.BufferReader(files[0] + files[2][len(files[1]) :]), "_offset")
    with pytest.raises(
        Unreadable, match=f"column {column!r} holds a day or time outside of the years 1 to 9999"
    ) as refused:
        list(file.batches(["day", "at", "of"], 0, 9))
    assert "or land the column as a number" in refused.value.then


@pytest.mark.parametrize("writer", BARE_AVRO, ids=str)
@pytest.mark.parametrize("said", [0, -1, 1])
@pytest.mark.parametrize("block", [0, 1, -1])
def test_a_block_of_avro_that_counts_its_records_wrong_is_refused(writer: Writer, said: int, block: int) -> None:
    data = writer.write(ROWS, 0)
    sync = data[-16:]
    starts = [match.end() for match in re.finditer(re.escape(sync), data)][:-1]
    start = starts[block]
    assert data[start] == data[start] & 0x7F > 2
    wrong = data[:start] + bytes([(said << 1) ^ (said >> 63)]) + data[start + 1 :]
    file = opened(writer, wrong)
    with pytest.raises(Unreadable, match=f"a block says {said} records, and holds others"):
        _look_and_read(file)


def _look_and_read(file: LandedFile) -> None:
    file.facts()
    list(file.batches(["n"], 0, 30))


FILES = Path(__file__).parents[1] / "vectors" / "landed"
FIRST, ROWS_JAVA = 100, 40
JSON_COLUMNS = {
    "member": "VARCHAR",
    "n": "BIGINT",
    "price": "DECIMAL(20,2)",
    "score": "DOUBLE",
    "good": "BOOLEAN",
    "day": "INTEGER",
    "at": "BIGINT",
    "raw": "BLOB",
    "tags": "VARCHAR[]",
    "place": "STRUCT(x INTEGER, y VARCHAR)",
}


def row_by_java(number: int) -> dict[str, Any]:
    """A row as Landed.java has it."""
    return {
        "member": f"mémber-{number % 7}" if number % 9 else None,
        "n": 2**62 + number,
        "price": Decimal("12345678901234567.25") + number if number % 5 else None,
        "score": number / 3,
        "good": number % 2 == 0,
        "day": date(1970, 1, 1) + timedelta(days=20000 + number),
        "at": datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=1_700_000_000_000 + number),
        "raw": bytes([number, 255]),
        "tags": ["a", f"b{number}"] if number % 3 else [],
        "place": {"x": number, "y": "y" if number % 2 else None} if number % 4 else None,
        "_offset": FIRST + number,
    }


def written_by_java(name: str, **declared: Any) -> LandedFile:
    stream = checked(Stream("views", "s3://landing", "member", 1, **declared))
    return open_landed(stream, pa.BufferReader((FILES / name).read_bytes()), FIRST)


def read(file: LandedFile) -> list[dict[str, Any]]:
    facts = file.facts()
    assert (facts.rows, facts.first, facts.last) == (ROWS_JAVA, FIRST, FIRST + ROWS_JAVA - 1)
    return values(file.batches(file.schema.names, FIRST, FIRST + ROWS_JAVA))


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "bzip2"])
def test_avro(codec: str) -> None:
    assert read(written_by_java(f"views+0+0000000100.{codec}.avro", format="avro")) == [
        row_by_java(number) for number in range(ROWS_JAVA)
    ]


def test_json_lines_have_numbers_for_times_and_decimals_as_the_converter_writes_them() -> None:
    """Days and times are numbers there."""
    rows = read(written_by_java("views+0+0000000100.json.gz", format="json", columns=JSON_COLUMNS))
    numbers = [{"day": 20000 + number, "at": 1_700_000_000_000 + number} for number in range(ROWS_JAVA)]
    assert rows == [row_by_java(number) | numbers[number] for number in range(ROWS_JAVA)]
    columns = JSON_COLUMNS | {"price": "BLOB"}
    rows = read(written_by_java("views+0+0000000100.json", format="json", columns=columns))
    unscaled = [None if one["price"] is None else int.from_bytes(one["price"], "big", signed=True) for one in rows]
    prices = [row_by_java(number)["price"] for number in range(ROWS_JAVA)]
    assert unscaled == [None if price is None else int(price * 100) for price in prices]
    assert b64decode("ESIQ9H3pgTk=") == rows[1]["price"]
