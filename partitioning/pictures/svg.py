"""Pictures: a plan drawn as SVG, the logical graph above the physical plan, without scripts, fonts or images.

Layout: where the boxes, arrows and texts of a drawing go, in pixels. Boxes are as large as their texts may be wide.
Boxes stand in layers, sources first: the layer of a box is the longest path to it; the stages of a wave share one,
below those of the wave before. Within its layer a box stands near the boxes that it is linked with, in the order of
their mean place (Sugiyama et al. 1981); links over several layers get a place of their own in each. So links cross
each other seldom, and boxes never.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from xml.sax.saxutils import escape

from partitioning.pictures.drawing import DARK, LIGHT, LINE, SIZE, Box, BoxGroup, Colours, Drawing, Line, fitted
from partitioning.texts import visible
from partitioning.values import Value

# Links pass between nodes and each other at this distance.
_LINK = 12
_SWEEPS = 4
_PULLS = 32


class Arranged(Value, frozen=True):
    """The middle of each node, and of each link its way: for every layer from source to target the middle there."""

    centres: tuple[float, ...]
    ways: tuple[tuple[float, ...], ...]


def arranged(widths: Sequence[int], layers: Sequence[int], links: Sequence[tuple[int, int]], *, gap: int) -> Arranged:
    """Place nodes of these widths, each in its layer, at least `gap` apart. A link goes from a higher to a lower layer.

    >>> arranged([10, 10, 30], [0, 0, 1], [(0, 2), (1, 2)], gap=20)
    Arranged(centres=(5.0, 35.0, 20.0), ways=((5.0, 20.0), (35.0, 20.0)))
    """
    graph = _Graph(list(widths), list(layers), gap)
    ways = [graph.way(source, target) for source, target in links]
    graph.order()
    graph.place()
    left = min(centre - width / 2 for centre, width in zip(graph.centres, graph.widths, strict=True))
    centres = [centre - left for centre in graph.centres]
    return Arranged(tuple(centres[: len(widths)]), tuple(tuple(centres[node] for node in way) for way in ways))


class _Graph:
    """The nodes, and for each layer that a link only passes a further one."""

    def __init__(self, widths: list[int], layers: list[int], gap: int) -> None:
        self.widths, self.layers, self.gap = widths, layers, gap
        self._boxes = len(widths)
        self.centres: list[float] = []
        self.rows: list[list[int]] = []
        self._above: list[list[int]] = [[] for _ in widths]
        self._below: list[list[int]] = [[] for _ in widths]

    def way(self, source: int, target: int) -> list[int]:
        """Link two nodes; all nodes on the way, both ends included."""
        nodes = [source]
        for layer in range(self.layers[source] + 1, self.layers[target]):
            nodes.append(len(self.widths))
            self.widths.append(_LINK)
            self.layers.append(layer)
            self._above.append([])
            self._below.append([])
        nodes.append(target)
        for above, below in pairwise(nodes):
            self._below[above].append(below)
            self._above[below].append(above)
        return nodes

    def order(self) -> None:
        """Sort each row by the mean place of the nodes above, then of those below, a few times."""
        rows = dict[int, list[int]]()
        for node, layer in enumerate(self.layers):
            rows.setdefault(layer, []).append(node)
        self.rows = [rows[layer] for layer in sorted(rows)]
        place = {node: float(number) for row in self.rows for number, node in enumerate(row)}
        for sweep in range(_SWEEPS + 1):
            linked = self._below if sweep % 2 else self._above
            for row in self.rows[::-1] if sweep % 2 else self.rows:
                means = {node: _mean([place[neighbour] for neighbour in linked[node]], place[node]) for node in row}
                row.sort(key=means.__getitem__)
                place.update({node: float(number) for number, node in enumerate(row)})

    def place(self) -> None:
        """Move each row as near to what it is linked with as its order and the gaps allow, until it rests."""
        self.centres = [0.0] * len(self.widths)
        for row in self.rows:
            self._set(row, dict.fromkeys(row, 0.0))
        links = [[*above, *below] for above, below in zip(self._above, self._below, strict=True)]
        for _ in range(_PULLS):
            for row in (*self.rows, *self.rows[::-1]):
                self._set(
                    row, {node: _mean([self.centres[neighbour] for neighbour in links[node]], 0.0) for node in row}
                )
        for row in self.rows:
            above = {node: self._above[node] or self._below[node] for node in row}
            self._set(row, {node: _mean([self.centres[neighbour] for neighbour in above[node]], 0.0) for node in row})

    def _set(self, row: Sequence[int], wanted: Mapping[int, float]) -> None:
        """The nearest places to those wanted, by least squares, that keep order and gaps (isotonic regression)."""
        offsets = [0.0]
        for left, right in pairwise(row):
            gap = self.gap if min(left, right) < self._boxes else _LINK
            offsets.append(offsets[-1] + (self.widths[left] + self.widths[right]) / 2 + gap)
        blocks = list[tuple[float, int]]()
        for node, offset in zip(row, offsets, strict=True):
            blocks.append((wanted[node] - offset, 1))
            while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] > blocks[-1][0] / blocks[-1][1]:
                total, count = blocks.pop()
                blocks[-1] = (blocks[-1][0] + total, blocks[-1][1] + count)
        places = [total / count for total, count in blocks for _ in range(count)]
        for node, offset, place in zip(row, offsets, places, strict=True):
            self.centres[node] = offset + place


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


Point = tuple[int, int]

_MARGIN = 24
_PAD = 10
_ACROSS = 28
_DOWN = 40
_BETWEEN = 8
_IN_A_ROW = 4
_WIDEST = 230
_WIDEST_HELD = 190
_PORT = 26


class Text(Value, frozen=True):
    """A line of text, by the point where its baseline starts."""

    x: int
    y: int
    line: Line


class Frame(Value, frozen=True):
    """A box in its place, with its texts and the frames that it holds."""

    box: Box
    x: int
    y: int
    width: int
    height: int
    texts: tuple[Text, ...]
    holds: tuple[Frame, ...]


class Sheet(Value, frozen=True):
    """A picture laid out. An arrow is a row of points, in turn straight down and across to the next layer."""

    title: str
    width: int
    height: int
    headings: tuple[Text, ...]
    frames: tuple[Frame, ...]
    arrows: tuple[tuple[Point, ...], ...]


def laid_out(drawing: Drawing) -> Sheet:
    """The drawing with everything in its place; its parts stand one below the other."""
    headings, frames, arrows = [_heading(drawing.title, _MARGIN)], list[Frame](), list[tuple[Point, ...]]()
    y = _MARGIN + 2 * LINE
    for part in drawing.parts:
        headings.append(_heading(part.title, y))
        placed, ways = _part(part, y + LINE + _PAD)
        frames += placed
        arrows += ways
        y = max(frame.y + frame.height for frame in placed) + _DOWN
    right = max(
        [
            *(frame.x + frame.width for frame in frames),
            *(heading.x + heading.line.width for heading in headings),
            *(x for arrow in arrows for x, _ in arrow),
        ]
    )
    return Sheet(drawing.title, right + _MARGIN, y - _DOWN + _MARGIN, tuple(headings), tuple(frames), tuple(arrows))


def _heading(text: str, y: int) -> Text:
    return Text(_MARGIN, y + LINE, Line(text, bold=True))


def _part(part: BoxGroup, top: int) -> tuple[list[Frame], list[tuple[Point, ...]]]:
    """The frames and arrows of a part that starts at `top`."""
    number = {box.name: place for place, box in enumerate(part.boxes)}
    links = [(number[source], number[target]) for source, target in part.arrows]
    layers = _layers(part.boxes, links)
    sized = [_frame_around(box, 0, 0) for box in part.boxes]
    arrangement = arranged([frame.width for frame in sized], layers, links, gap=_ACROSS)
    bands = _bands(sized, layers, top)
    frames = [
        _frame_around(frame.box, _MARGIN + round(centre - frame.width / 2), bands[layer][0])
        for frame, centre, layer in zip(sized, arrangement.centres, layers, strict=True)
    ]
    starts = _ports(frames, [(source, way[1]) for (source, _), way in zip(links, arrangement.ways, strict=True)])
    ends = _ports(frames, [(target, way[-2]) for (_, target), way in zip(links, arrangement.ways, strict=True)])
    arrows = []
    for (source, _), way, start, end in zip(links, arrangement.ways, starts, ends, strict=True):
        places = [start, *(_MARGIN + round(x) for x in way[1:-1]), end]
        points = [(start, frames[source].y + frames[source].height)]
        for layer, (left, right) in enumerate(pairwise(places), start=layers[source]):
            points += [(left, bands[layer][1]), (right, bands[layer + 1][0])]
        arrows.append(tuple(points))
    return frames, arrows


def _layers(boxes: Sequence[Box], links: Sequence[tuple[int, int]]) -> list[int]:
    """The layer of each box. Boxes without a source stand right above the first that reads them."""
    sources: list[list[int]] = [[] for _ in boxes]
    for source, target in links:
        sources[target].append(source)
    layers, floor = [0] * len(boxes), 0

    def below(place: int, least: int) -> int:
        return max([least, *(layers[source] + 1 for source in sources[place])])

    for wave in sorted({box.wave for box in boxes}):
        own = [place for place, box in enumerate(boxes) if box.wave == wave]
        stages = [place for place in own if boxes[place].kind == "stage"]
        for place in own:
            layers[place] = below(place, floor)
        level = max((layers[stage] for stage in stages), default=floor)
        for place in own:
            layers[place] = below(place, level if place in stages else floor)
        floor = level + 1 if stages else floor
    for source, _ in links:
        if not sources[source]:
            layers[source] = min(layers[target] for start, target in links if start == source) - 1
    return layers


def _bands(frames: Sequence[Frame], layers: Sequence[int], top: int) -> list[Point]:
    """For each layer where it starts and ends."""
    bands, y = [], top
    for layer in range(max(layers) + 1):
        bottom = y + max((frame.height for frame, own in zip(frames, layers, strict=True) if own == layer), default=0)
        bands.append((y, bottom))
        y = bottom + _DOWN
    return bands


def _ports(frames: Sequence[Frame], ends: Sequence[tuple[int, float]]) -> list[int]:
    """The points where arrows meet their frame: side by side, in the order of their other ends."""
    ports = [0] * len(ends)
    for number, frame in enumerate(frames):
        own = sorted((other, place) for place, (end, other) in enumerate(ends) if end == number)
        step = min(_PORT, (frame.width - 2 * _PAD) // max(1, len(own)))
        for place, (_, arrow) in enumerate(own):
            ports[arrow] = frame.x + frame.width // 2 + round((place - (len(own) - 1) / 2) * step)
    return ports


def _frame_around(box: Box, x: int, y: int, least: tuple[int, int] = (0, 0)) -> Frame:
    """The box at this place, as large as what it says and holds, and at least so wide and high."""
    held = [_frame_around(inner, 0, 0) for inner in box.holds]
    cell = max((frame.width for frame in held), default=0), max((frame.height for frame in held), default=0)
    across = min(_IN_A_ROW, len(held))
    inner = across * (cell[0] + _BETWEEN) - _BETWEEN
    most = max(inner, _WIDEST_HELD if box.kind in {"task", "group"} else _WIDEST)
    lines = [line for place, text in enumerate(box.lines) for line in fitted(text, most, bold=place == 0)]
    texts = tuple(Text(x + _PAD, y + _PAD + LINE * place + SIZE, line) for place, line in enumerate(lines))
    below = y + 2 * _PAD + LINE * len(lines)
    holds = tuple(
        _frame_around(
            inner,
            x + _PAD + place % across * (cell[0] + _BETWEEN),
            below + place // across * (cell[1] + _BETWEEN),
            cell,
        )
        for place, inner in enumerate(box.holds)
    )
    bottom = max((frame.y + frame.height + _PAD for frame in holds), default=below)
    # Even numbers, so that things in line have their middles in line.
    width = (max([inner, *(line.width for line in lines)]) + 2 * _PAD + 1) // 2 * 2
    return Frame(box, x, y, max(width, least[0]), max(bottom - y, least[1]), texts, holds)


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
