"""Nothing of a correct batch is flagged, and it gives the rows that DuckDB gives of the same records.

Here are the kinds of batches whose tasks take other records than those of one residue each.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from coset.batches.planning import preview
from coset.batches.publication import abandon
from coset.batches.ref import BatchRef
from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, PartitionerRef, Settings
from partitioning.documents.store import Store
from partitioning.hashes import hash_of
from partitioning.model.placement import JAVA
from partitioning.model.plan import Plan, TaskGroup, TaskRef
from partitioning.model.schemes import MAX, Scheme, tasks
from partitioning.model.streams import NullKeys
from partitioning.model.verdict import Judged
from partitioning.planning.check import check_plan
from partitioning.values import replace
from tests import asked_of_duckdb
from tests.asked_of_duckdb import in_order, published
from tests.batches import erase
from tests.judged import results
from tests.landed import land_file, land_table
from tests.real_batches import Change, as_planned, stored
from tests.running import run_and_publish, task_receipts
from tests.there import there

EVEN = "partitioning.planning.partitioners.partitioners:Even"
JOINED = """
    SELECT k, n, v, c FROM (SELECT k, count(*) AS n, sum(v) AS v FROM views GROUP BY k)
    JOIN clicks USING (k)
"""


def views(first: int, count: int, without_key: int = 0) -> pa.Table:
    """Views of some ads, so many of them of nobody knows which."""
    keys = [None if n < without_key else f"ad-{n % 61}" for n in range(count)]
    return pa.table({"k": pa.array(keys, pa.string()), "v": pa.array(range(first, first + count), pa.int64())})


def clicks(first: int, count: int) -> pa.Table:
    """Clicks on some ads."""
    numbers = pa.array(range(first, first + count), pa.int64())
    return pa.table({"k": [f"ad-{n % 83}" for n in range(count)], "c": numbers})


def activity(store: Store, views_in: int, clicks_in: int, null_keys: NullKeys = NullKeys.REFUSE) -> Pipeline:
    """Counted views that meet clicks."""
    made = Pipeline("activity", source=f"{store.root}/topics")
    seen = made.stream("views", key="k", partitions=views_in, null_keys=null_keys)
    clicked = made.stream("clicks", key="k", partitions=clicks_in, null_keys=null_keys)
    seen.aggregate("count(*) AS n, sum(v)::BIGINT AS v").join(clicked, "n, v, c", name="joined").write("activity")
    return made


def publish(
    store: Store,
    made: Pipeline,
    docs: Path,
    settings: Settings = DEFAULTS,
    change: Change = as_planned,
    **arrived: pa.Table,
) -> BatchRef:
    """Land these records by the partition counts that the pipeline declares, and publish a batch of them."""
    counts = {stream.name: stream.partitions for stream in made.streams}
    for name, table in arrived.items():
        land_table(table, name, f"{store.root}/topics", key="k", partitions=counts[name])
    ref = stored(store, made, change, settings)
    run_and_publish(ref, docs)
    assert all(result["success"] for result in results(ref))
    assert not any(seen.offenders for task in task_receipts(ref) for seen in task.partitions)
    return ref


def direct(sql: str, *batches: dict[str, pa.Table]) -> list[tuple[object, ...]]:
    """The rows that DuckDB gives of each batch's records, all together."""
    return in_order([row for batch in batches for row in asked_of_duckdb.direct(sql, **batch)])


@pytest.mark.parametrize(
    ("before", "now", "scheme", "lie_by"),
    [(4, 8, None, 4), (4, 8, "tasks(2)", 4), (4, 6, "tasks(2)", 2), (8, 4, None, 4), (6, 9, "tasks(3)", 3)],
    ids=["4 to 8", "4 to 8 in two tasks", "4 to 6 in two tasks", "8 to 4", "6 to 9 in three tasks"],
)
def test_a_topic_whose_partition_count_changes_between_two_batches(
    store: Store, tmp_path: Path, before: int, now: int, scheme: str | None, lie_by: int
) -> None:
    settings = Settings.parse(scheme=scheme)
    batches = [{"views": views(n * 1000, 400), "clicks": clicks(n * 1000, 300)} for n in range(3)]
    publish(store, activity(store, before, 12), tmp_path, settings, **batches[0])
    # Partitions that there are no more, and that a batch has read to their ends, are moved away.
    gone = [f"topics/views/partition={number}/" for number in range(now, before)]
    erase(store.root, *(entry.key for prefix in gone for entry in store.list(prefix)))
    # Half of the views of the second batch were there before the count changed.
    half = 200 if now > before else 0
    land_table(batches[1]["views"].slice(0, half), "views", f"{store.root}/topics", key="k", partitions=before)
    rest = batches[1] | {"views": batches[1]["views"].slice(half)}
    second = publish(store, activity(store, now, 12), tmp_path, settings, **rest)
    third = publish(store, activity(store, now, 12), tmp_path, settings, **batches[2])
    for ref, count in ((second, lie_by), (third, now)):
        _, plan = ref.load()
        (stage,) = plan.stages
        assert {read.name: read.placement.partitions for read in stage.streams} == {"views": count, "clicks": 12}
    assert published(store, "activity") == direct(JOINED, *batches)


