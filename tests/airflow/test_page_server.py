"""Coset's pages below a real `airflow api-server` on loopback, at a base path, with users who log in."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urljoin

import httpx
import pytest

from partitioning.documents.document import canonical
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from tests.small import until

USERS = "ada:admin,vic:viewer,nobody:"
PAGE = "<!DOCTYPE html>\n<html><body>the index</body></html>"
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = store_at(str(tmp_path_factory.mktemp("store")))
    store.put("tail_activity/docs/index.html", PAGE.encode())
    newest = {"batch": 0, "attempt": 0, "success": True, "summary": "all met"}
    row = {"pipeline": "tail_activity", "newest": newest, "proved": newest}
    store.put("docs/pipelines/tail_activity.json", canonical(row))
    return store


@pytest.fixture(scope="module")
def base(known_dags: Path, pages: Store) -> Iterator[str]:
    """The address of Airflow's page."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    address = f"http://127.0.0.1:{port}/af"
    settings = {
        "AIRFLOW__API__BASE_URL": address,
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": USERS,
        "COSET_STORE": pages.root,
    }
    command = [str(Path(sys.executable).with_name("airflow")), "api-server", "--host", "127.0.0.1", "--port", port]
    with (known_dags / "api-server.log").open("wb") as log:
        started = subprocess.Popen(
            command, env=os.environ | settings, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        assert until(lambda: _answers(f"{address}/api/v2/version"), within=120), log.name
        yield address
    finally:
        os.killpg(started.pid, signal.SIGTERM)
        started.wait(60)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url).status_code == 200
    except httpx.TransportError:
        return False


def browser(base: str, home: Path, user: str) -> httpx.Client:
    """A client that has logged in as its browser would, and keeps the cookie."""
    passwords = json.loads((home / "simple_auth_manager_passwords.json.generated").read_text())
    token = httpx.post(f"{base}/auth/token", json={"username": user, "password": passwords[user]}).json()
    return httpx.Client(cookies={"_token": token["access_token"]}, follow_redirects=True)


def test_the_tabs_and_the_menu_show_who_is_logged_in_the_pages(base, known_dags):
    with browser(base, known_dags, "vic") as vic, browser(base, known_dags, "ada") as ada:
        plugins = {plugin["name"]: plugin for plugin in ada.get(f"{base}/api/v2/plugins").json()["plugins"]}
        views = {view["destination"]: view["href"] for view in plugins["coset"]["external_views"]}
        assert set(views) == {"nav", "dag", "dag_run"}
        # Airflow's pages fill them in, and name their base path as that of relative addresses.
        hrefs = {
            place: urljoin(f"{base}/", href.replace("{DAG_ID}", "tail_activity").replace("{RUN_ID}", "manual__1%3A0"))
            for place, href in views.items()
        }
        for place in ("dag", "dag_run"):
            answer = vic.get(hrefs[place])
            assert (answer.status_code, answer.text) == (200, PAGE)
            assert "default-src 'none'" in answer.headers["content-security-policy"]
            assert str(answer.url) == f"{base}/coset/dags/tail_activity/index.html"
        menu = vic.get(hrefs["nav"]).text
        assert 'href="dags/tail_activity/index.html"' in menu
        alone = vic.get(hrefs["dag"], headers={"Sec-Fetch-Dest": "document"})
        assert 'href="../../../dags/tail_activity"' in alone.text
        assert urljoin(str(alone.url), "../../../dags/tail_activity") == f"{base}/dags/tail_activity"


def test_who_is_not_logged_in_or_has_no_role_that_may_is_shown_nothing(base, known_dags):
    for path in ("", "dags/tail_activity/index.html", "dags/tail_activity/run?run_id=a"):
        assert httpx.get(f"{base}/coset/{path}").status_code == 401
        assert httpx.get(f"{base}/coset/{path}", cookies={"_token": "made.up.token"}).status_code in {401, 403}
    with browser(base, known_dags, "nobody") as nobody:
        answer = nobody.get(f"{base}/coset/dags/tail_activity/index.html")
        assert answer.status_code == 403
        assert "Your role in Airflow may not see this DAG." in answer.text
        assert "tail_activity" not in nobody.get(f"{base}/coset/").text
