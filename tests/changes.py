"""A pipeline that is changed by chance from batch to batch, and what has to come of it.

What a batch has to read, what its tables have to hold, and what is refused until it is asked for by name is worked out
beside the product, by direct queries.
"""

from __future__ import annotations

import random
import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
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
from tests.meetings import AS_OF, Meeting, Met, Pair
from tests.refused import findings_of
from tests.running import run_and_publish_unjudged, run_groups
from tests.stream_marks import LATE, Marks
from tests.there import there

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
