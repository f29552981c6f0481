"""Stages: how the graph is cut, how many tasks each stage gets, and what does not fit."""

from __future__ import annotations

import pytest

from partitioning.errors import Refused
from partitioning.explain.reason_texts import stage_reason
from partitioning.model.schemes import COGROUP, MAX, elastic
from partitioning.model.takes import Task
from tests.plans import COLUMNS, tails
from tests.staged import names, pipeline_of, stages, stream


def test_streams_that_meet_are_one_stage_of_gcd_tasks() -> None:
    (stage,) = stages(tails())
    assert (stage.name, stage.scheme, stage.cosets, len(stage.tasks)) == ("flights+planes", COGROUP, 4, 4)
    assert stage_reason(stage) == "gcd(12, 8) = 4; whole partitions, no filter; default where keys must meet"
    assert [write.declared.table for write in stage.writes] == ["tail_activity"]
    assert stage.writes[0].columns == COLUMNS


def test_unrelated_streams_never_shrink_each_other() -> None:
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


def test_where_no_keys_meet_the_default_is_max() -> None:
    pipeline = pipeline_of()
    stream(pipeline, "a", 3).filter("true").write("t")
    (stage,) = stages(pipeline)
    assert (stage.scheme, stage.cosets) == (MAX, 3)
    assert (
        stage_reason(stage)
        == "one task per stream partition, 3 in all; whole partitions, no filter; default where none meet"
    )


def test_max_is_refused_where_keys_must_meet_and_names_the_steps() -> None:
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


def test_all_that_is_wrong_is_said_at_once() -> None:
    pipeline = pipeline_of()
    stream(pipeline, "a", 4).filter("true", name="forgotten")
    stream(pipeline, "b", 4).aggregate("count(*) AS n", name="counted").write("t")
    with pytest.raises(Refused) as refusal:
        stages(pipeline, "max")
    whats = [finding.what for finding in refusal.value.findings]
    assert whats[:2] == ["'a' leads to no table", "'forgotten' leads to no table"]
    assert whats[2].startswith("scheme max keeps no keys together")


def test_a_pipeline_without_streams_is_refused() -> None:
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
