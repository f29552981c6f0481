"""From a pipeline to its Airflow DAG: plan → one Spark job for each task group → audit → check → publish → report."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Param, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from batches import steps as batch
from batches.steps import BatchRef
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.errors import Conflict, Finding, Refused, Unreachable
from plugins.spark_group import SparkGroupOperator, arguments

# What Airflow can map one task to: its [core] max_map_length.
_MOST_GROUPS = 1024


def coset_dag(pipeline: Pipeline, *, schedule: Any = None, settings: Settings = DEFAULTS, **dag_kwargs: Any) -> DAG:
    """The DAG of `pipeline`; the settings are what a run uses unless its form says otherwise.

    Workers need COSET_STORE, the store's root, the AWS environment variables and the connection
    `spark_default`; COSET_DOCS names the folder of the Data Docs. Other arguments go to Airflow's DAG.
    """
    retries = {"retries": 2, "retry_delay": timedelta(seconds=30)}
    with DAG(
        pipeline.name,
        schedule=schedule,
        catchup=False,
        max_active_runs=1,
        params=_params(settings),
        default_args=retries | dag_kwargs.pop("default_args", {}),
        tags=["coset", *dag_kwargs.pop("tags", [])],
        **dag_kwargs,
    ) as dag:
        planned = _plan_task(pipeline, settings)
        run = SparkGroupOperator.partial(task_id="run", map_index_template="{{ task.name }}").expand_kwargs(planned)
        ref = planned["batch"]
        run >> audit(ref) >> check(ref) >> publish(ref) >> report(ref)
    return dag


def _params(settings: Settings) -> dict[str, Param]:
    """The form of a manual run. All of it is for a new plan; an open batch is taken up as it was planned."""
    return {
        "scheme": Param(
            str(settings.scheme) if settings.scheme else None,
            type=["null", "string"],
            title="Scheme",
            examples=["cogroup", "elastic(2)", "tasks(24)", "max"],
            description="How many tasks: cogroup, elastic(F), tasks(L) or max; empty for the pipeline's own.",
            section="Plan",
        ),
        "groups": Param(
            settings.groups,
            type="integer",
            minimum=1,
            maximum=_MOST_GROUPS,
            title="Task groups",
            description="How many Spark jobs the tasks are dealt to.",
            section="Plan",
        ),
        "limit": Param(
            settings.limit,
            type=["null", "integer"],
            minimum=1,
            title="Limit",
            description="The most records to take from each stream partition; empty for all that have arrived.",
            section="Plan",
        ),
    }


def _plan_task(pipeline: Pipeline, settings: Settings) -> Any:
    @task
    def plan(params: dict[str, Any]) -> list[dict[str, Any]]:
        """Plan the next batch, or take up the open one; skip the rest if there is nothing to do."""
        with _refusals():
            ref, sentence = batch.plan(pipeline, _store_root(), _asked(params, settings))
            print(sentence)
            if ref is None:
                raise AirflowSkipException(sentence)
            print(batch.plan_page(ref))
            labels = batch.group_labels(ref)
        get_current_context()["ti"].xcom_push(key="batch", value=asdict(ref))
        return [dict(arguments(ref.plan_uri, ref.digest, group, label)) for group, label in labels.items()]

    return plan()


@task
def audit(ref: dict[str, str]) -> None:
    """Make the audit tables from the receipts of all groups."""
    with _refusals():
        print(batch.audit(BatchRef(**ref)))


@task
def check(ref: dict[str, str]) -> None:
    """Let Great Expectations judge the audit tables and the rows, and decide."""
    with _refusals():
        print(batch.check(BatchRef(**ref), _docs_folder()))


@task
def publish(ref: dict[str, str]) -> None:
    """Make rows and offsets visible together."""
    with _refusals():
        print(batch.publish(BatchRef(**ref)))


@task
def report(ref: dict[str, str]) -> None:
    """Print what was read, decided and published, and where the Data Docs are."""
    with _refusals():
        print(batch.report(BatchRef(**ref), _docs_folder()))


@contextmanager
def _refusals() -> Iterator[None]:
    """What was refused stays so, however often it is tried; all else, a store that is away too, may be retried."""
    try:
        yield
    except Unreachable:
        raise
    except (Refused, Conflict) as error:
        raise AirflowFailException(str(error)) from error


def _asked(params: dict[str, Any], settings: Settings) -> Settings:
    return Settings.parse(**{name: params[name] for name in ("scheme", "groups", "limit")}, base=settings)


def _store_root() -> str:
    root = os.environ.get("COSET_STORE")
    if not root:
        raise Refused(
            Finding("no store is named", "environment variable COSET_STORE", "set it, as COSET_STORE=s3://coset")
        )
    return root


def _docs_folder() -> Path:
    return Path(os.environ.get("COSET_DOCS") or Path(__file__).parents[1] / ".coset" / "docs")
