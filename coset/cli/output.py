"""Output: answers, tables and sentences on stdout, findings and progress on stderr.

A command returns an `Answer`. Only here is decided what of it is printed: text for people, or with `--json` its value.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from threading import Lock
from typing import Any, TextIO, TypeVar

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.measure import Measurement
from rich.progress_bar import ProgressBar
from rich.status import Status
from rich.table import Table as Drawn

from coset.cli.pipelines import shown, told
from partitioning.errors import CosetError, Refused
from partitioning.kinds import Kind
from partitioning.sections import Section, duration
from partitioning.texts import MOST_IN_A_CELL, in_json, visible

T = TypeVar("T")

# The width of what is not to be wrapped.
_WIDE = 10_000


@dataclass(frozen=True, slots=True)
class Table:
    """A title, sentences, and a table below them: numbers to the right. Without rows there is only `empty`, if any."""

    title: str
    columns: Sequence[str]
    rows: Iterable[Sequence[object]]
    notes: Iterable[str] = ()
    empty: str = ""


# What is shown to people: a sentence, or a table.
Block = str | Table | Section


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command answers: a `value` for programs, the same in `text` for people, and what is `wrong` all the same.

    Of the value, functions are called and iterators are gone through only if it is printed; so is the text.
    """

    value: object
    text: Iterable[Block] = ()
    wrong: CosetError | None = None
    exit_code: int = 0


@dataclass(slots=True)
class OutputForm:
    """The form of what is printed to stdout, as it was asked for: JSON instead of text; tables of any width; and the
    environment that it is about, if there are several."""

    as_json: bool = False
    wide: bool = False
    environment: str = ""


_FORM = OutputForm()


@contextmanager
def printed(form: OutputForm) -> Iterator[None]:
    """Print in this form meanwhile."""
    global _FORM
    before, _FORM = _FORM, form
    try:
        yield
    finally:
        _FORM = before


def answer(given: Answer) -> int:
    """Print an answer; the exit code that it has."""
    if _FORM.as_json:
        value = _plain(given.value)
        about = {"environment": _FORM.environment} if _FORM.environment and isinstance(value, dict) else {}
        _print_json(about | value if about else value, sys.stdout)
    else:
        show(*given.text)
    if given.wrong is None:
        return given.exit_code
    show_error(given.wrong)
    return given.wrong.exit_code


def _print_json(value: object, to: TextIO) -> None:
    print(in_json(json.dumps(value, ensure_ascii=False)), file=to)


def _plain(value: object) -> Any:
    """A value as JSON has it: of a float that is no number its name, as a text, as null says that there is no value."""
    return _named(msgspec.to_builtins(value, str_keys=True, enc_hook=_unfolded))


def _named(value: Any) -> Any:
    match value:
        case dict():
            return {name: _named(each) for name, each in value.items()}
        case list() | tuple():
            return [_named(each) for each in value]
        case float() if not math.isfinite(value):
            return json.dumps(value)
        case _:
            return value


def _unfolded(value: object) -> object:
    if isinstance(value, Fraction):
        return str(value)
    return value() if callable(value) else tuple(value)  # type: ignore[arg-type]


def check_reason(why: str, what: str) -> None:
    """Raise Refused if a reason says nothing of `what` it is to say."""
    if not why.strip():
        raise Refused.of(Kind.ARGUMENT, "the reason is empty", "--why", f"say in some words {what}")


def console(*, stderr: bool = False) -> Console:
    """A console, as wide as COLUMNS says or the terminal is. Elsewhere lines are copied, and so none is broken."""
    if stderr and _NOW.console is not None:
        return _NOW.console
    to = Console(stderr=stderr, highlight=False, emoji=False)
    if _FORM.wide or not (to.is_terminal or os.environ.get("COLUMNS")):
        to.width = _WIDE
    return to


def show(*blocks: Block) -> None:
    """Sentences, each on a line of its own, and tables on stdout, for people."""
    for block in () if _FORM.as_json else blocks:
        match block:
            case str():
                say(console(), block)
            case Table():
                _show_table(block)
            case Section():
                _show_table(Table(block.title, block.columns, block.rows, block.notes))


def say(to: Console, line: str, style: str | None = None) -> None:
    """A sentence: its control characters are shown, and obeyed by no terminal."""
    to.print(visible(line), style=style, markup=False, soft_wrap=not to.is_terminal)


