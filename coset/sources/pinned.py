"""Pinned inputs: whether landed files are as they were planned, and the findings if not. A second look: files that
begin in the gaps of a landed stream now.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain

import pyarrow as pa

from coset.sources.files import Files, version
from coset.sources.layouts import digits_of, folder, folders_of, key_before, listed_between
from coset.sources.s3 import reaching
from partitioning.commands import Command, Then
from partitioning.documents.store import Entry, Found, at_once
from partitioning.documents.stores import store_at
from partitioning.errors import Finding, Refused
from partitioning.kinds import Kind
from partitioning.model.offsets import Span
from partitioning.model.sources import IcebergSource, KafkaSource, LandedSource
from partitioning.model.stage_inputs import PlannedPartition, PlannedStream
from partitioning.model.streams import InputFile, Layout, Stream


def restore(anew: Command) -> Then:
    """The next step for a file that is not as planned. `anew` plans its readers again with today's files."""
    return "restore the file as it was planned, or land it again and ", anew


def gone(file: InputFile, then: Then) -> Finding:
    """The finding that a file does not exist."""
    return Finding.of(Kind.FILE_GONE, "the file is gone since the batch was planned", file.path, then, file=file.path)


def changed(file: InputFile, size: int, etag: str, then: Then) -> Finding | None:
    """The finding that a file is not the planned one, if so."""
    if (size, etag) == (file.size, file.etag):
        return None
    what = f"planned {file.size} bytes, etag {file.etag}, found {size} bytes, etag {etag}"
    return Finding.of(
        Kind.FILE_CHANGED,
        f"the file was changed since the batch was planned: {what}",
        file.path,
        then,
        planned=(file.size, file.etag),
        found=(size, etag),
    )


def not_as_planned(streams: Iterable[PlannedStream], anew: Command, *, were_read: bool = False) -> Iterator[Finding]:
    """Findings for all inputs that are no longer as planned. A stream may come once for each batch that planned it;
    `anew` plans these again with what is there.

    If they `were_read`, a topic may have lost records since that its readers have seen. Raises Unreachable if store or
    brokers do not answer.
    """
    landed = dict[tuple[str, str], list[PlannedStream]]()
    for stream in streams:
        match stream.declared.origin:
            case LandedSource(uri):
                landed.setdefault((stream.name, uri), []).append(stream)
            case KafkaSource() as source:
                from coset.sources.kafka import pinned_topics as kafka  # noqa: PLC0415  few streams are read from brokers

                yield from kafka.not_as_planned(stream, source, anew, were_read=were_read)
            case IcebergSource():
                files = (file for partition in stream.partitions for file in partition.files)
                yield from _data_files_not_as_planned(files, restore(anew))
    for of_one in landed.values():
        yield from _files_not_as_planned(of_one, restore(anew))


def _files_not_as_planned(planned: Sequence[PlannedStream], then: Then) -> Iterator[Finding]:
    """The files of one stream that are not as batches planned them, by one listing from the first of them on."""
    # A file across the end of a batch is planned by two batches.
    pinned = (file for stream in planned for partition in stream.partitions for file in partition.files)
    files = {each: each.path for file in pinned for each in (file, file.beside) if each}
    present = _listed(planned, set(files.values())) if files else {}
    for file, path in files.items():
        entry = present.get(path)
        finding = changed(file, entry.size, entry.etag, then) if entry else gone(file, then)
        if finding is not None:
            yield finding


def open_pinned(store: Files, file: InputFile, then: Then) -> pa.NativeFile:
    """A file as it was planned. Raises Refused if it is gone, or another."""
    try:
        with reaching("the file cannot be opened", file.path, then):
            opened = store.open(file.path)
    except FileNotFoundError as error:
        raise Refused(gone(file, then)) from error
    if finding := changed(file, *version(file.path, opened), then):
        raise Refused(finding)
    return opened


def _data_files_not_as_planned(files: Iterable[InputFile], then: Then) -> Iterator[Finding]:
    """The files of a table that are not as a batch planned them. They may lie anywhere, so each is looked up."""
    store = Files()

    def found(file: InputFile) -> Sequence[Finding]:
        try:
            open_pinned(store, file, then).close()
        except Refused as refusal:
            return refusal.findings
        return ()

    yield from chain.from_iterable(at_once(found, [*files]))


def _listed(planned: Sequence[PlannedStream], paths: Container[str]) -> dict[str, Entry]:
    """What the source lists under these paths."""
    declared = planned[-1].declared
    source = f"{declared.source.rstrip('/')}/"
    partitions = [partition for stream in planned for partition in stream.partitions]
    objects = folders_of(declared).planned(store_at(source), partitions)
    uris = ((f"{source}{found.entry.key}", found.entry) for found in objects)
    return {uri: entry for uri, entry in uris if uri in paths}


def files_in(
    stream: Stream, partitions: Sequence[PlannedPartition], gaps: Mapping[int, Sequence[Span]]
) -> Iterator[tuple[int, int, str]]:
    """The files that begin in the gaps of these partitions: partition, first offset and URI.

    Raises Unreachable if the store does not answer.
    """
    folders, source = folders_of(stream), f"{stream.source.rstrip('/')}/"
    for planned in partitions:
        wanted = gaps.get(planned.partition, ())
        for found in _there(stream, source, planned, wanted) if wanted else ():
            name = folders.parse(found.entry.key)
            if name is None or name.partition != planned.partition:
                continue
            if any(gap.start <= name.start < gap.end for gap in wanted):
                yield planned.partition, name.start, f"{source}{found.entry.key}"


def _there(stream: Stream, source: str, planned: PlannedPartition, gaps: Sequence[Span]) -> Iterator[Found]:
    """The objects from the first gap of a partition to its last, perhaps with others."""
    store, number = store_at(source), planned.partition
    if stream.layout is not Layout.PARTITION:
        return folders_of(stream).objects_in(store, number)
    digits = digits_of(file.path for file in planned.files) or 10
    after = key_before(stream.name, number, gaps[0].start, digits)
    last = key_before(stream.name, number, gaps[-1].end, digits)
    # For names with more digits it only gives where they begin.
    ends = last if last.endswith(f"{gaps[-1].end:0{digits}}") else None
    return listed_between(store, folder(stream.name, number), after, ends)
