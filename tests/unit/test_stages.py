"""Stages: how the graph is cut, how many tasks each gets, and what each reads between exchanges."""

from __future__ import annotations

import pytest

from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.errors import Refused
from partitioning.explain.reason_texts import stage_reason
from partitioning.model.placement import MURMUR2, KeyFormat, Placement
from partitioning.model.schemes import COGROUP, MAX, elastic
from partitioning.model.stage_inputs import ExchangeInput, StreamInput
from partitioning.model.streams import NullKeys
from partitioning.model.takes import Task
from tests.plans import COLUMNS, tails
from tests.staged import enriched, made, move, names, pipeline_of, rekeyed, stages, stream, total


def test_streams_that_meet_are_one_stage_of_gcd_tasks_and_others_never_shrink_each_other() -> None:
    (stage,) = stages(tails())
    assert (stage.name, stage.scheme, stage.cosets, len(stage.tasks)) == ("flights+planes", COGROUP, 4, 4)
    assert stage_reason(stage) == "gcd(12, 8) = 4; whole partitions, no filter; default where keys must meet"
    assert [write.declared.table for write in stage.writes] == ["tail_activity"]
    assert stage.writes[0].columns == COLUMNS
    pipeline = pipeline_of()
    for name, partitions in (("a", 12), ("b", 5)):
        stream(pipeline, name, partitions).aggregate("count(*) AS n").write(f"{name}_counts")
    assert [(stage.name, stage.cosets) for stage in stages(pipeline)] == [("a", 12), ("b", 5)]


def test_streams_that_meet_through_a_third_are_one_stage_in_declared_order() -> None:
    pipeline = pipeline_of()
    a, b, c = (stream(pipeline, name, count) for name, count in (("a", 12), ("b", 8), ("c", 6)))
    c.join(a, "1 AS one", name="ca").write("first")
    b.join(a, "1 AS one", name="ba").write("second")
    (stage,) = stages(pipeline)
    assert (names(stage), stage.cosets) == (["a", "b", "c"], 2)
    assert [step.name for step in stage.steps] == ["ca", "ba"]


def test_each_stage_has_its_own_steps_and_writes_only() -> None:
    pipeline = pipeline_of()
    stream(pipeline, "a", 2).filter("true", name="fa").write("ta")
    stream(pipeline, "b", 3).filter("true", name="fb").write("tb")
    found = [(s.name, [x.name for x in s.steps], [w.declared.table for w in s.writes]) for s in stages(pipeline)]
    assert found == [("a", ["fa"], ["ta"]), ("b", ["fb"], ["tb"])]


def test_where_no_keys_meet_the_default_is_max_and_elsewhere_it_is_refused() -> None:
    pipeline = pipeline_of()
    stream(pipeline, "a", 3).filter("true").write("t")
    (stage,) = stages(pipeline)
    assert (stage.scheme, stage.cosets) == (MAX, 3)
    assert (
        stage_reason(stage)
        == "one task per stream partition, 3 in all; whole partitions, no filter; default where none meet"
    )
    with pytest.raises(Refused, match="max keeps no keys together, but joined needs") as refusal:
        stages(tails(), "max")
    assert refusal.value.findings[0].where == "stage flights+planes"


def test_a_scheme_that_is_given_wins_over_the_pipelines_own() -> None:
    pipeline = pipeline_of(scheme="tasks(3)")
    stream(pipeline, "a", 6).aggregate("count(*) AS n").write("t")
    assert stages(pipeline)[0].cosets == 3
    (stage,) = stages(pipeline, "elastic(2)")
    assert (stage.cosets, stage.scheme) == (12, elastic(2))
    assert stage_reason(stage) == "2 × gcd(6) = 12; a filtered by h(key) mod 12; as given"


def test_what_an_opaque_placement_allows_are_divisors_of_the_gcd() -> None:
    pipeline = pipeline_of()
    a, b = (stream(pipeline, name, count, hash="opaque") for name, count in (("a", 12), ("b", 8)))
    a.join(b, "1 AS one").write("t")
    assert [stages(pipeline, scheme)[0].cosets for scheme in ("cogroup", "tasks(2)", "tasks(1)")] == [4, 2, 1]
    with pytest.raises(Refused) as refusal:
        stages(pipeline, "tasks(24)")
    assert len(refusal.value.findings) == 2
    assert "placement of a is opaque" in str(refusal.value)
    assert "24 tasks do not divide its 8 partitions" in str(refusal.value)


@pytest.mark.parametrize(("more", "said"), [({"key_format": "long"}, "key formats"), ({"hash": "opaque"}, "placem")])
def test_streams_that_meet_must_be_placed_alike(more: dict[str, str], said: str) -> None:
    pipeline = pipeline_of()
    stream(pipeline, "a", 4).join(stream(pipeline, "b", 4, **more), "1 AS one").write("t")
    with pytest.raises(Refused, match=f"different {said}"):
        stages(pipeline)


