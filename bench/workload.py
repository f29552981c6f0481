"""The queries, and the records that each is asked of, landed as Kafka Connect would land them.

Parties of other versions of Spark import this, and have nothing but PySpark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import assert_never

# How far apart a view and a click may be that belong together.
WITHIN_SECONDS = 300
# The other number of tasks.
OTHER_TASKS = 12
# Tasks of each stage of small batches of changes: as many as cores.
CHANGING_TASKS = 2
# Records of more than so many million views are asked once more, not each run.
_ONCE = 10
# So many times as often is asked what is compared to a hundredth.
_OFTEN = 10


class Data(StrEnum):
    """Records that are made together, each in a folder of its own."""

    USUAL = "usual"
    REKEYED = "rekeyed"
    SKEWED = "skewed"
    SMALL = "small-batches"
    MANY_KEYS = "many-keys"
    GROWING = "growing"
    SHARES = "shares"
    CHANGES = "changes"
    OF_BOTH = "changes-of-both"

    @property
    def has_points(self) -> bool:
        """Whether each point of a query has records of its own."""
        return self in {Data.GROWING, Data.SHARES}

    @property
    def follows(self) -> bool:
        """Whether the first round is a batch before, by which Coset knows the hot keys."""
        return self in {Data.SKEWED, Data.SHARES}


@dataclass(frozen=True, slots=True)
class Point:
    """One of the values for which a query is asked, and what its runs are called."""

    name: str
    value: int | str = ""


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
    CHANGING = "changing"
    CHANGING_JOINED = "changing-joined"
    BY_RECORDS = "by-records"
    BY_SHARE = "by-share"

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
        return self in {Query.BATCHES, Query.RESCALED} or self.changes

    @property
    def changes(self) -> bool:
        """Whether records take the place of earlier ones, so that figures of the result may become smaller."""
        return self in {Query.CHANGING, Query.CHANGING_JOINED}

    @property
    def points(self) -> tuple[Point, ...]:
        """For what it is asked: so many times as many tasks, millions of views, per cent of one key."""
        match self:
            case Query.ELASTIC:
                return tuple(Point(f"F = {factor}", factor) for factor in (1, 2, 4, 8))
            case Query.BY_RECORDS:
                return tuple(Point(f"{views} M", views) for views in (1, 3, 10, 30, 100))
            case Query.BY_SHARE:
                return *(Point(f"{share} %", share) for share in (0, 10, 20, 40, 60)), Point("Zipf", "zipf")
            case _:
                return (Point("warm"),)

    def schedule(self, runs: int) -> Sequence[Point]:
        """The point of each run after the cold one, if each has `runs` with it."""
        match self:
            case Query.BY_RECORDS:
                # The memory of a process may not shrink. Large ones differ less, and take long.
                return [point for point in self.points for _ in range(1 if int(point.value) > _ONCE else runs - 1)]
            case Query.BY_SHARE:
                # What is compared to a hundredth comes first, before runs in which parties do different things.
                nothing_hot, *others = self.points
                return (runs - 1) * _OFTEN * [nothing_hot] + (runs - 1) * others
            case _:
                return (runs - 1) * self.points


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
    Query.CHANGING: (
        Data.CHANGES,
        "team members amount",
        "the newest record of each member, counted and summed by team",
    ),
    Query.CHANGING_JOINED: (
        Data.OF_BOTH,
        "team members worth",
        "totals of each member, joined with the newest record of the member, summed by its team",
    ),
    Query.BY_RECORDS: (Data.GROWING, _ACTIVITY, "the counted query of one to a hundred million views"),
    Query.BY_SHARE: (Data.SHARES, _TOTALS, "count and sum by key; one has 0 to 60 %, the others the same each"),
}


@dataclass(frozen=True, slots=True)
class Topic:
    """A stream: how many records come in each round, which is a file in each partition."""

    name: str
    partitions: int
    rounds: tuple[int, ...]
    key: str = "key"


def _in_rounds(records: int, most: int) -> tuple[int, ...]:
    return *(records // most * (most,)), *((records % most,) if records % most else ())


@dataclass(frozen=True, slots=True)
class Workload:
    """A point of a query to a party, and its records below `folder`, one part of so many. Coset has so many `tasks`, by
    default one for each coset."""

    folder: Path
    part: int
    query: Query
    point: Point
    party: str = ""
    tasks: int | None = None

    @classmethod
    def of(cls, size: str, folder: Path, query: Query, party: str = "", tasks: int | None = None) -> Workload:
        """`full`, or `small`: a hundredth of the records, to try the benchmark out. It is at the first point."""
        return cls(folder / size, {"full": 1, "small": 100}[size], query, query.points[0], party, tasks)

    @property
    def all(self) -> Iterator[Workload]:
        """It at each point."""
        return (replace(self, point=point) for point in self.query.points)

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
            case Data.CHANGES:
                return (self._topic("members", 8, (1_000_000, *(20 * (10_000,)))),)
            case Data.OF_BOTH:
                rounds = 1_000_000, *(20 * (10_000,))
                return self._topic("members", 8, rounds), self._topic("orders", 8, rounds)
            case Data.GROWING:
                views = int(self.point.value) * 1_000_000 // self.part
                return Topic("views", 8, _in_rounds(views, 1_000_000)), Topic(
                    "clicks", 12, _in_rounds(views // 2, 1_250_000)
                )
            case Data.SHARES:
                return (self._topic("events", 8, 6 * (500_000,)),)
            case _:
                assert_never(self.query.data)

    def _topic(self, name: str, partitions: int, rounds: tuple[int, ...], key: str = "key") -> Topic:
        return Topic(name, partitions, tuple(records // self.part for records in rounds), key)

    def runs(self, asked: int) -> Iterator[tuple[str, Workload]]:
        """The runs, the cold one first, and what is told apart of them: for each point so many as are `asked` for with
        it. Records that arrive say themselves how many there are."""
        rounds = len(self.topics[0].rounds)
        match self.query:
            case Query.BATCHES | Query.CHANGING | Query.CHANGING_JOINED:
                names = ["first", *(4 * ["2nd to 5th"]), *((rounds - 10) * [""]), *(5 * ["last five"])]
                yield from ((name, self) for name in names[:rounds])
            case Query.RESCALED:
                yield from ((name, self) for name in ("all keys", "some keys", f"some keys, by {OTHER_TASKS} tasks"))
            case _:
                yield "cold", self
                yield from ((point.name, replace(self, point=point)) for point in self.query.schedule(asked))

    @property
    def factor(self) -> int:
        """How many times as many tasks as cosets there are."""
        return int(self.point.value) if self.query is Query.ELASTIC else 1

    def totalling(self, run: int) -> int:
        """How many tasks of a run keep totals."""
        if self.query.changes:
            return CHANGING_TASKS
        return OTHER_TASKS if self.query is Query.RESCALED and run == 2 else self.topics[0].partitions

    @property
    def landed(self) -> Path:
        """The folder of the streams on the local disk."""
        return self.folder / self.records / "topics"

    @property
    def before(self) -> Path:
        """The folder of what the batch before had of them, by which Coset knows the hot key."""
        return self.folder / self.records / "before"

    @property
    def records(self) -> Path:
        """What its records are called: `usual`, or `growing/100`."""
        return Path(self.query.data, str(self.point.value)) if self.query.data.has_points else Path(self.query.data)

    @property
    def results(self) -> Path:
        """The folder for the results of the party."""
        return self.folder / "results" / self.query / self.party / str(self.point.value)

    def round(self, number: int) -> Iterator[Path]:
        """The files of a round."""
        for folder in sorted(self.landed.glob("*/*")):
            yield sorted(folder.glob("*.parquet"))[number]
