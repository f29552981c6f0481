"""The workload: views and clicks of the same keys, landed as Kafka Connect would land them, and what is asked of them.

Parties of other versions of Spark import this, and have nothing but PySpark.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

# How far apart a view and a click may be that belong together.
WITHIN_SECONDS = 300


class Query(StrEnum):
    """What is asked: what each key has, or which views and clicks of a key were close in time."""

    COUNTED = "counted"
    IN_TIME = "in-time"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the result. There is a row for each key."""
        match self:
            case Query.COUNTED:
                return "key", "views", "viewed", "clicks", "clicked"
            case Query.IN_TIME:
                return "key", "pairs", "paired"

    @property
    def asks(self) -> str:
        match self:
            case Query.COUNTED:
                return "count and sum of both streams by key, full outer joined"
            case Query.IN_TIME:
                return f"views and clicks of a key within {WITHIN_SECONDS} seconds, counted and summed by key"


@dataclass(frozen=True, slots=True)
class Topic:
    """A stream of the workload: records in all, and files in each partition."""

    name: str
    partitions: int
    records: int
    files: int


@dataclass(frozen=True, slots=True)
class Workload:
    """Two streams over the same `keys`, below `folder`, and the query. Coset reads them by so many `tasks`, by default
    one for each coset."""

    folder: Path
    keys: int
    topics: tuple[Topic, Topic]
    query: Query = Query.COUNTED
    tasks: int | None = None

    @classmethod
    def of(cls, size: str, folder: Path, query: Query = Query.COUNTED, tasks: int | None = None) -> Workload:
        """`full`: 15 million records in 128 files; `small`: a hundredth of them, to try the benchmark out."""
        part = {"full": 1, "small": 100}[size]
        topics = Topic("views", 8, 10_000_000 // part, 10), Topic("clicks", 12, 5_000_000 // part, 4)
        return cls(folder / size, 1_000_000 // part, topics, query, tasks)

    @property
    def landed(self) -> Path:
        """The folder of the streams on the local disk."""
        return self.folder / "topics"

    def results(self, party: str) -> Path:
        """The folder for the results of a party."""
        return self.folder / "results" / party

    def files(self) -> Iterator[Path]:
        """All files, by name."""
        return iter(sorted(self.landed.rglob("*.parquet")))
