"""Outcomes: what a system made of the topics, held against the true join.

Each system is a session that joins topics on request.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from bench.noticed.topics import Rows, Topics


class Verdict(StrEnum):
    """Whether a system gave the rows of the true join, others, or none."""

    RIGHT = "right"
    WRONG = "wrong"
    REFUSED = "refused"
    NAMED = "refused, named keys"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a join: rows of the true join that are missing, rows that are too many, and what was said; if it
    was refused, what was done then, and what came of that."""

    verdict: Verdict
    missing: int = 0
    many: int = 0
    said: tuple[str, ...] = ()
    done: str = ""
    then: Outcome | None = None

    @classmethod
    def of(cls, found: Rows, true: Rows) -> Outcome:
        """The outcome of a system that gave rows and said nothing."""
        missing, many = (true - found).total(), (found - true).total()
        return cls(Verdict.WRONG if missing or many else Verdict.RIGHT, missing, many)

    @property
    def shown(self) -> str:
        """The outcome in the cell of a table."""
        if self.verdict is Verdict.WRONG:
            counts = ((self.missing, "missing"), (self.many, "too many"))
            return f"{self.verdict}: {', '.join(f'{count:,} {what}' for count, what in counts if count)}"
        return f"{self.verdict}; then {self.then.shown}" if self.then else self.verdict


# Joins topics, in an empty folder of its own.
Run = Callable[[Topics, Path], Outcome]

# Title, module and function of each system. Modules are separate so that none is imported unless it runs.
SYSTEMS = {
    "spark": ("Spark, shuffling", "bench.noticed.on_spark", "shuffling"),
    "spark-buckets": ("Spark, partitions as buckets", "bench.noticed.on_spark", "by_bucket"),
    "spark-streaming": ("Structured Streaming", "bench.noticed.on_spark", "streaming"),
    "kafka-streams": ("Kafka Streams", "bench.noticed.on_kafka_streams", "streams"),
    "duckdb": ("DuckDB, whole topics", "bench.noticed.on_duckdb", "whole"),
    "duckdb-partitions": ("DuckDB, a process for each partition", "bench.noticed.on_duckdb", "by_partition"),
    "coset": ("Coset", "bench.noticed.on_coset", "coset"),
}
# The same for salted joins of topics that nothing is wrong with, whose run has an executor killed.
RETRIED = {
    "spark-rand": ("Spark, salted by rand()", "bench.noticed.on_spark_retried", "by_rand"),
    "spark-function": ("Spark, by a Python function", "bench.noticed.on_spark_retried", "by_function"),
    "spark-unchecked": (
        "Spark, by a Python function, without checksums",
        "bench.noticed.on_spark_retried",
        "by_function_unchecked",
    ),
    "coset-function": ("Coset, by a Python function", "bench.noticed.on_coset_retried", "by_function"),
}


def landed(join: Callable[[Path], Rows]) -> Run:
    """The run of a system that joins what lies in a folder, and says nothing of it."""

    def run(topics: Topics, folder: Path) -> Outcome:
        topics.land(folder / "topics")
        return Outcome.of(join(folder), topics.joined)

    return run
