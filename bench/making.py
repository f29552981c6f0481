"""The records of the workload, made once from a fixed seed."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import assert_never

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.workload import Data, Topic, Workload
from partitioning.documents.stores import store_at
from spark_jobs.engine.hashing import placement_hashes

_READY = ".ready"
_SEED = 20261121
_DAY = 86_400_000_000
# Zipf's keys beyond this are other keys once more.
_SKEWED_KEYS = 1_000_000
_EVEN_KEYS = 400_000
_TEAMS = 200
_HOT, _HOT_SHARE = "bot", 0.4


def make(workload: Workload) -> None:
    """Write the files unless they exist."""
    if not (workload.landed / _READY).exists():
        random = np.random.default_rng(_SEED)
        for topic in workload.topics:
            ends = [0] * topic.partitions
            for number in range(len(topic.rounds)):
                _land(workload, topic, number, _records(workload, topic, number, random), ends)
        (workload.landed / _READY).touch()


def upload(source: str, folder: Path, files: Iterable[Path]) -> None:
    """Copy files of a folder to a store."""
    store = store_at(source)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda file: store.put(str(file.relative_to(folder)), file.read_bytes()), files))


def _land(workload: Workload, topic: Topic, number: int, rows: pa.Table, ends: list[int]) -> None:
    """A file in each partition."""
    places = placement_hashes(rows[topic.key].combine_chunks(), "string") % topic.partitions
    to = workload.before if workload.query.data.follows and number == 0 else workload.landed
    for partition, first in enumerate(ends):
        mine = rows.take(pa.array(np.flatnonzero(places == partition)))
        ends[partition] += len(mine)
        mine = mine.append_column("_offset", pa.array(np.arange(first, ends[partition])))
        file = to / topic.name / f"partition={partition}" / f"{topic.name}+{partition}+{first:010}.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(mine, file, compression="zstd")


def _records(workload: Workload, topic: Topic, number: int, random: np.random.Generator) -> pa.Table:
    """The records of a round."""
    count = topic.rounds[number]
    amount = random.integers(0, 10_000, count)
    match workload.query.data:
        case Data.USUAL | Data.GROWING:
            span = _DAY // len(topic.rounds)
            times = 1_700_000_000_000_000 + number * span + np.sort(random.integers(0, span, count))
            # Ten views for each.
            all_keys = sum(workload.topics[0].rounds) // 10
            keys = _all_named(all_keys).take(pa.array(random.integers(0, all_keys, count)))
            return pa.table({"key": keys, "amount": amount, "time": pa.array(times, pa.timestamp("us", "UTC"))})
        case Data.REKEYED:
            sessions = pa.array(np.char.add("session-", random.integers(0, 10**7, count).astype("U8")).tolist())
            keys = _named(random.integers(0, 50_000 // workload.part, count))
            other = {topic.key: sessions} if topic.key == "session" else {}
            return pa.table({"key": keys, "amount": amount} | other)
        case Data.SKEWED | Data.SHARES if topic.name == "events":
            match workload.point.value:
                case int(percent):
                    numbers, hot = random.integers(0, _EVEN_KEYS // workload.part, count), percent / 100
                case zipf_alone:
                    numbers, hot = random.zipf(1.1, count) % _SKEWED_KEYS, 0 if zipf_alone else _HOT_SHARE
            keys = np.char.add("user-", numbers.astype("U8"))
            keys[random.random(count) < hot] = _HOT
            events = np.arange(count) + sum(topic.rounds[:number])
            return pa.table({"key": pa.array(keys.tolist()), "event": events, "amount": amount})
        case Data.SKEWED | Data.SHARES:
            # Each second key of the events has one profile, and the batch before has others.
            numbers = 2 * np.arange(count) + (_SKEWED_KEYS if number == 0 else 0)
            keys = [_HOT, *np.char.add("user-", numbers[1:].astype("U8")).tolist()]
            return pa.table({"key": keys, "rate": amount})
        case Data.SMALL:
            return pa.table({"key": _named(random.integers(0, 20_000, count)), "amount": amount})
        case Data.CHANGES | Data.OF_BOTH:
            all_keys = topic.rounds[0]
            members = _named(random.integers(0, all_keys, count) if number else np.arange(count))
            teams = pa.array([f"team-{team:03}" for team in random.integers(0, _TEAMS, count).tolist()])
            seen = np.arange(count) + sum(topic.rounds[:number])
            return pa.table({"key": members, "seen": seen, "team": teams, "amount": amount})
        case Data.MANY_KEYS:
            all_keys = topic.rounds[0]
            return pa.table(
                {"key": _named(random.integers(0, all_keys, count) if number else np.arange(count)), "amount": amount}
            )
        case _:
            assert_never(workload.query.data)


def _named(numbers: np.ndarray) -> pa.Array:
    """Keys of 21 characters that do not compress well."""
    mixed = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return pa.array([f"user-{key:016x}" for key in mixed.tolist()])


@lru_cache(1)
def _all_named(count: int) -> pa.Array:
    return _named(np.arange(count))
