"""The Airflow DAG of a pipeline, with tasks for the steps of a batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import timedelta
from itertools import groupby
from typing import Any

from airflow.sdk import DAG, Param, TriggerRule, chain, get_current_context, task
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowSkipException
from airflow.utils.types import DagRunType

from coset.airflow.asset import announce, ends_of_publishing
from coset.airflow.deployment import BACKFILL, TAG, docs_folder, store_root
from coset.airflow.notifier import CosetNotifier, Watched, with_callbacks
from coset.airflow.places import Places, placed, shared
from coset.airflow.plugin import linked
from coset.airflow.shown import remember, say, say_page, shown, shown_on_pages
from coset.airflow.task_group import TaskGroupOperator, failure, until_printed
from coset.batches import reported, steps
from coset.batches.interpreter import (
    PLAN,
    PUBLISH,
    BatchStep,
    OfBatch,
    OfPipeline,
    Planning,
    RunWaves,
    Surroundings,
    Trigger,
    in_turns,
    steps_of,
)
from coset.batches.ref import BatchRef
from coset.batches.turns import Turns
from coset.reports import next_steps
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import ASKED, DEFAULTS, Settings
from partitioning.commands import BackfillAsking, Command, Run, Then
from partitioning.errors import CosetError, Finding, Refused
from partitioning.kinds import Kind
from partitioning.numbers import GROUPS
from partitioning.planning.stages.bounds import most_waves
from partitioning.sections import many

# The steps whose tasks lead to the batch's page.
_WITH_PAGE = {"check", "publish"}
_LABEL = "{{ task.name }}"
# Among tasks that wait for the same slots, Airflow starts those of live batches before those of backfills.
LIVE_PRIORITY = 100
ANYWHERE: Places = {}
# This notifier tells the addresses in COSET_NOTIFY.
TOLD = CosetNotifier()
_TRIGGERS = {
    Trigger.ALL_SUCCEEDED: TriggerRule.ALL_SUCCESS,
    Trigger.ONE_SUCCEEDED_NONE_FAILED: TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS,
}


def coset_dag(
    pipeline: Pipeline,
    *,
    schedule: Any = None,
    settings: Settings = DEFAULTS,
    places: Places = ANYWHERE,
    clean: bool = False,
    doctor: bool = False,
    notify: CosetNotifier | None = TOLD,
    **dag_kwargs: Any,
) -> DAG:
    """The DAG of `pipeline`. A run uses the settings unless its form has others.

    With `places` a task group runs where it ran last, if that is one of them. With `clean` the last task removes files
    that no verdict names. With `doctor` the first task looks at the worker, the store and the streams, as `coset
    doctor` does, and nothing is planned if something is wrong. `notify` tells people when a run fails, and when
    that has ended.

    Workers need COSET_STORE, the store's root, the AWS environment variables and the connection
    `spark_default`; COSET_DOCS names the folder of the Data Docs. Other arguments go to Airflow's DAG.
    """
    remember(pipeline)
    defaults: dict[str, Any] = {"retries": 2, "retry_delay": timedelta(seconds=30), "priority_weight": LIVE_PRIORITY}
    callbacks = notify.callbacks(Watched.of(pipeline), PUBLISH, PLAN.name) if notify else {}
    with DAG(
        pipeline.name,
        schedule=schedule,
        catchup=False,
        max_active_runs=1,
        params=_params(settings),
        default_args=with_callbacks(defaults | dag_kwargs.pop("default_args", {}), callbacks),
        tags=[TAG, *dag_kwargs.pop("tags", [])],
        **dag_kwargs,
    ) as dag:
        waves = most_waves(pipeline, settings)
        planned = _plan_task(pipeline, settings, places, waves)
        first = [_doctor_task(pipeline)()] if doctor else []
        chain(*first, *batch_tasks(steps_of(clean=clean), pipeline, planned, places, waves))
    return dag


def _doctor_task(pipeline: Pipeline) -> Any:
    @task(task_id="doctor", doc_md="Look whether what a batch needs is here and fits together.")
    def perform() -> None:
        from coset.cli.doctor import Level, checks  # noqa: PLC0415  it imports the command line

        with failures():
            found = checks(pipeline, store_root())
            for check in found:
                say(f"{check.what}: {check.level}, {check.seen}")
            if wrong := [check for check in found if check.level is Level.WRONG]:
                raise Refused(
                    *(Finding.of(Kind.WORKER, each.seen, each.what, each.then, check=each.what) for each in wrong)
                )

    return perform


def batch_tasks(
    listed: Iterable[BatchStep],
    pipeline: Pipeline,
    planned: Any,
    places: Places,
    waves: int,
    at_once: int | None = None,
) -> Iterator[Any]:
    """The tasks of a batch's steps, in order: `planned` for planning, one for each wave, and one for each other
    step, or for those that are done within one task."""
    for name, together in groupby(listed, key=lambda step: step.task):
        step, *others = together
        match step.does:
            case Planning():
                yield planned
            case RunWaves():
                yield from (_run_wave(step, planned, places, wave, at_once) for wave in range(waves))
            case OfBatch():
                made = _batch_task(name, (step, *others), pipeline)(planned["batch"])
                yield linked(made) if name in _WITH_PAGE else made
            case OfPipeline():
                yield _pipeline_task(step, step.does, pipeline)()


def _batch_task(name: str, together: Sequence[BatchStep], pipeline: Pipeline) -> Any:
    ends: dict[str, Any] = ends_of_publishing(pipeline) if name == PUBLISH else {}
    what = " ".join(step.what for step in together)

    @task(task_id=name, trigger_rule=_TRIGGERS[together[0].trigger], doc_md=what, **ends)
    def perform(ref: dict[str, str]) -> None:
        with failures():
            batch, around = BatchRef(**ref).in_hand(), Surroundings(docs_folder(), shown())
            for turn, steps in in_turns(together, Turns(batch.ledger, batch.plan)):
                with turn:
                    for step in steps:
                        assert isinstance(step.does, OfBatch)
                        said = step.does.do(batch, around)
                        say_page(said) if step.does.page else say(said)
                        if step.name == PUBLISH:
                            announce(batch, get_current_context())

    return perform


def _pipeline_task(step: BatchStep, does: OfPipeline, pipeline: Pipeline) -> Any:
    @task(task_id=step.name, trigger_rule=_TRIGGERS[step.trigger], doc_md=step.what)
    def perform() -> None:
        with failures():
            say(does.do(pipeline, store_root()))

    return perform


def _run_wave(step: BatchStep, planned: Any, places: Places, wave: int, at_once: int | None) -> Any:
    """The mapped task for the groups of a wave, of which `at_once` run at once. It starts when the wave before has
    ended. Either wave may be empty."""
    most = {} if at_once is None else {"max_active_tis_per_dag": at_once}
    if wave == 0:
        return TaskGroupOperator.partial(task_id=step.name, map_index_template=_LABEL, **most).expand_kwargs(planned)
    # Airflow maps only over the return value of a task, not over other XComs.
    groups = _groups_task(places, wave)(planned["batch"])
    named = {"task_id": f"{step.name}_wave_{wave}", "map_index_template": _LABEL}
    return TaskGroupOperator.partial(**named, trigger_rule=_TRIGGERS[step.trigger], **most).expand_kwargs(groups)


def plan_params(settings: Settings) -> dict[str, Param]:
    """The form's fields on planning."""
    return {
        "scheme": Param(
            str(settings.scheme) if settings.scheme else None,
            type=["null", "string"],
            title="Scheme",
            examples=["cogroup", "elastic(2)", "tasks(24)", "max"],
            description="How many tasks: cogroup, elastic(F), tasks(L), records(N), max; empty for the pipeline's own.",
        ),
        "groups": Param(
            settings.groups,
            type="integer",
            minimum=1,
            maximum=GROUPS.most,
            title="Task groups",
            description="How many Spark jobs the tasks are grouped into.",
        ),
        **_of_names(of_backfills=True),
    }


