"""Random histories of a pipeline that changes: each record is counted once, whatever was left out and came back."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from tests.changes import Changing, history
from tests.changing import NAMES
from tests.examples import examples

# Few in `make test`, all in `make test-all`.
BATCHES = max(2, examples(8))


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


# In 106 and 104 the watermark of one stream would not do, in 203 versions are older than what is kept otherwise.
@pytest.mark.long
@pytest.mark.parametrize("seed", [106, 203, 104])
def test_what_meets_in_time_is_given_once_however_the_pipeline_changed(seed: int, store: Store) -> None:
    world = Changing(store)
    done = list(history(world, random.Random(seed), 6))
    assert [pair for pairs in world.met.tables.values() for pair in pairs if None in pair], done
