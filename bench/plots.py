"""Plots for the page: lines in SVG, in the colours of the pictures of plans, each named at its end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from xml.sax.saxutils import escape

from bench.figures import Answers
from bench.party import PARTIES
from bench.workload import FACTORS, Query
from partitioning.pictures.colours import DARK, LIGHT, Colours
from partitioning.pictures.lettering import SIZE

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 760, 300, 56, 500, 44, 250
# The hues of these kinds of boxes, in the order of the lines.
_HUES = ("stream", "exchange", "table", "state")
# Single batches differ: one merges runs of state, another does not.
_MEDIAN_OF = 5
Lines = Mapping[str, Sequence[tuple[float, float]]]


def plots(answers: Answers, page: Path) -> Iterator[str]:
    """Draw what the page is to show of these answers beside it, and give the lines that show it there."""
    match answers.query:
        case Query.ELASTIC:
            title, across = "CPU seconds, of those of F = 1", "F, times as many tasks"
            lines = {
                PARTIES[party].title: [
                    (factor, answers.took(party, f"F = {factor}") / answers.took(party, "F = 1")) for factor in FACTORS
                ]
                for party in answers.parties
            }
        case Query.BATCHES:
            title, across = "CPU seconds of a batch", "batches before"
            lines = {
                PARTIES[party].title: [
                    (number, median(run["cpu"] for run in costs["runs"][number - _MEDIAN_OF + 1 : number + 1]))
                    for number in range(_MEDIAN_OF, len(costs["runs"]))
                ]
                for party, costs in answers.parties.items()
            }
        case _:
            return
    name = f"beside-{answers.query}.svg"
    (page.parents[1] / "pictures" / name).write_text(drawn(title, across, lines))
    yield from ("", f"![{title}, by {across}](../pictures/{name})")


def drawn(title: str, across: str, lines: Lines) -> str:
    """The plot as an SVG document."""
    points = [point for line in lines.values() for point in line]
    least, most, top = min(x for x, _ in points), max(x for x, _ in points), max(y for _, y in points)
    # A small trial may have one point.
    wide = most - least or 1

    def at(x: float, y: float) -> tuple[int, int]:
        return (
            _LEFT + round((x - least) / wide * (_RIGHT - _LEFT)),
            _BOTTOM - round(y / top * (_BOTTOM - _TOP)),
        )

    svg = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">',
        f"<title>{escape(title)}, by {escape(across)}</title>",
        f"<style>svg {{ font: {SIZE}px system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif }}",
        f"polyline {{ fill: none; stroke-width: 2 }} {_rules(LIGHT)}",
        f"@media (prefers-color-scheme: dark) {{ {_rules(DARK)} }}</style>",
        f'<rect class="ground" width="{_WIDTH}" height="{_HEIGHT}" rx="8"/>',
        f'<text x="{_LEFT}" y="24">{escape(title)}</text>',
        f'<text x="{(_LEFT + _RIGHT) // 2}" y="{_BOTTOM + 40}" text-anchor="middle">{escape(across)}</text>',
        f'<polyline class="axis" points="{_LEFT},{_TOP} {_LEFT},{_BOTTOM} {_RIGHT},{_BOTTOM}"/>',
    ]
    for share in (0, 0.5, 1):
        x, y = least + share * (most - least), share * top
        svg.append(f'<text x="{at(x, 0)[0]}" y="{_BOTTOM + 18}" text-anchor="middle">{x:g}</text>')
        svg.append(f'<text x="{_LEFT - 8}" y="{at(least, y)[1] + 4}" text-anchor="end">{y:.3g}</text>')
    free = _BOTTOM + SIZE
    ends = {name: at(*line[-1])[1] for name, line in lines.items()}
    for name in sorted(lines, key=lambda name: -ends[name]):
        free = min(ends[name] + 4, free - SIZE - 4)
        ends[name] = free
    for hue, (name, line) in zip(_HUES, lines.items(), strict=False):
        way = " ".join(f"{x},{y}" for x, y in (at(*point) for point in line))
        svg.append(f'<polyline class="{hue}" points="{way}"/>')
        svg.append(f'<text x="{_RIGHT + 8}" y="{ends[name]}" class="{hue}">{escape(name.replace("`", ""))}</text>')
    return "\n".join((*svg, "</svg>\n"))


def _rules(colours: Colours) -> str:
    lines = {hue: colours.kinds[hue][1] for hue in _HUES}
    hues = (f"polyline.{hue} {{ stroke: {line} }} text.{hue} {{ fill: {line} }}" for hue, line in lines.items())
    plain = f".ground {{ fill: {colours.ground} }} text {{ fill: {colours.text} }} .axis {{ stroke: {colours.arrow} }}"
    return " ".join((plain, *hues))
