"""Plots: how a figure of a pipeline's batches went, with what was usual in the batches before, as points of an SVG."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from partitioning.sections import size

WIDTH, HEIGHT = 720, 110
# What is usual is learned from so many attempts before, at least from the fewest.
_BEFORE, _FEWEST = 30, 5
_MARGIN = 6


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure that rows of the index have: its name in them, its title, and how its values are written."""

    name: str
    title: str
    form: Callable[[Any], str]

    def text(self, row: Mapping[str, Any]) -> str:
        """A row's value for people."""
        value = row.get(self.name)
        return "–" if value is None else self.form(value)


_COUNT, _SECONDS = "{:,}".format, "{:,.1f} s".format

FIGURES = (
    Figure("records", "Records", _COUNT),
    Figure("warnings", "Warnings", _COUNT),
    Figure("seconds", "Took", _SECONDS),
    Figure("cpu_seconds", "CPU", _SECONDS),
    Figure("read_bytes", "Read", size),
    Figure("moved", "Records moved", _COUNT),
    Figure("rows", "Rows written", _COUNT),
    Figure("row_bytes", "Written", size),
    Figure("state", "Rows of state left", _COUNT),
    Figure("without_key", "Without a key", _COUNT),
    Figure("missing", "Missing offsets", _COUNT),
    Figure("tasks", "Tasks", _COUNT),
    Figure("skew", "Largest task / mean", "{:.2f}".format),
    Figure("heaviest", "Heaviest key", lambda share: f"{share:.1%}" if share else "none"),
)


@dataclass(frozen=True, slots=True)
class Point:
    """An attempt in a plot: where it lies, the row of the index, and whether its value is outside of what is usual."""

    x: float
    y: float
    row: Mapping[str, Any]
    text: str
    unusual: bool


@dataclass(frozen=True, slots=True)
class Plot:
    """A figure's points, oldest first. `bands` are outlines of areas, each as the points of a polygon: what was usual,
    wherever that is known without a gap. `changes` says where the schemes or numbers of tasks became others, and
    what they are from there on."""

    figure: Figure
    points: tuple[Point, ...]
    bands: tuple[str, ...]
    most: str
    changes: tuple[tuple[float, str], ...] = ()

    @classmethod
    def of(cls, figure: Figure, rows: Sequence[Mapping[str, Any]]) -> Plot | None:
        """The plot of rows, oldest first; None if fewer than two have the figure or all values are 0."""
        values: list[float | None] = [row.get(figure.name) for row in rows]
        known = [value for value in values if value is not None]
        if len(known) < 2 or not (most := max(known)):
            return None
        usual = [usual_from(values[:place]) for place in range(len(values))]
        top = max(most, *(high for _, high in filter(None, usual)), 0)

        def x(place: int) -> float:
            return round(_MARGIN + place * (WIDTH - 2 * _MARGIN) / (len(values) - 1), 1)

        def y(value: float) -> float:
            return round(HEIGHT - _MARGIN - value * (HEIGHT - 2 * _MARGIN) / top, 1)

        points = []
        for place, (row, value, band) in enumerate(zip(rows, values, usual, strict=True)):
            if value is not None:
                outside = band is not None and not band[0] <= value <= band[1]
                points.append(Point(x(place), y(value), row, figure.text(row), outside))
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
        return cls(figure, tuple(points), tuple(bands), figure.form(most), changes)


def usual_from(before: Sequence[float | None]) -> tuple[float, float] | None:
    """What is usual after these values: the middle half of the last thirty, widened on both sides by one and a half
    times its width, as Tukey's fences are, and at least by a tenth of the median; never below 0. None after fewer than
    five.

    >>> usual_from([10, 10, 12, 11, None, 9, 10]), usual_from([10] * 5), usual_from([1, 2, 3, 4])
    ((8.875, 11.875), (9.0, 11.0), None)
    """
    known = [value for value in before[-_BEFORE:] if value is not None]
    if len(known) < _FEWEST:
        return None
    low, median, high = statistics.quantiles(known, n=4, method="inclusive")
    around = max(1.5 * (high - low), median / 10)
    return max(0.0, low - around), high + around


def plots(rows: Sequence[Mapping[str, Any]]) -> list[Plot]:
    """The plots of an index whose rows come newest first."""
    oldest_first = list(reversed(rows))
    return [plot for figure in FIGURES if (plot := Plot.of(figure, oldest_first)) is not None]


def unusual(before: Sequence[Mapping[str, Any]], row: Mapping[str, Any]) -> Iterator[str]:
    """A sentence for each figure of a row that is outside of what is usual after the rows before it, oldest first, by
    more than can be seen."""
    for figure in FIGURES:
        usual, value = usual_from([each.get(figure.name) for each in before]), row.get(figure.name)
        if usual is not None and value is not None and not usual[0] <= value <= usual[1]:
            whole = math.ceil(usual[0]), math.floor(usual[1])
            low, high = map(figure.form, whole if isinstance(value, int) and whole[0] <= whole[1] else usual)
            if figure.text(row) not in (low, high):
                yield f"{figure.title}: {figure.text(row)}; usual is {low}" + (f" to {high}." if high != low else ".")
