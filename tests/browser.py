"""A browser, as people have it: headless Chromium, light or dark, in a window of any width; axe-core looks for what
keeps people from reading a page.

The fixture `browser` is in `conftest.py`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Frame, Page, sync_playwright

# A phone's width, and that of a large screen.
WIDTHS = (390, 1600)
Colours = Literal["light", "dark"]
COLOURS: tuple[Colours, ...] = ("light", "dark")


@contextmanager
def chromium() -> Iterator[Browser]:
    """Debian's Chromium. Each test opens contexts of its own in it: they share neither cookies nor anything else."""
    found = shutil.which("chromium")
    assert found, "Tests of pages need a browser: apt-get install chromium"
    # Until it ends, this thread has a loop of events that runs: asyncio.run() does not work in the tests of a module
    # that uses it.
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=["--disable-gpu"])
        try:
            yield started
        finally:
            started.close()


@contextmanager
def opened(browser: Browser, address: str | Path, *, width: int = 1600, colours: Colours = "light") -> Iterator[Page]:
    """A page in a window of that width, by its address or its file. The page must raise no error of its own."""
    wanted = address if isinstance(address, str) else address.resolve().as_uri()
    with browser.new_context(color_scheme=colours, viewport={"width": width, "height": 900}) as context:
        page = context.new_page()
        errors = list[str]()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(wanted)
        yield page
        assert not errors, errors


def violations(page: Page | Frame) -> list[str]:
    """What axe-core finds wrong in a page, or in a frame of it: the rule, the element and why, a line for each."""

    def why(node: dict[str, Any]) -> str:
        return f"{node['html'][:200]} at {node['target']}: {' '.join(node['failureSummary'].split())}"

    found = Axe().run(page).response["violations"]
    return [f"{rule['id']} ({rule['impact']}): {why(node)}" for rule in found for node in rule["nodes"]]


def sideways(page: Page | Frame) -> int:
    """By how many pixels a page is wider than its window: readers would have to scroll to the side."""
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))
