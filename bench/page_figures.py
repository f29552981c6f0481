"""Figures that a benchmark writes into a page, between the marks that it knows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

_END = "<!-- end -->"


def put(page: Path, command: str, lines: Iterable[str]) -> None:
    """Put these lines in place of the figures of that command. Raises ValueError if the page has no place for them."""
    begin = f"<!-- figures of {command} -->"
    text = "\n".join((begin, "", *lines, "", _END))
    whole, count = re.subn(f"{re.escape(begin)}.*?{re.escape(_END)}", lambda _: text, page.read_text(), flags=re.S)
    if not count:
        raise ValueError(f"{page} has no line {begin}")
    page.write_text(whole)


def table(columns: Sequence[str], *rows: Sequence[str]) -> Iterator[str]:
    """A table of Markdown."""
    yield from (f"| {' | '.join(columns)} |", f"| --- |{' --: |' * (len(columns) - 1)}")
    yield from (f"| {' | '.join(row)} |" for row in rows)
