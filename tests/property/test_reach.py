"""The check of a stage's tasks, against records of every hash that are offered to every task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from math import lcm

from hypothesis import given, settings
from hypothesis import strategies as st

from partitioning.cosets import stage_tasks
from partitioning.model.graph import Op, Step
from partitioning.model.placement import MURMUR2, KeyFormat, Placement
from partitioning.model.plan import Stage
from partitioning.model.reasons import OnePerPartition
from partitioning.model.schemes import COGROUP, MAX
from partitioning.model.stage_inputs import ExchangeInput, Input, ResultInput, StateInput, StreamInput
from partitioning.model.streams import NullKeys
from partitioning.model.takes import Residues, Task
from partitioning.planning.task_coverage import coverage_findings
from partitioning.values import Value, replace
from tests.examples import examples
from tests.plans import takers

few = st.integers(1, 8)


class Need(Enum):
    """What the step of a stage needs together: equal keys, or what it leaves does; all records, or nothing."""

    KEYS = Step("last", Op.AGGREGATE, (), "", (), "k", keyed=True)
    KEYS_LATER = Step("last", Op.FILTER, (), "", (), "k")
    ALL = Step("last", Op.PROCESS, (), "", (), "k", partitions=1)
    NOTHING = Step("last", Op.SELECT, (), "", (), "k")


class Damage(Enum):
    """What a task does otherwise than it should."""

    READS = "reads a partition more, or less"
    KEEPS = "keeps a residue more, or less"
    FILTERS = "filters, or does not"
    ACCOUNTS = "accounts for the records without a key of a partition, or does not"
    OWNS = "owns a residue more, or less"
    NULL_KEYS = "is for records without a key, or is not"


class Case(Value, frozen=True):
    """A stage, and what its step needs."""

    stage: Stage
    need: Need

    @property
    def keeps(self) -> bool:
        """Whether equal keys have to meet."""
        return self.need in (Need.KEYS, Need.KEYS_LATER)

    @property
    def own_task(self) -> bool:
        """Whether records without a key have a task of their own."""
        wanted = any(read.null_keys == NullKeys.OWN_TASK for read in self.stage.streams)
        return wanted and self.need is not Need.ALL

    def findings(self) -> list[str]:
        """What the check says."""
        left = ["last"] if self.need is Need.KEYS_LATER else []
        return [finding.what for finding in coverage_findings(self.stage, left)]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A stage over inputs of any counts, its residues dealt at random, or with a task for each partition."""
    need = draw(st.sampled_from(Need))
    by_partition = need is Need.NOTHING and draw(st.booleans())
    cosets = 1 if by_partition or need is Need.ALL else draw(few)
    inputs = tuple(draw(_input(f"i{number}", need, cosets)) for number in range(draw(st.integers(1, 3))))
    owners = None
    if by_partition:
        cosets = draw(st.integers(1, sum(len(read.numbers) for read in inputs)))
    else:
        dealt = [draw(st.integers(0, 3)) for _ in range(cosets)]
        owners = [tuple(r for r in range(cosets) if dealt[r] == task) for task in sorted(set(dealt))]
    tasks = stage_tasks(inputs, cosets, owners, gathered=need is Need.ALL)
    scheme = MAX if by_partition else COGROUP
    stage = Stage("s", inputs, (need.value,), (), scheme, cosets, OnePerPartition(), given=False, tasks=tasks)
    return Case(stage, need)


@st.composite
def _input(draw: st.DrawFn, name: str, need: Need, cosets: int) -> Input:
    """A stream, whose count may have grown or of which some partitions are read, or what was moved or left."""
    count = draw(few)
    placement = Placement("k", KeyFormat.STRING, MURMUR2, count)
    match draw(st.sampled_from(["stream", "grown", "some", "exchange", "result", "anywhere", "state"])):
        case "exchange":
            return ExchangeInput(name, name, placement)
        case "result":
            return ResultInput(name, name, placement)
        case "anywhere" if need in (Need.ALL, Need.NOTHING):
            return ResultInput(name, name, replace(placement, key=""))
        case "state":
            return StateInput(name, name, placement, 0)
        case "grown":
            # Records lie by either count, and so by a divisor of both; where keys have to meet, the tasks divide it.
            count *= cosets
            common = [n for n in range(1, count + 1) if count % n == 0 and (need is Need.NOTHING or n % cosets == 0)]
            placement = replace(placement, partitions=draw(st.sampled_from(common)))
            return StreamInput(name, placement, count, draw(st.sampled_from(NullKeys)))
        case "some":
            only = tuple(sorted(draw(st.sets(st.integers(0, count - 1), min_size=1))))
            return StreamInput(name, placement, count, draw(st.sampled_from(NullKeys)), only)
        case _:
            return StreamInput(name, placement, count, draw(st.sampled_from(NullKeys)))


