"""What reports are told while a batch goes on: when its parts were done, what waits, and what was published."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from coset.batches.pace import waits_for
from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger
from partitioning.documents.stores import store_at
from partitioning.model.backfill import pipeline_of
from partitioning.model.journal import JournalEntry, Part, as_time
from partitioning.model.plan import Plan
from partitioning.model.table_parts import Upkeep
from partitioning.model.verdict import Commit
from partitioning.planning.flow_times import FlowTimes
from spark_jobs.engine.occasions import now, occasion

if TYPE_CHECKING:
    from coset.batches.tables.logs import Logs
    from coset.reports.timeliness import ScheduledRun

_NONE_OPEN = {"open": None}
_WAITS = "it waits for a decision: the checks of its last two attempts failed in the same way"


def done(ledger: Ledger, planned: Plan, part: Part, began: int, attempt: int | None = None) -> JournalEntry:
    """Store that a part of a batch, which began then, is done now; when it was done first, if it was before."""
    return ledger.put_journal_entry(JournalEntry(digest(planned), planned.batch, part, occasion(began), attempt))


def parts(ledger: Ledger, planned: Plan, attempt: int, asked: Iterable[Part] = Part) -> tuple[JournalEntry, ...]:
    """When the parts of an attempt that are `asked` for were done, as far as that is known."""
    return tuple(_parts(ledger, planned, attempt, asked))


def opened(ledger: Ledger, planned: Plan, folder: Path | None = None) -> None:
    """Say in the overview that a batch is open, and why it waits if it does; on its page, if an attempt has failed."""
    from coset.reports.overview import put_overview  # noqa: PLC0415  Airflow parses the steps
    from coset.reports.site import Site  # noqa: PLC0415

    if pipeline_of(ledger.pipeline) is not None:
        return
    if not (attempt := ledger.attempt(planned.batch)):
        begun(ledger, planned)
        return
    failed = f"attempt {attempt - 1} failed; the next run makes another"
    why = _WAITS if waits_for(ledger, planned.batch) else failed
    put_overview(Site(folder, ledger.store), ledger.pipeline, _open(ledger, planned, why))


def begun(ledger: Ledger, planned: Plan) -> None:
    """Say in the overview that a batch was planned, of which no attempt can have failed."""
    from coset.reports.overview import note  # noqa: PLC0415

    if pipeline_of(ledger.pipeline) is None:
        note(ledger.store, ledger.pipeline, _open(ledger, planned))


def run_began(pipeline: str, root: str, run: ScheduledRun, *, up_to_date: bool) -> None:
    """Note when a run of the pipeline was to begin, and when the next is, beside its attempts."""
    from coset.reports.overview import note_run  # noqa: PLC0415

    note_run(store_at(root), pipeline, run, now() if up_to_date else None)


def closed(ledger: Ledger, folder: Path | None) -> None:
    """Say in the overview that no batch is open."""
    from coset.reports.overview import put_overview  # noqa: PLC0415
    from coset.reports.site import Site  # noqa: PLC0415

    put_overview(Site.shown(folder, ledger.store, ledger.pipeline), ledger.pipeline, _NONE_OPEN)


def published(
    ledger: Ledger, planned: Plan, commit: Commit, began: int, folder: Path | None, logs: Logs | None = None
) -> None:
    """Note what was published, and when; and say it in the Data Docs if there is a folder of them, with how many rows
    tables have then and up to when all are there. Tables are as in the `logs`, if the publication has read them."""
    from coset.reports import batch_index  # noqa: PLC0415
    from coset.reports.overview import note  # noqa: PLC0415
    from coset.reports.site import Site, of_parts  # noqa: PLC0415

    made = done(ledger, planned, Part.PUBLISH, began)
    verdict = ledger.verdict(planned.batch)
    if verdict is None:
        return
    if folder is None:
        note(ledger.store, ledger.pipeline, _NONE_OPEN)
        return
    more = {**of_parts(parts(ledger, planned, verdict.attempt)), "published": made.at.ended}
    if ledger.original is None:
        more["stands"] = _stands(ledger, planned, logs)
    batch_index.published(Site(folder, ledger.store), ledger.pipeline, verdict.attempt, commit, more, _NONE_OPEN)


def _stands(ledger: Ledger, planned: Plan, logs: Logs | None) -> dict[str, Any]:
    """How many rows result tables have, how near those are to being written again beside whose rows new ones lie, and
    up to which time all rows are there, by what the plan goes by."""
    from coset.batches.tables.table_rows import parts_held, rows_held  # noqa: PLC0415

    writes = [write.declared for write in planned.writes()]
    held, times = rows_held(ledger.store, writes, logs), FlowTimes(planned.graph, planned.watermarks)
    there = {write.table: times.of(write.step) for write in writes}
    return {
        "tables": {table: {"rows": held.get(table), "before": flow and flow.time} for table, flow in there.items()},
        "upkeep": [to_builtins(Upkeep.of(*one)) for one in parts_held(ledger.store, writes, logs).items()],
        "watermarks": {mark.stream: mark.time for mark in planned.watermarks},
    }


def _open(ledger: Ledger, planned: Plan, why: str = "") -> Mapping[str, Any]:
    made = ledger.journal_entry(planned.batch, Part.PLAN)
    return {"open": {"batch": planned.batch, "since": as_time(made.at.ended) if made else "", "waits": why}}


def _parts(ledger: Ledger, planned: Plan, attempt: int, asked: Iterable[Part]) -> Iterator[JournalEntry]:
    for part in asked:
        of_attempt = attempt if part in (Part.AUDIT, Part.CHECK) else None
        if (found := ledger.journal_entry(planned.batch, part, of_attempt)) is not None:
            yield found