def _of_names(*, of_backfills: bool) -> dict[str, Param]:
    """The fields for names, empty by default."""
    return {
        name: Param(
            None,
            type=["null", "array"],
            items={"type": "string"},
            title=asking.title,
            description=f"{asking.field}, a name on each line.",
        )
        for name, asking in ASKED.items()
        if asking.title and asking.of_backfills is of_backfills
    }


def planned_as(params: dict[str, Any], settings: Settings) -> Settings:
    """The settings with those of the form."""
    form: dict[str, Any] = {name: said for name in ASKED if (said := params.get(name)) is not None}
    return Settings.parse(**form, base=settings)


def _params(settings: Settings) -> dict[str, Param]:
    """The form of a manual run. An open batch keeps its plan, whatever the form says."""
    return plan_params(settings) | {
        "limit": Param(
            settings.limit,
            type=["null", "integer"],
            minimum=1,
            title="Limit",
            description="The most records to take from each stream partition; empty for all that have arrived.",
        ),
        **_of_names(of_backfills=False),
        "again": Param(
            False,
            type="boolean",
            title="Again",
            description="Run a batch that waits because its checks failed twice in the same way.",
        ),
    }


def _plan_task(pipeline: Pipeline, settings: Settings, places: Places, waves: int) -> Any:
    @task(task_id=PLAN.name)
    def plan(params: dict[str, Any]) -> list[dict[str, Any]]:
        """Plan the next batch, or continue the open one. Skips the rest if there is nothing to do."""
        with failures():
            check_run_type(get_current_context()["dag_run"])
            ref, sentence = steps.plan(pipeline, store_root(), planned_as(params, settings), again=params["again"])
            say(sentence)
            _note_run(pipeline, up_to_date=ref is None)
            if ref is None:
                raise AirflowSkipException(sentence)
            say_page(steps.plan_page(ref))
            check_waves(ref, waves, steps.groups_of_wave(ref, waves), Run(pipeline.name))
            get_current_context()["ti"].xcom_push(key="batch", value=asdict(ref))
            return groups_given(ref, places, 0)

    return plan()  # type: ignore[call-arg, misc]  # Airflow gives it the params


