"""The Airflow DAGs that run a pipeline's published batches again, and that take such a backfill back.

A run of the DAG takes one batch and then starts the run for the next one. A batch can be planned only after the one
before it has run, and Airflow cannot map a task over groups inside of a task group that is mapped over batches. So the
groups of a batch are mapped as in the pipeline's own DAG, are cleared one by one, and go to their state. The run of the
last batch compares, asks for approval if anything differs, and swaps.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, BaseSensorOperator, Param, TriggerRule, chain, get_current_context, task

from coset.airflow.batch_dag import (
    ANYWHERE,
    TOLD,
    batch_tasks,
    check_waves,
    failures,
    groups_given,
    plan_params,
    planned_as,
)
from coset.airflow.deployment import BACKFILL, BACKFILL_TAG, TAG, UNDO, docs_folder, store_root
from coset.airflow.notifier import CosetNotifier, Watched, with_callbacks
from coset.airflow.places import Places
from coset.airflow.plugin import linked
from coset.airflow.shown import remember, say, say_page
from coset.batches import steps
from coset.batches.backfills.hours import Hours
from coset.batches.interpreter import PLAN, steps_of
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.commands import Resume
from partitioning.errors import Refused
from partitioning.model.incident import WatchedRuns
from partitioning.planning.stages.bounds import most_waves

if TYPE_CHECKING:
    from airflow.sdk import Context

    from coset.batches.backfills.actions import Asked
    from partitioning.documents.store import Store
    from partitioning.model.backfill import Backfill

_DEFAULTS = {"retries": 2, "retry_delay": timedelta(seconds=30), "priority_weight": 1, "weight_rule": "absolute"}
_WHY: dict[str, Any] = {"type": "string", "minLength": 1, "title": "Why"}
_A_DAY_AND_A_BIT = timedelta(hours=25)


def coset_backfill_dag(
    pipeline: Pipeline,
    *,
    settings: Settings = DEFAULTS,
    places: Places = ANYWHERE,
    groups_at_once: int | None = None,
    window: str | None = None,
    notify: CosetNotifier | None = TOLD,
    **dag_kwargs: Any,
) -> DAG:
    """The DAG `<pipeline>_backfill`, started by its form; the settings are what a run uses unless the form says more.

    At most `groups_at_once` task groups run at once, in all runs of the DAG. A batch begins only in the hours of the
    `window`, such as 22:00-06:00 Europe/Berlin; without a time zone they are UTC. Places, workers and `notify` are as
    for `coset_dag`. Other arguments go to Airflow's DAG.
    """
    remember(pipeline)
    callbacks = notify.callbacks(Watched.of(pipeline, WatchedRuns.BACKFILLS), "swap") if notify else {}
    with DAG(
        f"{pipeline.name}{BACKFILL}",
        schedule=None,
        params=_params(settings),
        default_args=with_callbacks(_DEFAULTS | dag_kwargs.pop("default_args", {}), callbacks),
        tags=[TAG, BACKFILL_TAG, *dag_kwargs.pop("tags", [])],
        **dag_kwargs,
    ) as dag:
        waves = most_waves(pipeline, settings)
        planned = _plan_task(pipeline, settings, places, waves)
        batch = batch_tasks(steps_of(backfill=True), pipeline, planned, places, waves, groups_at_once)
        number = planned["backfill"]
        then, compared = _then_task(pipeline, number), _compare_task(pipeline, number)
        waiting = [HoursSensor(task_id="in_hours", hours=Hours.parse(window))] if window else []
        chain(_preview_task(pipeline, settings), *waiting, *batch, then)
        chain(then, [_next_run(dag.dag_id, then), compared])
        approve = _approval(pipeline, compared)
        shown = compared["backfill"], compared["digest"], compared["decided"]
        chain(compared, [approve, _swap_task(pipeline)(*shown, approve.output)])
    return dag


def coset_undo_dag(pipeline: Pipeline, **dag_kwargs: Any) -> DAG:
    """The DAG `<pipeline>_undo`, whose form says which backfill is taken back. Other arguments go to Airflow's DAG."""
    remember(pipeline)
    number = Param(type="integer", minimum=0, title="Backfill", description="Its number.")
    with DAG(
        f"{pipeline.name}{UNDO}",
        schedule=None,
        params={"backfill": number, "why": Param(description="Kept with the swap.", **_WHY)},
        default_args=_DEFAULTS | dag_kwargs.pop("default_args", {}),
        tags=[TAG, BACKFILL_TAG, *dag_kwargs.pop("tags", [])],
        **dag_kwargs,
    ) as dag:
        _undo_task(pipeline)
    return dag


