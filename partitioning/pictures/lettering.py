"""Lettering: how wide text is at most in a picture, and how it is broken or shortened to fit its box.

Widths are those of DejaVu Sans, which is wider than the other fonts that a viewer may put in its place.
"""

from __future__ import annotations

import re
import unicodedata
from math import ceil

from partitioning.texts import visible
from partitioning.values import Value

SIZE = 12
LINE = 17
_BOLD = 1.12
_MOST_LINES = 2
# Width in em: the characters that are about this wide. Other ASCII characters are at most 0.64.
_WIDTHS = {
    0.36: "ijlI'|.,:; ",
    0.45: "ftr()[]-/\\!",
    0.7: "ABCEFKLPSTVXYZ_$*",
    0.84: "DGHNOQRUw+<=>~#&^×≡→·",
    1.02: "mMW@%…",
}
_BREAK = re.compile(r"(?<=[ ,+._/])(?=[^ ])")


class _Widths(dict[str, float]):
    """The width of each letter, looked at when it is first asked for."""

    def __missing__(self, letter: str) -> float:
        em = 0.64 if letter.isascii() else 1.02 if unicodedata.east_asian_width(letter) in "WF" else 0.84
        self[letter] = em
        return em


_EM = _Widths((letter, em) for em, letters in _WIDTHS.items() for letter in letters)


class Line(Value, frozen=True):
    """A line of text to write; `full` is what it was shortened from, empty if it was not."""

    text: str
    bold: bool = False
    full: str = ""

    @property
    def width(self) -> int:
        """How wide it is at most, in pixels."""
        return width(self.text, bold=self.bold)


def width(text: str, *, bold: bool = False) -> int:
    """How wide a text is at most, in pixels at 12 pixels a letter.

    >>> width("flights"), width("flights", bold=True), width("航班")
    (43, 48, 25)
    """
    return ceil(sum(map(_EM.__getitem__, text)) * SIZE * (_BOLD if bold else 1))


def fitted(text: str, most: int, *, bold: bool = False) -> tuple[Line, ...]:
    """The text in at most two lines of at most `most` pixels, broken after punctuation, else shortened.

    >>> [line.text for line in fitted("orders+by_member.exchange", 120)]
    ['orders+by_', 'member.exchange']
    >>> [line.text for line in fitted("a_rather_long_name_of_a_stage", 120)]
    ['a_rather_long_', 'name_of_a_stage']
    >>> fitted("incomprehensibilities", 80)
    (Line(text='incompre…', bold=False, full='incomprehensibilities'),)
    """
    lines = [""]
    for word in _BREAK.split(visible(text)):
        if lines[-1] and width((lines[-1] + word).rstrip(), bold=bold) > most:
            lines.append("")
        lines[-1] += word
    if len(lines) > _MOST_LINES:
        lines = [*lines[: _MOST_LINES - 1], "".join(lines[_MOST_LINES - 1 :])]
    short = [_shortened(line.strip(), most, bold) for line in lines]
    full = text if any(line.strip() != kept for line, kept in zip(lines, short, strict=True)) else ""
    return tuple(Line(line, bold, full) for line in short)


def _shortened(text: str, most: int, bold: bool) -> str:
    if width(text, bold=bold) <= most:
        return text
    while text and width(text + "…", bold=bold) > most:
        text = text[:-1]
    return text.rstrip() + "…"
