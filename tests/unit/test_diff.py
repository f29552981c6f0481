"""Diff: what changed between two plans, which keys change hands, why, and what becomes of the results."""

from __future__ import annotations

import json
from datetime import timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from coset.cli.main import app
from partitioning.authoring.pipeline import Pipeline
from partitioning.diff.moved_keys import Portion, handovers, kept, moved
from partitioning.diff.plan_diff import changes, diff, diff_sections
from partitioning.diff.table_changes import results
from partitioning.documents.document import digest, encode, pack
from partitioning.explain.explain import explain
from partitioning.model.graph import KeptChange, StateSpec, Step
from partitioning.model.plan import Plan, TaskGroup, TaskMove, TaskRef
from partitioning.model.reasons import Said
from partitioning.model.schemes import tasks
from partitioning.model.streams import Column
from partitioning.model.takes import Task
from partitioning.model.watermarks import TimePassed
from partitioning.sections import markdown
from partitioning.values import replace
from tests.goldens import expect_golden
from tests.plans import arrived, plan_of
from tests.shown import fed, merged, tails, unified


def listed(before: Plan, now: Plan) -> list[tuple[str, str, str]]:
    return [(each.what, each.before, each.now) for each in changes(before, now)]


def test_new_schemes_unifiers_state_and_groups_read_as_the_golden_files() -> None:
    expect_golden("diff_scheme.md", markdown(diff_sections(diff(tails(), tails("elastic(2)", batch=1)))))
    before = unified(24, batch=3, wrote=2, totals=2)
    expect_golden("diff_state.md", markdown(diff_sections(diff(before, unified(300, totals=3)))))


def test_the_same_plan_is_no_change_and_other_offsets_are_nothing_else() -> None:
    found = diff(tails(), tails())
    assert found.sentences == ("No change: both are the same plan.",)
    (only,) = diff_sections(found)
    assert (only.title, only.rows, only.notes) == ("Changes", (), found.sentences)
    assert diff(tails(), tails(batch=1)).sentences == ("Nothing changed but the offsets.",)


def test_a_watermark_that_moved_on_is_no_change() -> None:
    pipeline = Pipeline("shown", source="s3://landing/topics")
    clicks = pipeline.stream("clicks", key="k", partitions=2, time="seen")
    totals = clicks.select("1 AS n, seen").combine(
        "sum(n) AS n, max(seen) AS seen", running=True, time="seen", keep=timedelta(hours=1), name="totals"
    )
    totals.to_stream().write("totals")
    totals.expired(name="ended").write("ended")
    plan = plan_of(pipeline, [arrived("clicks", [10, 10])])
    stages = tuple(replace(stage, steps=tuple(map(_further, stage.steps))) for stage in plan.stages)
    moved_on = replace(plan, batch=1, stages=stages)
    assert moved_on.stages != plan.stages
    assert diff(plan, moved_on).sentences == ("Nothing changed but the offsets.",)


def _further(step: Step) -> Step:
    return replace(step, state=replace(step.state, watermark=TimePassed(1, 2))) if step.state else step


def test_a_new_count_or_partitioner_is_the_reason_where_keys_change_hands() -> None:
    found = handovers(tails(), tails(flights=6, batch=1))
    assert {each.why for each in found} == {"partitions of flights 12 → 6"}
    assert {each.keys for each in found} == {Fraction(1, 2)}
    found = handovers(tails("tasks(4)"), tails("tasks(4)", dealt=[(0, 1), (2, 3)], batch=1))
    assert {each.why for each in found} == {"partitioner none → shop.parts:ByBytes"}


def test_what_a_partitioner_gives_to_another_task_changes_hands() -> None:
    before = tails("tasks(6)", dealt=[(0, 1), (2, 3), (4, 5)], groups=1)
    now = tails("tasks(6)", dealt=[(0,), (1, 2, 3), (4, 5)], groups=1, batch=1)
    flights, _ = handovers(before, now)
    assert (flights.keys, flights.tasks, flights.why) == (
        Fraction(1, 6),
        Portion(1, 3),
        "the cosets were assigned anew",
    )
    # 12 partitions, 6 cosets: partitions 1 and 7 hold coset 1 and nothing else.
    assert (flights.partitions, flights.records) == (Portion(2, 12), Portion(500, 3000))


def test_state_of_a_step_is_followed_to_the_stage_that_has_the_step_now() -> None:
    before = unified(24, batch=3, wrote=2, totals=2)
    (state,) = handovers(before, unified(24, totals=3))
    assert (state.stage, state.name, state.state) == ("part.exchange", "totals", True)
    assert (state.keys, state.tasks, state.records) == (Fraction(2, 3), Portion(3, 3), None)


