"""Rows held by columns behave as the tuple of them; and upserted rows after a backfill."""

from __future__ import annotations

import pickle
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coset.batches.backfills.effects import effect_of, rows_beside
from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.document import digest, encode
from partitioning.documents.ledger import Ledger
from partitioning.model.backfill import Backfill, Swap, SwapKind, key_of
from partitioning.model.plan import Plan
from partitioning.model.receipt import Artefact, PartitionSlice, Role
from partitioning.model.verdict import Decision, GivenUp, Verdict
from partitioning.packed_rows import EqualSteps, PackedRows
from partitioning.values import Value, replace
from tests.examples import examples
from tests.memory_store import MemoryStore
from tests.plans import arrived, plan_of


class File(Value, frozen=True):
    path: str
    end: int


class Held(Value, frozen=True):
    number: int
    name: str
    files: tuple[File, ...]
    start: int | None = None


# Numbers in a row, numbers at random and numbers that no array holds; names with and without a common beginning.
NUMBERS = st.integers(-3, 3) | st.integers(-(2**70), 2**70)
NAMES = st.text("ab/é", max_size=4)
FILES = st.lists(st.builds(File, NAMES, NUMBERS), max_size=3).map(tuple)
ROWS = st.lists(st.builds(Held, NUMBERS, NAMES, FILES, st.none() | st.integers(0, 2)), max_size=6).map(tuple)


@given(ROWS, st.slices(6))
def test_rows_are_read_as_the_tuple_is(rows: tuple[Held, ...], part: slice) -> None:
    held = PackedRows.of(Held, iter(rows))
    assert (tuple(held), len(held), bool(held)) == (rows, len(rows), bool(rows))
    assert [held[place] for place in range(-len(rows), len(rows))] == list(rows + rows)
    assert held[part] == rows[part]
    assert list(reversed(held)) == list(reversed(rows))


@given(ROWS, ROWS)
def test_rows_equal_what_the_tuple_equals(rows: tuple[Held, ...], others: tuple[Held, ...]) -> None:
    held = PackedRows.of(Held, rows)
    assert [held, rows] == [rows, held]
    assert (hash(held), repr(held)) == (hash(rows), repr(rows))
    for other in (others, PackedRows.of(Held, others)):
        assert (held == other) == (rows == others)


@given(ROWS)
def test_columns_that_are_put_together_again_are_the_same(rows: tuple[Held, ...]) -> None:
    held = PackedRows.of(Held, rows)
    assert PackedRows.of(Held, held) is held
    assert PackedRows.of(Held, held[:]).columns == held.columns
    assert pickle.loads(pickle.dumps(held)) == rows


def test_rows_of_two_classes_differ_and_a_place_that_is_none_is_an_error() -> None:
    class Other(Value, frozen=True):
        path: str
        end: int

    assert PackedRows.of(File, [File("a", 1)]) != PackedRows.of(Other, [Other("a", 1)])
    assert PackedRows.of(File, ()) == ()
    held = PackedRows.of(File, [File("a", 1), File("b", 2)])
    for place in (2, -3):
        with pytest.raises(IndexError):
            held[place]


def test_a_long_row_of_numbers_and_names_takes_little() -> None:
    """A million rows as tuples take 150 MB and more."""
    held = PackedRows.of(File, (File(f"topics/flights/{number:07}", 25 * number) for number in range(10_000)))
    assert held.columns["end"] == EqualSteps(0, 25, 10_000)
    assert sum(len(pickle.dumps(column)) for column in held.columns.values()) < 120_000


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
