"""Meetings: tables of records of a stream that are joined in time with those of another; and what plain Python says has
to be in them.

A record happened at the minute of its number. Nothing is asked of the product but which records a batch has read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from partitioning.authoring.pipeline import Pipeline
from partitioning.kinds import Kind
from tests.branches import MINUTE, TIME
from tests.changing import key_of
from tests.stream_marks import Marks

# Records of a key are at least 23 minutes apart.
WITHIN, WAIT, KEEP = 30, 3, 26
# A version with such a number ends the validity of those before it.
GONE = 4
AS_OF = "as of"
Pair = tuple[str, int | None, int | None]


@dataclass(frozen=True)
class Meeting:
    """Records of `mine` with those of `theirs` that are near in time, those without one alone: of mine, if it is `how`
    left, or of both; or, as of their time, with the version of theirs that was valid."""

    mine: str
    theirs: str
    table: str
    step: str
    how: str
    # Which records of mine there are: those of which this divides the number.
    every: int = 1

    @property
    def streams(self) -> tuple[str, str]:
        return self.mine, self.theirs

    @property
    def keeps(self) -> tuple[str, str]:
        """The steps that keep what there is of each stream."""
        return f"{self.step}.{self.table}.mine", f"{self.step}.{self.table}.theirs"

    @property
    def lasts(self) -> tuple[int, int]:
        """How long the records of each stream are kept."""
        return (WAIT, KEEP) if self.how == AS_OF else (2 * WITHIN, 2 * WITHIN)

    def add_to(self, pipeline: Pipeline) -> None:
        mine = pipeline.flow(self.mine).filter(f"number % {self.every} = 0", name=f"{self.table}.mine")
        theirs = pipeline.flow(self.theirs).filter("true", name=f"{self.table}.theirs")
        columns = f'"{mine.alias}".number AS n, "{theirs.alias}".number AS total'
        times = TIME.format(f'"{mine.alias}".number'), TIME.format(f'"{theirs.alias}".number')
        said: dict[str, Any] = {"times": times, "name": self.step}
        if self.how == AS_OF:
            said |= {"keep": KEEP * MINUTE, "wait": WAIT * MINUTE, "deletes": f"number % {GONE} = 0"}
            mine.join_as_of(theirs, columns, **said).write(self.table)
        else:
            mine.join_within(theirs, columns, within=WITHIN * MINUTE, how=self.how, **said).write(self.table)

    def meaning(self) -> tuple[object, ...]:
        """What has to be the same of each stream for what is kept to mean the same."""
        return (self.mine, self.every), self.theirs


@dataclass
class Met:
    """What the tables of meetings have to hold.

    `known` are the numbers that steps go on from, `meant` what they mean, `passed` the watermarks by which they went.
    """

    tables: dict[str, list[Pair]] = field(default_factory=dict)
    known: dict[str, list[int]] = field(default_factory=dict)
    meant: dict[str, object] = field(default_factory=dict)
    passed: dict[str, int | None] = field(default_factory=dict)

    def refusals(self, meetings: Iterable[Meeting]) -> Mapping[str, Kind]:
        """The steps that a batch of these meetings is not planned for unless it is asked for by name."""
        found = {}
        for meeting in meetings:
            for step, meaning in zip(meeting.keeps, meeting.meaning(), strict=True):
                if step in self.meant and self.meant[step] != meaning:
                    found[step] = Kind.STATE_CHANGED
                elif step not in self.meant and self.tables.get(meeting.table):
                    found[step] = Kind.STATE_BEGINS
        return found

    def after(
        self, meetings: Sequence[Meeting], read: Mapping[str, Sequence[int]], anew: Iterable[str], marks: Marks
    ) -> None:
        """A batch is published, in which these steps began anew, it `read` these numbers of the streams, and went by
        these watermarks."""
        before = replace(self, known=self.known | {step: [] for step in anew})
        self.known, self.meant, self.passed = {}, {}, {}
        for meeting in meetings:
            times = [marks.time.get(name) for name in meeting.streams]
            reached = None if None in times else min(time for time in times if time is not None)
            sides = []
            for number, step in enumerate(meeting.keeps):
                new = read[meeting.streams[number]]
                new = [one for one in new if number or one % meeting.every == 0]
                was = before.passed.get(step)
                now = max((time for time in (was, reached) if time is not None), default=None)
                sides.append(_Side(before.known.get(step, []), new, was, now, meeting.lasts[number]))
                self.meant[step], self.passed[step] = meeting.meaning()[number], now
            rows = (
                _as_of(sides[0], sides[1])
                if meeting.how == AS_OF
                else _within(sides[0], sides[1], is_full=meeting.how == "full")
            )
            self.tables[meeting.table] = [*self.tables.get(meeting.table, []), *rows]
            mine, theirs = (side.kept() for side in sides)
            if meeting.how == AS_OF:
                theirs += sides[1].newest_over()
            self.known |= dict(zip(meeting.keeps, (mine, theirs), strict=True))


@dataclass(frozen=True)
class _Side:
    """The numbers of a stream in a batch: `old` and `new` ones, and by which watermark it goes, `was` and is `now`."""

    old: Sequence[int]
    new: Sequence[int]
    was: int | None
    now: int | None
    lasts: int

    def numbers(self) -> Iterator[tuple[int, bool]]:
        """All of them, with which are new."""
        yield from ((number, False) for number in self.old)
        yield from ((number, True) for number in self.new)

    def is_open(self, number: int, is_new: bool, waits: int) -> bool:
        """Whether its time was not over before."""
        return is_new or self.was is None or number >= self.was - waits

    def closes(self, number: int, is_new: bool, waits: int) -> bool:
        """Whether its time is over in this batch."""
        return self.now is not None and number < self.now - waits and self.is_open(number, is_new, waits)

    def is_over(self, number: int) -> bool:
        return self.now is not None and number < self.now - self.lasts

    def kept(self) -> list[int]:
        return [number for number, _ in self.numbers() if not self.is_over(number)]

    def newest_over(self) -> list[int]:
        """Of each key the newest that is over."""
        over = sorted(number for number, _ in self.numbers() if self.is_over(number))
        return list({key_of(number): number for number in over}.values())


def _within(mine: _Side, theirs: _Side, *, is_full: bool) -> Iterator[Pair]:
    # What was given alone gets no partner any more.
    pairs = [
        (one, other)
        for one in mine.numbers()
        for other in theirs.numbers()
        if key_of(one[0]) == key_of(other[0])
        and abs(one[0] - other[0]) <= WITHIN
        and (not other[1] or mine.is_open(*one, WITHIN))
        and (not is_full or not one[1] or theirs.is_open(*other, WITHIN))
    ]
    yield from ((key_of(one), one, other) for (one, is_new), (other, is_too) in pairs if is_new or is_too)
    met, met_theirs = {one for one, _ in pairs}, {other for _, other in pairs}
    for one in mine.numbers():
        if one not in met and mine.closes(*one, WITHIN):
            yield key_of(one[0]), one[0], None
    for other in theirs.numbers():
        if is_full and other not in met_theirs and theirs.closes(*other, WITHIN):
            yield key_of(other[0]), None, other[0]


def _as_of(mine: _Side, theirs: _Side) -> Iterator[Pair]:
    for one in mine.numbers():
        if mine.closes(*one, WAIT):
            before = [n for n, _ in theirs.numbers() if key_of(n) == key_of(one[0]) and n <= one[0]]
            valid = max(before, default=None)
            yield key_of(one[0]), one[0], None if valid is None or valid % GONE == 0 else valid
