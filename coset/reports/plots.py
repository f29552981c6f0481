"""Plots: a figure over a pipeline's batches, beside its usual range in the batches before, as points of an SVG.

Their marks, and the rows of the tables beside them, are written here: there are thousands on a page, for which
templates are slow. All texts are figures.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup, escape

from coset.reports.figure_list import OTHER, Figure, FigureTopic, figures_of
from coset.reports.site import Row
from partitioning.model.figures import usual_from
from partitioning.texts import visible

WIDTH, HEIGHT = 480, 100
# So many of the newest batches are drawn.
DRAWN = 200
_MARGIN = 6
# A point so many times as high as was ever usual lies above the plot.
_FAR = 4


@dataclass(frozen=True, slots=True)
class Point:
    """An attempt in a plot: its place, the row of the index, its value in words with a remark, the usual range then,
    and whether its value is outside of it; `above` says that its value lies above the plot."""

    x: float
    y: float
    row: Row
    text: str
    beside: str
    usual: str
    unusual: bool
    above: bool = False


@dataclass(frozen=True, slots=True)
class Plot:
    """A figure's points, oldest first, between `bottom` and `top`; 0 is always between them. `bands` are outlines of
    areas, each as the points of a polygon: what was usual, wherever that is known without a gap. `changes` says where
    the schemes or numbers of tasks became others, and what they are from there on."""

    figure: Figure
    points: tuple[Point, ...]
    bands: tuple[str, ...]
    top: str
    bottom: str
    changes: tuple[tuple[float, str], ...] = ()

    @property
    def line(self) -> str:
        """From point to point, as an SVG has it."""
        return " ".join(f"{point.x},{point.y}" for point in self.points)

    @classmethod
    def of(cls, figure: Figure, rows: Sequence[Row]) -> Plot | None:
        """The plot of the newest of these rows, which come oldest first; None if fewer than two have the figure or all
        values are 0."""
        values = [figure.value(row) for row in rows]
        first = next((place for place, row in enumerate(rows) if row["batch"] > rows[-1]["batch"] - DRAWN), 0)
        known = [value for value in values[first:] if value is not None]
        if len(known) < 2 or not any(known):
            return None
        usual = list(_usual(figure, rows, values))[first:]
        rows, values = rows[first:], values[first:]
        top = _top(known, [high for _, high in filter(None, usual)])
        bottom = min(0, *known, *(low for low, _ in filter(None, usual)))

        def x(place: int) -> float:
            return round(_MARGIN + place * (WIDTH - 2 * _MARGIN) / (len(values) - 1), 1)

        def y(value: float) -> float:
            return round(HEIGHT - _MARGIN - (min(value, top) - bottom) * (HEIGHT - 2 * _MARGIN) / (top - bottom), 1)

        points = []
        for place, (row, value, band) in enumerate(zip(rows, values, usual, strict=True)):
            if value is not None:
                outside = band is not None and not band[0] <= value <= band[1]
                between = _between(figure, band, value) if band else "–"
                beside = row.get(figure.beside, "")
                text, above = figure.text(row), value > top
                points.append(Point(x(place), y(value), row, text, beside, between, outside, above))
        bands, lower, upper = list[str](), list[str](), list[str]()
        for place, band in enumerate([*usual, None]):
            if band is not None:
                lower.append(f"{x(place)},{y(band[0])}")
                upper.append(f"{x(place)},{y(band[1])}")
            elif lower:
                bands.append(" ".join([*lower, *reversed(upper)]))
                lower, upper = [], []
        shapes = [(place, row["shape"]) for place, row in enumerate(rows) if row.get("shape")]
        changes = tuple((x(place), shape) for (_, old), (place, shape) in pairwise(shapes) if old != shape)
        is_whole = all(isinstance(value, int) for value in known)
        highest, lowest = map(figure.form, (math.ceil(top), math.floor(bottom)) if is_whole else (top, bottom))
        return cls(figure, tuple(points), tuple(bands), highest, lowest, changes)


def _top(known: Sequence[float], usual: Sequence[float]) -> float:
    """The upper end of a plot. A few values far above what was ever usual would press all others to the ground."""
    most, far = max(0, *known, *usual), _FAR * max(0, 0, *usual)
    if not 0 < far < most:
        return most
    return max(value for value in (*known, *usual) if value <= far)


def _usual(figure: Figure, rows: Sequence[Row], values: Sequence[float | None]) -> Iterator[tuple[float, float] | None]:
    """What was usual before each row, by those that were proved and are like it."""
    proved: dict[str, list[float | None]] = {}
    for row, value in zip(rows, values, strict=True):
        yield usual_from(proved.get(_kind(figure, row), ()))
        if row["success"]:
            proved.setdefault(_kind(figure, row), []).append(value)


def _kind(figure: Figure, row: Row) -> str:
    """What the rows have in common by which a figure of one is usual. Some say nothing of their tasks."""
    return row.get("shape") or "" if figure.goes_by_tasks else ""


def plots(rows: Sequence[Row]) -> tuple[list[Plot], dict[FigureTopic, list[Plot]]]:
    """The plots of an index whose rows come newest first: those that matter first, as their figure does or its newest
    value is unusual, and the others by what they are about."""
    oldest_first, foremost = list(reversed(rows)), list[Plot]()
    others: dict[FigureTopic, list[Plot]] = {topic: [] for topic in FigureTopic}
    for figure in figures_of(rows):
        if (plot := Plot.of(figure, oldest_first)) is not None:
            is_first = figure.weight < OTHER or plot.points[-1].unusual
            (foremost if is_first else others[figure.topic]).append(plot)
    foremost.sort(key=lambda plot: plot.figure.weight)
    return foremost, {topic: drawn for topic, drawn in others.items() if drawn}


def unusual(before: Sequence[Row], row: Row) -> Iterator[str]:
    """A sentence for each figure of a row that is outside of what is usual after the rows before it, oldest first, by
    more than can be seen."""
    for figure in figures_of([row]):
        like = [figure.value(each) for each in before if _kind(figure, each) == _kind(figure, row)]
        usual, value = usual_from(like), figure.value(row)
        if usual is not None and value is not None and not usual[0] <= value <= usual[1]:
            between = _between(figure, usual, value)
            if figure.text(row) not in between.split(" to "):
                yield f"{figure.title}: {figure.text(row)}; usual is {between}."


def _between(figure: Figure, usual: tuple[float, float], value: float) -> str:
    """What is usual, for people: in whole numbers if values are."""
    whole = math.ceil(usual[0]), math.floor(usual[1])
    low, high = map(figure.form, whole if isinstance(value, int) and whole[0] <= whole[1] else usual)
    return f"{low} to {high}" if high != low else low


def marks(plot: Plot, here: Set[str]) -> Markup:
    """A mark for each point, with a link if its page is `here`. Points that were not proved lie above the rest."""
    drawn = sorted(plot.points, key=lambda point: not point.row["success"])
    # Keys reach the same links in the table.
    return Markup("").join(Markup(_mark(point, here)) for point in drawn)  # noqa: S704  it is escaped


def cells(plot: Plot, here: Set[str]) -> Markup:
    """A row of a table for each point, the newest first."""
    return Markup("").join(Markup(_cells(point, here)) for point in reversed(plot.points))  # noqa: S704  it is escaped


def _mark(point: Point, here: Set[str]) -> str:
    named = f"<title>{escape(_told(point))}</title>{_shape(point)}"
    page = point.row["page"]
    return f'<a href="{escape(page)}" tabindex="-1">{named}</a>' if page in here else f"<g>{named}</g>"


def _cells(point: Point, here: Set[str]) -> str:
    batch, page = escape(point.row["batch"]), escape(point.row["page"])
    linked = f'<a href="{page}">{batch}</a>' if page in here else batch
    attempt = f", attempt {escape(point.row['attempt'])}" if point.row["attempt"] else ""
    proved, unusual = "" if point.row["success"] else ", not proved", " ○" if point.unusual else ""
    beside = f' <span class="soft">{escape(visible(point.beside))}</span>' if point.beside else ""
    shown = f"{escape(point.text)}{unusual}{beside}", escape(point.usual)
    return (
        f"<tr><td>{linked}{attempt}{proved}</td>" + "".join(f'<td class="n">{cell}</td>' for cell in shown) + "</tr>\n"
    )


def _told(point: Point) -> str:
    attempt = f", attempt {point.row['attempt']}" if point.row["attempt"] else ""
    proved, unusual = "" if point.row["success"] else ", not proved", ", unusual" if point.unusual else ""
    beside = f"; furthest behind {visible(point.beside)}" if point.beside else ""
    return f"Batch {point.row['batch']}{attempt}: {point.text}{proved}{unusual}{beside}"


def _shape(point: Point) -> str:
    if not point.row["success"]:
        return f'<path class="failed" d="M{point.x - 4:.1f} {point.y - 4:.1f}l8 8m-8 0l8-8"/>'
    if point.above:
        return f'<path class="above" d="M{point.x - 4:.1f} {point.y + 3:.1f}l4 -8l4 8z"/>'
    kind = ' class="unusual"' if point.unusual else ""
    return f'<circle{kind} cx="{point.x}" cy="{point.y}" r="{4 if point.unusual else 2.5}"/>'
