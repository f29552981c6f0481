"""Plots of the Data Docs' index: what lies where, what is unusual, and what those see who cannot see a plot."""

from __future__ import annotations

import json
import re
from dataclasses import replace as replaced
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from coset.reports.figure_list import FIGURES, Figure, FigureTopic
from coset.reports.plots import DRAWN, HEIGHT, WIDTH, Plot, cells, marks, plots, unusual
from coset.reports.site import Site
from expectations.checkpoint import judge
from partitioning.model.figures import usual_from
from partitioning.model.journal import Occasion
from partitioning.values import replace
from tests.evidence import batch, evidence, judged, receipts
from tests.memory_store import MemoryStore
from tests.there import there

RECORDS = Figure("records", "Records", "{:,}".format, FigureTopic.RECORDS)
values = st.lists(st.none() | st.integers(-(10**12), 10**12), max_size=60)


def rows(*values: float | None) -> list[dict[str, Any]]:
    return [
        {"batch": number, "attempt": 0, "page": "", "success": True, "records": value}
        for number, value in enumerate(values)
    ]


@given(values)
def test_each_known_value_has_a_point_within_the_plot_and_higher_values_lie_higher(values: list[int | None]) -> None:
    plot = Plot.of(RECORDS, rows(*values))
    known = [value for value in values if value is not None]
    if plot is None:
        assert len(known) < 2 or not any(known)
        return
    assert [point.row["records"] for point in plot.points] == known
    assert all(0 <= point.x <= WIDTH and 0 <= point.y <= HEIGHT for point in plot.points)
    assert [point.x for point in plot.points] == sorted(point.x for point in plot.points)
    for one in plot.points:
        for other in plot.points:
            assert one.row["records"] <= other.row["records"] or one.y <= other.y
    for band in plot.bands:
        for place in band.split():
            x, y = map(float, place.split(","))
            assert 0 <= x <= WIDTH
            assert 0 <= y <= HEIGHT


@given(values)
def test_what_is_usual_is_learned_from_the_thirty_before_and_not_from_what_comes_later(
    values: list[int | None],
) -> None:
    plot = Plot.of(RECORDS, rows(*values))
    for point in plot.points if plot else ():
        before: list[int | None] = values[: point.row["batch"]]
        usual = usual_from(before)
        assert point.unusual == (usual is not None and not usual[0] <= point.row["records"] <= usual[1])
        assert usual == usual_from(before[-30:])


def test_what_is_unusual_is_told_by_those_that_were_proved_and_gaps_are_no_values() -> None:
    plot = there(Plot.of(RECORDS, rows(100, 103, 98, 101, 99, 1000, 104)))
    assert [point.unusual for point in plot.points] == [False] * 5 + [True, False]
    made = rows(*[10] * 10, *[900] * 10, 10)
    for failed in made[10:20]:
        failed["success"] = False
    plot = there(Plot.of(RECORDS, made))
    assert [point.unusual for point in plot.points] == [False] * 10 + [True] * 10 + [False]
    assert {point.usual for point in plot.points[5:]} == {"9 to 11"}
    plot = there(Plot.of(RECORDS, rows(9, 9, 9, 9, 9, None, 9)))
    assert [point.row["batch"] for point in plot.points] == [0, 1, 2, 3, 4, 6]
    assert len(plot.bands) == 1


def test_one_value_far_above_what_was_usual_does_not_press_the_others_to_the_ground() -> None:
    plot = there(Plot.of(RECORDS, rows(*[100, 110, 90, 105, 95, 100] * 2, 50_000, 100)))
    assert [point.above for point in plot.points] == [False] * 12 + [True, False]
    assert (plot.top, plot.points[12].text) == ("120", "50,000")
    assert min(point.y for point in plot.points) == plot.points[12].y
    assert plot.points[0].y < HEIGHT / 2
    assert marks(plot, set()).count('class="above"') == 1
    # Without any usual range there is none above.
    assert not any(point.above for point in Plot.of(RECORDS, rows(1, 50_000)).points)  # type: ignore[union-attr]


def test_what_matters_or_is_unusual_now_is_drawn_first_and_all_else_by_what_it_is_about() -> None:
    figures = {"records": 10, "keys": 10, "cpu_seconds": 1.0, "rows": 5, "tables": {"b": {"rows": 2}, "a": {"rows": 3}}}
    made = [{"batch": number, "success": True, **figures} for number in range(7)]
    for keys, first in ((10, False), (90, True)):
        foremost, others = plots([{**made[-1], "batch": 7, "keys": keys}, *made[::-1]])
        assert [plot.figure.title for plot in foremost] == ["Records", "Rows written", *["Keys compared"] * first]
        folded = [plot.figure.title for drawn in others.values() for plot in drawn]
        assert folded == ["CPU", *["Keys compared"] * (not first), "a: rows", "b: rows"]