@pytest.mark.long
@pytest.mark.parametrize(
    ("before", "now", "scheme"), [(6, 9, "cogroup"), (6, 9, "tasks(9)"), (4, 8, "tasks(8)"), (4, 8, "max")]
)
def test_a_topic_whose_partition_count_changes_where_no_keys_have_to_meet(
    store: Store, tmp_path: Path, before: int, now: int, scheme: str
) -> None:
    def evenly(partitions: int) -> Pipeline:
        made = Pipeline("activity", source=f"{store.root}/topics")
        made.stream("views", key="k", partitions=partitions).filter("v % 2 = 0", name="even").write("even")
        return made

    first, between, second = ({"views": views(n * 1000, 400)} for n in range(3))
    publish(store, evenly(before), tmp_path, Settings.parse(scheme=scheme), **first)
    # Whole partitions are read, though their keys may lie in two of them.
    land_table(between["views"], "views", f"{store.root}/topics", key="k", partitions=before)
    publish(store, evenly(now), tmp_path, Settings.parse(scheme=scheme), **second)
    expected = direct("SELECT k, v FROM views WHERE v % 2 = 0", first, between, second)
    assert published(store, "even") == expected


def by_two_hashes(store: Store, clicked: pa.Table) -> tuple[Flow, Flow, Pipeline]:
    """Views placed by murmur2 and clicks, landed here, by Java's hash: a key may be in another task in each."""
    made = Pipeline("activity", source=f"{store.root}/topics")
    seen = made.stream("views", key="k", partitions=8)
    clicks_by_java = made.stream("clicks", key="k", partitions=8, hash=JAVA).select("c AS v", name="clicked")
    homes = [hash_of(JAVA, "here")(key, "string") % 8 for key in clicked["k"].to_pylist()]
    for partition in range(8):
        mine = clicked.filter(pa.array([home == partition for home in homes]))
        land_file(mine, "clicks", f"{store.root}/topics", partition, 0)
    return seen, clicks_by_java, made


UNION = "SELECT k, v FROM views UNION ALL SELECT k, c FROM clicks"


def test_streams_that_are_placed_by_different_hashes_and_merged_in_the_tasks_of_one_scheme(
    store: Store, tmp_path: Path
) -> None:
    batch = {"views": views(0, 200), "clicks": clicks(0, 200)}
    seen, clicked, made = by_two_hashes(store, batch["clicks"])
    seen.merge(clicked, name="both").write("both")
    publish(store, made, tmp_path, Settings.parse(scheme="cogroup"), views=batch["views"])
    assert published(store, "both") == direct(UNION, batch)


def test_a_stream_of_which_equal_keys_meet_beside_one_of_which_they_do_not(store: Store, tmp_path: Path) -> None:
    batch = {"views": views(0, 200), "clicks": clicks(0, 200)}
    seen, clicked, made = by_two_hashes(store, batch["clicks"])
    seen.merge(clicked, name="both").write("both")
    seen.aggregate("count(*) AS n", name="counted").write("counts")
    ref = publish(store, made, tmp_path, views=batch["views"])
    (meet,) = (each for each in results(ref) if each["expectation"] == "expect_keys_to_meet_in_one_task")
    assert meet["table"] == "Keys of stage views+clicks in views"
    assert meet["result"]["element_count"] == 61
    assert published(store, "both") == direct(UNION, batch)
    assert published(store, "counts") == direct("SELECT k, count(*) FROM views GROUP BY k", batch)


@pytest.mark.long
def test_cosets_that_are_dealt_to_few_tasks_and_then_to_more(store: Store, tmp_path: Path) -> None:
    batches = [{"views": views(n * 1000, 400), "clicks": clicks(n * 1000, 300)} for n in range(2)]
    made = activity(store, 8, 12)
    for tasks_there, batch in zip((3, 5), batches, strict=True):
        dealt = Settings(scheme=tasks(24), partitioners={"joined": PartitionerRef(EVEN, {"tasks": tasks_there})})
        ref = publish(store, made, tmp_path, dealt, **batch)
        _, plan = ref.load()
        assert (len(plan.stages[0].tasks), plan.stages[0].cosets) == (tasks_there, 24)
        assert {len(task.owns) for task in plan.stages[0].tasks} == ({8} if tasks_there == 3 else {4, 5})
    assert published(store, "activity") == direct(JOINED, *batches)


