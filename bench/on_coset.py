"""Coset in Spark, on its S3 store, and the pipelines that answer the queries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import assert_never

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark import SparkConf, SparkContext

from bench.making import upload
from bench.party import CORES, MASTER, Left, Run
from bench.workload import WITHIN_SECONDS, Query, Workload
from coset.batches import steps
from coset.batches.auditing.audit import audit
from coset.batches.interpreter import run_batch, silently
from coset.batches.ref import LoadedBatch
from coset.batches.runners.local import Local
from coset.batches.runners.runner import Runner
from coset.batches.runners.spark import Spark
from coset.batches.runners.spark_settings import configuration
from coset.batches.tables.logs import opened_whole
from coset.cli.machine import collect_seldom
from coset.sources.reader import Batch
from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.document import decode
from partitioning.documents.stores import store_at
from partitioning.model.failure import Done
from partitioning.model.leaving import LeftPartition
from partitioning.model.order import Order, Ordered
from partitioning.model.receipt import PartitionReceipt, Role, TaskReceipt
from partitioning.model.schemes import HotKeys
from partitioning.model.stage_inputs import PlannedPartition
from spark_jobs.engine.hashing import placement_hashes
from spark_jobs.engine.intake import Inspect, Proved
from spark_jobs.engine.kernel import run_orders
from spark_jobs.engine.location import ENVIRONMENT
from spark_jobs.engine.proof import SAMPLED
from spark_jobs.engine.residues import rows_by_residue, rows_of
from spark_jobs.engine.set_aside import SetAsideRecord
from spark_jobs.group import Work, answer, answered, pieces, run_group
from spark_jobs.worker_code import Wanted
from tests.running import task_receipts

_READY = ".ready"
_SETTINGS = {"coset-groups": Settings(groups=CORES), "coset-unsplit": Settings(groups=1)}


class Unproved:
    """No inspection: the difference is the cost of the proof. Tasks that share partitions take records by their keys,
    of which the workload's records all have one."""

    columns = ()

    def __init__(self, order: Order, ordered: Ordered, planned: PlannedPartition | LeftPartition) -> None:
        self._name, self._planned, self._placement = ordered.name, planned, ordered.placement
        self._kept = order.task.filters.get(ordered.name)

    def rows(self, batch: Batch) -> np.ndarray | None:
        if self._kept is None:
            return None
        modulus = self._kept.modulus
        rows, begins = batch.once(modulus, lambda: rows_by_residue(self._hashes(batch), np.uint32(modulus)))
        return rows_of(self._kept.residues, rows, begins)

    def _hashes(self, batch: Batch) -> np.ndarray:
        return placement_hashes(batch.records.column(self._placement.key), self._placement.key_format)

    def receipt(self) -> PartitionReceipt:
        planned, none = self._planned, (0, 0, 0, 0)
        return PartitionReceipt(
            self._name, planned.partition, planned.start, planned.end, *none, "", *none, offenders=(), heavy=()
        )

    def keys(self) -> pa.Table:
        return SAMPLED.empty_table()

    def set_aside(self) -> Sequence[SetAsideRecord]:
        return ()


