"""Watermarks of streams whose records happened at the minute of their number, by what batches have read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tests.changing import Topic, partition_in

# By how many minutes a record may be later than others of its partition.
LATE = 5


@dataclass(frozen=True)
class Marks:
    """By stream: the latest minute that was read of each partition, and before which minute none is expected."""

    latest: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    time: Mapping[str, int] = field(default_factory=dict)

    def now(self, topics: Iterable[Topic]) -> Marks:
        """Those of a batch that reads these topics: the slowest partition counts, and what is left out is forgotten."""
        latest, times = dict[str, Mapping[int, int]](), dict[str, int]()
        for topic in topics:
            known = self.latest.get(topic.name, {})
            latest[topic.name] = known = {number: known[number] for number in range(topic.count) if number in known}
            reached = [min(known.values()) - LATE] if len(known) == topic.count else []
            if before := [*reached, *([self.time[topic.name]] if topic.name in self.time else [])]:
                times[topic.name] = max(before)
        return Marks(latest, times)

    def after(self, topics: Iterable[Topic], read: Mapping[str, Iterable[int]]) -> Marks:
        """Those after the batch, which has `read` these numbers."""
        latest = {name: dict(known) for name, known in self.latest.items()}
        for topic in topics:
            partitions = {number: partition_in(key) for key, numbers in topic.files.items() for number in numbers}
            for number in read[topic.name]:
                seen = latest[topic.name].get(partitions[number], number)
                latest[topic.name][partitions[number]] = max(seen, number)
        return Marks(latest, self.time)
