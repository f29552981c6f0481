"""Stream partitions and half-open ranges of their offsets."""

from __future__ import annotations

import re

from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.values import Value

_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
# As many digits as Kafka's 32-bit partition numbers and 64-bit offsets can have.
_PARTITION = re.compile(r"(?P<stream>.+)-(?P<partition>0|[1-9][0-9]{0,9})")
_OFFSET = r"0|[1-9][0-9]{0,18}"
_RANGE = re.compile(rf"(?P<partition>.+)@\[(?P<start>{_OFFSET}),(?P<end>{_OFFSET})\)")
_LAST_OFFSET = 2**63 - 1


def check_name(name: str, noun: str) -> str:
    """Return `name` if it is a legal Kafka topic name, which also makes it safe in paths and SQL.

    Raises Refused otherwise.
    """
    if not _NAME.fullmatch(name) or name in {".", ".."}:
        then = "use 1 to 249 letters, digits, dots, dashes and underscores"
        raise Refused.of(Kind.NAME, f"{name!r} is no name for a {noun}", f"{noun} {name!r}", then, name=name)
    return name


class StreamPartition(Value, frozen=True, order=True):
    """One partition of a stream; prints as Kafka prints it.

    >>> print(StreamPartition("flights", 3))
    flights-3
    >>> StreamPartition.parse("late-flights-3")
    StreamPartition(stream='late-flights', partition=3)
    """

    stream: str
    partition: int

    def __post_init__(self) -> None:
        check_name(self.stream, "stream")
        if self.partition < 0:
            what, then = f"partition {self.partition} of {self.stream} is negative", "partitions are numbered from 0"
            raise Refused.of(Kind.ARGUMENT, what, self.stream, then, partition=self.partition, stream=self.stream)

    def __str__(self) -> str:
        return f"{self.stream}-{self.partition}"

    @classmethod
    def parse(cls, text: str) -> StreamPartition:
        """Read back what `str` printed. Raises Refused on anything else."""
        match = _PARTITION.fullmatch(text)
        if match is None:
            what = f"{text!r} is no stream partition"
            raise Refused.of(Kind.ARGUMENT, what, repr(text), "write it as flights-3", text=text)
        return cls(match["stream"], int(match["partition"]))


class Span(Value, frozen=True, order=True, gc=False):
    """The offsets [start, end) of a partition that is named elsewhere.

    >>> print(Span(100, 250))
    [100,250)
    """

    start: int
    end: int

    def __str__(self) -> str:
        return f"[{self.start},{self.end})"


class OffsetRange(Value, frozen=True, order=True):
    """The offsets [start, end) of a stream partition.

    >>> print(OffsetRange(StreamPartition("flights", 3), 100, 250))
    flights-3@[100,250)
    >>> len(OffsetRange.parse("flights-3@[100,250)"))
    150
    """

    partition: StreamPartition
    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end <= _LAST_OFFSET:
            what = f"[{self.start},{self.end}) is no range of offsets"
            then = "a range starts at 0 or later, ends at or after its start and has 64-bit offsets"
            raise Refused.of(Kind.ARGUMENT, what, str(self.partition), then, start=self.start, end=self.end)

    def __len__(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.partition}@[{self.start},{self.end})"

    @classmethod
    def parse(cls, text: str) -> OffsetRange:
        """Read back what `str` printed. Raises Refused on anything else."""
        match = _RANGE.fullmatch(text)
        if match is None:
            what = f"{text!r} is no range of offsets"
            raise Refused.of(Kind.ARGUMENT, what, repr(text), "write it as flights-3@[100,250)", text=text)
        return cls(StreamPartition.parse(match["partition"]), int(match["start"]), int(match["end"]))
