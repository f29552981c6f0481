"""Files by the writers that Kafka Connect has: its JsonConverter, and Avro's own for Java (tests/vectors/landed)."""

from __future__ import annotations

from base64 import b64decode
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from coset.sources.formats.landed_file import LandedFile
from coset.sources.formats.opening import open_landed
from partitioning.model.stream_rules import checked
from partitioning.model.streams import Stream
from tests.written import values

FILES = Path(__file__).parents[1] / "vectors" / "landed"
FIRST, ROWS = 100, 40
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


def row(number: int) -> dict[str, Any]:
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


def opened(name: str, **declared: Any) -> LandedFile:
    stream = checked(Stream("views", "s3://landing", "member", 1, **declared))
    return open_landed(stream, pa.BufferReader((FILES / name).read_bytes()), FIRST)


def read(file: LandedFile) -> list[dict[str, Any]]:
    facts = file.facts()
    assert (facts.rows, facts.first, facts.last) == (ROWS, FIRST, FIRST + ROWS - 1)
    return values(file.batches(file.schema.names, FIRST, FIRST + ROWS))


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "bzip2"])
def test_avro(codec: str) -> None:
    assert read(opened(f"views+0+0000000100.{codec}.avro", format="avro")) == [row(number) for number in range(ROWS)]


def test_json_lines() -> None:
    """Days and times are numbers there."""
    rows = read(opened("views+0+0000000100.json.gz", format="json", columns=JSON_COLUMNS))
    numbers = [{"day": 20000 + number, "at": 1_700_000_000_000 + number} for number in range(ROWS)]
    assert rows == [row(number) | numbers[number] for number in range(ROWS)]


def test_json_lines_with_decimals_as_the_converter_writes_them_by_default() -> None:
    columns = JSON_COLUMNS | {"price": "BLOB"}
    rows = read(opened("views+0+0000000100.json", format="json", columns=columns))
    unscaled = [None if one["price"] is None else int.from_bytes(one["price"], "big", signed=True) for one in rows]
    prices = [row(number)["price"] for number in range(ROWS)]
    assert unscaled == [None if price is None else int(price * 100) for price in prices]
    assert b64decode("ESIQ9H3pgTk=") == rows[1]["price"]
