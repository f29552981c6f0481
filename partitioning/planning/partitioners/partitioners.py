"""Partitioners: assign the cosets of a stage to tasks by a rule of the user's own (Apex: Partitioner).

Under the coset rule each task owns one residue of the stage's key space. A partitioner owns that decision
instead: it is given the shares that tasks had in the last batch, with what each took, and answers with those
of the next. Its answer is checked before anything runs. No state is lost or moved by hand: every stage reads
state by where its keys lie.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Protocol, runtime_checkable

from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import PartitionerRef, Settings
from partitioning.errors import Refused
from partitioning.hashes import java_hash
from partitioning.imports import called, imported
from partitioning.kinds import Kind
from partitioning.model.placement import Placement
from partitioning.model.plan import Plan, Stage
from partitioning.model.statistics import TaskFigures
from partitioning.numbers import TASKS
from partitioning.planning.partitioners.key_shares import Share, complete, reduced, residues_at, widest
from partitioning.values import Value


class PartitioningContext(Value, frozen=True):
    """What a partitioner knows: the stage, its batch, the cosets that its scheme gives and how its inputs lie."""

    stage: str
    batch: int
    cosets: int
    inputs: tuple[Placement, ...]


@runtime_checkable
class Partitioner(Protocol):
    """The interface of a partitioner. Each call makes a new one, so it keeps nothing between calls."""

    def define(self, current: tuple[Share, ...], context: PartitioningContext) -> Sequence[Share]:
        """The shares of the next batch, by task number: every key in exactly one.

        `current` are those of the last batch, none at first. Shares that are returned are kept, those that are
        not are removed, any other is new. A share that keeps its place stays in its task group. The answer must
        follow from the arguments alone: a batch may be planned twice.
        """
        ...

    def accepted(self, changes: Changes) -> None:
        """Called once the plan is stored. An error here does not undo it."""
        ...


class Changes(Value, frozen=True):
    """What became of a stage's shares: `kept` own the same keys as one of the last batch, `new` other ones.

    Both have their task number in the new plan, `removed` that in the last one.
    """

    kept: tuple[Share, ...]
    removed: tuple[Share, ...]
    new: tuple[Share, ...]


class Shares(Value, frozen=True):
    """The cosets that a partitioner assigned: the residues that each task owns, and until which batch it is left alone.

    `cosets` is the widest modulus of all shares. `owners` and `cooling` are by task number; `cooling` is empty if no
    task is cooling.
    """

    cosets: int
    owners: tuple[tuple[int, ...], ...]
    cooling: tuple[int, ...]


def assign_shares(
    partitioner: PartitionerRef | str,
    stage: str,
    *,
    cosets: int,
    inputs: tuple[Placement, ...],
    previous: Stage | None,
    figures: Mapping[int, TaskFigures],
    batch: int,
) -> Shares:
    """The shares that a partitioner assigns to the tasks of a stage in `batch`.

    `cosets` is L by the stage's scheme, `previous` the stage in the last published plan, `figures` what its tasks took,
    by task number.

    >>> apex = PartitionerRef("partitioning.planning.partitioners.partitioners:ApexKeys", {"tasks": 3})
    >>> assign_shares(apex, "views", cosets=8, inputs=(), previous=None, figures={}, batch=0).owners
    ((0, 3), (1,), (2,))

    Raises Refused, with all findings, if there is no such partitioner, if it cannot be made with its arguments,
    or if its answer is no assignment of all keys (see `key_shares.complete`).
    """
    ref = _ref(partitioner)
    where = f"partitioner {ref} of stage {stage}"
    current = current_shares(previous, figures)
    made = _made(ref, where)
    with called(Kind.PARTITIONER, "define()", where, "correct the partitioner"):
        answer = made.define(current, PartitioningContext(stage, batch, cosets, inputs))
    shares = complete(answer, where)
    modulus = widest(shares)
    # Only tasks that wait for a later batch than the next are remembered.
    cooling = tuple(share.cooling if share.cooling > batch + 1 else 0 for share in shares)
    owners = tuple(residues_at(share, modulus) for share in shares)
    return Shares(modulus, owners, cooling if any(cooling) else ())


def current_shares(previous: Stage | None, figures: Mapping[int, TaskFigures]) -> tuple[Share, ...]:
    """The shares of a stage's tasks in the last batch, by task number; none if keys were not kept together."""
    if previous is None:
        return ()
    cooling = dict(enumerate(previous.cooling))
    return tuple(
        reduced(Share(previous.cosets, task.owns, task.task, figures.get(task.task), 0, cooling.get(task.task, 0)))
        for task in previous.undivided
        if task.owns
    )


def changes(before: Stage | None, after: Stage) -> Changes:
    """What became of a stage's shares from the last published plan to the next."""
    was, now = current_shares(before, {}), current_shares(after, {})
    owned, owns = {_keys(share) for share in was}, {_keys(share) for share in now}
    return Changes(
        tuple(share for share in now if _keys(share) in owned),
        tuple(share for share in was if _keys(share) not in owns),
        tuple(share for share in now if _keys(share) not in owned),
    )


def _keys(share: Share) -> tuple[int, tuple[int, ...]]:
    return share.modulus, share.residues


