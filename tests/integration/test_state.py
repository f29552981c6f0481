"""State over batches: each step that keeps something gives what one process gives that has seen all batches."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from batches import steps
from batches.publication import abandon
from batches.ref import BatchRef
from partitioning.authoring.settings import Settings
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import S3Store
from partitioning.model.artefact import Role
from sources.s3 import filesystem, split
from tests.histories import MINUTE, Click, Oracle, Row, pipeline_of, table_of
from tests.landed import land_table
from tests.running import run_and_publish, run_groups, task_receipts

KEYS = (*"abcdefghijkl", None)
SCHEMES = ("cogroup", "elastic(2)", "elastic(3)", "tasks(1)", "tasks(3)", "tasks(5)", "tasks(12)")
BATCHES = 6


class History:
    """Batches of clicks and views, each under a plan of its own."""

    def __init__(self, store: S3Store, docs: Path) -> None:
        self.store = store
        self._source = f"{store.root}/topics"
        self._docs = docs

    def plan(self, settings: Settings, partitions: int) -> BatchRef:
        ref, said = steps.plan(pipeline_of(self._source, partitions), self.store.root, settings)
        assert ref is not None, said
        return ref

    def land(self, clicks: list[Click], views: list[Click], partitions: int) -> None:
        for stream, records in (("clicks", clicks), ("views", views)):
            land_table(table_of(records), stream, self._source, key="k", partitions=partitions)

    def publish(self, ref: BatchRef) -> dict[str, list[Row]]:
        """What the batch wrote to each table."""
        run_and_publish(ref, self._docs)
        written: dict[str, list[Row]] = {write.declared.table: [] for write in ref.load()[1].writes()}
        for task in task_receipts(ref):
            for file in task.left(Role.TABLE):
                table = pq.read_table("/".join(split(f"{self.store.root}/{file.path}")), filesystem=filesystem())
                written[file.name].extend(zip(*(_plain(table[name]) for name in table.column_names), strict=True))
        return {table: sorted(rows, key=repr) for table, rows in written.items()}


def _plain(column: pa.ChunkedArray) -> list[object]:
    """Values; times as minutes."""
    if pa.types.is_timestamp(column.type):
        return [value // MINUTE for value in column.cast(pa.int64()).to_pylist()]
    return column.to_pylist()


def records(chance: random.Random, now: int, count: int) -> list[Click]:
    """Some around a minute, a few of them much too late, a few of them more than once."""
    made = [
        Click(chance.choice(KEYS), chance.randrange(6), max(0, now + late + chance.randrange(12)))
        for late in chance.choices((0, -15, -40), weights=(3, 1, 1), k=count)
    ]
    return made + chance.sample(made, k=min(3, count))


@pytest.mark.parametrize("seed", range(6))
def test_any_history_gives_what_one_process_gives(seed: int, store: S3Store, tmp_path: Path) -> None:
    chance, oracle = random.Random(seed), Oracle()
    history = History(store, tmp_path)
    partitions = 4
    for batch in range(BATCHES):
        if chance.random() < 0.3:
            partitions = chance.choice([count for count in (4, 6, 8, 12) if count >= partitions])
        clicks = records(chance, 12 * batch, chance.randrange(1, 25))
        views = records(chance, 12 * batch, chance.randrange(1, 15))
        history.land(clicks, views, partitions)
        wanted = oracle.batch(clicks, views)
        ref = history.plan(_settings(chance), partitions)
        match chance.randrange(3):
            case 0:
                run_groups(ref)
            case 1:
                # What a batch has left that is given up is nobody's state.
                run_groups(ref)
                abandon(Ledger(history.store, "kept"), "another plan")
                ref = history.plan(_settings(chance), partitions)
        assert history.publish(ref) == wanted, f"batch {batch}"


def _settings(chance: random.Random) -> Settings:
    return Settings.parse(scheme=chance.choice(SCHEMES), groups=chance.randint(1, 3))
