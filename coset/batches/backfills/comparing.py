"""Comparing: makes one document of how a backfill's rows and state differ from those of its batches, for approval."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence, Set
from contextlib import contextmanager

import pyarrow as pa
from msgspec import UNSET
from msgspec.structs import astuple

from coset.batches.auditing import audit_tables
from coset.batches.backfills.effects import replaced
from coset.batches.backfills.repaired import added_digest, input_changes
from coset.batches.backfills.swaps import in_force, state_ledger
from coset.batches.compared_rows import compared, rows_of
from coset.batches.kept import KeptState, kept_states, rows_kept
from coset.batches.tables.first_rows import all_rows
from coset.batches.tables.held import uris_of
from partitioning.commands import Run
from partitioning.diff.table_changes import results
from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.errors import CosetError, Finding, Refused
from partitioning.kinds import Kind
from partitioning.model.backfill import Backfill, Comparison, InputChange, StateComparison, TableComparison
from partitioning.model.plan import Plan
from partitioning.model.receipt import MODULUS
from partitioning.model.stage_inputs import StreamInput
from partitioning.model.verdict import Verdict
from partitioning.planning.beginnings import beginnings
from partitioning.planning.kept_columns import kept_before
from spark_jobs.sql.column_check import PARTITION
from spark_jobs.tables.table_schema import table_schema


def compare(store: Store, backfill: Backfill) -> Comparison:
    """Compare all batches of a backfill with what is published of them now.

    Raises Refused if a batch has not run yet or a file is gone, and CosetError if a batch read other records than
    before.
    """
    now, plans, tables = Ledger(store, backfill.name), list[tuple[int, str, str]](), list[TableComparison]()
    changed_input = list[InputChange]()
    layers, changes, functions = in_force(store, backfill.pipeline), dict[str, None](), dict[str, None]()
    code, engines = dict[str, tuple[str, str]](), dict[tuple[str, str], None]()
    for batch in backfill.batches:
        before = layers.top(batch)
        old, new = _decided(before, batch), _decided(now, batch)
        repairs = list(input_changes(old[0], new[0]))
        _check_read_alike(before, now, old, new, repairs)
        changed_input.extend(repairs)
        plans.append((batch, digest(old[0]), digest(new[0])))
        tables.extend(_tables(before, now, old, new))
        difference = results(old[0], new[0])
        changes |= {f"{table}: {reason}": None for table, reasons in difference.changed.items() for reason in reasons}
        changes |= {f"{table} is new": None for table in difference.added}
        changes |= {f"{table} is no longer written": None for table in difference.removed}
        functions |= dict.fromkeys(difference.functions)
        code |= difference.code
        engines |= {difference.engines: None} if difference.engines else {}
    last = backfill.batches[-1]
    states = tuple(_states(state_ledger(store, backfill.pipeline, last), now, last))
    tables.extend(_changed_by_others(store, backfill, layers.top(last), {each.step for each in states if each.stays}))
    return Comparison(
        backfill.pipeline,
        backfill.number,
        tuple(plans),
        tuple(tables),
        states,
        tuple(changes),
        tuple(functions),
        tuple(changed_input) or UNSET,
        code or UNSET,
        tuple(engines) or UNSET,
    )


def _decided(ledger: Ledger, batch: int) -> tuple[Plan, Verdict]:
    plan, verdict = ledger.plan(batch), ledger.verdict(batch)
    if plan is None or plan.pipeline != ledger.pipeline or verdict is None:
        then = (Run(ledger.pipeline), ": it goes on where it stopped")
        what = f"batch {batch} has not run yet"
        raise Refused.of(Kind.BACKFILL_UNREADY, what, ledger.uri(ledger.key("verdicts", batch)), then, batch=batch)
    return plan, verdict


def _check_read_alike(
    before: Ledger, now: Ledger, old: tuple[Plan, Verdict], new: tuple[Plan, Verdict], repairs: Sequence[InputChange]
) -> None:
    """Raise CosetError with each stream partition of which the backfill read other records than the first run. Records
    that repairs added are expected."""
    were, are = _read(before, *old), _read(now, *new)
    added = {repair.range.partition("@")[0]: added_digest(repair) for repair in repairs}
    findings = [
        Finding.of(
            Kind.BACKFILL_INPUT,
            f"the backfill read other records of {stream}-{partition} than the first run",
            f"batch {old[0].batch} of {now.pipeline}",
            "find out who changed the landed files; the backfill cannot be put in place",
            stream=stream,
            partition=partition,
        )
        for (stream, partition), digests in were.items()
        if are.get((stream, partition))
        != {(read + added.get(f"{stream}-{partition}", 0)) % MODULUS for read in digests}
    ]
    if findings:
        raise CosetError(*findings)


def _read(ledger: Ledger, plan: Plan, verdict: Verdict) -> dict[tuple[str, int], set[int]]:
    """The digests of what stages read of each stream partition."""
    streams = {read.name for stage in plan.stages for read in stage.inputs if isinstance(read, StreamInput)}
    digests = dict[tuple[str, int], set[int]]()
    for row in audit_tables.load_some(ledger, plan, verdict.attempt, "coverage")["coverage"].itertuples():
        if row.input in streams:
            digests.setdefault((row.input, row.partition), set()).add(int(row.digest_found, 16) % MODULUS)
    return digests


def _tables(
    before: Ledger, now: Ledger, old: tuple[Plan, Verdict], new: tuple[Plan, Verdict]
) -> Iterator[TableComparison]:
    """Compare the tables that a batch appends to or replaces. Upserted tables are compared by their state.

    A replaced table whose rows of this batch are gone is left out: nobody sees them.
    """
    writes = {write.declared.table: write for plan in (old[0], new[0]) for write in plan.writes()}
    were = {write.declared.table: write for write in old[0].writes()}
    for table, write in sorted(writes.items()):
        if write.declared.mode.by_key:
            continue
        was, batch = were.get(table, write), old[0].batch
        uris = uris_of(before, batch, was.declared, old[1].rows_of(table))
        if uris is not None:
            are = [now.uri(file.path) for file in new[1].rows_of(table)]
            who_made = {"_task"} - {column.name for column in write.columns}
            rows_before, rows_now = (
                _without(rows_of(some, table_schema(each)), who_made) for some, each in ((uris, was), (are, write))
            )
            found = compared(rows_before, rows_now, write.declared.key, old[0].private | new[0].private)
            yield TableComparison(*astuple(found), batch=batch, table=table)


def _changed_by_others(store: Store, backfill: Backfill, before: Ledger, kept: Set[str]) -> Iterator[TableComparison]:
    """The upserted tables that have other rows than the steps which keep these, although a backfill up to the newest
    batch keeps the same: others changed them, and that was accepted."""
    published, last = Ledger(store, backfill.pipeline).standing().published, backfill.batches[-1]
    were = before.plan(last)
    if were is None or published is None or published.batch != last:
        return
    there = {write.declared.table for write in were.writes() if write.declared.mode.by_key}
    given = dict(replaced(store, backfill.pipeline, backfill.number, backfill.batches))
    for table, rows in sorted(given.items()):
        write = rows.write
        if table not in there or write.declared.step not in kept:
            continue
        columns = {column.name for column in write.columns}
        uris = [Ledger(store, backfill.name).uri(file.path) for file in rows.files]
        with all_rows(store, table) as old:
            new = rows_of(uris, table_schema(write))
            was, now = (_without(each, {*each.schema.names} - columns) for each in (old, new))
            found = compared(was, now, write.declared.key, were.private)
        if not found.same:
            yield TableComparison(*astuple(found), batch=last, table=table, of_others=True)


def _states(before: Ledger, now: Ledger, batch: int) -> Iterator[StateComparison]:
    """Compare the state of steps after a batch with their state before, or with that of the steps that they replace."""
    were = {state.step: state for state in kept_states(before, batch)}
    old_plan, new_plan = before.plan(batch), now.plan(batch)
    assert old_plan is not None
    assert new_plan is not None
    instead, writes = _replaced(old_plan, new_plan), [write.declared for write in new_plan.writes()]
    for state in kept_states(now, batch):
        was = were.get(instead.get(state.step, state.step))
        with rows_kept(now, state) as new, _rows_before(before, was, new.schema) as old:
            # Versions before 0.3.0 did not keep where a record lies.
            places = {PARTITION, *(stream.declared.offset for stream in new_plan.streams)} - set(old.schema.names)
            found = compared(old, _without(new, places), state.read.placement.key, old_plan.private | new_plan.private)
        named = (write.table for write in writes if write.mode.by_key and write.step == state.step != write.table)
        kept_by, tables = was.step if was else None, tuple(sorted(named)) or UNSET
        yield StateComparison(*astuple(found), step=state.step, kept_by=kept_by, tables=tables)


def _without(rows: pa.RecordBatchReader, columns: Collection[str]) -> pa.RecordBatchReader:
    names = [name for name in rows.schema.names if name not in columns]
    schema = pa.schema([rows.schema.field(name) for name in names])
    return pa.RecordBatchReader.from_batches(schema, (batch.select(names) for batch in rows))


@contextmanager
def _rows_before(ledger: Ledger, was: KeptState | None, schema: pa.Schema) -> Iterator[pa.RecordBatchReader]:
    """The rows of the earlier state. A new step has none."""
    if was is None:
        yield pa.RecordBatchReader.from_batches(schema, ())
        return
    with rows_kept(ledger, was) as rows:
        yield rows


def _replaced(before: Plan, now: Plan) -> dict[str, str]:
    """The steps that keep something in place of others: under another name the same, or the rows of the same upserted
    table."""
    was, is_now = before.graph, now.graph
    names = {step.name for step in is_now.steps if step.state}
    gone = {step.name for step in was.steps if step.state} - names
    tables = {write.table: write.step for write in was.writes if write.mode.by_key and write.step in gone}
    new = names - {step.name for step in was.steps}
    found = {
        write.step: tables[write.table]
        for write in is_now.writes
        if write.mode.by_key and write.step in new and write.table in tables
    }
    renamed = beginnings(is_now, was, dict.fromkeys(write.table for write in is_now.writes))
    kept = {step.name for step in was.steps if step.state}
    called = {step.name: kept_before(step, kept) for step in is_now.steps if step.name not in kept}
    declared = {name: before for name, before in called.items() if before}
    return {each.step: each.renamed for each in renamed if each.renamed} | found | declared
