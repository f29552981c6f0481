"""All DAGs of a project, from one DAG file of two lines."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, CronTriggerTimetable

from coset.airflow.backfill_dag import coset_backfill_dag, coset_undo_dag
from coset.airflow.batch_dag import coset_dag
from coset.airflow.verify_dag import coset_verify_dag
from coset.project.here import Here, enter
from coset.project.pipeline_files import load_all
from coset.project.project import FILE
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.errors import Finding, Refused
from partitioning.kinds import Kind


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
    if findings:
        raise Refused(*findings)
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
