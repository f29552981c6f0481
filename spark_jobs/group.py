"""A task group: its orders, handed to whatever runs tasks, and its receipt."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import msgspec
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random

from coset.sources.copies import Copies
from partitioning.documents import locations
from partitioning.documents.document import decode, digest, encode
from partitioning.documents.ledger import Ledger
from partitioning.documents.locations import LocationIdProvider, check_location
from partitioning.documents.receipts import left_for
from partitioning.errors import CosetError, Finding, Refused, Unreachable, about
from partitioning.kinds import Kind
from partitioning.model.artefact import Role
from partitioning.model.failure import Answer, Done, Failed, together
from partitioning.model.graph import Step
from partitioning.model.leaving import Left
from partitioning.model.order import Order, order_of
from partitioning.model.plan import Plan, TaskGroup
from partitioning.model.reading import read_together
from partitioning.model.receipt import Receipt, TaskReceipt
from partitioning.sections import many, size
from spark_jobs.engine.location import ENVIRONMENT
from spark_jobs.engine.occasions import now, occasion

if TYPE_CHECKING:  # few groups need it
    from spark_jobs.frames import Dataframes

MEMORY = "1GB"

# The clients of the store have tried for some seconds when they give up; whatever the order wrote is left behind.
_PATIENT = Retrying(
    retry=retry_if_exception_type(Unreachable),
    stop=stop_after_attempt(2),
    wait=wait_random(1, 5),
    reraise=True,
)

# Orders, those side by side whose tasks read something in common.
Work = Sequence[Sequence[bytes]]
# Runs the `pieces` of a group's work, each as a task of Spark's or in a process, and gives their answers.
RunTasks = Callable[[Work], Sequence[bytes]]


def run_group(
    ledger: Ledger,
    plan: Plan,
    number: int,
    run_tasks: RunTasks,
    dataframes: Dataframes | None = None,
    memory: str = MEMORY,
    provider: LocationIdProvider = ENVIRONMENT,
) -> str:
    """Run a task group unless that is done or decided, and store its receipt; a sentence on what was done.

    What is on Spark's DataFrames runs with `dataframes`. Raises Refused if that is needed and not there, if the plan
    has no such group, if groups of earlier waves have not run on which it waits, and with all findings of its tasks.
    """
    began, group = now(), group_of(ledger, plan, number)
    name = group_name(plan, number)
    verdict = ledger.verdict(plan.batch)
    if verdict is not None:
        return f"{name}: nothing to do, the batch is decided ({verdict.decision})"
    attempt = ledger.attempt(plan.batch)
    if ledger.receipt(plan.batch, attempt, number) is not None:
        return f"{name}: nothing to do, attempt {attempt} has run"
    location = check_location(provider.location())
    left = left_for(ledger, plan, attempt, group)
    on_dataframes = [step.name for step in steps_on_dataframes(plan, group)]
    if on_dataframes and dataframes is None:
        raise _without_spark(on_dataframes, name)
    orders = orders_of(plan, group, attempt, ledger.store.root, left)
    answers = _done(run_tasks(encoded(orders)))
    tasks = _receipts(answers)
    if on_dataframes and dataframes is not None:
        from spark_jobs.frames import Frames  # noqa: PLC0415  Spark's SQL engine is not needed otherwise

        with dataframes() as spark:
            frames = Frames(spark, name, memory, answered, lambda data: _receipts(_done(data)))
            tasks = frames.run(list(chain.from_iterable(orders)), tasks)
    places = {task: place for place, task in enumerate(group.tasks)}
    tasks = tuple(sorted(tasks, key=lambda receipt: places[receipt.task]))
    ledger.put_receipt(Receipt(digest(plan), number, attempt, tasks, occasion(began)), plan.batch)
    read = sum(partition.read for task in tasks for partition in task.partitions)
    written = sum(artefact.records for task in tasks for artefact in task.left(Role.TABLE))
    took_part = f"{many(len(tasks), 'task')} read {many(read, 'record')} and wrote {many(written, 'row')}"
    done = f"{name}: {took_part}, attempt {attempt}"
    return done + _of_state(answers) + _note(ledger, plan, group, location)


def group_name(plan: Plan, number: int) -> str:
    """A task group in sentences."""
    return f"group {number} of batch {plan.batch} of {plan.pipeline}"


def group_of(ledger: Ledger, plan: Plan, number: int) -> TaskGroup:
    """The group of that number. Raises Refused, with the numbers there are, if there is none."""
    group = next((group for group in plan.groups if group.group == number), None)
    if group is None:
        listed = ", ".join(str(group.group) for group in plan.groups)
        where = ledger.uri(ledger.key("plans", plan.batch))
        raise Refused(
            Finding(
                Kind.ARGUMENT, f"there is no task group {number}", where, f"use one of {listed}", about(number=number)
            )
        )
    return group


def work(plan: Plan, group: TaskGroup, attempt: int, store: str, left: Left) -> Work:
    """The orders of a group's tasks, as documents."""
    return encoded(orders_of(plan, group, attempt, store, left))