def _note_run(pipeline: Pipeline, *, up_to_date: bool) -> None:
    # It imports what only running tasks need.
    from coset.airflow.schedule import scheduled_run  # noqa: PLC0415

    context = get_current_context()
    run = scheduled_run(context["dag"], context["dag_run"].run_after)
    reported.run_began(pipeline.name, store_root(), run, up_to_date=up_to_date)


def _groups_task(places: Places, wave: int) -> Any:
    @task(task_id=f"groups_of_wave_{wave}")
    def groups_of_wave(ref: dict[str, str]) -> list[dict[str, Any]]:
        """The task groups of a later wave. Empty if this plan has fewer waves than the pipeline may need."""
        with failures():
            return groups_given(BatchRef(**ref), places, wave)

    return groups_of_wave


def groups_given(ref: BatchRef, places: Places, wave: int) -> list[dict[str, Any]]:
    """The arguments of the operator of each task group in a wave; of several, if there are more than Airflow maps a
    task to."""
    most = conf.getint("core", "max_map_length")
    return [
        {
            "batch": asdict(ref),
            "group": first.group,
            "name": steps.label(first) + (f" and {many(len(more), 'group')} more" if more else ""),
            **({"more": [group.group for group in more]} if more else {}),
            **placed(first, places),
        }
        for first, *more in shared(steps.groups_of_wave(ref, wave), places, most)
    ]


@contextmanager
def failures() -> Iterator[None]:
    """Raise Coset's errors as Airflow's, which are retried or not. Also says on pages what this deployment was asked,
    and waits until Airflow has read all output."""
    try:
        with next_steps.shown_as(shown_on_pages):
            yield
        until_printed()
    except CosetError as error:
        raise failure(error) from error


def check_run_type(run: Any) -> None:
    """Raise Refused for a run of Airflow's own backfill: it would read the newest records, whatever its dates."""
    if run.run_type == DagRunType.BACKFILL_JOB:
        what = "Airflow's backfill goes by dates, and a batch by offsets: this run would take the newest records"
        then = _instead(run.dag_id.removesuffix(BACKFILL))
        raise Refused.of(Kind.AIRFLOW_DATES, what, f"run {run.run_id}", then, run=run.run_id)


def _instead(pipeline: str) -> Then:
    again, new = BackfillAsking(pipeline, None), Run(pipeline)
    later = "; for what has arrived meanwhile, "
    return "to run published batches again, ", again, later, new, ", or wait for its schedule"


def check_waves(batch: BatchRef, waves: int, more: Sequence[object], command: Command) -> None:
    """Raise Refused if a plan has `more` groups after the DAG's last wave. A run's form or a partitioner may ask for so
    many tasks. The command line runs such a plan all the same."""
    if more:
        then = (
            f"run it with `{shown().line(command)}`, and give the DAG the settings that ask for so many tasks, or a "
            "larger fan_in"
        )
        what = f"the plan has more waves than the {waves} of this DAG: unifiers of so many tasks need more levels"
        raise Refused.of(Kind.PLAN_WAVES, what, batch.plan_uri, then, waves=waves)