def _show_table(table: Table) -> None:
    cells = [[_text(value) for value in row] for row in table.rows]
    if not cells and table.empty:
        return show(table.empty)
    to = console()
    say(to, table.title, "bold")
    for note in table.notes:
        say(to, note)
    if cells:
        drawn = Drawn(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for name, column in zip(table.columns, zip(*cells, strict=True), strict=True):
            drawn.add_column(
                escape(visible(name, MOST_IN_A_CELL)), justify="right" if _numeric(column) else "left", overflow="fold"
            )
        for row in cells:
            drawn.add_row(*(escape(visible(cell, MOST_IN_A_CELL)) for cell in row))
        fits = Measurement.get(to, to.options.update_width(_WIDE), drawn).minimum <= to.width
        _print_stripped(to, drawn if fits else _one_by_one(table.columns, cells))
    to.print()


def _one_by_one(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Drawn:
    """Rows below each other, a line for each cell that says something: of a table whose words are too long to stand
    side by side."""
    drawn = Drawn(box=None, show_header=False, pad_edge=False)
    drawn.add_column()
    drawn.add_column(overflow="fold")
    for number, row in enumerate(rows):
        if number:
            drawn.add_row()
        for name, cell in zip(columns, row, strict=True):
            if cell:
                drawn.add_row(escape(visible(name, MOST_IN_A_CELL)), escape(visible(cell, MOST_IN_A_CELL)))
    return drawn


def show_error(error: CosetError) -> None:
    """All findings of an error on stderr."""
    if _FORM.as_json:
        _print_json({"error": type(error).__name__, "findings": told(error.findings)}, sys.stderr)
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
        line = f"{word:6} {name:14} {time.monotonic() - started:6.1f} s  {'; '.join(said)}".rstrip()
        _NOW.end(name, line, style)

    _NOW.begin(name)
    try:
        yield said
    except BaseException:
        end("failed", "red")
        raise
    end("ok")


@contextmanager
def counted(total: int, what: str, *names: str) -> Iterator[Callable[[int], None]]:
    """Meanwhile the last line of a terminal has a bar: how many of a `total` are done, and how long the others take if
    they take as long. One within another says both.

    Done is what a step ends whose name begins so, and as many more as what is given is called with.
    """
    count = _Count(total, what, names, _NOW.count)
    _NOW.counts(count)
    try:
        yield _NOW.advance
    finally:
        _NOW.counts(count.within)


@contextmanager
def doing(name: str) -> Iterator[None]:
    """Meanwhile the last line of a terminal says what is being done. Nothing is said of its end."""
    _NOW.begin(name)
    try:
        yield
    finally:
        _NOW.drop(name)


def tracked(items: Sequence[T], what: str, name: str) -> Iterator[T]:
    """The items; meanwhile the last line of a terminal has a bar: how many are done, and how long the others take."""
    with counted(len(items), what) as done, doing(name):
        for item in items:
            yield item
            done(1)


@dataclass(slots=True)
class _Count:
    total: int
    what: str
    names: tuple[str, ...]
    within: _Count | None = None
    began: float = field(default_factory=time.monotonic)
    done: int = 0

    def drawn(self, said: str) -> RenderableType:
        line = Drawn.grid(padding=(0, 1))
        line.add_row(ProgressBar(self.total, self.done, width=20), f"{self}: {said}")
        return line

    def __str__(self) -> str:
        left = ""
        if 0 < self.done < self.total:
            left = f", {duration((time.monotonic() - self.began) / self.done * (self.total - self.done))} left"
        done = f"{self.done:,} of {self.total:,} {self.what}{left}"
        return done if self.within is None else f"{self.within}; {done}"


class _Now:
    """The last line of a terminal, which says what is being done: there is only one, whoever does something."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._names: list[str] = []
        self._line: Status | None = None
        self.count: _Count | None = None

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
            if self.count is not None and name.startswith(self.count.names):
                self.count.done += 1
            say(console(stderr=True), said, style)
            self._draw()

    def counts(self, count: _Count | None) -> None:
        """From now on this is counted."""
        with self._lock:
            self._erase()
            self.count = count
            self._draw()

    def advance(self, more: int) -> None:
        with self._lock:
            if self.count is not None:
                self.count.done += more
            if self._line is not None:
                # It is drawn when the line moves next: thousands may be done in a second.
                self._line.update(self._drawn())

    def drop(self, name: str) -> None:
        with self._lock:
            self._erase()
            self._names.remove(name)
            self._draw()

    def _erase(self) -> None:
        if self._line is not None:
            self._line.stop()
            self._line = None

    def _draw(self) -> None:
        to = console(stderr=True)
        if self._names and to.is_terminal:
            self._line = to.status(self._drawn())
            self._line.start()

    def _drawn(self) -> RenderableType:
        said = escape(f"{', '.join(self._names)} …")
        return said if self.count is None else self.count.drawn(said)


_NOW = _Now()


def _print_stripped(to: Console, table: Drawn) -> None:
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
    return _number(value) if isinstance(value, float) else str(value)


def _number(value: float) -> str:
    """A number with two decimals, or as many as it has if these are more.

    >>> _number(19.5), _number(0.004), _number(1e-9)
    ('19.50', '0.004', '1e-09')
    """
    return f"{value:,.2f}" if round(value, 2) == value else f"{value:,}"


def _numeric(cells: Sequence[str]) -> bool:
    """Whether a column holds numbers only, however they were written."""
    stripped = [cell.replace(",", "").replace(".", "").removeprefix("-") for cell in cells if cell != "–"]
    return bool(stripped) and all(cell.isdecimal() for cell in stripped)
