"""Python steps, from plan to published table, against DuckDB on the same records."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from coset.batches import steps
from coset.batches.code import changed_code
from coset.batches.planning import preview
from coset.batches.ref import BatchRef
from coset.batches.runners.local import Local
from coset.testing import Trial
from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.diff.plan_diff import changes
from partitioning.documents.store import Store
from partitioning.errors import CosetError, Refused
from partitioning.imports import code_of
from tests import functions
from tests.asked_of_duckdb import direct, published
from tests.landed import land_table
from tests.logs import log_of
from tests.refused import finding_of
from tests.running import next_batch, run_and_publish, run_groups
from tests.there import there

VIEWS = pa.table(
    {
        "k": [f"key-{n % 67}" if n % 50 else None for n in range(300)],
        "page": [f"page-{n * 11 % 23}" if n % 37 else None for n in range(300)],
        "v": list(range(300)),
    }
)

PIPELINES: dict[str, tuple[Callable[[Flow], Flow], str]] = {
    "a column more": (
        lambda views: views.process(functions.doubled, {"k": "VARCHAR", "twice": "BIGINT"}),
        "SELECT k, v * 2 FROM views",
    ),
    "between SQL steps, read twice": (
        lambda views: (lambda twice: twice.merge(twice.filter("twice % 3 = 0", name="some")))(
            views.filter("v > 20").process(
                functions.doubled, {"k": "VARCHAR", "v": "INTEGER", "twice": "DOUBLE"}, name="more"
            )
        ).aggregate("sum(twice) AS sum, count(*) AS n"),
        """
        SELECT k, sum(twice), count(*) FROM (
            SELECT k, v * 2 AS twice FROM views WHERE v > 20
            UNION ALL SELECT k, v * 2 FROM views WHERE v > 20 AND v * 2 % 3 = 0
        ) GROUP BY k
        """,
    ),
    "NaN, which PyArrow compares otherwise": (
        lambda views: (
            views.process(functions.odd_doubles, {"k": "VARCHAR", "d": "DOUBLE"})
            .filter("d > 3")
            .select("d::VARCHAR AS d")
        ),
        "SELECT k, 'nan' FROM views WHERE v % 3 = 0",
    ),
    "another key, then moved": (
        lambda views: views.process(
            functions.spread, {"page": "VARCHAR", "v": "BIGINT", "side": "VARCHAR"}, key="page", name="spread"
        ).aggregate("count(*) AS n, min(side) AS side, sum(v)::BIGINT AS v"),
        "SELECT page, 2 * count(*), 'here', 2 * sum(v) FROM views WHERE page IS NOT NULL GROUP BY page",
    ),
    "after an exchange": (
        lambda views: (
            views.rekey("page")
            .aggregate("sum(v)::BIGINT AS v")
            .process(functions.doubled, {"page": "VARCHAR", "twice": "BIGINT"})
        ),
        "SELECT page, 2 * sum(v) FROM views GROUP BY page",
    ),
    "all records at once": (
        lambda views: (
            views.select("v")
            .rekey("v", key_format="long", name="by_v")
            .process(functions.ranked, {"v": "BIGINT", "place": "BIGINT"}, partitionable=False)
        ),
        "SELECT v, rank() OVER (ORDER BY v DESC) FROM views",
    ),
}


def planned(store: Store, build: Callable[[Flow], Flow], scheme: str | None = None) -> BatchRef:
    source = f"{store.root}/topics"
    land_table(VIEWS, "views", source, key="k", partitions=4, files=2)
    pipeline = Pipeline("scores", source=source)
    build(pipeline.stream("views", key="k", partitions=4, null_keys="own task")).to_stream().write("t")
    return next_batch(pipeline, store.root, Settings.parse(scheme=scheme) if scheme else Settings())


@pytest.mark.parametrize("scheme", [None, "elastic(3)"])
@pytest.mark.parametrize("name", PIPELINES)
def test_the_table_is_as_duckdb_says(name: str, scheme: str | None, store: Store) -> None:
    build, sql = PIPELINES[name]
    if name == "all records at once":
        scheme = None
    run_and_publish(planned(store, build, scheme))
    assert published(store) == direct(sql, views=VIEWS)


def test_records_are_given_by_partition_and_offset(store: Store) -> None:
    columns = {"k": "VARCHAR", "_partition": "INTEGER", "_offset": "BIGINT", "given": "BIGINT"}

    def seen(views: Flow) -> Flow:
        shown = "_partition AS p, _offset AS o, given"
        return views.process(functions.numbered, columns, name="seen").select(shown)

    ref = planned(store, seen, "tasks(2)")
    run_and_publish(ref)
    rows = log_of(store, "t").to_pyarrow_table().to_pylist()
    for partitions in ((0, 2), (1, 3)):
        places = [(row["p"], row["o"]) for row in rows if row["k"] and row["p"] in partitions]
        assert places == sorted(places)
        assert {partition for partition, _ in places} == set(partitions)


WRONG: Mapping[str, tuple[str, str]] = {
    "refusing": (
        "the function tests.functions:refusing failed: ValueError: 213 is not allowed",
        "of its input, first key 'key-12'",
    ),
    "leaving": ("the function tests.functions:leaving failed: SystemExit: 0", "of its input, first key 'key-12'"),
    "cancelled": (
        "the function tests.functions:cancelled failed: CancelledError: ",
        "of its input, first key 'key-12'",
    ),
    "illegible": (
        "the function tests.functions:illegible failed: ValueError: name \\udcff",
        "of its input, first key 'key-12'",
    ),
    "nothing": ("returned NoneType, not pyarrow.Table", "step 'scored', task views/0 of batch 0"),
    "without_key": ("the result of tests.functions:without_key has no column k; it has page, v, _offset", ""),
    "in_words": ("does not have the declared types: Failed to parse string: 'many'", ""),
    "lower_keys": ("returned the key 'KEY-1", "step 'scored', task views/0 of batch 0"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_a_function_does_wrong_is_said(name: str, store: Store) -> None:
    what, where = WRONG[name]
    columns = {"k": "VARCHAR", "v": "BIGINT"}
    ref = planned(store, lambda views: views.process(getattr(functions, name), columns, name="scored"))
    with pytest.raises(Refused) as refused:
        run_groups(ref)
    finding = refused.value.findings[0]
    assert what in finding.what
    assert where in finding.where
    assert "correct the function, then run the same command again" in finding.then


def test_the_record_on_which_a_function_fails_is_found(store: Store) -> None:
    ref = planned(store, lambda views: views.process(functions.refusing, {"k": "VARCHAR", "v": "BIGINT"}))
    finding = finding_of(run_groups, ref)
    assert finding.where.count("record ") == 1


def test_what_a_function_does_to_the_environment_ends_with_it(store: Store) -> None:
    before = dict(os.environ)
    run_and_publish(planned(store, lambda views: views.process(functions.emptying, {"k": "VARCHAR"})))
    assert dict(os.environ) == before
    assert len(published(store)) == len(VIEWS)


@pytest.mark.parametrize(
    ("name", "how"), [("exiting", "with exit code 7"), ("killed", "by signal 9: most often, memory ran out")]
)
def test_a_function_that_ends_its_process_is_told_from_memory_that_ran_out(name: str, how: str, store: Store) -> None:
    columns = {"k": "VARCHAR", "v": "BIGINT"}
    ref = planned(store, lambda views: views.process(getattr(functions, name), columns, name="scored"), "tasks(2)")
    with Local(processes=2) as runner:
        # The second has processes of its own again.
        for group in range(2):
            with pytest.raises(CosetError) as caught:
                runner.group(ref, group)
            (finding,) = caught.value.findings
            assert finding.what == f"a process that ran tasks ended {how}"
            assert finding.where == f"group {group} of batch 0 of scores, with the functions tests.functions:{name}"


@pytest.mark.long
def test_a_group_after_one_whose_process_ended_is_run(store: Store) -> None:
    def on_one_key(views: Flow) -> Flow:
        columns = {"k": "VARCHAR", "v": "BIGINT"}
        return views.filter("k = 'key-1'").process(functions.exiting_on_records, columns, name="scored")

    ref = planned(store, on_one_key, "tasks(2)")
    with Local(processes=2) as runner:
        answers = [attempted(runner, ref, group) for group in range(2)]
    assert sorted(answers) == ["ended", "run"]


def attempted(runner: Local, ref: BatchRef, group: int) -> str:
    try:
        runner.group(ref, group)
    except CosetError:
        return "ended"
    return "run"


def test_what_the_process_of_tasks_lacks_is_told_of_that_process(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    ref = planned(
        store, lambda views: views.process(functions.doubled, {"k": "VARCHAR", "twice": "BIGINT"}, name="made")
    )
    monkeypatch.setenv("COSET_IMPORTS", "shop")
    _, plan = ref.load()
    with Local(processes=1) as runner, pytest.raises(Refused) as refused:
        runner.group(ref, plan.groups[0].group)
    # One for all tasks of the group.
    (finding,) = refused.value.findings
    assert finding.what == "'tests.functions:doubled' is not allowed to be called here"
    assert finding.where == "step 'made', in the process that runs its tasks"
    assert "COSET_IMPORTS=tests where that process is started: a Spark server does not have what" in finding.then


def test_a_plan_notes_the_code_of_its_functions_and_goes_on_with_other_code(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, path = tmp_path / "noted_lab.py", "noted_lab:doubled"
    module.write_text("def doubled(table):\n    return table\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("COSET_IMPORTS", "noted_lab")
    ref = planned(store, lambda views: views.process(path, {"k": "VARCHAR", "v": "BIGINT"}, name="made"))
    _, plan = ref.load()
    noted = plan.code[path]
    assert noted == code_of(path)
    assert changed_code(plan) == ()
    module.write_text("def doubled(table):\n    return table.slice(0)\n")
    again, sentence = steps.plan(pipeline_of(store, path), store.root)
    assert again == ref
    assert f"it continues as it was planned, with other code of {path} than when it was planned" in sentence
    with Local(processes=1) as runner:
        ran = runner.group(ref, plan.groups[0].group)
    assert f"with other code of {path} than was planned" in ran
    run_and_publish(ref, tmp_path)
    receipt = there(ref.load()[0].receipt(0, 0, 0))
    assert receipt.code == {path: (code_of(path),)}
    land_table(VIEWS, "views", f"{store.root}/topics", key="k", partitions=4)
    in_repository(module)
    # Nothing is asked: all rows are of the code of now.
    after = there(preview(pipeline_of(store, path), store).plan)
    (change,) = (one for one in changes(plan, after) if one.what == f"code of {path}")
    assert change.before == noted
    assert re.fullmatch(rf"{code_of(path)}, commit [0-9a-f]{{12}}", change.now)
    monkeypatch.setenv("COSET_IMPORTS", "")
    assert (code_of(path), changed_code(plan)) == (None, ())


SCORES = """
import pyarrow as pa

