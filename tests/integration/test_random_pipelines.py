"""Random pipelines, run batch after batch under random plans, against the same SQL over all records of each batch."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, currently_in_test_context, event, given, settings
from hypothesis import strategies as st

from coset.batches import publication, steps
from coset.batches.attempt import Attempt
from coset.batches.audit import audit
from coset.batches.ref import BatchRef
from coset.batches.runners.connect import Connect
from coset.batches.runners.spark_server import SparkServer
from coset.sources.s3 import storage_options
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import PartitionerRef, Settings
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from partitioning.model.plan import Plan
from partitioning.model.schemes import Scheme
from partitioning.model.verdict import Judged
from partitioning.values import Value
from tests.examples import examples, few
from tests.landed import land_file
from tests.random_pipelines import (
    COLUMNS,
    Declared,
    Row,
    declarations,
    expected,
    in_order,
    moves,
    pipeline_of,
    place,
    rows,
)
from tests.running import check_coverage, run_groups


class Round(Value, frozen=True):
    """What arrives before a batch, under which partition counts, and how the batch is planned."""

    counts: tuple[int, ...]
    arriving: tuple[int, ...]
    seed: int
    scheme: str | None
    dealt: int | None
    groups: int


def rounds(chance: random.Random) -> Iterator[Round]:
    """One to three batches."""
    for _ in range(chance.randint(1, 3)):
        schemes = (None, "cogroup", f"tasks({chance.randint(1, 7)})", f"elastic({chance.randint(1, 3)})")
        yield Round(
            tuple(chance.randint(1, 6) for _ in range(3)),
            tuple(chance.choice((0, 3, 40)) for _ in range(3)),
            chance.randrange(1000),
            chance.choice(schemes),
            chance.choice((None, None, None, chance.randint(1, 4))),
            chance.randint(1, 3),
        )


class Topics:
    """What producers sent: by stream and partition, with the partition counts of their time."""

    def __init__(self, store: Store, streams: Sequence[Declared]) -> None:
        self.source = f"{store.root}/topics"
        self._streams = streams
        self._logs: dict[tuple[str, int], list[Row]] = {}
        self._sent = 0

    def send(self, counts: Sequence[int], arriving: Sequence[int], seed: int) -> None:
        for number, (declared, count, many) in enumerate(zip(self._streams, counts, arriving, strict=False)):
            new: dict[int, list[Row]] = {partition: [] for partition in range(count)}
            # A stream without any file is refused, and one partition has to be there.
            for row in rows(seed + number, many) or rows(seed + number, 1) * (not self._has(f"s{number}")):
                new[place(declared, row[0], self._sent, count)].append(row)
                self._sent += 1
            for partition, sent in new.items():
                self._land(f"s{number}", partition, sent)

    def _has(self, stream: str) -> bool:
        return any(name == stream for name, _ in self._logs)

    def _land(self, stream: str, partition: int, sent: list[Row]) -> None:
        log = self._logs.setdefault((stream, partition), [])
        if sent:
            table = pa.Table.from_arrays(
                [pa.array(column, field.type) for field, column in zip(COLUMNS, zip(*sent, strict=True), strict=True)],
                schema=COLUMNS,
            )
            land_file(table, stream, self.source, partition, len(log))
            log.extend(sent)

    def read(self, plan: Plan) -> dict[str, list[Row]]:
        """The records that a batch reads."""
        return {
            stream.name: [
                row
                for planned in stream.partitions
                for row in self._logs.get((stream.name, planned.partition), [])[planned.start : planned.end]
            ]
            for stream in plan.streams
        }


def settings_of(pipeline: Pipeline, round_: Round) -> Settings:
    dealt = None if round_.dealt is None else PartitionerRef(EVEN, {"tasks": round_.dealt})
    scheme = None if round_.scheme is None else Scheme.parse(round_.scheme)
    # Only steps that need equal keys together have cosets to deal.
    keyed = [step.name for step in pipeline.steps if step.keyed]
    return Settings(scheme=scheme, partitioners={keyed[0]: dealt} if dealt and keyed else {}, groups=round_.groups)


PASSED = Judged(0, 0, 0, 0, 0, 0)
EVEN = "partitioning.planning.partitioners.partitioners:Even"


@settings(max_examples=examples(10), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(seed=st.integers(0, 2**40))
def test_each_batch_gives_what_duckdb_makes_of_its_records(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    check_batches(random.Random(seed), store_at(str(tmp_path_factory.mktemp("random") / "store")), run_groups)


@pytest.mark.parametrize("seed", few([40, 187, 330]))
def test_a_sample_runs_on_spark(seed: int, spark_server: SparkServer, store: Store) -> None:
    with Connect(spark_server.address, token=spark_server.token, master="nowhere") as runner:

        def run(ref: BatchRef) -> None:
            for group in ref.load()[1].groups:
                runner.group(ref, group.group)

        assert check_batches(random.Random(seed), store, run) > 1


def note(what: str) -> None:
    """Count it among what the examples tried."""
    if currently_in_test_context():
        event(what)


def check_batches(chance: random.Random, store: Store, run: Callable[[BatchRef], None]) -> int:
    """Run the batches of a random history, and compare each; how many there were."""
    streams, steps_made, history = declarations(chance), moves(chance), list(rounds(chance))
    topics, kept, batches = Topics(store, streams), dict[str, pa.Table](), 0
    counts = history[0].counts
    for round_ in history:
        # Kafka can only add partitions to a topic.
        counts = tuple(map(max, counts, round_.counts))
        topics.send(counts, round_.arriving, round_.seed)
        pipeline = pipeline_of(topics.source, streams, counts, steps_made)
        try:
            ref, _ = steps.plan(pipeline, store.root, settings_of(pipeline, round_))
        except Refused as refused:
            note(f"refused: {refused.findings[0].what[:60]}")
            return batches
        if ref is not None:
            ledger, plan = ref.load()
            run(ref)
            check_coverage(audit(ledger, plan, 0).coverage)
            publication.decide(Attempt(ledger, plan, 0), PASSED)
            publication.publish(ledger, plan)
            note(f"waves: {len(plan.waves)}, exchanges: {min(len(plan.exchanges), 3)}")
            note(f"levels of unifiers: {sum(stage.unifies for stage in plan.stages)}")
            for table, wanted in expected(pipeline, topics.read(plan), kept):
                assert newest(store, table, plan) == wanted, table
            batches += 1
    return batches


def newest(store: Store, table: str, plan: Plan) -> list[tuple[object, ...]]:
    """The rows that a batch published."""
    location = f"{store.root}/tables/{table}"
    if not DeltaTable.is_deltatable(location, storage_options=storage_options()):
        return []
    there = DeltaTable(location, storage_options=storage_options())
    files = [uri for uri in there.file_uris() if f"/plan-{plan.batch}/" in uri]
    names = [column.name for write in plan.writes() if write.declared.table == table for column in write.columns]
    return in_order(pa.concat_tables([_of_file(store, uri, names) for uri in files])) if files else []


def _of_file(store: Store, uri: str, names: Sequence[str]) -> pa.Table:

    data = store.get(uri.removeprefix(f"{store.root}/"))
    assert data is not None
    return pq.read_table(io.BytesIO(data), columns=list(names))