def test_streams_that_do_not_meet_may_be_placed_differently() -> None:
    pipeline = pipeline_of()
    stream(pipeline, "a", 4).aggregate("count(*) AS n").write("ta")
    stream(pipeline, "b", 4, key_format="long").aggregate("count(*) AS n").write("tb")
    assert len(stages(pipeline)) == 2


def test_records_without_a_key_get_one_more_task_over_the_streams_that_want_it() -> None:
    pipeline = pipeline_of()
    a = stream(pipeline, "a", 4, null_keys="own task")
    a.join(stream(pipeline, "b", 2, null_keys="drop"), "1 AS one").write("t")
    (stage,) = stages(pipeline)
    assert stage.cosets == 2
    own = {"a": (0, 1, 2, 3)}
    assert stage.tasks[2] == Task(2, own, null_keys=True, keyless=own)


def test_all_that_is_wrong_is_said_at_once_and_that_there_are_no_streams() -> None:
    pipeline = pipeline_of()
    stream(pipeline, "a", 4).filter("true", name="forgotten")
    stream(pipeline, "b", 4).aggregate("count(*) AS n", name="counted").write("t")
    with pytest.raises(Refused) as refusal:
        stages(pipeline, "max")
    whats = [finding.what for finding in refusal.value.findings]
    assert whats[:2] == ["'a' leads to no table", "'forgotten' leads to no table"]
    assert whats[2].startswith("scheme max keeps no keys together")
    with pytest.raises(Refused, match="no streams"):
        stages(pipeline_of())


def test_counts_without_a_common_divisor_leave_one_task_and_the_plan_says_so_and_what_to_do() -> None:
    pipeline = pipeline_of()
    stream(pipeline, "a", 8).join(stream(pipeline, "b", 9), "1 AS one").write("t")
    (stage,) = stages(pipeline)
    assert stage.cosets == 1
    assert stage_reason(stage).startswith(
        "gcd(8, 9) = 1: ONE task is all there is, choose elastic(F) or tasks(L) for more;"
    )
    assert "ONE" not in stage_reason(stages(pipeline, "tasks(72)")[0])


def test_a_stream_of_one_partition_is_no_reason_to_complain() -> None:
    pipeline = pipeline_of()
    stream(pipeline, "a", 1).aggregate("count(*) AS n").write("t")
    assert stage_reason(stages(pipeline)[0]).startswith("gcd(1) = 1; ")


# ---- between exchanges


def test_an_exchange_cuts_a_stage_in_two_and_what_only_the_later_wave_needs_runs_there() -> None:
    plan = made(enriched(), move("by_user", "seen"))
    before, after = plan.stages
    assert (before.name, before.wave, before.scheme, before.cosets) == ("views", 0, MAX, 6)
    assert (after.name, after.wave, after.scheme, after.cosets) == ("users+by_user.exchange", 1, COGROUP, 4)
    assert after.inputs == (
        StreamInput("users", Placement("k", KeyFormat.STRING, MURMUR2, 4), 4, NullKeys.REFUSE),
        ExchangeInput("by_user.exchange", "by_user", Placement("j", KeyFormat.STRING, MURMUR2, 4)),
    )
    (exchange,) = plan.exchanges
    assert (exchange.source, exchange.stage, exchange.placement) == ("by_user", "views", after.inputs[1].placement)
    assert (exchange.wanted_by, exchange.why) == (("seen",), rekeyed("by_user"))
    before, after = made(enriched(), move("by_user", "seen")).stages
    assert [step.name for step in before.steps] == ["by_user"]
    assert [step.name for step in after.steps] == ["active", "seen"]


def test_more_tasks_than_the_exchange_has_partitions_are_given_one_each_or_filter() -> None:
    _, after = made(enriched(), move("by_user", "seen"), settings=Settings.parse(scheme=["seen=tasks(6)"])).stages
    assert after.tasks[5].reads == {"users": (1, 3), "by_user.exchange": (5,)}
    assert set(after.tasks[5].filters) == {"users"}
    settings = Settings.parse(scheme=["seen=tasks(6)"])
    _, after = made(enriched(), move("by_user", "seen", partitions=4), settings=settings).stages
    assert after.inputs[1].placement.partitions == 4
    assert set(after.tasks[5].filters) == {"users", "by_user.exchange"}


