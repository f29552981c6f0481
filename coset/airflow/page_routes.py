"""Coset's pages in Airflow's web server: the Data Docs of the store, for users who may see the DAG.

Airflow does not authenticate the routes of plugins, so each route calls Airflow's own dependencies. The page of a DAG
run is found by its tasks in Airflow's database and by when pages were stored.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, TypeVar
from urllib.parse import quote, urlencode

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from airflow.models.dag import DagModel, DagTag
from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState
from fastapi import Depends, FastAPI, HTTPException, Request, Response, status
from fastapi.exception_handlers import http_exception_handler
from fastapi.responses import HTMLResponse, RedirectResponse
from markupsafe import Markup
from sqlalchemy import select
from starlette.exceptions import HTTPException as AnyHTTPException

from coset.airflow.deployment import TAG, pipeline_of_dag, store_root
from coset.batches.interpreter import PLAN
from coset.reports.overview import overview_of
from coset.reports.templates import template
from partitioning.documents.store import Found, Store
from partitioning.documents.stores import store_at
from partitioning.errors import CosetError
from partitioning.model.backfill import name_of
from partitioning.model.sources import address_of

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


# Browsers run and load nothing from a page, and only Airflow's own pages may frame it.
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'; "
        "sandbox allow-same-origin"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

_BACK = Markup('<nav><a href="{}">DAG {} in Airflow</a></nav>')


class Unshown(Exception):
    """Raised to answer with a sentence in the place of a page."""

    def __init__(self, status: int, title: str, what: str) -> None:
        super().__init__(title)
        self.status, self.title, self.what = status, title, what

    def answer(self) -> HTMLResponse:
        return HTMLResponse(template("sentence.html").render(title=self.title, what=self.what), self.status)


def shown(request: Request, page: bytes, dag_id: str, depth: int) -> HTMLResponse:
    """A page of the store, `depth` folders below Airflow's base path. Outside of Airflow's frame it gets a link
    back."""
    if request.headers.get("Sec-Fetch-Dest") == "document":
        back = _BACK.format(f"{'../' * depth}dags/{quote(dag_id, safe='')}", dag_id)
        # Pages of earlier versions have no <main>.
        begin = b"<main>" if b"<main>" in page else b"<body>"
        page = page.replace(begin, begin + back.encode(), 1)
    return HTMLResponse(page)


def to_log_in(request: Request, refused: AnyHTTPException) -> Response | None:
    """For a person whom Airflow does not know, its login, which leads back; in a frame, where it cannot be, a sentence.
    None for a program, and for who is known."""
    # What Airflow's own pages take for that.
    unknown = refused.status_code == status.HTTP_401_UNAUTHORIZED or refused.detail == "Invalid JWT token"
    match request.headers.get("Sec-Fetch-Dest") if unknown else None:
        case "document":
            asked = f"{request.url.path}?{request.url.query}".rstrip("?")
            airflow = request.scope["root_path"].rpartition("/")[0]
            return RedirectResponse(f"{airflow}/api/v2/auth/login?{urlencode({'next': asked})}")
        case "iframe":
            return Unshown(refused.status_code, "You are not logged in", "Reload Airflow's page to log in.").answer()
        case _:
            return None


T = TypeVar("T")

_NUMBER = "[0-9]{1,18}"
_PAGE = re.compile(rf"(?:index|batches-{_NUMBER}|batch-{_NUMBER}-attempt-{_NUMBER}|backfill-{_NUMBER})\.html")
# The store has to answer within this time. It has threads of its own, so that a store that is away blocks neither the
# event loop nor Airflow's threads.
SECONDS = 10.0
_READERS = ThreadPoolExecutor(4, "coset-pages")

_log = logging.getLogger(__name__)

# FastAPI's own pages about the routes are off, because everybody could see them.
app = FastAPI(title="Coset", openapi_url=None, redirect_slashes=False)


def _pipeline(dag_id: str, request: Request, user: GetUserDep) -> str:
    """The pipeline of a DAG, if the user may see the DAG. For a backfill's DAG he must see the pipeline's own too."""
    _check_access(dag_id, request, user)
    with create_session() as session:
        tags = set(session.scalars(select(DagTag.name).where(DagTag.dag_id == dag_id)))
    pipeline = pipeline_of_dag(dag_id, tags)
    if pipeline is None:
        what = "It has no batches and no Data Docs. DAGs that coset_dag has made have them."
        raise Unshown(status.HTTP_404_NOT_FOUND, "This DAG is not one of Coset's", what)
    if pipeline != dag_id:
        _check_access(pipeline, request, user)
    return pipeline


def _check_access(dag_id: str, request: Request, user: BaseUser) -> None:
    try:
        requires_access_dag("GET", param_dag_id=dag_id)(request, user)
    except HTTPException as refused:
        what = "Your role in Airflow may not see this DAG. Ask who grants the roles."
        raise Unshown(refused.status_code, "You may not see this page", what) from refused


Pipeline = Annotated[str, Depends(_pipeline)]


def _batch(dag_id: str, run_id: str, pipeline: Pipeline) -> RunBatch | None:
    try:
        root = address_of(store_root()).rstrip("/")
    except CosetError as error:
        raise _away(error) from error
    return batch_of_run(dag_id, run_id, pipeline, root)


def _pipelines(user: GetUserDep) -> list[str]:
    """The pipelines with an own DAG that the user may see."""
    seen = get_auth_manager().get_authorized_dag_ids(user=user, method="GET")
    wanted = select(DagModel.dag_id).join(DagTag, DagTag.dag_id == DagModel.dag_id)
    with create_session() as session:
        dags = session.scalars(wanted.where(DagTag.name == TAG, DagModel.is_stale.is_(False))).all()
        tags: dict[str, set[str]] = {dag: set() for dag in dags if dag in seen}
        for dag, tag in session.execute(select(DagTag.dag_id, DagTag.name).where(DagTag.dag_id.in_(tags))):
            tags[dag].add(tag)
    return [dag for dag in tags if pipeline_of_dag(dag, tags[dag]) == dag]


Pipelines = Annotated[list[str], Depends(_pipelines)]


@app.get("/")
async def overview(pipelines: Pipelines) -> Response:
    """The overview of the pipelines that the user may see."""
    return await _overview(pipelines, "dags/{}/index.html")


@app.get("/docs/index.html")
async def overview_of_pages(pipelines: Pipelines) -> Response:
    """The overview at the address to which pages of pipelines link."""
    return await _overview(pipelines, "../dags/{}/index.html")


async def _overview(pipelines: list[str], link: str) -> Response:
    page = await _read(lambda store: overview_of(store, pipelines, link.format))
    if page is None:
        what = "An attempt is listed when its checks have ended."
        raise Unshown(status.HTTP_404_NOT_FOUND, "No pipeline that you may see has an attempt yet", what)
    return HTMLResponse(page)


@app.get("/dags/{dag_id}/run")
async def of_run(batch: Annotated[RunBatch | None, Depends(_batch)]) -> Response:
    """Redirect to the page of a run's batch."""
    return RedirectResponse(await _read(lambda store: page_of_run(store, batch)))


