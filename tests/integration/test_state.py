"""State over batches: each step that keeps something gives what one process gives that has seen all batches."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest

from coset.batches.publication import abandon
from coset.testing import run
from partitioning.authoring.pipeline import Pipeline
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


@pytest.mark.parametrize(("batches", "seed"), few([(3, 0), (6, 1), (6, 2)]))
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


@pytest.mark.parametrize("cuts", [[4], [2, 2], [1, 1, 1, 1]])
def test_a_duplicate_may_be_as_far_away_as_is_said_and_not_a_microsecond_farther(cuts: list[int]) -> None:
    """Also where what it is a duplicate of is as old as anything that is still kept."""
    pipeline = Pipeline("once", source="s3://landing/topics")
    clicks = pipeline.stream("clicks", key="k", partitions=1)
    span = timedelta(microseconds=20)
    once = clicks.distinct("id", time="make_timestamp(t)", within=span, keep=span, name="once")
    once.select("id, t").write("once")
    records = [{"k": "a", "id": number, "t": time} for number, time in ((1, 0), (2, 20), (1, 20), (2, 41))]
    rest = iter(records)
    rows = run(pipeline, *({"clicks": [next(rest) for _ in range(cut)]} for cut in cuts))
    assert [(row["id"], row["t"]) for row in rows["once"]] == [(1, 0), (2, 20), (2, 41)]


def test_what_is_kept_for_a_time_is_kept_once_beside_a_larger_run() -> None:
    pipeline = Pipeline("met", source="s3://landing/topics")
    clicks, views = (pipeline.stream(name, key="k", partitions=1) for name in ("clicks", "views"))
    times, span = ("make_timestamp(clicks.t)", "make_timestamp(views.t)"), timedelta(days=1)
    clicks.join_within(views, "clicks.t, views.t AS v", times=times, within=span, name="met").write("met")
    many = [{"k": "a", "t": number} for number in range(10)]
    seen = [many, [{"k": "b", "t": 10}], [{"k": "c", "t": 11}], [{"k": "d", "t": 12}]]
    clicked = [[{"k": key, "t": 20}] for key in "xyza"]
    rows = run(pipeline, *({"clicks": c, "views": v} for c, v in zip(clicked, seen, strict=True)))
    assert Counter(row["v"] for row in rows["met"]) == Counter(range(10))