@contextmanager
def kernel(workload: Workload) -> Iterator[Run]:
    """Coset's kernel in Spark on the S3 store, with receipts and their audit, in the way of the party."""
    inspect: Inspect = Unproved if workload.party == "coset-unproved" else Proved
    settings = _SETTINGS.get(workload.party, Settings(groups=1, hot_keys=HotKeys.SPLIT))
    run_piece = answer if inspect is Proved else partial(_answer, inspect)
    scheme = f"tasks({workload.tasks})" if workload.tasks else None
    batches = {}
    for at in workload.all:
        scheme = f"elastic({at.factor})" if at.query is Query.ELASTIC else scheme
        batches[at.point] = _taken_up(at, Settings.parse(scheme=scheme, base=settings))
    options = {**configuration(MASTER), "spark.master": MASTER, "spark.app.name": "bench"}
    with SparkContext(conf=SparkConf().setAll(list(options.items()))) as spark, ThreadPoolExecutor(CORES) as pool:

        def run_tasks(work: Work, _: Wanted) -> Sequence[bytes]:
            sent = pieces(work, CORES)
            return spark.parallelize(sent, len(sent)).map(run_piece).collect()

        def run(number: int, at: Workload) -> Callable[[], Left]:
            batch = batches[at.point]
            ledger, plan = batch.load()
            attempt = ledger.attempt(plan.batch)
            for wave in plan.waves:
                list(pool.map(lambda group: run_group(ledger, plan, group, run_tasks), wave))
            moved = audit(ledger, plan, attempt).moved if inspect is Proved else None
            ledger.close_attempt(plan.batch, attempt, b"{}")
            return lambda: _left(batch, attempt, moved)

        yield run


@contextmanager
def resident(workload: Workload) -> Iterator[Run]:
    """Whole batches in one Spark application, from landing to published, in a process such as the command's."""
    collect_seldom()
    with Spark(MASTER, memory="4GB") as runner:
        yield partial(_whole_batch, workload, runner, [])


@contextmanager
def without_spark(workload: Workload) -> Iterator[Run]:
    """Whole batches in a process for each core, from landing to published, in a process such as the command's."""
    collect_seldom()
    with Local(processes=CORES) as runner:
        yield partial(_whole_batch, workload, runner, [])


def _whole_batch(
    workload: Workload, runner: Runner, batches: list[LoadedBatch], number: int, _: Workload
) -> Callable[[], Left]:
    upload(_source(workload), workload.landed, workload.round(number))
    settings = Settings.parse(scheme=f"tasks({workload.totalling(number)})", groups=1)
    batch = _taken_up(workload, settings)
    run_batch(batch, runner, workload.results / "docs", silently)
    batches.append(batch)
    if workload.query.changes:
        return lambda: Left(_published(batch))
    return lambda: Left([file for each in batches for file in _files(each, task_receipts(each))])


def _published(batch: LoadedBatch) -> list[str]:
    """The files that the table of the answers has now."""
    with opened_whole(f"{batch.ledger.store.root}/tables/answers") as table:
        assert table is not None
        return table.file_uris()


def prepare(workload: Workload) -> None:
    """Copy the records to the environment's S3 server unless they are there, and publish the batch before."""
    if workload.query.data.follows:
        upload(_source(workload), workload.before, workload.before.rglob("*.parquet"))
        batch = _taken_up(workload, Settings(groups=1))
        with Local(processes=CORES) as runner:
            run_batch(batch, runner, None, silently)
    if store_at(_source(workload)).head(_READY) is None:
        upload(_source(workload), workload.landed, workload.landed.rglob("*.parquet"))
        store_at(_source(workload)).put(_READY, b"")


def _taken_up(workload: Workload, settings: Settings) -> LoadedBatch:
    pipeline = pipeline_for(workload, _source(workload))
    batch, said = steps.take_up(pipeline, _store(workload), settings)
    assert batch is not None, said
    return batch


def _store(workload: Workload) -> str:
    return f"s3://coset/{workload.query}/{workload.party}/{workload.point.value}".rstrip("/")


def _source(workload: Workload) -> str:
    """Parties share records, unless these come one after the other."""
    alone = workload.query.arrives or workload.query.data.follows
    return f"{_store(workload)}/topics" if alone else f"s3://landing/{workload.records}"


def _left(batch: LoadedBatch, attempt: int, moved: pd.DataFrame | None) -> Left:
    tasks, streams = task_receipts(batch, attempt), {stream.name for stream in batch.plan.streams}
    files = _files(batch, tasks)
    if moved is None:
        return Left(files)
    sums = moved[moved["kind"] == Role.EXCHANGE][["records", "bytes"]].sum()
    taken = [sum(part.taken for part in task.partitions if part.input in streams) for task in tasks]
    reading = [records for records in taken if records]
    return Left(files, int(sums["bytes"]), int(sums["records"]), max(reading) * len(reading) / sum(reading))


