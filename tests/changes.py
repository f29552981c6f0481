"""A pipeline that is changed by chance from batch to batch, and what has to come of it.

What a batch has to read, what its tables have to hold, and what is refused until it is asked for by name is worked out
beside the product, by direct queries. Of joins in time, plain Python says it of meetings: tables of records of a stream
that are joined with those of another. A record happened at the minute of its number.
"""

from __future__ import annotations

import random
import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from coset.batches import ends, publication, steps
from coset.batches.planning import preview
from coset.batches.ref import BatchRef
from coset.batches.runners.local import Local
from coset.batches.tables.handing_over import hand_over
from coset.sources.s3 import storage_options
from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.documents.document import canonical
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import Finding, Refused
from partitioning.kinds import Kind
from partitioning.model.allowance import Allowance
from partitioning.model.plan import Plan
from partitioning.model.read_ends import What
from partitioning.model.schemes import Scheme
from partitioning.model.table_mode import Mode
from partitioning.values import replace as with_values
from spark_jobs.tables.table_schema import folder
from tests.branches import MINUTE, TIME, Branch, Wanted
from tests.changing import NAMES, World, key_of, partition_in
from tests.landed import land_file
from tests.logs import log_of
from tests.refused import findings_of
from tests.running import run_and_publish_unjudged, run_groups
from tests.stream_marks import LATE, Marks
from tests.there import there

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


PIPELINE, OTHER = "changing", "other"
# One in so many records of a stream comes late.
HELD = 6


