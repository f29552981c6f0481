"""Streams as a user declares them, and what was discovered of them in their source."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from typing import assert_never

from msgspec import UNSET, UnsetType

from partitioning.errors import Finding, Refused
from partitioning.model.offsets import Span, check_name
from partitioning.model.placement import MURMUR2, KeyFormat, hash_findings
from partitioning.values import Value, replace


class NullKeys(StrEnum):
    """What becomes of a stream's records without a key: the batch is refused, or they are dropped and counted, or
    they have a task of their own."""

    REFUSE = "refuse"
    DROP = "drop"
    OWN_TASK = "own task"


class Format(StrEnum):
    """How records are written: in Parquet or Avro files, which say what columns they have, or as lines of JSON."""

    PARQUET = "parquet"
    AVRO = "avro"
    JSON = "json"

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
            case _:
                assert_never(self)


class Layout(StrEnum):
    """In which folders a stream's files lie: one for each partition, or those of a time, which may be any."""

    PARTITION = "partition"
    TIME = "time"


class Sparse(Value, frozen=True):
    """That offsets are missing. What is missing in a file, its footer says; between two files, up to `gap` may be.

    >>> print(Sparse(500))
    sparse(500)
    """

    gap: int

    def __str__(self) -> str:
        return f"sparse({self.gap})"


DENSE = "dense"
# The column of offsets, unless another is named.
OFFSET = "_offset"
# Enough for what transactions leave where a file ends; less than a file that was lost has held, as a rule.
USUAL_GAP = 100
_SPARSE = re.compile(r"sparse(\((?P<gap>0|[1-9][0-9]{0,17})\))?")


def sparseness(offsets: str, where: str) -> Sparse | UnsetType:
    """What a stream says of missing offsets. Raises Refused for words that say nothing.

    >>> print(sparseness("sparse", "views"), sparseness("sparse(500)", "views"), sparseness("dense", "views"))
    sparse(100) sparse(500) UNSET
    """
    if offsets == DENSE:
        return UNSET
    match = _SPARSE.fullmatch(offsets)
    if match is None:
        then = 'use "dense", or "sparse(N)" if up to N may be missing between two files'
        raise Refused(Finding(f"unknown offsets {offsets!r}", where, then))
    return Sparse(int(match["gap"] or USUAL_GAP))


class Stream(Value, frozen=True):
    """A named input: a Kafka topic landed in files as Kafka Connect's S3 sink does.

    `source` is the URI of the topics folder. `table` streams hold the state of things: every batch reads
    them whole and only the latest record of each key counts (Kafka Streams: KTable). `offset` names the
    column that holds each record's Kafka offset. `hash` is that by which its producers place keys: `murmur2`,
    `java`, the import path of a function, or `opaque` if it is not known. A stream that is `sparse` lacks
    offsets; columns in `cast` are read as these types, whatever a file says. `format` is how records are written, if
    not as Parquet; `columns` and their types are declared where records do not say them. `layout` says in which folders
    files lie, if not in those of partitions. If offsets are `counted`, records do not have them: a file's name says the
    first, and the others follow. Plans of other streams say nothing of all these.
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
    layout: Layout | UnsetType = UNSET
    counted: bool | UnsetType = UNSET

    @property
    def lies_by(self) -> Layout:
        """In which folders its files lie."""
        return self.layout or Layout.PARTITION

    @property
    def written_as(self) -> Format:
        """How its records are written."""
        return self.format or Format.PARQUET

    @property
    def casts(self) -> Mapping[str, str]:
        """The columns that are read as types of their own."""
        return self.cast or {}

    def findings(self) -> tuple[Finding, ...]:
        """All that is wrong with the declaration itself."""
        findings = []

        def wrong(what: str, then: str) -> None:
            findings.append(Finding(what, f"stream {self.name!r}", then))

        if not self.key or self.key.lower() in {self.offset.lower(), "_partition"}:
            wrong(f"{self.key!r} cannot be the key column", "name the column that holds the record's key")
        if self.partitions < 1:
            wrong(f"{self.partitions} partitions declared", "declare the topic's count, 1 or more")
        if self.key_format not in tuple(KeyFormat):
            wrong(f"unknown key format {self.key_format!r}", f"use one of {', '.join(KeyFormat)}")
        if self.null_keys not in tuple(NullKeys):
            wrong(f"unknown null-key policy {self.null_keys!r}", f"use one of {', '.join(NullKeys)}")
        for name in self.casts.keys() & {self.key, self.offset}:
            wrong(f"column {name!r} cannot be cast", "keys and offsets are read as they were landed")
        for what, then in self._format_findings():
            wrong(what, then)
        findings.extend(hash_findings(self.hash, self.key_format, f"stream {self.name!r}"))
        if not self.source.startswith("s3://"):
            wrong(f"source {self.source!r} is no S3 URI", "write it as s3://bucket/topics")
        return tuple(findings)

    def _format_findings(self) -> Iterator[tuple[str, str]]:
        if self.written_as not in tuple(Format):
            yield f"unknown format {self.format!r}", f"use one of {', '.join(Format)}"
        elif self.written_as == Format.JSON and not self.columns:
            yield "JSON does not say of which types its columns are", "declare columns={name: type}"
        elif self.written_as != Format.JSON and self.columns:
            yield f"columns are declared, and {self.written_as} says them itself", "leave columns= out"
        if self.lies_by not in tuple(Layout):
            yield f"unknown layout {self.layout!r}", f"use one of {', '.join(Layout)}"
        if self.counted and self.sparse:
            what = "offsets are counted, and some may be missing: nobody knows which record has which"
            yield what, "land records with their offset and name its column, or declare offsets='dense'"
        if self.counted and self.columns and self.offset in self.columns:
            yield (
                f"column {self.offset!r} is declared, and offset=None says that records lack it",
                "leave one of both out",
            )

    def checked(self) -> Stream:
        """The stream as declared, in plain words or not. Raises Refused with all findings if there are any."""
        check_name(self.name, "stream")
        if findings := self.findings():
            raise Refused(*findings)
        return replace(
            self,
            key_format=KeyFormat(self.key_format),
            null_keys=NullKeys(self.null_keys),
            format=UNSET if self.written_as == Format.PARQUET else Format(self.written_as),
            cast=self.cast or UNSET,
            columns=self.columns or UNSET,
            layout=UNSET if self.lies_by == Layout.PARTITION else Layout(self.lies_by),
            counted=self.counted or UNSET,
        )


class Column(Value, frozen=True, order=True, gc=False):
    """A column and its DuckDB type."""

    name: str
    type: str


class InputFile(Value, frozen=True, order=True, gc=False, omit_defaults=True):
    """A landed file as the plan pins it: `start` (first offset, as in its name), `end` (last + 1), and how many of the
    offsets between them it does not hold, by the number of records in its footer."""

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
        return self.size * (min(self.end, end) - max(self.start, start)) // (self.end - self.start)


class DiscoveredPartition(Value, frozen=True):
    """What a stream partition holds now: its files by offset, pinned by their etags.

    What was `read` before is not looked at again, and may be gone; the files are those that hold something else. The
    first that holds what is in no published batch `landed` at that time.
    """

    partition: int
    files: tuple[InputFile, ...] = ()
    read: Span | None = None
    landed: datetime | None = None

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

    Some files are `lacking` some columns, which are null there; `required` ones no file allows to be null.
    """

    stream: str
    columns: tuple[Column, ...]
    partitions: tuple[DiscoveredPartition, ...]
    lacking: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
