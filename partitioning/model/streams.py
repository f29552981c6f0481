"""Streams as a user declares them, and what was discovered of them in their source."""

from __future__ import annotations

from dataclasses import dataclass

from partitioning.errors import Finding, Refused
from partitioning.model.offsets import OffsetRange, StreamPartition, check_name
from partitioning.model.placement import KEY_FORMATS, MURMUR2, placement_findings

REFUSE = "refuse"
DROP = "drop"
OWN_TASK = "own task"
NULL_KEY_POLICIES = (REFUSE, DROP, OWN_TASK)


@dataclass(frozen=True, slots=True)
class Stream:
    """A named input: a Kafka topic landed as Parquet files in the Kafka Connect S3 sink's layout.

    `source` is the URI of the topics folder. `table` streams hold the state of things: every batch reads
    them whole and only the latest record of each key counts (Kafka Streams: KTable). `offset` names the
    column that holds each record's Kafka offset. `null_keys` says what becomes of records without a key:
    `refuse` the batch, `drop` and count them, or give them their `own task`. `placement` is the hash by which
    its producers place keys: `murmur2`, `java`, the import path of a function, or `opaque` if it is not known.
    """

    name: str
    source: str
    key: str
    partitions: int
    key_format: str = "string"
    offset: str = "_offset"
    null_keys: str = REFUSE
    placement: str = MURMUR2
    table: bool = False

    def findings(self) -> tuple[Finding, ...]:
        """All that is wrong with the declaration itself."""
        found = []

        def wrong(what: str, then: str) -> None:
            found.append(Finding(what, f"stream {self.name!r}", then))

        if not self.key or self.key.lower() in {self.offset.lower(), "_partition"}:
            wrong(f"{self.key!r} cannot be the key column", "name the column that holds the record's key")
        if self.partitions < 1:
            wrong(f"{self.partitions} partitions declared", "declare the topic's count, 1 or more")
        if self.key_format not in KEY_FORMATS:
            wrong(f"unknown key format {self.key_format!r}", f"use one of {', '.join(KEY_FORMATS)}")
        if self.null_keys not in NULL_KEY_POLICIES:
            wrong(f"unknown null-key policy {self.null_keys!r}", f"use one of {', '.join(NULL_KEY_POLICIES)}")
        found.extend(placement_findings(self.placement, self.key_format, f"stream {self.name!r}"))
        if not self.source.startswith("s3://"):
            wrong(f"source {self.source!r} is no S3 URI", "write it as s3://bucket/topics")
        return tuple(found)

    def checked(self) -> Stream:
        """The stream itself. Raises Refused with all findings if there are any."""
        check_name(self.name, "stream")
        if findings := self.findings():
            raise Refused(*findings)
        return self


@dataclass(frozen=True, order=True, slots=True)
class Column:
    """A column and its DuckDB type."""

    name: str
    type: str


@dataclass(frozen=True, order=True, slots=True)
class InputFile:
    """A landed file as the plan pins it: `start` (first offset, as in its name) and `end` (last + 1)."""

    path: str
    size: int
    etag: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class DiscoveredPartition:
    """What a stream partition holds now: its files by offset, without a gap. `etags` pin their content."""

    partition: int
    files: tuple[InputFile, ...] = ()

    @property
    def beginning(self) -> int:
        """The earliest offset there is; 0 if nothing has arrived."""
        return self.files[0].start if self.files else 0

    @property
    def end(self) -> int:
        """The next offset to arrive; 0 if nothing has."""
        return self.files[-1].end if self.files else 0


@dataclass(frozen=True, slots=True)
class Discovered:
    """What was found of a stream: its columns and every declared partition, by number."""

    stream: str
    columns: tuple[Column, ...]
    partitions: tuple[DiscoveredPartition, ...]

    def ends(self) -> tuple[OffsetRange, ...]:
        """Per partition, everything there is."""
        return tuple(
            OffsetRange(StreamPartition(self.stream, p.partition), p.beginning, p.end) for p in self.partitions
        )
