"""DAG files, those of a project, and plugins as Airflow finds, parses and imports them."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coset.batches.ref import BatchRef
from coset.project.project import scheduled_run
from coset.reports.timeliness import ScheduledRun
from partitioning import commands
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.commands import Run, Shown
from partitioning.errors import Refused
from tests.refused import finding_of

HEAVY = {"pyspark", "great_expectations", "duckdb", "deltalake", "pyarrow", "numba", "pandas", "numpy"}
TASKS = {
    "plan": {"run", "groups_of_wave_1", "check", "publish"},
    "run": {"run_wave_1"},
    "groups_of_wave_1": {"run_wave_1"},
    "run_wave_1": {"check"},
    "check": {"publish"},
    "publish": set(),
}
BACKFILL = {
    "preview": {"plan"},
    "plan": {"run", "groups_of_wave_1", "check", "then", "compare"},
    "run": {"run_wave_1"},
    "groups_of_wave_1": {"run_wave_1"},
    "run_wave_1": {"check"},
    "check": {"then"},
    "then": {"next_batch", "compare"},
    "next_batch": set(),
    "compare": {"approve", "swap"},
    "approve": {"swap"},
    "swap": set(),
}


@pytest.fixture(scope="module")
def bag(airflow: Path) -> object:
    from airflow.dag_processing.dagbag import DagBag

    return DagBag()


def test_the_next_run_is_known_by_the_timetable_of_the_dag(airflow):
    from airflow.sdk import DAG, Asset, AssetOrTimeSchedule, CronTriggerTimetable

    from coset.airflow.schedule import scheduled_run

    midnight = CronTriggerTimetable("0 0 * * *", timezone="UTC")
    friday = datetime(2026, 11, 27, 18, 5, tzinfo=UTC)
    for schedule, following in (
        ("0 * * * *", "2026-11-27T19:00"),
        ("@daily", "2026-11-28T00:00"),
        ("30 9 * * 1-5", "2026-11-30T09:30"),
        (timedelta(hours=2), "2026-11-27T20:05"),
        (AssetOrTimeSchedule(timetable=midnight, assets=[Asset("a")]), "2026-11-28T00:00"),
        *((none, None) for none in (None, "@once", "@continuous", [Asset("a")])),
    ):
        dag = DAG("scheduled", schedule=schedule, start_date=datetime(2026, 1, 1, tzinfo=UTC), max_active_runs=1)
        run = scheduled_run(dag, friday)
        assert run.ran == friday.timestamp() * 1000
        assert run.next == (following and datetime.fromisoformat(f"{following}+00:00").timestamp() * 1000), schedule


def test_a_dag_that_always_runs_has_no_next_run_whatever_the_clock_says(airflow):
    from airflow.sdk import DAG, Asset, AssetOrTimeSchedule
    from airflow.sdk.definitions.timetables.simple import ContinuousTimetable

    from coset.airflow.schedule import scheduled_run

    or_of_assets = AssetOrTimeSchedule(timetable=ContinuousTimetable(), assets=[Asset("a")])
    for schedule in ("@continuous", or_of_assets):
        dag = DAG("always", schedule=schedule, start_date=datetime(2001, 1, 1, tzinfo=UTC), max_active_runs=1)
        for ran in (datetime(2001, 3, 1, tzinfo=UTC), datetime.now(UTC), datetime(2199, 12, 31, tzinfo=UTC)):
            assert scheduled_run(dag, ran) == ScheduledRun(int(ran.timestamp() * 1000), None), (schedule, ran)


def test_every_dag_file_is_found_has_its_tasks_in_order_and_runs_once_at_a_time(bag) -> None:
    assert bag.import_errors == {}
    assert set(bag.dags) == {
        *("airport_traffic", "origin_weather", "tail_activity"),
        *("tail_activity_backfill", "tail_activity_undo", "airport_traffic_verify"),
    }
    dag = bag.dags["tail_activity_backfill"]
    assert {task.task_id: task.downstream_task_ids for task in dag.tasks} == BACKFILL
    assert [task.task_id for task in bag.dags["tail_activity_undo"].tasks] == ["undo"]
    dag = bag.dags["tail_activity"]
    assert (dag.max_active_runs, dag.catchup) == (1, False)


@pytest.mark.parametrize("name", ["tail_activity", "origin_weather"])
def test_a_dag_is_planned_run_audited_checked_published_and_reported_in_this_order(bag, name):
    dag = bag.dags[name]
    assert {task.task_id: task.downstream_task_ids for task in dag.tasks} == TASKS


@pytest.mark.parametrize("bad", [{"groups": 0}, {"groups": 200_000}, {"limit": 0}, {"scheme": 4}])
def test_params_out_of_bounds_are_refused_by_the_form(bag, bad):
    from airflow.sdk.exceptions import ParamValidationError

    params = bag.dags["tail_activity"].params
    ((name, value),) = bad.items()
    with pytest.raises(ParamValidationError):
        params[name] = value


def test_plugins_load_without_errors(airflow):
    from airflow import plugins_manager

    told = plugins_manager.get_plugin_info()
    assert plugins_manager.get_import_errors() == {}
    assert [plugin["name"] for plugin in told].count("coset") == 1


def test_the_folder_of_plugins_registers_where_coset_is_not_installed(airflow, monkeypatch):
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: ())
    assert runpy.run_path(str(Path(__file__).parents[2] / "plugins/coset_plugin.py"))["CosetPlugin"].name == "coset"


def test_parsing_a_dag_file_imports_nothing_heavy(airflow):
    files = "tail_activity", "origin_weather", "tail_activity_backfill", "airport_traffic_verify"
    code = f"import sys, {', '.join(f'dags.{name}' for name in files)}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert not HEAVY & set(done.stdout.split())


def test_only_a_run_of_airflows_own_backfill_is_refused(airflow: Path) -> None:
    from airflow.models.dagrun import DagRun
    from airflow.utils.types import DagRunType

    from coset.airflow.batch_dag import check_run_type

    for run_type in DagRunType:
        run = DagRun(dag_id="tail_activity", run_id=f"{run_type}__2026-01-01", run_type=run_type)
        if run_type is not DagRunType.BACKFILL_JOB:
            check_run_type(run)
            continue
        finding = finding_of(check_run_type, run)
        assert finding.what.startswith("Airflow's backfill goes by dates, and a batch by offsets")
        assert finding.where == "run backfill__2026-01-01"
        assert "start the DAG tail_activity_backfill" in Shown(airflow=True).says(finding.next)
        assert "`coset backfill tail_activity --from N`" in finding.then


def test_the_plan_task_of_a_backfills_run_fails_for_good_and_plans_nothing(airflow: Path) -> None:
    from airflow.models.dagrun import DagRun
    from airflow.sdk.exceptions import AirflowFailException
    from airflow.sdk.execution_time.context import set_current_context
    from airflow.utils.types import DagRunType

    from dags.tail_activity import dag

    run = DagRun(dag_id=dag.dag_id, run_id="backfill__2026-01-01", run_type=DagRunType.BACKFILL_JOB)
    plan: Any = dag.get_task("plan")
    # There is no store here that it could ask.
    with set_current_context({"dag_run": run}), pytest.raises(AirflowFailException, match="goes by dates"):
        plan.python_callable(params={"scheme": None, "groups": 2, "limit": None, "again": False})


def test_a_dag_sweeps_after_it_has_published_if_it_is_asked_to(airflow: Path) -> None:
    from coset.airflow.batch_dag import coset_dag
    from dags.pipelines.tail_activity import pipeline

    dag = coset_dag(pipeline, clean=True)
    tasks = {task.task_id: task.downstream_task_ids for task in dag.tasks}
    assert tasks == TASKS | {"publish": {"clean"}, "clean": set()}


def test_the_doctor_looks_before_a_batch_is_planned_if_it_is_asked_to(
    airflow: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk.exceptions import AirflowException

    from coset import Pipeline
    from coset.airflow.batch_dag import coset_dag

    pipeline = Pipeline("lost", source=tmp_path / "nothing")
    pipeline.stream("orders", key="k", partitions=2).write("orders")
    dag = coset_dag(pipeline, doctor=True, notify=None)
    task: Any = dag.get_task("doctor")
    assert task.downstream_task_ids == {"plan"}
    assert "doctor" not in coset_dag(pipeline, notify=None).task_ids
    monkeypatch.setenv("COSET_STORE", f"file://{tmp_path}/store")
    with pytest.raises(AirflowException, match="no such stream 'orders'"):
        task.python_callable()


def test_a_step_that_is_listed_is_a_task_of_both_dags(airflow: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from coset.airflow import coset_backfill_dag, coset_dag
    from coset.batches import interpreter
    from coset.batches.interpreter import BatchStep, OfBatch, steps_of
    from dags.pipelines.tail_activity import pipeline

    at = [step.name for step in interpreter.STEPS].index("audit")
    extra = BatchStep("weigh", "Weigh it.", OfBatch(lambda batch, _: f"weighed {batch.digest}"))
    monkeypatch.setattr(interpreter, "STEPS", (*interpreter.STEPS[:at], extra, *interpreter.STEPS[at:]))
    live, again = coset_dag(pipeline, clean=True), coset_backfill_dag(pipeline)
    for dag, listed in ((live, steps_of(clean=True)), (again, steps_of(backfill=True))):
        assert {step.task for step in listed} <= set(dag.task_ids)
        assert dag.get_task("weigh").upstream_task_ids == {"run_wave_1", "plan"}
        assert dag.get_task("weigh").downstream_task_ids == {"check"}
        assert dag.get_task("weigh").doc_md == "Weigh it."
    assert set(live.task_ids) == {step.task for step in interpreter.STEPS} | {"groups_of_wave_1", "run_wave_1"}
    assert [step.name for step in steps_of(backfill=True)] == ["plan", "run", "weigh", "audit", "check"]


def test_a_task_takes_the_turn_that_its_step_takes(
    airflow: Path, s3: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from dataclasses import asdict

    from coset.batches import steps
    from dags.tail_activity import dag
    from tests.small import small_batch

    batch = small_batch()

    def check(*_: object) -> str:
        return f"in turn: {[entry.key for entry in batch.ledger.store.list('sums/turns/')]}"

    # No group of the batch has run.
    monkeypatch.setattr(steps, "audit", lambda _: "The audit comes before.")
    monkeypatch.setattr(steps, "check", check)
    judge: Any = dag.get_task("check")
    judge.python_callable(asdict(batch.ref))
    said = capsys.readouterr().out
    assert f"The audit comes before.\nin turn: ['{batch.ledger.key('turns', 0, 'check')}']" in said
    assert not list(batch.ledger.store.list("sums/turns/"))


def test_a_dag_has_waves_for_the_levels_of_unifiers_that_its_schemes_can_need(airflow: Path) -> None:
    from coset.airflow.batch_dag import coset_dag

    pipeline = Pipeline("unified", source="s3://landing/topics")
    parts = pipeline.stream("flights", key="tailnum", partitions=4).partial("count(*) AS n")
    parts.combine("sum(n)::BIGINT AS n", fan_in=8, name="totals").write("totals")

    def waves(settings: Settings) -> int:
        return sum(task.task_id.startswith("run") for task in coset_dag(pipeline, settings=settings).tasks)

    # The first, one for a changed partition count, the last, and the levels.
    assert [waves(Settings.parse(scheme=scheme)) for scheme in (None, "elastic(8)", "tasks(2000)")] == [4, 5, 7]


def test_a_dag_is_the_same_when_partition_counts_have_changed(airflow: Path) -> None:
    from coset.airflow.batch_dag import coset_dag

    def tasks(views_in: int, clicks_in: int) -> dict[str, set[str]]:
        pipeline = Pipeline("clicked", source="s3://landing/topics")
        views, clicks = (
            pipeline.stream(name, key="member", partitions=partitions)
            for name, partitions in (("views", views_in), ("clicks", clicks_in))
        )
        views.join(clicks, "views.page").write("clicked")
        return {task.task_id: task.downstream_task_ids for task in coset_dag(pipeline).tasks}

    assert tasks(4, 12) == tasks(6, 12) == tasks(8, 9) == TASKS


def test_a_plan_of_more_waves_than_the_dag_has_is_refused_before_it_runs(airflow: Path) -> None:
    from coset.airflow.batch_dag import check_waves

    batch = BatchRef("s3://coset/p/plans/3.json.gz", "sha256:1")
    check_waves(batch, 4, [], Run("p"))
    with pytest.raises(Refused, match="the plan has more waves than the 4 of this DAG") as refused:
        check_waves(batch, 4, [{"group": 9}], Run("p"))
    (finding,) = refused.value.findings
    assert finding.where == batch.plan_uri
    assert "run it with `coset run p --docs " in finding.then


def test_the_programs_on_the_page_of_airflow_run_one_after_the_other(bag):
    root = Path(__file__).parents[2]
    page = (root / "docs" / "guide" / "airflow.md").read_text()
    names = {"__name__": "page", "__file__": str(root / "dags" / "page.py")}
    blocks = [block for block in re.findall(r"^```python\n(.*?)^```", page, re.M | re.S) if ">>>" not in block]
    assert len(blocks) > 3
    for block in blocks:
        exec(block, names)


def test_the_dags_and_fields_that_next_steps_name_are_there(bag):
    asked: list[commands.Command] = [
        *(Run(name, again) for name in ("tail_activity", "tail_activity.backfill-3") for again in (False, True)),
        commands.BackfillAsking("tail_activity", 0),
        commands.BackfillAsking("tail_activity", 0, cascade=True, repaired=True),
        commands.BackfillAsking("tail_activity", 0, begin_anew="totals"),
        commands.BackfillAsking("tail_activity", 0, go_on="totals"),
        *(commands.PlanAsking("tail_activity", **{asked: "totals"}) for asked in ("begin_anew", "go_on", "take_away")),
        commands.Resume("tail_activity", 3),
        commands.Undo("tail_activity", 3),
    ]
    said = [Shown(airflow=True).says(command) for command in asked]
    named = [re.match(r"start the DAG (\w+)(?:, with (.*))? \(`", each) for each in said]
    assert len(list(filter(None, named))) == len(said)
    for dag, fields in (match.groups() for match in named if match):
        titles = {param.schema["title"] for param in bag.dags[dag].params.values()}
        for field in fields.split(" and ") if fields else ():
            assert re.sub(r" (\d+|the newest|totals)$", "", field) in titles


def test_a_form_says_what_steps_begin_anew_go_on_and_take_away(airflow: Path) -> None:
    from coset.airflow import backfill_dag, batch_dag
    from partitioning.authoring.settings import Settings

    form = {"scheme": None, "groups": 2, "begin_anew": ["sums"], "go_on": ["seen"], "why": "counted"}
    live = batch_dag.planned_as(form | {"limit": None, "take_away": ["worth"]}, Settings(go_on=("kept",)))
    assert (live.begin_anew, live.go_on, live.allowance.named) == (("sums",), ("kept", "seen"), ("worth",))
    again = backfill_dag._asked(form | {"from": 0, "to": 1}, Settings()).settings
    assert (again.begin_anew, again.go_on) == (("sums",), ("seen",))


def test_a_worker_without_a_store_is_told_which_variable_names_it(monkeypatch, airflow):
    from coset.airflow.deployment import store_root

    monkeypatch.delenv("COSET_STORE", raising=False)
    with pytest.raises(Refused, match="set it, as COSET_STORE=") as refusal:
        store_root()
    said = re.search(r"COSET_STORE=(\S+)", str(refusal.value))
    assert said is not None
    monkeypatch.setenv("COSET_STORE", said[1])
    assert store_root() == said[1]


PROJECT = """
pipelines = ["pipelines"]