def test_a_stage_that_reads_exchanges_only_has_as_many_tasks_as_the_largest_that_feeds_it() -> None:
    pipeline = pipeline_of()
    a, b = (stream(pipeline, name, count).rekey("j", name=f"r{name}") for name, count in (("a", 8), ("b", 3)))
    a.join(b, "1 AS one", name="met").write("t")
    plan = made(pipeline, move("ra", "met"), move("rb", "met"))
    assert [(stage.name, stage.cosets, stage.wave) for stage in plan.stages] == [
        ("a", 8, 0),
        ("b", 3, 0),
        ("ra.exchange+rb.exchange", 8, 1),
    ]
    assert stage_reason(plan.stages[2]).startswith(
        "the most cosets of a stage that feeds it (without elastic) = 8; whole partitions"
    )
    doubled = made(pipeline, move("ra", "met"), move("rb", "met"), settings=Settings.parse(scheme=["met=elastic(2)"]))
    assert doubled.stages[2].cosets == 16


@pytest.mark.parametrize(("one", "other", "count"), [(4, 6, 12), (7, 9, 9)])
def test_an_exchange_that_two_stages_read_serves_both_if_that_is_not_too_many_partitions(
    one: int, other: int, count: int
) -> None:
    pipeline = pipeline_of()
    moved = stream(pipeline, "a", 2).rekey("j", name="moved")
    first = moved.aggregate("count(*) AS n", name="first")
    again = first.rekey("k", name="again").aggregate("count(*) AS m", name="second")
    moved.join(again.rekey("j", name="back"), "1 AS one", name="third").write("t")
    cuts = (move("moved", "first", "third"), move("again", "second", key="k"), move("back", "third"))
    settings = Settings.parse(scheme=[f"first=tasks({one})", f"third=tasks({other})"])
    plan = made(pipeline, *cuts, settings=settings)
    assert [stage.wave for stage in plan.stages] == [0, 1, 2, 3]
    assert plan.exchanges[0].placement.partitions == count


def test_a_stream_that_is_moved_and_read_as_it_lies_is_read_in_both_waves() -> None:
    pipeline = pipeline_of()
    a = stream(pipeline, "a", 6)
    a.join(a.rekey("j", name="moved"), "1 AS one", name="both").write("t")
    first, second = made(pipeline, move("moved", "both")).stages
    assert (names(first), names(second)) == (["a"], ["a"])
    assert second.name == "a+moved.exchange"


def test_what_a_stage_reads_moved_and_as_it_lies_has_two_names() -> None:
    pipeline = pipeline_of()
    java, murmur2 = stream(pipeline, "java", 4, hash="java"), stream(pipeline, "murmur2", 4)
    moved = stream(pipeline, "moved", 4)
    one = java.join(moved, "1 AS one", name="one")
    murmur2.join(java, "1 AS one", name="two").merge(one, name="both").write("t")
    first, *_, last = made(pipeline, move("moved", "one", key="k", hash="java"), move("java", "two", key="k")).stages
    assert [step.name for step in first.steps] == ["java.moved"]
    assert last.name == "java+murmur2+moved.exchange+java.moved.exchange"
    assert last.steps[1].inputs == ("murmur2", "java.moved")
    assert last.steps[1].sql.startswith('WITH "java" AS (SELECT * FROM "java.moved") SELECT')


def test_no_step_elsewhere_changes_the_name_of_a_stage() -> None:
    def stage_names(*, more: bool) -> list[str]:
        pipeline = enriched()
        if more:
            extra = stream(pipeline, "extra", 5)
            extra.filter("true").write("others")
            pipeline.flow("by_user").filter("true", name="early").write("early")
        return [stage.name for stage in made(pipeline, move("by_user", "seen")).stages]

    assert set(stage_names(more=False)) < set(stage_names(more=True))


def test_equal_keys_that_would_not_meet_are_refused_where_nothing_moves_and_not_where_it_does() -> None:
    pipeline = pipeline_of()
    a, b = stream(pipeline, "a", 4), stream(pipeline, "b", 4, hash="java")
    a.join(b, "1 AS one", name="met").write("t")
    with pytest.raises(Refused, match="different placements"):
        made(pipeline)
    first, second = made(pipeline, move("b", "met", key="k")).stages
    assert (names(first), first.steps, first.wave) == (["b"], (), 0)
    assert second.name == "a+b.exchange"


def test_records_with_other_keys_are_refused_where_keys_must_meet_and_one_task_has_all_where_needed() -> None:
    with pytest.raises(Refused, match="seen needs equal keys together, but records that it gets were given other keys"):
        made(enriched())
    before, after = made(total(), move("p", "c", key="")).stages
    assert (before.cosets, after.cosets, stage_reason(after)) == (9, 1, "one task, as c needs all records together")
    with pytest.raises(Refused, match=r"all records in one task, but the scheme is tasks\(2\)"):
        made(total(), move("p", "c", key=""), settings=Settings.parse(scheme=["c=tasks(2)"]))


