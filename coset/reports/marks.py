"""The marks of a plot as SVG, and the rows of the table beside it as HTML. There are thousands on a page, for which
templates are slow; all texts are figures."""

from __future__ import annotations

from collections.abc import Set

from markupsafe import Markup, escape

from coset.reports.plots import Plot, Point
from partitioning.texts import visible


def marks(plot: Plot, here: Set[str]) -> Markup:
    """A mark for each point, with a link if its page is `here`. What was not proved lies above the rest."""
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