[environments.dev]
store = "dev"

[environments.prod]
production = true
store = "s3://lake/coset"
source = "s3://live/topics"
"""
PIPELINE = """
from coset import Pipeline

pipeline = Pipeline("{name}", source="s3://landing/topics")
pipeline.stream("orders", key="customer", partitions=2).aggregate("count(*) AS n", name="counted").write("{name}")
"""


@pytest.fixture
def dag_file(airflow: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A DAG file of a project with two pipelines, where Airflow is told nothing but the environment."""
    (tmp_path / "coset.toml").write_text(PROJECT)
    (tmp_path / "pipelines").mkdir()
    for name in ("spent", "visits"):
        (tmp_path / "pipelines" / f"{name}.py").write_text(PIPELINE.format(name=name))
    for name in [name for name in os.environ if name.startswith("COSET_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COSET_ENV", "prod")
    for name in ("COSET_STORE", "COSET_DOCS"):
        # So that it is taken out again, whoever sets it.
        monkeypatch.setenv(name, "")
    return tmp_path / "dags.py"


def test_a_project_has_the_dags_of_all_its_pipelines(dag_file: Path) -> None:
    from coset.airflow import coset_dags
    from coset.airflow.deployment import store_root
    from coset.airflow.shown import shown

    made: dict[str, Any] = {"__file__": str(dag_file)}
    coset_dags(made, schedule="@hourly", schedules={"visits": "@daily"}, verify="@weekly", tags=["shop"])
    dags = {name: dag for name, dag in made.items() if name != "__file__"}
    assert set(dags) == {
        f"{name}{kind}" for name in ("spent", "visits") for kind in ("", "_backfill", "_undo", "_verify")
    }
    schedules = [dags[name].schedule for name in ("spent", "visits", "visits_verify")]
    assert schedules == ["@hourly", "@daily", "@weekly"]
    assert store_root() == "s3://lake/coset"
    assert shown().line(Run("spent")) == "coset run spent --store s3://lake/coset --env prod"


@given(
    schedule=st.sampled_from(
        ["@hourly", "@daily", "@weekly", "30 6 * * 1-5", "*/7 * * * *", "0 4 1,15 * *", "0 0 29 2 *"]
    ),
    now=st.datetimes(datetime(2020, 1, 1), datetime(2040, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_a_dag_by_the_schedule_of_the_project_runs_when_the_project_says(
    dag_file: Path, schedule: str, now: datetime
) -> None:
    from airflow.sdk import DAG, CronTriggerTimetable

    from coset.airflow.schedule import scheduled_run as run_of_dag

    by_project = scheduled_run(schedule, now)
    ran = datetime.fromtimestamp(by_project.ran / 1000, UTC)
    by_dag = run_of_dag(DAG("spent", schedule=CronTriggerTimetable(schedule, timezone="UTC")), ran)
    assert (by_project.ran, by_project.next) == (by_dag.ran, by_dag.next)


def test_dags_run_by_the_schedules_of_the_project(dag_file: Path) -> None:
    from airflow.sdk import CronTriggerTimetable

    from coset.airflow import coset_dags

    scheduled = 'schedule = "@hourly"\nschedules = {visits = ""}\n'
    (dag_file.parent / "coset.toml").write_text(f"{PROJECT}{scheduled}")
    made: dict[str, Any] = {"__file__": str(dag_file)}
    coset_dags(made, schedules={"visits": "@daily"})
    assert made["spent"].timetable == CronTriggerTimetable("@hourly", timezone="UTC")
    assert made["visits"].schedule == "@daily"
    with pytest.raises(Refused, match=r"spent has two schedules: '@hourly' in coset\.toml, and '@daily' here"):
        coset_dags(made, schedule="@daily")
    with pytest.raises(Refused, match="there is no pipeline 'visit' whose schedule this could be"):
        coset_dags(made, schedules={"visit": "@daily"})


def test_the_web_server_finds_the_project_around_the_dags(dag_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from coset.airflow.deployment import store_root

    monkeypatch.setenv("AIRFLOW__CORE__DAGS_FOLDER", str(dag_file.parent / "pipelines"))
    assert store_root() == "s3://lake/coset"


def test_a_pipeline_that_cannot_be_loaded_fails_the_file(dag_file: Path) -> None:
    from coset.airflow import coset_dags

    (dag_file.parent / "pipelines" / "broken.py").write_text("1 / 0\n")
    with pytest.raises(Refused, match="the pipeline's file fails: ZeroDivisionError"):
        coset_dags({"__file__": str(dag_file)})
