"""Random histories of a pipeline that changes: each record is counted once, whatever was left out and came back."""

from __future__ import annotations

import random

import pytest

from partitioning.documents.store import S3Store
from tests.changing import NAMES, World, history


@pytest.mark.parametrize("seed", range(3))
def test_each_record_is_published_once_however_the_pipeline_changed(seed: int, store: S3Store) -> None:
    world, done = World(store), list[str]()
    for line in history(world, random.Random(seed), 6):
        done.append(line)
    for name in NAMES:
        assert world.rows(name) == sorted(world.topics[name].numbers), (name, done)
