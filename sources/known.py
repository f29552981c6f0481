"""Known: what the last published plan says of a stream, so that only what landed since has to be looked at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from partitioning.model.offsets import OffsetRange, Span
from partitioning.model.plan import Plan, PlannedPartition
from partitioning.model.streams import Column, InputFile, Stream, is_read_whole
from sources.listing import digits_of, folder, key_before


@dataclass(frozen=True, slots=True)
class Known:
    """The columns of a stream, those of them that were never null, and how far each partition is published (`ends`).

    `read` are the partitions of which something was read that need not be looked at again, by number: none of a table.
    `pinned` are the files that the last batch read, by URI.
    """

    columns: Sequence[Column] = ()
    required: Sequence[str] = ()
    ends: Mapping[int, OffsetRange] = field(default_factory=dict)
    read: Mapping[int, PlannedPartition] = field(default_factory=dict)
    pinned: Mapping[str, InputFile] = field(default_factory=dict)

    @classmethod
    def by(cls, stream: Stream, published: Plan | None) -> Known:
        """What a plan says. If the stream lies elsewhere now, or means other offsets, its files are not known."""
        before = next((each for each in published.streams if each.name == stream.name), None) if published else None
        if before is None:
            return cls()
        ends = {planned.partition: before.range(planned.partition) for planned in before.partitions if planned.end}
        columns = _still_declared(stream, before.columns)
        if _meaning(stream) != _meaning(before.declared):
            return cls(columns, before.required, ends)
        partitions = before.partitions[: stream.partitions]
        read = (
            {}
            if is_read_whole(stream, before.declared)
            else {planned.partition: planned for planned in partitions if planned.end}
        )
        files = (file for planned in partitions for file in planned.files)
        pinned = {file.path: file for file in files if stream.sparse or not file.missing}
        return cls(columns, before.required, ends, read, pinned)

    def end(self, partition: int) -> int:
        """Up to where a partition is published; of a table too, which is read whole all the same."""
        return self.ends[partition].end if partition in self.ends else 0

    def committed(self, partition: int) -> int:
        """Up to where a partition was read."""
        return self.read[partition].end if partition in self.read else 0

    def span(self, partition: int) -> Span | None:
        """What was read of a partition; None if nothing was."""
        planned = self.read.get(partition)
        return Span(min(planned.beginning, planned.end), planned.end) if planned else None

    def last(self, partition: int) -> InputFile | None:
        """The last file that the last batch read of a partition; None if it had nothing to read there."""
        planned = self.read.get(partition)
        return planned.files[-1] if planned and planned.files else None

    def as_pinned(self, uri: str, size: int, etag: str) -> InputFile | None:
        """The file as the last batch read it; None if it did not, or if it is another now."""
        file = self.pinned.get(uri)
        return file if file and (file.size, file.etag) == (size, etag) else None

    @property
    def knows_names(self) -> bool:
        """Whether it has a file that shows how names are written, or needs none."""
        return not self.read or any(self.last(number) for number in self.read)

    def starts(self, stream: Stream, others: Iterable[str]) -> Mapping[str, str]:
        """By each partition's folder, the key after which to list it: all that came since is behind it.

        `others` are keys of the stream that show how names are written, if no file is known.
        """
        source = f"{stream.source.rstrip('/')}/"
        keys = {number: file.path.removeprefix(source) for number in self.read if (file := self.last(number))}
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