class Changing(World):
    """A world whose pipeline has branches too; each of its batches is compared with what it had to do."""

    said: ClassVar[Mapping[str, Any]] = {"time": TIME.format("number"), "late": LATE * MINUTE}

    def __init__(self, store: Store, docs: Path | None = None) -> None:
        super().__init__(store, docs)
        self.branches = list[Branch]()
        self.left_out = list[Branch]()
        self.wanted = Wanted()
        self.meetings = list[Meeting]()
        self.met = Met()
        self.marks = Marks()
        # Whether steps go on with what they kept, where it may be asked that they do.
        self.goes_on = True
        # What becomes of the next batch before it is published.
        self.fate = ""
        # The streams of which it is known up to where they were read.
        self.known = set[str]()
        self.batches = 0
        # The numbers of each stream that come long after others.
        self._held = {name: list[int]() for name in NAMES}
        self._written = set[str]()
        self._named = 0
        self._given = dict[str, int]()

    def next_name(self, what: str) -> str:
        self._named += 1
        return f"{what}{self._named}"

    def land(self, name: str, numbers: Iterable[int]) -> None:
        """All but those that come late."""
        there = list(numbers)
        self._held[name] += [number for number in there if number % HELD == 0]
        super().land(name, [number for number in there if number % HELD])

    def come_late(self) -> None:
        """Land the records that were held back."""
        for name, held in self._held.items():
            super().land(name, held)
            held.clear()

    def derive(self, stream: Flow, name: str) -> None:
        for branch in self.planned():
            if branch.stream == name:
                branch.add_to(stream)

    def pipeline(self) -> Pipeline:
        made = super().pipeline()
        for meeting in self.planned_meetings():
            meeting.add_to(made)
        return made

    def planned_meetings(self) -> list[Meeting]:
        """The meetings of which both streams are read."""
        return [meeting for meeting in self.meetings if set(meeting.streams) <= set(self.read)]

    def planned(self) -> list[Branch]:
        """The branches of streams that are read."""
        return [branch for branch in self.branches if branch.stream in self.read]

    def unread(self) -> set[int]:
        """What the next batch has to read, but for a limit."""
        return set[int]().union(*(self.topics[name].unread for name in self.read))

    def plan(self, settings: Settings = DEFAULTS) -> BatchRef | None:
        """The next batch; none if there is nothing to do. What has to be asked for by name is refused, then asked."""
        asked = self._asking(settings)
        try:
            ref = super().plan(asked)
        except Refused as refused:
            ref = super().plan(with_values(asked, allowance=Allowance(named=self._gone(refused.findings))))
        assert ref is not None or not self.unread(), self.unread()
        return ref

    def refused(self, settings: Settings = DEFAULTS) -> list[Finding]:
        """Why there is no next batch."""
        return list(findings_of(preview, self.pipeline(), self.store, settings))

    def _asking(self, settings: Settings) -> Settings:
        """These settings, with what they have to name: that it is refused otherwise is looked at."""
        refusals, tables = self._refusals(), self._added(settings)
        if not refusals:
            return with_values(settings, go_on=tables, begin_anew=tables)
        if self.unread():
            findings = [each for each in self.refused(settings) if each.kind is not Kind.TABLE_BEGINS]
            named = {step for step in refusals for finding in findings if _names(finding, step)}
            assert named == set(refusals), (findings, refusals)
            assert {finding.kind for finding in findings} == set(refusals.values()), findings
        on = self._going_on(refusals)
        anew = tuple(step for step in refusals if step not in on)
        return with_values(settings, go_on=(*on, *tables), begin_anew=(*anew, *tables))

    def _added(self, settings: Settings) -> tuple[str, ...]:
        """The tables that are asked about, as the last batch did not write them."""
        published = Ledger(self.store, "changing").standing().published
        there = {write.declared.table for write in published.writes()} if published else set()
        new = {write.table for write in self.pipeline().writes} - there
        if published is None or not new:
            return ()
        findings = tuple[Finding, ...]()
        try:
            preview(self.pipeline(), self.store, settings)
        except Refused as refused:
            findings = refused.findings
        tables = [str(dict(each.about)["table"]) for each in findings if each.kind is Kind.TABLE_BEGINS]
        assert new.issuperset(tables), (new, findings)
        # One whose stream was left out with it lacks nothing.
        assert not {*tables} & {*self.topics}, findings
        return tuple(tables)

    def _gone(self, findings: Iterable[Finding]) -> tuple[str, ...]:
        """The steps that these are about, of which there is none any more."""
        assert {finding.kind for finding in findings} == {Kind.ROWS_TAKEN}, findings
        gone = tuple(str(dict(finding.about)["step"]) for finding in findings)
        assert not {*gone} & {step.name for step in self.pipeline().steps}, findings
        return gone

    def _refusals(self) -> Mapping[str, Kind]:
        return {**self.wanted.refusals(self.planned()), **self.met.refusals(self.planned_meetings())}

    def _going_on(self, refusals: Mapping[str, Kind]) -> tuple[str, ...]:
        """The steps that go on with what they kept, of those for which it may be asked."""
        able = {branch.keeps for branch in self.planned() if self.wanted.can_go_on(branch)}
        able |= {step for meeting in self.planned_meetings() for step in self.met.can_go_on(meeting)}
        return tuple(step for step in refusals if step in able and self.goes_on)

    def batch(self, settings: Settings = DEFAULTS) -> Plan | None:
        """What a batch does is compared with what it had to do."""
        refusals = self._refusals()
        anew = [step for step in refusals if step not in self._going_on(refusals)]
        before = {name: self.rows(name) for name in self.read}
        plan = super().batch(settings)
        if plan is None:
            return None
        self.batches += 1
        self.known |= set(self.read)
        self._written |= set(self.read)
        read = {name: self._newly_read(name, before[name], settings.limit) for name in self.read}
        topics = [self.topics[name] for name in self.read]
        marks = self.marks.now(topics)
        self.wanted.after(self.planned(), read, anew, marks)
        self.met.after(self.planned_meetings(), read, anew, marks)
        self.marks = marks.after(topics, read)
        for branch, table in ((one, table) for one in self.planned() for table in one.tables):
            there, wanted = Counter(self.counted(branch, table)), Counter(self.wanted.tables[table])
            assert there == wanted, (branch, table, {"too many": there - wanted, "missing": wanted - there})
        for meeting in self.planned_meetings():
            met, expected = Counter(self.pairs(meeting)), Counter(self.met.tables[meeting.table])
            assert met == expected, (meeting, {"too many": met - expected, "missing": expected - met})
        return plan

    def begun(self, ref: BatchRef) -> None:
        """Who ran its first group was seen no more, or all of it has to run again."""
        ledger, plan = ref.load()
        if self.fate == "killed":
            with Local(processes=1) as runner:
                runner.group(ref, plan.groups[0].group)
        if self.fate == "run again":
            run_groups(ref)
            ledger.close_attempt(plan.batch, 0, canonical({"findings": []}))

    def _newly_read(self, name: str, before: list[int], limit: int | None) -> list[int]:
        """What a batch has read of a stream: without a limit all that nobody had read, and nothing else."""
        topic, new = self.topics[name], Counter(self.rows(name))
        new.subtract(Counter(before))
        read = sorted(+new)
        assert min(new.values(), default=0) >= 0, (name, new)
        assert len(set(read)) == len(read), (name, read)
        assert set(read) == topic.unread if limit is None else set(read) <= topic.unread, (name, read, topic.unread)
        topic.unread -= set(read)
        return read

    def rows(self, name: str) -> list[int]:
        """None of a stream that no batch has read."""
        return super().rows(name) if name in self._written else []

    def given(self, table: str, records: int) -> list[int]:
        """A batch of another pipeline appends these numbers to the table of a stream."""
        first = self._given.get(table, 0)
        self._given[table] = first + records
        numbers = [-1 - first - number for number in range(records)]
        rows = pa.table({"k": [key_of(number) for number in numbers], "number": pa.array(numbers, pa.int64())})
        land_file(rows, f"others_{table}", f"{self.store.root}/others", 0, first)
        ref = there(steps.plan(self.other(table), self.store.root)[0])
        run_and_publish_unjudged(ref)
        return numbers

    def other(self, table: str) -> Pipeline:
        """Another pipeline that writes to the table of a stream."""
        made = Pipeline(OTHER, source=f"{self.store.root}/others")
        made.stream(f"others_{table}", key="k", partitions=1).select("number", name="given").write(table)
        return made

    def pairs(self, meeting: Meeting) -> list[Pair]:
        """The rows in the table of a meeting."""
        log = log_of(self.store, meeting.table)
        columns = log.to_pyarrow_table(columns=["k", "n", "total"])
        return list(zip(*(columns[name].to_pylist() for name in columns.column_names), strict=True))

    def counted(self, branch: Branch, table: str) -> list[tuple[str, int, int]]:
        """The rows in a table of a branch."""
        log = log_of(self.store, table)
        key = "k" if branch.by == "k" else "by"
        columns = log.to_pyarrow_table(columns=[key, "n", "total"])
        return sorted(zip(*(columns[name].to_pylist() for name in columns.column_names), strict=True))


