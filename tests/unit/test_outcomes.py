"""The six outcomes: the same words, signs, colours and exit codes everywhere, also for those who see few colours."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import pytest

from coset.reports.templates import template
from partitioning.model.outcome import Outcome

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


def test_each_outcome_has_a_sign_and_a_colour_of_its_own() -> None:
    assert len({outcome.sign for outcome in Outcome}) == len(Outcome)
    assert len({outcome.colours for outcome in Outcome}) == len(Outcome)
    style = template("sentence.html").render(title="", what="")
    for outcome in Outcome:
        assert all(f"--{outcome.name.lower()}: {colour};" in style for colour in outcome.colours)


def test_the_guide_has_each_outcome_with_its_sign_and_exit_code() -> None:
    rows = re.findall(r"^\| (\S) ([a-z ]+) \|.*\| ([0-9]) \|$", GUIDE, re.M)
    assert rows == [(outcome.sign, outcome.value, str(outcome.exit_code)) for outcome in Outcome]
