"""A plan run in memory, record by record, without Spark or SQL: what the records of a batch become by the plan alone.

A row is its key and the numbers of the records that went into it, so that a record that is lost, doubled or met
by a wrong one shows in the result. The same steps, applied to all rows at once, say what should come out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from partitioning.hashes import java_placement, placement_hash
from partitioning.model.graph import Graph, Step, quote
from partitioning.model.placement import JAVA, MURMUR2, Placement
from partitioning.model.plan import RESULT, STATE, STREAM, Exchange, Input, Plan, Stage
from partitioning.model.schemes import MAX
from partitioning.model.streams import OWN_TASK
from partitioning.model.tasks import Task
from partitioning.planning.exchanges.unifiers import groups
from partitioning.planning.partitioners.key_shares import Share
from partitioning.planning.partitioners.partitioners import Changes, PartitioningContext
from partitioning.planning.stages.ways import keys_of, way_of, ways

Row = tuple[str | None, tuple[int, ...]]
HASHES: Mapping[str, Callable[[str], int]] = {MURMUR2: placement_hash, JAVA: java_placement}


@dataclass(frozen=True)
class Uneven:
    """A partitioner with shares of a modulus of its own, several residues in one."""

    tasks: int

    def define(self, current: tuple[Share, ...], context: PartitioningContext) -> Sequence[Share]:
        modulus = 2 * self.tasks
        return [Share(modulus, (0, modulus - 1)), *(Share(modulus, (n,)) for n in range(1, modulus - 1))]

    def accepted(self, changes: Changes) -> None:
        """Nothing depends on it."""


def new_key(step: str, row: Row) -> str | None:
    """The key that a step gives a row: one of a few, and now and then none."""
    number = (sum(row[1]) * 31 + len(row[1]) + len(step)) % 7
    return f"{step[-1]}{number}" if number else None


def apply(step: Step, inputs: Sequence[Sequence[Row]], state: Sequence[Row], kept_key: bool) -> list[Row]:
    """What a step makes of the rows that are given to one task."""
    rows = [row for some in inputs for row in some]
    if step.op == "filter":
        return [row for row in rows if sum(row[1]) % 4]
    if step.op == "rekey" and not kept_key:
        return [(new_key(step.name, row), row[1]) for row in rows]
    if step.op in ("select", "merge", "repartition", "rekey"):
        return rows
    if step.op == "join":
        both = set.intersection(*({key for key, _ in some if key is not None} for some in inputs))
        return grouped(row for row in rows if row[0] in both)
    if step.op == "partial":
        if step.rekeys:
            rows = [(new_key(step.name, row) if step.key else "", row[1]) for row in rows]
        return grouped(rows)
    if step.op == "process" and not step.keyed:
        return ranked(rows) if step.partitions == 1 else rows
    return grouped([*rows, *state])


def grouped(rows: Iterable[Row]) -> list[Row]:
    """One row for each key."""
    found: dict[str | None, list[int]] = {}
    for key, numbers in rows:
        found.setdefault(key, []).extend(numbers)
    return [(key, tuple(sorted(numbers))) for key, numbers in found.items()]


def ranked(rows: Sequence[Row]) -> list[Row]:
    """Each row with its place among all rows: one task must have seen them all."""
    ordered = sorted(rows, key=lambda row: (row[0] or "", row[1]))
    return [(key, (*numbers, 10_000 + place)) for place, (key, numbers) in enumerate(ordered)]


def keeps_key(step: Step, keys: Mapping[str, str]) -> bool:
    """Whether a re-key names the key column that there is."""
    return step.key == keys[step.inputs[0]] and step.expressions == (quote(step.key),)


@dataclass
class Directly:
    """All batches computed over all rows at once: what should come out."""

    graph: Graph
    states: dict[str, list[Row]] = field(default_factory=dict)

    def batch(self, arrived: Mapping[str, Sequence[Row]]) -> dict[str, list[Row]]:
        """The rows of each table."""
        keys = {each.name: each.key for each in (*self.graph.streams, *self.graph.steps)}
        rows = {name: list(some) for name, some in arrived.items()}
        for step in self.graph.steps:
            state = self.states.get(step.name, [])
            rows[step.name] = apply(step, [rows[name] for name in step.inputs], state, keeps_key(step, keys))
            if step.state:
                self.states[step.name] = rows[step.name]
        return {write.table: sorted(rows[write.step], key=repr) for write in self.graph.writes}


@dataclass
class ByPlan:
    """All batches run stage by stage and task by task, as their plans say."""

    # Rows by input name and partition: what exchanges and results hold, and state from batch to batch.
    held: dict[str, list[list[Row]]] = field(default_factory=dict)

    def batch(self, plan: Plan, landed: Mapping[str, Sequence[Sequence[Row]]]) -> dict[str, list[Row]]:
        """The rows of each table, given what lies in each stream partition, by offset."""
        tables: dict[str, list[Row]] = {write.declared.table: [] for write in plan.writes()}
        states: dict[str, list[list[Row]]] = {}
        results = {each.step for stage in plan.stages for each in stage.inputs if each.kind == RESULT}
        for stage in plan.stages:
            left: list[dict[str, list[Row]]] = []
            for task in stage.tasks:
                made = self._task(plan, stage, task, landed)
                for write in stage.writes:
                    tables[write.declared.table].extend(made[write.declared.step])
                left.append(made)
            for step in stage.steps:
                if step.name in results or step.state:
                    placed = self._left(stage, step, left, hash_of(plan, stage, step))
                    self.held[f"{step.name}.result"] = placed
                    if step.state:
                        states[f"{step.name}.state"] = placed
            for exchange in plan.exchanges:
                if exchange.stage == stage.name:
                    self.held[exchange.name] = self._exchanged(plan, stage, exchange, left)
        self.held = states
        return {table: sorted(rows, key=repr) for table, rows in tables.items()}

    def _task(
        self, plan: Plan, stage: Stage, task: Task, landed: Mapping[str, Sequence[Sequence[Row]]]
    ) -> dict[str, list[Row]]:
        keys = {each.step: each.placement.key for each in stage.inputs if each.kind != STATE}
        for stream in plan.streams:
            keys[stream.name] = stream.declared.key
        rows: dict[str, list[Row]] = {each.step: [] for each in stage.inputs if each.kind != STATE}
        state: dict[str, list[Row]] = {}
        for each in stage.inputs:
            for number in task.reads.get(each.name, ()):
                read = self._read(plan, stage, task, each, number, landed)
                (state if each.kind == STATE else rows).setdefault(each.step, []).extend(read)
        for step in stage.steps:
            keys[step.name] = step.key
            inputs = [rows[name] for name in step.inputs]
            rows[step.name] = apply(step, inputs, state.get(step.name, ()), keeps_key(step, keys))
        return rows

    def _read(
        self,
        plan: Plan,
        stage: Stage,
        task: Task,
        each: Input,
        number: int,
        landed: Mapping[str, Sequence[Sequence[Row]]],
    ) -> list[Row]:
        """What a task takes of a partition."""
        if each.kind == STREAM:
            planned = plan.stream(each.step).range(number)
            there = landed[each.step][number][planned.start : planned.end]
        else:
            there = self.held[each.name][number]
        if not each.placement.key:
            assert each.name not in task.filters
            return [] if task.null_keys else list(there)
        for key, _ in there:
            assert key is None or lies(key, each.placement, number)
        mine = takes_no_key(plan, stage, task, each)
        return [row for row in there if (mine if row[0] is None else not task.null_keys and takes(task, each, row[0]))]

    @staticmethod
    def _left(
        stage: Stage, step: Step, left: Sequence[Mapping[str, Sequence[Row]]], h: Callable[[str], int] | None
    ) -> list[list[Row]]:
        """What a step leaves, by residue; where it cannot lie so, by task."""
        placed: list[list[Row]] = [[] for _ in range(stage.cosets)]
        for task, made in zip(stage.tasks, left, strict=True):
            for row in made[step.name]:
                if row[0] is None or task.null_keys:
                    residue = 0
                elif stage.scheme == str(MAX):
                    residue = task.task
                elif h is None or stage.cosets == 1:
                    residue = task.owns[0]
                else:
                    residue = h(row[0]) % stage.cosets
                    assert residue in task.owns
                placed[residue].append(row)
        return placed

    @staticmethod
    def _exchanged(
        plan: Plan, stage: Stage, exchange: Exchange, left: Sequence[Mapping[str, Sequence[Row]]]
    ) -> list[list[Row]]:
        """What lies in an exchange: all that the tasks wrote of a partition, combined in levels if the plan says so."""
        placement = exchange.placement
        held = []
        for number in range(placement.partitions):
            parts = [
                [
                    row
                    for row in made[exchange.source]
                    if number == (0 if row[0] is None else partition_of(row[0], placement))
                ]
                for made in left
            ]
            for width in exchange.unifiers:
                parts = [grouped(row for part in some for row in parts[part]) for some in groups(len(parts), width)]
            held.append([row for part in parts for row in part])
        return held


def hash_of(plan: Plan, stage: Stage, step: Step) -> Callable[[str], int] | None:
    """The hash by which the rows of a step lie, None if it is not known or they lie anywhere."""
    keys = keys_of(
        Graph(tuple(each.declared for each in plan.streams), tuple(s for t in plan.stages for s in t.steps), ())
    )
    read = {each.step: way_of(each.placement) for each in stage.inputs if each.kind != STATE}
    (way, *others) = ways(stage.steps, read, keys)[step.name]
    return None if way is None or others else HASHES.get(way.hash)


def partition_of(key: str, placement: Placement) -> int:
    """Where a placement puts a key."""
    return HASHES[placement.hash](key) % placement.partitions if placement.key else 0


def lies(key: str, placement: Placement, number: int) -> bool:
    """Whether a key lies where the placement says, as far as that can be told."""
    return placement.hash not in HASHES or partition_of(key, placement) == number % placement.partitions


def takes(task: Task, each: Input, key: str) -> bool:
    """Whether a task keeps a key that it reads."""
    kept = task.filters.get(each.name)
    return kept is None or HASHES[each.placement.hash](key) % kept.modulus in kept.residues


def takes_no_key(plan: Plan, stage: Stage, task: Task, each: Input) -> bool:
    """Whether a task takes the records without a key of an input that it reads."""
    if each.kind == STREAM and plan.stream(each.step).declared.null_keys != OWN_TASK:
        return False
    if any(other.null_keys for other in stage.tasks):
        return task.null_keys
    return not task.owns or 0 in task.owns
