"""Answers of commands: one value, printed as text or as JSON, in the width that there is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction

import pytest

from coset.cli.output import Answer, OutputForm, Table, answer, printed, show
from partitioning.errors import Finding, Refused
from partitioning.kinds import Kind

TABLE = Table("Streams", ("partition", "records", "seen"), [("flights-0", 1200, None), ("flights-1", 7, True)])
REFUSED = Refused(Finding(Kind.RECORD, "a record is wrong", "flights-0", "correct it"))


def given() -> Answer:
    def text() -> Iterator[str | Table]:
        yield "Two partitions."
        yield TABLE

    return Answer({"share": Fraction(1, 3), "late": (each for each in (1, 2)), "plan": lambda: {"batch": 7}}, text())


def test_people_get_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(given()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["Two partitions.", "Streams", "partition   records   seen"]
    assert lines[4:] == ["flights-0     1,200   –", "flights-1         7   yes", ""]


def test_programs_get_the_value_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
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
