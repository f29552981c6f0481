"""Random histories of a pipeline that changes: each record is counted once, whatever was left out and came back."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from partitioning.documents.stores import store_at
from tests.changes import Changing, history
from tests.changing import NAMES
from tests.examples import examples

# Few in `make test`, all in `make test-all`.
BATCHES = max(3, examples(8))


@settings(max_examples=examples(2), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(seed=st.integers(0, 2**40))
def test_each_record_is_published_once_however_the_pipeline_changed(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    world, done = Changing(store_at(str(tmp_path_factory.mktemp("changing") / "store"))), list[str]()
    for line in history(world, random.Random(seed), BATCHES):
        done.append(line)
    for name in NAMES:
        assert world.rows(name) == sorted(world.topics[name].numbers), (name, done)
