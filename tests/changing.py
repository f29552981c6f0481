"""A pipeline that changes from batch to batch: which streams it reads, and under which partition counts.

Each record has a number of its own, and each stream is written to a table of its own as it is read. So a table has to
hold the numbers of all records that arrived of its stream, each once.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from batches import publication, steps
from batches.ref import BatchRef
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import S3Store
from partitioning.hashes import placement_hash
from partitioning.model.plan import Plan
from sources.s3 import storage_options
from spark_jobs.table_schema import folder
from tests.landed import land_file
from tests.running import run_and_publish, run_and_publish_unjudged

NAMES = ("views", "clicks", "logins")
KEYS = 23


@dataclass
class Topic:
    """A topic, landed: its records' numbers, how many each partition got, and the files that were put aside."""

    name: str
    count: int
    numbers: list[int] = field(default_factory=list)
    ends: dict[int, int] = field(default_factory=dict)
    aside: dict[str, bytes] = field(default_factory=dict)


class World:
    """Topics that grow, and the pipeline that reads some of them."""

    def __init__(self, store: S3Store, docs: Path | None = None) -> None:
        """Its batches are judged if there are `docs` for what is said of them."""
        self.store = store
        self.source = f"{store.root}/topics"
        self.topics = {name: Topic(name, 4) for name in NAMES}
        self.read = list(NAMES[:2])
        self.docs = docs or Path()
        self._is_judged = docs is not None
        self._sent = 0

    def send(self, name: str, records: int) -> None:
        """Land so many new records, each in the partition of its key."""
        topic, new = self.topics[name], dict[int, list[tuple[str, int]]]()
        for number in range(self._sent, self._sent + records):
            key = f"key-{number % KEYS}"
            new.setdefault(placement_hash(key) % topic.count, []).append((key, number))
        self._sent += records
        for partition, rows in new.items():
            table = pa.table({"k": [key for key, _ in rows], "number": pa.array([n for _, n in rows], pa.int64())})
            end = topic.ends.get(partition, 0)
            land_file(table, name, self.source, partition, end)
            topic.ends[partition] = end + len(rows)
            topic.numbers += [number for _, number in rows]

    def recount(self, name: str, count: int, *, back: bool = True) -> None:
        """Let a topic have another partition count: files of partitions that vanish are moved away, and of those that
        come `back` they are put where they were."""
        topic, store = self.topics[name], S3Store(self.source)
        topic.count = count
        for entry in list(store.list(f"{name}/partition=")):
            if _partition(entry.key) >= count:
                data = store.get(entry.key)
                assert data is not None
                topic.aside[entry.key] = data
                store.delete(entry.key)
        for key in [key for key in topic.aside if back and _partition(key) < count]:
            store.put(key, topic.aside.pop(key))

    def pipeline(self) -> Pipeline:
        made = Pipeline("changing", source=self.source)
        for name in self.read:
            stream = made.stream(name, key="k", partitions=self.topics[name].count)
            stream.select("number", name=f"of_{name}").write(name)
        return made

    def plan(self, settings: Settings = DEFAULTS) -> BatchRef | None:
        """The next batch; none if there is nothing to do."""
        return steps.plan(self.pipeline(), self.store.root, settings)[0]

    def batch(self, settings: Settings = DEFAULTS) -> Plan | None:
        """Plan, run and publish a batch, if there is anything to do."""
        ref = self.plan(settings)
        if ref is None:
            return None
        if self._is_judged:
            run_and_publish(ref, self.docs)
        else:
            run_and_publish_unjudged(ref)
        return ref.load()[1]

    def rows(self, name: str) -> list[int]:
        """The numbers in the table of a stream."""
        log = DeltaTable(folder(self.store.root, name), storage_options=storage_options())
        return sorted(log.to_pyarrow_table(columns=["number"])["number"].to_pylist())

    def check(self, *names: str) -> None:
        """Compare what readers of the tables see with what arrived."""
        for name in names or self.read:
            assert self.rows(name) == sorted(self.topics[name].numbers), name


def _partition(key: str) -> int:
    return int(key.partition("/partition=")[2].partition("/")[0])


# A change of a world, made by chance. Whoever adds one adds a function to the list.
Change = Callable[[World, random.Random], None]


def leaves_a_stream_out(world: World, chance: random.Random) -> None:
    if len(world.read) > 1:
        world.read.remove(chance.choice(world.read))


def brings_a_stream(world: World, chance: random.Random) -> None:
    """One that was left out, or that was never there."""
    if missing := [name for name in NAMES if name not in world.read]:
        world.read.append(chance.choice(missing))


def recounts(world: World, chance: random.Random) -> None:
    """Of a stream whose records were all read, as its vanished partitions could not be looked at."""
    name = chance.choice(world.read)
    world.batch()
    world.recount(name, chance.choice((2, 3, 4, 6, 8)))


def gives_a_batch_up(world: World, chance: random.Random) -> None:
    """What it was to read is read by the next one, whatever the pipeline is then."""
    if world.plan(Settings(limit=chance.choice((None, 3)))) is not None:
        publication.abandon(Ledger(world.store, "changing"), "by chance")


def moves_elsewhere(world: World, _: random.Random) -> None:
    """All files as they are."""
    before, world.source = S3Store(world.source), f"{world.store.root}/topics-{uuid.uuid4().hex[:8]}"
    for entry in list(before.list("")):
        S3Store(world.source).put(entry.key, before.get(entry.key) or b"")
        before.delete(entry.key)


def expires(world: World, chance: random.Random) -> None:
    """The oldest files of a stream that was read to its end."""
    name, store = chance.choice(world.read), S3Store(world.source)
    world.batch()
    for _, files in groupby(sorted(entry.key for entry in store.list(f"{name}/")), key=_partition):
        keys = list(files)
        for key in keys[: chance.randint(0, len(keys))]:
            store.delete(key)
    # A stream without any file is refused.
    world.send(name, 40)


CHANGES: Sequence[Change] = (
    leaves_a_stream_out,
    brings_a_stream,
    recounts,
    gives_a_batch_up,
    moves_elsewhere,
    expires,
)


def history(world: World, chance: random.Random, batches: int) -> Iterator[str]:
    """Change, land and publish batch after batch; what was done, in a few words. In the end all streams are read."""
    for name in world.read:
        world.send(name, 7)
    for batch in range(batches):
        change = chance.choice(CHANGES)
        change(world, chance)
        for name in NAMES:
            if records := chance.choice((0, 0, 5, 40)):
                world.send(name, records)
        for name in [name for name in world.read if not world.topics[name].numbers]:
            world.send(name, 7)
        limit = chance.choice((None, None, 3))
        world.batch(Settings(limit=limit))
        for name in world.read:
            assert len(set(rows := world.rows(name))) == len(rows), (name, change.__name__)
        counts = ", ".join(f"{name} in {world.topics[name].count}" for name in world.read)
        yield f"{batch}: {change.__name__}; {counts}; at most {limit}"
    for name in NAMES:
        world.send(name, 7)
    world.read = list(NAMES)
    while world.batch() is not None:
        yield "all streams to their ends"
