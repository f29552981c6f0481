"""Plots for the page: lines in SVG, in the colours of the pictures of plans, each named at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from math import log10
from pathlib import Path
from statistics import median
from xml.sax.saxutils import escape

from bench.figures import Answers
from bench.party import PARTIES
from bench.workload import Point, Query
from partitioning.pictures.drawing import DARK, LIGHT, SIZE, Colours

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 760, 300, 56, 500, 44, 250
# The hues of these kinds of boxes, in the order of the lines; further lines are dashed.
_HUES = ("stream", "exchange", "table", "state")
_STYLES = (*_HUES, *(f"{hue} dashed" for hue in _HUES))
# Single batches differ: one merges runs of state, another does not.
_MEDIAN_OF = 5
Lines = Mapping[str, Sequence[tuple[float, float]]]


def plots(answers: Answers, page: Path) -> Iterator[str]:
    """Draw what the page is to show of these answers beside it, and give the lines that show it there."""
    took = answers.took
    match answers.query:
        case Query.ELASTIC:
            title, across = "CPU seconds, of those of F = 1", "F, times as many tasks"
            lines = _by_point(answers, lambda party, at: took(party, at.name) / took(party, "F = 1"))
        case Query.BATCHES:
            title, across = "CPU seconds of a batch", "batches before"
            lines = {party: _by_batch([run["cpu"] for run in answers.runs(party)]) for party in answers.parties}
        case Query.BY_RECORDS:
            title, across = "CPU seconds for a million views and their clicks", "millions of views (both logarithmic)"
            lines = _by_point(answers, lambda party, at: took(party, at.name) / float(at.value))
        case Query.BY_SHARE:
            title, across = "Longest task ÷ mean", "per cent of the records that one key has"
            lines = _by_point(answers, lambda party, at: answers.parties[party][at.name]["longest"])
        case _:
            return
    name, named = f"beside-{answers.query}.svg", {PARTIES[party].title: line for party, line in lines.items() if line}
    if not named:
        return
    picture = drawn(title, across, named, logarithmic=answers.query is Query.BY_RECORDS)
    (page.parents[1] / "pictures" / name).write_text(picture)
    yield from ("", f"![{title}, by {across}](../pictures/{name})")


def _by_point(answers: Answers, figure: Callable[[str, Point], float | None]) -> Lines:
    """The points that have a place on an axis, and of which a figure is known."""
    found: dict[str, list[tuple[float, float]]] = {party: [] for party in answers.parties}
    for party, point in product(answers.parties, answers.query.points):
        if isinstance(point.value, int) and point.name in answers.parties[party] and (y := figure(party, point)):
            found[party].append((point.value, y))
    return found


def _by_batch(cpu: Sequence[float]) -> Sequence[tuple[float, float]]:
    return [(number, median(cpu[number - _MEDIAN_OF + 1 : number + 1])) for number in range(_MEDIAN_OF, len(cpu))]


def drawn(title: str, across: str, lines: Lines, *, logarithmic: bool = False) -> str:
    """The plot as an SVG document. Its axes begin at 0 and the least x, or are logarithmic from the least of both."""
    points = [point for line in lines.values() for point in line]
    across_axis = _Axis([x for x, _ in points], logarithmic)
    up = _Axis([y for _, y in points] if logarithmic else [0, *(y for _, y in points)], logarithmic)

    def at(x: float, y: float) -> tuple[int, int]:
        return (
            _LEFT + round(across_axis.share(x) * (_RIGHT - _LEFT)),
            _BOTTOM - round(up.share(y) * (_BOTTOM - _TOP)),
        )

    svg = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">',
        f"<title>{escape(title)}, by {escape(across)}</title>",
        f"<style>svg {{ font: {SIZE}px system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif }}",
        f"polyline {{ fill: none; stroke-width: 2 }} .dashed {{ stroke-dasharray: 6 4 }} {_rules(LIGHT)}",
        f"@media (prefers-color-scheme: dark) {{ {_rules(DARK)} }}</style>",
        f'<rect class="ground" width="{_WIDTH}" height="{_HEIGHT}" rx="8"/>',
        f'<text x="{_LEFT}" y="24">{escape(title)}</text>',
        f'<text x="{(_LEFT + _RIGHT) // 2}" y="{_BOTTOM + 40}" text-anchor="middle">{escape(across)}</text>',
        f'<polyline class="axis" points="{_LEFT},{_TOP} {_LEFT},{_BOTTOM} {_RIGHT},{_BOTTOM}"/>',
    ]
    for x, y in zip(across_axis.marks, up.marks, strict=True):
        left, low = at(x, y)
        svg.append(f'<text x="{left}" y="{_BOTTOM + 18}" text-anchor="middle">{x:g}</text>')
        svg.append(f'<text x="{_LEFT - 8}" y="{low + 4}" text-anchor="end">{y:.3g}</text>')
    free = _BOTTOM + SIZE
    ends = {name: at(*line[-1])[1] for name, line in lines.items()}
    for name in sorted(lines, key=lambda name: -ends[name]):
        free = min(ends[name] + 4, free - SIZE - 4)
        ends[name] = free
    for hue, (name, line) in zip(_STYLES[: len(lines)], lines.items(), strict=True):
        way = " ".join(f"{x},{y}" for x, y in (at(*point) for point in line))
        svg.append(f'<polyline class="{hue}" points="{way}"/>')
        svg.append(f'<text x="{_RIGHT + 8}" y="{ends[name]}" class="{hue}">{escape(name.replace("`", ""))}</text>')
    return "\n".join((*svg, "</svg>\n"))


class _Axis:
    def __init__(self, values: Sequence[float], logarithmic: bool) -> None:
        self._logarithmic = logarithmic
        self._least, most = self._scaled(min(values)), self._scaled(max(values))
        # A small trial may have one point.
        self._wide = most - self._least or 1

    def share(self, value: float) -> float:
        """Where a value lies, from 0 to 1."""
        return (self._scaled(value) - self._least) / self._wide

    @property
    def marks(self) -> Sequence[float]:
        """What is written at its begin, its middle and its end."""
        scaled = [self._least + share * self._wide for share in (0, 0.5, 1)]
        return [10**power for power in scaled] if self._logarithmic else scaled

    def _scaled(self, value: float) -> float:
        return log10(value) if self._logarithmic else value


def _rules(colours: Colours) -> str:
    lines = {hue: colours.kinds[hue][1] for hue in _HUES}
    hues = (f"polyline.{hue} {{ stroke: {line} }} text.{hue} {{ fill: {line} }}" for hue, line in lines.items())
    plain = f".ground {{ fill: {colours.ground} }} text {{ fill: {colours.text} }} .axis {{ stroke: {colours.arrow} }}"
    return " ".join((plain, *hues))