@st.composite
def damaged(draw: st.DrawFn) -> Case:
    """A stage of which one or two tasks read, keep, own or account for something else than they should."""
    case = draw(cases())
    stage = case.stage
    tasks = list(stage.tasks)
    read = draw(st.sampled_from(stage.inputs))
    number = draw(st.sampled_from(list(read.numbers)))
    residue = draw(st.integers(0, stage.cosets - 1))
    damage = draw(st.sampled_from(Damage))
    # In two tasks it is something that moved from one to the other, if it was one of theirs.
    for place in draw(st.sets(st.integers(0, len(tasks) - 1), min_size=1, max_size=2)):
        tasks[place] = _damaged(tasks[place], damage, read.name, number, residue, stage.cosets)
    return replace(case, stage=replace(stage, tasks=tuple(tasks)))


def _damaged(task: Task, damage: Damage, read: str, number: int, residue: int, cosets: int) -> Task:
    match damage:
        case Damage.READS:
            return replace(task, reads=_toggled(task.reads, read, number))
        case Damage.KEEPS:
            kept = task.filters.get(read, Residues(cosets, task.owns))
            return replace(task, filters={**task.filters, read: Residues(cosets, _toggle(kept.residues, residue))})
        case Damage.FILTERS:
            others = {name: kept for name, kept in task.filters.items() if name != read}
            return replace(task, filters=others if read in task.filters else {**others, read: Residues(1, (0,))})
        case Damage.ACCOUNTS:
            return replace(task, keyless=_toggled(task.keyless, read, number))
        case Damage.OWNS:
            return replace(task, owns=_toggle(task.owns, residue))
        case Damage.NULL_KEYS:
            return replace(task, null_keys=not task.null_keys)


def _toggled(numbers: Mapping[str, tuple[int, ...]], name: str, number: int) -> dict[str, tuple[int, ...]]:
    return {**numbers, name: _toggle(numbers.get(name, ()), number)}


def _toggle(numbers: tuple[int, ...], number: int) -> tuple[int, ...]:
    """The numbers with one more, or without it if it is one of them."""
    return tuple(sorted({*numbers} ^ {number}))


def wrong(case: Case) -> Iterator[str]:
    """All that is wrong with the tasks of a stage, by records of every hash, and by some without a key."""
    stage = case.stage
    moduli = {kept.modulus for task in stage.tasks for kept in task.filters.values()}
    every = range(lcm(stage.cosets, *moduli, *(read.placement.partitions for read in stage.inputs)))
    met: dict[int | None, set[int]] = {}
    for read in stage.inputs:
        placement = read.placement
        for partition in read.numbers:
            place = partition % placement.partitions
            records: list[int | None] = [h for h in every if not placement.key or h % placement.partitions == place]
            for h in [*records, None] if _holds_keyless(read, partition) else records:
                found = takers(stage.tasks, read.name, partition, h)
                if len(found) != 1:
                    yield f"{read.name}-{partition}: a record with hash {h} is that of tasks {found}"
                if placement.key if h is not None else _keeps_keyless(read):
                    met.setdefault(h, set()).update(found)
    alone = {task.task for task in stage.tasks if task.null_keys}
    if case.own_task and met.get(None, alone) != alone:
        yield f"records without a key are those of tasks {met[None]}, not of {alone}"
    if case.keeps:
        yield from (f"records with hash {h} are apart in tasks {found}" for h, found in met.items() if len(found) > 1)


def _holds_keyless(read: Input, partition: int) -> bool:
    """Whether there may be records without a key: what was moved or left by key has them in partition 0."""
    return isinstance(read, StreamInput) or not read.placement.key or partition == 0


def _keeps_keyless(read: Input) -> bool:
    """Whether records without a key are taken, and must meet: a stream may drop or refuse its own."""
    if isinstance(read, StreamInput):
        return read.null_keys == NullKeys.OWN_TASK
    return bool(read.placement.key)


@settings(deadline=None, max_examples=examples(300))
@given(cases())
def test_each_record_is_one_tasks_and_equal_keys_meet_however_residues_are_dealt(case: Case) -> None:
    assert list(wrong(case)) == []
    assert case.findings() == []


@settings(deadline=None, max_examples=examples(1000))
@given(damaged())
def test_the_check_finds_something_wherever_a_record_is_lost_doubled_or_apart_from_its_equals(case: Case) -> None:
    if list(wrong(case)):
        assert case.findings()
