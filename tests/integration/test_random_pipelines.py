"""Random pipelines, run batch after batch under random plans, against the same SQL over all records of each batch."""

from __future__ import annotations

import io
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, currently_in_test_context, event, given, settings
from hypothesis import strategies as st

from coset.batches import publication, steps
from coset.batches.ref import BatchRef
from coset.batches.result_rows import set_aside_in
from coset.batches.runners.connect import Connect
from coset.batches.runners.local import Local
from coset.batches.runners.spark_server import SparkServer
from coset.sources.s3 import storage_options
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, PartitionerRef, Settings
from partitioning.documents.document import canonical
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from partitioning.model.plan import Plan
from partitioning.model.schemes import Scheme
from partitioning.values import Value
from spark_jobs.tables.table_schema import RESIDUE
from tests.examples import examples, share
from tests.landed import land_file
from tests.random_pipelines import (
    LAST,
    Declared,
    Made,
    Oracle,
    Row,
    declarations,
    in_order,
    landed_of,
    last_rows,
    moves,
    pipeline_of,
    place,
    rows,
)
from tests.running import publish_unjudged, run_groups


class Round(Value, frozen=True):
    """What arrives before a batch, under which partition counts, and how the batch is planned."""

    counts: tuple[int, ...]
    arriving: tuple[int, ...]
    seed: int
    scheme: str | None
    dealt: int | None
    groups: int
    fate: str


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
            chance.choice(("", "", "", "killed", "run again", "given up")),
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
            # One stream is behind another. None is later than it may be.
            clock = (max(0, (self._sent + more) // 3 - 10 * number) for more in itertools.count())
            # A stream without any file is refused, and one partition has to be there.
            new = rows(seed + number, many or int(not self._has(f"s{number}")), clock, unusable=declared.sets_aside)
            self._place(number, declared, count, new)

    def end(self, counts: Sequence[int]) -> None:
        """Records long after all others come in each partition."""
        for number, (declared, count) in enumerate(zip(self._streams, counts, strict=False)):
            self._place(number, declared, count, last_rows(declared, count))

    def _place(self, number: int, declared: Declared, count: int, rows: Sequence[Row]) -> None:
        new: dict[int, list[Row]] = {partition: [] for partition in range(count)}
        for row in rows:
            new[place(declared, row, self._sent, count)].append(row)
            self._sent += 1
        for partition, sent in new.items():
            self._land(declared, f"s{number}", partition, sent)

    def _has(self, stream: str) -> bool:
        return any(name == stream for name, _ in self._logs)

    def _land(self, declared: Declared, stream: str, partition: int, sent: list[Row]) -> None:
        log = self._logs.setdefault((stream, partition), [])
        if sent:
            land_file(landed_of(declared, sent), stream, self.source, partition, len(log))
            log.extend(sent)

    def read(self, plan: Plan) -> dict[str, list[Row]]:
        """The records that a batch reads and can use."""
        found: dict[str, list[Row]] = {stream.name: [] for stream in plan.streams}
        for (stream, _, _), row in self._planned(plan):
            if row[3] is not None:
                found[stream].append(row)
        return found

    def unusable(self, plan: Plan) -> list[tuple[str, int, int]]:
        """Where the records lie that a batch reads and cannot use: stream, partition and offset."""
        return sorted(at for at, row in self._planned(plan) if row[3] is None)

    def _planned(self, plan: Plan) -> Iterator[tuple[tuple[str, int, int], Row]]:
        for stream in plan.streams:
            for planned in stream.partitions:
                log = self._logs.get((stream.name, planned.partition), [])
                for offset in range(planned.start, planned.end):
                    yield (stream.name, planned.partition, offset), log[offset]


def settings_of(pipeline: Pipeline, round_: Round) -> Settings:
    dealt = None if round_.dealt is None else PartitionerRef(EVEN, {"tasks": round_.dealt})
    scheme = None if round_.scheme is None else Scheme.parse(round_.scheme)
    # Only steps that need equal keys together have cosets to deal.
    keyed = [step.name for step in pipeline.steps if step.keyed]
    return Settings(scheme=scheme, partitioners={keyed[0]: dealt} if dealt and keyed else {}, groups=round_.groups)


EVEN = "partitioning.planning.partitioners.partitioners:Even"


@settings(max_examples=examples(10), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(seed=st.integers(0, 2**40))
def test_each_batch_gives_what_duckdb_makes_of_its_records(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    check_batches(random.Random(seed), store_at(str(tmp_path_factory.mktemp("random") / "store")), run_groups)


# In both, streams meet whose keys are JSON of other fields; batches are given up and killed.
@pytest.mark.long
@pytest.mark.parametrize("seed", share([105, 41]))
def test_streams_whose_keys_are_in_json_are_not_refused(seed: int, store: Store) -> None:
    assert check_batches(random.Random(seed), store, run_groups) > 1


@pytest.mark.long
@pytest.mark.parametrize("seed", share([204, 28]))
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


class NotPlanned(Exception):
    """Planning refuses a batch, as a user would be told."""


def next_batch(made: Made, store: Store, settings: Settings = DEFAULTS) -> BatchRef | None:
    """Raises NotPlanned if there can be none."""
    try:
        return steps.plan(made.pipeline, store.root, settings)[0]
    except Refused as refused:
        note(f"refused: {refused.findings[0].what[:60]}")
        raise NotPlanned from refused


def check_batches(chance: random.Random, store: Store, run: Callable[[BatchRef], None]) -> int:
    """Run the batches of a random history, and compare each; how many there were."""
    batches = 0
    with suppress(NotPlanned):
        for batches in _batches(chance, store, run):
            assert batches < 15
    return batches


def _batches(chance: random.Random, store: Store, run: Callable[[BatchRef], None]) -> Iterator[int]:
    """The number of batches, after each."""
    streams, steps_made, history = declarations(chance), moves(chance), list(rounds(chance))
    topics, oracle, numbers = Topics(store, streams), Oracle(), itertools.count(1)
    counts = history[0].counts
    for round_ in history:
        # Kafka can only add partitions to a topic.
        counts = tuple(map(max, counts, round_.counts))
        topics.send(counts, round_.arriving, round_.seed)
        made = pipeline_of(topics.source, streams, counts, steps_made)
        planned = next_batch(made, store, settings_of(made.pipeline, round_))
        if planned is not None and round_.fate == "given up":
            run(planned)
            publication.abandon(Ledger(store, "p"), "by chance")
            planned = next_batch(made, store)
        if planned is not None:
            check_batch(made, topics, oracle, planned, run, round_.fate)
            yield next(numbers)
    if made.in_time:
        topics.end(counts)
        while (planned := next_batch(made, store, settings_of(made.pipeline, round_))) is not None:
            check_batch(made, topics, oracle, planned, run, "")
            yield next(numbers)
        for table, wanted in oracle.in_time(made):
            found = published(store, table, made.pipeline)
            note(f"rows in time: {min(len(wanted), 10) // 5 * 5}")
            assert found == wanted, (table, [row for row in wanted if row not in found])


def check_batch(
    made: Made, topics: Topics, oracle: Oracle, ref: BatchRef, run: Callable[[BatchRef], None], fate: str
) -> None:
    """Run a batch and publish it; its rows are as they have to be."""
    ledger, plan = ref.load()
    if fate == "killed":
        # Somebody ran its first group, and was seen no more.
        with Local(processes=1) as runner:
            runner.group(ref, plan.groups[0].group)
    if fate == "run again":
        run(ref)
        ledger.close_attempt(plan.batch, 0, canonical({"findings": []}))
    run(ref)
    publish_unjudged(ledger, plan)
    note(f"waves: {len(plan.waves)}, exchanges: {min(len(plan.exchanges), 3)}")
    note(f"levels of unifiers: {sum(stage.unifies for stage in plan.stages)}")
    aside = [(each["stream"], each["partition"], each["offset"]) for each in set_aside_in(ledger, plan)]
    assert aside == topics.unusable(plan)
    note(f"set aside: {bool(aside)}")
    for table, wanted in oracle.batch(made, topics.read(plan)):
        assert newest(ledger.store, table, plan) == wanted, table


def published(store: Store, table: str, pipeline: Pipeline) -> list[tuple[object, ...]]:
    """The rows of all batches, but for those of the end."""
    location = f"{store.root}/tables/{table}"
    if not DeltaTable.is_deltatable(location, storage_options=storage_options()):
        return []
    rows = DeltaTable(location, storage_options=storage_options()).to_pyarrow_table()
    # By which an upserted table is partitioned.
    rows = rows.drop_columns([name for name in rows.column_names if name == RESIDUE])
    rows = rows.set_column(rows.column_names.index("t"), "t", rows["t"].cast(pa.timestamp("us")))
    return in_order(rows.filter(pc.field("t") < LAST))


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
