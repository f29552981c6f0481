"""Mermaid: a plan drawn as a flowchart in Markdown, for pages and pull requests that render it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from partitioning.pictures.drawing import LIGHT, Box, BoxGroup, Drawing
from partitioning.texts import visible

_SETTINGS = '%%{init: {"flowchart": {"wrappingWidth": 400}}}%%'
_IN_A_ROW = 4
_SHAPES = {"stream": ("[(", ")]"), "table": ("[(", ")]"), "exchange": ("{{", "}}")}
# Letters with a meaning in a label. The code of # comes first, so that each letter is replaced once.
_CODES = {ord(letter): f"#{ord(letter)};" for letter in '#"&<>`'}


def mermaid(drawing: Drawing) -> str:
    """The drawing as a fenced Mermaid flowchart, the same for the same drawing.

    >>> boxes = (Box("flights", "stream", ("flights", "12 partitions")), Box("late", "step", ("late", "filter")))
    >>> print(mermaid(Drawing("delays, batch 0", (BoxGroup("Pipeline", boxes, (("flights", "late"),)),))), end="")
    ```mermaid
    %%{init: {"flowchart": {"wrappingWidth": 400}}}%%
    flowchart TB
      subgraph p0["delays, batch 0: Pipeline"]
        direction TB
        p0b0[("flights<br/>12 partitions")]:::stream
        p0b1["late<br/>filter"]:::step
        p0b0 --> p0b1
      end
      classDef stream fill:#ddf0fb,stroke:#0072b2,color:#1f2328
      classDef step fill:#f3f4f6,stroke:#6b7280,color:#1f2328
      classDef frame fill:none,stroke:#57606a
      class p0 frame
    ```
    """
    chart = _Chart()
    for number, part in enumerate(drawing.parts):
        title = part.title if number else f"{drawing.title}: {part.title}"
        chart.part(part, f"p{number}", title)
        if number:
            # An invisible link puts the part below the one before.
            chart.lines.append(f"  p{number - 1} ~~~ p{number}")
    return "\n".join(["```mermaid", _SETTINGS, "flowchart TB", *chart.lines, *chart.classes(), "```"]) + "\n"


class _Chart:
    """A flowchart as it is written: its lines, the styles it needs, the frames in it."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._styles: dict[str, str] = {}
        self._frames: list[str] = []

    def part(self, part: BoxGroup, name: str, title: str) -> None:
        """A part as a frame around its boxes."""
        names = {box.name: f"{name}b{number}" for number, box in enumerate(part.boxes)}
        self._open(name, title, "  ")
        for box in part.boxes:
            self._box(box, names[box.name], "    ")
        self.lines += [f"    {names[source]} --> {names[target]}" for source, target in part.arrows]
        self.lines.append("  end")

    def classes(self) -> Iterator[str]:
        """The styles of all boxes and frames."""
        for name, style in self._styles.items():
            yield f"  classDef {name} {style}"
        yield f"  classDef frame fill:none,stroke:{LIGHT.arrow}"
        yield f"  class {','.join(self._frames)} frame"

    def _open(self, name: str, title: str, indent: str) -> None:
        self._frames.append(name)
        self.lines += [f'{indent}subgraph {name}["{_escaped(title)}"]', f"{indent}  direction TB"]

    def _box(self, box: Box, name: str, indent: str) -> None:
        """A box; one that holds others as a frame around them and the rest of its own text."""
        if not box.holds:
            self._node(box, name, box.lines, indent)
            return
        self._open(name, box.lines[0], indent)
        self._node(box, f"{name}h", box.lines[1:], f"{indent}  ")
        held = [f"{name}t{number}" for number in range(len(box.holds))]
        for held_box, inner in zip(box.holds, held, strict=True):
            self._node(held_box, inner, held_box.lines, f"{indent}  ")
        # Rows of a few tasks each, below the text.
        above = [f"{name}h"] * _IN_A_ROW + held
        self.lines += [f"{indent}  {upper} ~~~ {inner}" for upper, inner in zip(above, held, strict=False)]
        self.lines.append(f"{indent}end")

    def _node(self, box: Box, name: str, lines: Sequence[str], indent: str) -> None:
        kind = box.kind if box.group is None else f"g{box.group % len(LIGHT.groups)}"
        fill, line = LIGHT.kinds[box.kind]
        if box.group is not None:
            fill = LIGHT.groups[box.group % len(LIGHT.groups)]
        self._styles[kind] = f"fill:{fill},stroke:{line},color:{LIGHT.text}"
        before, after = _SHAPES.get(box.kind, ("[", "]"))
        self.lines.append(f'{indent}{name}{before}"{"<br/>".join(map(_escaped, lines))}"{after}:::{kind}')


def _escaped(text: str) -> str:
    return visible(text).translate(_CODES)
