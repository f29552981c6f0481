"""A pipeline that changes from batch to batch: which streams it reads, and under which partition counts.

Each record has a number of its own, and each stream is written to a table of its own as it is read. So a table has to
hold the numbers of all records that arrived of its stream, each once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy, deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from coset.batches import steps
from coset.batches.ref import BatchRef
from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.hashes import placement_hash
from partitioning.model.plan import Plan
from tests.landed import land_file
from tests.logs import log_of
from tests.running import run_and_publish, run_and_publish_unjudged

NAMES = ("views", "clicks", "logins")
KEYS = 23


def key_of(number: int) -> str:
    """The key of a record."""
    return f"key-{number % KEYS}"


@dataclass
class Topic:
    """A topic, landed: the numbers that its table has to hold when all is read, and those that no batch has read yet;
    how many records each partition got, what each file has, and the files that were put aside.

    `landed_by` is the partition count that the topic had when a file was landed.
    """

    name: str
    count: int
    numbers: list[int] = field(default_factory=list)
    unread: set[int] = field(default_factory=set)
    ends: dict[int, int] = field(default_factory=dict)
    files: dict[str, list[int]] = field(default_factory=dict)
    landed_by: dict[str, int] = field(default_factory=dict)
    aside: dict[str, bytes] = field(default_factory=dict)


class World:
    """Topics that grow, and the pipeline that reads some of them."""

    # What else is said of streams.
    said: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, store: Store, docs: Path | None = None) -> None:
        """Its batches are judged if there are `docs` for what is said of them."""
        self.store = store
        self.source = f"{store.root}/topics"
        self.topics = {name: Topic(name, 4) for name in NAMES}
        self.read = list(NAMES[:2])
        self.docs = docs or Path()
        self._is_judged = docs is not None
        self._sent = 0

    def again(self, docs: Path) -> World:
        """The same once more, of a store that is as it was; its batches are judged."""
        other = copy(self)
        other.topics, other.read = deepcopy(self.topics), [*self.read]
        other.docs, other._is_judged = docs, True
        return other

    def send(self, name: str, records: int) -> None:
        """Land so many new records."""
        self._sent += records
        self.land(name, range(self._sent - records, self._sent))

    def land(self, name: str, numbers: Iterable[int]) -> None:
        """Land the records of these numbers, each in the partition of its key."""
        topic, new = self.topics[name], dict[int, list[int]]()
        for number in numbers:
            new.setdefault(placement_hash(key_of(number)) % topic.count, []).append(number)
        for partition, there in new.items():
            keys = [key_of(number) for number in there]
            table = pa.table({"k": keys, "number": pa.array(there, pa.int64())})
            end = topic.ends.get(partition, 0)
            key = land_file(table, name, self.source, partition, end).removeprefix(f"{self.source}/")
            topic.ends[partition] = end + len(there)
            topic.numbers += there
            topic.unread.update(there)
            topic.files[key], topic.landed_by[key] = there, topic.count

    def recount(self, name: str, count: int, *, back: bool = True) -> None:
        """Let a topic have another partition count: files of partitions that vanish are moved away, and of those that
        come `back` they are put where they were."""
        topic, store = self.topics[name], store_at(self.source)
        topic.count = count
        for entry in list(store.list(f"{name}/partition=")):
            if partition_in(entry.key) >= count:
                data = store.get(entry.key)
                assert data is not None
                topic.aside[entry.key] = data
                store.delete(entry.key)
        for key in [key for key in topic.aside if back and partition_in(key) < count]:
            store.put(key, topic.aside.pop(key))

    def pipeline(self) -> Pipeline:
        made = Pipeline("changing", source=self.source)
        for name in self.read:
            stream = made.stream(name, key="k", partitions=self.topics[name].count, **self.said)
            stream.select("number", name=f"of_{name}").write(name)
            self.derive(stream, name)
        return made

    def derive(self, stream: Flow, name: str) -> None:
        """What else is made of a stream: nothing."""

    def plan(self, settings: Settings = DEFAULTS) -> BatchRef | None:
        """The next batch; none if there is nothing to do."""
        return steps.plan(self.pipeline(), self.store.root, settings)[0]

    def batch(self, settings: Settings = DEFAULTS) -> Plan | None:
        """Plan, run and publish a batch, if there is anything to do."""
        ref = self.plan(settings)
        if ref is None:
            return None
        self.begun(ref)
        if self._is_judged:
            run_and_publish(ref, self.docs)
        else:
            run_and_publish_unjudged(ref)
        return ref.load()[1]

    def begun(self, ref: BatchRef) -> None:
        """What becomes of a batch before it is published: nothing."""

    def rows(self, name: str) -> list[int]:
        """The numbers in the table of a stream."""
        log = log_of(self.store, name)
        return sorted(log.to_pyarrow_table(columns=["number"])["number"].to_pylist())

    def check(self, *names: str) -> None:
        """Compare what readers of the tables see with what arrived."""
        for name in names or self.read:
            assert self.rows(name) == sorted(self.topics[name].numbers), name


def partition_in(key: str) -> int:
    """The partition in whose folder a file lies."""
    return int(key.partition("/partition=")[2].partition("/")[0])
