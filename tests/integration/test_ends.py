"""What was read of a stream is known for good: left out and back, counts up and down, kept and not, made anew."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from coset.batches import steps
from coset.batches.backfills import actions as backfills
from coset.batches.backfills.actions import Asked
from coset.batches.ends import forget, forgettings
from coset.batches.interpreter import silently
from coset.batches.planning import preview
from coset.batches.ref import BatchRef
from coset.batches.runners.local import Local
from coset.cli.main import app
from coset.sources.files import Files
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.documents.document import digest, encode
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import Finding, Refused
from partitioning.explain.explain import explain
from partitioning.hashes import placement_hash
from partitioning.model.offsets import OffsetRange, StreamPartition
from partitioning.model.plan import Plan
from partitioning.model.read_ends import Forgetting, Forgotten, What
from partitioning.model.receipt import Role
from partitioning.sections import markdown
from partitioning.values import replace
from tests.begun import Begun
from tests.changing import World
from tests.landed import land_file
from tests.real_batches import stored
from tests.refused import findings_of
from tests.running import next_batch, run_and_publish, run_and_publish_unjudged, run_groups, task_receipts
from tests.there import there


@pytest.fixture(scope="module")
def worlds() -> list[World]:
    """As the first batch has left it."""
    return []


@pytest.fixture
def world(begun: Begun, worlds: list[World], tmp_path: Path) -> World:
    """Views and clicks, of which a first batch has read all."""

    def first_batch(store: Store) -> None:
        made = World(store)
        made.send("views", 40)
        made.send("clicks", 40)
        made.batch()
        worlds.append(made)

    begun.by(first_batch)
    return worlds[0].again(tmp_path)


def ranges(plan: Plan | None, name: str) -> list[str]:
    assert plan is not None
    return [str(offsets) for offsets in plan.ranges() if offsets.partition.stream == name]


def test_a_stream_that_is_left_out_and_comes_back_is_read_from_where_it_was(world: World) -> None:
    world.read = ["views"]
    for _ in range(2):
        world.send("views", 5)
        world.send("clicks", 10)
        world.batch()
    world.read = ["views", "clicks"]
    before = dict(world.topics["clicks"].ends)
    plan = there(world.batch())
    assert sum(partition.records for partition in plan.stream("clicks").partitions) == 20
    assert [partition.end for partition in plan.stream("clicks").partitions] == [before[n] for n in range(4)]
    world.check("views", "clicks")


def test_a_stream_that_comes_back_without_new_records_gives_none(world: World) -> None:
    world.read = ["views"]
    world.send("views", 5)
    world.batch()
    world.read = ["views", "clicks"]
    assert world.batch() is None
    world.check("views", "clicks")


def test_counts_that_go_down_and_up_again_lose_and_repeat_nothing(world: World) -> None:
    for count in (8, 4, 8, 2, 8):
        world.recount("views", count)
        world.send("views", 30)
        world.batch()
        world.check()


@pytest.mark.long
def test_partitions_that_come_back_without_their_old_files_go_on_where_they_were(world: World) -> None:
    for count in (8, 4):
        world.recount("views", count)
        world.send("views", 40)
        world.batch()
    world.recount("views", 8, back=False)
    world.send("views", 40)
    world.batch()
    world.check()


@pytest.mark.long
def test_a_stream_that_comes_back_under_another_count_is_read_by_both(world: World) -> None:
    world.read = ["clicks"]
    world.send("clicks", 5)
    world.batch()
    world.send("views", 30)
    world.recount("views", 6)
    world.send("views", 30)
    world.read = ["views", "clicks"]
    plan = there(world.batch())
    assert [str(change) for stage in plan.stages for change in stage.changes] == [
        "views changed from 4 to 6 partitions"
    ] * len([stage for stage in plan.stages if stage.changes])
    world.check()


def remade(world: World, name: str, records: int, *, rows: int = 7) -> None:
    """The topic is made anew: other records, from the first offset on, in files of so many."""
    store = store_at(world.source)
    for entry in list(store.list(f"{name}/")):
        store.delete(entry.key)
    for partition in range(world.topics[name].count):
        for first in range(0, records, rows):
            numbers = list(range(1_000_000 + first, 1_000_000 + min(first + rows, records)))
            key = key_in(partition, world.topics[name].count)
            table = pa.table({"k": [key] * len(numbers), "number": pa.array(numbers, pa.int64())})
            land_file(table, name, world.source, partition, first)


def key_in(partition: int, count: int) -> str:
    """A key that lies in a partition of so many."""
    return next(key for key in (f"key-{n}" for n in range(1000)) if placement_hash(key) % count == partition)


def refused(world: World) -> list[Finding]:
    return list(findings_of(preview, world.pipeline(), world.store))


@pytest.mark.parametrize("rows", [7, 100])
@pytest.mark.parametrize("left_out", [True, False])
def test_a_topic_that_was_made_anew_with_more_records_is_refused(left_out: bool, rows: int, world: World) -> None:
    if left_out:
        world.read = ["views"]
        world.send("views", 5)
        world.batch()
        world.read = ["views", "clicks"]
    remade(world, "clicks", 30, rows=rows)
    (finding,) = refused(world)
    assert len(finding.places) == 4
    assert "`coset forget changing clicks --why" in finding.then
    end = world.topics["clicks"].ends[0]
    assert finding.what == (
        f"clicks: clicks-0 was read up to offset {end} of the file clicks+0+0000000000.parquet, "
        "and another file has the last of these offsets now"
    )


def test_a_topic_that_was_made_anew_with_fewer_records_is_refused(world: World) -> None:
    remade(world, "clicks", 1)
    assert {finding.what.partition(",")[0] for finding in refused(world)} == {"offsets end at 1"}


@pytest.mark.long
def test_a_topic_that_was_made_anew_is_seen_in_a_partition_that_was_quiet_too(world: World) -> None:
    for _ in range(3):
        world.send("views", 40)
        world.batch()
    remade(world, "clicks", 30)
    assert [len(found.places) for found in refused(world)] == [4]


def test_a_name_that_is_used_for_another_topic_elsewhere_is_refused(world: World) -> None:
    world.read = ["views"]
    world.send("views", 5)
    world.batch()
    world.read = ["views", "clicks"]
    other = World(world.store)
    other.source = f"{world.store.root}/elsewhere"
    other.send("views", 100)
    other.send("clicks", 100)
    world.source = other.source
    assert [len(finding.places) for finding in refused(world)] == [4, 4]


def test_files_that_were_moved_elsewhere_as_they_are_go_on(world: World) -> None:
    world.send("clicks", 10)
    there, to = store_at(world.source), store_at(f"{world.store.root}/moved")
    for entry in list(there.list("")):
        to.put(entry.key, there.get(entry.key) or b"")
        there.delete(entry.key)
    world.source = to.root
    world.batch()
    world.check()


def test_files_that_expired_after_they_were_read_are_none_of_it(world: World) -> None:
    store = store_at(world.source)
    for entry in list(store.list("clicks/")):
        store.delete(entry.key)
    world.send("clicks", 20)
    world.batch()
    assert len(world.rows("clicks")) == 60
    world.check()


@pytest.mark.long
def test_a_partition_that_comes_back_with_other_files_is_refused(world: World) -> None:
    for count in (8, 4):
        world.recount("views", count)
        world.send("views", 80)
        world.batch()
    world.recount("views", 8, back=False)
    end = world.topics["views"].ends[6]
    numbers = list(range(2_000_000, 2_000_000 + end + 5))
    table = pa.table({"k": [f"key-{n}" for n in numbers], "number": pa.array(numbers, pa.int64())})
    land_file(table, "views", world.source, 6, 0)
    (finding,) = refused(world)
    assert f"views-6 was read up to offset {end}" in finding.what


# ---- forgetting


def forgotten(world: World, stream: str, partition: int | None = None, what: What = What.POSITION) -> Forgetting:
    return forget(Ledger(world.store, "changing"), stream, partition, what, "made anew")


@pytest.mark.long
def test_a_topic_that_was_made_anew_is_read_from_its_beginning_once_it_is_forgotten(world: World) -> None:
    remade(world, "clicks", 30)
    made = forgotten(world, "clicks")
    assert made.counted_twice == 40
    plan = there(world.batch())
    assert [str(one.offsets) for one in plan.forgotten] == [
        f"clicks-{number}@[0,{world.topics['clicks'].ends[number]})" for number in range(4)
    ]
    assert ranges(plan, "clicks") == [f"clicks-{number}@[0,30)" for number in range(4)]
    assert "clicks-0@[0," in markdown(explain(plan)).partition("is forgotten: it is read from its beginning")[0]
    # The batch after it goes on.
    world.send("views", 5)
    later = there(world.batch())
    assert later.forgotten == ()
    assert ranges(later, "clicks") == [f"clicks-{number}@[30,30)" for number in range(4)]


def test_one_partition_is_forgotten_and_the_others_are_not(world: World) -> None:
    forgotten(world, "clicks", 2)
    world.send("clicks", 10)
    plan = there(world.batch())
    assert [partition.start == 0 for partition in plan.stream("clicks").partitions] == [False, False, True, False]


def test_what_is_not_read_any_more_is_forgotten_too(world: World) -> None:
    world.read = ["views"]
    forgotten(world, "clicks")
    world.send("views", 5)
    plan = there(world.batch())
    assert plan.ends.stream("clicks") is None


def test_a_batch_that_was_planned_before_somebody_let_it_forget_is_refused(world: World) -> None:
    world.send("clicks", 5)
    ref = there(world.plan())
    ledger, _ = ref.load()
    offsets = OffsetRange(StreamPartition("clicks", 2), 0, world.topics["clicks"].ends[2])
    late = Forgetting("changing", 0, 0, (Forgotten(offsets, What.POSITION),), "me", "too late", "now")
    ledger.store.put("changing/forgets/0.json", encode(late))
    run_groups(ref)
    steps.audit(ref)
    with pytest.raises(Refused, match="clicks-2: it begins at 0"):
        steps.check(ref, world.docs)


def test_nothing_is_forgotten_while_a_batch_is_open_and_nothing_that_is_not_known(world: World) -> None:
    with pytest.raises(Refused, match="no batch has read logins") as unknown:
        forgotten(world, "logins")
    assert unknown.value.findings[0].then == (
        "name a stream that was read: clicks (4 partitions), views (4 partitions)"
    )
    with pytest.raises(Refused, match="no batch has read clicks-4"):
        forgotten(world, "clicks", 4)
    world.send("clicks", 5)
    world.plan()
    with pytest.raises(Refused, match="batch 1 is open") as is_open:
        forgotten(world, "clicks")
    assert is_open.value.findings[0].then == "finish it first: `coset run changing`"
    assert list(forgettings(Ledger(world.store, "changing"))) == []


# ---- plans of before


@pytest.mark.long
def test_plans_that_remember_nothing_are_made_good_for_by_those_before_them(world: World) -> None:
    def as_before(plan: Plan) -> Plan:
        return replace(plan, remembered=None)

    world.read = ["views"]
    for _ in range(2):
        world.send("views", 5)
        run_and_publish_unjudged(stored(world.store, world.pipeline(), as_before))
    world.read = ["views", "clicks"]
    world.send("clicks", 10)
    plan = there(world.batch())
    assert plan.records == 10
    world.check()


@pytest.mark.long
@pytest.mark.parametrize("is_undone", [False, True])
def test_what_a_backfill_has_read_may_be_remembered_of_its_files(is_undone: bool, world: World, tmp_path: Path) -> None:
    """Whose files count can change between a plan and its check."""
    (key,) = (entry.key for entry in store_at(world.source).list("clicks/partition=2/"))
    numbers = [number + 1_000_000 for number in world.topics["clicks"].files[key]]
    table = pa.table({"k": [key_in(2, 4)] * len(numbers), "number": pa.array(numbers, pa.int64())})
    land_file(table, "clicks", world.source, 2, 0)
    request = backfills.begin(world.pipeline(), world.store, Asked(0, 0, DEFAULTS, "landed anew", repaired=True))
    with Local(processes=1) as runner:
        backfills.run(world.pipeline(), world.store, request, runner, tmp_path, silently)
    approved = digest(backfills.comparison(world.store, request))
    backfills.swap(world.store, request, approved, "")
    world.read = ["views"]
    world.send("views", 5)
    ref = there(world.plan())
    remembered = ref.load()[1].ends.end("clicks", 2)
    first = Ledger(world.store, "changing").plan(0)
    assert remembered is not None
    assert first is not None
    assert remembered.files != first.stream("clicks").partitions[2].files
    if is_undone:
        backfills.undo(world.store, request, "as it was")
    run_and_publish(ref, tmp_path)


# ---- on the command line


def coset(world: World, tmp_path: Path, *words: str) -> Result:
    file = tmp_path / "changing.py"
    streams = "".join(
        f"pipeline.stream('{name}', key='k', partitions={world.topics[name].count}).select('number').write('{name}')\n"
        for name in world.read
    )
    source = f"from coset import Pipeline\npipeline = Pipeline('changing', source='{world.source}')\n"
    file.write_text(f"{source}{streams}")
    return CliRunner().invoke(app, [words[0], str(file), "--store", world.store.root, *words[1:]])


def test_status_says_what_is_not_read_any_more_and_forget_what_follows(world: World, tmp_path: Path) -> None:
    world.recount("views", 2)
    world.read = ["views"]
    end, ends = world.topics["clicks"].ends[3], world.topics["clicks"].ends
    shown = coset(world, tmp_path, "status")
    assert shown.exit_code == 0, shown.output
    assert f"Not read any more: clicks-3, committed up to offset {end} by batch 0." in shown.stdout
    assert "Not read any more: views-2, committed" in shown.stdout
    as_json = json.loads(coset(world, tmp_path, "status", "--json").stdout)
    assert {"partition": "clicks-3", "committed": end, "batch": 0} in as_json["not_read"]
    assert len(as_json["not_read"]) == 6
    assert coset(world, tmp_path, "forget", "clicks").exit_code == 3
    shown = coset(world, tmp_path, "forget", "clicks", "--why", "gone for good")
    assert shown.exit_code == 0, shown.output
    assert "40 records can be counted twice; result tables stay as they are." in shown.stdout
    as_json = json.loads(coset(world, tmp_path, "status", "--json").stdout)
    assert [one["partition"] for one in as_json["not_read"]] == ["views-2", "views-3"]
    assert as_json["forgotten"][0].startswith(f"clicks-0@[0,{ends[0]}) is forgotten")
    made = json.loads(
        coset(world, tmp_path, "forget", "views", "--partition", "3", "--keep-offsets", "--why", "x", "--json").stdout
    )
    assert (made["counted_twice"], made["forgotten"][0]["what"]) == (0, "source")


class Topic:
    """A topic, and the keys that each partition got."""

    def __init__(self, store: Store) -> None:
        self.source = f"{store.root}/topics"
        self._logs: dict[int, list[str | None]] = {}

    def send(self, keys: list[str | None], count: int) -> None:
        new: dict[int, list[str | None]] = {}
        for turn, key in enumerate(keys):
            place = turn if key is None else placement_hash(key)
            new.setdefault(place % count, []).append(key)
        for partition, sent in new.items():
            log = self._logs.setdefault(partition, [])
            land_file(pa.table({"k": pa.array(sent, pa.string())}), "views", self.source, partition, len(log))
            log.extend(sent)


def planned(topic: Topic, store: Store, count: int, scheme: str) -> BatchRef:
    pipeline = Pipeline("views_counted", source=topic.source)
    views = pipeline.stream("views", key="k", partitions=count, null_keys="own task")
    views.aggregate("count(*) AS n", name="counted").write("t")
    return next_batch(pipeline, store.root, Settings.parse(scheme=scheme))


def counted(ref: BatchRef) -> dict[str | None, int]:
    """What a batch wrote; a key that two tasks counted would be there twice."""
    uris = [f"{ref.load()[0].store.root}/{file.path}" for task in task_receipts(ref) for file in task.left(Role.TABLE)]
    tables = [pq.read_table(Files().open(uri)) for uri in uris]
    rows = [row for table in tables for row in zip(table["k"].to_pylist(), table["n"].to_pylist(), strict=True)]
    assert len(dict(rows)) == len(rows)
    return dict(rows)


@pytest.mark.parametrize(
    ("before", "after", "scheme", "moves"),
    [
        (4, 8, "cogroup", False),
        (4, 8, "tasks(8)", True),
        (4, 6, "cogroup", True),
        (4, 6, "tasks(2)", False),
        (2, 3, "elastic(3)", True),
    ],
)
def test_a_batch_of_records_by_the_old_and_by_the_new_count(
    before: int, after: int, scheme: str, moves: bool, store: Store
) -> None:
    topic = Topic(store)
    old: list[str | None] = [None if n % 20 == 0 else f"key-{n % 37}" for n in range(200)]
    topic.send(old, before)
    first = planned(topic, store, before, "cogroup")
    run_and_publish(first)
    assert counted(first) == Counter(old)

    # The producers go on by the old count, until they see the new one.
    late: list[str | None] = [f"key-{n % 41}" for n in range(90)]
    topic.send(late, before)
    new: list[str | None] = [None if n % 30 == 0 else f"key-{n % 43 + 5}" for n in range(150)]
    topic.send(new, after)
    second = planned(topic, store, after, scheme)
    _, plan = second.load()
    assert bool(plan.exchanges) == moves
    run_and_publish(second)
    assert counted(second) == Counter([*late, *new])
