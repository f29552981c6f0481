"""A hot partition dealt to several tasks: the same rows with and without, as DuckDB gives them; and what is caught."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from coset.batches import steps
from coset.batches.auditing.audit import audit
from coset.batches.ref import BatchRef
from coset.batches.runners.local import Local
from coset.batches.runners.runner import Runner
from coset.batches.runners.spark import Spark
from coset.sources.landed_reader import LandedReader
from coset.sources.reader import Reader
from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.document import encode
from partitioning.documents.store import Store
from partitioning.errors import Refused
from partitioning.hashes import placement_hash
from partitioning.model.offsets import Span
from partitioning.model.order import Order, Ordered, OrderedStream
from partitioning.model.plan import Plan
from partitioning.model.takes import Task
from partitioning.values import replace
from spark_jobs.engine import kernel
from spark_jobs.engine.kernel import TaskEnvironment
from tests.asked_of_duckdb import direct, published
from tests.examples import few, in_turn
from tests.judged import COVERED, Refusal, caught_by, refusal, saying
from tests.landed import land_file, land_table
from tests.real_batches import Change, as_planned, stored
from tests.running import next_batch, run_and_publish, run_groups, task_receipts

# Two of three views are of one ad, and some of nobody knows which.
VIEWS = pa.table(
    {
        "k": ["hot" if n % 3 else f"ad-{n % 61}" if n % 20 else None for n in range(600)],
        "page": [f"page-{n * 11 % 23}" if n % 37 else None for n in range(600)],
        "v": list(range(600)),
    }
)
WITH_KEYS = VIEWS.filter(VIEWS["k"].is_valid())
PARTITIONS = 4
HOT = placement_hash("hot") % PARTITIONS
SUMS = "count(*) AS n, sum(v)::BIGINT AS v, min(page) AS first"
COMBINED = "sum(n)::BIGINT AS n, sum(v)::BIGINT AS v, min(first) AS first"

Build = Callable[[Flow], Flow]

PIPELINES: dict[str, tuple[Build, str]] = {
    "single records": (
        lambda views: views.filter("v % 5 <> 0").select("page, v * 2 AS w"),
        "SELECT k, page, v * 2 FROM views WHERE v % 5 <> 0",
    ),
    "counted by another key": (
        lambda views: views.rekey("page").aggregate("count(*) AS n, sum(v)::BIGINT AS v"),
        "SELECT page, count(*), sum(v) FROM views GROUP BY page",
    ),
    "summed over all": (
        lambda views: views.partial(SUMS).combine(COMBINED, fan_in=3),
        "SELECT count(*), sum(v), min(page) FROM views",
    ),
    "summed by another key": (
        lambda views: views.partial(SUMS, by="page").combine(COMBINED),
        "SELECT page, count(*), sum(v), min(page) FROM views GROUP BY page",
    ),
    "summed by its own key": (
        lambda views: views.partial(SUMS, by="k").combine(COMBINED),
        "SELECT k, count(*), sum(v), min(page) FROM views GROUP BY k",
    ),
    "functions of single records": (
        lambda views: views.process("tests.functions:doubled", {"k": "VARCHAR", "twice": "BIGINT"}),
        "SELECT k, 2 * v FROM views",
    ),
    "put into other partitions": (lambda views: views.repartition(3).select("v"), "SELECT k, v FROM views"),
}


def pipeline_of(store: Store, build: Build) -> Pipeline:
    pipeline = Pipeline("dealt", source=f"{store.root}/topics")
    views = pipeline.stream("views", key="k", partitions=PARTITIONS, null_keys="drop")
    build(views).to_stream().write("t")
    return pipeline


def land(store: Store, views: pa.Table = VIEWS, files: int = 3) -> Store:
    land_table(views, "views", f"{store.root}/topics", key="k", partitions=PARTITIONS, files=files)
    return store


def planned(store: Store, build: Build, scheme: str | None) -> tuple[BatchRef, Plan]:
    ref = next_batch(pipeline_of(store, build), store.root, Settings.parse(scheme=scheme, groups=2))
    return ref, ref.load()[1]


@pytest.mark.parametrize(("name", "scheme"), in_turn(PIPELINES, ["views=records(70)", "views=records(7)", None]))
def test_the_rows_are_those_that_duckdb_gives(name: str, scheme: str | None, store: Store) -> None:
    build, sql = PIPELINES[name]
    ref, plan = planned(land(store), build, scheme)
    assert any(task.span for task in plan.stage("views").tasks) == (scheme is not None)
    run_and_publish(ref)
    assert published(store) == direct(sql, views=WITH_KEYS)


@pytest.mark.parametrize("runner", few([lambda: Local(2), lambda: Spark("local[2]")]), ids=["two processes", "spark"])
def test_whoever_runs_it(runner: Callable[[], Runner], store: Store, tmp_path: Path) -> None:
    build, sql = PIPELINES["summed by its own key"]
    ref, _ = planned(land(store), build, "views=records(70)")
    run_and_publish(ref, tmp_path, runner())
    assert published(store) == direct(sql, views=WITH_KEYS)


def test_batches_with_and_without_follow_each_other(store: Store, tmp_path: Path) -> None:
    build, _ = PIPELINES["single records"]
    first, second = VIEWS.slice(0, 350), VIEWS.slice(350)
    for views, scheme in ((first, "views=records(50)"), (second, None), (first, "views=records(33)")):
        land(store, views)
        run_and_publish(planned(store, build, scheme)[0], tmp_path)
    sql = "SELECT k, page, v * 2 FROM views WHERE v % 5 <> 0 AND k IS NOT NULL"
    assert published(store) == direct(sql, views=pa.concat_tables([first, second, first]))


def test_each_task_opens_the_files_that_meet_its_range(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    land_file(pa.table({"k": ["hot"] * 400, "v": list(range(400))}), "views", f"{store.root}/topics", HOT, 0)
    land_file(pa.table({"k": ["hot"] * 400, "v": list(range(400))}), "views", f"{store.root}/topics", HOT, 400)
    for partition in {*range(PARTITIONS)} - {HOT}:
        land_file(pa.table({"k": pa.nulls(1, pa.string()), "v": [0]}), "views", f"{store.root}/topics", partition, 0)
    opened: list[tuple[int, int, list[int]]] = []

    class Watched(LandedReader):
        def __init__(self, ordered: OrderedStream, *more: object, **named: object) -> None:
            opened.extend(
                (part.start, part.end, [file.start for file in part.files])
                for part in ordered.partitions
                if part.partition == HOT
            )
            super().__init__(ordered, *more, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(kernel, "LandedReader", Watched)
    ref, _ = planned(store, lambda views: views.filter("v >= 0"), "views=records(200)")
    run_groups(ref)
    assert sorted(opened) == [(0, 200, [0]), (200, 400, [0]), (400, 600, [400]), (600, 800, [400])]


def test_receipts_say_the_ranges_and_coverage_has_one_row_for_the_partition(store: Store) -> None:
    ref, plan = planned(land(store), lambda views: views.filter("v >= 0"), "views=records(70)")
    run_groups(ref)
    spans = [task.span for task in plan.stage("views").tasks if task.reads == {"views": (HOT,)}]
    seen = [seen for task in task_receipts(ref) for seen in task.partitions if seen.partition == HOT]
    assert [Span(one.start, one.end) for one in seen] == spans
    assert [one.read for one in seen] == [span.end - span.start for span in spans if span]
    coverage = audit(*ref.load(), 0).coverage.set_index("partition")
    assert sorted(coverage.index) == list(range(PARTITIONS))
    hot, count = coverage.loc[HOT], sum(one.read for one in seen)
    assert (hot["start"], hot["end"], hot["planned"]) == (0, count, count)
    assert hot["read_min"] == hot["read_max"] == hot["taken"] + hot["dropped"] == count
    assert (coverage["digest_found"] == coverage["digest_planned"]).all()


@pytest.mark.parametrize("by", few(["k", "page", None]))
def test_running_totals_go_on_with_and_without(by: str | None, store: Store, tmp_path: Path) -> None:
    """Of the stream's own key they are combined behind an exchange in one batch, and where records lie in the next."""

    def running(views: Flow) -> Flow:
        return views.partial(SUMS, by=by, name="parts").combine(COMBINED, running=True, name="totals")

    before = Counter[tuple[object, ...]]()
    for batch, scheme in enumerate(("parts=records(50)", None, "views=records(33)")):
        land(store, VIEWS.slice(200 * batch, 200))
        run_and_publish(planned(store, running, scheme)[0], tmp_path)
        now = Counter(published(store))
        sums = f"SELECT {by + ', ' if by else ''}count(*), sum(v), min(page) FROM seen WHERE k IS NOT NULL"
        # Of what the batch did not touch it writes nothing.
        touched = f"{sums} GROUP BY ALL HAVING max(v) >= {200 * batch}"
        assert now - before == Counter(direct(touched, seen=VIEWS.slice(0, 200 * (batch + 1))))
        before = now


