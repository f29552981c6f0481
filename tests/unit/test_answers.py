"""Answers of commands, as text or JSON; what is said meanwhile; the words, colours and exit codes of outcomes."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations
from pathlib import Path

import pytest

from coset.cli.output import Answer, OutputForm, Table, answer, printed, show
from coset.reports.templates import template
from partitioning.errors import Finding, Refused
from partitioning.kinds import Kind
from partitioning.model.verdict import Outcome

TABLE = Table("Streams", ("partition", "records", "seen"), [("flights-0", 1200, None), ("flights-1", 7, True)])
REFUSED = Refused(Finding(Kind.RECORD, "a record is wrong", "flights-0", "correct it"))


def given() -> Answer:
    def text() -> Iterator[str | Table]:
        yield "Two partitions."
        yield TABLE

    return Answer({"share": Fraction(1, 3), "late": (each for each in (1, 2)), "plan": lambda: {"batch": 7}}, text())


def test_people_get_text_and_programs_the_value_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(given()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["Two partitions.", "Streams", "partition   records   seen"]
    assert lines[4:] == ["flights-0     1,200   –", "flights-1         7   yes", ""]
    with printed(OutputForm(as_json=True)):
        show("This is for people.")
        assert answer(given()) == 0
    assert json.loads(capsys.readouterr().out) == {"share": "1/3", "late": [1, 2], "plan": {"batch": 7}}


def test_programs_get_a_float_that_is_no_number_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    with printed(OutputForm(as_json=True)):
        answer(Answer([{"v": float("nan")}, {"v": [float("-inf"), -0.0]}, {"v": None}]))

    def never(name: str) -> None:
        pytest.fail(f"{name} is not JSON")

    found = json.loads(capsys.readouterr().out, parse_constant=never)
    assert found == [{"v": "NaN"}, {"v": ["-Infinity", -0.0]}, {"v": None}]


@pytest.mark.parametrize("as_json", [False, True])
def test_what_is_wrong_is_told_after_the_answer(as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    with printed(OutputForm(as_json)):
        assert answer(Answer({}, ["All is shown."], REFUSED)) == 3
    out, err = capsys.readouterr()
    assert out == ("{}\n" if as_json else "All is shown.\n")
    assert (json.loads(err)["findings"][0]["what"] if as_json else err.splitlines()[1]) == "a record is wrong"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (19.75, "19.75"),
        (3.0, "3.00"),
        (0.004, "0.004"),
        (-123456.789123, "-123,456.789123"),
        (1e-9, "1e-09"),
        (-0.0, "-0.00"),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
    ],
)
def test_a_number_is_shown_as_it_is(value: float, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    show(Table("Rows", ("amount",), [(value,)]))
    assert capsys.readouterr().out.splitlines()[3].strip() == shown


def test_without_rows_there_is_a_sentence_and_no_table(capsys: pytest.CaptureFixture[str]) -> None:
    show(Table("Gaps", ("range",), [], empty="No gaps"))
    assert capsys.readouterr().out == "No gaps\n"


def test_a_table_is_wrapped_where_its_words_fit(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    show(Table("Batches", ("batch", "why"), [("0", "all 14 expectations are met, and 20 stream partitions were read")]))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 40
    assert lines[3].split() == ["0", "all", "14", "expectations", "are", "met,", "and"]


def test_a_table_whose_words_are_too_long_is_shown_row_by_row(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    place = "s3://lake/coset/tables/spent"
    wide = Table("Tables", ("table", "lies in", "version"), [("spent", place, 3), ("late", "", 4)])
    show(wide)
    assert capsys.readouterr().out.splitlines() == [
        "Tables", "table    spent", f"lies in  {place}", "version  3", "", "table    late", "version  4", "",
    ]  # fmt: skip
    with printed(OutputForm(wide=True)):
        show(wide)
    assert capsys.readouterr().out.splitlines()[3] == f"spent   {place}         3"


GUIDE = (Path(__file__).parents[2] / "docs" / "guide" / "reports.md").read_text()
STYLE = (Path(__file__).parents[2] / "coset" / "reports" / "pages" / "style.css").read_text()

# What is seen of linear red, green and blue by those without red, green or blue cones, after Machado et al. 2009.
SEEING = {
    "all": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no red": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "no green": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "no blue": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}


def linear(colour: str) -> list[float]:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def luminance(colour: str) -> float:
    red, green, blue = linear(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def lab(colour: str, seeing: str) -> tuple[float, float, float]:
    of = linear(colour)
    red, green, blue = (
        max(0.0, sum(share * part for share, part in zip(row, of, strict=True))) for row in SEEING[seeing]
    )
    white = ((0.4124, 0.3576, 0.1805, 0.9505), (0.2126, 0.7152, 0.0722, 1.0), (0.0193, 0.1192, 0.9505, 1.0890))
    x, y, z = (
        (value ** (1 / 3) if value > 0.008856 else 7.787 * value + 16 / 116)
        for value in ((r * red + g * green + b * blue) / most for r, g, b, most in white)
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("page", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("seeing", SEEING)
def test_outcomes_that_ask_for_something_else_are_told_apart_by_whoever_sees_few_colours(
    seeing: str, page: int
) -> None:
    for one, other in combinations((Outcome.PROVED, Outcome.FAILED, Outcome.UNJUDGED), 2):
        apart = zip(lab(one.colours[page], seeing), lab(other.colours[page], seeing), strict=True)
        assert sum((a - b) ** 2 for a, b in apart) ** 0.5 > 12, (one, other)


@pytest.mark.parametrize(("page", "paper"), [(0, ("#ffffff", "#f5f7fa")), (1, ("#15181e", "#1e232c"))])
def test_outcomes_are_read_on_light_and_dark_pages(page: int, paper: tuple[str, str]) -> None:
    assert f"--paper: {paper[0].replace('#ffffff', '#fff')}" in STYLE
    for outcome in Outcome:
        assert all(contrast(outcome.colours[page], behind) >= 4.5 for behind in paper), outcome


def test_each_outcome_has_a_sign_and_a_colour_of_its_own_and_stands_in_the_guide() -> None:
    assert len({outcome.sign for outcome in Outcome}) == len(Outcome)
    assert len({outcome.colours for outcome in Outcome}) == len(Outcome)
    style = template("sentence.html").render(title="", what="")
    for outcome in Outcome:
        assert all(f"--{outcome.name.lower()}: {colour};" in style for colour in outcome.colours)
    rows = re.findall(r"^\| (\S) ([a-z ]+) \|.*\| ([0-9]) \|$", GUIDE, re.M)
    assert rows == [(outcome.sign, outcome.value, str(outcome.exit_code)) for outcome in Outcome]


SEVERAL_AT_ONCE = """
import threading, time
from coset.cli.output import progress, step

