"""People log in to a real `airflow api-server` at a base path, and read Coset's pages in it in a real browser."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urljoin

import httpx
import pytest
from playwright.sync_api import Browser, Frame, Page, Route, expect

from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from tests.browser import COLOURS, WIDTHS, Colours, sideways, violations
from tests.real_pages import leave_pages
from tests.small import until

USERS = "ada:admin,vic:viewer,nobody:"
RUN = "manual__1"
# What the link of a task leads to.
TAB = f"dags/delays/runs/{RUN}/plugin/coset_run"
# What a page would do if it could: change its title, ask the server, leave Airflow's frame.
HOSTILE = (
    '<!DOCTYPE html>\n<html lang="en"><head><title>as it was</title><script>document.title = "run"</script></head>'
    '<body onload="document.title = \'run\'"><h1>Hostile</h1><img src="/af/api/v2/version" onerror="document.title=1">'
    '<form action="/af/api/v2/dags"><button>send</button></form><a href="/af/" target="_top">leave</a></body></html>'
)
DAG = (
    '"""Airflow: a DAG of a pipeline of the tests."""\n\nfrom coset.airflow import coset_dag\n'
    "from tests.pipelines.delays import pipeline\n\ndag = coset_dag(pipeline)\n"
)
pytestmark = pytest.mark.long


@dataclass(frozen=True)
class Served:
    """Airflow's pages at `base`, and the store that they show."""

    base: str
    store: Store
    passwords: dict[str, str]

    def token(self, user: str) -> str:
        given = httpx.post(f"{self.base}/auth/token", json={"username": user, "password": self.passwords[user]})
        return str(given.json()["access_token"])

    def page(self, name: str, dag: str = "delays") -> str:
        """The address of a page of a DAG's pipeline."""
        return f"{self.base}/coset/dags/{dag}/{name}"


@pytest.fixture(scope="module")
def served(known_dags: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """An Airflow that knows the pipeline's DAG and a run of it, whose tasks say that it planned and checked batch 0."""
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db

    store, dags = (store_at(str(tmp_path_factory.mktemp("store"))), tmp_path_factory.mktemp("dags"))
    (dags / "delays.py").write_text(DAG)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    base = f"http://127.0.0.1:{port}/af"
    command = [str(Path(sys.executable).with_name("airflow")), "api-server", "--host", "127.0.0.1", "--port", port]
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AIRFLOW__API__BASE_URL", base)
        # As Airflow does in its tasks.
        environment.setenv("AIRFLOW_CTX_DAG_RUN_ID", RUN)
        leave_pages(store, tmp_path_factory.mktemp("docs"), environment)
        store.put("delays/docs/batches-0.html", HOSTILE.encode())
        sync_bag_to_db(DagBag(dags, bundle_path=dags, bundle_name="dags-folder"), "dags-folder", None)
        environment.setenv("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS", USERS)
        with (known_dags / "api-server.log").open("wb") as log:
            started = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            assert until(lambda: _answers(f"{base}/api/v2/version"), within=240), log.name
            passwords = (known_dags / "simple_auth_manager_passwords.json.generated").read_text()
            airflow = Served(base, store, json.loads(passwords))
            _make_run(airflow)
            yield airflow
        finally:
            os.killpg(started.pid, signal.SIGTERM)
            started.wait(60)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url).status_code == 200
    except httpx.TransportError:
        return False


def _make_run(airflow: Served) -> None:
    run, planned = f"dags/delays/dagRuns/{RUN}", {"plan_uri": f"{airflow.store.root}/delays/plans/0.json.gz"}
    headers = {"Authorization": f"Bearer {airflow.token('ada')}"}
    with httpx.Client(base_url=f"{airflow.base}/api/v2/", headers=headers) as api:
        for answer in (
            api.post("dags/delays/dagRuns", json={"logical_date": None, "dag_run_id": RUN}),
            api.post(f"{run}/taskInstances/plan/xcomEntries", json={"key": "batch", "value": planned}),
            api.patch(f"{run}/taskInstances/check", json={"new_state": "success"}),
            api.post(f"{run}/taskInstances/check/xcomEntries", json={"key": "_link_PageLink", "value": TAB}),
        ):
            answer.raise_for_status()