def test_state_that_is_left_has_not_moved(tmp_path: Path) -> None:
    plan, seen = batch()
    left = [
        {
            "kind": kind,
            "name": kind,
            "step": "s",
            "stage": "t",
            "partitions": 1,
            "records": count,
            "bytes": 9,
            "spared": 0,
        }
        for kind, count in (("exchange", 5), ("result", 20), ("state", 700))
    ]
    site, found = Site(tmp_path, MemoryStore()), replaced(evidence(plan, seen), moved=pd.DataFrame(left))
    judge(plan, found, {}, attempt=0, site=site)
    assert [row["moved"] for row in json.loads(site.store.get("delays/docs/index.json") or b"")] == [25]


def test_the_index_plots_what_its_table_says(tmp_path: Path) -> None:
    plan, seen = batch()
    site, found = Site(tmp_path, MemoryStore()), evidence(plan, seen)
    for number in range(7):
        ran = Occasion(1_795_514_400_000, 1_795_514_400_000 + (60_000 if number == 6 else 2_000), "here")
        done = receipts(plan, seen, ran)
        judge(replace(plan, batch=number), found, {}, attempt=0, site=site, receipts=done)
    judged(replace(plan, batch=7), seen[1:], site=site)
    text = (tmp_path / "delays" / "index.html").read_text()
    drawings = [ElementTree.fromstring(each) for each in re.findall(r"<svg.*?</svg>", text, re.DOTALL)]
    assert [each.attrib["aria-label"].partition(" of ")[0] for each in drawings] == [
        "Records", "Tasks ran", "Time expected wrongly", "CPU", "Read", "Without a key", "Keys compared", "Tasks",
        "Largest task / mean", "Largest group / mean",
    ]  # fmt: skip
    titles = [[title.text or "" for title in each.iter("title")] for each in drawings]
    records = json.loads(site.store.get("delays/docs/index.json") or b"")[-1]["records"]
    assert titles[0][:7] == [f"Batch {number}: {records:,}" for number in range(7)]
    assert titles[0][7].endswith(", not proved")
    assert titles[1] == [f"Batch {number}: 2.0 s" for number in range(6)] + ["Batch 6: 60.0 s, unusual"]
    links = [link.attrib["href"] for link in drawings[0].iter("a")]
    assert links == [f"batch-{number}-attempt-0.html" for number in range(8)]
    # The point's title, what is now, the plot's table and the batches'. It lies above the plot.
    assert text.count("60.0 s") == 4
    for drawing, table in zip(drawings, re.findall(r"<details>.*?</details>", text, re.DOTALL), strict=True):
        assert re.findall(r"<summary>Table<span[^>]*> of ([^<]*)", table) == [
            drawing.attrib["aria-label"].partition(" of ")[0]
        ]
        assert table.count("<tr>") == 1 + len(list(drawing.iter("title")))
    assert "2026-11-24 10:00:00 UTC" in text
    late = (tmp_path / "delays" / "batch-6-attempt-0.html").read_text()
    assert "Tasks ran: 60.0 s; usual is 1.8 s to 2.2 s." in late
    assert "usual is" not in (tmp_path / "delays" / "batch-5-attempt-0.html").read_text()


def test_two_hundred_batches_are_drawn_and_those_without_figures_are_not() -> None:
    made = rows(*range(1000, 1300))
    plot = there(Plot.of(RECORDS, made))
    assert [point.row["batch"] for point in plot.points] == list(range(300 - DRAWN, 300))
    assert plot.points[0].usual != "–"
    assert plots([{"batch": 1, "success": True}, {"batch": 0, "success": True}]) == ([], {})


def test_what_expectations_measured_has_plots_of_its_own_by_table_and_figure() -> None:
    measured = [
        {"rows": 20 + number, "nulls(late)": 0.1, "latest(seen)": 300 + number, "sum(amount)": -5.5, "keys": 0}
        for number in range(7)
    ]
    made = [{"batch": number, "success": True, "measured": {"paid": of}} for number, of in enumerate(measured)]
    (found,) = plots(made[::-1])[1].values()
    assert [(plot.figure.title, plot.points[-1].text, plot.bottom) for plot in found] == [
        ("paid: age of the latest seen", "5 min", "0 s"),
        ("paid: late is null", "10.0%", "0.0%"),
        ("paid: rows, as judged", "26", "0"),
        ("paid: sum of amount", "-5.5", "-6.05"),
    ]
    assert all(plot.bands for plot in found)


