"""Data Docs in a real S3 store, which everybody can read: axe-core finds nothing, light and dark."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import boto3
import pytest
from playwright.sync_api import Browser

from coset.batches import steps
from coset.batches.auditing.audit import audit
from coset.batches.auditing.audit_tables import load
from coset.reports.batch_index import published
from coset.reports.site import Site
from demo.s3_server import S3Server
from expectations.checkpoint import judge
from expectations.questions import Evidence
from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from partitioning.model.verdict import Commit
from tests.browser import COLOURS, WIDTHS, Colours, opened, sideways, violations
from tests.evidence import first_of_all
from tests.real_pages import leave_pages
from tests.reference import log, pipeline, planned, run
from tests.reference import store as receipts
from tests.refused import finding_of
from tests.running import run_and_publish, run_groups
from tests.small import small_batch

TAILS = [f"N{number}" for number in range(30)]


@pytest.fixture
def docs(store: Store, tmp_path: Path) -> Store:
    """A store with the Data Docs of one proved batch, whose audit went through the store too."""
    made = pipeline()
    records = log(made, {"flights": TAILS, "planes": TAILS})
    plan = planned(made, records)
    memory = receipts(plan, run(plan, records)).store
    for entry in memory.list(""):
        store.put_new(entry.key, memory.get(entry.key) or b"")
    ledger = Ledger(store, plan.pipeline)
    audit(ledger, plan, 0)
    audited, before = load(ledger, plan, 0), first_of_all(plan)
    assert judge(plan, Evidence(**vars(audited), **vars(before)), {}, attempt=0, site=Site(tmp_path, store)).success
    # The pages of lists are written by who publishes.
    published(Site(tmp_path, store), plan.pipeline, 0, Commit(digest(plan), plan.batch, "", ()), {})
    return store


@pytest.mark.usefixtures("s3")
def test_browsers_are_told_that_pages_are_html(docs: Store) -> None:
    root = urlsplit(docs.root)
    kinds = {
        entry.key: boto3.client("s3").head_object(Bucket=root.netloc, Key=f"{root.path[1:]}/{entry.key}")["ContentType"]
        for entry in docs.list("delays/docs/")
    }
    assert kinds == {
        "delays/docs/batch-0-attempt-0.html": "text/html",
        "delays/docs/index.html": "text/html",
        "delays/docs/index.json": "application/json",
    }


def test_the_folder_holds_what_the_store_holds(docs: Store, tmp_path: Path) -> None:
    for entry in docs.list("delays/docs/batch"):
        assert docs.get(entry.key) == (tmp_path / "delays" / Path(entry.key).name).read_bytes()


def test_a_folder_that_cannot_be_written_is_told_before_anything_runs(s3: S3Server, tmp_path: Path) -> None:
    batch, file = small_batch(), tmp_path / "docs"
    file.write_text("a file, and no folder")
    finding = finding_of(run_and_publish, batch.ref, file)
    assert finding.what.startswith("the Data Docs cannot be written: ")
    assert finding.where == str(file)
    assert "COSET_DOCS" in finding.then
    assert batch.ledger.receipt(0, 0, 0) is None
    # What it advises is all that is needed.
    run_and_publish(batch.ref, tmp_path / "other")
    assert batch.ledger.commit(0) is not None


def test_a_folder_that_becomes_one_that_cannot_be_written_loses_nothing(s3: S3Server, tmp_path: Path) -> None:
    batch, file = small_batch(), tmp_path / "docs"
    run_groups(batch.ref)
    steps.audit(batch.ref)
    file.write_text("a file, and no folder")
    for _ in range(3):
        with pytest.raises(Refused, match="the Data Docs cannot be written: "):
            steps.check(batch.ref, file)
    # The batch does not wait for anybody: nothing of it was found wrong.
    assert batch.ledger.attempt(0) == 0
    assert "is decided: publish" in steps.check(batch.ref, tmp_path / "other")


def test_without_a_folder_a_batch_is_published_and_no_page_is_made(s3: S3Server) -> None:
    batch = small_batch()
    run_and_publish(batch.ref, None)
    assert batch.ledger.commit(0) is not None
    assert [entry.key for entry in batch.ledger.store.list("") if entry.key.endswith(".html")] == []
    assert "Data Docs" not in steps.report(batch.ref, None)


PAGES = (
    "index.html",
    "delays/index.html",
    "delays/batch-0-attempt-0.html",
    "delays/batch-2-attempt-0.html",
    "delays/backfill-0.html",
)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with them."""
    folder = tmp_path_factory.mktemp("docs")
    with pytest.MonkeyPatch.context() as environment:
        leave_pages(store_at(str(tmp_path_factory.mktemp("store"))), folder, environment)
    return folder


@pytest.mark.parametrize("colours", COLOURS)
@pytest.mark.parametrize("width", WIDTHS)
def test_axe_core_finds_nothing(pages: Path, browser: Browser, width: int, colours: Colours) -> None:
    found = dict[str, tuple[list[str], int]]()
    for name in PAGES:
        with opened(browser, pages / name, width=width, colours=colours) as page:
            page.evaluate("for (const folded of document.querySelectorAll('details')) folded.open = true")
            found[name] = violations(page), sideways(page)
    assert found == {name: ([], 0) for name in PAGES}


@pytest.mark.long
def test_a_printed_page_is_light_and_nothing_of_it_lies_beside_the_paper(pages: Path, browser: Browser) -> None:
    # What A4 leaves between its margins, in the pixels of CSS.
    for name in PAGES:
        with opened(browser, pages / name, width=688, colours="dark") as page:
            page.emulate_media(media="print")
            # Chromium answers before it has changed over.
            page.wait_for_function("matchMedia('print').matches")
            colour = "getComputedStyle(document.body).backgroundColor"
            assert (name, sideways(page), page.evaluate(colour)) == (name, 0, "rgb(255, 255, 255)")
            assert page.locator("nav").first.is_hidden()
            folded = page.locator("main > details > table")
            assert all(table.is_visible() for table in folded.all())


def test_a_page_that_is_hard_to_read_is_found(browser: Browser, tmp_path: Path) -> None:
    (page := tmp_path / "page.html").write_text(
        '<!DOCTYPE html>\n<html lang="en"><title>Grey</title><main><h1>Grey</h1>'
        '<p style="color: #aaa; background: #fff; width: 500px">on white</p></main></html>'
    )
    with opened(browser, page, width=390) as opening:
        (found,) = violations(opening)
        assert found.startswith("color-contrast (serious): <p style=")
        assert sideways(opening) > 100