FACTOR = 2

def _times(number):
    return number * FACTOR

def scored(given, kept):
    v = sum(given["v"].to_pylist())
    made = given.select(["k"]).slice(0, 1).append_column("v", pa.array([_times(v)], pa.int64()))
    return made, made

def other(table):
    return table
"""


def test_a_function_that_says_something_else_is_asked_about_as_other_sql_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, path = tmp_path / "scores_lab.py", "scores_lab:scored"
    module.write_text(SCORES)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("COSET_IMPORTS", "scores_lab")
    pipeline, columns = Pipeline("p", source="s3://nowhere/topics"), {"k": "VARCHAR", "v": "BIGINT"}
    views = pipeline.stream("views", key="k", partitions=1)
    views.process(path, columns, state=columns, name="sums").write("sums")
    views.process("scores_lab:other", columns, name="same").write("same")
    views.filter("v > 0", name="some").process("scores_lab:other", columns, name="more").write("more")

    def batch(number: int, **asked: Any) -> None:
        trial.land({"views": [{"k": "a", "v": number}]})
        trial.run(Settings(**asked))

    with Trial.made(pipeline) as trial:
        batch(1)
        # Nothing of this changes what a function says.
        module.write_text(
            '"""Scores."""\n'
            + SCORES.replace("(number):", "(number: int):  # of points").replace("FACTOR = 2", "FACTOR=(2)")
        )
        batch(2)
        module.write_text(SCORES.replace("FACTOR = 2", "FACTOR = 3"))
        with pytest.raises(Refused) as refused:
            batch(3)
        (finding,) = refused.value.findings
        assert re.match(
            r"its function changed from scores_lab:scored \(says:\w+\) to scores_lab:scored \(says:", finding.what
        )
        assert "--go-on sums" in finding.then
        trial.run(Settings(go_on=("sums",)))
        # Batch by batch it is asked about only once.
        batch(4)
        module.write_text(SCORES.replace("FACTOR = 2", "FACTOR = 3").replace("return table", "return table.slice(0)"))
        with pytest.raises(Refused) as refused:
            batch(5)
        assert [each.where for each in refused.value.findings] == [
            f"table {name!r}, as batch 3 wrote it" for name in ("same", "more")
        ]
        trial.run(Settings(go_on=("same", "more")))


def in_repository(file: Path) -> None:
    """Make the folder of a file a repository, and commit the file."""
    who = ("-c", "user.name=ana", "-c", "user.email=ana@shop.example")
    for words in (("init", "-q"), ("add", file.name), (*who, "commit", "-q", "-m", "noted")):
        subprocess.run(["git", "-C", file.parent, *words], check=True)


def pipeline_of(store: Store, path: str) -> Pipeline:
    pipeline = Pipeline("scores", source=f"{store.root}/topics")
    views = pipeline.stream("views", key="k", partitions=4, null_keys="own task")
    views.process(path, {"k": "VARCHAR", "v": "BIGINT"}, name="made").write("t")
    return pipeline
