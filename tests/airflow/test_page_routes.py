"""Coset's pages in Airflow, in its own web application with its own users, over a store in a folder."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fastapi.testclient import TestClient

from coset.reports.templates import template
from partitioning.documents.document import canonical

if TYPE_CHECKING:
    from partitioning.documents.store import Store

USERS = {"ada": "admin", "vic": "viewer", "nobody": ""}
PAGE = b"<!DOCTYPE html>\n<html><body>\n  <h1>tail_activity: batch 0</h1></body></html>"
DOCS = "coset/dags/tail_activity"
AGAIN = "coset/dags/tail_activity_backfill"


@pytest.fixture(scope="module")
def served(known_dags: Path) -> Iterator[TestClient]:
    """Airflow's web application."""
    with pytest.MonkeyPatch.context() as environment:
        users = ",".join(f"{name}:{role}" for name, role in USERS.items())
        environment.setenv("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS", users)
        environment.setenv("AIRFLOW__API_AUTH__JWT_SECRET", "known to this test only, " * 3)
        from airflow.api_fastapi.app import create_app, purge_cached_app

        purge_cached_app()
        with TestClient(create_app("core"), follow_redirects=False) as client:
            yield client
        purge_cached_app()


@pytest.fixture
def pages(store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store with pages of two attempts of a batch, and of a backfill; COSET_STORE names it."""
    names = ("index", "batch-0-attempt-0", "batch-0-attempt-1", "batches-0", "backfill-2")
    for key in (*(f"tail_activity/docs/{name}.html" for name in names), "tail_activity/docs/index.json"):
        store.put(key, PAGE)
    store.put("tail_activity.backfill-2/docs/batch-0-attempt-0.html", PAGE)
    newest = {"batch": 0, "attempt": 1, "success": True, "summary": "all met"}
    for name in ("tail_activity", "hidden"):
        store.put(f"docs/pipelines/{name}.json", canonical({"pipeline": name, "newest": newest, "proved": newest}))
    store.put("tail_activity/plans/0.html", b"secret")
    monkeypatch.setenv("COSET_STORE", store.root)
    return store


@pytest.fixture
def get(served: TestClient) -> Callable:
    """What the web application answers, to a user if one is named."""

    def got(path: str, user: str | None = "vic", **headers: str):
        from airflow.api_fastapi.app import get_auth_manager
        from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

        if user is not None:
            token = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username=user, role=USERS[user]))
            headers["Authorization"] = f"Bearer {token}"
        return served.get(f"/{path}", headers=headers)

    return got


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A store that takes requests and answers none; COSET_STORE names it."""
    with socket.create_server(("127.0.0.1", 0)) as listens:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{listens.getsockname()[1]}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        monkeypatch.setenv("COSET_STORE", "s3://test/silent")
        yield


@pytest.mark.parametrize(
    "path",
    [
        *(f"{DOCS}/{name}" for name in ("index.html", "batch-0-attempt-1.html", "batches-0.html", "backfill-2.html")),
        *(f"{AGAIN}/{name}" for name in ("index.html", "backfills/2/batch-0-attempt-0.html")),
        "coset/dags/tail_activity_undo/backfill-2.html",
    ],
)
def test_a_page_is_shown_as_it_is_and_browsers_may_run_nothing_of_it(pages, get, path):
    answer = get(path)
    assert (answer.status_code, answer.content) == (200, PAGE)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    rules = answer.headers["content-security-policy"].split("; ")
    assert {"default-src 'none'", "frame-ancestors 'self'", "sandbox allow-same-origin"} <= set(rules)
    assert not any("script" in rule for rule in rules)
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "path",
    [
        *(f"{DOCS}/{name}" for name in ("index.json", "style.css", "INDEX.html", "index.html.gz", "xindex.html")),
        *(f"{DOCS}/batch-{number}-attempt-0.html" for number in ("-1", "٣", "1" * 19, "0/../1")),
        *(f"{DOCS}/{way}plans%2F0.html" for way in ("..%2F", "..%5C", "%2e%2e/", "..%2f..%2ftail_activity%2f")),
        f"{DOCS}/..%2Fdocs%2Findex.html",
        f"{DOCS}/index.html%00",
        f"{DOCS}/index.html%0A",
        f"{AGAIN}/backfills/-2/batch-0-attempt-0.html",
        f"{AGAIN}/backfills/2/..%2findex.html",
        "coset/openapi.json",
        "coset/docs",
        "coset/docs/pipelines/tail_activity.json",
    ],
)
def test_only_the_names_of_pages_are_served(pages, get, path):
    answer = get(path)
    assert answer.status_code in {404, 422}
    assert "secret" not in answer.text
    assert "batch 0</h1>" not in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize("path", ["", "dags/tail_activity/index.html", "dags/tail_activity/run?run_id=a", "dags/x/y"])
