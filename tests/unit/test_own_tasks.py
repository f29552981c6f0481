"""Hot keys with a task of their own: which keys and stages have one, what plans say, and what their check catches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import PartitionerRef, Settings
from partitioning.documents.document import decode, encode
from partitioning.explain.reason_texts import stage_reason
from partitioning.hashes import placement_hash
from partitioning.model.plan import Plan, TaskRef
from partitioning.model.private import MASK
from partitioning.model.reasons import GcdOf, OwnTasks
from partitioning.model.schemes import HotKeys
from partitioning.model.statistics import KeyFigures, Statistics, TaskFigures
from partitioning.model.takes import Residues, takes
from partitioning.planning.stages.bounds import most_tasks, most_waves
from partitioning.planning.stages.own_tasks import MOST_KEYS
from partitioning.values import replace
from tests.checked import said
from tests.plans import arrived, plan_of

OWN = Settings(hot_keys=HotKeys.OWN_TASK)
PARTITIONS = {"flights": 8, "planes": 4}
STAGE = "flights+planes"
Build = Callable[[Flow, Flow], Flow]


def joined(flights: Flow, planes: Flow) -> Flow:
    return flights.join(planes, "flights.dep_delay", how="full", name="joined")


def counted(flights: Flow, planes: Flow) -> Flow:
    return flights.cogroup("count(*) AS flights", (planes, "count(*) AS planes"), name="counted")


def pipeline_of(build: Build = joined, **declared: Any) -> Pipeline:
    pipeline = Pipeline("met", source="s3://landing/topics")
    flights, planes = (
        pipeline.stream(name, key="tailnum", partitions=count, **declared) for name, count in PARTITIONS.items()
    )
    build(flights, planes).to_stream().write("met")
    return pipeline


def figures(keys: Mapping[str, int], others: int = 40_000, stage: str = STAGE, tasks: int = 4) -> Statistics:
    """A batch in which these keys had so many records, and the others so many, evenly in each task."""
    took = dict.fromkeys(range(tasks), others // tasks)
    for key, records in keys.items():
        took[placement_hash(key) % tasks] += records
    return Statistics(
        0,
        tasks={TaskRef(stage, task): TaskFigures(records, 10 * records) for task, records in took.items()},
        keys=tuple(
            KeyFigures(TaskRef(stage, placement_hash(key) % tasks), key, {"flights": records})
            for key, records in keys.items()
        ),
    )


HOT = {"bot": 40_000}


def planned(
    build: Build = joined,
    keys: Mapping[str, int] = HOT,
    settings: Settings = OWN,
    published: Plan | None = None,
    **declared: Any,
) -> Plan:
    found = [arrived(name, [2_000 if published else 1_000] * count) for name, count in PARTITIONS.items()]
    made = pipeline_of(build, **declared)
    return plan_of(made, found, settings=settings, statistics=figures(keys), published=published)


def own(plan: Plan) -> list[str]:
    (stage,) = plan.stages
    return [each.key for each in stage.why.keys] if isinstance(stage.why, OwnTasks) else []


# ---- what is planned


def test_a_hot_key_has_a_task_for_itself_and_the_others_are_as_before() -> None:
    plan = planned()
    (stage,) = plan.stages
    h = placement_hash("bot")
    *others, hot = stage.tasks
    assert (len(others), hot.owns, stage.cosets) == (4, (h % stage.cosets,), 64)
    (before,) = planned(settings=Settings()).stages
    assert [task.reads for task in others] == [task.reads for task in before.tasks]
    # Only those that share the key's partitions look at hashes.
    assert [task.task for task in stage.tasks if task.filters] == [h % 4, 4]
    assert hot.reads == {"flights": (h % 8,), "planes": (h % 4,)}
    assert (stage.steps, stage.scheme, stage.by_scheme) == (before.steps, before.scheme, before.cosets)


def test_each_key_is_one_task_s_and_only_one_in_sixteen_others_of_its_coset_are_beside_the_hot_key() -> None:
    (stage,) = planned().stages
    h = placement_hash("bot")
    beside = []
    for key in (*(f"N{number}" for number in range(2_000)), "bot"):
        other = placement_hash(key)
        (task,) = {
            task.task
            for task in stage.tasks
            for read, count in PARTITIONS.items()
            if takes(task, read, other % count, other)
        }
        assert task == other % 4 or (task == 4 and other % 64 == h % 64)
        beside += [key] if task == 4 else []
    assert beside[-1] == "bot"
    assert len(beside) < 60


@pytest.mark.parametrize("scheme", ["tasks(3)", "tasks(8)", "elastic(2)", "cogroup"])
def test_any_scheme_can_have_own_tasks(scheme: str) -> None:
    (stage,) = planned(settings=Settings.parse(scheme=scheme, base=OWN)).stages
    (before,) = planned(settings=Settings.parse(scheme=scheme)).stages
    assert len(stage.tasks) == len(before.tasks) + 1
    assert [task.reads for task in stage.tasks[:-1]] == [task.reads for task in before.tasks]


def test_what_later_stages_read_lies_as_without_own_tasks() -> None:
    def ranked(flights: Flow, planes: Flow) -> Flow:
        columns = {"tailnum": "VARCHAR", "rank": "BIGINT"}
        return joined(flights, planes).spark("nowhere:ranked", columns, name="ranked").filter("rank = 1", name="first")

    first, later = planned(ranked).stages
    assert isinstance(first.why, OwnTasks)
    assert later == planned(ranked, settings=Settings()).stages[1]


def test_records_without_a_key_keep_their_own_task() -> None:
    (stage,) = planned(null_keys="own task").stages
    assert [task.null_keys for task in stage.tasks] == [False] * 5 + [True]


def test_the_plan_says_why_and_is_read_as_it_was_stored() -> None:
    plan = planned()
    (stage,) = plan.stages
    assert stage_reason(stage) == (
        "gcd(8, 4) = 4; 'bot' has task 4 for itself, as it has 50 % of the records; "
        "flights and planes filtered by h(key) mod 64; default where keys must meet"
    )
    assert decode(Plan, encode(plan), "a plan") == plan
    assert encode(plan).count(b'"exceptions":{}') == 1


def test_hot_keys_that_fall_together_are_parted() -> None:
    h = placement_hash("bot") % 64
    (other,) = [key for number in range(400) if placement_hash(key := f"N{number}") % 64 == h][:1]
    (stage,) = planned(keys={"bot": 30_000, other: 20_000}).stages
    assert [task.owns for task in stage.tasks[4:]] == [(placement_hash(key) % stage.cosets,) for key in ("bot", other)]
    assert stage.cosets > 64


def test_no_more_keys_have_tasks_than_would_double_them() -> None:
    keys = {f"N{number}": 40_000 - number for number in range(6)}
    assert own(planned(keys=keys)) == ["N0", "N1", "N2", "N3"]
    many = {f"N{number}": 40_000 - number for number in range(20)}
    (stage,) = planned(keys=many, settings=Settings.parse(scheme="tasks(16)", base=OWN)).stages
    assert len(stage.tasks) == 16 + MOST_KEYS


# ---- hysteresis


def test_a_key_keeps_its_task_down_to_half_of_what_gave_it_one() -> None:
    begun = planned(keys={"bot": 5_000})
    assert own(begun) == ["bot"]
    assert own(planned(keys={"bot": 4_900})) == []
    assert own(planned(keys={"bot": 2_500}, published=begun)) == ["bot"]
    assert own(planned(keys={"bot": 2_400}, published=begun)) == []


def test_a_key_keeps_the_number_of_its_task_beside_a_heavier_one() -> None:
    begun = planned(keys={"bot": 10_000})
    assert own(planned(keys={"bot": 10_000, "N1": 30_000}, published=begun)) == ["bot", "N1"]
    assert own(planned(keys={"bot": 10_000, "N1": 30_000})) == ["N1", "bot"]


# ---- what is left as it is


def merged(flights: Flow, planes: Flow) -> Flow:
    return flights.merge(planes, name="all").filter("dep_delay > 0", name="late")


@pytest.mark.parametrize(
    ("keys", "declared"),
    [({}, {}), ({"bot": 900}, {}), ({MASK: 40_000}, {}), (HOT, {"hash": "opaque"})],
    ids=["no hot key", "few records", "a private key", "an opaque placement"],
)
def test_where_no_key_can_have_a_task_the_plan_is_as_without_the_setting(
    keys: Mapping[str, int], declared: Mapping[str, Any]
) -> None:
    assert encode(planned(keys=keys, **declared)) == encode(planned(keys=keys, settings=Settings(), **declared))


def test_a_partitioner_decides_by_itself() -> None:
    even = {STAGE: PartitionerRef("partitioning.planning.partitioners.partitioners:Even", {"tasks": 2})}
    (stage,) = planned(settings=replace(OWN, partitioners=even)).stages
    assert (len(stage.tasks), stage.cosets) == (2, 4)


def test_a_stage_without_keyed_steps_or_with_one_task_is_left() -> None:
    for build, settings in ((merged, OWN), (joined, Settings.parse(scheme="tasks(1)", base=OWN))):
        without = replace(settings, hot_keys=HotKeys.LEAVE)
        assert encode(planned(build, settings=settings)) == encode(planned(build, settings=without))


def test_a_setting_says_it_and_a_dag_has_room_for_it() -> None:
    assert Settings.read('hot_keys = "own task"', "settings.toml") == OWN
    assert most_waves(pipeline_of(), OWN) == most_waves(pipeline_of())
    assert most_tasks(pipeline_of(), OWN) == most_tasks(pipeline_of()) + MOST_KEYS


# ---- what the check of a plan catches, whoever made it


def with_owner(plan: Plan, task: int, owns: Sequence[int]) -> Plan:
    (stage,) = plan.stages
    tasks = list(stage.tasks)
    filters = {name: Residues(stage.cosets, tuple(owns)) for name in tasks[task].filters}
    tasks[task] = replace(tasks[task], owns=tuple(owns), filters=filters)
    return replace(plan, stages=(replace(stage, tasks=tuple(tasks)),))


def wrong_plans() -> Mapping[str, tuple[Plan, str]]:
    plan = planned()
    (stage,) = plan.stages
    why = stage.why
    assert isinstance(why, OwnTasks)
    (bot,) = why.keys
    shared = placement_hash("bot") % 4
    hot, owner = stage.tasks[4], stage.tasks[shared]

    def saying(**changes: Any) -> Plan:
        return replace(plan, stages=(replace(stage, why=replace(why, **changes)),))

    return {
        "a residue of nobody": (with_owner(plan, shared, owner.owns[1:]), "are not exactly one task's"),
        "the key's residue of two": (
            with_owner(plan, shared, sorted((*owner.owns, *hot.owns))),
            "are not exactly one task's",
        ),
        "another residue for its own": (
            with_owner(with_owner(plan, 4, owner.owns[:1]), shared, (*owner.owns[1:], *hot.owns)),
            "bot should have a task each, and the others 4",
        ),
        "a key of another residue": (
            saying(keys=(replace(bot, key="N1"),)),
            f"N1 of flights has h(key) mod 64 = {placement_hash('N1') % 64}, not {bot.residue}",
        ),
        "no key of its task": (saying(keys=()), "should have a task each, and the others 4"),
        "another number of other tasks": (saying(of=GcdOf((8, 4), 2)), "should have a task each, and the others 2"),
        "a partition that its task does not read": (
            replace(
                plan,
                stages=(
                    replace(stage, tasks=(*stage.tasks[:4], replace(hot, reads={"flights": hot.reads["flights"]}))),
                ),
            ),
            "its records do not reach exactly one task each",
        ),
        "a task that takes all of its partition": (
            replace(plan, stages=(replace(stage, tasks=(*stage.tasks[:4], replace(hot, filters={}))),)),
            "takes keys of flights that belong to other tasks",
        ),
    }


@pytest.mark.parametrize("wrong", wrong_plans())
def test_a_plan_with_a_wrong_own_task_is_refused(wrong: str) -> None:
    plan, what = wrong_plans()[wrong]
    assert what in said(plan)
