"""Records that a batch read, found again by offset or key in its files or topics. Nothing is stored."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from coset.batches.attempt import Attempt
from coset.sources.copies import Copies
from coset.sources.files import Files
from coset.sources.plain_arrays import legible, values_of
from coset.sources.reader import Batch
from partitioning.errors import Refused
from partitioning.hashes import homes_of, read_key
from partitioning.kinds import Kind
from partitioning.model.graph import quote
from partitioning.model.order import OrderedStream
from partitioning.model.placement import OPAQUE, KeyFormat, Placement, keeps_empty
from partitioning.model.plan import Plan
from partitioning.model.stage_inputs import PlannedPartition, PlannedStream, StreamInput
from partitioning.values import replace
from spark_jobs.engine.arrays import mask
from spark_jobs.engine.hashing import key_texts, one_of_equals
from spark_jobs.engine.kernel import TaskEnvironment, stream_reader
from spark_jobs.engine.task_database import connect

_PLAIN = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_string)

Wanted = Callable[[Batch], np.ndarray]


@dataclass(frozen=True, slots=True)
class Record:
    """A record, its place in a file or topic partition, and its columns: numbers, texts and truth as they are, all else
    as DuckDB writes it."""

    stream: str
    partition: int
    offset: int
    file: str
    columns: dict[str, Any]


@dataclass(slots=True)
class Search:
    """The records found in a stream, in how many it `looked`, and whether there may be `more` beyond the limit."""

    stream: str
    found: list[Record] = field(default_factory=list)
    looked: int = 0
    more: bool = False


def at_offsets(
    plan: Plan, stream: str, offsets: Mapping[int, Collection[int]], most: int, key: str | None = None
) -> Search:
    """The records at these offsets of each partition; of a key only. Raises Refused as `of_keys`."""
    planned = plan.stream(stream)
    partitions = [_around(planned.partitions[number], offsets[number]) for number in sorted(offsets)]
    there = {number: np.array(sorted(those), np.int64) for number, those in offsets.items()}
    of_key = _with_keys(planned, [] if key is None else [key])

    def wanted(batch: Batch) -> np.ndarray:
        found = np.isin(offsets_of(planned, batch), there[batch.partition])
        return found if key is None else found & of_key(batch)

    return _search(plan, planned, partitions, wanted, most)


def of_keys(attempt: Attempt, stream: str, keys: Collection[str], most: int) -> Search:
    """The records of these keys, as audit tables write them.

    Raises Refused if one is no key, and Refused or Unreachable if a file cannot be read.
    """
    planned = attempt.plan.stream(stream)
    wanted = _with_keys(planned, keys)
    numbers = {number for key in keys for number in _homes(attempt, planned, key)}
    return _search(attempt.plan, planned, [planned.partitions[number] for number in sorted(numbers)], wanted, most)


def first_of(plan: Plan, stream: str, most: int) -> Search:
    """The first records of a stream. Raises Refused or Unreachable if a file cannot be read."""
    planned = plan.stream(stream)
    return _search(plan, planned, planned.partitions, lambda batch: np.ones(len(batch.records), np.bool_), most)


def batches_of(
    plan: Plan, planned: PlannedStream, partitions: Sequence[PlannedPartition], columns: Sequence[str]
) -> Iterator[Batch]:
    """The records of these partitions, as tasks read them, but with text as it is.

    Raises Refused or Unreachable if a file cannot be read.
    """
    declared = planned.declared
    placement = Placement(declared.key, declared.key_format, declared.hash, declared.partitions)
    read = StreamInput(declared.name, placement, declared.partitions, declared.null_keys)
    ordered = OrderedStream(read, declared, planned.columns, tuple(partitions), planned.ids)
    try:
        reader = stream_reader(plan.pipeline, ordered, TaskEnvironment(Files(), Copies(None)), shown=True)
        if not reader.empty:
            yield from reader.batches(columns)
    except Refused as refusal:
        # Nothing is to be planned anew: the batch may be published.
        then = "restore it as it was when the batch was planned: without it nobody can see what the batch read"
        raise refusal.saying(lambda finding: replace(finding, next=then)) from None


def offsets_of(planned: PlannedStream, batch: Batch) -> np.ndarray:
    """The offset of each record."""
    offsets: np.ndarray = batch.records.column(planned.declared.offset).cast(pa.int64()).to_numpy()
    return offsets


def plain_rows(rows: pa.Table) -> list[dict[str, Any]]:
    """Rows for people and programs, as `Record` has them."""
    numbered = legible(rows.rename_columns([f"c{number}" for number in range(rows.num_columns)]))
    columns = ", ".join(
        quote(field.name) if any(is_plain(field.type) for is_plain in _PLAIN) else f"{quote(field.name)}::VARCHAR"
        for field in numbered.schema
    )
    with connect() as connection:
        connection.register("found", numbered)
        found = connection.execute(f"SELECT {columns} FROM found").fetchall()
    return [dict(zip(rows.column_names, row, strict=True)) for row in found]


def _search(
    plan: Plan, planned: PlannedStream, partitions: Sequence[PlannedPartition], wanted: Wanted, most: int
) -> Search:
    search, ranges = Search(planned.name), {each.partition: each for each in partitions}
    columns = list(dict.fromkeys([*(column.name for column in planned.columns), planned.declared.offset]))
    for batch in batches_of(plan, planned, partitions, columns) if partitions else ():
        offsets, range_ = offsets_of(planned, batch), ranges[batch.partition]
        inside = (offsets >= range_.start) & (offsets < range_.end)
        rows = batch.records.filter(mask(inside & wanted(batch)))
        room = most - len(search.found)
        search.looked += int(np.count_nonzero(inside))
        search.found.extend(_records(planned, batch, rows.slice(0, room)))
        if len(rows) > room:
            search.more = True
            break
    return search


def _with_keys(planned: PlannedStream, keys: Collection[str]) -> Wanted:
    declared = planned.declared
    known = {_as_written(key, declared.key_format) for key in keys}

    def wanted(batch: Batch) -> np.ndarray:
        texts = key_texts(one_of_equals(batch.records.column(declared.key)), declared.key_format)
        return np.array([text in known for text in values_of(texts)], np.bool_)

    return wanted


def _records(planned: PlannedStream, batch: Batch, rows: pa.RecordBatch) -> Iterator[Record]:
    for row in plain_rows(pa.Table.from_batches([rows])) if len(rows) else ():
        yield Record(planned.name, batch.partition, row[planned.declared.offset], batch.where, row)


def _around(planned: PlannedPartition, offsets: Collection[int]) -> PlannedPartition:
    """The part of a partition with these offsets; a record in disorder may have one that no file should hold."""
    start, end = min(offsets), max(offsets) + 1
    within = tuple(file for file in planned.files if file.start < end and start < file.end)
    inside = planned.start <= start and end <= planned.end
    return replace(planned, start=start, end=end, files=within if inside else planned.files)


def _homes(attempt: Attempt, planned: PlannedStream, key: str) -> Collection[int]:
    """The partitions in which a key's records can lie: its own, and those in which the proof met foreign keys.

    If the batch has not run, or nobody knows the hash, these are all; so they are for an empty key, if its hash puts
    such a key anywhere.
    """
    name, everywhere = planned.name, range(len(planned.partitions))
    reads = [read for stage in attempt.plan.stages for read in stage.streams if read.name == name]
    if attempt.missing or any(read.placement.hash == OPAQUE or not read.placement.key for read in reads):
        return everywhere
    if not key and not all(keeps_empty(read.placement.hash) for read in reads):
        return everywhere
    seen = [seen for task in attempt.tasks for seen in task.partitions if seen.input == name]
    homes = {each.partition for each in seen if each.foreign}
    for read in reads:
        placement = read.placement
        found = homes_of(read_key(key, placement.key_format), placement, name)
        homes |= {number for number in read.numbers if number % placement.partitions in found}
    return homes


def _as_written(key: str, key_format: KeyFormat) -> str:
    """A key that somebody typed, as audit tables write it. Raises Refused if it is none of its format."""
    try:
        read = read_key(key, key_format)
        if key_format in {KeyFormat.STRING, KeyFormat.UUID, KeyFormat.BYTES}:
            return key if key_format == KeyFormat.STRING else key.lower()
        (text,) = key_texts(one_of_equals(pa.array([read])), key_format).to_pylist()
        return str(text)
    except ValueError as error:
        what = f"{key!r} is no key of the format {key_format}: {error}"
        then = "write it as the audit tables do"
        raise Refused.of(Kind.KEY, what, "--key", then, text=key, key_format=key_format) from error
