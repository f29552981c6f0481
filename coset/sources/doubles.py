"""Doubles: offsets that several landed files hold, as a sink that was started again wrote their records once more.

One file counts for each offset. The others have to hold the same records there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from coset.sources.databases import connect_to_ask
from coset.sources.files import Files
from coset.sources.formats.landed_file import LandedFile
from coset.sources.formats.opening import opened
from partitioning.model.graph import quote
from partitioning.model.offsets import Span
from partitioning.model.streams import InputFile, Stream
from partitioning.values import replace


@dataclass(frozen=True, slots=True)
class ComparedCopies:
    """How many records a double has, and the first offset at which it differs from the file that counts. None if it
    does not."""

    records: int
    differs: int | None


# Compares the offsets that two files hold: the file that counts there, and the other.
Compare = Callable[[InputFile, InputFile, Span], ComparedCopies]


@dataclass(frozen=True, slots=True)
class UnlikeCopies:
    """Two files that hold the same offsets, and do not have the same records there from offset `first` on."""

    one: InputFile
    other: InputFile
    offsets: Span
    first: int


def once(files: Iterable[InputFile], compare: Compare) -> tuple[list[InputFile], list[InputFile], list[UnlikeCopies]]:
    """The files of a partition as they count, each from the offset on at which those before it end; the doubles, parts
    of files that others have; and what differs.

    >>> files = [InputFile(name, 9, "", *span) for name, *span in (("a", 0, 100), ("b", 50, 150), ("c", 60, 80))]
    >>> counting, doubles, _ = once(files, lambda one, other, span: ComparedCopies(span.end - span.start, None))
    >>> [(file.path, file.start, file.end) for file in counting]
    [('a', 0, 100), ('b', 100, 150)]
    >>> [(file.path, file.start, file.end) for file in doubles]
    [('b', 50, 100), ('c', 60, 80)]
    """
    counting, doubles, differences = list[InputFile](), list[InputFile](), list[UnlikeCopies]()
    for file in sorted(files, key=lambda file: (file.start, -file.end, file.path)):
        covered = min(file.end, max((one.end for one in counting[-1:]), default=0))
        if covered <= file.start:
            counting.append(file)
            continue
        records = 0
        for one in _holding(counting, file.start, covered):
            span = Span(max(one.start, file.start), min(one.end, covered))
            found = compare(one, file, span)
            records += found.records
            if found.differs is not None:
                differences.append(UnlikeCopies(one, file, span, found.differs))
        doubles.append(replace(file, end=covered, missing=covered - file.start - records))
        if covered < file.end:
            rest = file.end - covered - (file.records - records)
            counting.append(replace(file, start=covered, missing=rest))
    return counting, doubles, differences


def _holding(counting: Sequence[InputFile], start: int, end: int) -> Iterator[InputFile]:
    """Those of these files, in their order, that hold offsets of [start, end)."""
    first = len(counting)
    while first and counting[first - 1].end > start:
        first -= 1
    return (file for file in counting[first:] if file.start < end)


def comparing(stream: Stream, files: Files) -> Compare:
    """Compares files of a stream record by record, by all their columns, as SQL compares: a column that a file lacks is
    null there.

    Raises what opening and reading a landed file raises, and DuckDB's errors for values that it cannot compare.
    """

    def compare(one: InputFile, other: InputFile, span: Span) -> ComparedCopies:
        records, differs = 0, None
        with ExitStack() as stack:
            first, second = (
                _records(stream, stack.enter_context(opened(stream, files, file.path, file.first, file.keys)), span)
                for file in (one, other)
            )
            for some, others in _side_by_side(first, second):
                records += len(others)
                if differs is None:
                    differs = _first_unlike(stream.offset, some, others)
        return ComparedCopies(records, differs)

    return compare


def _records(stream: Stream, landed: LandedFile, span: Span) -> Iterator[pa.RecordBatch]:
    """The records of a file with these offsets."""
    for batch in landed.batches(landed.schema.names, span.start, span.end):
        offsets = batch.column(stream.offset)
        yield batch.filter(pc.and_(pc.greater_equal(offsets, span.start), pc.less(offsets, span.end)))


def _side_by_side(
    one: Iterator[pa.RecordBatch], other: Iterator[pa.RecordBatch]
) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    """The records of both, as many of one as of the other; at the end those that only one of them has."""
    some, others = next(one, None), next(other, None)
    while some is not None or others is not None:
        if some is not None and others is not None:
            both = min(len(some), len(others))
            yield some.slice(0, both), others.slice(0, both)
            some, others = some.slice(both), others.slice(both)
        elif some is not None:
            yield some, some.slice(0, 0)
            some = None
        elif others is not None:
            yield others.slice(0, 0), others
            others = None
        some = next(one, None) if some is None or not len(some) else some
        others = next(other, None) if others is None or not len(others) else others


def _first_unlike(offset: str, one: pa.RecordBatch, other: pa.RecordBatch) -> int | None:
    """The offset of the first records that are not the same."""
    if len(one) != len(other):
        return int((one if len(one) else other).column(offset)[0].as_py())
    names = dict.fromkeys([*one.schema.names, *other.schema.names])
    unlike = " OR ".join(f"{_of('one', name, one)} IS DISTINCT FROM {_of('other', name, other)}" for name in names)
    sql = f"SELECT min(least(one.{quote(offset)}, other.{quote(offset)})) FROM one POSITIONAL JOIN other WHERE {unlike}"
    with connect_to_ask() as connection:
        connection.register("one", pa.table(one))
        connection.register("other", pa.table(other))
        found: int | None = connection.execute(sql).fetchall()[0][0]
    return found


def _of(table: str, name: str, records: pa.RecordBatch) -> str:
    return f"{table}.{quote(name)}" if name in records.schema.names else "NULL"
