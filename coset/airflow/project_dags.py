"""All DAGs of a project, from one DAG file of two lines."""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any

from airflow.sdk import DAG

from coset.airflow.backfill_dag import coset_backfill_dag, coset_undo_dag
from coset.airflow.batch_dag import coset_dag
from coset.project.here import enter
from coset.project.pipeline_files import load_all
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.errors import Refused


def coset_dags(
    into: MutableMapping[str, Any],
    *,
    schedule: Any = None,
    schedules: Mapping[str, Any] | None = None,
    doctor: bool = False,
    **dag_kwargs: Any,
) -> None:
    """Put the DAGs of all pipelines of the project into the globals of a DAG file: `coset_dags(globals())`.

    Each pipeline has the DAG of its batches, that of its backfills, and that which takes one back. `schedule` is that
    of all pipelines which `schedules` does not name; `doctor` is as in `coset_dag`. The project is the one around the
    DAG file; COSET_ENV says which of its environments. Other arguments go to Airflow's DAGs.

    Raises Refused, with all findings, if coset.toml is wrong or a pipeline cannot be loaded.
    """
    here = enter(Path(into["__file__"]).resolve().parent)
    found = [pipeline for _, pipeline in load_all(here)]
    findings = [finding for each in found if isinstance(each, Refused) for finding in each.findings]
    if findings:
        raise Refused(*findings)
    settings = _settings()
    for pipeline in found:
        assert not isinstance(pipeline, Refused)
        when = (schedules or {}).get(pipeline.name, schedule)
        dags: tuple[DAG, ...] = (
            coset_dag(pipeline, schedule=when, settings=settings, doctor=doctor, **dag_kwargs),
            coset_backfill_dag(pipeline, settings=settings, **dag_kwargs),
            coset_undo_dag(pipeline, **dag_kwargs),
        )
        into.update({dag.dag_id: dag for dag in dags})


def _settings() -> Settings:
    """Those of the file that COSET_SETTINGS, and so the environment, names."""
    file = os.environ.get("COSET_SETTINGS")
    return Settings.read(Path(file).read_text(encoding="utf-8"), file) if file else DEFAULTS
