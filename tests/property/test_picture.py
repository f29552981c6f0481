"""Pictures of any plan: no box on another, every text within its box, no arrow through a box."""

from __future__ import annotations

from itertools import combinations, pairwise
from xml.etree import ElementTree

from hypothesis import given, settings
from hypothesis import strategies as st

from partitioning.pictures.drawing import Box, BoxGroup, Drawing, drawing
from partitioning.pictures.svg import Frame, arranged, laid_out, svg
from tests.examples import examples
from tests.shown import fed, merged, tails, unified

names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=60)
plans = st.one_of(
    st.builds(merged, st.integers(1, 30), st.integers(1, 30)),
    st.builds(unified, st.integers(2, 60), totals=st.integers(1, 15), wrote=st.integers(1, 9)),
    st.builds(tails, st.integers(1, 40).map("tasks({})".format), flights=st.integers(1, 40), groups=st.integers(1, 20)),
    st.builds(fed),
)


@st.composite
def drawings(draw: st.DrawFn) -> Drawing:
    """One part of any acyclic graph, with boxes in boxes."""
    kinds = st.sampled_from(["stream", "step", "stage", "exchange", "table"])
    boxes = [
        Box(
            str(number),
            draw(kinds),
            tuple(draw(st.lists(names, min_size=1, max_size=3))),
            tuple(Box(str(held), "task", (draw(names),), group=held) for held in range(draw(st.integers(0, 6)))),
            wave=draw(st.integers(0, 2)),
        )
        for number in range(draw(st.integers(1, 8)))
    ]
    boxes = sorted(boxes, key=lambda box: (box.wave, box.kind == "stage", box.kind == "table"))
    pairs = [(one.name, other.name) for one, other in combinations(boxes, 2) if _may_follow(one, other)]
    arrows = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=12)) if pairs else []
    return Drawing("any", (BoxGroup("part", tuple(boxes), tuple(arrows)),))


def _may_follow(one: Box, other: Box) -> bool:
    """Whether a plan could have an arrow from one box to the other: stages of one wave never feed each other."""
    return one.wave < other.wave or one.kind != other.kind or one.kind not in {"stage", "table"}


@settings(deadline=None, max_examples=examples(80))
@given(st.one_of(plans.map(drawing), drawings()))
def test_boxes_and_texts_keep_to_themselves(drawn: Drawing) -> None:
    sheet = laid_out(drawn)
    _check_beside(sheet.frames)
    for frame in sheet.frames:
        _check_within(frame)
        assert 0 <= frame.x < frame.x + frame.width <= sheet.width
        assert 0 <= frame.y < frame.y + frame.height <= sheet.height


@settings(deadline=None, max_examples=examples(80))
@given(st.one_of(plans.map(drawing), drawings()))
def test_arrows_run_down_between_boxes_from_edge_to_edge(drawn: Drawing) -> None:
    sheet = laid_out(drawn)
    assert len(sheet.arrows) == sum(len(part.arrows) for part in drawn.parts)
    for arrow in sheet.arrows:
        assert all(0 <= x <= sheet.width for x, _ in arrow)
        assert all(upper <= lower for (_, upper), (_, lower) in pairwise(arrow))
        # Straight down within a layer, beside its boxes; across in the gaps, where there are none.
        for (x, y), (_, lower) in list(pairwise(arrow))[::2]:
            assert not [f for f in sheet.frames if f.x <= x <= f.x + f.width and y < f.y + f.height and f.y < lower]
        for (_, y), (_, lower) in list(pairwise(arrow))[1::2]:
            assert not [f for f in sheet.frames if y < f.y + f.height and f.y < lower]


@settings(deadline=None, max_examples=examples(30))
@given(drawings())
def test_any_name_gives_a_well_formed_picture(drawn: Drawing) -> None:
    assert ElementTree.fromstring(svg(drawn)).get("role") == "img"
    assert svg(drawn) == svg(drawn)


@given(st.data())
def test_neighbours_in_a_layer_keep_their_distance(data: st.DataObject) -> None:
    widths = data.draw(st.lists(st.integers(2, 300), min_size=1, max_size=9))
    layers = [data.draw(st.integers(0, 3)) for _ in widths]
    pairs = [(a, b) for a in range(len(widths)) for b in range(len(widths)) if layers[a] < layers[b]]
    links = data.draw(st.lists(st.sampled_from(pairs), unique=True, max_size=12)) if pairs else []
    found = arranged(widths, layers, links, gap=28)
    for one, other in combinations(range(len(widths)), 2):
        if layers[one] == layers[other]:
            apart = abs(found.centres[one] - found.centres[other]) - (widths[one] + widths[other]) / 2
            assert apart >= 28 - 1e-6
    assert [len(way) for way in found.ways] == [layers[b] - layers[a] + 1 for a, b in links]


def _check_beside(frames: tuple[Frame, ...]) -> None:
    for one, other in combinations(frames, 2):
        assert (
            one.x + one.width < other.x
            or other.x + other.width < one.x
            or one.y + one.height < other.y
            or other.y + other.height < one.y
        )


def _check_within(frame: Frame) -> None:
    for text in frame.texts:
        assert frame.x < text.x
        assert text.x + text.line.width < frame.x + frame.width
        assert frame.y < text.y - 12
        assert text.y + 4 < frame.y + frame.height
        assert all(text.y + 4 < held.y for held in frame.holds)
    _check_beside(frame.holds)
    for held in frame.holds:
        assert frame.x < held.x
        assert held.x + held.width < frame.x + frame.width
        assert held.y + held.height < frame.y + frame.height
        _check_within(held)
