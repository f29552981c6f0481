"""All DAGs of a project, from one DAG file of two lines. The DAG that verifies tables."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, MutableMapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, CronTriggerTimetable, Param, task

from coset.airflow.backfill_dag import coset_backfill_dag, coset_undo_dag
from coset.airflow.batch_dag import TOLD, coset_dag, failures
from coset.airflow.deployment import TAG, VERIFY, VERIFY_TAG, docs_folder, store_root
from coset.airflow.notifier import CosetNotifier, Watched, with_callbacks
from coset.airflow.shown import remember, say
from coset.batches.verifications import verify_and_remember
from coset.batches.verified import NextPart, differs, sample_of
from coset.project.here import Here, enter
from coset.project.pipeline_files import load_all
from coset.project.project import FILE
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.errors import Finding, Refused, refuse
from partitioning.kinds import Kind
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
            refuse(wrong)

    return verify()  # type: ignore[call-arg, misc]  # Airflow gives it the params


def coset_dags(
    into: MutableMapping[str, Any],
    *,
    schedule: Any = None,
    schedules: Mapping[str, Any] | None = None,
    doctor: bool = False,
    verify: Any = None,
    **dag_kwargs: Any,
) -> None:
    """Put the DAGs of all pipelines of the project into the globals of a DAG file: `coset_dags(globals())`.

    Each pipeline has the DAG of its batches, that of its backfills, and that which takes one back. When it runs is said
    by coset.toml or, for what only Airflow knows, such as assets, here: `schedule` is that of all pipelines which
    `schedules` does not name. `doctor` is as in `coset_dag`. With `verify`, a schedule, each pipeline has also the DAG
    that verifies its tables. The project is the one around the DAG file; COSET_ENV says
    which of its environments. Other arguments go to Airflow's DAGs.

    Raises Refused, with all findings, if coset.toml is wrong, a pipeline cannot be loaded, or schedules disagree.
    """
    here = enter(Path(into["__file__"]).resolve().parent)
    found = [pipeline for _, pipeline in load_all(here)]
    findings = [finding for each in found if isinstance(each, Refused) for finding in each.findings]
    pipelines = [each for each in found if not isinstance(each, Refused)]
    given = {pipeline.name: (schedules or {}).get(pipeline.name, schedule) for pipeline in pipelines}
    findings += _of_schedules(here, given, schedules or {}, into["__file__"])
    refuse(findings)
    settings = _settings()
    for pipeline in pipelines:
        said = here.environment.schedule_of(pipeline.name)
        # In UTC, whatever the zone of this Airflow is.
        when = CronTriggerTimetable(said, timezone="UTC") if said else given[pipeline.name]
        dags: tuple[DAG, ...] = (
            coset_dag(pipeline, schedule=when, settings=settings, doctor=doctor, **dag_kwargs),
            coset_backfill_dag(pipeline, settings=settings, **dag_kwargs),
            coset_undo_dag(pipeline, **dag_kwargs),
            *([coset_verify_dag(pipeline, schedule=verify, **dag_kwargs)] if verify is not None else []),
        )
        into.update({dag.dag_id: dag for dag in dags})


def _of_schedules(here: Here, given: Mapping[str, Any], named: Mapping[str, Any], file: str) -> Iterator[Finding]:
    """What is wrong with schedules: pipelines that coset.toml and the DAG file both have one for, and names that are no
    pipeline's."""
    for name, schedule in given.items():
        said = here.environment.schedule_of(name)
        if said and schedule not in (None, said):
            what = f"{name} has two schedules: {said!r} in {FILE}, and {schedule!r} here"
            yield Finding.of(Kind.SETTING, what, file, f"say it in {FILE} alone", pipeline=name)
    for where, names in ((str(here.project.folder / FILE), here.environment.schedules), (file, named)):
        for name in sorted(set(names) - set(given)):
            what = f"there is no pipeline {name!r} whose schedule this could be"
            then = f"name one of {', '.join(sorted(given))}"
            yield Finding.of(Kind.SETTING, what, where, then, pipeline=name)


def _settings() -> Settings:
    """Those of the file that COSET_SETTINGS, and so the environment, names."""
    file = os.environ.get("COSET_SETTINGS")
    return Settings.read(Path(file).read_text(encoding="utf-8"), file) if file else DEFAULTS
