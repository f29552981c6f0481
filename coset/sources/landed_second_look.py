"""A second look: files that begin in the gaps of a landed stream now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from coset.sources.layouts import folders_of
from coset.sources.listing import digits_of, folder, key_before, listed_between
from partitioning.documents.store import Found
from partitioning.documents.stores import store_at
from partitioning.model.offsets import Span
from partitioning.model.stage_inputs import PlannedPartition
from partitioning.model.streams import Layout, Stream


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
    if stream.lies_by is not Layout.PARTITION:
        return folders_of(stream).objects_in(store, number)
    digits = digits_of(file.path for file in planned.files) or 10
    after = key_before(stream.name, number, gaps[0].start, digits)
    last = key_before(stream.name, number, gaps[-1].end, digits)
    # For names with more digits it only gives where they begin.
    ends = last if last.endswith(f"{gaps[-1].end:0{digits}}") else None
    return listed_between(store, folder(stream.name, number), after, ends)