def _files(batch: LoadedBatch, tasks: Iterable[TaskReceipt]) -> list[str]:
    return [f"{batch.ledger.store.root}/{file.path}" for task in tasks for file in task.left(Role.TABLE)]


def _answer(inspect: Inspect, piece: bytes) -> bytes:
    """As `answer`, by that inspection."""
    orders = [decode(Order, bytes(order), "order") for order in msgspec.json.decode(piece, type=list[msgspec.Raw])]

    def run() -> Done:
        receipts = tuple(ran.receipt for ran in run_orders(orders, inspect=inspect))
        return Done(receipts, 0, 0, ENVIRONMENT.location(), {})

    return answered(run)


_COUNTED = "count(*) AS {}, sum(amount)::BIGINT AS {}"
_RECORDS = _COUNTED.format("records", "amount")
_SUMMED = "sum(records)::BIGINT AS records, sum(amount)::BIGINT AS amount"


def pipeline_for(workload: Workload, source: str) -> Pipeline:
    """The pipeline that answers the query."""
    bench = Pipeline("bench", source=source)
    # Each stream has to lead to a table.
    topics = workload.topics[:1] if workload.query is Query.HOT else workload.topics
    flows = [bench.stream(topic.name, key=topic.key, partitions=topic.partitions) for topic in topics]
    answers = _asked(workload.query, flows[0], flows[-1], workload.party == "coset-moving")
    if workload.query.changes:
        answers.write("answers", mode="upsert")
    else:
        answers.to_stream().write("answers")
    return bench


def _asked(query: Query, left: Flow, right: Flow, moving_all: bool) -> Flow:
    match query:
        case Query.COUNTED | Query.ELASTIC | Query.BY_RECORDS:
            viewed = left.aggregate(_COUNTED.format("views", "viewed"))
            clicked = right.aggregate(_COUNTED.format("clicks", "clicked"))
            return viewed.join(clicked, "views.views, views.viewed, clicks.clicks, clicks.clicked", how="full")
        case Query.IN_TIME:
            columns, within = "views.amount + clicks.amount AS amount", timedelta(seconds=WITHIN_SECONDS)
            pairs = left.join_within(right, columns, times=("time", "time"), within=within, name="met")
            return pairs.aggregate("count(*) AS pairs, sum(amount)::BIGINT AS paired")
        case Query.MERGED:
            moved = right.rekey("key", name="by_key").select("amount", name="right")
            both = left.select("amount", name="left").merge(moved, name="both")
            return (both.repartition(8, name="moved") if moving_all else both).aggregate(_RECORDS)
        case Query.HOT | Query.BY_SHARE:
            return left.partial(_RECORDS, by="key", name="parts").combine(_SUMMED, name="totals")
        case Query.HOT_JOINED:
            return left.join(right, "events.event, events.amount * profiles.rate AS worth")
        case Query.BATCHES | Query.RESCALED:
            return left.aggregate(_RECORDS, name="in_batch").combine(_SUMMED, running=True, name="totals")
        case Query.CHANGING:
            teams = left.latest("seen", name="newest").rekey("team", name="by_team")
            return teams.aggregate("count(*) AS members, sum(amount::BIGINT)::BIGINT AS amount", name="teams")
        case Query.CHANGING_JOINED:
            totals = right.aggregate(_RECORDS, name="in_batch").combine(_SUMMED, running=True, name="totals")
            newest = left.latest("seen", name="newest")
            joined = newest.join(totals, "newest.team, newest.amount * totals.amount AS worth", name="joined")
            return joined.rekey("team", name="by_team").aggregate(
                "count(*) AS members, sum(worth::BIGINT)::BIGINT AS worth", name="teams"
            )
        case _:
            assert_never(query)