@pytest.mark.parametrize("scheme", ["cogroup", "tasks(5)", "tasks(24)"])
def test_a_stream_that_two_stages_read_each_in_its_way(store: Store, tmp_path: Path, scheme: str) -> None:
    evenly = Pipeline("activity", source=f"{store.root}/topics")
    evenly.stream("views", key="k", partitions=8).filter("v % 2 = 0", name="even").write("even")

    def both(plan: Plan) -> Plan:
        """What the planner does across exchanges only: a stage of one scheme beside another."""
        other = there(preview(evenly, store).plan)
        stages = (*plan.stages, *other.stages)
        refs = [tuple(TaskRef(stage.name, task.task) for task in stage.tasks) for stage in stages]
        groups = tuple(TaskGroup(number, tasks, 0, 0) for number, tasks in enumerate(refs))
        return check_plan(replace(plan, stages=stages, groups=groups))

    batch = {"views": views(0, 400), "clicks": clicks(0, 300)}
    ref = publish(store, activity(store, 8, 12), tmp_path, Settings.parse(scheme=scheme), both, **batch)
    ledger, plan = ref.load()
    assert [[read.name for read in stage.streams] for stage in plan.stages] == [["views", "clicks"], ["views"]]
    assert [stage.scheme for stage in plan.stages] == [Scheme.parse(scheme), MAX]
    assert published(store, "activity") == direct(JOINED, batch)
    assert published(store, "even") == direct("SELECT k, v FROM views WHERE v % 2 = 0", batch)
    verdict = there(ledger.verdict(0))
    assert isinstance(verdict.why, Judged)
    # A record that two stages read is one record of the batch.
    assert (verdict.why.records, verdict.why.partitions) == (700, 20)


@pytest.mark.parametrize("scheme", ["cogroup", "tasks(5)", "tasks(1)"])
def test_records_without_a_key_in_a_task_of_their_own(store: Store, tmp_path: Path, scheme: str) -> None:
    made = Pipeline("activity", source=f"{store.root}/topics")
    seen = made.stream("views", key="k", partitions=8, null_keys=NullKeys.OWN_TASK)
    seen.aggregate("count(*) AS n, sum(v)::BIGINT AS v", name="counted").write("activity")
    batches = [{"views": views(n * 1000, 400, without_key=30)} for n in range(2)]
    for batch in batches:
        ref = publish(store, made, tmp_path, Settings.parse(scheme=scheme), **batch)
        _, plan = ref.load()
        *_, own = plan.stages[0].tasks
        assert own.null_keys
        (receipt,) = (each for each in task_receipts(ref) if each.task.task == own.task)
        assert sum(each.taken for each in receipt.partitions) == sum(each.nulls for each in receipt.partitions) == 30
    expected = direct("SELECT k, count(*), sum(v) FROM views GROUP BY k", *batches)
    assert published(store, "activity") == expected


@pytest.mark.long
def test_a_table_that_is_left_out_for_a_batch_and_then_written_again(store: Store, tmp_path: Path) -> None:
    def writing(*tables: str) -> Pipeline:
        made = Pipeline("activity", source=f"{store.root}/topics")
        seen = made.stream("views", key="k", partitions=4)
        for table in tables:
            seen.aggregate("count(*) AS n", name=f"counted_for_{table}").write(table)
        return made

    batches = [{"views": views(n * 1000, 100 + n)} for n in range(4)]
    for tables, batch in zip((("a", "b"), ("a",), ("a", "b"), ("a", "b")), batches, strict=True):
        # It lacks what came of the records meanwhile, and is taken so.
        publish(store, writing(*tables), tmp_path, Settings(go_on=("b",) if "b" in tables else ()), **batch)
    count = "SELECT k, count(*) FROM views GROUP BY k"
    assert published(store, "a") == direct(count, *batches)
    assert published(store, "b") == direct(count, batches[0], *batches[2:])


def test_a_batch_after_one_that_was_given_up(store: Store, tmp_path: Path) -> None:
    batches = [{"views": views(n * 1000, 200), "clicks": clicks(n * 1000, 100)} for n in range(3)]
    made = activity(store, 8, 12)
    publish(store, made, tmp_path, **batches[0])
    for name, table in batches[1].items():
        land_table(table, name, f"{store.root}/topics", key="k", partitions={"views": 8, "clicks": 12}[name])
    ledger, given_up = stored(store, made).load()
    abandon(ledger, "to take more at once")
    ref = publish(store, made, tmp_path, **batches[2])
    _, plan = ref.load()
    assert (plan.batch, plan.ranges()[0].start) == (2, given_up.ranges()[0].start)
    both = {name: pa.concat_tables([batches[1][name], batches[2][name]]) for name in ("views", "clicks")}
    assert published(store, "activity") == direct(JOINED, batches[0], both)
