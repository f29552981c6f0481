"""The workload: views and clicks of the same keys, landed as Kafka Connect would land them, made once."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.stores import store_at
from spark_jobs.engine.hashing import placement_hashes

SOURCE = "s3://landing/topics"
STORE = "s3://coset"
_SEED = 20261121
_READY = ".ready"


@dataclass(frozen=True, slots=True)
class Topic:
    """A stream of the workload: records in all, and files in each partition."""

    name: str
    partitions: int
    records: int
    files: int


@dataclass(frozen=True, slots=True)
class Workload:
    """Two streams over the same `keys`, below `folder`; the records follow from a fixed seed. Coset reads them by so
    many `tasks`, by default one for each coset."""

    folder: Path
    keys: int
    topics: tuple[Topic, Topic]
    tasks: int | None = None

    @classmethod
    def of(cls, size: str, folder: Path, tasks: int | None = None) -> Workload:
        """`full`: 15 million records in 128 files; `small`: a hundredth of them, to try the benchmark out."""
        part = {"full": 1, "small": 100}[size]
        topics = Topic("views", 8, 10_000_000 // part, 10), Topic("clicks", 12, 5_000_000 // part, 4)
        return cls(folder / size, 1_000_000 // part, topics, tasks)

    @property
    def landed(self) -> Path:
        """The folder of the streams on the local disk."""
        return self.folder / "topics"

    def make(self) -> None:
        """Write the files unless they exist."""
        if not (self.landed / _READY).exists():
            random = np.random.default_rng(_SEED)
            keys = pa.array([f"user-{key:016x}" for key in random.integers(0, 2**63, self.keys).tolist()])
            hashes = placement_hashes(keys, "string")
            for topic in self.topics:
                self._land(topic, keys, hashes, random)
            (self.landed / _READY).touch()

    def upload(self) -> None:
        """Copy the files to the environment's S3 server unless they exist."""
        store = store_at(SOURCE)
        if store.head(_READY) is None:
            with ThreadPoolExecutor(4) as pool:
                list(
                    pool.map(
                        lambda file: store.put(str(file.relative_to(self.landed)), file.read_bytes()), self.files()
                    )
                )
            store.put(_READY, b"")

    def files(self) -> Iterator[Path]:
        """All files, by name."""
        return iter(sorted(self.landed.rglob("*.parquet")))

    def _land(self, topic: Topic, keys: pa.Array, hashes: np.ndarray, random: np.random.Generator) -> None:
        chosen = random.integers(0, len(keys), topic.records)
        amounts = random.integers(0, 10_000, topic.records)
        times = np.sort(random.integers(1_700_000_000_000_000, 1_700_086_400_000_000, topic.records))
        for partition in range(topic.partitions):
            mine = np.flatnonzero(hashes[chosen] % topic.partitions == partition)
            folder = self.landed / topic.name / f"partition={partition}"
            folder.mkdir(parents=True, exist_ok=True)
            offset = 0
            for rows in np.array_split(mine, topic.files):
                table = pa.table(
                    {
                        "key": keys.take(pa.array(chosen[rows])),
                        "amount": amounts[rows],
                        "time": pa.array(times[rows], pa.timestamp("us", "UTC")),
                        "_offset": np.arange(offset, offset + len(rows)),
                    }
                )
                pq.write_table(table, folder / f"{topic.name}+{partition}+{offset:010}.parquet", compression="zstd")
                offset += len(rows)


def pipeline() -> Pipeline:
    """Count and sum of both streams for each key, joined."""
    bench = Pipeline("bench", source=SOURCE)
    views = bench.stream("views", key="key", partitions=8)
    clicks = bench.stream("clicks", key="key", partitions=12)
    viewed = views.aggregate("count(*) AS views, sum(amount)::BIGINT AS viewed")
    clicked = clicks.aggregate("count(*) AS clicks, sum(amount)::BIGINT AS clicked")
    columns = "views.views, views.viewed, clicks.clicks, clicks.clicked"
    viewed.join(clicked, columns, how="full").write("activity")
    return bench