def _params(settings: Settings) -> dict[str, Param]:
    batch: dict[str, Any] = {"type": "integer", "minimum": 0}
    return {
        "from": Param(title="From batch", description="The first batch to run again.", **batch),
        "to": Param(title="To batch", description="The last one; it has to be published.", **batch),
        **plan_params(settings),
        "why": Param(description="Kept with the backfill, and shown to whoever approves it.", **_WHY),
        "repaired": Param(
            False,
            type="boolean",
            title="Repaired input",
            description="Landed files were repaired: read those that hold the offsets now.",
        ),
        "backfill": Param(
            None,
            type=["null", "integer"],
            minimum=0,
            title="Backfill",
            description="Continue the backfill with this number and ignore the other fields; empty for a new one.",
            section="Continue",
        ),
    }


def _preview_task(pipeline: Pipeline, settings: Settings) -> Any:
    @task
    def preview(params: dict[str, Any]) -> None:
        """Print what would be run. Stores nothing."""
        from coset.batches.backfills import actions  # noqa: PLC0415  Airflow parses this file
        from coset.batches.backfills.pages import preview_page  # noqa: PLC0415
        from partitioning.documents.stores import store_at  # noqa: PLC0415

        with failures():
            if params["backfill"] is None:
                store = store_at(store_root())
                pairs = actions.preview(pipeline, store, _asked(params, settings))
                say_page(preview_page(store, pipeline.name, pairs))
            else:
                say(f"Backfill {params['backfill']} continues")

    return preview()  # type: ignore[call-arg, misc]  # Airflow gives it the params


def _plan_task(pipeline: Pipeline, settings: Settings, places: Places, waves: int) -> Any:
    @task(task_id=PLAN.name)
    def plan(params: dict[str, Any]) -> list[dict[str, Any]]:
        """Begin or continue the backfill: plan its next batch."""
        from coset.batches.backfills import actions  # noqa: PLC0415
        from partitioning.documents.stores import store_at  # noqa: PLC0415

        with failures():
            number = params["backfill"]
            if number is None:
                number = actions.begin(pipeline, store_at(store_root()), _asked(params, settings), _who()).number
            ref, sentence = actions.next_batch(pipeline, *_opened(pipeline, number))
            say(sentence)
            check_waves(ref, waves, steps.groups_of_wave(ref, waves), Resume(pipeline.name, number))
            ti = get_current_context()["ti"]
            ti.xcom_push(key="backfill", value=number)
            ti.xcom_push(key="batch", value=asdict(ref))
            return groups_given(ref, places, 0)

    return plan()  # type: ignore[call-arg, misc]


def _then_task(pipeline: Pipeline, number: Any) -> Any:
    @task.branch
    def then(number: int, params: dict[str, Any], run_id: str) -> str:
        """Choose what is next: another batch in its own run, or the comparison of all."""
        from coset.batches.backfills import actions  # noqa: PLC0415

        with failures():
            left = actions.batches_left(*_opened(pipeline, number))
        if not left:
            return "compare"
        say(f"Batch {left[0]} is next, in a run of its own")
        ti = get_current_context()["ti"]
        ti.xcom_push(key="conf", value=dict(params) | {"backfill": number})
        ti.xcom_push(key="run_id", value=f"{run_id.partition('__batch_')[0]}__batch_{left[0]}")
        return "next_batch"

    return then(number)  # type: ignore[call-arg, misc]