@app.get("/dags/{dag_id}/{page}")
async def of_pipeline(request: Request, pipeline: Pipeline, dag_id: str, page: str) -> Response:
    """A page of a pipeline."""
    return shown(request, await _page(pipeline, page), dag_id, 3)


@app.get("/dags/{dag_id}/backfills/{number}/{page}")
async def of_backfill(request: Request, pipeline: Pipeline, dag_id: str, number: int, page: str) -> Response:
    """A page of a batch that a backfill ran again."""
    return shown(request, await _page(name_of(pipeline, max(number, 0)), page), dag_id, 5)


async def _page(pipeline: str, page: str) -> bytes:
    if not _PAGE.fullmatch(page):
        raise _no_page()
    found = await _read(lambda store: store.get(f"{pipeline}/docs/{page}"))
    if found is None:
        what = "A page is written when the checks of a batch have ended."
        raise Unshown(status.HTTP_404_NOT_FOUND, f"There is no such page of {pipeline} yet", what)
    return found


async def _read(does: Callable[[Store], T]) -> T:
    """Read from the store, within the time limit."""
    try:
        asked = asyncio.get_running_loop().run_in_executor(_READERS, lambda: does(store_at(store_root())))
        return await asyncio.wait_for(asked, SECONDS)
    except (CosetError, TimeoutError) as error:
        raise _away(error) from error


def _no_page() -> Unshown:
    return Unshown(status.HTTP_404_NOT_FOUND, "There is no such page", "Begin with the index of the pipeline.")


def _away(error: Exception) -> Unshown:
    """A sentence for users. The error itself goes only to the web server's log."""
    _log.warning("Coset's store cannot be read: %s", error or type(error).__name__)
    what = "Try again later. If it stays so, the log of Airflow's web server says why: it needs COSET_STORE and access."
    return Unshown(status.HTTP_503_SERVICE_UNAVAILABLE, "The store of the pages cannot be read now", what)


@app.exception_handler(Unshown)
def _said(request: Request, error: Unshown) -> Response:
    return error.answer()


@app.exception_handler(AnyHTTPException)
async def _refused(request: Request, error: HTTPException) -> Response:
    """A sentence if there is no route, the way to the login if nobody is logged in, else Airflow's own answer."""
    if error.status_code == status.HTTP_404_NOT_FOUND:
        return _no_page().answer()
    return to_log_in(request, error) or await http_exception_handler(request, error)


@app.middleware("http")
async def _with_headers(request: Request, call: Callable[[Request], Awaitable[Response]]) -> Response:
    response = await call(request)
    response.headers.update(HEADERS)
    return response
