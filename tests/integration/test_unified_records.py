"""Partial results that are combined in levels, against DuckDB; what tasks leave is compressed where that spares."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pytest

from coset.batches import steps
from coset.batches.auditing.audit import audit
from coset.batches.ref import BatchRef
from coset.testing.runs import Trial
from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.store import Store
from partitioning.errors import Refused
from partitioning.model.leaving import Leaving, LeftPart
from partitioning.model.order import OrderedParts
from partitioning.model.plan import Plan
from partitioning.model.receipt import Role
from partitioning.values import replace
from spark_jobs.engine import writers
from spark_jobs.engine.tally import destinations
from tests.asked_of_duckdb import published
from tests.judged import COVERED, IN_PLACE, Refusal, caught_by, refusal
from tests.misread import read_otherwise
from tests.moved import direct, planned_over
from tests.running import next_batch, run_and_publish, run_groups, task_receipts

COMBINED = "sum(n)::BIGINT AS n, sum(v)::BIGINT AS v, min(least) AS least"


def over_all(views: Flow) -> Flow:
    parts = views.partial("count(*) AS n, sum(v)::BIGINT AS v, min(page) AS least", name="parts")
    return parts.combine(COMBINED, name="totals")


def by_page(views: Flow) -> Flow:
    parts = views.partial("count(*) AS n, sum(v)::BIGINT AS v, min(k) AS least", by="page", name="parts")
    return parts.combine(COMBINED, name="totals")


def by_rekeyed_page(views: Flow) -> Flow:
    """The level reads what a step gives that is no partial: a row for each record."""
    rekeyed = views.rekey("page", name="by_page").select("1::BIGINT AS n, v, k AS least", name="ones")
    return rekeyed.combine(COMBINED, name="totals")


def twice(views: Flow) -> Flow:
    """What was combined in levels is so again, by another key."""
    again = by_page(views).select("n % 5 AS bucket, n, v, least", name="bucketed")
    parts = again.partial(
        "sum(n)::BIGINT AS n, sum(v)::BIGINT AS v, min(least) AS least", by="bucket", key_format="long"
    )
    return parts.combine(COMBINED, name="all")


ALL = "SELECT count(*), sum(v), min(page) FROM views"
BY_PAGE = "SELECT page, count(*), sum(v), min(k) FROM views GROUP BY page"
PIPELINES = {
    "over all": (over_all, ALL),
    "by key": (by_page, BY_PAGE),
    "by key, of single records": (by_rekeyed_page, BY_PAGE),
    "twice": (
        twice,
        f"SELECT n % 5 AS bucket, sum(n), sum(v), min(least) FROM ({BY_PAGE}) AS a(page, n, v, least) GROUP BY 1",
    ),
}


def planned(store: Store, name: str, fan_in: int, *schemes: str) -> tuple[BatchRef, Plan]:
    combines = ("totals", "all") if name == "twice" else ("totals",)
    settings = replace(Settings.parse(scheme=schemes, groups=2), fan_in=dict.fromkeys(combines, fan_in))
    ref = next_batch(planned_over(store, PIPELINES[name][0]), store.root, settings)
    return ref, ref.load()[1]


def unifiers(plan: Plan) -> list[int]:
    """How many tasks each level has, in order of waves."""
    return [len(stage.tasks) for stage in plan.stages if stage.unifies]


# Views have eight partitions, and a task of their own for records without a key.
@pytest.mark.parametrize(
    ("name", "fan_in", "schemes", "levels"),
    [
        ("over all", 2, (), [5, 3, 2]),
        ("over all", 3, (), [3]),
        ("over all", 4, (), [3]),
        ("by key", 2, (), [40, 24, 16]),
        ("by key", 4, ("totals=tasks(3)",), [9]),
        ("by key", 3, ("totals=elastic(2)",), [48]),
        ("by key, of single records", 3, ("totals=tasks(2)",), [6]),
        ("twice", 2, ("tasks(3)",), [6, 6]),
        ("twice", 4, ("totals=tasks(5)",), [15, 10]),
    ],
)
def test_the_table_is_as_duckdb_says(
    name: str, fan_in: int, schemes: tuple[str, ...], levels: list[int], store: Store
) -> None:
    ref, plan = planned(store, name, fan_in, *schemes)
    assert unifiers(plan) == levels
    run_and_publish(ref)
    assert published(store) == direct(PIPELINES[name][1])


def wrong_at_a_level(
    store: Store, patch: pytest.MonkeyPatch, spoil: Callable[[tuple[LeftPart, ...]], tuple[LeftPart, ...]]
) -> BatchRef:
    """A batch that has run, in which a unifier of the second level read other parts than its order says."""

    def spoiled(read: OrderedParts) -> OrderedParts:
        if (read.name, read.partitions[0].partition) != ("parts.exchange.2", 4):
            return read
        (left,) = read.partitions
        assert len(left.parts) > 1
        return replace(read, partitions=(replace(left, parts=spoil(left.parts)),))

    ref, _ = planned(store, "by key", 2, "tasks(5)")
    read_otherwise(patch, spoiled)
    run_groups(ref)
    return ref


@caught_by(COVERED)
def test_a_part_that_a_unifier_does_not_read_is_missed(store: Store, monkeypatch: pytest.MonkeyPatch) -> Refusal:
    return refusal(wrong_at_a_level(store, monkeypatch, lambda parts: parts[1:]))


@pytest.mark.long
@caught_by(COVERED)
def test_a_part_that_a_unifier_reads_twice_is_seen(store: Store, monkeypatch: pytest.MonkeyPatch) -> Refusal:
    return refusal(wrong_at_a_level(store, monkeypatch, lambda parts: (*parts, parts[0])))


@pytest.mark.long
def test_the_coverage_of_each_level_is_all_that_was_written_for_it(store: Store) -> None:
    ref, plan = planned(store, "by key", 2, "tasks(5)")
    run_groups(ref)
    coverage = audit(*ref.load(), 0).coverage
    assert unifiers(plan) == [15, 10]
    for name, numbers in {"parts.exchange.1": 15, "parts.exchange.2": 10, "parts.exchange": 5}.items():
        rows = coverage[coverage["input"] == name]
        left = [file for task in task_receipts(ref) for file in task.left(Role.EXCHANGE) if file.name == name]
        assert sorted(rows["partition"]) == list(range(numbers))
        assert rows["taken"].sum() == rows["planned"].sum() == sum(file.records for file in left) > 0
        assert (rows["digest_found"] == rows["digest_planned"]).all()
        assert not rows[["disorder", "foreign", "stray", "dropped"]].to_numpy().any()
    # Pages without a name are of one key, which lies in the first partition of each unifier.
    assert set(coverage[(coverage["nulls"] > 0) & (coverage["input"] == "parts.exchange.1")]["partition"]) == {0, 5, 10}


def misplaced(store: Store, patch: pytest.MonkeyPatch, to: Callable[[np.ndarray], np.ndarray]) -> BatchRef:
    """A batch that has run, in which a task put what it left for the first level elsewhere."""

    def wrong(leaving: Leaving, task: int, rows: pa.RecordBatch) -> np.ndarray:
        numbers = destinations(leaving, task, rows)
        return to(numbers) if (leaving.name, task) == ("parts.exchange.1", 0) else numbers

    ref, _ = planned(store, "by key", 2, "tasks(5)")
    patch.setattr(writers, "destinations", wrong)
    run_groups(ref)
    return ref


@pytest.mark.long
def test_rows_that_are_left_for_a_unifier_of_another_partition_are_seen(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = refusal(misplaced(store, monkeypatch, lambda numbers: (numbers + 1) % 5))
    assert IN_PLACE in said.failed
    (finding,) = (what for what in said.findings if "belongs in a partition ≡" in what)
    assert "parts.exchange.1-" in finding
    assert "modulo 5, where the task that wrote it did not put it" in finding


def test_rows_that_are_left_for_another_unifier_are_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    ref = misplaced(store, monkeypatch, lambda numbers: numbers + 5)
    with pytest.raises(Refused, match=r"what task views/0 says it left of parts.exchange.1 does not agree with itself"):
        steps.audit(ref)


def test_levels_are_not_said_to_differ_from_what_was_asked_for(store: Store) -> None:
    planned(store, "by key", 2, "tasks(5)")
    pipeline = planned_over(store, by_page)
    _, sentence = steps.plan(pipeline, store.root, replace(Settings.parse(scheme="tasks(5)", groups=2)))
    assert sentence.endswith("it continues as it was planned")


TEXT = "x" * 200


def test_few_rows_are_left_as_they_are_and_many_are_compressed_and_both_are_read() -> None:
    pipeline = Pipeline("small")
    orders = pipeline.stream("orders", key="k", partitions=1, source="s3://lake/orders")
    orders.latest("n", name="newest").write("newest", mode="upsert")
    with Trial.made(pipeline) as place:
        for batch, count in enumerate((3, 2_000, 3)):
            place.land({"orders": [{"k": f"k{n}", "n": n + batch, "text": TEXT} for n in range(count)]})
            place.run()
        few, many, _ = (b"".join(_left(place, batch)) for batch in range(3))
        assert place.verify() == {}
    assert few.count(TEXT.encode()) == 3
    assert 0 < len(many) < 1_000 * len(TEXT)


def _left(place: Trial, batch: int) -> list[bytes]:
    """The files that a batch left."""
    return [file.read_bytes() for file in Path(urlsplit(place.root).path).glob(f"small/left/{batch}/*/newest*/*.arrow")]