def notify(plan: Plan, published: Plan | None, pipeline: Pipeline, settings: Settings) -> None:
    """Tell the partitioners that `plan` is accepted. To be called by whoever made the plan, once it is stored.

    The other arguments are those that it was made with; `published` is the last published plan.
    """
    before = {stage.name: stage for stage in published.stages} if published else {}
    for stage in plan.stages:
        names = (stage.name, *(step.name for step in stage.steps))
        named = (
            by_name[name]
            for by_name in (settings.partitioners, pipeline.partitioners)
            for name in names
            if name in by_name
        )
        for ref in islice(named, 1):
            where = f"partitioner {ref} of stage {stage.name}"
            partitioner, then = _made(_ref(ref), where), "correct it; the plan is stored, and counts as it is"
            with called(Kind.PARTITIONER, "accepted()", where, then):
                partitioner.accepted(changes(before.get(stage.name), stage))


def _ref(partitioner: PartitionerRef | str) -> PartitionerRef:
    return PartitionerRef(partitioner) if isinstance(partitioner, str) else partitioner


def _made(ref: PartitionerRef, where: str) -> Partitioner:
    factory = imported(ref.path, where)
    with called(Kind.PARTITIONER, "it cannot be made:", where, "correct it, or its arguments in the settings"):
        partitioner = factory(**ref.arguments)
    if not isinstance(partitioner, Partitioner):
        what = f"{ref.path} gives no partitioner but {type(partitioner).__name__}"
        then = "name a class or function that gives one: define(), accepted()"
        raise Refused.of(Kind.PARTITIONER, what, where, then, path=ref.path, type=type(partitioner).__name__)
    return partitioner


class ApexKeys(Value, frozen=True):
    """Shares as Apex's StatelessPartitioner cuts them: key i of the next power of two goes to task i mod `tasks`.

    For those who come from Apex and want each key in the same partition number; with another number of tasks than
    a power of two the first ones have twice the keys of the last.

    >>> [str(share) for share in ApexKeys(3).define((), PartitioningContext("views", 0, 8, ()))]
    ['h(key) mod 4 in 0, 3', 'h(key) mod 4 = 1', 'h(key) mod 4 = 2']
    """

    tasks: int

    def __post_init__(self) -> None:
        _check_tasks(self.tasks)

    def define(self, current: tuple[Share, ...], context: PartitioningContext) -> Sequence[Share]:
        keys = 1 << (self.tasks - 1).bit_length()
        return [Share(keys, tuple(range(task, keys, self.tasks))) for task in range(self.tasks)]

    def accepted(self, changes: Changes) -> None:
        """Nothing depends on it."""


class Even(Value, frozen=True):
    """Assign the cosets of the stage's scheme evenly to `tasks` tasks: each gets as many as the others, or one more.

    With one task more, only the cosets of the new task change owners: 1 / `tasks` of all. The assignment depends on
    these two numbers alone. Under `cogroup`, tasks read whole stream partitions.

    >>> context = PartitioningContext("views", 0, 8, ())
    >>> [str(share) for share in Even(3).define((), context)]
    ['h(key) mod 8 in 0, 1, 2', 'h(key) mod 8 in 4, 5, 6', 'h(key) mod 8 in 3, 7']
    """

    tasks: int

    def __post_init__(self) -> None:
        _check_tasks(self.tasks)

    def define(self, current: tuple[Share, ...], context: PartitioningContext) -> Sequence[Share]:
        cosets = context.cosets
        if self.tasks > cosets:
            what = f"{cosets} cosets cannot be assigned to {self.tasks} tasks"
            then = f"give the stage a finer scheme, as tasks({16 * self.tasks})"
            raise Refused.of(Kind.PARTITIONER, what, f"stage {context.stage}", then, cosets=cosets, tasks=self.tasks)
        owned, size, more = [list(range(cosets))], cosets, 0
        for tasks in range(2, self.tasks + 1):
            before, (size, more) = (size, more), divmod(cosets, tasks)
            # The first `more` own one coset more than the others: if the size stays, few cosets change owners.
            givers = range(more, before[1]) if size == before[0] else range(tasks - 1)
            moved: list[int] = []
            for number in givers:
                keep = size + (number < more)
                moved += owned[number][keep:]
                del owned[number][keep:]
            owned.append(moved)
        return [Share(cosets, tuple(residues)) for residues in owned]

    def accepted(self, changes: Changes) -> None:
        """Nothing depends on it."""


def apex_hash(key: str) -> int:
    """h(k) of a text key as Apex takes it: a placement function, named by its import path.

    Apex compares the low bits of the signed hashCode, so its sign bit may go. Negative hashes are elsewhere
    under the placement `java`, which takes the absolute value.

    >>> apex_hash("user-1") % 4, apex_hash("XYZ") % 4
    (3, 1)
    """
    return java_hash(key) & 0x7FFFFFFF


def _check_tasks(tasks: object) -> None:
    if not isinstance(tasks, int) or isinstance(tasks, bool) or tasks < 1:
        what, then = f"{tasks!r} tasks", "give tasks as 1 or more"
        raise Refused.of(Kind.PARTITIONER, what, "the partitioner's arguments", then, value=tasks, name="tasks")
    TASKS.check(tasks, "the partitioner's tasks")
