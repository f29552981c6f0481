"""The queries, and the records that each is asked of, landed as Kafka Connect would land them.

Parties of other versions of Spark import this, and have nothing but PySpark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import assert_never

# How far apart a view and a click may be that belong together.
WITHIN_SECONDS = 300
# So many times as many tasks as cosets.
FACTORS = (1, 2, 4, 8)
# The other number of tasks.
OTHER_TASKS = 12


class Data(StrEnum):
    """Records that are made together, each in a folder of its own."""

    USUAL = "usual"
    REKEYED = "rekeyed"
    SKEWED = "skewed"
    SMALL = "small-batches"
    MANY_KEYS = "many-keys"


class Query(StrEnum):
    """What is asked."""

    COUNTED = "counted"
    IN_TIME = "in-time"
    MERGED = "merged"
    ELASTIC = "elastic"
    HOT = "hot"
    HOT_JOINED = "hot-joined"
    BATCHES = "batches"
    RESCALED = "rescaled"

    @property
    def asks(self) -> str:
        """In words."""
        return _SPECS[self][2]

    @property
    def data(self) -> Data:
        """The records that it is asked of."""
        return _SPECS[self][0]

    @property
    def columns(self) -> Sequence[str]:
        """The columns of the result, of which all but the first are whole numbers."""
        return _SPECS[self][1].split()

    @property
    def arrives(self) -> bool:
        """Whether each run gets records of its own, and goes on from the totals of the runs before."""
        return self in {Query.BATCHES, Query.RESCALED}

    def stretches(self, runs: int) -> Mapping[str, Sequence[int]]:
        """The runs, by what is told apart of them."""
        match self:
            case Query.ELASTIC:
                every: Mapping[str, Sequence[int]] = {
                    f"F = {factor}": range(1 + place, runs, len(FACTORS)) for place, factor in enumerate(FACTORS)
                }
                return {"cold": (0,), **every}
            case Query.BATCHES:
                return {"first": (0,), "2nd to 5th": range(1, 5), "last five": range(runs - 5, runs)}
            case Query.RESCALED:
                return {"all keys": (0,), "some keys": (1,), f"some keys, by {OTHER_TASKS} tasks": (2,)}
            case _:
                return {"cold": (0,), "warm": range(1, runs)}


_ACTIVITY, _TOTALS = "key views viewed clicks clicked", "key records amount"
_SPECS = {
    Query.COUNTED: (Data.USUAL, _ACTIVITY, "count and sum of both streams by key, full outer joined"),
    Query.IN_TIME: (
        Data.USUAL,
        "key pairs paired",
        f"views and clicks of a key within {WITHIN_SECONDS} seconds, counted and summed by key",
    ),
    Query.MERGED: (Data.REKEYED, _TOTALS, "placed records and others with another key, merged and counted by key"),
    Query.ELASTIC: (Data.USUAL, _ACTIVITY, "the counted query by F times as many tasks"),
    Query.HOT: (Data.SKEWED, _TOTALS, "count and sum by key; one has 40 %, the others Zipf's shares (1.1)"),
    Query.HOT_JOINED: (
        Data.SKEWED,
        "key event worth",
        "the same joined with profiles of half the keys, a row for each",
    ),
    Query.BATCHES: (Data.SMALL, _TOTALS, "totals that go on over many small batches"),
    Query.RESCALED: (Data.MANY_KEYS, _TOTALS, f"totals of many keys that go on by {OTHER_TASKS} tasks in place of 8"),
}


@dataclass(frozen=True, slots=True)
class Topic:
    """A stream: how many records come in each round, which is a file in each partition."""

    name: str
    partitions: int
    rounds: tuple[int, ...]
    key: str = "key"


@dataclass(frozen=True, slots=True)
class Workload:
    """A query to a party, and its records below `folder`, one part of so many. Coset has so many `tasks`, by default
    one for each coset."""

    folder: Path
    part: int
    query: Query
    party: str = ""
    tasks: int | None = None

    @classmethod
    def of(cls, size: str, folder: Path, query: Query, party: str = "", tasks: int | None = None) -> Workload:
        """`full`, or `small`: a hundredth of the records, to try the benchmark out."""
        return cls(folder / size, {"full": 1, "small": 100}[size], query, party, tasks)

    @property
    def topics(self) -> tuple[Topic, ...]:
        match self.query.data:
            case Data.USUAL:
                return self._topic("views", 8, 10 * (1_000_000,)), self._topic("clicks", 12, 4 * (1_250_000,))
            case Data.REKEYED:
                return self._topic("placed", 8, (900_000,)), self._topic("rekeyed", 8, (100_000,), key="session")
            case Data.SKEWED:
                # The first round is the batch before.
                return self._topic("events", 8, 6 * (500_000,)), self._topic("profiles", 4, (50_000, 500_000))
            case Data.SMALL:
                return (self._topic("orders", 4, (50 if self.part == 1 else 6) * (4_000,)),)
            case Data.MANY_KEYS:
                return (self._topic("orders", 8, (10_000_000, 10_000, 10_000)),)
            case _:
                assert_never(self.query.data)

    def _topic(self, name: str, partitions: int, rounds: tuple[int, ...], key: str = "key") -> Topic:
        return Topic(name, partitions, tuple(records // self.part for records in rounds), key)

    def runs(self, asked: int) -> int:
        """How many runs there are if so many are asked for. Records that arrive say it themselves."""
        if self.query.arrives:
            return len(self.topics[0].rounds)
        return 1 + (asked - 1) * len(FACTORS) if self.query is Query.ELASTIC else asked

    def factor(self, run: int) -> int:
        """How many times as many tasks as cosets a run has."""
        return FACTORS[(run - 1) % len(FACTORS)] if self.query is Query.ELASTIC and run else 1

    def totalling(self, run: int) -> int:
        """How many tasks of a run keep totals."""
        return OTHER_TASKS if self.query is Query.RESCALED and run == 2 else self.topics[0].partitions

    @property
    def landed(self) -> Path:
        """The folder of the streams on the local disk."""
        return self.folder / self.query.data / "topics"

    @property
    def before(self) -> Path:
        """The folder of what the batch before had of them, by which Coset knows the hot key."""
        return self.folder / self.query.data / "before"

    @property
    def results(self) -> Path:
        """The folder for the results of the party."""
        return self.folder / "results" / self.query / self.party

    def round(self, number: int) -> Iterator[Path]:
        """The files of a round."""
        for folder in sorted(self.landed.glob("*/*")):
            yield sorted(folder.glob("*.parquet"))[number]