@contextmanager
def person(browser: Browser, airflow: Served, user: str | None = "vic", width: int = 1600) -> Iterator[Page]:
    """A window of the browser of a person, who may have logged in. It likes no colours of its own."""
    with browser.new_context(color_scheme="null", viewport={"width": width, "height": 900}) as context:
        if user is not None:
            context.add_cookies([{"name": "_token", "value": airflow.token(user), "url": f"{airflow.base}/"}])
        page = context.new_page()
        page.set_default_timeout(60_000)
        expect.set_options(timeout=60_000)
        yield page


def framed(page: Page) -> Frame:
    """The page of Coset's in a page of Airflow's."""
    element = page.wait_for_selector("iframe")
    frame = element and element.content_frame()
    assert frame
    frame.wait_for_selector("h1")
    return frame


def test_who_is_not_logged_in_logs_in_and_is_led_to_the_page(served: Served, browser: Browser) -> None:
    with person(browser, served, None) as page:
        page.goto(served.page("batch-0-attempt-0.html"))
        page.wait_for_url("**/auth/login?**")
        page.fill("input[name=username]", "vic")
        page.fill("input[name=password]", served.passwords["vic"])
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text("delays: batch 0")
        assert page.url == served.page("batch-0-attempt-0.html")
        page.get_by_role("link", name="DAG delays in Airflow").click()
        page.wait_for_url(f"{served.base}/dags/delays")


def test_the_tab_of_a_run_shows_its_batch_light_and_dark_as_airflow_is(served: Served, browser: Browser) -> None:
    from coset.airflow.plugin import PageLink

    assert PageLink().get_link(None, ti_key=SimpleNamespace(dag_id="delays", run_id=RUN)) == TAB  # type: ignore[arg-type]
    with person(browser, served) as page:
        seen = dict[str, tuple[str, str]]()
        for colours in COLOURS:
            page.goto(f"{served.base}/")
            page.evaluate("colours => localStorage.setItem('theme', colours)", colours)
            page.goto(urljoin(f"{served.base}/", TAB))
            frame = framed(page)
            expect(frame.get_by_role("heading", level=1)).to_have_text("delays: batch 0")
            assert frame.url == served.page("batch-0-attempt-0.html")
            back = "getComputedStyle(document.body).backgroundColor"
            seen[colours] = (frame.evaluate(back), page.evaluate("document.documentElement.style.colorScheme"))
        assert seen == {"light": ("rgb(255, 255, 255)", "light"), "dark": ("rgb(21, 24, 30)", "dark")}
        tab = page.get_by_role("link", name="Data Docs")
        assert tab.get_attribute("href") == f"/af/{TAB}"
        frame.get_by_role("link", name="All batches of delays").click()
        expect(frame.get_by_role("heading", level=1)).to_have_text("delays")


def test_a_page_leads_to_its_run_and_the_run_and_its_task_lead_back(served: Served, browser: Browser) -> None:
    with person(browser, served) as page:
        page.goto(served.page("batch-0-attempt-0.html"))
        page.get_by_role("link", name=RUN).first.click()
        page.wait_for_url(f"{served.base}/dags/delays/runs/{RUN}**")
        page.get_by_role("link", name="Data Docs").click()
        expect(framed(page).get_by_role("heading", level=1)).to_have_text("delays: batch 0")
        page.goto(f"{served.base}/dags/delays/runs/{RUN}/tasks/check/details")
        page.get_by_role("link", name="Data Docs").last.click()
        page.wait_for_url(f"{served.base}/{TAB}")
        expect(framed(page).get_by_role("heading", level=1)).to_have_text("delays: batch 0")


def test_the_menu_leads_to_the_pipelines_that_one_may_see_and_to_their_batches(
    served: Served, browser: Browser
) -> None:
    with person(browser, served) as page:
        page.goto(f"{served.base}/")
        page.get_by_role("button", name="Browse").click()
        page.get_by_role("menuitem", name="Coset").click()
        frame = framed(page)
        expect(frame.get_by_role("heading", level=1)).to_have_text("All pipelines")
        frame.get_by_role("link", name="delays").click()
        expect(frame.get_by_role("heading", level=1)).to_have_text("delays")
        frame.get_by_role("region", name="Batches").locator("td a[href='batch-2-attempt-0.html']").click()
        expect(frame.get_by_role("heading", level=1)).to_have_text("delays: batch 2")
        frame.get_by_role("link", name="All batches of delays").click()
        frame.get_by_role("link", name="All pipelines").click()
        expect(frame.get_by_role("heading", level=1)).to_have_text("All pipelines")


