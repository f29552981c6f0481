"""A topic whose partition count changes between batches: equal keys meet, whatever the tasks, and nothing is lost."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coset.batches.ref import BatchRef
from coset.sources.files import Files
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.store import Store
from partitioning.hashes import placement_hash
from partitioning.model.artefact import Role
from tests.landed import land_file
from tests.running import next_batch, run_and_publish, task_receipts


class Topic:
    """A topic, and the keys that each partition got."""

    def __init__(self, store: Store) -> None:
        self.source = f"{store.root}/topics"
        self._logs: dict[int, list[str | None]] = {}

    def send(self, keys: list[str | None], count: int) -> None:
        new: dict[int, list[str | None]] = {}
        for turn, key in enumerate(keys):
            place = turn if key is None else placement_hash(key)
            new.setdefault(place % count, []).append(key)
        for partition, sent in new.items():
            log = self._logs.setdefault(partition, [])
            land_file(pa.table({"k": pa.array(sent, pa.string())}), "views", self.source, partition, len(log))
            log.extend(sent)


def planned(topic: Topic, store: Store, count: int, scheme: str) -> BatchRef:
    pipeline = Pipeline("views_counted", source=topic.source)
    views = pipeline.stream("views", key="k", partitions=count, null_keys="own task")
    views.aggregate("count(*) AS n", name="counted").write("t")
    return next_batch(pipeline, store.root, Settings.parse(scheme=scheme))


def counted(ref: BatchRef) -> dict[str | None, int]:
    """What a batch wrote; a key that two tasks counted would be there twice."""
    uris = [f"{ref.load()[0].store.root}/{file.path}" for task in task_receipts(ref) for file in task.left(Role.TABLE)]
    tables = [pq.read_table(Files().open(uri)) for uri in uris]
    rows = [row for table in tables for row in zip(table["k"].to_pylist(), table["n"].to_pylist(), strict=True)]
    assert len(dict(rows)) == len(rows)
    return dict(rows)


@pytest.mark.parametrize(
    ("before", "after", "scheme", "moves"),
    [
        (4, 8, "cogroup", False),
        (4, 8, "tasks(8)", True),
        (4, 6, "cogroup", True),
        (4, 6, "tasks(2)", False),
        (2, 3, "elastic(3)", True),
    ],
)
def test_a_batch_of_records_by_the_old_and_by_the_new_count(
    before: int, after: int, scheme: str, moves: bool, store: Store
) -> None:
    topic = Topic(store)
    old: list[str | None] = [None if n % 20 == 0 else f"key-{n % 37}" for n in range(200)]
    topic.send(old, before)
    first = planned(topic, store, before, "cogroup")
    run_and_publish(first)
    assert counted(first) == Counter(old)

    # The producers go on by the old count, until they see the new one.
    late: list[str | None] = [f"key-{n % 41}" for n in range(90)]
    topic.send(late, before)
    new: list[str | None] = [None if n % 30 == 0 else f"key-{n % 43 + 5}" for n in range(150)]
    topic.send(new, after)
    second = planned(topic, store, after, scheme)
    _, plan = second.load()
    assert bool(plan.exchanges) == moves
    run_and_publish(second)
    assert counted(second) == Counter([*late, *new])