def encoded(orders: Sequence[Sequence[Order]]) -> Work:
    """Orders as documents."""
    return [[encode(order) for order in together] for together in orders]


def orders_of(plan: Plan, group: TaskGroup, attempt: int, store: str, left: Left) -> Sequence[Sequence[Order]]:
    """The orders of a group's tasks, together where these read something in common. `left` is what earlier waves
    left."""
    return [
        [order_of(plan, digest(plan), ref, attempt, store, left) for ref in tasks]
        for tasks in read_together(plan, group)
    ]


def steps_of(plan: Plan, group: TaskGroup) -> Sequence[Step]:
    """The steps of a group's tasks."""
    return [step for stage in dict.fromkeys(task.stage for task in group.tasks) for step in plan.stage(stage).steps]


def steps_on_dataframes(plan: Plan, group: TaskGroup) -> Sequence[Step]:
    """Those that are functions on Spark's DataFrames."""
    return [step for step in steps_of(plan, group) if step.on_dataframes]


def pieces(work: Work, workers: int) -> list[bytes]:
    """What each of so many workers is sent, as JSON arrays of orders; there are no fewer pieces if it can be helped.

    The tasks of a piece read once what they have in common. If that left workers idle, more of them read it.

    >>> pieces([[b"1", b"2", b"3"], [b"4"]], 2), pieces([[b"1", b"2", b"3"], [b"4"]], 3)
    ([b'[1,2,3]', b'[4]'], [b'[1,2]', b'[4]', b'[3]'])
    """
    parts = [list(orders) for orders in work]
    while parts and len(parts) < workers and len(largest := max(parts, key=len)) > 1:
        half = -(-len(largest) // 2)
        parts.append(largest[half:])
        del largest[half:]
    return [b"[%b]" % b",".join(orders) for orders in parts]


def answer(piece: bytes, memory: str = MEMORY) -> bytes:
    """Run the orders of a piece of work, again if the store fails meanwhile; its answer.

    An error is one too, since Spark would try again in vain and bury the findings.
    """
    from spark_jobs.engine.kernel import run_orders  # noqa: PLC0415  what it imports is large and not needed in the driver

    def run() -> Done:
        orders = [decode(Order, bytes(order), "order") for order in msgspec.json.decode(piece, type=list[msgspec.Raw])]
        copies = Copies.of_environment()
        receipts = tuple(run_orders(orders, memory=memory, copies=copies))
        return Done(receipts, copies.fetched, copies.found)

    return answered(run)


def answered(run: Callable[[], Done]) -> bytes:
    """The answer of what runs tasks; it is run again if the store fails meanwhile."""
    try:
        done: Answer = _PATIENT(run)
    except CosetError as error:
        done = Failed.of(error)
    return msgspec.json.encode(done)


def _done(answers: Sequence[bytes]) -> list[Done]:
    decoded = [msgspec.json.decode(data, type=Answer) for data in answers]
    if failed := [answered.error() for answered in decoded if isinstance(answered, Failed)]:
        raise together(failed)
    return [answered for answered in decoded if isinstance(answered, Done)]


def _receipts(answers: Iterable[Done]) -> tuple[TaskReceipt, ...]:
    return tuple(receipt for done in answers for receipt in done.receipts)


def _of_state(answers: Sequence[Done]) -> str:
    """How much state was read, and how much of it from copies that were there."""
    fetched, found = sum(answered.fetched for answered in answers), sum(answered.found for answered in answers)
    if not fetched + found:
        return ""
    copies = f", {size(found)} of it from copies" if found else ""
    return f"; {size(fetched + found)} of state were read{copies}"


def _without_spark(steps: Sequence[str], name: str) -> Refused:
    listed, verb = " and ".join(steps), "is a function" if len(steps) == 1 else "are functions"
    what = f"{listed} {verb} on Spark's DataFrames, and here is no Spark"
    return Refused(
        Finding(Kind.RUNNER, what, name, "choose --runner spark, spark-submit or connect", about(listed=listed))
    )


def _note(ledger: Ledger, plan: Plan, group: TaskGroup, location: str) -> str:
    """Store where the group ran. If that fails the batch goes on: its receipt is there, and this is but a hint."""
    try:
        locations.put(ledger.store, plan, group, location)
    except CosetError as error:
        return f"; that it ran at {location} could not be stored: {error.findings[0].what}"
    return f", at {location}"
