"""Choices: which scheme and partitioner a stage gets, by the names of stages and steps."""

from __future__ import annotations

import pytest

from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import PartitionerRef, Settings
from partitioning.errors import Refused
from partitioning.explain.reason_texts import stage_reason
from partitioning.model.placement import MURMUR2, KeyFormat, Placement
from partitioning.model.schemes import COGROUP, MAX
from partitioning.model.schemes import tasks as tasks_scheme
from partitioning.model.stage_inputs import ResultInput
from tests.plans import arrived, plan_of
from tests.staged import enriched, made, move, pipeline_of, stream, total


def test_stages_of_one_pipeline_may_have_different_schemes_by_the_name_of_a_step_or_a_stage() -> None:
    settings = Settings.parse(scheme=["tasks(5)", "seen=tasks(8)", "views=tasks(3)"])
    before, after = made(enriched(), move("by_user", "seen"), settings=settings).stages
    assert (before.cosets, after.cosets) == (3, 8)


def test_settings_win_over_the_pipeline_and_a_scheme_for_all_over_the_pipelines_for_one() -> None:
    pipeline = enriched(scheme="tasks(2)", schemes={"seen": "tasks(3)"})
    plan = made(pipeline, move("by_user", "seen"))
    assert [stage.cosets for stage in plan.stages] == [2, 3]
    plan = made(pipeline, move("by_user", "seen"), settings=Settings.parse(scheme="tasks(4)"))
    assert [stage.cosets for stage in plan.stages] == [4, 4]


def test_unknown_names_and_different_schemes_for_one_stage_are_all_found() -> None:
    settings = Settings(
        schemes={"sen": tasks_scheme(2), "active": tasks_scheme(3), "seen": tasks_scheme(4)},
        partitioners={"vews": "m:p"},
        fan_in={"seen": 2},
    )
    with pytest.raises(Refused) as refusal:
        made(enriched(partitioners={"by_usr": "m:p"}), move("by_user", "seen"), settings=settings)
    assert [(finding.what, finding.where) for finding in refusal.value.findings] == [
        ("there is no stage or step 'sen'", "schemes in the settings"),
        ("there is no stage or step 'vews'", "partitioners in the settings"),
        ("there is no stage or step 'by_usr'", "partitioners of pipeline 'p'"),
        ("there is no combine step 'seen'", "fan_in in the settings"),
        ("one stage is given different schemes (active: tasks(3), seen: tasks(4))", "stage users+by_user.exchange"),
    ]


def test_a_partitioner_deals_the_cosets_of_its_stage_to_fewer_tasks() -> None:
    even = PartitionerRef("partitioning.planning.partitioners.partitioners:Even", {"tasks": 3})
    pipeline = pipeline_of(scheme="tasks(8)")
    stream(pipeline, "a", 8).aggregate("count(*) AS n", name="counted").write("t")
    (stage,) = made(pipeline, settings=Settings(partitioners={"counted": even})).stages
    assert (stage.cosets, len(stage.tasks)) == (8, 3)
    assert sorted(residue for task in stage.tasks for residue in task.owns) == list(range(8))
    assert stage.partitioner == "partitioning.planning.partitioners.partitioners:Even(tasks=3)"
    assert "assigned to 3 tasks by partitioning.planning.partitioners.partitioners:Even(tasks=3)" in stage_reason(stage)


def test_a_partitioner_has_nothing_to_deal_under_max_or_where_all_is_gathered() -> None:
    even = PartitionerRef("partitioning.planning.partitioners.partitioners:Even", {"tasks": 3})
    pipeline = pipeline_of()
    stream(pipeline, "a", 8).filter("true", name="kept").write("t")
    settings = Settings(schemes={"kept": MAX}, partitioners={"kept": even})
    with pytest.raises(Refused, match="scheme max keeps no keys together, so a partitioner has none to assign"):
        made(pipeline, settings=settings)
    with pytest.raises(Refused, match="all needed together"):
        made(total(), move("p", "c", key=""), settings=Settings(partitioners={"c": even}))


def passed_on(*, joined: bool) -> Pipeline:
    """Rows of `kept` that a later wave reads beside records that moved: merged, or joined by key."""
    pipeline = pipeline_of()
    kept = stream(pipeline, "a", 4).filter("true", name="kept")
    kept.select("v, k", name="copied").write("copies")
    back = kept.rekey("j", name="moved").aggregate("count(*) AS n", name="counted").rekey("k", name="back")
    (kept.join(back, "1 AS one", name="met") if joined else kept.merge(back, name="met")).write("t")
    return pipeline


def test_rows_that_a_stage_of_scheme_max_leaves_lie_anywhere_and_may_be_merged() -> None:
    whole = Settings(schemes={"kept": MAX})
    first, last = plan_of(passed_on(joined=False), [arrived("a", [10] * 4)], settings=whole).stages
    assert (first.scheme, [task.owns for task in first.tasks]) == (MAX, [()] * 4)
    assert last.inputs[1] == ResultInput("kept.result", "kept", Placement("", KeyFormat.STRING, MURMUR2, 4))


def test_rows_that_a_stage_of_scheme_max_leaves_are_refused_where_keys_must_meet_and_the_scheme_is_named() -> None:
    moves = move("moved", "counted"), move("back", "met", key="k")
    assert made(passed_on(joined=True), *moves).stages[0].scheme == COGROUP
    with pytest.raises(
        Refused, match=r"met needs equal keys together, but .* left by a stage of scheme max"
    ) as refusal:
        made(passed_on(joined=True), *moves, settings=Settings(schemes={"kept": MAX}))
    (finding,) = refusal.value.findings
    assert finding.then.endswith("give the stage that leaves them another scheme")
