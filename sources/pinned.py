"""Pinned files: landed files as they were when a batch was planned, and what is said of those that are so no more."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

from partitioning.documents.store import Entry, S3Store
from partitioning.errors import Finding, plan_anew
from partitioning.model.plan import PlannedStream
from partitioning.model.streams import InputFile
from sources.layouts import folders_of


def restore(pipeline: str) -> str:
    """What to do about a file that is not as it was planned."""
    return f"restore the file as it was planned, or land it again and run {plan_anew(pipeline)}"


def gone(file: InputFile, then: str) -> Finding:
    """That a file is not there."""
    return Finding("the file is gone since the batch was planned", file.path, then)


def changed(file: InputFile, size: int, etag: str, then: str) -> Finding | None:
    """That a file is another than the planned one, if it is."""
    if (size, etag) == (file.size, file.etag):
        return None
    what = f"planned {file.size} bytes, etag {file.etag}, found {size} bytes, etag {etag}"
    return Finding(f"the file was changed since the batch was planned: {what}", file.path, then)


def not_as_planned(streams: Iterable[PlannedStream], pipeline: str) -> Iterator[Finding]:
    """The planned files that are not there as they were planned, by a listing of each stream's folders from the first
    of them on."""
    then = restore(pipeline)
    for stream in streams:
        planned = {file.path: file for partition in stream.partitions for file in partition.files}
        there = _listed(stream, planned) if planned else {}
        for path, file in planned.items():
            entry = there.get(path)
            finding = changed(file, entry.size, entry.etag, then) if entry else gone(file, then)
            if finding is not None:
                yield finding


def _listed(stream: PlannedStream, paths: Container[str]) -> dict[str, Entry]:
    """What the source lists under these paths."""
    source = f"{stream.declared.source.rstrip('/')}/"
    objects = folders_of(stream.declared).planned(S3Store(source), stream.partitions)
    uris = ((f"{source}{found.entry.key}", found.entry) for found in objects)
    return {uri: entry for uri, entry in uris if uri in paths}
