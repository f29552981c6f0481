"""What all parties' answers to a query cost, as tables; and figures on a page, between the marks that it knows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from bench.party import PARTIES
from bench.workload import Point, Query

FAILED = "failed"
_END = "<!-- end -->"
Rows = Sequence[Sequence[str]]


@dataclass
class Answers:
    """By party and point, what `bench.session` prints, and what the rows add up to. A party that failed lacks the point
    at which it did, and all after it."""

    query: Query
    size: str
    parties: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def same(self) -> bool:
        """Whether all have the same rows."""
        return all(len(set(self.checksums(point))) <= 1 for point in self.query.points)

    def checksums(self, point: Point) -> Iterator[tuple[int, ...]]:
        """What the rows of each party add up to that has some: their number first."""
        return (tuple(points[point.name]["checksums"]) for points in self.parties.values() if point.name in points)

    @property
    def all_answered(self) -> bool:
        """Whether no party failed."""
        return not any(map(self.failed_at, self.parties))

    def failed_at(self, party: str) -> Point | None:
        """The point at which a party failed, if it did."""
        return next((point for point in self.query.points if point.name not in self.parties[party]), None)

    @property
    def stretches(self) -> Sequence[str]:
        """What is told apart of the runs."""
        every = (run["stretch"] for party in self.parties for run in self.runs(party))
        return [stretch for stretch in dict.fromkeys(every) if stretch]

    def runs(self, party: str) -> Sequence[Mapping[str, Any]]:
        """All runs of a party, by point."""
        return [run for point in self.parties[party].values() for run in point["runs"]]

    def of(self, party: str, stretch: str, figure: str = "cpu") -> Sequence[float]:
        """A figure of each run of a stretch."""
        return [run[figure] for run in self.runs(party) if run["stretch"] == stretch]

    def took(self, party: str, stretch: str, figure: str = "cpu") -> float:
        """Their median."""
        return float(median(self.of(party, stretch, figure)))

    @property
    def last(self) -> str:
        """The stretch by which parties are compared."""
        return self.stretches[-1]


def tables(answers: Answers) -> Mapping[str, Rows]:
    """By what they show: a row for what the columns are, and one for each party."""
    found = {"CPU seconds of all processes / wall seconds": [*_costs(answers)]}
    if answers.query is Query.BY_RECORDS:
        found["Peak memory"] = [*_by_point(answers, lambda point: _memory(point["runs"]))]
    if answers.query is Query.BY_SHARE:
        found["Longest task ÷ mean"] = [*_by_point(answers, lambda point: _longest(point["longest"]))]
    return found


def compared(answers: Answers) -> Rows:
    """What decides: the costs of the stretch by which parties are compared."""
    rows = [("party", f"{answers.last}: CPU s", "wall s", "peak MiB")]
    for party in answers.parties:
        if answers.failed_at(party):
            rows.append((PARTIES[party].title, FAILED, "", ""))
            continue
        cpu, wall = (answers.took(party, answers.last, figure) for figure in ("cpu", "wall"))
        memory = max(run["memory"] for run in answers.runs(party)) / 2**20
        rows.append((PARTIES[party].title, f"{cpu:.2f}", f"{wall:.2f}", f"{memory:,.0f}"))
    return rows


def _costs(answers: Answers) -> Iterator[Sequence[str]]:
    first, *_ = answers.parties
    longest = ("longest task ÷ mean",) if answers.query in {Query.HOT, Query.HOT_JOINED} else ()
    compared = f"{answers.last}: CPU × {PARTIES[first].title.partition(',')[0]}'s"
    yield ("party", *answers.stretches, "peak memory", "moved", *longest, "S3 server", compared)
    for party, points in answers.parties.items():
        costs = [
            f"{answers.took(party, one):.2f} / {answers.took(party, one, 'wall'):.2f}"
            if answers.of(party, one)
            else FAILED
            for one in answers.stretches
        ]
        if answers.failed_at(party) or answers.failed_at(first):
            yield (PARTIES[party].title, *costs, *(3 + len(longest) + 1) * ("",))
            continue
        *_, left = points.values()
        yield (
            PARTIES[party].title,
            *costs,
            _memory(answers.runs(party)),
            f"{left['moved'] / 2**20:,.1f} MiB",
            *((_longest(left["longest"]),) if longest else ()),
            f"{answers.took(party, answers.last, 'server'):.1f}",
            f"{answers.took(party, answers.last) / answers.took(first, answers.last):.2f}",
        )


def _by_point(answers: Answers, shown: Callable[[Mapping[str, Any]], str]) -> Iterator[Sequence[str]]:
    """Only those of whom there is something to show."""
    names = [point.name for point in answers.query.points]
    yield ("party", *names)
    for party, points in answers.parties.items():
        cells = [shown(points[name]) if name in points else FAILED for name in names]
        if any(cells):
            yield (PARTIES[party].title, *cells)


def _memory(runs: Sequence[Mapping[str, Any]]) -> str:
    return f"{max(run['memory'] for run in runs) / 2**20:,.0f} MiB"


def _longest(longest: float | None) -> str:
    return f"{longest:.2f}" if longest else ""


def place(command: str) -> str:
    """The line of a page behind which the figures of that command are."""
    return f"<!-- figures of {command} -->"


def put(page: Path, command: str, lines: Iterable[str]) -> None:
    """Put these lines in place of the figures of that command. Raises ValueError if the page has no place for them."""
    begin = place(command)
    text = "\n".join((begin, "", *lines, "", _END))
    whole, count = re.subn(f"{re.escape(begin)}.*?{re.escape(_END)}", lambda _: text, page.read_text(), flags=re.S)
    if not count:
        raise ValueError(f"{page} has no line {begin}")
    page.write_text(whole)


def table(columns: Sequence[str], *rows: Sequence[str]) -> Iterator[str]:
    """A table of Markdown."""
    yield from (f"| {' | '.join(columns)} |", f"| --- |{' --: |' * (len(columns) - 1)}")
    yield from (f"| {' | '.join(row)} |" for row in rows)
