"""Random histories of a pipeline that changes: each record is counted once, whatever was left out and came back."""

from __future__ import annotations

import random

import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from partitioning.kinds import Kind
from spark_jobs.tables.table_schema import folder
from tests.changes import Changing, history
from tests.changing import NAMES, World, key_of
from tests.examples import examples, share

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
@pytest.mark.parametrize("seed", share([106, 203, 104], 2))
def test_what_meets_in_time_is_given_once_however_the_pipeline_changed(seed: int, store: Store) -> None:
    world = Changing(store)
    done = list(history(world, random.Random(seed), 6))
    assert [pair for pairs in world.met.tables.values() for pair in pairs if None in pair], done


class Summed(World):
    """A world that keeps totals by key over all streams that it reads."""

    def derive(self, stream: Flow, name: str) -> None:
        self._flows.append(stream)

    def pipeline(self) -> Pipeline:
        self._flows = list[Flow]()
        made = super().pipeline()
        first, *others = self._flows
        counted = (first.merge(*others) if others else first).aggregate("count(*) AS n, sum(number)::BIGINT AS total")
        sums = "sum(n)::BIGINT AS n, sum(total)::BIGINT AS total"
        counted.combine(sums, running=True, name="summed").write("summed", mode="upsert")
        return made

    def totals(self) -> dict[str, tuple[int, int]]:
        rows = DeltaTable(folder(self.store, "summed")).to_pyarrow_table(columns=["k", "n", "total"]).to_pylist()
        assert len({row["k"] for row in rows}) == len(rows)
        return {row["k"]: (row["n"], row["total"]) for row in rows}


def is_asked(before: list[set[str]], now: set[str]) -> bool:
    """Whether it is asked about the totals: a stream has left or is new, or what was kept is not known to be all of
    it."""
    if not before or before[-1] == now:
        return False
    unseen = set(now)
    for read in reversed(before):
        if not read <= now or not now <= set[str]().union(*before):
            return True
        unseen -= read
        if not unseen:
            return False
    return True


@settings(max_examples=examples(3), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(seed=st.integers(0, 2**40))
def test_totals_are_those_of_all_records_whichever_streams_were_left_out_and_came_back(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    world, chance = Summed(store_at(str(tmp_path_factory.mktemp("summed") / "store"))), random.Random(seed)
    before, taken = list[set[str]](), dict[str, list[int]]()
    for _ in range(BATCHES + 3):
        # Streams come back more often than others come.
        every = before[chance.randrange(len(before))] if before and chance.random() < 0.5 else set(NAMES)
        world.read = chance.sample(sorted(every), chance.randint(1, len(every)))
        for name in NAMES:
            world.send(name, chance.randint(1, 20))
        now = set(world.read)
        if is_asked(before, now):
            with pytest.raises(Refused) as refused:
                world.plan()
            assert {finding.kind for finding in refused.value.findings} == {Kind.STATE_CHANGED}, (before, now)
        assert world.batch(Settings(go_on=("summed",) if is_asked(before, now) else ())), (before, now)
        before.append(now)
        taken |= {name: list(world.topics[name].numbers) for name in world.read}
        wanted: dict[str, tuple[int, int]] = {}
        for number in (number for numbers in taken.values() for number in numbers):
            n, total = wanted.get(key_of(number), (0, 0))
            wanted[key_of(number)] = (n + 1, total + number)
        assert world.totals() == wanted, before