def _names(finding: Finding, step: str) -> bool:
    return finding.where.startswith((f"step {step!r}", f"state of {step},"))


# A change of a world, made by chance. Whoever adds one adds a function to the list.
Change = Callable[[Changing, random.Random], None]


def leaves_a_stream_out(world: Changing, chance: random.Random) -> None:
    if len(world.read) > 1:
        world.read.remove(chance.choice(world.read))


def brings_a_stream(world: Changing, chance: random.Random) -> None:
    """One that was left out, or that was never there."""
    if missing := [name for name in NAMES if name not in world.read]:
        world.read.append(chance.choice(missing))


def recounts(world: Changing, chance: random.Random) -> None:
    """Of a stream whose records were all read, as its vanished partitions could not be looked at."""
    name = chance.choice(world.read)
    world.batch()
    world.recount(name, chance.choice((2, 3, 4, 6, 8)))


def gives_a_batch_up(world: Changing, chance: random.Random) -> None:
    """What it was to read is read by the next one, whatever the pipeline is then."""
    if world.plan(Settings(limit=chance.choice((None, 3)))) is not None:
        publication.abandon(Ledger(world.store, PIPELINE), "by chance")


def moves_elsewhere(world: Changing, _: random.Random) -> None:
    """All files as they are."""
    before, world.source = store_at(world.source), f"{world.store.root}/topics-{uuid.uuid4().hex[:8]}"
    for entry in list(before.list("")):
        store_at(world.source).put(entry.key, before.get(entry.key) or b"")
        before.delete(entry.key)


def expires(world: Changing, chance: random.Random) -> None:
    """The oldest files of a stream that was read to its end."""
    name, store = chance.choice(world.read), store_at(world.source)
    world.batch()
    for _, files in groupby(sorted(entry.key for entry in store.list(f"{name}/")), key=partition_in):
        keys = list(files)
        for key in keys[: chance.randint(0, len(keys))]:
            store.delete(key)
    # A stream without any file is refused.
    world.send(name, 40)


def forgets(world: Changing, chance: random.Random) -> None:
    """Up to where a stream was read, or of what; all of it whose files are there is counted once more."""
    if not world.known:
        return
    topic, store = world.topics[chance.choice(sorted(world.known))], store_at(world.source)
    ledger = Ledger(world.store, PIPELINE)
    if chance.random() < 0.3:
        ends.forget(ledger, topic.name, None, What.SOURCE, "by chance")
        return
    there = [entry.key for entry in store.list(f"{topic.name}/")]
    # Files of another count would lie wrong, and a partition without files would begin at 0.
    if topic.aside or {partition_in(key) for key in there} != set(range(topic.count)):
        return
    if any(topic.landed_by[key] != topic.count for key in there):
        return
    partition = chance.choice((None, *range(topic.count)))
    ends.forget(ledger, topic.name, partition, What.POSITION, "by chance")
    again = {n for key in there if partition in (None, partition_in(key)) for n in topic.files[key]}
    topic.numbers += again - topic.unread
    topic.unread |= again
    if partition is None:
        world.known.remove(topic.name)


