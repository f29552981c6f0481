"""The programs: what the model's actors do, each by the functions that a command or a DAG's task calls."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256

from coset.batches import planning, publication
from coset.batches.attempt import Attempt
from coset.batches.backfills import actions, request, swaps
from coset.batches.sweeping import sweep
from coset.batches.tables.logs import Logs
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.authoring.toml_writer import to_toml
from partitioning.commands import Repeat, backfill_of
from partitioning.documents.document import canonical, digest, encode
from partitioning.documents.ledger import Ledger
from partitioning.documents.receipts import receipts
from partitioning.documents.store import RememberingStore, Store
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.backfill import Backfill, Comparison, SwapKind
from partitioning.model.plan import Plan, PlannedWrite, TaskRef
from partitioning.model.receipt import Artefact, PartitionReceipt, Receipt, Role, TaskReceipt
from partitioning.model.stage_inputs import StreamInput
from partitioning.model.verdict import Judged
from spark_jobs.tables.footers import seal
from spark_jobs.tables.table_schema import table_schema
from tests.model.seams import HERE, ROOT, landed
from tests.there import there

PIPELINE = "lines"
JUDGED = Judged(60, 6, 0, 1, 4, 4)
SETTINGS = Settings(groups=1)
UP_TO_DATE = "nothing to do"


def pipeline(tables: int = 1) -> Pipeline:
    """A stream of two partitions, written to so many tables."""
    made = Pipeline(PIPELINE, source="s3://model/landed")
    events = made.stream("events", key="k", partitions=2)
    for number in range(tables):
        events.write(f"t{number}")
    return made


def arrive(*ends: int) -> str:
    """Records arrive, up to these offsets."""
    store_at(ROOT).put(landed("events"), json.dumps(ends).encode())
    return f"arrived {ends}"


def run(tables: int = 1, failing: int = 0) -> str:
    """`coset run`: take up the next batch, run its groups, check it and publish it. The checks of the first so many
    attempts fail."""
    store = RememberingStore(store_at(ROOT))
    taken = planning.take_up(pipeline(tables), store, SETTINGS)
    if taken.plan is None:
        return UP_TO_DATE
    ledger, plan = Ledger(store, PIPELINE), taken.plan
    run_groups(ledger, plan)
    checked, logs = check(ledger, plan, failing)
    swaps.whole(store, PIPELINE)
    commit = publication.publish(ledger, plan, checked, logs)
    return f"published {commit.batch}"


def abandon() -> str:
    """`coset abandon`."""
    return f"abandoned {publication.abandon(Ledger(store_at(ROOT), PIPELINE), 'it is wrong').batch}"


def clean(tables: int = 1) -> str:
    """`coset clean`."""
    return f"removed {len(sweep(pipeline(tables), store_at(ROOT)).files)}"


def backfill(tables: int = 1, number: int = 0) -> str:
    """A backfill of batch 0 that is run, decided and compared, and not put in place."""
    store = store_at(ROOT)
    asked = request.put(store, Backfill(PIPELINE, number, (0,), to_toml(SETTINGS), "ann", "to see", "2026"))
    plan = actions.planned(pipeline(tables), store, asked, 0)
    ledger = Ledger(store, asked.name)
    run_groups(ledger, plan)
    check(ledger, plan, 0)
    before = there(Ledger(store, PIPELINE).plan(0))
    found = Comparison(PIPELINE, number, ((0, digest(before), digest(plan)),), (), (), (), ())
    store.put(request.comparison_key(asked), encode(found))
    return f"compared {asked.number}"


def swap(to: SwapKind = SwapKind.SWAP, number: int = 0) -> str:
    """`coset swap` of that backfill, or `coset undo`."""
    store = store_at(ROOT)
    asked = request.backfill(store, PIPELINE, number)
    found = there(request.comparison_of(store, asked))
    swapped = swaps.turn(store, asked, found, to, who=HERE.name, why="", at="2026")
    return f"swapped {swapped.number}"


def run_groups(ledger: Ledger, plan: Plan) -> None:
    """Run the task groups that have no receipt, but for what Spark and DuckDB do."""
    if ledger.verdict(plan.batch) is not None:
        return
    attempt = Attempt.of_open(ledger, plan)
    for group in (group for group in plan.groups if group.group in attempt.missing):
        tasks = tuple(_ran(ledger.store, plan, task, attempt.number) for task in group.tasks)
        ledger.put_receipt(Receipt(digest(plan), group.group, attempt.number, tasks), plan.batch)


def check(ledger: Ledger, plan: Plan, failing: int) -> tuple[int | None, Logs | None]:
    """As `steps.audit` and `steps.check` do, but for what is judged."""
    if ledger.verdict(plan.batch) is not None:
        return None, None
    number = ledger.attempt(plan.batch)
    receipts(ledger, plan, number)
    attempt, logs, met = Attempt(ledger, plan, number), Logs(), number >= failing
    report = canonical({"met": met, "findings": []})
    ledger.put_judgement(plan.batch, number, report)
    if not met:
        ledger.close_attempt(plan.batch, number, report)
        raise Refused.of(Kind.BATCH_UNRUN, "the checks failed", f"batch {plan.batch}", Repeat())
    publication.decide(attempt, JUDGED, (), logs)
    return number, logs


def _ran(store: Store, plan: Plan, task: TaskRef, attempt: int) -> TaskReceipt:
    """What a task reads and writes: its rows are the offsets that it was planned to read."""
    stage = plan.stage(task.stage)
    read = {
        f"{read.name}-{part.partition}": (part.start, part.end)
        for read in stage.inputs
        if isinstance(read, StreamInput)
        for part in plan.stream(read.name).read_by(plan.task(task))
    }
    files = tuple(_written(store, plan, write, task, attempt, read) for write in stage.writes)
    return TaskReceipt(task, tuple(_seen(read)), files, 100)


def _seen(read: dict[str, tuple[int, int]]) -> Iterator[PartitionReceipt]:
    for name, (start, end) in read.items():
        stream, _, number = name.rpartition("-")
        count = end - start
        yield PartitionReceipt(stream, int(number), start, end, count, count, 0, 0, "0", 0, 0, 0, 1, (), ())


def _written(
    store: Store, plan: Plan, write: PlannedWrite, task: TaskRef, attempt: int, read: dict[str, tuple[int, int]]
) -> Artefact:
    table, data = write.declared.table, json.dumps(read).encode()
    again = backfill_of(plan.pipeline)
    run = f"attempt-{attempt}-{HERE.name}{f'-again{again[1]}' if again else ''}"
    path = f"tables/{table}/data/plan-{plan.batch}/{run}/{task.stage}-{task.task}.parquet"
    entry, records = store.put(path, data), sum(end - start for start, end in read.values())
    of_content = f"sha256:{sha256(data).hexdigest()}"
    mark = seal(entry.size, entry.etag, of_content, records, table_schema(write))
    return Artefact(Role.TABLE, table, path, entry.size, entry.etag, of_content, records, seal=mark)
