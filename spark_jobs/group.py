"""A task group: encodes its orders, hands them to what runs tasks, and stores its receipt."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import UNSET
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random

from coset.sources.copies import Copies
from partitioning.commands import Replan
from partitioning.documents.document import canonical, decode, decoder, digest, encode
from partitioning.documents.ledger import Ledger
from partitioning.documents.receipts import left_for
from partitioning.errors import CosetError, Refused, Unreachable
from partitioning.imports import code_of
from partitioning.kinds import Kind
from partitioning.model.failure import Answer, Done, Failed, together
from partitioning.model.graph import Step
from partitioning.model.leaving import Left
from partitioning.model.order import FailedRecord, Order, order_of, read_together
from partitioning.model.plan import Plan, TaskGroup
from partitioning.model.receipt import Artefact, Receipt, Role, TaskReceipt, shortages
from partitioning.model.root_names import TABLES
from partitioning.model.task_engine import MEMORY
from partitioning.sections import many, size
from partitioning.values import replace
from spark_jobs.engine.location import ENVIRONMENT, LocationIdProvider, check_location, most_frequent
from spark_jobs.engine.occasions import now, occasion
from spark_jobs.worker_code import Wanted, check, installed, wanted_for

if TYPE_CHECKING:  # few groups need it
    from spark_jobs.frames import Dataframes

# The store's clients retry for some seconds of their own. What a failed try wrote is swept later.
_PATIENT = Retrying(
    retry=retry_if_exception_type(Unreachable), stop=stop_after_attempt(2), wait=wait_random(1, 5), reraise=True
)

# Spark's own share of a task's cost is that of reading so many records. Orders for fewer are sent with others.
_WORTH_A_TASK = 100_000
# Orders for more are sent alone.
_ENOUGH = 500_000


class Sent(NamedTuple):
    """Encoded orders of tasks that share input, and how many records they read."""

    orders: Sequence[bytes]
    records: int


Work = Sequence[Sent]
# Runs the `pieces` of a group's work, each as a Spark task or in a process that has what is wanted, and returns their
# answers.
RunTasks = Callable[[Work, Wanted], Sequence[bytes]]


def run_group(
    ledger: Ledger,
    plan: Plan,
    number: int,
    run_tasks: RunTasks,
    dataframes: Dataframes | None = None,
    memory: str = MEMORY,
    provider: LocationIdProvider = ENVIRONMENT,
) -> str:
    """Run a task group, store its receipt, and return a sentence about it. A group that has run, or whose batch is
    decided, is not run.

    Steps on Spark's DataFrames need `dataframes`. Raises Refused if it is missing then, if the plan has no such group
    or is for another version of DuckDB, if a group of an earlier wave has not run, and with all findings of its tasks.
    """
    began, group = now(), group_of(ledger, plan, number)
    name, attempt = group_name(plan, number), ledger.attempt(plan.batch)
    if said := nothing_to_do(ledger, plan, number, attempt):
        return said
    _check_engine(plan, name)
    location = check_location(provider.location())
    left = left_for(ledger, plan, attempt, group)
    on_dataframes = [step.name for step in steps_on_dataframes(plan, group)]
    if on_dataframes and dataframes is None:
        raise without_spark(on_dataframes, name)
    failed, tables = failed_records(ledger, plan, attempt), ledger.uri(TABLES).rstrip("/")
    orders = orders_of(plan, group, attempt, ledger.store.root, left, failed, tables)
    called = {step.function for step in steps_of(plan, group) if step.function}
    answers = _done(run_tasks(work_of(orders), wanted_for(called)))
    tasks = _receipts(answers)
    if on_dataframes and dataframes is not None:
        from spark_jobs.frames import Frames  # noqa: PLC0415  other groups do without Spark's SQL engine

        with dataframes() as spark:
            frames = Frames(spark, name, memory, answered, lambda data: _receipts(_done(data)))
            tasks = frames.run(list(chain.from_iterable(orders)), tasks)
    places = {task: place for place, task in enumerate(group.tasks)}
    tasks = tuple(sorted(tasks, key=lambda receipt: places[receipt.task]))
    code = _code(answers)
    ran = location if provider.said else most_frequent([task.location for task in tasks]) or location
    keys = _put_keys(ledger, plan, number, attempt, answers)
    receipt = Receipt(digest(plan), number, attempt, tasks, occasion(began), code or UNSET, ran, keys)
    ledger.put_receipt(receipt, plan.batch)
    read = sum(partition.read for task in tasks for partition in task.partitions)
    written = sum(artefact.records for task in tasks for artefact in task.left(Role.TABLE))
    took_part = f"{many(len(tasks), 'task')} read {many(read, 'record')} and wrote {many(written, 'row')}"
    done = f"{name}: {took_part}, attempt {attempt}"
    other = " and ".join(path for path, ran in code.items() if ran != (plan.code.get(path, *ran),))
    done += f"; with other code of {other} than was planned" if other else ""
    lacked = "".join(f"; {each}" for each in shortages(tasks))
    return f"{done}{_of_state(answers)}, at {ran}{lacked}"


def _check_engine(plan: Plan, name: str) -> None:
    """Raise Refused if the plan was made for another version of DuckDB, for which its types and answers were looked at.
    Workers have what this process has, or refuse themselves."""
    here = installed().duckdb
    if plan.engine and plan.engine.version != here:
        what = f"the batch was planned for {plan.engine}, and here is DuckDB {here or 'none'}"
        then = (f"install duckdb=={plan.engine.version} again, or plan it for this one: ", Replan(plan.pipeline))
        raise Refused.of(Kind.ENGINE, what, name, then, wanted=plan.engine.version, has=here)


def nothing_to_do(ledger: Ledger, plan: Plan, number: int, attempt: int) -> str | None:
    """Why a task group is not to run in this attempt: its batch is decided, or it has run. None if it is."""
    if (verdict := ledger.verdict(plan.batch)) is not None:
        return f"{group_name(plan, number)}: nothing to do, the batch is decided ({verdict.decision})"
    if ledger.receipt(plan.batch, attempt, number) is not None:
        return f"{group_name(plan, number)}: nothing to do, attempt {attempt} has run"
    return None


def failed_records(ledger: Ledger, plan: Plan, attempt: int) -> Sequence[FailedRecord]:
    """The records that a stage set aside in earlier attempts of the plan and another may take: a step failed on them,
    or they have text that only some stages read."""
    if not attempt or not any(stream.declared.sets_aside for stream in plan.streams):
        return ()
    from coset.sources.reader import rows_in  # noqa: PLC0415  few batches need it

    numbers = [group.group for group in plan.groups]
    receipts = chain.from_iterable(ledger.receipts(plan.batch, before, numbers).values() for before in range(attempt))
    tasks = [task for receipt in receipts for task in receipt.tasks]
    stages = Counter(read.name for stage in plan.stages for read in stage.streams)
    found: dict[tuple[str, int, int], FailedRecord] = {}
    seen: dict[tuple[str, int, int], set[str]] = {}
    for stage, file in ((task.task.stage, file) for task in tasks for file in task.left(Role.SET_ASIDE)):
        data = ledger.store.get(file.path)
        for row in rows_in(data) if data is not None else ():
            record = FailedRecord(row["stream"], row["partition"], row["offset"], row["step"], row["why"])
            place = record.stream, record.partition, record.offset
            found.setdefault(place, record)
            seen.setdefault(place, set()).add(stage)
    return sorted(each for place, each in found.items() if each.step or len(seen[place]) < stages[each.stream])


def group_name(plan: Plan, number: int) -> str:
    """How sentences name a task group."""
    return f"group {number} of batch {plan.batch} of {plan.pipeline}"


def group_of(ledger: Ledger, plan: Plan, number: int) -> TaskGroup:
    """The group with this number. Raises Refused with the known numbers if there is none."""
    group = next((group for group in plan.groups if group.group == number), None)
    if group is None:
        listed = ", ".join(str(group.group) for group in plan.groups)
        where = ledger.uri(ledger.key("plans", plan.batch))
        what = f"there is no task group {number}"
        raise Refused.of(Kind.ARGUMENT, what, where, f"use one of {listed}", number=number)
    return group


def work_of(orders: Sequence[Sequence[Order]]) -> Work:
    """Orders, those that share input in one inner list, as they are handed to what runs tasks."""
    read = (sum(order.records for order in shared) for shared in orders)
    return list(map(Sent, encoded(orders), read))


def encoded(orders: Sequence[Sequence[Order]]) -> Sequence[Sequence[bytes]]:
    """Orders as the bytes of documents."""
    return [[encode(order) for order in together] for together in orders]


def orders_of(
    plan: Plan,
    group: TaskGroup,
    attempt: int,
    store: str,
    left: Left,
    failed: Sequence[FailedRecord] = (),
    tables: str = "",
) -> Sequence[Sequence[Order]]:
    """The orders of a group's tasks. Tasks that share input are in one inner list. `left` has the output of earlier
    waves."""
    return [
        [order_of(plan, digest(plan), ref, attempt, store, left, failed, tables) for ref in tasks]
        for tasks in read_together(plan, group)
    ]


def steps_of(plan: Plan, group: TaskGroup) -> Sequence[Step]:
    """The steps of a group's tasks."""
    return [step for stage in dict.fromkeys(task.stage for task in group.tasks) for step in plan.stage(stage).steps]