def adds_a_branch(world: Changing, chance: random.Random) -> None:
    if len(world.branches) < 4:
        made = world.next_name("t"), world.next_name("s")
        mode, running, by = chance.choice(list(Mode)), chance.random() < 0.7, chance.choice(("k", *BY))
        timed = chance.choice(("", "", "expires", "windows"))
        if timed:
            mode, running = chance.choice((Mode.APPEND, Mode.REPLACE)), timed == "expires"
        world.branches.append(Branch(chance.choice(world.read), *made, mode, running, by, timed=timed))


def leaves_a_branch_out(world: Changing, chance: random.Random) -> None:
    if world.branches:
        world.branches.remove(branch := chance.choice(world.branches))
        world.left_out.append(branch)


def brings_a_branch_back(world: Changing, chance: random.Random) -> None:
    if world.left_out:
        branch = chance.choice(world.left_out)
        if branch.step not in {other.step for other in world.branches}:
            world.left_out.remove(branch)
            world.branches.append(branch)


def adds_a_meeting(world: Changing, chance: random.Random) -> None:
    if len(world.read) > 1 and len(world.meetings) < 2:
        streams, made = chance.sample(world.read, 2), (world.next_name("t"), world.next_name("s"))
        world.meetings.append(Meeting(streams[0], streams[1], *made, chance.choice(("left", "full", AS_OF))))


def changes_a_meeting(world: Changing, chance: random.Random) -> None:
    """It has other records or another name, gives others alone, waits for another time, or is left out."""
    if world.meetings:
        world.meetings.remove(meeting := chance.choice(world.meetings))
        # Of its own, so that nothing else of a history depends on it.
        times = random.Random(f"{chance.getstate()} times")
        choices: tuple[dict[str, Any], ...] = {"every": chance.choice((1, 2, 3))}, {"step": world.next_name("s")}, {}
        changed = chance.choice(choices)
        if changed and meeting.how != AS_OF:
            others: tuple[dict[str, Any], ...] = {}, {"how": "left"}, {"how": "full"}, {"within": 20}
            changed |= times.choice(others)
        world.meetings += [replace(meeting, **changed)] if changed else []


BY = "'five-' || (number % 5)", "'seven-' || (number % 7)", "'long-' || k"
WHERE = "true", "number % 2 = 0", "number % 3 = 1", "k <> 'key-7'"


def renames_a_step(world: Changing, chance: random.Random) -> None:
    """To a new name, or one that it or another had once."""
    _change(world, chance, step=chance.choice((world.next_name("s"), "once", "twice")))


def changes_a_filter(world: Changing, chance: random.Random) -> None:
    _change(world, chance, where=chance.choice(WHERE))


def changes_a_measure(world: Changing, chance: random.Random) -> None:
    _change(world, chance, measure=chance.choice(("sum", "max")))


def rekeys(world: Changing, chance: random.Random) -> None:
    _change(world, chance, lambda branch: branch.by != "k", by=chance.choice(BY))


def changes_a_mode(world: Changing, chance: random.Random) -> None:
    """Where the rows would lie otherwise that is refused, and another table is written, as it says."""
    mode = chance.choice(list(Mode))
    branch = _change(world, chance, lambda branch: not branch.timed, mode=mode)
    if branch and world.wanted.has_another_mode(branch):
        if branch.stream in world.read:
            assert {finding.kind for finding in world.refused()} == {Kind.TABLE_MODE}
        world.branches[-1] = replace(branch, table=world.next_name("t"))


def _change(
    world: Changing, chance: random.Random, which: Callable[[Branch], bool] = lambda _: True, **changes: object
) -> Branch | None:
    """Change a branch, which is the last one then; none if its step would have another's name."""
    if not (choices := [branch for branch in world.branches if which(branch)]):
        return None
    branch = chance.choice(choices)
    if any(other.step == changes.get("step") for other in world.branches):
        return None
    world.branches.remove(branch)
    world.branches.append(replace(branch, **changes))  # type: ignore[arg-type]
    return world.branches[-1]