def test_the_partition_that_was_furthest_behind_stands_beside_the_lag() -> None:
    lag = next(each for each in FIGURES if each.name == "lag_records")
    worst = "a<b>-1 with 7 records"
    made = [
        {"batch": n, "attempt": 0, "page": "", "success": True, "lag_records": 9, "lag_worst": worst} for n in (0, 1)
    ]
    del made[0]["lag_worst"]
    plot = there(Plot.of(lag, made))
    newest, before = cells(plot, set()).split("</tr>")[:2]
    assert '>9 <span class="soft">a&lt;b&gt;-1 with 7 records</span><' in newest
    assert ">9<" in before
    titles = re.findall("<title>(.*?)</title>", marks(plot, set()))
    assert titles == ["Batch 0: 9", "Batch 1: 9; furthest behind a&lt;b&gt;-1 with 7 records"]


def test_a_changed_number_of_tasks_is_marked_where_it_begins() -> None:
    shapes = ["s: cogroup, 4", "s: cogroup, 4", None, "s: tasks(8), 8", "s: tasks(8), 8"]
    plot = there(
        Plot.of(
            RECORDS, [{"batch": n, "success": True, "records": 5, "shape": shape} for n, shape in enumerate(shapes)]
        )
    )
    assert plot.changes == ((plot.points[3].x, "s: tasks(8), 8"),)


tried = st.lists(st.tuples(st.none() | st.integers(0, 99), st.sampled_from(["s: cogroup, 4", "s: tasks(8), 8", None])))


@given(tried.filter(lambda rows: len(rows) < 60), st.sampled_from(FigureTopic))
def test_only_batches_of_the_same_tasks_say_what_is_usual_of_times_and_tasks(
    tried: list[tuple[int | None, str | None]], topic: FigureTopic
) -> None:
    made = [{"batch": n, "success": True, "cost": value, "shape": shape} for n, (value, shape) in enumerate(tried)]
    plot = Plot.of(Figure("cost", "Cost", str, topic), made)
    for point in plot.points if plot else ():
        like = [
            value
            for value, shape in tried[: point.row["batch"]]
            if topic not in (FigureTopic.TIME, FigureTopic.TASKS) or shape == point.row["shape"]
        ]
        usual = usual_from(like)
        assert (point.usual != "–") == (usual is not None)
        assert point.unusual == (usual is not None and not usual[0] <= point.row["cost"] <= usual[1])


def test_a_band_begins_anew_where_the_tasks_change_and_is_back_with_them() -> None:
    figure = next(each for each in FIGURES if each.name == "seconds")
    made: list[dict[str, Any]] = [
        {"batch": n, "success": True, "seconds": 8.0 if shape == "one" else 2.0, "records": 9, "shape": shape}
        for n, shape in enumerate(["one"] * 8 + ["two"] * 8 + ["one"] * 2)
    ]
    plot = there(Plot.of(figure, made))
    assert (len(plot.changes), len(plot.bands)) == (2, 2)
    assert [point.usual for point in plot.points[5:17:6]] == ["7.2 s to 8.8 s", "–"]
    assert [point.usual for point in plot.points[13:]] == ["1.8 s to 2.2 s"] * 3 + ["7.2 s to 8.8 s"] * 2
    assert not any(point.unusual for point in plot.points)
    assert list(unusual(made[:8], made[8])) == []
    slow = made[8] | {"seconds": 9.5}
    assert list(unusual(made[:16], slow)) == ["Tasks ran: 9.5 s; usual is 1.8 s to 2.2 s."]


@given(values)
def test_what_is_said_to_be_unusual_is_drawn_so(values: list[int | None]) -> None:
    plot = Plot.of(RECORDS, rows(*values))
    for point in plot.points if plot else ():
        number = point.row["batch"]
        said = list(unusual(rows(*values)[:number], point.row))
        assert bool(said) == point.unusual
        assert all(f"Records: {point.text}; usual is " in each for each in said)


def test_what_is_outside_by_less_than_can_be_seen_is_not_said() -> None:
    before: list[dict[str, Any]] = [{"batch": number, "seconds": 2.0} for number in range(9)]
    assert list(unusual(before, {"batch": 9, "seconds": 2.21})) == []
    assert list(unusual(before, {"batch": 9, "seconds": 2.26})) == ["Tasks ran: 2.3 s; usual is 1.8 s to 2.2 s."]
