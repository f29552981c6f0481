"""Finds the page of a DAG run, by its tasks in Airflow's database and by when pages were stored."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState
from sqlalchemy import select

from coset.batches.interpreter import PLAN
from partitioning.documents.store import Found, Store
from partitioning.model.backfill import name_of

# The tasks that write pages.
_CHECK, _COMPARE = "check", "compare"
_ENDED = (TaskInstanceState.SUCCESS, TaskInstanceState.FAILED)


@dataclass(frozen=True, slots=True)
class RunBatch:
    """The batch of a run. `backfill` is None for a live batch, `checked` is when its check ended, and `compared` says
    whether the run compared the backfill."""

    pipeline: str
    batch: int
    backfill: int | None
    checked: datetime | None
    compared: bool

    @property
    def folder(self) -> str:
        """The prefix of its pages in the store."""
        return f"{self.pipeline if self.backfill is None else name_of(self.pipeline, self.backfill)}/docs"


def batch_of_run(dag_id: str, run_id: str, pipeline: str, root: str) -> RunBatch | None:
    """The batch of a run. None if it planned none in the store at this root."""
    with create_session() as session:
        of_run = (XComModel.dag_id == dag_id, XComModel.run_id == run_id)
        wanted = select(XComModel.value).where(*of_run, XComModel.task_id == PLAN.name, XComModel.key == "batch")
        left = session.scalar(wanted)
        tasks = select(TaskInstance.task_id, TaskInstance.end_date).where(
            TaskInstance.dag_id == dag_id,
            TaskInstance.run_id == run_id,
            TaskInstance.task_id.in_((_CHECK, _COMPARE)),
            TaskInstance.state.in_(_ENDED),
        )
        ended = {task: end for task, end in session.execute(tasks)}
    planned = _planned(left, pipeline, root)
    if planned is None:
        return None
    backfill, batch = planned
    return RunBatch(pipeline, batch, backfill, ended.get(_CHECK), _COMPARE in ended)


def _planned(left: Any, pipeline: str, root: str) -> tuple[int | None, int] | None:
    """The numbers of backfill and batch in the XCom of the `plan` task."""
    uri = left.get("plan_uri") if isinstance(left, dict) else None
    if not isinstance(uri, str):
        return None
    of_plan = rf"{re.escape(f'{root}/{pipeline}')}(?:\.backfill-([0-9]+))?/plans/([0-9]+)\.json\.gz"
    match = re.fullmatch(of_plan, uri)
    return match and (None if match[1] is None else int(match[1]), int(match[2]))


def page_of_run(store: Store, run: RunBatch | None) -> str:
    """The address of a run's page, relative to its DAG's: the comparison, or else the attempt that it checked, or else
    the index."""
    if run is None:
        return "index.html"
    if run.compared and run.backfill is not None:
        return f"backfill-{run.backfill}.html"
    prefix = f"{run.folder}/"
    stored = store.page(f"{prefix}batch-{run.batch}-attempt-", "").objects
    if run.checked is None or not stored:
        return "index.html"
    name = _nearest(stored, run.checked).entry.key.removeprefix(prefix)
    return name if run.backfill is None else f"backfills/{run.backfill}/{name}"


def _nearest(pages: Sequence[Found], checked: datetime) -> Found:
    """The page that was stored nearest to the end of the check. Attempts are a whole run apart, clocks differ by
    less."""

    def apart(page: Found) -> timedelta:
        return abs(page.stored - checked)

    return min(pages, key=apart)
