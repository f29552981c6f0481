"""Sections: titled tables of text for people, and how numbers, sizes, shares and long lists are written in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction

from partitioning.texts import MOST_IN_A_CELL, in_markdown, paragraph
from partitioning.values import Value

MOST_ROWS = 20
MOST_WORDS = 8


class Section(Value, frozen=True):
    """A titled table. Each row has a cell for each column; `notes` are sentences to show above it."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]


def section(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    notes: Iterable[str] = (),
    *,
    optional: Sequence[str] = (),
    count: int | None = None,
) -> Section:
    """A section of at most 20 rows. Columns that are `optional` are left out if no row has anything in them.

    `rows` may be the first only of `count`.

    >>> rows = [(str(number), "") for number in range(23)]
    >>> section("Groups", ("group", "location"), rows, optional=("location",)).rows[19:]
    (('19',), ('… and 3 more',))
    """
    kept = [place for place, name in enumerate(columns) if name not in optional or any(row[place] for row in rows)]
    shown = [tuple(row[place] for place in kept) for row in rows[:MOST_ROWS]]
    more = (len(rows) if count is None else count) - len(shown)
    if more:
        shown.append((f"… and {more:,} more", *[""] * (len(kept) - 1)))
    return Section(title, tuple(columns[place] for place in kept), tuple(shown), tuple(notes))


def markdown(sections: Iterable[Section]) -> str:
    """The sections as Markdown, aligned so that logs can be read as they are.

    >>> print(markdown([Section("Groups", ("group", "tasks"), (("0", "views/0-3"),), ("One group.",))]), end="")
    ### Groups
    <BLANKLINE>
    One group.
    <BLANKLINE>
    | group | tasks     |
    | ----- | --------- |
    | 0     | views/0-3 |
    """
    return "\n".join("\n\n".join(_blocks(section)) + "\n" for section in sections)


def runs(numbers: Sequence[int]) -> list[str]:
    """Ascending numbers with neighbours drawn together.

    >>> runs((0, 1, 2, 3, 7))
    ['0-3', '7']
    """
    drawn, start = [], 0
    for position, number in enumerate(numbers):
        if position + 1 == len(numbers) or numbers[position + 1] != number + 1:
            drawn.append(f"{numbers[start]}-{number}" if number > numbers[start] else str(number))
            start = position + 1
    return drawn


def cut(words: Sequence[str]) -> str:
    """The words in a row, at most eight of them."""
    more = [f"… and {len(words) - MOST_WORDS:,} more"] if len(words) > MOST_WORDS else []
    return ", ".join([*words[:MOST_WORDS], *more])


def many(count: int, noun: str, plural: str = "") -> str:
    """A count and its noun: `1 task`, `1,200 records`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {plural or f'{noun}s'}"


def size(count: int) -> str:
    """Bytes for people, in powers of 1000.

    >>> size(999), size(999_950)
    ('999 B', '1.0 MB')
    """
    amount, units = float(count), ["B", "kB", "MB", "GB", "TB", "PB"]
    while amount >= 999.95 and len(units) > 1:
        amount, units = amount / 1000, units[1:]
    return f"{count} B" if units[0] == "B" else f"{amount:.1f} {units[0]}"


def duration(seconds: float) -> str:
    """A time for people.

    >>> duration(0.4), duration(59.9), duration(3 * 60), duration(36 * 3600), duration(10 * 86400)
    ('0 s', '59 s', '3 min', '36 h', '10 days')
    """
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{int(seconds // length):,} {unit}"
    return f"{int(seconds)} s"


def percent(share: Fraction) -> str:
    """A share for people; what is not nothing, or not all, never looks so.

    >>> [percent(Fraction(*each)) for each in ((0, 1), (1, 100_001), (2, 3), (100_000, 100_001), (1, 1))]
    ['0 %', '< 0.1 %', '66.7 %', '> 99.9 %', '100 %']
    """
    if share in (0, 1):
        return f"{int(share) * 100} %"
    if not Fraction(1, 1000) <= share <= Fraction(999, 1000):
        return "< 0.1 %" if share < Fraction(1, 2) else "> 99.9 %"
    return f"{float(share * 100):.1f} %"


def _blocks(shown: Section) -> Iterator[str]:
    yield f"### {in_markdown(shown.title)}"
    yield from map(paragraph, shown.notes)
    if shown.rows:
        lines = [[in_markdown(cell, MOST_IN_A_CELL) for cell in line] for line in (shown.columns, *shown.rows)]
        widths = [max(3, *map(len, column)) for column in zip(*lines, strict=True)]
        lines.insert(1, ["-" * width for width in widths])
        padded = ([cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines)
        yield "\n".join("| " + " | ".join(line) + " |" for line in padded)