def test_who_is_not_logged_in_is_told_what_airflow_tells_him(pages, get, path):
    answer = get(f"coset/{path}", user=None)
    assert (answer.status_code, answer.json()) == (401, {"detail": "Not authenticated"})


def test_a_person_who_is_not_logged_in_is_led_to_the_login_and_in_a_frame_reads_so(pages, get):
    to = get(f"{DOCS}/run?run_id=a%2Bb", user=None, **{"Sec-Fetch-Dest": "document"})
    login = "/api/v2/auth/login?next=%2Fcoset%2Fdags%2Ftail_activity%2Frun%3Frun_id%3Da%252Bb"
    assert (to.status_code, to.headers["location"]) == (307, login)
    framed = get(f"{DOCS}/index.html", user=None, **{"Sec-Fetch-Dest": "iframe"})
    assert framed.status_code == 401
    assert "You are not logged in" in framed.text
    # Who is logged in is not sent there once more.
    assert get("coset/dags/tail_activity/index.html", "nobody", **{"Sec-Fetch-Dest": "document"}).status_code == 403


@pytest.mark.parametrize("path", ["index.html", "run?run_id=a", "backfills/2/batch-0-attempt-0.html", "y.html"])
def test_a_role_that_may_not_see_the_dag_is_refused_in_a_sentence(pages, get, path):
    for dag in ("tail_activity", "tail_activity_backfill", "unknown"):
        answer = get(f"coset/dags/{dag}/{path}", user="nobody")
        assert answer.status_code == 403
        assert "Your role in Airflow may not see this DAG." in answer.text
        assert "batch 0" not in answer.text


def test_who_may_not_see_the_pipelines_dag_does_not_see_its_pages_by_its_backfills(pages, get, served, monkeypatch):
    from airflow.api_fastapi.app import get_auth_manager

    may = get_auth_manager().is_authorized_dag

    def but_one(*, details, **more):
        return details.id != "tail_activity" and may(details=details, **more)

    monkeypatch.setattr(get_auth_manager(), "is_authorized_dag", but_one)
    assert get(f"{AGAIN}/index.html").status_code == 403
    assert "tail_activity" not in get("coset/").text
    monkeypatch.undo()
    monkeypatch.setenv("COSET_STORE", pages.root)
    assert get(f"{AGAIN}/index.html").status_code == 200


@pytest.mark.parametrize("dag", ["other", "unknown", ".."])
def test_a_dag_that_is_not_cosets_gets_a_sentence(pages, get, dag):
    for path in ("index.html", "run?run_id=manual"):
        answer = get(f"coset/dags/{dag.replace('..', '%2e%2e')}/{path}")
        assert answer.status_code == 404
        assert "This DAG is not one of Coset" in answer.text or "There is no such page" in answer.text


@pytest.mark.parametrize(("path", "to"), [("", ""), ("docs/index.html", "../")])
def test_the_overview_has_the_pipelines_that_a_user_may_see_by_relative_links(pages, get, path, to):
    page = get(f"coset/{path}").text
    assert f'href="{to}dags/tail_activity/index.html"' in page
    # It has no attempt, there is no DAG of it, and it is a DAG's and no pipeline's.
    assert not any(f"dags/{name}" in page for name in ("airport_traffic", "hidden", "tail_activity_backfill"))
    answer = get(f"coset/{path}", user="nobody")
    assert answer.status_code == 404
    assert "No pipeline that you may see has an attempt yet" in answer.text


def test_a_page_that_is_not_written_yet_is_said_to_be_so_and_a_run_that_planned_nothing_leads_to_the_index(
    pages, get
) -> None:
    answer = get("coset/dags/airport_traffic/index.html")
    assert answer.status_code == 404
    assert "There is no such page of airport_traffic yet" in answer.text
    answer = get(f"{DOCS}/run?run_id=never/was")
    assert (answer.status_code, answer.headers["location"]) == (307, "index.html")


def test_a_page_out_of_airflows_frames_leads_back_and_in_them_cannot(pages, get):
    def back(path, where):
        return get(path, **{"Sec-Fetch-Dest": where}).text

    link = 'tail_activity">DAG tail_activity in Airflow</a></nav>'
    assert f'<body><nav><a href="../../../dags/{link}' in back(f"{DOCS}/index.html", "document")
    assert '<body><nav><a href="../../../../../dags/' in back(f"{AGAIN}/backfills/2/batch-0-attempt-0.html", "document")
    assert back(f"{DOCS}/index.html", "iframe") == PAGE.decode()
    pages.put("tail_activity/docs/index.html", template("sentence.html").render(title="All", what="of it").encode())
    assert '<main><nav><a href="../../../dags/tail_activity">' in back(f"{DOCS}/index.html", "document")


