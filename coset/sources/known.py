"""What is known: what published batches have read of a stream, so that only what landed since has to be looked at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from coset.sources.listing import digits_of, folder, key_before
from partitioning.model.ends import End, Ends
from partitioning.model.offsets import Span
from partitioning.model.sources import LandedSource, source_of
from partitioning.model.streams import Column, InputFile, Stream


@dataclass(frozen=True, slots=True)
class KnownStream:
    """The columns of a stream that a `pipeline` reads, those of them that were never null, and how far each partition
    was read (`ends`).

    `read` are the partitions of which something was read that need not be looked at again, by number: none of a table,
    and none if the stream lies elsewhere now. `last` are the landed files that were read last, of all that are not
    read whole. `pinned` are the files that were read last, by URI.
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
        """What batches have read. If the stream lies elsewhere now, or means other offsets, its files are not known."""
        known = before.stream(stream.name)
        if known is None:
            return cls()
        of_now = [end for end in known.ends if end.end and end.partition < stream.partitions]
        ends, columns = {end.partition: end.end for end in of_now}, _still_declared(stream, known.columns)
        whole, files = before.is_read_whole(stream), [file for end in of_now for file in end.files]
        last = {end.partition: end.files[-1] for end in of_now if end.files and not whole}
        last = {number: file for number, file in last.items() if isinstance(source_of(file.path), LandedSource)}
        if _meaning(stream) != _meaning(known.declared):
            return cls(before.pipeline, columns, known.required, ends, last=last)
        read = {} if whole else {end.partition: end for end in of_now}
        pinned = {file.path: file for file in files if stream.sparse or not file.missing}
        return cls(before.pipeline, columns, known.required, ends, read, last, pinned)

    def end(self, partition: int) -> int:
        """Up to where a partition is published; of a table too, which is read whole all the same."""
        return self.ends.get(partition, 0)

    def committed(self, partition: int) -> int:
        """Up to where a partition was read, as far as it need not be looked at again."""
        return self.read[partition].end if partition in self.read else 0

    def span(self, partition: int) -> Span | None:
        """What was read of a partition; None if nothing was."""
        end = self.read.get(partition)
        return Span(min(end.beginning, end.end), end.end) if end else None

    def as_pinned(self, uri: str, size: int, etag: str) -> InputFile | None:
        """The file as it was read; None if it was not, or if it is another now."""
        file = self.pinned.get(uri)
        return file if file and (file.size, file.etag) == (size, etag) else None

    def starts(self, stream: Stream, keys: Mapping[int, str], others: Iterable[str]) -> Mapping[str, str]:
        """By each partition's folder, the key after which to list it: all that came since is behind it.

        `keys` are those of the files that were read last; `others` are keys of the stream that show how names are
        written, if there are none.
        """
        digits = digits_of(keys.values()) or digits_of(others)
        if not digits:
            return {}
        starts = {}
        for number in self.read:
            after = key_before(stream.name, number, self.committed(number), digits)
            # The last file is to be seen again, as it was.
            starts[folder(stream.name, number)] = min(after, keys[number][:-1]) if number in keys else after
        return starts


def _meaning(stream: Stream) -> tuple[object, ...]:
    """What has to be the same for offsets and files to be those of before."""
    return stream.source.rstrip("/"), stream.offset, stream.counted, stream.written_as, stream.lies_by


def _still_declared(stream: Stream, columns: Sequence[Column]) -> Sequence[Column]:
    """The columns that are not gone from the declaration, where that names them."""
    if not stream.columns:
        return columns
    return [column for column in columns if column.name in {*stream.columns, stream.offset}]