def test_the_tab_of_a_dag_has_all_batches_and_that_of_another_dag_a_sentence(served: Served, browser: Browser) -> None:
    with person(browser, served) as page:
        page.goto(f"{served.base}/dags/delays")
        page.get_by_role("link", name="Data Docs").click()
        expect(framed(page).get_by_role("heading", level=1)).to_have_text("delays")
        page.goto(f"{served.base}/dags/other/plugin/coset_dag")
        expect(framed(page).get_by_role("heading", level=1)).to_have_text("This DAG is not one of Coset's")


def test_a_role_that_may_not_see_the_dag_reads_so_and_no_page(served: Served, browser: Browser) -> None:
    with person(browser, served, "nobody") as page:
        for name in ("index.html", "batch-0-attempt-0.html", f"run?run_id={RUN}"):
            answer = page.goto(served.page(name))
            assert answer is not None
            assert answer.status == 403
            assert "Your role in Airflow may not see this DAG." in page.inner_text("main")
        page.goto(f"{served.base}/coset/")
        assert "delays" not in page.inner_text("body")


def test_a_session_that_has_ended_is_a_sentence_in_a_frame(served: Served, browser: Browser) -> None:
    with person(browser, served) as page:
        page.goto(f"{served.base}/dags/delays/plugin/coset_dag")
        frame = framed(page)
        page.context.clear_cookies()
        frame.get_by_role("region", name="Batches").locator("td a").first.click()
        expect(frame.get_by_role("heading", level=1)).to_have_text("You are not logged in")


def test_a_store_that_is_away_is_a_sentence_until_it_is_back(served: Served, browser: Browser) -> None:
    folder = Path(served.store.root.removeprefix("file://"))
    with person(browser, served) as page:
        folder.rename(away := folder.with_name("away"))
        # A link to itself leads nowhere.
        folder.symlink_to(folder)
        try:
            page.goto(f"{served.base}/dags/delays/plugin/coset_dag")
            expect(framed(page).get_by_role("heading", level=1)).to_have_text(
                "The store of the pages cannot be read now"
            )
        finally:
            folder.unlink()
            away.rename(folder)
        page.reload()
        expect(framed(page).get_by_role("heading", level=1)).to_have_text("delays")


def test_a_page_runs_nothing_and_goes_nowhere_in_a_frame_or_out_of_it(served: Served, browser: Browser) -> None:
    with person(browser, served) as page:
        answered, refused = list[str](), list[str]()
        page.on("response", lambda answer: answered.append(answer.url))
        page.on("console", lambda message: refused.append(message.text))
        page.goto(served.page("batches-0.html"))
        assert page.title() == "as it was"
        page.get_by_role("button", name="send").click()
        assert page.url == served.page("batches-0.html")
        assert answered == [served.page("batches-0.html")]
        assert any("Content Security Policy" in text for text in refused)
        page.goto(f"{served.base}/dags/delays/plugin/coset_dag")
        frame = framed(page)
        frame.goto(served.page("batches-0.html"))
        frame.get_by_role("link", name="leave").click()
        assert frame.title() == "as it was"
        assert page.url == f"{served.base}/dags/delays/plugin/coset_dag"


def test_pages_of_coset_s_own_keep_their_rules(served: Served, browser: Browser) -> None:
    with person(browser, served) as page:
        said = list[str]()
        page.on("console", lambda message: said.append(message.text))
        for name in ("index.html", "batch-0-attempt-0.html", "batch-2-attempt-0.html", "backfill-0.html"):
            page.goto(served.page(name))
        assert said == []


@pytest.mark.parametrize("colours", COLOURS)
@pytest.mark.parametrize("width", WIDTHS)
def test_axe_core_finds_nothing_in_what_is_answered(
    served: Served, browser: Browser, width: int, colours: Colours
) -> None:
    answers = {
        served.page("batch-0-attempt-0.html"): "delays: batch 0",
        f"{served.base}/coset/": "All pipelines",
        served.page("index.html", "other"): "This DAG is not one of Coset's",
        served.page("batch-7-attempt-0.html"): "There is no such page of delays yet",
    }
    with person(browser, served, width=width) as page:
        page.emulate_media(color_scheme=colours)
        page.route("**/coset/**", _without_rules)
        for address, title in answers.items():
            page.goto(address)
            assert page.inner_text("h1") == title
            assert (violations(page), sideways(page)) == ([], 0)


def _without_rules(route: Route) -> None:
    """Let axe-core run in a page, which forbids all scripts."""
    answer = route.fetch()
    headers = {name: value for name, value in answer.headers.items() if name != "content-security-policy"}
    route.fulfill(response=answer, headers=headers)
