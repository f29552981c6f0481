"""Any rows, by any real writer, are read as the same rows with the same offsets: the rows themselves are the oracle."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coset.sources.file_columns import type_named
from coset.sources.formats.landed_file import LandedFile
from coset.sources.formats.opening import open_landed
from partitioning.model.stream_rules import checked
from partitioning.model.streams import Stream
from tests.examples import examples
from tests.written import COLUMNS, WRITERS, Writer, values

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
INTS = st.integers(-(2**31), 2**31 - 1)
ROWS = st.fixed_dictionaries(
    {
        "member": st.none() | TEXTS,
        "n": st.none() | st.integers(-(2**63), 2**63 - 1),
        "small": st.none() | INTS,
        "price": st.none() | st.integers(-(10**30) + 1, 10**30 - 1).map(lambda digits: Decimal(f"{digits}E-4")),
        "score": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "good": st.none() | st.booleans(),
        "day": st.none() | st.dates(),
        "at": st.none() | st.integers(-(10**16), 10**16).map(lambda micros: EPOCH + timedelta(microseconds=micros)),
        "raw": st.none() | st.binary(max_size=9),
        "tags": st.none() | st.lists(st.none() | TEXTS, max_size=3),
        "place": st.none() | st.fixed_dictionaries({"x": INTS, "y": st.none() | TEXTS}),
    }
)
FILES = st.lists(ROWS, min_size=1, max_size=12)
FIRSTS = st.integers(0, 2**40)


def opened(writer: Writer, rows: list[dict[str, Any]], first: int, counted: bool) -> LandedFile:
    stream = checked(Stream("views", "s3://landing", "member", 1, counted=counted, **writer.declared))
    data = writer.write(rows, None if counted else first)
    return open_landed(stream, pa.BufferReader(data), first)


@pytest.mark.parametrize("counted", [False, True], ids=["with offsets", "counted"])
@pytest.mark.parametrize("writer", WRITERS, ids=str)
@settings(max_examples=examples(25))
@given(rows=FILES, first=FIRSTS)
def test_rows_are_read_as_they_were_written(
    writer: Writer, counted: bool, rows: list[dict[str, Any]], first: int
) -> None:
    file = opened(writer, rows, first, counted)
    facts = file.facts()
    assert (facts.rows, facts.first, facts.last, facts.without_offset) == (len(rows), first, first + len(rows) - 1, 0)
    types = {column.name: column.type for column in facts.columns.columns}
    assert types == {name: type_named(kind) for name, (kind, _, _) in COLUMNS.items()} | {"_offset": "BIGINT"}
    read = values(file.batches([*COLUMNS, "_offset", "no such column"], first, first + len(rows)))
    assert read == [{**row, "_offset": first + n} for n, row in enumerate(rows)]


@pytest.mark.parametrize("counted", [False, True], ids=["with offsets", "counted"])
@pytest.mark.parametrize("writer", WRITERS, ids=str)
@settings(max_examples=examples(15))
@given(rows=FILES, first=FIRSTS, data=st.data())
def test_a_part_is_read_with_all_its_records_and_the_columns_that_are_wanted(
    writer: Writer, counted: bool, rows: list[dict[str, Any]], first: int, data: st.DataObject
) -> None:
    start, end = sorted(data.draw(st.lists(st.integers(first, first + len(rows)), min_size=2, max_size=2)))
    columns = [*data.draw(st.lists(st.sampled_from(list(COLUMNS)), unique=True)), "_offset"]
    read = values(opened(writer, rows, first, counted).batches(columns, start, end))
    part = [row for row in read if start <= row["_offset"] < end]
    assert part == [{name: rows[offset - first].get(name, offset) for name in columns} for offset in range(start, end)]
