"""Random steps over two streams whose hot keys several tasks share, against the same steps over all rows at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from hypothesis import event, given, settings
from hypothesis import strategies as st

from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.document import decode, encode
from partitioning.hashes import placement_hash
from partitioning.model.graph import Op, Step
from partitioning.model.plan import Plan, Stage, TaskRef
from partitioning.model.schemes import HotKeys
from partitioning.model.stage_inputs import StreamInput
from partitioning.model.statistics import KeyFigures, Statistics, TaskFigures
from partitioning.model.streams import NullKeys
from partitioning.model.takes import Task
from partitioning.planning.planner import plan_batch
from partitioning.values import Value
from tests.examples import examples
from tests.plans import COLUMNS, arrived
from tests.runner import is_taken

STREAMS = "a", "b"
KEYS = "k0", "k1", "k2", "k3", "k4"
Row = tuple[str | None, tuple[int | None, ...]]


class Move(Value, frozen=True):
    """A step: what it does, and to which of the flows there are."""

    op: str
    on: int
    other: int


class Case(Value, frozen=True):
    """What lies in the streams, the steps, and how they are planned. `hot` maps keys to the stream that has most."""

    rows: tuple[tuple[tuple[str | None, int], ...], ...]
    counts: tuple[int, int]
    null_keys: NullKeys
    moves: tuple[Move, ...]
    written: int
    scheme: str | None
    hot: Mapping[str, str]


rows = st.lists(st.tuples(st.sampled_from([*KEYS, *KEYS, None]), st.integers(0, 9)), min_size=6, max_size=16).map(tuple)
moves = st.builds(
    Move,
    st.sampled_from(["inner", "left", "full", "filter", "select", "aggregate", "merge"]),
    st.sampled_from([0, 0, 1, 2, 3]),
    st.sampled_from([1, 1, 0, 2, 3]),
)
cases = st.builds(
    Case,
    st.tuples(rows, rows),
    st.tuples(st.integers(1, 6), st.integers(1, 6)),
    st.sampled_from([NullKeys.DROP, NullKeys.OWN_TASK]),
    st.lists(moves, max_size=2).map(tuple),
    st.sampled_from([0, 9, 9, 2, 3]),
    st.sampled_from([None, "tasks(2)", "tasks(3)", "tasks(5)", "elastic(2)"]),
    st.dictionaries(st.sampled_from(KEYS), st.sampled_from(["a", "a", "b"]), min_size=1, max_size=2),
)


def pipeline_of(case: Case) -> Pipeline:
    """Both streams always meet, so that some key can be hot in a join."""
    pipeline = Pipeline("p", source="s3://landing/topics")
    flows: list[Flow] = [
        pipeline.stream(name, key="tailnum", partitions=count, null_keys=case.null_keys)
        for name, count in zip(STREAMS, case.counts, strict=True)
    ]
    for number, move in enumerate((*case.moves, Move("left", 0, 1))):
        one, other = flows[move.on % len(flows)], flows[move.other % len(flows)]
        flows.append(stepped(move.op, one, other, f"{move.op}{number}"))
    read = {name for step in pipeline.steps for name in step.inputs}
    # All lead to a table, so that none is refused; one more may be written.
    written = [flow for place, flow in enumerate(flows) if flow.step not in read or place == case.written]
    for number, flow in enumerate(written):
        flow.write(f"t{number}")
    return pipeline


def stepped(op: str, one: Flow, other: Flow, name: str) -> Flow:
    match op:
        case "filter":
            return one.filter("true", name=name)
        case "select":
            return one.select("tailnum", name=name)
        case "aggregate":
            return one.aggregate("count(*) AS n", name=name)
        case "merge" if one.step != other.step:
            return one.merge(other, name=name)
        case "inner" | "left" | "full" if one.step != other.step:
            return one.join(other, "1 AS n", how=op, name=name)
    return one.filter("true", name=name)


def made_by(step: Step, inputs: Sequence[Sequence[Row]]) -> list[Row]:
    """What a step makes of rows."""
    match step.op:
        case Op.FILTER:
            return [row for row in inputs[0] if sum(value or 0 for value in row[1]) % 4]
        case Op.SELECT:
            return list(inputs[0])
        case Op.MERGE:
            return [row for side in inputs for row in side]
        case Op.AGGREGATE:
            counts = Counter(key for key, _ in inputs[0])
            return [(key, (count,)) for key, count in counts.items()]
        case Op.JOIN:
            return joined(step.name.rstrip("0123456789"), *inputs)
        case _:
            raise AssertionError(step)


def joined(how: str, left: Sequence[Row], right: Sequence[Row]) -> list[Row]:
    found: list[Row] = []
    for key, values in left:
        partners = [others for other, others in right if key is not None and key == other]
        found += [(key, (*values, *others)) for others in partners]
        found += [(key, (*values, None))] if not partners and how != "inner" else []
    keys = {key for key, _ in left} - {None}
    return found + [(key, (None, *values)) for key, values in right if how == "full" and key not in keys]


def rows_of(stage: Stage, given: Mapping[str, Sequence[Row]]) -> dict[str, list[Row]]:
    """The rows of all streams and steps of a stage."""
    rows = {name: list(some) for name, some in given.items()}
    for step in stage.steps:
        rows[step.name] = made_by(step, [rows[name] for name in step.inputs])
    return rows


def taken(stage: Stage, task: Task, landed: Mapping[str, Sequence[Sequence[Row]]]) -> dict[str, list[Row]]:
    """What a task takes of each stream."""
    return {
        read.name: [
            row
            for number, some in enumerate(landed[read.name])
            for offset, row in enumerate(some)
            if is_taken(task, read, number, row[0], offset)
        ]
        for read in stage.inputs
        if isinstance(read, StreamInput)
    }


def landed_of(case: Case) -> dict[str, list[list[Row]]]:
    """The rows of each stream partition, by offset."""
    landed = {name: [list[Row]() for _ in range(count)] for name, count in zip(STREAMS, case.counts, strict=True)}
    for name, some in zip(STREAMS, case.rows, strict=True):
        for key, value in some:
            parts = landed[name]
            parts[0 if key is None else placement_hash(key) % len(parts)].append((key, (value,)))
    return landed


def plan_for(case: Case, landed: Mapping[str, Sequence[Sequence[Row]]]) -> Plan | None:
    """The plan of a batch in which some keys are hot, by the figures of the last one."""
    pipeline = pipeline_of(case)
    found = [arrived(name, [len(some) for some in parts]) for name, parts in landed.items()]
    asked = Settings.parse(scheme=case.scheme, base=Settings(hot_keys=HotKeys.SPLIT))

    def planned(known: Statistics | None) -> Plan | None:
        results = {write.table: COLUMNS for write in pipeline.writes}
        return plan_batch(pipeline, found, results, settings=asked, statistics=known)

    if (plain := planned(None)) is None:
        return None
    refs = [TaskRef(stage.name, 0) for stage in plain.stages]
    keys = tuple(KeyFigures(ref, key, {stream: 9_000}) for ref in refs for key, stream in case.hot.items())
    return planned(Statistics(0, tasks={ref: TaskFigures(20_000, 1) for ref in refs}, keys=keys))


def check(case: Case) -> list[int]:
    """Whether tasks make the rows that all rows make at once; how many tasks share each key that several do."""
    landed = landed_of(case)
    plan = plan_for(case, landed)
    if plan is None:
        return []
    assert decode(Plan, encode(plan), "here") == plan
    for stage in plan.stages:
        everything = {
            name: [row for part in parts for row in part if row[0] is not None or case.null_keys is NullKeys.OWN_TASK]
            for name, parts in landed.items()
        }
        direct = rows_of(stage, {read.name: everything[read.name] for read in stage.streams})
        by_task = [rows_of(stage, taken(stage, task, landed)) for task in stage.tasks]
        for write in stage.writes:
            step = write.declared.step
            assert sorted((row for each in by_task for row in each[step]), key=repr) == sorted(direct[step], key=repr)
    return [len(numbers) for stage in plan.stages for numbers in stage.shares]


@given(cases)
@settings(deadline=None, max_examples=examples(1500))
def test_rows_are_those_of_all_records_at_once_whatever_the_steps_and_whoever_shares_a_key(case: Case) -> None:
    event("split" if check(case) else "whole")


def test_such_keys_are_split() -> None:
    """Examples like those above, of which it is known that tasks share their keys."""
    some = tuple((KEYS[number % 5], number) for number in range(12))
    for how, hot in (("inner", "b"), ("left", "a")):
        case = Case((some, some), (4, 3), NullKeys.DROP, (Move(how, 0, 1),), 0, "tasks(3)", {"k1": hot})
        assert [count > 1 for count in check(case)] == ([True] if how == "left" else [])
    alone = Case(
        (some, some), (4, 3), NullKeys.OWN_TASK, (Move("filter", 0, 0),), 2, "tasks(2)", {"k1": "a", "k2": "a"}
    )
    assert [count > 1 for count in check(alone)] == [True, True]