@pytest.mark.parametrize("root", ["", "relative", "s3://nowhere/coset"])
def test_a_store_that_is_away_is_a_sentence_and_says_nothing_of_itself(get, monkeypatch, root):
    monkeypatch.setenv("COSET_STORE", root)
    # Nothing listens there.
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-for-pages")
    answer = get(f"{DOCS}/index.html")
    assert answer.status_code == 503
    assert "The store of the pages cannot be read now" in answer.text
    assert not any(word in answer.text for word in ("nowhere", "127.0.0.1", "AKIDEXAMPLE", "not-for-pages"))


def test_a_run_in_a_deployment_whose_web_server_knows_no_store_is_a_sentence(get, monkeypatch):
    monkeypatch.delenv("COSET_STORE", raising=False)
    answer = get(f"{DOCS}/run?run_id=a")
    assert answer.status_code == 503
    assert "it needs COSET_STORE" in answer.text


def test_a_store_that_is_silent_costs_a_user_the_limit_and_others_nothing(silent, get, monkeypatch):
    from coset.airflow import page_routes

    monkeypatch.setattr(page_routes, "SECONDS", 3.0)
    with ThreadPoolExecutor(8) as users:
        began = time.monotonic()
        waiting = [users.submit(get, f"{DOCS}/index.html") for _ in range(8)]
        time.sleep(0.5)
        assert not any(answer.done() for answer in waiting)
        assert get("coset/dags/other/index.html").status_code == 404
        assert time.monotonic() - began < 2.5
        answers = [answer.result() for answer in waiting]
    assert time.monotonic() - began < 6
    assert {answer.status_code for answer in answers} == {503}


def test_a_run_leads_to_the_attempt_that_it_checked(pages):
    from datetime import datetime, timedelta

    from coset.airflow.page_routes import RunBatch, page_of_run

    first, second = pages.page("tail_activity/docs/batch-0-attempt-", "").objects

    def page(checked: datetime | None, batch: int = 0, backfill: int | None = None, compared: bool = False) -> str:
        return page_of_run(pages, RunBatch("tail_activity", batch, backfill, checked, compared))

    assert page(first.stored - timedelta(hours=1)) == "batch-0-attempt-0.html"
    assert page(second.stored + timedelta(seconds=2)) == "batch-0-attempt-1.html"
    assert page(None) == page(second.stored, batch=1) == page_of_run(pages, None) == "index.html"
    assert page(first.stored, backfill=2) == "backfills/2/batch-0-attempt-0.html"
    assert page(first.stored, backfill=2, compared=True) == "backfill-2.html"


def test_what_another_store_or_pipeline_planned_is_not_taken_for_the_runs_batch():
    from coset.airflow.page_routes import _planned

    def planned(uri: object) -> object:
        return _planned({"plan_uri": uri}, "p", "s3://coset")

    assert planned("s3://coset/p/plans/12.json.gz") == (None, 12)
    assert planned("s3://coset/p.backfill-3/plans/4.json.gz") == (3, 4)
    others = ("s3://other/p/plans/1.json.gz", "s3://coset/q/plans/1.json.gz", "s3://coset/p/plans/../1.json.gz", "", 1)
    assert [planned(uri) for uri in others] == [None] * len(others)
    assert _planned("s3://xcom/elsewhere", "p", "s3://coset") is None
    assert _planned(None, "p", "s3://coset") is None


def test_a_check_that_fails_leads_to_the_page_too(known_dags, tmp_path, monkeypatch):
    from airflow.dag_processing.dagbag import DagBag
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    (tmp_path / "failing.py").write_text(
        "from airflow.sdk import DAG, task\n"
        "from coset.airflow.plugin import linked\n\n"
        "@task\ndef check():\n    raise ValueError\n\n"
        'with DAG("failing") as dag:\n    linked(check())\n'
    )
    local = {"classpath": "airflow.dag_processing.bundles.local.LocalDagBundle", "kwargs": {"path": str(tmp_path)}}
    monkeypatch.setenv("AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST", json.dumps([{"name": "failing"} | local]))
    run = DagBag(dag_folder=str(tmp_path)).dags["failing"].test()
    assert run.state == "failed"
    with create_session() as session:
        left = session.scalars(select(XComModel.value).where(XComModel.run_id == run.run_id)).all()
    assert left == [f"dags/failing/runs/{run.run_id}/plugin/coset_run"]