# ---- what is caught


SPAN = (70, 140)


def kept(views: Flow) -> Flow:
    return views.filter("v >= 0", name="kept")


def hot_batch(store: Store, change: Change = as_planned) -> BatchRef:
    """A batch whose hot partition has 400 records in ranges of 70 to a task, or as somebody changed its plan."""
    keys = ["hot"] * 420 + [f"ad-{n}" for n in range(40)]
    only = [key for key in keys if key == "hot" or placement_hash(key) % PARTITIONS != HOT]
    land(store, pa.table({"k": only, "v": list(range(len(only)))}))
    return stored(store, pipeline_of(store, kept), change, Settings.parse(scheme="views=records(70)"))


def with_span(plan: Plan, before: Span, now: Span) -> Plan:
    """The plan, one task having another range."""

    def changed(task: Task) -> Task:
        return replace(task, offsets=now) if task.span == before else task

    (stage,) = plan.stages
    return replace(plan, stages=(replace(stage, tasks=tuple(map(changed, stage.tasks))),))


@caught_by(COVERED)
@pytest.mark.parametrize(
    ("now", "says"),
    [
        (Span(70, 139), "1 record of 420 not taken by any task"),
        (Span(71, 140), "1 record of 420 not taken by any task"),
        (Span(69, 140), "1 record more taken than the 420 planned"),
        (Span(0, 70), "a task read 350 of 420 records"),
        (Span(140, 210), "the offsets taken are not those planned"),
    ],
    ids=[
        "too short at the end",
        "too short at the beginning",
        "too long",
        "the one before twice",
        "the one after twice",
    ],
)
def test_ranges_of_a_stored_plan_that_lose_or_double_records_are_seen(now: Span, says: str, store: Store) -> Refusal:
    ref = hot_batch(store, lambda plan: with_span(plan, Span(*SPAN), now))
    run_groups(ref)
    return saying(refusal(ref), f"views-{HOT}@[0,420): ", says)


