"""The state of steps after a published batch: what there is, and its rows as a table."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

import duckdb
import pyarrow as pa
from msgspec import UNSET

from coset.batches.attempt import Attempt
from coset.batches.backfills.swaps import state_ledger
from coset.sources.copies import Copies
from coset.sources.parts_reader import PartsReader
from partitioning.commands import Replan, Status
from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger
from partitioning.documents.receipts import StateFiles, left_as
from partitioning.errors import CosetError, Finding, Refused
from partitioning.hashes import hash_of, read_key
from partitioning.kinds import Kind
from partitioning.model.graph import StateSpec, quote, state_of
from partitioning.model.leaving import partitions_of
from partitioning.model.order import OrderedParts
from partitioning.model.placement import OPAQUE
from partitioning.model.plan import Plan
from partitioning.model.private import is_private, masked
from partitioning.model.receipt import Artefact, Role, latest_times
from partitioning.model.stage_inputs import StateInput, StateRun
from partitioning.model.verdict import Decision, GivenUp, Verdict
from partitioning.model.watermarks import TimePassed
from partitioning.planning.stages.draft import StateSnapshot
from partitioning.planning.stages.step_states import States, unexpired
from partitioning.values import Value, replace
from spark_jobs.engine.older_rows import Versions
from spark_jobs.engine.relations import RESULT_ROWS
from spark_jobs.engine.states import all_kept
from spark_jobs.engine.task_database import connect


class KeptState(Value, frozen=True):
    """The state of a step after a published batch. `runs` has the files of each run, newest first."""

    batch: int
    keeps: StateSpec
    read: StateInput
    day_end: int | None
    runs: tuple[tuple[Artefact, ...], ...]

    @property
    def step(self) -> str:
        return self.read.step

    @property
    def bytes(self) -> tuple[int, ...]:
        """The size of the rows of each run."""
        return tuple(sum(part.end - part.start for file in files for part in file.parts) for files in self.runs)


def kept_states(ledger: Ledger, batch: int | None = None) -> tuple[KeptState, ...]:
    """The state of all steps after a published batch, or after the last one.

    Raises Refused if the batch is not published, or if its verdict or one that it continues from is gone.
    """
    return _left(ledger, *_published(ledger, batch))


def states_of(attempt: Attempt) -> tuple[KeptState, ...]:
    """The state of all steps as an attempt leaves it, once it is published. Raises as `kept_states`."""
    plan, kept = attempt.plan, tuple(file for file in attempt.artefacts if file.role is Role.STATE)
    times = latest_times(plan, attempt.tasks) or UNSET
    undecided = Verdict(digest(plan), plan.batch, Decision.PUBLISH, attempt.number, GivenUp(""), kept, times=times)
    return _left(attempt.ledger, plan, undecided)


def _left(ledger: Ledger, plan: Plan, verdict: Verdict) -> tuple[KeptState, ...]:
    files = StateFiles(ledger, plan, verdict)
    return tuple(
        KeptState(plan.batch, _after(step.state), read, plan.day_end, tuple(files.of(read, run) for run in read.runs))
        for step, read in States(plan, StateSnapshot.by(verdict, digest(verdict)), day_end=plan.day_end).left()
        if step.state
    )


def _after(keeps: StateSpec) -> StateSpec:
    """What a step keeps, as the batch after this one reads it."""
    passed = keeps.watermark
    return replace(keeps, watermark=TimePassed(passed.now, passed.now)) if passed else keeps


def kept_state(ledger: Ledger, step: str, batch: int | None = None) -> KeptState:
    """The state of one step. Raises Refused as `kept_states`, and if there is no such step."""
    states = kept_states(ledger, batch)
    found = next((state for state in states if state.step == step), None)
    if found is None:
        plan, _ = _published(ledger, batch)
        listed = ", ".join(state.step for state in states)
        then = f"name one of {listed}" if listed else "no step of the pipeline has state"
        what = f"no step {step!r} has state"
        raise Refused.of(Kind.STATE_NONE, what, f"batch {plan.batch} of {ledger.pipeline}", then, step=step)
    return found


def replaced_state(ledger: Ledger, plan: Plan) -> Iterator[Finding]:
    """Findings on state of an open batch's plan that a backfill has replaced since the plan was made."""
    if not plan.states or ledger.original is not None:
        return
    source = state_ledger(ledger.store, ledger.pipeline, plan.states[0].batch)
    published, verdict = source.plan(plan.states[0].batch), source.verdict(plan.states[0].batch)
    assert published is not None
    assert verdict is not None
    snapshot = StateSnapshot.by(verdict, digest(verdict))
    kept = {read.name: read for _, read in States(published, snapshot, day_end=plan.day_end).left()}
    # By this plan more of it may be over than by the one before.
    keeps = {step.name: step.state for step in plan.steps if step.state}
    for read in plan.states:
        left = kept.get(state_of(read.was) if read.was else read.name)
        if left is None or _runs(read.runs) != _runs(unexpired(left.runs, keeps[read.step], plan.day_end)):
            what = f"a backfill has replaced the state of {read.step} after batch {read.batch} since the plan was made"
            where = f"batch {plan.batch} of {plan.pipeline}"
            yield Finding.of(Kind.STATE_EXCHANGED, what, where, Replan(plan.pipeline), step=read.step, batch=read.batch)