def test_a_stage_that_meets_another_stream_takes_its_keys_from_the_one_before() -> None:
    before = tails()
    (stage,) = before.stages
    renamed = replace(stage, name="flights+planes+weather")
    groups = tuple(
        replace(group, tasks=tuple(replace(task, stage=renamed.name) for task in group.tasks))
        for group in before.groups
    )
    flights, _ = handovers(before, replace(before, batch=1, stages=(renamed,), groups=groups))
    assert (flights.keys, flights.groups) == (Fraction(1), Fraction(0))
    assert flights.why == "read by stage flights+planes before"


def test_a_hundred_thousand_tasks_and_one_more_are_compared_without_all_pairs() -> None:
    many = 100_000
    sides = ((count, [(task, task) for task in range(count)]) for count in (many, many + 1))
    assert kept(*sides) == Fraction(1, many + 1)


def test_tasks_that_go_on_in_another_group_are_named_with_the_plans_own_reason() -> None:
    plan = tails()
    first, second = plan.groups
    task, heavy = first.tasks[1], Said("group 0 was too heavy")
    regrouped = replace(
        plan,
        batch=1,
        groups=(replace(first, tasks=first.tasks[:1]), replace(second, tasks=(task, *second.tasks))),
        moves=(TaskMove(task, 0, 1, heavy),),
    )
    assert moved(plan, regrouped) == (TaskMove(task, 0, 1, heavy),)
    flights, _ = handovers(plan, regrouped)
    assert (flights.keys, flights.groups, flights.why) == (Fraction(0), Fraction(1, 4), "group 0 was too heavy")
    assert flights.records == Portion(750, 3000)


def test_stream_partitions_of_a_stage_without_keys_are_followed_by_number() -> None:
    before = merged(returns=4)
    now = merged(returns=6)
    # Under max each partition has its task: the first four keep theirs, and so it is with orders.
    assert handovers(before, now) == ()
    assert ("stage returns: tasks", "4", "6") in listed(before, now)


def test_a_stage_that_now_keeps_keys_together_takes_over_from_the_task_of_each_partition() -> None:
    before, now = merged(returns=2), merged(returns=2)
    first, second = now.stages
    (read,) = first.inputs
    keyed = tuple(Task(number, {"returns": (number % 2,)}, owns=(number,)) for number in range(4))
    stage = replace(first, scheme=tasks(4), cosets=4, tasks=keyed)
    groups = (TaskGroup(0, tuple(TaskRef("returns", number) for number in range(4)), 400, 40), *now.groups[2:])
    (returns,) = handovers(before, replace(now, batch=1, stages=(stage, second), groups=groups))
    # Tasks 0 and 1 keep half of what they read; 2 and 3 are new.
    assert (read.name, returns.keys, returns.tasks) == ("returns", Fraction(1, 2), Portion(2, 4))
    back = handovers(replace(now, stages=(stage, second), groups=groups), replace(before, batch=1))
    assert [(each.keys, each.tasks) for each in back] == [(Fraction(1, 2), Portion(2, 2))]


def test_streams_stages_and_tables_that_come_and_go_are_named() -> None:
    found = {what: (old, new) for what, old, new in listed(tails(), merged())}
    assert found["pipeline"] == ("tail_activity", "balances")
    assert found["stream flights"] == ("there", "removed")
    assert found["stream orders"] == ("", "added")
    assert found["stage flights+planes"] == ("there", "removed")
    assert found["table balances"] == ("", "added")


def test_policies_sql_and_columns_are_compared() -> None:
    plan = tails()
    flights, planes = plan.streams
    (stage,) = plan.stages
    other = replace(
        plan,
        streams=(
            replace(flights, declared=replace(flights.declared, null_keys="refuse"), columns=flights.columns[:1]),
            planes,
        ),
        stages=(replace(stage, steps=(replace(stage.steps[0], sql="SELECT 1"), *stage.steps[1:])),),
        grouper="round-robin",
    )
    assert listed(plan, other) == [
        ("stream flights: null keys", "drop", "refuse"),
        ("stream flights: column amount", "DOUBLE", ""),
        ("step late: SQL", stage.steps[0].sql, "SELECT 1"),
        ("grouper", "balanced-sticky", "round-robin"),
    ]


