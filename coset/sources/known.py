"""What published batches have read of a stream, so that discovery looks at new files only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from coset.sources.file_columns import NULL_TYPE
from coset.sources.landed_keys import landed_columns
from coset.sources.layouts import digits_of, folder, key_before
from partitioning.model.offsets import Span
from partitioning.model.read_ends import End, Ends
from partitioning.model.sources import LandedSource, source_of
from partitioning.model.stream_rules import columns_beside
from partitioning.model.streams import Column, InputFile, Stream


@dataclass(frozen=True, slots=True)
class KnownStream:
    """What earlier batches know of a stream that a `pipeline` reads: its columns, those that were never null, and how
    far each partition was read (`ends`).

    `read` has the partitions, by number, with a part that is not looked at again: none of a table, and none if the
    source moved. `last` are the files read last, of all inputs that are not read whole. `pinned` has the files read
    last, by URI.
    """

    pipeline: str = ""
    columns: Sequence[Column] = ()
    required: Sequence[str] = ()
    ends: Mapping[int, int] = field(default_factory=dict)
    read: Mapping[int, End] = field(default_factory=dict)
    last: Mapping[int, InputFile] = field(default_factory=dict)
    pinned: Mapping[str, InputFile] = field(default_factory=dict)

    @classmethod
    def by(cls, stream: Stream, before: Ends) -> KnownStream:
        """What batches have read. If the source moved or its offsets mean something else now, the files are unknown."""
        known = before.stream(stream.name)
        if known is None:
            return cls()
        of_now = [end for end in known.ends if end.end and end.partition < stream.partitions]
        ends = {end.partition: end.end for end in of_now}
        had = (*known.columns, *(Column(name, NULL_TYPE) for name in known.untyped))
        columns = _still_declared(stream, landed_columns(stream, had))
        whole, files = before.is_read_whole(stream), [file for end in of_now for file in end.files]
        last = {end.partition: end.files[-1] for end in of_now if end.files and not whole}
        last = {number: file for number, file in last.items() if isinstance(source_of(file.path), LandedSource)}
        if _meaning(stream) != _meaning(known.declared):
            return cls(before.pipeline, columns, known.required, ends, last=last)
        read = {} if whole else {end.partition: end for end in of_now}
        # Of a table that is read whole, what doubles what is found anew.
        pinned = {file.path: file for file in files if not (whole and file.first < file.start)}
        pinned = {path: file for path, file in pinned.items() if stream.sparse or not file.missing}
        return cls(before.pipeline, columns, known.required, ends, read, last, pinned)

    def end(self, partition: int) -> int:
        """How far a partition is published, also of a table that each batch reads whole."""
        return self.ends.get(partition, 0)

    def committed(self, partition: int) -> int:
        """Up to which offset a partition need not be looked at again."""
        return self.read[partition].end if partition in self.read else 0

    def span(self, partition: int) -> Span | None:
        """What was read of a partition. None if nothing was."""
        end = self.read.get(partition)
        return Span(min(end.beginning, end.end), end.end) if end else None

    def as_pinned(self, uri: str, size: int, etag: str) -> InputFile | None:
        """The file as it was read. None if it was not read, or has changed."""
        file = self.pinned.get(uri)
        return file if file and (file.size, file.etag) == (size, etag) else None

    def starts(self, stream: Stream, keys: Mapping[int, str], others: Iterable[str]) -> Mapping[str, str]:
        """For each partition's folder, the key after which to list: all new files are behind it.

        `keys` are the files that were read last. If there are none, `others` are any keys of the stream, which show the
        form of its names.
        """
        digits = digits_of(keys.values()) or digits_of(others)
        if not digits:
            return {}
        starts = {}
        for number in self.read:
            after = key_before(stream.name, number, self.committed(number), digits)
            # The last file must be listed again, unchanged.
            starts[folder(stream.name, number)] = min(after, keys[number][:-1]) if number in keys else after
        return starts


def _meaning(stream: Stream) -> tuple[object, ...]:
    """What must be unchanged for offsets and files to mean the same as before."""
    return stream.source.rstrip("/"), stream.offset, stream.counted, stream.format, stream.layout, stream.keys


def _still_declared(stream: Stream, columns: Sequence[Column]) -> Sequence[Column]:
    """The columns that the declaration still has, where it lists columns."""
    if not stream.columns or stream.format.has_types:
        return columns
    declared = {*stream.columns, *columns_beside(stream), stream.offset}
    return [column for column in columns if column.name in declared]
