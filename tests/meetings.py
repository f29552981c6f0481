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
    within: int = WITHIN

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
        return (WAIT, KEEP) if self.how == AS_OF else (2 * self.within, 2 * self.within)

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
            said["how"] = self.how
            mine.join_within(theirs, columns, within=self.within * MINUTE, **said).write(self.table)

    def meaning(self) -> tuple[object, ...]:
        """What has to be the same of each stream for what is kept to mean the same."""
        return (self.mine, self.every), self.theirs

    @property
    def waits(self) -> tuple[bool, bool]:
        """Whether records of each stream are given alone once they have waited."""
        return True, self.how == "full"


@dataclass
class Met:
    """What the tables of meetings have to hold.

    `known` are the records that steps go on from, `meant` what they mean, `waited` how long they waited for each other,
    `passed` the watermarks by which they went.
    """

    tables: dict[str, list[Pair]] = field(default_factory=dict)
    known: dict[str, list[_Record]] = field(default_factory=dict)
    meant: dict[str, object] = field(default_factory=dict)
    waited: dict[str, int] = field(default_factory=dict)
    passed: dict[str, int | None] = field(default_factory=dict)
    batches: int = 0

    def refusals(self, meetings: Iterable[Meeting]) -> Mapping[str, Kind]:
        """The steps that a batch of these meetings is not planned for unless it is asked for by name."""
        found = {}
        for meeting in meetings:
            for step, meaning in zip(meeting.keeps, meeting.meaning(), strict=True):
                if step in self.meant and (self.meant[step] != meaning or self._waited_otherwise(meeting, step)):
                    found[step] = Kind.STATE_CHANGED
                elif step not in self.meant and self.tables.get(meeting.table):
                    found[step] = Kind.STATE_BEGINS
        return found

    def can_go_on(self, meeting: Meeting) -> Iterator[str]:
        """The steps of which only what comes before them has changed."""
        there = (step for step in meeting.keeps if step in self.meant)
        yield from (step for step in there if not self._waited_otherwise(meeting, step))

    def _waited_otherwise(self, meeting: Meeting, step: str) -> bool:
        waits = dict(zip(meeting.keeps, meeting.waits, strict=True))
        return waits[step] and self.waited[step] != meeting.within

    def after(
        self, meetings: Sequence[Meeting], read: Mapping[str, Sequence[int]], anew: Iterable[str], marks: Marks
    ) -> None:
        """A batch is published, in which these steps began anew, it `read` these numbers of the streams, and went by
        these watermarks."""
        before = replace(self, known=self.known | {step: [] for step in anew})
        self.known, self.meant, self.waited, self.passed = {}, {}, {}, {}
        self.batches += 1
        for meeting in meetings:
            times = [marks.time.get(name) for name in meeting.streams]
            reached = None if None in times else min(time for time in times if time is not None)
            reached_before = _latest(*(before.passed.get(step) for step in meeting.keeps))
            over = None if reached_before is None else reached_before - meeting.within
            sides = []
            for number, step in enumerate(meeting.keeps):
                # A record waits for versions only.
                goes_by = times[1] if meeting.how == AS_OF and not number else reached
                numbers = read[meeting.streams[number]]
                new = [_Record(one, self.batches, over) for one in numbers if number or one % meeting.every == 0]
                was = before.passed.get(step)
                now = _latest(was, goes_by)
                sides.append(_Side(before.known.get(step, []), new, was, now, meeting.lasts[number]))
                self.meant[step], self.waited[step] = meeting.meaning()[number], meeting.within
                self.passed[step] = now
            rows = (
                _as_of(sides[0], sides[1])
                if meeting.how == AS_OF
                else _within(sides[0], sides[1], meeting.within, is_full=meeting.how == "full")
            )
            self.tables[meeting.table] = [*self.tables.get(meeting.table, []), *rows]
            mine, theirs = (side.kept() for side in sides)
            if meeting.how == AS_OF:
                theirs += sides[1].newest_over()
            if meeting.how != "full":
                # When they came is not kept.
                mine, theirs = ([replace(one, batch=0, over=None) for one in side] for side in (mine, theirs))
            self.known |= dict(zip(meeting.keeps, (mine, theirs), strict=True))


@dataclass(frozen=True)
class _Record:
    """A number, in which batch it came, and before which number records were over then."""

    number: int
    batch: int
    over: int | None

    def came_when_over(self, other: _Record) -> bool:
        """Whether it came after another one had waited in vain."""
        return other.batch < self.batch and self.over is not None and other.number < self.over


@dataclass(frozen=True)
class _Side:
    """The records of a stream in a batch: `old` and `new` ones, and by which watermark it goes, `was` and is `now`."""

    old: Sequence[_Record]
    new: Sequence[_Record]
    was: int | None
    now: int | None
    lasts: int

    def records(self) -> Iterator[tuple[_Record, bool]]:
        """All of them, with which are new."""
        yield from ((record, False) for record in self.old)
        yield from ((record, True) for record in self.new)

    def closing(self, waits: int) -> Iterator[_Record]:
        """Those whose time is over in this batch, and was not before."""
        for record, is_new in self.records():
            was_open = is_new or self.was is None or record.number >= self.was - waits
            if self.now is not None and record.number < self.now - waits and was_open:
                yield record

    def is_over(self, record: _Record) -> bool:
        return self.now is not None and record.number < self.now - self.lasts

    def kept(self) -> list[_Record]:
        return [record for record, _ in self.records() if not self.is_over(record)]

    def newest_over(self) -> list[_Record]:
        """Of each key the newest that is over."""
        over = sorted((record for record, _ in self.records() if self.is_over(record)), key=lambda one: one.number)
        return list({key_of(record.number): record for record in over}.values())


def _within(mine: _Side, theirs: _Side, within: int, *, is_full: bool) -> Iterator[Pair]:
    # What was given alone gets no partner any more, and is none of what came later.
    pairs = [
        (one, other, is_new or is_too)
        for one, is_new in mine.records()
        for other, is_too in theirs.records()
        if key_of(one.number) == key_of(other.number)
        and abs(one.number - other.number) <= within
        and not other.came_when_over(one)
        and not (is_full and one.came_when_over(other))
    ]
    yield from ((key_of(one.number), one.number, other.number) for one, other, is_new in pairs if is_new)
    met, met_theirs = {one for one, _, _ in pairs}, {other for _, other, _ in pairs}
    yield from ((key_of(one.number), one.number, None) for one in mine.closing(within) if one not in met)
    if is_full:
        alone = (other for other in theirs.closing(within) if other not in met_theirs)
        yield from ((key_of(other.number), None, other.number) for other in alone)


def _as_of(mine: _Side, theirs: _Side) -> Iterator[Pair]:
    for one in mine.closing(WAIT):
        there = (other.number for other, _ in theirs.records() if key_of(other.number) == key_of(one.number))
        valid = max((number for number in there if number <= one.number), default=None)
        yield key_of(one.number), one.number, None if valid is None or valid % GONE == 0 else valid


def _latest(*times: int | None) -> int | None:
    return max((time for time in times if time is not None), default=None)
