"""Output: tables, sentences and JSON on stdout, findings and progress on stderr."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.status import Status
from rich.table import Table
from typer.core import TyperCommand

from coset.cli import open_files
from coset.cli.pipelines import shown
from partitioning.errors import CosetError, Finding, Refused
from partitioning.kinds import Kind
from partitioning.texts import MOST_IN_A_CELL, in_json, visible

# Lines that go into a file or a pipe are never wrapped: their reader is a program, or has a wider window.
_UNWRAPPED = 10_000


class Command(TyperCommand):
    """A command whose refusals are findings on stderr, as JSON if `--json` was given, and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            try:
                open_files.check_limit()
                return super().invoke(ctx)
            finally:
                # What cannot be written is told like all else that is wrong.
                sys.stdout.flush()
        except CosetError as error:
            show_error(error, as_json=bool(ctx.params.get("as_json")))
            ctx.exit(error.exit_code)


def check_reason(why: str, what: str) -> None:
    """Raise Refused if a reason says nothing of `what` it is to say."""
    if not why.strip():
        raise Refused(Finding(Kind.ARGUMENT, "the reason is empty", "--why", f"say in some words {what}"))


def console(*, stderr: bool = False) -> Console:
    """A console; its lines are wrapped in a terminal only."""
    if stderr and _NOW.console is not None:
        return _NOW.console
    terminal = (sys.stderr if stderr else sys.stdout).isatty()
    return Console(stderr=stderr, highlight=False, emoji=False, width=None if terminal else _UNWRAPPED)


def show(*lines: str) -> None:
    """Sentences on stdout, each on a line of its own."""
    for line in lines:
        say(console(), line)


def show_page(page: str) -> None:
    """A page that has been made for people, such as one of Markdown, on stdout."""
    show(*page.split("\n"))


def show_json(value: Any) -> None:
    """A value as JSON on stdout."""
    print(in_json(json.dumps(value, ensure_ascii=False)))


def say(to: Console, line: str, style: str | None = None) -> None:
    """A sentence: its control characters are shown, and obeyed by no terminal."""
    to.print(visible(line), style=style, markup=False, soft_wrap=not to.is_terminal)


def show_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], notes: Iterable[str] = ()) -> None:
    """A title, sentences, and a table below them: numbers to the right, no trailing spaces."""
    cells = [[_text(value) for value in row] for row in rows]
    values = [[row[number] for row in cells] for number in range(len(columns))]
    to = console()
    say(to, title, "bold")
    for note in notes:
        say(to, note)
    if cells:
        table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for name, column in zip(columns, values, strict=True):
            table.add_column(
                escape(visible(name, MOST_IN_A_CELL)), justify="right" if _numeric(column) else "left", overflow="fold"
            )
        for row in cells:
            table.add_row(*(escape(visible(cell, MOST_IN_A_CELL)) for cell in row))
        _print_stripped(to, table)
    to.print()


def show_error(error: CosetError, *, as_json: bool) -> None:
    """All findings of an error on stderr."""
    if as_json:
        findings = [finding.plain(shown()) for finding in error.findings]
        told = {"error": type(error).__name__, "findings": findings}
        print(in_json(json.dumps(told, ensure_ascii=False)), file=sys.stderr)
        return
    to = console(stderr=True)
    count = f": {len(error.findings)} findings" if len(error.findings) > 1 else ""
    to.print(f"[bold red]{type(error).__name__}[/]{count}", soft_wrap=True)
    for finding in error.findings:
        to.print(finding.shown(shown()), markup=False, soft_wrap=True)


def progress(name: str, text: str) -> None:
    """A line on stderr about something that was done within a step."""
    say(console(stderr=True), f"       {name:14}           {text}")


@contextmanager
def step(name: str) -> Iterator[list[str]]:
    """Show on stderr that `name` is being done, then how long it took and the text put into the list.

    A step that fails says so before its error goes on. Several may be done at once, by threads.
    """
    started, said = time.monotonic(), list[str]()

    def end(word: str, style: str | None = None) -> None:
        line = f"{word:6} {name:14} {time.monotonic() - started:6.1f} s  {' '.join(said)}".rstrip()
        _NOW.end(name, line, style)

    _NOW.begin(name)
    try:
        yield said
    except BaseException:
        end("failed", "red")
        raise
    end("ok")


class _Now:
    """The last line of a terminal, which says what is being done: there is only one, whoever does something."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._names: list[str] = []
        self._line: Status | None = None

    @property
    def console(self) -> Console | None:
        """What to print to so that the line stays the last; None while there is none."""
        line = self._line
        return None if line is None else line.console

    def begin(self, name: str) -> None:
        with self._lock:
            self._erase()
            self._names.append(name)
            self._draw()

    def end(self, name: str, said: str, style: str | None) -> None:
        with self._lock:
            self._erase()
            self._names.remove(name)
            say(console(stderr=True), said, style)
            self._draw()

    def _erase(self) -> None:
        if self._line is not None:
            self._line.stop()
            self._line = None

    def _draw(self) -> None:
        to = console(stderr=True)
        if self._names and to.is_terminal:
            self._line = to.status(escape(f"{', '.join(self._names)} …"))
            self._line.start()


_NOW = _Now()


def _print_stripped(to: Console, table: Table) -> None:
    if to.is_terminal:
        to.print(table)
        return
    with to.capture() as captured:
        to.print(table)
    to.file.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def _text(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "–"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.2f}" if isinstance(value, float) else str(value)


def _numeric(cells: Sequence[str]) -> bool:
    """Whether a column holds numbers only, however they were written."""
    stripped = [cell.replace(",", "").replace(".", "").removeprefix("-") for cell in cells if cell != "–"]
    return bool(stripped) and all(cell.isdecimal() for cell in stripped)