def _next_run(dag_id: str, then: Any) -> TriggerDagRunOperator:
    """Starts the run for the next batch, with the same form. A retry does not start a second one."""
    return TriggerDagRunOperator(
        task_id="next_batch",
        trigger_dag_id=dag_id,
        trigger_run_id=then["run_id"],
        conf=then["conf"],
        skip_when_already_exists=True,
    )


def _compare_task(pipeline: Pipeline, number: Any) -> Any:
    @task.branch
    def compare(number: int) -> str:
        """Compare the rows with those that readers see. Only identical rows are put in place without approval."""
        from coset.batches.backfills import actions  # noqa: PLC0415

        with failures():
            compared = actions.review(*_opened(pipeline, number), docs_folder())
            page = compared.page
            say_page(page)
            if compared.blockers:
                # Nobody is asked to approve a swap that would be refused.
                raise Refused(*compared.blockers)
        ti = get_current_context()["ti"]
        # The swap gets all its arguments from here: if it depended on the plan too, it would start in every run.
        shown = {"page": page, "digest": compared.digest, "decided": compared.decided}
        for key, value in ({"backfill": number} | shown).items():
            ti.xcom_push(key=key, value=value)
        return "approve" if compared.needs_approval else "swap"

    return linked(compare(number))


def _approval(pipeline: Pipeline, compared: Any) -> ApprovalOperator:
    """Wait until somebody approves or rejects the comparison. After a rejection nothing is swapped."""
    subject = f"Shall readers of {pipeline.name} see the rows of this backfill?"
    return ApprovalOperator(task_id="approve", subject=subject, body=compared["page"])


def _swap_task(pipeline: Pipeline) -> Any:
    @task(trigger_rule=TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS)
    def swap(number: int, approved: str, decided: int, answer: dict[str, Any] | None) -> None:
        """Let readers see the rows of the comparison that was shown. Refused if it changed or was taken back since."""
        from coset.batches.backfills import actions  # noqa: PLC0415

        who = ((answer or {}).get("responded_by_user") or {}).get("name", "")
        with failures():
            store, request = _opened(pipeline, number)
            swapped = actions.swap(store, request, approved, request.why, who, decided=decided, docs=docs_folder())
            say(f"{request} is in place: {swapped}")

    return swap


def _undo_task(pipeline: Pipeline) -> Any:
    @task
    def undo(params: dict[str, Any]) -> None:
        """Let readers see the rows from before the backfill again."""
        from coset.batches.backfills import actions  # noqa: PLC0415

        with failures():
            store, request = _opened(pipeline, params["backfill"])
            say(f"{request} is taken back: {actions.undo(store, request, params['why'], _who(), docs=docs_folder())}")

    return undo()  # type: ignore[call-arg, misc]


def _opened(pipeline: Pipeline, number: int) -> tuple[Store, Backfill]:
    """The store and a backfill in it. Raises Refused if there is none with this number."""
    from coset.batches.backfills.request import backfill  # noqa: PLC0415
    from partitioning.documents.stores import store_at  # noqa: PLC0415

    store = store_at(store_root())
    return store, backfill(store, pipeline.name, number)


def _who() -> str:
    """Who started the run, if Airflow knows."""
    return get_current_context()["dag_run"].triggering_user_name or ""


def _asked(params: dict[str, Any], settings: Settings) -> Asked:
    from coset.batches.backfills.actions import Asked  # noqa: PLC0415

    return Asked(
        params["from"], params["to"], planned_as(params, settings), params["why"], params.get("repaired", False)
    )


class HoursSensor(BaseSensorOperator):
    """Waits until the window opens. It takes no slot meanwhile."""

    def __init__(self, *, hours: Hours, **kwargs: Any) -> None:
        super().__init__(mode="reschedule", poke_interval=60, timeout=_A_DAY_AND_A_BIT.total_seconds(), **kwargs)
        self.hours = hours

    def poke(self, context: Context) -> bool:
        opens = self.hours.opens(datetime.now(UTC))
        if opens:
            say(f"Outside of {self.hours}: it continues at {opens:%Y-%m-%d %H:%M} {opens.tzname()}")
        return opens is None