def hands_over(world: Changing, chance: random.Random) -> None:
    """The table of a stream, to a pipeline that appends rows to it and gives it back; meanwhile the stream may be left
    out."""
    table = chance.choice(sorted(world.known) or [""])
    if not table:
        return
    hand_over(world.store, table, PIPELINE, OTHER, who="me", why="by chance")
    world.topics[table].numbers += world.given(table, chance.randint(1, 9))
    if table in world.read:
        assert {finding.kind for finding in world.refused()} == {Kind.TABLE_OWNER}
        if len(world.read) > 1 and chance.random() < 0.5:
            world.read.remove(table)
            world.batch()
            world.read.append(table)
    hand_over(world.store, table, OTHER, PIPELINE, who="me", why="by chance")
    with pytest.raises(Refused) as caught:
        preview(world.other(table), world.store)
    assert {finding.kind for finding in caught.value.findings} == {Kind.TABLE_OWNER}


def hands_an_upserted_table_over(world: Changing, chance: random.Random) -> None:
    """To a pipeline that writes it anew and gives it back; what the table was is restored, as the refusal says."""
    choices = [one for one in world.planned() if one.mode is Mode.UPSERT and world.wanted.upserted.get(one.table)]
    if not choices:
        return
    branch, name = chance.choice(choices), world.next_name("other")
    hand_over(world.store, branch.table, PIPELINE, name, who="me", why="by chance")
    made = Pipeline(name, source=f"{world.store.root}/{name}")
    own = replace(branch, stream="own", step="counted", where="true")
    own.add_to(made.stream(own.stream, key="k", partitions=1))
    numbers = pa.array(range(7), pa.int64())
    land_file(pa.table({"k": [f"own-{n}" for n in range(7)], "number": numbers}), own.stream, made.source, 0, 0)
    ref = there(steps.plan(made, world.store.root, Settings(begin_anew=(own.keeps,)))[0])
    run_and_publish_unjudged(ref)
    assert {finding.kind for finding in world.refused()} == {Kind.TABLE_OWNER}
    hand_over(world.store, branch.table, name, PIPELINE, who="me", why="by chance")
    (finding,) = world.refused()
    assert finding.kind is Kind.TABLE_CHANGED
    version = re.search(r"\.restore\((\d+)\)", finding.then)
    assert version
    where = folder(world.store, branch.table)
    DeltaTable(where, storage_options=storage_options()).restore(int(version[1]))


CHANGES: Sequence[Change] = (
    leaves_a_stream_out, brings_a_stream, recounts, gives_a_batch_up, moves_elsewhere, expires, forgets,
    adds_a_branch, adds_a_meeting, changes_a_meeting, leaves_a_branch_out, brings_a_branch_back, renames_a_step,
    changes_a_filter, changes_a_measure, rekeys, changes_a_mode, hands_over, hands_an_upserted_table_over,
)  # fmt: skip
FATES = ("", "", "", "", "killed", "run again")
SCHEMES = (None, None, "tasks(2)", "tasks(3)", "elastic(2)")


def _land(world: Changing, chance: random.Random) -> None:
    for name in NAMES:
        if records := chance.choice((0, 0, 5, 40)):
            world.send(name, records)
    for name in [name for name in world.read if not world.topics[name].numbers]:
        world.send(name, 7)


def history(world: Changing, chance: random.Random, batches: int) -> Iterator[str]:
    """Change, land and publish batch after batch; what was done, in a few words. In the end all streams are read."""
    # Of its own, so that nothing else of a history depends on it.
    late = random.Random(f"{chance.getstate()} late")
    for name in world.read:
        world.send(name, 7)
    for _ in range(2):
        adds_a_branch(world, chance)
    adds_a_meeting(world, chance)
    for batch in range(batches):
        changes = chance.choices(CHANGES, k=chance.choice((1, 1, 2)))
        for change in changes:
            change(world, chance)
        _land(world, chance)
        if late.random() < 0.4:
            world.come_late()
        limit, scheme = chance.choice((None, None, 3)), chance.choice(SCHEMES)
        world.goes_on = chance.random() < 0.5
        counts = ", ".join(f"{name} in {world.topics[name].count}" for name in world.read)
        named = " and ".join(change.__name__ for change in changes)
        world.fate = chance.choice(FATES)
        made = [*world.planned(), *world.planned_meetings()]
        yield f"{batch}: {named}; {counts}; {made}; at most {limit}, {scheme} {world.fate}"
        world.batch(Settings(limit=limit, scheme=Scheme.parse(scheme) if scheme else None))
        world.fate = ""
    for name in NAMES:
        world.send(name, 7)
    world.come_late()
    world.read = list(NAMES)
    while world.batch() is not None:
        yield "all streams to their ends"
