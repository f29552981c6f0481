"""Pictures: SVG and Mermaid texts, what they show of many tasks, and that people can read them."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from partitioning.authoring.pipeline import Pipeline
from partitioning.model.plan import Plan
from partitioning.pictures.drawing import DARK, LIGHT, Box, BoxGroup, Colours, Drawing, drawing, fitted, width
from partitioning.pictures.mermaid import mermaid
from partitioning.pictures.svg import Frame, laid_out, svg
from partitioning.values import replace
from tests.goldens import expect_golden
from tests.shown import fed, merged, stage, stream, tails, unified
from tests.shown import plan as whole

SVG = "{http://www.w3.org/2000/svg}"


def texts(plan: Plan) -> list[str]:
    """All that a picture of the plan says, line by line."""
    return [element.text or "" for element in ElementTree.fromstring(svg(drawing(plan))).iter(f"{SVG}text")]


def tasks(plan: Plan) -> list[Box]:
    """The tasks that are drawn of the first stage."""
    stages = [box for box in drawing(plan).parts[1].boxes if box.kind == "stage"]
    return list(stages[0].holds)


def test_merges_waves_and_levels_of_unifiers_are_drawn_as_the_golden_files_and_the_docs_show_them() -> None:
    expect_golden("picture_merged.svg", svg(drawing(merged())))
    expect_golden("picture_merged.mermaid.md", mermaid(drawing(merged())))
    expect_golden("picture_waves.svg", svg(drawing(unified())))
    expect_golden("picture_waves.mermaid.md", mermaid(drawing(unified())))
    root = Path(__file__).parents[2]
    page = (root / "docs" / "pictures" / "merged.svg").read_text()
    assert page == (root / "tests" / "golden" / "picture_merged.svg").read_text()


@pytest.mark.parametrize("plan", [merged(), unified(), fed(), tails(), tails("tasks(300)", groups=20)])
def test_a_picture_is_one_well_formed_document_without_scripts_or_links(plan: Plan) -> None:
    root = ElementTree.fromstring(svg(drawing(plan)))
    assert root.tag == f"{SVG}svg"
    assert {each.tag.removeprefix(SVG) for each in root.iter()} == {"svg", "title", "style", "rect", "text", "path"}
    assert not [name for each in root.iter() for name in each.attrib if "href" in name or name.startswith("on")]


def test_up_to_twelve_tasks_are_drawn_one_by_one_and_of_more_those_between_together() -> None:
    assert [box.lines[0] for box in tasks(tails("tasks(12)"))] == [f"task {number}" for number in range(12)]
    assert tasks(tails("tasks(3)"))[2].lines == ("task 2", "group 0", "flights 2, 5, 8, 11", "planes 0-7")
    drawn = tasks(tails("tasks(300)", groups=20))
    assert [box.lines[0] for box in drawn] == ["task 0", "task 1", "tasks 2-298", "task 299"]
    assert drawn[2].lines[1:] == ("groups 0-19", "flights: 1 partition each", "planes: 2 partitions each")
    assert "… and 9 more groups" in texts(tails("tasks(300)", groups=20))


def test_of_many_inputs_a_task_names_the_first_four_and_counts_the_rest() -> None:
    pipeline = Pipeline("wide", source="s3://landing/topics")
    flows = [pipeline.stream(f"s{number}", key="member", partitions=4) for number in range(6)]
    flows[0].merge(*flows[1:], name="all").aggregate("count(*) AS n", name="counts").write("counts")
    wide = stage(pipeline, "s", [stream(pipeline, f"s{number}") for number in range(6)], ["all", "counts"])
    first, *_ = tasks(whole(pipeline, [wide]))
    assert first.lines == ("task 0", "group 0", "s0 0", "s1 0", "s2 0", "s3 0", "… and 2 more inputs")


def test_more_than_twelve_stages_are_counted_and_nothing_points_to_them() -> None:
    plan = fed()
    more = tuple(replace(plan.stages[0], name=f"sales-{number}", steps=(), writes=()) for number in range(11))
    groups = tuple(
        replace(group, tasks=(*group.tasks, *(replace(task, stage=each.name) for each in more for task in group.tasks)))
        for group in plan.groups[:2]
    )
    _, physical, _ = drawing(replace(plan, stages=(*plan.stages, *more), groups=(*groups, *plan.groups[2:]))).parts
    assert physical.title == "Plan of batch 0, 2 more stages not drawn"
    names = {box.name for box in physical.boxes}
    assert all(set(arrow) <= names for arrow in physical.arrows)


def test_names_are_escaped_in_both_pictures() -> None:
    names = ('a<b>&"c"#d`', "line\x00\nbreak")
    odd = Drawing("<&>", (BoxGroup("<p>", tuple(Box(name, "step", (name,)) for name in names), ()),))
    root = ElementTree.fromstring(svg(odd))
    said = [element.text for element in root.iter(f"{SVG}text")]
    assert said[:3] == ["<&>", "<p>", 'a<b>&"c"#d`']
    assert root.find(f"{SVG}title").text == "<&>"  # type: ignore[union-attr]
    assert '["a#60;b#62;#38;#34;c#34;#35;d#96;"]' in mermaid(odd)


def test_a_text_that_is_too_long_is_broken_then_shortened_and_kept_whole_as_its_tooltip() -> None:
    name = "a_stream_" * 20
    box = Drawing("long", (BoxGroup("part", (Box(name, "stream", (name,)),), ()),))
    (frame,) = laid_out(box).frames
    assert [text.line.full for text in frame.texts] == [name, name]
    assert frame.width < 300
    assert f"<title>{name}</title>" in svg(box)
    lines = fitted("flights+planes+weather.exchange", 150)
    assert [line.text for line in lines] == ["flights+planes+", "weather.exchange"]
    assert {line.full for line in lines} == {""}
    assert all(width(line.text) <= 150 for line in lines)


@pytest.mark.parametrize("colours", [LIGHT, DARK])
def test_text_stands_out_from_every_ground_that_it_is_on(colours: Colours) -> None:
    grounds = [colours.ground, *(fill for fill, _ in colours.kinds.values()), *colours.groups]
    assert min(_contrast(colours.text, ground) for ground in grounds) >= 7
    lines = [(line, fill) for fill, line in colours.kinds.values()]
    assert min(_contrast(line, fill) for line, fill in [*lines, (colours.arrow, colours.ground)]) >= 3


def _with_held(frame: Frame) -> list[Frame]:
    return [frame, *(inner for held in frame.holds for inner in _with_held(held))]


def _contrast(one: str, other: str) -> float:
    """The contrast of two colours as WCAG 2 has it: 7 is its highest demand on text, 3 that on lines."""
    low, high = sorted(map(_luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
