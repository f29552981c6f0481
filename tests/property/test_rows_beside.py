"""The rows of an upserted table after a batch of a backfill are those that all its batches up to it left."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from coset.batches.backfills.effects import effect_of, rows_beside
from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.document import digest, encode
from partitioning.documents.ledger import Ledger
from partitioning.model.artefact import Artefact, PartitionSlice, Role
from partitioning.model.backfill import Backfill, Swap, SwapKind, key_of
from partitioning.model.plan import Plan
from partitioning.model.verdict import Decision, GivenUp, Verdict
from partitioning.values import replace
from tests.examples import examples
from tests.memory_store import MemoryStore
from tests.plans import arrived, plan_of

PARTITIONS = 4
NAME = "kept.backfill-0"


def upserting() -> Plan:
    pipeline = Pipeline("kept", source="s3://landing/topics")
    clicks = pipeline.stream("clicks", key="k", partitions=PARTITIONS)
    clicks.latest("seen", name="newest").write("newest", mode="upsert")
    return plan_of(pipeline, [arrived("clicks", [100] * PARTITIONS)])


BASE = upserting()


class Counted(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self.asked = Counter[str]()

    def get(self, key: str) -> bytes | None:
        self.asked[key] += 1
        return super().get(key)


def files(batch: int, touched: set[int]) -> tuple[Artefact, ...]:
    """A file in each of these partitions."""
    return tuple(
        Artefact(Role.TABLE, "newest", f"{batch}/{number}", 1, "", "", 1, (PartitionSlice(number, 0, 1, 1),))
        for number in sorted(touched)
    )


def backfilled(ledger: Ledger, wrote: list[tuple[set[int], bool]]) -> None:
    """Batches of a backfill, each of which wrote these partitions, or all of the table anew."""
    asked = Backfill("kept", 0, tuple(range(len(wrote))), "", "ana", "why", "now")
    ledger.store.put_new(key_of("kept", 0), encode(asked))
    published(ledger, wrote)


def published(ledger: Ledger, wrote: list[tuple[set[int], bool]]) -> None:
    for batch, (touched, anew) in enumerate(wrote):
        stages = (
            replace(stage, writes=tuple(replace(write, anew=anew) for write in stage.writes)) for stage in BASE.stages
        )
        plan = ledger.put_plan(replace(BASE, batch=batch, pipeline=ledger.pipeline, stages=tuple(stages)))
        written = files(batch, touched)
        ledger.put_verdict(Verdict(digest(plan), batch, Decision.PUBLISH, 0, GivenUp("because"), written))


def newest(wrote: list[tuple[set[int], bool]]) -> dict[int, int]:
    """The batch whose file each partition has after these."""
    held = dict[int, int]()
    for batch, (touched, anew) in enumerate(wrote):
        held = ({} if anew else held) | dict.fromkeys(touched, batch)
    return held


touching = st.sets(st.integers(0, PARTITIONS - 1))


@settings(deadline=None, max_examples=examples(50))
@given(st.lists(st.tuples(touching, st.booleans()), max_size=8), touching)
def test_they_are_the_newest_of_each_partition(wrote: list[tuple[set[int], bool]], now: set[int]) -> None:
    ledger = Ledger(Counted(), NAME)
    backfilled(ledger, wrote)
    held = newest(wrote)
    plan = replace(BASE, batch=len(wrote), pipeline=NAME)
    found = rows_beside(ledger, plan, "newest", files(plan.batch, now))
    assert [file.path for file in found] == [f"{held[n]}/{n}" for n in sorted(held) if n not in now]


@settings(deadline=None, max_examples=examples(50))
@given(st.lists(st.tuples(touching, st.booleans()), min_size=1, max_size=8))
def test_a_swap_puts_the_newest_of_each_partition_in_place(wrote: list[tuple[set[int], bool]]) -> None:
    ledger = Ledger(MemoryStore(), NAME)
    backfilled(ledger, wrote)
    published(Ledger(ledger.store, "kept"), wrote)
    swap = Swap("kept", 0, 0, SwapKind.SWAP, tuple(range(len(wrote))), True, "", "ana", "why", "now")
    replacement = effect_of(ledger.store, [swap], None).replacements["newest"]
    assert {file.path for file in replacement.files} == {f"{batch}/{n}" for n, batch in newest(wrote).items()}


def test_no_more_batches_are_looked_at_than_wrote_them() -> None:
    store = Counted()
    backfilled(Ledger(store, NAME), [({0, 1, 2, 3}, not number) for number in range(30)])
    store.asked.clear()
    rows_beside(Ledger(store, NAME), replace(BASE, batch=30, pipeline=NAME), "newest", files(30, {1}))
    assert {key.partition("/")[2] for key in store.asked} == {"plans/29.json.gz", "verdicts/29.json"}
