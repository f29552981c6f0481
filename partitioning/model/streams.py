"""Streams as a user declares them, and what was discovered of them in their source."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Literal, assert_never

from msgspec import UNSET, UnsetType

from partitioning.errors import Finding, Refused, about
from partitioning.kinds import Kind
from partitioning.model.offsets import Span
from partitioning.model.placement import MURMUR2, KeyFormat
from partitioning.model.sources import KafkaSource, LandedSource, Source, source_of
from partitioning.values import Value


class NullKeys(StrEnum):
    """What becomes of a stream's records without a key: the batch is refused, or they are dropped and counted, or
    they have a task of their own."""

    REFUSE = "refuse"
    DROP = "drop"
    OWN_TASK = "own task"


class Format(StrEnum):
    """How records are written: in Parquet or Avro files, which say what columns they have, or as lines of JSON. In a
    Kafka broker they are JSON or Avro each, or bytes of which nothing is known."""

    PARQUET = "parquet"
    AVRO = "avro"
    JSON = "json"
    BYTES = "bytes"

    @property
    def noun(self) -> str:
        """What a sentence calls it."""
        match self:
            case Format.PARQUET:
                return "Parquet"
            case Format.AVRO:
                return "Avro"
            case Format.JSON:
                return "JSON"
            case Format.BYTES:
                return "bytes"
            case _:
                assert_never(self)


class Layout(StrEnum):
    """In which folders a stream's files lie: one for each partition, or those of a time, which may be any."""

    PARTITION = "partition"
    TIME = "time"


class Sparse(Value, frozen=True, omit_defaults=True):
    """That offsets are missing. What is missing in a file, its footer says; between two files, up to `gap` may be.

    If it is only the `usual`, there may be what markers and compaction leave; else whatever it is, with a warning.

    >>> print(Sparse(500), Sparse(100, usual=True))
    sparse(500) sparse
    """

    gap: int
    usual: bool = False

    def __str__(self) -> str:
        return "sparse" if self.usual else f"sparse({self.gap})"


DENSE = "dense"
# The column of offsets, unless another is named.
OFFSET = "_offset"
# More than compaction leaves, as a rule, where a file ends.
USUAL_GAP = 100
# Of a stream that is read from its broker, which says what there is: all but what lies before the log's start.
BY_THE_BROKER = Sparse(0)
# The column with the timestamps of records that are read from a broker.
TIMESTAMP = "_timestamp"
_SPARSE = re.compile(r"sparse(\((?P<gap>0|[1-9][0-9]{0,17})\))?")


def sparseness(offsets: str, where: str) -> Sparse | UnsetType:
    """What a stream says of missing offsets. Raises Refused for words that say nothing.

    >>> print(sparseness("sparse", "views"), sparseness("sparse(500)", "views"), sparseness("dense", "views"))
    sparse sparse(500) UNSET
    """
    if offsets == DENSE:
        return UNSET
    match = _SPARSE.fullmatch(offsets)
    if match is None:
        then = 'use "dense", or "sparse(N)" if up to N may be missing between two files'
        raise Refused(Finding(Kind.DECLARATION, f"unknown offsets {offsets!r}", where, then, about(offsets=offsets)))
    return Sparse(int(match["gap"])) if match["gap"] else Sparse(USUAL_GAP, usual=True)