def read_as(store: Store, patch: pytest.MonkeyPatch, start: int, end: int) -> BatchRef:
    """A batch that has run, in which the task of one range was given the records of another."""
    reader = kernel.reader

    def wrong(order: Order, ordered: Ordered, place: TaskEnvironment) -> Reader:
        if order.task.span == Span(*SPAN):
            assert isinstance(ordered, OrderedStream)
            _, plan = ref.load()
            whole = plan.stream("views").partitions[HOT]
            ordered = replace(ordered, partitions=(whole.within(Span(start, end)),))
        return reader(order, ordered, place)

    ref = hot_batch(store)
    patch.setattr(kernel, "reader", wrong)
    run_groups(ref)
    return ref


@caught_by(COVERED)
def test_a_range_that_its_task_did_not_read_is_missed(store: Store, monkeypatch: pytest.MonkeyPatch) -> Refusal:
    # The files of another end of the partition have no record of the range.
    return saying(
        refusal(read_as(store, monkeypatch, 350, 420)),
        "a task read 350 of 420 records; 70 records of 420 not taken by any task",
    )


def test_a_receipt_of_another_range_is_refused(store: Store) -> None:
    """It says what its task was to read, which has to be what the plan says."""
    ref = hot_batch(store)
    run_groups(ref)
    ledger, plan = ref.load()
    other = ledger.receipt(plan.batch, 0, 0)
    assert other is not None
    (task, part) = next((t, p) for t in other.tasks for p in t.partitions if p.partition == HOT)
    changed = replace(task, partitions=(replace(part, start=part.start + 1),))
    tasks = tuple(changed if one is task else one for one in other.tasks)
    key = ledger.key("receipts", plan.batch, "attempt-0", "group-0")
    ledger.store.put(key, encode(replace(other, tasks=tasks)))
    with pytest.raises(
        Refused, match=rf"accounts for views-{HOT}@\[{part.start + 1},{part.end}\), which is not planned"
    ):
        steps.audit(ref)
