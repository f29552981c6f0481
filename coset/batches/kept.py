"""What steps keep from batch to batch, as a published batch left it: to look at, and to read as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import duckdb
import pyarrow as pa

from coset.batches.backfills.swap.swaps import gone_on_from
from coset.sources.copies import Copies
from coset.sources.parts_reader import PartsReader
from partitioning.commands import Replan, Status
from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger
from partitioning.documents.state_files import StateFiles
from partitioning.errors import CosetError, Finding, Refused, about
from partitioning.hashes import hash_of, read_key
from partitioning.kinds import Kind
from partitioning.model.artefact import Artefact
from partitioning.model.graph import StateSpec, quote
from partitioning.model.leaving import left_in, partitions_of
from partitioning.model.order import OrderedParts
from partitioning.model.placement import OPAQUE
from partitioning.model.plan import Plan, StateInput
from partitioning.model.verdict import Verdict
from partitioning.planning.stages.step_states import States, StateSnapshot
from partitioning.values import Value
from spark_jobs.engine.relations import RESULT_ROWS
from spark_jobs.engine.states import all_kept
from spark_jobs.sql.database import connect


class KeptState(Value, frozen=True):
    """What a step kept, up to a published batch. `runs` has the files of each run, newest first."""

    batch: int
    keeps: StateSpec
    read: StateInput
    runs: tuple[tuple[Artefact, ...], ...]

    @property
    def step(self) -> str:
        return self.read.step

    @property
    def bytes(self) -> tuple[int, ...]:
        """Those of the rows of each run."""
        return tuple(sum(part.end - part.start for file in files for part in file.parts) for files in self.runs)


def kept_states(ledger: Ledger, batch: int | None = None) -> tuple[KeptState, ...]:
    """What all steps kept, up to a published batch or to the last one.

    Raises Refused if that batch is not published, or if its verdict, or one that it goes on from, is gone.
    """
    plan, verdict = _published(ledger, batch)
    files = StateFiles(ledger, plan)
    return tuple(
        KeptState(plan.batch, step.state, read, tuple(files.of(read, run) for run in read.runs))
        for step, read in States(plan, StateSnapshot.by(verdict, digest(verdict))).left()
        if step.state
    )


def kept_state(ledger: Ledger, step: str, batch: int | None = None) -> KeptState:
    """What one step kept. Raises Refused as `kept_states`, and if there is no such step."""
    states = kept_states(ledger, batch)
    found = next((state for state in states if state.step == step), None)
    if found is None:
        plan, _ = _published(ledger, batch)
        listed = ", ".join(state.step for state in states)
        then = f"name one of {listed}" if listed else "no step of it keeps anything"
        raise Refused(
            Finding(
                Kind.STATE_NONE,
                f"no step {step!r} kept anything",
                f"batch {plan.batch} of {ledger.pipeline}",
                then,
                about(step=step),
            )
        )
    return found


def exchanged_since(ledger: Ledger, plan: Plan) -> Iterator[Finding]:
    """What a backfill has exchanged, since it was planned, of what a batch goes on from."""
    reads = [read for stage in plan.stages for read in stage.inputs if isinstance(read, StateInput)]
    if not reads or ledger.original is not None:
        return
    source = gone_on_from(ledger.store, ledger.pipeline, reads[0].batch)
    published, verdict = source.plan(reads[0].batch), source.verdict(reads[0].batch)
    assert published is not None
    assert verdict is not None
    kept = {read.name: read for _, read in States(published, StateSnapshot.by(verdict, digest(verdict))).left()}
    for read in reads:
        if read.name not in kept or _runs(read) != _runs(kept[read.name]):
            what = f"what {read.step} kept up to batch {read.batch} was exchanged by a backfill since"
            yield Finding(
                Kind.STATE_EXCHANGED,
                what,
                f"batch {plan.batch} of {plan.pipeline}",
                Replan(plan.pipeline),
                about(step=read.step, batch=read.batch),
            )


def _runs(read: StateInput) -> list[tuple[int, str]]:
    return [(run.batch, run.verdict) for run in read.runs]


@contextmanager
def rows_kept(
    ledger: Ledger, state: KeptState, key: str | None = None, limit: int | None = None
) -> Iterator[pa.RecordBatchReader]:
    """The rows that a step keeps, in the order of its columns; those of a key only, as it is written in audit tables.

    Raises Refused if a file is gone or changed, or if `key` is none of its format.
    """
    read, placement = state.read, state.read.placement
    files = [(file.task, file) for run in reversed(state.runs) for file in run]
    numbers = range(placement.partitions)
    if key is not None and placement.key and placement.hash != OPAQUE:
        home = hash_of(placement.hash, read.name)(_key(state, key), placement.key_format) % placement.partitions
        numbers = range(home, home + 1)
    parts = OrderedParts(read, partitions_of(left_in(files), read.name, numbers))
    reader = PartsReader(parts, ledger.store.root, ledger.pipeline, Copies.of_environment())
    names = [column.name for column in read.columns]
    with connect() as connection:
        _create(connection, reader, names)
        sql, values = f"SELECT * FROM ({all_kept(state.keeps, read, 'known')})", list[object]()
        if key is not None:
            sql, values = f"{sql} WHERE {quote(placement.key)} = ?", [_key(state, key)]
        most = "" if limit is None else f" LIMIT {limit}"
        yield connection.execute(f"{sql} ORDER BY ALL{most}", values).to_arrow_reader(RESULT_ROWS)


def _create(connection: duckdb.DuckDBPyConnection, reader: PartsReader, names: Sequence[str]) -> None:
    """The table `known`, of all that is read. Raises Refused as the reader, which DuckDB would only quote."""
    refused = list[CosetError]()

    def records() -> Iterator[pa.RecordBatch]:
        try:
            for batch in reader.batches(names):
                yield batch.records.select(names)
        except CosetError as error:
            refused.append(error)
            raise

    connection.register("read", pa.RecordBatchReader.from_batches(reader.schema(names), records()))
    try:
        connection.execute("CREATE TEMP TABLE known AS SELECT * FROM read")
    except duckdb.Error:
        if refused:
            raise refused[0] from None
        raise


def _published(ledger: Ledger, batch: int | None) -> tuple[Plan, Verdict]:
    plan = ledger.standing().published if batch is None else ledger.plan(batch)
    if plan is not None and ledger.original is None:
        ledger = gone_on_from(ledger.store, ledger.pipeline, plan.batch)
        plan = ledger.plan(plan.batch)
    verdict = ledger.published(plan.batch) if plan else None
    if plan is None or verdict is None:
        what = "no batch is published yet" if batch is None else f"batch {batch} is not published"
        raise Refused(
            Finding(
                Kind.BATCH_UNPUBLISHED,
                what,
                ledger.uri(f"{ledger.pipeline}/verdicts/"),
                Status(ledger.pipeline),
                about(batch=batch),
            )
        )
    return plan, verdict


def _key(state: KeptState, text: str) -> object:
    placement = state.read.placement
    if not placement.key:
        raise Refused(
            Finding(
                Kind.STATE_NONE, f"{state.step} keeps nothing by key", "--key", "leave it out", about(step=state.step)
            )
        )
    try:
        return read_key(text, placement.key_format)
    except ValueError as error:
        what = f"{text!r} is no key of the format {placement.key_format}: {error}"
        raise Refused(
            Finding(
                Kind.KEY,
                what,
                "--key",
                "write it as the audit tables do",
                about(text=text, key_format=placement.key_format),
            )
        ) from error
