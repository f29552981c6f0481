"""Explain: the plan for people, compared with golden files, and what changed in words."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from partitioning.assignment import assign
from partitioning.changes import changes
from partitioning.document import decode, digest, encode
from partitioning.explain import Section, assignment_document, explain, markdown
from partitioning.pipeline import Pipeline
from partitioning.plan import Plan
from partitioning.schemes import Scheme
from tests.goldens import expect_golden
from tests.plans import arrived, plan_of, tails, tails_found


def many_tasks(null_keys: str = "own task") -> Pipeline:
    pipeline = Pipeline("clicks", source="s3://landing/topics")
    views = pipeline.stream("views", key="tailnum", partitions=8, null_keys=null_keys)
    views.join(pipeline.stream("clicks", key="tailnum", partitions=12), "1 AS one", name="joined").write(
        "joined", lineage=True
    )
    pipeline.stream("logs", key="tailnum", partitions=2).filter("true", name="kept").write("kept_logs")
    return pipeline


def many_found(end: int = 250) -> list[object]:
    return [arrived("views", [end] * 8), arrived("clicks", [1_234_567] * 12), arrived("logs", [0, 3])]


def section(plan: Plan, title: str, previous: Plan | None = None) -> Section:
    (found,) = [each for each in explain(plan, previous) if each.title == title]
    return found


def test_the_first_plan_reads_as_the_golden_file() -> None:
    expect_golden("explain_first.md", markdown(explain(plan_of(tails(), tails_found()))))


def test_a_plan_with_filters_null_keys_and_many_tasks_reads_as_the_golden_file() -> None:
    before = plan_of(many_tasks("drop"), many_found(100))
    plan = plan_of(
        many_tasks(),
        many_found(),
        batch=1,
        parent=digest(before),
        published=before,
        scheme="tasks(24)",
        groups=3,
    )
    expect_golden("explain_many.md", markdown(explain(plan, before)))


@pytest.mark.parametrize("scheme", ["max", "cogroup", "elastic(2)", "tasks(2)"])
def test_an_assignment_reads_as_the_golden_file(scheme: str) -> None:
    document = assignment_document(assign([("views", 8), ("clicks", 12)], Scheme.parse(scheme)))
    name = "assign_" + scheme.replace("(", "_").replace(")", "") + ".json"
    expect_golden(name, json.dumps(document, indent=1) + "\n")


def test_every_row_has_a_cell_for_each_column() -> None:
    plan = plan_of(many_tasks(), many_found(), scheme="tasks(24)")
    for each in explain(plan, plan_of(tails(), tails_found())):
        assert all(len(row) == len(each.columns) for row in each.rows), each.title


def test_a_plan_that_was_stored_is_explained_as_the_one_that_was_made() -> None:
    plan = plan_of(many_tasks(), many_found(), scheme="tasks(24)")
    assert explain(decode(Plan, encode(plan), "here")) == explain(plan)


def test_more_than_twenty_tasks_are_cut_and_the_rest_counted() -> None:
    plan = plan_of(tails(), tails_found(), scheme="tasks(132)")
    rows = section(plan, "Stage flights+planes").rows
    assert len(rows) == 21
    assert rows[-1][0] == "… and 112 more"
    assert len(section(plan_of(tails(), tails_found(), scheme="tasks(20)"), "Stage flights+planes").rows) == 20


def test_groups_name_their_tasks_in_runs() -> None:
    plan = plan_of(tails(), tails_found(), scheme="tasks(24)", groups=1)
    assert section(plan, "Task groups").rows[0][1] == "flights+planes/0-23"


def test_nothing_changed_but_the_offsets_is_a_sentence() -> None:
    first = plan_of(tails(), tails_found())
    second = plan_of(tails(), tails_found(flights=300), batch=1, published=first)
    # Both groups still hold the tasks that they held: all partitions grew alike.
    assert section(second, "Changes", first) == Section(
        "Changes", ("what", "before", "now"), (), ("Nothing changed but the offsets.",)
    )


def test_the_first_plan_has_nothing_to_be_compared_with() -> None:
    plan = plan_of(tails(), tails_found())
    assert section(plan, "Changes").notes == ("There is no earlier plan to compare with.",)


def test_a_new_scheme_is_a_change_of_the_stage() -> None:
    found = changes(plan_of(tails(), tails_found()), plan_of(tails(), tails_found(), scheme="tasks(2)"))
    assert [(each.what, each.before, each.now) for each in found] == [
        ("stage flights+planes: scheme", "cogroup", "tasks(2)"),
        ("stage flights+planes: cosets", "4", "2"),
        ("stage flights+planes: tasks", "4", "2"),
    ]


def test_streams_that_come_and_go_are_named() -> None:
    tail_plan, many = plan_of(tails(), tails_found()), plan_of(many_tasks(), many_found())
    found = {each.what: (each.before, each.now) for each in changes(tail_plan, many)}
    assert found["stream flights"] == ("there", "removed")
    assert found["stream views"] == ("", "added")
    assert found["stage flights+planes"] == ("there", "removed")
    assert found["table joined"] == ("", "added")


def test_partition_counts_policies_sql_and_columns_are_compared() -> None:
    plan = plan_of(tails(), tails_found())
    flights, planes = plan.streams
    (stage,) = plan.stages
    other = replace(
        plan,
        streams=(
            replace(
                flights,
                declared=replace(flights.declared, partitions=24, null_keys="refuse"),
                columns=flights.columns[:1],
            ),
            planes,
        ),
        stages=(replace(stage, steps=(replace(stage.steps[0], sql="SELECT 1"), *stage.steps[1:])),),
    )
    assert [(each.what, each.before, each.now) for each in changes(plan, other)] == [
        ("stream flights: partitions", "12", "24"),
        ("stream flights: null keys", "drop", "refuse"),
        ("stream flights: column dep_delay", "DOUBLE", ""),
        ("step flights.filter: SQL", stage.steps[0].sql, "SELECT 1"),
    ]


def test_tasks_that_changed_group_are_named() -> None:
    plan = plan_of(tails(), tails_found())
    first, second = plan.groups
    moved = replace(
        plan, groups=(replace(first, tasks=first.tasks[:1]), replace(second, tasks=first.tasks[1:] + second.tasks))
    )
    assert [(each.what, each.before, each.now) for each in changes(plan, moved)] == [
        (f"task {first.tasks[1]}", "group 0", "group 1")
    ]


def test_cells_cannot_break_the_markdown_table() -> None:
    text = markdown([Section("T", ("a",), (("x | y\nz",),), ())])
    assert text == "### T\n\n| a        |\n| -------- |\n| x \\| y z |\n"


@pytest.mark.parametrize(("size", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (999_950, "1.0 MB")])
def test_sizes_are_written_for_people(size: int, text: str) -> None:
    plan = plan_of(tails(), tails_found())
    resized = replace(plan, groups=(replace(plan.groups[0], bytes=size), *plan.groups[1:]))
    assert section(resized, "Task groups").rows[0][2] == text