both = threading.Barrier(2)

def group(number):
    with step(f"run group {number}") as said:
        both.wait()
        time.sleep(0.5 * number)
        progress("look", "at this")
        said.append(f"[done] {number}")

threads = [threading.Thread(target=group, args=(number,)) for number in (1, 2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


COUNTED = """
import time
from coset.cli.output import counted, doing, step, tracked

for _ in tracked(["a", "b"], "stream partitions", "land orders"):
    time.sleep(0.3)
with counted(3, "task groups", "run group"):
    for name in ("run group 0", "look", "run group 1"):
        with step(name):
            time.sleep(0.3)
with counted(2, "pipelines") as done:
    for groups in (1, 2):
        with counted(groups, "task groups", "run group"), step("run group 0"):
            time.sleep(0.3)
        done(1)
with counted(1, "task groups", "run group"), step("check"), counted(4_000_000, "rows judged") as done:
    time.sleep(0.3)
    done(1_000_000)
    time.sleep(0.3)
with doing("compact"), counted(2, "tables"), counted(400, "batches") as done:
    time.sleep(0.3)
    for _ in range(300):
        done(1)
    time.sleep(0.3)
"""


def test_in_a_terminal_a_bar_says_how_many_are_done_and_how_long_the_others_take() -> None:
    reading, writing = pty.openpty()
    subprocess.run([sys.executable, "-c", COUNTED], stderr=writing, check=True)
    os.close(writing)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", _all_of(reading))
    assert "0 of 2 stream partitions: land orders …" in shown
    assert re.search(r"━+ +1 of 2 stream partitions, [0-9]+ s left: land orders …", shown)
    assert "0 of 3 task groups: run group 0 …" in shown
    assert re.search(r"━+ +1 of 3 task groups, [0-9]+ s left: look …", shown)
    assert re.search(r"━+ +1 of 3 task groups, [0-9]+ s left: run group 1 …", shown)
    assert "0 of 2 pipelines; 0 of 1 task groups: run group 0 …" in shown
    assert re.search(r"━+ +1 of 2 pipelines, [0-9]+ s left; 0 of 2 task groups: run group 0 …", shown)
    assert re.search(r"0 of 1 task groups; 1,000,000 of 4,000,000 rows judged, [0-9]+ s left: check …", shown)
    assert "0 of 2 tables; 0 of 400 batches: compact …" in shown
    assert re.search(r"0 of 2 tables; 300 of 400 batches, [0-9]+ s left: compact …", shown)


def test_several_steps_at_once_share_the_last_line_of_a_terminal() -> None:
    reading, writing = pty.openpty()
    subprocess.run([sys.executable, "-c", SEVERAL_AT_ONCE], stderr=writing, check=True)
    os.close(writing)
    shown = _all_of(reading)
    # What is left on each line once the last one has been drawn over.
    lines = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line.split("\x1b[2K")[-1]) for line in shown.splitlines()]
    assert any("run group 1, run group 2 …" in line or "run group 2, run group 1 …" in line for line in lines)
    said = [line.strip("\r") for line in lines if line.startswith(("ok", "  "))]
    assert [re.sub(r" +[0-9.]+ s ", "", line) for line in said] == [
        "       look                     at this",
        "ok     run group 1 [done] 1",
        "       look                     at this",
        "ok     run group 2 [done] 2",
    ]


def test_in_a_file_there_is_a_line_for_each_step() -> None:
    done = subprocess.run([sys.executable, "-c", SEVERAL_AT_ONCE], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert [line.split()[:4] for line in done.stderr.splitlines() if line.startswith("ok")] == [
        ["ok", "run", "group", "1"],
        ["ok", "run", "group", "2"],
    ]


def _all_of(reading: int) -> str:
    """All that was written to a terminal."""
    shown = ""
    with os.fdopen(reading, encoding="utf-8") as terminal:
        while True:
            try:
                shown += terminal.readline()
            except OSError:  # so a terminal ends
                return shown
