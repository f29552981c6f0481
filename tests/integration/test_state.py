"""State over batches: each step that keeps something gives what one process gives that has seen all batches."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from coset.batches.publication import abandon
from partitioning.authoring.settings import Settings
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from tests.examples import few
from tests.histories import Click, History, Oracle
from tests.running import run_groups

KEYS = (*"abcdefghijkl", None)
SCHEMES = ("cogroup", "elastic(2)", "elastic(3)", "tasks(1)", "tasks(3)", "tasks(5)", "tasks(12)")


def records(chance: random.Random, now: int, count: int) -> list[Click]:
    """Some around a minute, a few of them much too late, a few of them more than once."""
    made = [
        Click(chance.choice(KEYS), chance.randrange(6), max(0, now + late + chance.randrange(12)))
        for late in chance.choices((0, -15, -40), weights=(3, 1, 1), k=count)
    ]
    return made + chance.sample(made, k=min(3, count))


@pytest.mark.parametrize(("batches", "seed"), few([(3, 0), *((6, seed) for seed in range(4))]))
def test_any_history_gives_what_one_process_gives(batches: int, seed: int, store: Store, tmp_path: Path) -> None:
    chance, oracle = random.Random(seed), Oracle()
    history = History(store, tmp_path)
    partitions = 4
    for batch in range(batches):
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
        assert history.publish(ref, judged=batch == batches - 1) == wanted, f"batch {batch}"


def _settings(chance: random.Random) -> Settings:
    return Settings.parse(scheme=chance.choice(SCHEMES), groups=chance.randint(1, 3))