def test_a_combine_with_a_fan_in_is_applied_on_the_way_in_levels() -> None:
    def first(pipeline: Pipeline, settings: Settings = DEFAULTS) -> tuple[str | None, tuple[int, ...]]:
        found, *_ = made(pipeline, move("p", "c", key=""), settings=settings).exchanges
        return found.combine, found.unifiers

    assert first(total()) == (None, ())
    assert first(total(fan_in=4)) == ("c", (3,))
    assert first(total(fan_in=4), Settings(fan_in={"c": 2})) == ("c", (5, 3, 2))
    assert first(total(fan_in=9)) == (None, ())


def test_each_level_is_a_stage_in_a_wave_of_its_own_that_reads_what_the_one_before_it_left() -> None:
    plan = made(total(fan_in=2), move("p", "c", key=""))
    assert [(stage.name, stage.wave, len(stage.tasks)) for stage in plan.stages] == [
        ("a", 0, 9),
        ("p.exchange.1", 1, 5),
        ("p.exchange.2", 2, 3),
        ("p.exchange.3", 3, 2),
        ("p.exchange", 4, 1),
    ]
    assert [(each.name, each.source, each.stage, each.unifiers) for each in plan.exchanges] == [
        ("p.exchange.1", "p", "a", (5, 3, 2)),
        ("p.exchange.2", "p", "p.exchange.1", (3, 2)),
        ("p.exchange.3", "p", "p.exchange.2", (2,)),
        ("p.exchange", "p", "p.exchange.3", ()),
    ]
    assert [[step.name for step in stage.steps] for stage in plan.stages] == [["p"], ["c.1"], ["c.2"], ["c.3"], ["c"]]
    assert {step.sql for stage in plan.stages[1:] for step in stage.steps} == {plan.graph.steps[-1].sql}
    assert plan.stages[2].tasks[1] == Task(1, {"p.exchange.2": (1,)}, keyless={"p.exchange.2": (1,)})
    assert stage_reason(plan.stages[2]) == "level 2 of 3 before c: 3 unifiers for each partition"


def test_unifiers_of_a_partition_are_numbered_so_that_keys_tell_which_partition_it_is() -> None:
    pipeline = pipeline_of(scheme="tasks(9)")
    parts = stream(pipeline, "a", 3).partial("count(*) AS n", by="j", name="p")
    parts.combine("sum(n) AS n", fan_in=4, name="c").write("t")
    plan = made(pipeline, move("p", "c"))
    _, level, last = plan.stages
    assert level.inputs == (ExchangeInput("p.exchange.1", "p", Placement("j", KeyFormat.STRING, MURMUR2, 9), (), 3),)
    assert [task.reads["p.exchange.1"] for task in level.tasks] == [(number,) for number in range(27)]
    assert last.inputs == (ExchangeInput("p.exchange", "p", Placement("j", KeyFormat.STRING, MURMUR2, 9)),)


def test_only_what_reads_what_has_passed_levels_waits_for_them() -> None:
    pipeline = pipeline_of()
    a, b = stream(pipeline, "a", 9), stream(pipeline, "b", 9)
    a.partial("count(*) AS n", by="j", name="p").combine("sum(n) AS n", fan_in=2, name="c").write("t")
    b.rekey("j", name="moved").aggregate("count(*) AS n", name="counted").write("counts")
    plan = made(pipeline, move("p", "c"), move("moved", "counted"))
    waves = {stage.name: stage.wave for stage in plan.stages}
    assert (waves["moved.exchange"], waves["p.exchange"]) == (1, 4)
    assert [stage.wave for stage in plan.stages] == sorted(waves.values())


def test_a_step_that_has_the_name_of_a_level_keeps_it() -> None:
    pipeline = pipeline_of(scheme="tasks(9)")
    parts = stream(pipeline, "a", 3).filter("true", name="C.1").partial("count(*) AS n", name="p")
    parts.combine("sum(n) AS n", fan_in=4, name="c").write("t")
    plan = made(pipeline, move("p", "c", key=""))
    assert [step.name for stage in plan.stages for step in stage.steps] == ["C.1", "p", "c.1.1", "c"]


def test_records_without_a_key_meet_whether_they_were_moved_or_not() -> None:
    pipeline = pipeline_of()
    a, b = stream(pipeline, "a", 4, null_keys="own task"), stream(pipeline, "b", 4, null_keys="drop")
    a.merge(b.rekey("j").rekey("k", sql="j", name="moved"), name="both").aggregate("count(*) AS n").write("t")
    *_, stage = made(pipeline, move("moved", "both", key="k")).stages
    own = {"a": (0, 1, 2, 3), "moved.exchange": (0,)}
    assert stage.tasks[-1] == Task(4, own, null_keys=True, keyless=own)