def _runs(runs: Iterable[StateRun]) -> list[tuple[int, str]]:
    return [(run.batch, run.verdict) for run in runs]


@contextmanager
def rows_kept(
    ledger: Ledger, state: KeptState, key: str | None = None, limit: int | None = None, private: Collection[str] = ()
) -> Iterator[pa.RecordBatchReader]:
    """The rows of a step's state, ordered by its columns. `key` selects a key, written as in audit tables.
    Values of `private` columns are masked.

    Raises Refused if a file is gone or changed, or if `key` does not fit the format.
    """
    read, placement = state.read, state.read.placement
    numbers = range(placement.partitions)
    if key is not None and placement.key and placement.hash != OPAQUE:
        home = hash_of(placement.hash, read.name)(_key(state, key), placement.key_format) % placement.partitions
        numbers = range(home, home + 1)
    parts = OrderedParts(read, partitions_of(left_as(read, state.runs), read.name, numbers))
    reader = PartsReader(
        parts, ledger.store.root, ledger.pipeline, Copies.of_environment(), Versions(read, ledger.pipeline)
    )
    names = [column.name for column in read.columns]
    with connect() as connection:
        _create(connection, reader, names)
        sql, values = f"SELECT * FROM ({all_kept(state.keeps, read, 'known', state.day_end)})", list[object]()
        if key is not None:
            sql, values = f"{sql} WHERE {quote(placement.key)} = ?", [_key(state, key)]
        most = "" if limit is None else f" LIMIT {limit}"
        sql = f"{sql} ORDER BY ALL{most}"
        if private:
            columns = ((quote(column.name), is_private(column.name, private)) for column in state.keeps.columns)
            shown = ", ".join(masked(name) if hidden else name for name, hidden in columns)
            sql = f"SELECT {shown} FROM ({sql})"
        yield connection.sql(sql, params=values).to_arrow_reader(RESULT_ROWS)


def _create(connection: duckdb.DuckDBPyConnection, reader: PartsReader, names: Sequence[str]) -> None:
    """Fill the table `known`. Raises the reader's own errors, of which DuckDB would pass on only the text."""
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
        ledger = state_ledger(ledger.store, ledger.pipeline, plan.batch)
        plan = ledger.plan(plan.batch)
    verdict = ledger.published(plan.batch) if plan else None
    if plan is None or verdict is None:
        what = "no batch is published yet" if batch is None else f"batch {batch} is not published"
        then = Status(ledger.pipeline)
        raise Refused.of(Kind.BATCH_UNPUBLISHED, what, ledger.uri(f"{ledger.pipeline}/verdicts/"), then, batch=batch)
    return plan, verdict


def _key(state: KeptState, text: str) -> object:
    placement = state.read.placement
    if not placement.key:
        raise Refused.of(Kind.STATE_NONE, f"{state.step} has no key", "--key", "leave it out", step=state.step)
    try:
        return read_key(text, placement.key_format)
    except ValueError as error:
        what = f"{text!r} is not a key of the format {placement.key_format}: {error}"
        then = "write it as the audit tables do"
        raise Refused.of(Kind.KEY, what, "--key", then, text=text, key_format=placement.key_format) from error