def steps_on_dataframes(plan: Plan, group: TaskGroup) -> Sequence[Step]:
    """The steps of a group that are functions on Spark's DataFrames."""
    return [step for step in steps_of(plan, group) if step.on_dataframes]


def pieces(work: Work, workers: int) -> list[bytes]:
    """Work cut into pieces for so many workers. Each piece is a JSON array of orders.

    The tasks of a piece read their shared input once. Pieces are halved, and the input read once more, while workers
    would be idle. Where there are more tasks than workers, small ones are in one piece.

    >>> work = [Sent([b"1", b"2", b"3"], 300_000), Sent([b"4"], 300_000)]
    >>> pieces(work, 2), pieces(work, 3)
    ([b'[1,2,3]', b'[4]'], [b'[1,2]', b'[4]', b'[3]'])
    >>> small = [Sent([b"1"], 10), Sent([b"2"], 10), Sent([b"3"], 10)]
    >>> pieces(small, 2), pieces(small, 3)
    ([b'[1,2]', b'[3]'], [b'[1]', b'[2]', b'[3]'])
    """
    parts = _put_together(work, workers)
    while parts and len(parts) < workers and len(largest := max(parts, key=len)) > 1:
        half = -(-len(largest) // 2)
        parts.append(largest[half:])
        del largest[half:]
    return [b"[%b]" % b",".join(orders) for orders in parts]


def _put_together(work: Work, workers: int) -> list[list[bytes]]:
    """The orders of each piece. Each worker gets two pieces, so that a slower one may get less."""
    share = sum(sent.records for sent in work) / workers
    most = min(share, max(share / 2, _WORTH_A_TASK), _ENOUGH)
    parts, held = list[list[bytes]](), 0
    for after, sent in zip(range(len(work) - 1, -1, -1), work, strict=True):
        if parts and len(parts) + after >= workers and held + sent.records / 2 <= most:
            parts[-1].extend(sent.orders)
            held += sent.records
        else:
            parts.append(list(sent.orders))
            held = sent.records
    return parts


def answer(piece: bytes, memory: str = MEMORY, wanted: Wanted | None = None) -> bytes:
    """Run the orders of a piece and return the encoded answer. A failure of the store is tried again once. If something
    else is `wanted` than what is here, nothing is read.

    An error is an answer too: Spark would retry an exception in vain and bury its findings.
    """

    def run() -> Done:
        if wanted is not None:
            check(wanted)
        from spark_jobs.engine.kernel import run_orders  # noqa: PLC0415  its imports are large, the driver needs none
        from spark_jobs.engine.sampled_keys import packed  # noqa: PLC0415

        orders = [decode(Order, bytes(order), "order") for order in msgspec.json.decode(piece, type=list[msgspec.Raw])]
        copies = Copies.of_environment()
        ran = run_orders(orders, memory=memory, copies=copies)
        called = {step.function for order in orders for step in order.steps if step.function}
        code = {path: noted for path in sorted(called) if (noted := code_of(path)) is not None}
        receipts, keys = tuple(each.receipt for each in ran), packed([each.sample for each in ran])
        return Done(receipts, copies.fetched, copies.found, ENVIRONMENT.location(), code, keys)

    return answered(run)


def answered(run: Callable[[], Done]) -> bytes:
    """Call `run` and encode its answer. A failure of the store is tried again once."""
    try:
        done: Answer = _PATIENT(run)
    except CosetError as error:
        done = Failed.of(error)
    return canonical(done)


def _done(answers: Sequence[bytes]) -> list[Done]:
    decoded = [decoder(Answer).decode(data) for data in answers]
    if failed := [answered.error() for answered in decoded if isinstance(answered, Failed)]:
        raise together(failed)
    return [answered for answered in decoded if isinstance(answered, Done)]


def _receipts(answers: Iterable[Done]) -> tuple[TaskReceipt, ...]:
    """The receipts of tasks, which say where each ran."""
    return tuple(replace(receipt, location=done.location) for done in answers for receipt in done.receipts)


def _put_keys(ledger: Ledger, plan: Plan, number: int, attempt: int, answers: Sequence[Done]) -> Artefact | None:
    """Store the keys that the tasks of a group sampled. None if there are none."""
    data = b"".join(done.keys for done in answers)
    if not data:
        return None
    folder = f"{ledger.pipeline}/audits/{plan.batch}/attempt-{attempt}"
    # A run has a file of its own, as its tasks have.
    there = ledger.store.put(f"{folder}/keys-{secrets.token_hex(4)}.arrow", data)
    sampled = sum(seen.keys for done in answers for task in done.receipts for seen in task.partitions)
    digest_of_file = f"sha256:{sha256(data).hexdigest()}"
    return Artefact(Role.KEYS, f"group {number}", there.key, there.size, there.etag, digest_of_file, sampled)


def _code(answers: Sequence[Done]) -> dict[str, tuple[str, ...]]:
    """The digests of the functions that tasks called, by import path."""
    found = dict[str, set[str]]()
    for path, code in (noted for done in answers for noted in done.code.items()):
        found.setdefault(path, set()).add(code)
    return {path: tuple(sorted(codes)) for path, codes in sorted(found.items())}


def _of_state(answers: Sequence[Done]) -> str:
    """How much state was read, and how much of it from the local cache."""
    fetched, found = sum(answered.fetched for answered in answers), sum(answered.found for answered in answers)
    if not fetched + found:
        return ""
    cached = f", {size(found)} of it from the cache" if found else ""
    return f"; {size(fetched + found)} of state were read{cached}"


def without_spark(steps: Sequence[str], name: str) -> Refused:
    """What to raise if these steps are functions on Spark's DataFrames and the runner has none."""
    listed, verb = " and ".join(steps), "is a function" if len(steps) == 1 else "are functions"
    what = f"{listed} {verb} on Spark's DataFrames, and this runner has no Spark"
    return Refused.of(Kind.RUNNER, what, name, "choose --runner spark, spark-submit or connect", listed=listed)