def test_what_a_step_keeps_is_compared_in_words() -> None:
    plan = tails()
    (stage,) = plan.stages
    day = 24 * 3600 * 10**6
    kept = StateSpec("SELECT 1", 30 * day, (Column("seen", "TIMESTAMP"),), watermark=TimePassed(1, 2))

    def keeping(state: StateSpec) -> Plan:
        return replace(plan, stages=(replace(stage, steps=(replace(stage.steps[0], state=state), *stage.steps[1:])),))

    assert listed(plan, keeping(kept)) == [
        ("step late: keeps state", "", "yes"),
        ("step late: keeps rows of", "", "SELECT 1"),
        ("step late: keeps each for", "", "30 days, 0:00:00"),
        ("step late: keeps column seen", "", "TIMESTAMP"),
    ]
    other = replace(kept, microseconds=day, waits=day // 2, watermark=TimePassed(2, 3), changed=KeptChange("early"))
    assert listed(keeping(kept), keeping(other)) == [
        ("step late: keeps each for", "30 days, 0:00:00", "1 day, 0:00:00"),
        ("step late: gives it after", "", "12:00:00"),
        ("step late: change of what it keeps: was", "", "early"),
    ]


@pytest.mark.parametrize("now", [tails("tasks(5)", batch=1), tails(flights=9, batch=1), tails(groups=1, batch=1)])
def test_results_stay_the_same_whatever_the_scheme_the_counts_and_the_groups(now: Plan) -> None:
    found = results(tails(), now)
    assert found.same == ("tail_activity",)
    assert str(found) == "Results stay the same: each table comes from the same steps on the same keys."


def test_results_change_with_the_sql_of_a_step_behind_a_table() -> None:
    found = diff(tails(), tails(condition="dep_delay > 60", batch=1))
    assert str(found.results) == "Results change: tail_activity (SQL of late)."
    assert found.sentences[1] == str(found.results)


@pytest.mark.parametrize(
    ("declared", "fact"),
    [({"null_keys": "refuse"}, "records without a key"), ({"cast": {"dep_delay": "BIGINT"}}, "cast")],
)
def test_results_change_with_how_the_records_of_a_stream_are_read(declared: dict[str, Any], fact: str) -> None:
    plan = tails()
    flights, planes = plan.streams
    other = replace(plan, streams=(replace(flights, declared=replace(flights.declared, **declared)), planes))
    assert results(plan, other).changed == {"tail_activity": (f"{fact} of flights",)}


def test_of_a_table_that_holds_another_step_the_changes_before_it_are_told_too() -> None:
    plan, later = tails(), tails(condition="dep_delay > 60", batch=1)
    (*before, last) = later.stages
    (write,) = last.writes
    step = next(each for each in last.steps if each.name == write.declared.step)
    other = replace(step, name="busy", inputs=(step.name,), sql=f"FROM {step.name}")
    writes = (replace(write, declared=replace(write.declared, step="busy")),)
    now = replace(later, stages=(*before, replace(last, steps=(*last.steps, other), writes=writes)))
    told = (f"it holds busy, before {step.name}", "SQL of late")
    assert results(plan, now).changed == {"tail_activity": told}


def test_a_table_that_gets_the_keys_of_what_a_filter_leaves_out_is_another() -> None:
    pipeline = Pipeline("shown", source="s3://landing/topics")
    newest = pipeline.stream("clicks", key="k", partitions=2).latest("n", name="newest")
    newest.filter("n > 0").write("counts", mode="upsert")
    now = plan_of(pipeline, [arrived("clicks", [1, 1])])
    (stage,) = now.stages
    steps = [replace(step, inputs=step.inputs[:1]) for step in stage.steps]
    before = replace(now, stages=(replace(stage, steps=tuple(steps)),))
    assert results(before, now).changed == {"counts": ("inputs of counts.upsert",)}


def test_tables_that_come_and_go_and_those_that_stay_are_told_apart() -> None:
    before = unified()
    stages = (*before.stages[:-1], replace(before.stages[-1], writes=()))
    found = results(before, replace(before, stages=stages))
    assert str(found) == ("Results change: sizes is no longer written. The others stay the same: country_totals.")
    assert results(replace(before, stages=stages), before).added == ("sizes",)


def test_nested_merges_are_the_same_as_one_merge_of_all() -> None:
    plan = merged()
    first, second = plan.stages
    merge, balance = second.steps
    inner = replace(merge, name="all.moved", inputs=("by_member",), sql="SELECT * FROM by_member")
    outer = replace(merge, inputs=("all.moved", "orders"), sql="SELECT * FROM orders UNION ALL FROM by_member")
    nested = replace(plan, stages=(first, replace(second, steps=(inner, outer, balance))))
    assert results(plan, nested).same == ("balances",)
    assert ("step all.moved", "", "added") in listed(plan, nested)


def test_a_step_that_is_new_is_named_and_not_each_of_its_facts() -> None:
    plan = fed()
    (*before, last) = plan.stages
    step, *more = last.steps
    inner, outer = replace(step, name="inner"), replace(step, inputs=("inner",), sql="FROM inner")
    now = replace(plan, stages=(*before, replace(last, steps=(inner, outer, *more))))
    assert results(plan, now).changed == {"shares": ("inner is new", "SQL of shares")}


def test_a_process_step_is_the_same_only_as_far_as_its_import_path_tells() -> None:
    plan = fed()
    (*before, last) = plan.stages
    by_function = replace(last.steps[0], op="process", function="shop.scores:score")
    now = replace(plan, stages=(*before, replace(last, steps=(by_function,))))
    assert results(plan, now).changed == {"shares": ("function of shares",)}
    assert str(results(now, now)).endswith("same keys (provided that the functions of shares still do the same).")


def test_the_code_of_a_function_is_compared_where_both_plans_note_it() -> None:
    plan = fed()
    (*before, last) = plan.stages
    by_function = replace(last.steps[0], op="process", function="shop.scores:score")
    unknown = replace(plan, stages=(*before, replace(last, steps=(by_function,))))
    noted, other = (replace(unknown, code={"shop.scores:score": f"sha256:{number}"}) for number in (1, 2))
    assert unknown.functions == {"shop.scores:score": ("step shares",)}
    assert str(results(noted, noted)).endswith("on the same keys.")
    assert results(noted, other).functions == results(unknown, other).functions == ("shares",)
    assert results(noted, other).code == {"shop.scores:score": ("sha256:1", "sha256:2")}
    assert results(unknown, other).code == {"shop.scores:score": ("", "sha256:2")}
    assert listed(noted, other) == [("code of shop.scores:score", "sha256:1", "sha256:2")]
    (shown,) = [each for each in explain(noted) if each.title == "Functions"]
    assert shown.rows == (("shop.scores:score", "step shares", "sha256:1"),)


# ---- `coset diff` of two plan files


def coset(*words: str) -> Result:
    return CliRunner().invoke(app, ["diff", *words])


def stored(folder: Path, name: str, plan: Plan) -> str:
    data = encode(plan)
    (folder / name).write_bytes(pack(data) if name.endswith(".gz") else data)
    return str(folder / name)


def _elastic() -> str:
    return digest(tails("elastic(2)", batch=1))


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """A plan and one with twice the tasks, the second as the store keeps it."""
    return stored(tmp_path, "3.json", tails()), stored(tmp_path, "4.json.gz", tails("elastic(2)", batch=1))


def test_two_files_are_compared_as_in_the_golden_file(files: tuple[str, str]) -> None:
    result = coset(*files)
    assert result.exit_code == 0, result.output
    first, _, tables = result.stdout.partition("\n\n")
    assert first == f"tail_activity, batch 0 ({digest(tails())}) → tail_activity, batch 1 ({_elastic()})"
    expect_golden("cli_diff_scheme.txt", tables)


def test_the_json_has_exact_shares_and_all_that_the_tables_say(files: tuple[str, str]) -> None:
    found = json.loads(coset(*files, "--json").stdout)
    assert found["before"] == {"pipeline": "tail_activity", "batch": 0, "digest": digest(tails())}
    assert [(each["name"], each["keys"], each["groups"]) for each in found["handovers"]] == [
        ("flights", "1/2", "0"),
        ("planes", "1/2", "0"),
    ]
    assert found["handovers"][1]["records"] == {"some": 1000, "all": 2000, "exact": True}
    assert found["sentences"][1].startswith("Results stay the same")
    assert found["results"]["same"] == ["tail_activity"]
    assert {"what": "stage flights+planes: tasks", "before": "4", "now": "8"} in found["changes"]


def test_the_json_names_the_tasks_that_move_and_says_why(tmp_path: Path) -> None:
    names = stored(tmp_path, "3.json", tails(groups=2)), stored(tmp_path, "4.json", tails(groups=1, batch=1))
    assert json.loads(coset(*names, "--json").stdout)["moves"] == [
        {"task": f"flights+planes/{number}", "before": 1, "now": 0, "why": "2 task groups → 1"} for number in (1, 3)
    ]


def test_a_plan_compared_with_itself_is_a_sentence(files: tuple[str, str]) -> None:
    assert "No change: both are the same plan." in coset(files[0], files[0]).stdout
    assert json.loads(coset(files[0], files[0], "--json").stdout)["changes"] == []


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["missing.json", "missing.json"], "there is no plan 'missing.json'"),
        (["one.json"], "1 names are not two plans"),
        (["a", "1", "2", "3"], "4 names are not two plans"),
    ],
)
def test_what_is_not_two_plans_is_refused_with_how_to_write_it(words: list[str], what: str) -> None:
    result = coset(*words)
    assert result.exit_code == 3
    assert what in result.stderr
    assert "write `coset diff PIPELINE 3 4`" in result.stderr


def test_a_file_that_is_no_plan_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("{}")
    result = coset(str(tmp_path / "plan.json"), str(tmp_path / "plan.json"))
    assert result.exit_code == 3
    assert "has no format and digest" in result.stderr
