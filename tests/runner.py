"""A plan run in memory, record by record, without Spark or SQL: what the records of a batch become by the plan alone.

A row is its key and the numbers of the records that went into it, so that a record that is lost, doubled or met
by a wrong one shows in the result. The same steps, applied to all rows at once, say what should come out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from msgspec import UNSET

from partitioning.hashes import java_placement, placement_hash
from partitioning.model.graph import Graph, Op, Step, quote
from partitioning.model.offsets import Span
from partitioning.model.placement import JAVA, MURMUR2, Placement
from partitioning.model.plan import Exchange, Plan, Stage
from partitioning.model.reasons import OwnTasks, Unifying
from partitioning.model.stage_inputs import Input, ResultInput, StateInput, StreamInput
from partitioning.model.streams import NullKeys
from partitioning.model.takes import Task
from partitioning.planning.partitioners.key_shares import Share
from partitioning.planning.partitioners.partitioners import Changes, PartitioningContext

Row = tuple[str | None, tuple[int, ...]]
HASHES: Mapping[str, Callable[[str], int]] = {MURMUR2: placement_hash, JAVA: java_placement}
ANYWHERE = "no hash"


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
    rows = [row for given in inputs for row in given]
    match step.op:
        case Op.FILTER:
            return [row for row in rows if sum(row[1]) % 4]
        case Op.REKEY if not kept_key:
            return [(new_key(step.name, row), row[1]) for row in rows]
        case Op.SELECT | Op.MERGE | Op.REPARTITION | Op.REKEY | Op.CHANGES | Op.TO_STREAM:
            return rows
        case Op.JOIN:
            in_all = set.intersection(*({key for key, _ in given if key is not None} for given in inputs))
            return grouped(row for row in rows if row[0] in in_all)
        case Op.PARTIAL:
            if step.rekeys and not kept_key:
                rows = [(new_key(step.name, row) if step.key else "", row[1]) for row in rows]
            return grouped(rows)
        case Op.PROCESS if not step.keyed:
            return ranked(rows) if step.partitions == 1 else rows
        case (
            Op.AGGREGATE
            | Op.COGROUP
            | Op.COMBINE
            | Op.LATEST
            | Op.TABLE
            | Op.DISTINCT
            | Op.RECENT
            | Op.UPSERT
            | Op.KEEP
            | Op.PROCESS
            | Op.SPARK
        ):
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
    """Whether a re-key, or what a partial step aggregates by, names the key column that there is."""
    return step.key == keys[step.inputs[0]] and step.expressions[-1:] == (quote(step.key),)


@dataclass
class Directly:
    """All batches computed over all rows at once: what should come out."""

    graph: Graph
    states: dict[str, list[Row]] = field(default_factory=dict)

    def batch(self, arrived: Mapping[str, Sequence[Row]]) -> dict[str, list[Row]]:
        """The rows of each table."""
        keys = {stream.name: stream.key for stream in self.graph.streams}
        keys |= {step.name: step.key for step in self.graph.steps}
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
        results = {read.step for stage in plan.stages for read in stage.inputs if isinstance(read, ResultInput)}
        for stage in plan.stages:
            left: list[dict[str, list[Row]]] = []
            for task in stage.tasks:
                given = self._task(plan, stage, task, landed)
                for write in stage.writes:
                    tables[write.declared.table].extend(given[write.declared.step])
                left.append(given)
            hashes = lie_by(plan, stage)
            for step in stage.steps:
                if step.name in results or step.state:
                    placed = self._left(stage, step, left, hashes[step.name])
                    self.held[f"{step.name}.result"] = placed
                    if step.state:
                        states[f"{step.name}.state"] = placed
            for exchange in plan.exchanges:
                if exchange.stage == stage.name:
                    self.held[exchange.name] = self._exchanged(exchange, stage, left)
        self.held = states
        return {table: sorted(rows, key=repr) for table, rows in tables.items()}

    def _task(
        self, plan: Plan, stage: Stage, task: Task, landed: Mapping[str, Sequence[Sequence[Row]]]
    ) -> dict[str, list[Row]]:
        """The rows of all that a task reads, then those of each of its steps."""
        keys = key_columns(plan, stage)
        rows: dict[str, list[Row]] = {read.step: [] for read in stage.inputs if not isinstance(read, StateInput)}
        state: dict[str, list[Row]] = {}
        for read in stage.inputs:
            for number in task.reads.get(read.name, ()):
                taken = self._taken(plan, task, read, number, landed)
                (state if isinstance(read, StateInput) else rows).setdefault(read.step, []).extend(taken)
        for step in stage.steps:
            inputs = [rows[name] for name in step.inputs]
            rows[step.name] = apply(step, inputs, state.get(step.name, ()), keeps_key(step, keys))
        return rows

    def _taken(
        self, plan: Plan, task: Task, read: Input, number: int, landed: Mapping[str, Sequence[Sequence[Row]]]
    ) -> list[Row]:
        """What a task takes of a partition."""
        if isinstance(read, StreamInput):
            planned = plan.stream(read.name).range(number)
            start, rows = planned.start, landed[read.name][number][planned.start : planned.end]
        else:
            start, rows = 0, self.held[read.name][number]
        assert all(key is None or lies(key, read.placement, number) for key, _ in rows)
        return [row for offset, row in enumerate(rows, start) if is_taken(task, read, number, row[0], offset)]

    @staticmethod
    def _left(
        stage: Stage, step: Step, left: Sequence[Mapping[str, Sequence[Row]]], h: Callable[[str], int] | None
    ) -> list[list[Row]]:
        """What a step leaves, by residue, where hot keys move nothing; by task where it cannot lie so."""
        count = stage.why.of.cosets if isinstance(stage.why, OwnTasks) else stage.cosets
        placed: list[list[Row]] = [[] for _ in range(count)]
        for task, given in zip(stage.tasks, left, strict=True):
            for row in given[step.name]:
                if row[0] is None or task.null_keys:
                    residue = 0
                elif not stage.scheme.keeps_keys:
                    residue = task.task % count
                elif h is None or stage.cosets == 1:
                    residue = task.owns[0] % count
                else:
                    assert h(row[0]) % stage.cosets in task.owns
                    residue = h(row[0]) % count
                placed[residue].append(row)
        return placed

    @staticmethod
    def _exchanged(exchange: Exchange, stage: Stage, left: Sequence[Mapping[str, Sequence[Row]]]) -> list[list[Row]]:
        """What lies in an exchange: all that tasks wrote of a partition, or what those wrote that a unifier unites."""
        placement, level = exchange.placement, isinstance(stage.why, Unifying)
        count = placement.partitions
        parts = range(len(left) // count if level else len(left))
        # Neighbours, as evenly as can be, the larger parts first.
        united = np.array_split(parts, exchange.unifiers[0] if exchange.unifiers else 1)
        held: list[list[Row]] = [[] for _ in range(count * len(united))]
        for task, given in enumerate(left):
            part = task // count if level else task
            (unifier,) = (number for number, parts in enumerate(united) if part in parts)
            for row in given[exchange.source]:
                partition = 0 if row[0] is None else partition_of(row[0], placement)
                assert not level or partition == task % count
                held[unifier * count + partition].append(row)
        return held


def key_columns(plan: Plan, stage: Stage) -> dict[str, str]:
    """The key column of all that a stage reads, and of its steps."""
    keys = {read.step: read.placement.key for read in stage.inputs if not isinstance(read, StateInput)}
    keys |= {stream.name: stream.declared.key for stream in plan.streams}
    return keys | {step.name: step.key for step in stage.steps}


def lie_by(plan: Plan, stage: Stage) -> dict[str, Callable[[str], int] | None]:
    """The hash by which the rows of each step lie, None if it is not known or they lie anywhere."""
    keys = key_columns(plan, stage)
    hashes: dict[str, set[str]] = {
        read.step: {read.placement.hash if read.placement.key else ANYWHERE}
        for read in stage.inputs
        if not isinstance(read, StateInput)
    }
    for step in stage.steps:
        changed = step.rekeys and not (step.op is Op.REKEY and keeps_key(step, keys))
        hashes[step.name] = {ANYWHERE} if changed else set().union(*(hashes[name] for name in step.inputs))
    return {name: HASHES.get(min(named)) if len(named) == 1 else None for name, named in hashes.items()}


def partition_of(key: str, placement: Placement) -> int:
    """Where a placement puts a key."""
    return HASHES[placement.hash](key) % placement.partitions if placement.key else 0


def lies(key: str, placement: Placement, number: int) -> bool:
    """Whether a key lies where the placement says, as far as that can be told."""
    if not placement.key or placement.hash not in HASHES:
        return True
    return partition_of(key, placement) == number % placement.partitions


def is_taken(task: Task, read: Input, partition: int, key: str | None, offset: int) -> bool:
    """Whether a task takes a record of an input, with a key or without: said here from what tasks mean, not asked of
    the rule of the product."""
    here = partition in task.reads.get(read.name, ())
    if isinstance(task.offsets, Span) and task.ranged in (UNSET, read.name):
        here = here and offset in range(task.offsets.start, task.offsets.end)
    if key is None:
        kept = not isinstance(read, StreamInput) or read.null_keys is NullKeys.OWN_TASK
        return here and kept and partition in task.keyless.get(read.name, ())
    residues = task.filters.get(read.name)
    mine = residues is None or _hash(task, read, key) % residues.modulus in set(residues.residues)
    return here and mine and not task.null_keys


def _hash(task: Task, read: Input, key: str) -> int:
    """The hash that tells whose a key is; any will do where it is not known, as nothing may then go by it."""
    if read.placement.key and read.placement.hash in HASHES:
        return HASHES[read.placement.hash](key)
    assert read.name not in task.filters
    return 0
