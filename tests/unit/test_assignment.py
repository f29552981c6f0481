"""Schemes as they are said, which a stage gets, and assignments that are refused or have parts of partitions only."""

from __future__ import annotations

import pytest

from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import PartitionerRef, Settings
from partitioning.cosets import Reading, assign, assign_owned, assign_whole
from partitioning.errors import Refused
from partitioning.model.placement import MURMUR2, KeyFormat, Placement
from partitioning.model.schemes import COGROUP, MAX, Scheme
from partitioning.model.schemes import tasks as tasks_scheme
from partitioning.model.stage_inputs import ResultInput
from partitioning.model.takes import Residues, Task
from tests.plans import arrived, plan_of
from tests.refused import finding_of
from tests.staged import enriched, made, move, pipeline_of, stream, total


@pytest.mark.parametrize("text", ["max", "cogroup", "elastic(3)", "tasks(7)"])
def test_a_scheme_prints_and_parses_back(text: str) -> None:
    assert str(Scheme.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("round-robin", "unknown scheme 'round-robin'"),
        ("", "unknown scheme"),
        ("tasks(0)", "asks for 0 tasks"),
        ("tasks(-4)", "asks for -4 tasks"),
        ("elastic(0)", "asks for 0 tasks"),
        ("tasks(two)", "unknown scheme"),
        ("tasks(" + "9" * 5000 + ")", "unknown scheme"),
        ("tasks", "wrong form"),
        ("cogroup(4)", "wrong form"),
    ],
)
def test_an_unknown_scheme_or_tasks_below_one_are_refused_and_the_schemes_named(text: str, said: str) -> None:
    with pytest.raises(Refused, match="cogroup") as refusal:
        Scheme.parse(text)
    assert said in str(refusal.value)


def test_all_that_is_wrong_with_the_streams_is_said_at_once() -> None:
    with pytest.raises(Refused) as refusal:
        assign([("views", 0), ("views", 4), ("cl/cks", -1)], COGROUP)
    assert [finding.what for finding in refusal.value.findings] == [
        "stream 'views' is named twice",
        "stream 'views' has 0 partitions",
        "'cl/cks' is no name for a stream",
        "stream 'cl/cks' has -1 partitions",
    ]


def test_numbers_of_tasks_and_streams_that_cannot_be_meant_are_refused() -> None:
    finding = finding_of(assign, [("views", 10**9)], COGROUP)
    assert finding.what == "1,000,000,000 tasks would read 1,000,000,000 stream partitions, more than 10,000,000"
    assert finding.then == "use at most 10,000,000 tasks"
    with pytest.raises(Refused, match="no streams"):
        assign([], COGROUP)


@pytest.mark.parametrize(
    ("streams", "scheme"),
    [([("a", 999_999)], "tasks(99998)"), ([("a", 99_999)], "tasks(100000)"), ([("a", 10**9)], "max")],
)
def test_a_mapping_too_large_to_be_meant_is_refused_before_it_is_made(
    streams: list[tuple[str, int]], scheme: str
) -> None:
    with pytest.raises(Refused, match="stream partitions, more than 10,000,000"):
        assign(streams, Scheme.parse(scheme))


def test_a_task_of_several_residues_reads_what_can_hold_them_and_filters_only_what_holds_others_too() -> None:
    tasks = assign_owned([Reading("IS1", 4), Reading("IS2", 8)], 8, [(0, 4), (1, 2, 3), (5, 6, 7)])
    whole = {"IS1": (0,), "IS2": (0, 4)}
    first = {"IS1": (1, 2, 3), "IS2": (1, 2, 3)}
    second = {"IS1": (1, 2, 3), "IS2": (5, 6, 7)}
    assert tasks == (
        Task(0, whole, owns=(0, 4), keyless=whole),
        Task(1, first, {"IS1": Residues(8, (1, 2, 3))}, owns=(1, 2, 3), keyless=first),
        Task(2, second, {"IS1": Residues(8, (5, 6, 7))}, owns=(5, 6, 7), keyless={"IS2": (5, 6, 7)}),
    )


def test_partitions_of_which_some_are_there_or_that_lie_anywhere_are_read_once() -> None:
    tasks = assign_owned([Reading("IS1", 6, only=(4, 5))], 6, [(task,) for task in range(6)])
    assert [task.reads for task in tasks] == [{}, {}, {}, {}, {"IS1": (4,)}, {"IS1": (5,)}]
    assert [task.reads for task in assign_whole([Reading("IS1", 6, only=(4, 5))], 2)] == [{"IS1": (4,)}, {"IS1": (5,)}]
    tasks = assign_owned([Reading("IS1", 5, keyed=False)], 2, [(0,), (1,)])
    even, odd = {"IS1": (0, 2, 4)}, {"IS1": (1, 3)}
    assert tasks == (Task(0, even, owns=(0,), keyless=even), Task(1, odd, owns=(1,), keyless=odd))


# ---- which scheme and partitioner a stage gets


def test_stages_have_schemes_by_name_and_settings_win_over_the_pipeline() -> None:
    settings = Settings.parse(scheme=["tasks(5)", "seen=tasks(8)", "views=tasks(3)"])
    before, after = made(enriched(), move("by_user", "seen"), settings=settings).stages
    assert (before.cosets, after.cosets) == (3, 8)
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
