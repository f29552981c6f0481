"""The Airflow DAG that holds a pipeline's result tables against their queries, a part of their keys in each run."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param, task

from coset.airflow.batch_dag import TOLD, failures
from coset.airflow.deployment import TAG, VERIFY, VERIFY_TAG, docs_folder, store_root
from coset.airflow.notifier import CosetNotifier, Watched, with_callbacks
from coset.airflow.shown import remember, say
from coset.batches.verified import NextPart, differs, sample_of, verify_and_remember
from partitioning.authoring.pipeline import Pipeline
from partitioning.errors import Finding, Refused
from partitioning.model.incident import WatchedRuns
from partitioning.model.verification import PARTS

_DEFAULTS = {"retries": 2, "retry_delay": timedelta(seconds=30), "priority_weight": 1, "weight_rule": "absolute"}


def coset_verify_dag(
    pipeline: Pipeline,
    *,
    schedule: Any = None,
    parts: int = PARTS,
    tables: Collection[str] = (),
    notify: CosetNotifier | None = TOLD,
    **dag_kwargs: Any,
) -> DAG:
    """The DAG `<pipeline>_verify`. A run holds one of so many `parts` of the keys of each result table, or of these
    `tables`, against its query: the part that was verified longest ago, unless its form names another.

    It fails if a table differs, and that is an incident until the same keys are found to be equal. Workers need
    COSET_STORE and what reads the streams; Spark is not needed. `notify` is as for `coset_dag`. Other arguments go to
    Airflow's DAG. Raises Refused if there can be no such parts.
    """
    remember(pipeline)
    callbacks = notify.callbacks(Watched.of(pipeline, WatchedRuns.VERIFICATIONS), "verify") if notify else {}
    sample = Param(
        str(sample_of(str(NextPart(parts)))),
        type="string",
        title="Sample",
        examples=["3/16", "next/32", "1/1"],
        description="Which part of the keys: 3/16 is the third of sixteen, 1/1 all; next/16 what was verified longest "
        "ago.",
    )
    with DAG(
        f"{pipeline.name}{VERIFY}",
        schedule=schedule,
        catchup=False,
        max_active_runs=1,
        params={"sample": sample},
        default_args=with_callbacks(_DEFAULTS | dag_kwargs.pop("default_args", {}), callbacks),
        tags=[TAG, VERIFY_TAG, *dag_kwargs.pop("tags", [])],
        **dag_kwargs,
    ) as dag:
        _verify_task(pipeline, tuple(tables))
    return dag


def _verify_task(pipeline: Pipeline, tables: Collection[str]) -> Any:
    @task
    def verify(params: dict[str, Any]) -> None:
        """Compute the rows of a part of the keys anew from all records that batches took, and compare each row."""
        from partitioning.documents.stores import store_at  # noqa: PLC0415  Airflow parses this file

        with failures():
            wrong = list[Finding]()
            try:
                store, sample = store_at(store_root()), sample_of(params["sample"])
                for each in verify_and_remember(pipeline, store, tables, sample, say, docs_folder()):
                    say(str(each))
                    wrong += [differs(pipeline.name, each)] if each.is_wrong else []
            except Refused as refused:
                wrong += refused.findings
            if wrong:
                raise Refused(*wrong)

    return verify()  # type: ignore[call-arg, misc]  # Airflow gives it the params
