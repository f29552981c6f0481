"""Pinned files: landed files as they were when a batch was planned, and what is said of those that are so no more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from partitioning.documents.store import Entry, S3Store
from partitioning.errors import Finding, plan_anew
from partitioning.model.plan import PlannedStream
from partitioning.model.streams import InputFile
from sources.listing import folder, listed


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
    """The planned files that are not there as they were planned, by one listing of each stream's folders from the
    first of them on. A stream may be given as several batches planned it."""
    then = restore(pipeline)
    for (name, source), planned in _by_folder(streams).items():
        # What lies across the end of a batch is planned by two of them.
        files = dict.fromkeys(file for of_folder in planned.values() for file in of_folder)
        present = _listed(name, source, planned) if files else {}
        for file in files:
            entry = present.get(file.path)
            finding = changed(file, entry.size, entry.etag, then) if entry else gone(file, then)
            if finding is not None:
                yield finding


def _by_folder(streams: Iterable[PlannedStream]) -> dict[tuple[str, str], dict[str, list[InputFile]]]:
    """The planned files of each stream's source, by folder."""
    by_source: dict[tuple[str, str], dict[str, list[InputFile]]] = {}
    for stream in streams:
        planned = by_source.setdefault((stream.name, f"{stream.declared.source.rstrip('/')}/"), {})
        for partition in stream.partitions:
            planned.setdefault(folder(stream.name, partition.partition), []).extend(partition.files)
    return by_source


def _listed(name: str, source: str, planned: Mapping[str, Sequence[InputFile]]) -> dict[str, Entry]:
    """What the source lists under the paths of planned files."""
    starts = {}
    for in_folder, files in planned.items():
        keys = [file.path.removeprefix(source) for file in files]
        # Behind the first file, but for its last letter; behind all, where none is planned.
        starts[in_folder] = min(keys)[:-1] if keys else f"{in_folder}~"
    paths = {file.path for files in planned.values() for file in files}
    entries = (found.entry for found in listed(S3Store(source), name, starts))
    uris = ((f"{source}{entry.key}", entry) for entry in entries)
    return {uri: entry for uri, entry in uris if uri in paths}
