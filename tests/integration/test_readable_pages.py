"""Everybody can read the pages that real batches leave: axe-core finds nothing, light and dark, on a phone and wide."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from partitioning.documents.stores import store_at
from tests.browser import COLOURS, WIDTHS, Colours, opened, sideways, violations
from tests.real_pages import leave_pages

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