class Stream(Value, frozen=True):
    """A named input: a Kafka topic, landed in files as Kafka Connect's S3 sink does, or in its broker.

    `source` is the URI of the topics folder, or of the brokers. `table` streams hold the state of things: every batch
    reads them whole and only the latest record of each key counts (Kafka Streams: KTable). `offset` names the
    column that holds each record's Kafka offset. `hash` is that by which its producers place keys: `murmur2`,
    `java`, the import path of a function, or `opaque` if it is not known. A stream that is `sparse` lacks
    offsets; columns in `cast` are read as these types, whatever a file says. `format` is how records are written, if
    not as Parquet; `columns` and their types are declared where records do not say them, and the Avro `schema` where
    no registry has it. `layout` says in which folders files lie, if not in those of partitions. If offsets are
    `counted`, records do not have them: a file's name says the first, and the others follow. Of a table that is `kept`
    as state, a batch reads what is new. Plans of other streams say nothing of all these.
    """

    name: str
    source: str
    key: str
    partitions: int
    key_format: KeyFormat = KeyFormat.STRING
    offset: str = OFFSET
    null_keys: NullKeys = NullKeys.REFUSE
    hash: str = MURMUR2
    table: bool = False
    sparse: Sparse | UnsetType = UNSET
    cast: Mapping[str, str] | UnsetType = UNSET
    format: Format | UnsetType = UNSET
    columns: Mapping[str, str] | UnsetType = UNSET
    schema: str | UnsetType = UNSET
    layout: Layout | UnsetType = UNSET
    counted: Literal[True] | UnsetType = UNSET
    kept: Literal[True] | UnsetType = UNSET

    @property
    def lies_by(self) -> Layout:
        """In which folders its files lie."""
        return self.layout or Layout.PARTITION

    @property
    def origin(self) -> Source:
        """Where its records come from."""
        return source_of(self.source)

    @property
    def written_as(self) -> Format:
        """How its records are written."""
        return self.format or Format.PARQUET

    @property
    def counted_by_plan(self) -> bool:
        """Whether the plan knows how many records a range has; of what a broker holds only those know who read it."""
        match self.origin:
            case LandedSource():
                return True
            case KafkaSource():
                return False
            case _:
                assert_never(self.origin)

    @property
    def casts(self) -> Mapping[str, str]:
        """The columns that are read as types of their own."""
        return self.cast or {}

    @property
    def kind(self) -> str:
        """What it is, in a few words."""
        if not self.table:
            return "stream"
        return "table, kept" if self.kept else "table, read whole"


class Column(Value, frozen=True, order=True, gc=False):
    """A column and its DuckDB type."""

    name: str
    type: str


class InputFile(Value, frozen=True, order=True, gc=False, omit_defaults=True):
    """A landed file as the plan pins it: `start` (first offset, as in its name), `end` (last + 1), and how many of the
    offsets between them it does not hold, by the number of records in its footer.

    Of what a broker holds it is a range of a partition, its `path` the partition's and its `etag` the topic's id; its
    `size` is estimated, and how many records it has, all or fewer, nobody knows before they are read.
    """

    path: str
    size: int
    etag: str
    start: int
    end: int
    missing: int = 0

    @property
    def records(self) -> int:
        """How many it holds."""
        return self.end - self.start - self.missing

    def held(self, start: int, end: int) -> int:
        """How many records it holds with the offsets [start, end); if it lacks some and these are a part of it, about
        so many."""
        common = max(0, min(self.end, end) - max(self.start, start))
        return common if not self.missing else self.records * common // (self.end - self.start)

    def share(self, start: int, end: int) -> int:
        """How many of its bytes the offsets [start, end) have, if all records are of one size."""
        if self.start == self.end:
            return 0
        return self.size * (min(self.end, end) - max(self.start, start)) // (self.end - self.start)


class DiscoveredPartition(Value, frozen=True):
    """What a stream partition holds now: its files by offset, pinned by their etags.

    What was `read` before is not looked at again, and may be gone; the files are those that hold something else. The
    first that holds what is in no published batch `landed` at that time. `epoch` is what a plan keeps of it.
    """

    partition: int
    files: tuple[InputFile, ...] = ()
    read: Span | None = None
    landed: datetime | None = None
    epoch: int = -1

    @property
    def beginning(self) -> int:
        """The earliest offset that there was; 0 if nothing has arrived."""
        if self.read is not None:
            return self.read.start
        return self.files[0].start if self.files else 0

    @property
    def end(self) -> int:
        """The next offset to arrive; 0 if nothing has."""
        if self.files:
            return self.files[-1].end
        return self.read.end if self.read is not None else 0


class Discovered(Value, frozen=True):
    """What was found of a stream: its columns and every declared partition, by number.

    Some files are `lacking` some columns, which are null there; `required` ones no file allows to be null. `topic` is
    the topic's id, if it was found in its broker.
    """

    stream: str
    columns: tuple[Column, ...]
    partitions: Sequence[DiscoveredPartition]
    lacking: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    topic: str = ""
