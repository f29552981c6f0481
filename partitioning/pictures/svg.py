"""Pictures: a plan drawn as SVG, the logical graph above the physical plan, without scripts, fonts or images."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from partitioning.pictures.drawing import DARK, LIGHT, SIZE, Colours, Drawing
from partitioning.pictures.layout import Frame, Point, Text, laid_out
from partitioning.texts import visible

_NOT_IN_XML = re.compile("[\ufffe\uffff]")


def svg(drawing: Drawing) -> str:
    """The drawing as an SVG document, the same for the same drawing."""
    sheet = laid_out(drawing)
    size = f'width="{sheet.width}" height="{sheet.height}" viewBox="0 0 {sheet.width} {sheet.height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<title>{_escaped(sheet.title)}</title>",
        "<style>",
        *_style(),
        "</style>",
        f'<rect class="ground" width="{sheet.width}" height="{sheet.height}" rx="8"/>',
        *(_text(heading) for heading in sheet.headings),
        *(line for arrow in sheet.arrows for line in _arrow(arrow)),
        *(line for frame in sheet.frames for line in _frame(frame)),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _style() -> Iterator[str]:
    yield f"svg {{ font: {SIZE}px system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif }}"
    yield ".title { font-weight: bold }"
    yield ".arrow { fill: none; stroke-width: 1.2 }"
    yield from _rules(LIGHT)
    yield "@media (prefers-color-scheme: dark) {"
    yield from _rules(DARK)
    yield "}"


def _rules(colours: Colours) -> Iterator[str]:
    yield f".ground {{ fill: {colours.ground} }} text {{ fill: {colours.text} }}"
    yield f".arrow {{ stroke: {colours.arrow} }} .head {{ fill: {colours.arrow} }}"
    for kind, (fill, line) in colours.kinds.items():
        yield f".{kind} {{ fill: {fill}; stroke: {line} }}"
    for number, fill in enumerate(colours.groups):
        yield f".group-{number} {{ fill: {fill} }}"


def _frame(frame: Frame) -> Iterator[str]:
    kind = frame.box.kind
    group = "" if frame.box.group is None else f" group-{frame.box.group % len(LIGHT.groups)}"
    place = f'x="{frame.x}" y="{frame.y}" width="{frame.width}" height="{frame.height}"'
    rounded = 16 if kind == "exchange" else 5
    yield f'<rect class="{kind}{group}" {place} rx="{rounded}"/>'
    yield from map(_text, frame.texts)
    for held in frame.holds:
        yield from _frame(held)


def _text(text: Text) -> str:
    title = ' class="title"' if text.line.bold else ""
    full = f"<title>{_escaped(text.line.full)}</title>" if text.line.full else ""
    return f'<text x="{text.x}" y="{text.y}"{title}>{full}{_escaped(text.line.text)}</text>'


def _arrow(points: Sequence[Point]) -> Iterator[str]:
    """A line that goes straight down within a layer and swings across between layers."""
    x, y = points[0]
    way = [f"M {x} {y}"]
    for (x1, y1), (x2, y2) in zip(points[1::2], points[2::2], strict=True):
        middle = (y1 + y2) // 2
        way.append(f"V {y1} C {x1} {middle} {x2} {middle} {x2} {y2}")
    x, y = points[-1]
    yield f'<path class="arrow" d="{" ".join(way)}"/>'
    yield f'<path class="head" d="M {x} {y} l -4 -7 h 8 z"/>'


def _escaped(text: str) -> str:
    return escape(_NOT_IN_XML.sub("\ufffd", visible(text)))
