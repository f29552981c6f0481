"""Offenders: the records and result rows of an attempt that do not meet an expectation, found again where they lie."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from coset.batches.attempt import Attempt
from coset.batches.auditing import audit_tables
from coset.batches.records import Search, at_offsets, batches_of, of_keys, offsets_of, plain_rows
from coset.batches.result_rows import table_files
from coset.sources.files import Files
from coset.sources.formats.parquet import open_parquet
from coset.sources.s3 import AGAIN, reaching
from expectations.colocation import ExpectKeysToHashToTheirPartition, ExpectKeysToMeetInOneTask
from expectations.coverage import (
    ExpectFewRecordsToBeSetAside,
    ExpectNoRecordToBeSetAside,
    ExpectOffsetsToBeCoveredExactlyOnce,
    ExpectRecordsToHaveKeys,
    ExpectRecordsToLieWhereTheirKeysHash,
    ExpectSetAsideRecordsToBeKept,
)
from expectations.questions import result_title
from partitioning.commands import Run
from partitioning.documents.ledger import Ledger
from partitioning.errors import CosetError, Refused
from partitioning.hashes import homes_of, read_key
from partitioning.kinds import Kind
from partitioning.model.offsets import OffsetRange, StreamPartition
from partitioning.model.plan import Plan, Stage
from partitioning.model.receipt import BASE, MODULUS, offset_digest
from partitioning.model.stage_inputs import PlannedStream
from partitioning.sections import many
from spark_jobs.engine.hashing import key_texts, one_of_equals

_BATCH_ROWS = 1 << 16
# A partition of more offsets is not searched for the one whose digest is missing.
_MOST_DIGESTS = 5_000_000
_NAMED = 5
_OF_SET_ASIDE = dict.fromkeys(
    (
        expectation.expectation_type
        for expectation in (ExpectSetAsideRecordsToBeKept, ExpectFewRecordsToBeSetAside, ExpectNoRecordToBeSetAside)
    ),
    "Records that were set aside are shown, with why, by --set-aside instead of --offenders",
)

# Offsets of stream partitions, by stream.
Offsets = Mapping[str, Mapping[int, set[int]]]


@dataclass(frozen=True, slots=True)
class ResultRow:
    """A row of a result file that no batch has published, by its number in the file."""

    table: str
    file: str
    number: int
    columns: dict[str, Any]


@dataclass(slots=True)
class Offenders:
    """What does not meet an expectation: as the check `says` it, with the records and rows. `notes` say what else was
    seen, `failed` why something could not be read."""

    expectation: str
    says: str
    records: list[Search] = field(default_factory=list)
    rows: list[ResultRow] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failed: CosetError | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """Which offenders to show: at most so many of each expectation and stream; of one expectation, stream or key."""

    most: int
    expectation: str | None = None
    stream: str | None = None
    key: str | None = None


def judged(ledger: Ledger, plan: Plan) -> Attempt:
    """The attempt of a batch that was published, or else the last one that was checked. Raises Refused if none was."""
    verdict = ledger.verdict(plan.batch)
    newest = verdict.attempt if verdict else ledger.attempt(plan.batch)
    for number in range(newest, -1, -1):
        if ledger.judgement(plan.batch, number) is not None:
            return Attempt(ledger, plan, number)
    what, then = f"no attempt of batch {plan.batch} was checked", (Run(ledger.pipeline), " checks it")
    raise Refused.of(Kind.BATCH_UNRUN, what, f"pipeline {ledger.pipeline!r}", then, batch=plan.batch)


def offenders(attempt: Attempt, asked: Asked) -> Iterator[Offenders]:
    """What did not meet an expectation, those that are warnings last.

    Files that cannot be read are told with the expectation, and the others are read. Raises Refused if the audit tables
    are gone.
    """
    report = json.loads(attempt.ledger.judgement(attempt.plan.batch, attempt.number) or b"{}")
    # There is a finding or a warning for each result that is not met, in their order.
    told = {"error": iter(report.get("findings", ())), "warning": iter(report.get("warnings", ()))}
    unmet = [
        (each, next(told[each.get("severity", "error")])) for each in report.get("results", ()) if not each["success"]
    ]
    for result, finding in sorted(unmet, key=lambda pair: pair[0].get("severity") == "warning"):
        if asked.expectation not in (None, result["expectation"]):
            continue
        found = Offenders(result["expectation"], finding["what"])
        try:
            _look(attempt, asked, result, found)
        except CosetError as error:
            found.failed = error
        yield found


def _look(attempt: Attempt, asked: Asked, result: Mapping[str, Any], told: Offenders) -> None:
    plan, kind, title = attempt.plan, result["expectation"], result["table"]
    for stage in plan.stages:
        for write in stage.writes:
            if title == result_title(write.declared.table):
                places = result["result"].get("partial_unexpected_index_list") or ()
                _look_at_rows(attempt, asked, stage, write.declared.table, write.declared.key, places, told)
                _note_more(result, len(told.rows), told)
                return
    tables = audit_tables.load_some(attempt.ledger, plan, attempt.number, "coverage", "keys", "violations")
    offsets: dict[str, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    for seen in _seen(plan, kind, title, tables):
        offsets[seen.input][seen.partition].add(seen.offset)
    if kind == ExpectOffsetsToBeCoveredExactlyOnce.expectation_type:
        _look_for_missing(plan, tables["coverage"], offsets, told)
    elif not offsets:
        told.notes.append(_OF_SET_ASIDE.get(kind, "It is not about single records that the batch read"))
    names = {stream.name for stream in plan.streams}
    for name, there in offsets.items():
        if name not in names:
            told.notes.append(f"Offenders in {name}, which tasks left for later ones, are named above and not read")
        elif asked.stream in (None, name):
            told.records.append(at_offsets(plan, name, there, asked.most, asked.key))


def _seen(plan: Plan, kind: str, title: str, tables: Mapping[str, pd.DataFrame]) -> Iterator[Any]:
    """The rows of audit tables that name offenders of an expectation of the proof, by input, partition and offset."""
    violations, keys = tables["violations"], tables["keys"]
    for of_records in (
        ExpectOffsetsToBeCoveredExactlyOnce,
        ExpectRecordsToHaveKeys,
        ExpectRecordsToLieWhereTheirKeysHash,
    ):
        if kind == of_records.expectation_type:
            wanted = [violation.value for violation in of_records.violations]
            yield from violations[violations["violation"].isin(wanted)].itertuples()
    for stage in plan.stages:
        of_stage = keys[keys["stage"] == stage.name]
        if kind == ExpectKeysToMeetInOneTask.expectation_type and f"{title} in ".startswith(
            f"Keys of stage {stage.name} in "
        ):
            yield from of_stage[of_stage.groupby("key")["task"].transform("nunique") > 1].itertuples()
        if kind == ExpectKeysToHashToTheirPartition.expectation_type:
            for read in stage.inputs:
                if title == f"Keys of {read.name} in stage {stage.name}":
                    of_input, placed = of_stage[of_stage["input"] == read.name], read.placement
                    for row in of_input.itertuples():
                        key = read_key(str(row.key), placed.key_format)
                        homes = homes_of(key, placed, read.name)
                        if int(row.partition) % placed.partitions not in homes:
                            yield row


def _look_for_missing(
    plan: Plan, coverage: pd.DataFrame, offsets: dict[str, dict[int, set[int]]], told: Offenders
) -> None:
    """Say which planned offsets the files lack or repeat, and which one was lost by a task, where its digest says it.

    Offsets to look at are added to `offsets`.
    """
    declared = {stream.name: stream for stream in plan.streams}
    wrong = coverage[
        (coverage["planned"] != coverage["taken"] + coverage["dropped"] + coverage["set_aside"])
        | (coverage["digest_planned"] != coverage["digest_found"])
    ]
    known = set[tuple[str, int]]()
    for row in wrong.itertuples():
        stream, number = declared.get(str(row.input)), int(row.partition)
        if stream is None or (stream.name, number) in known:
            continue
        known.add((stream.name, number))
        if stream.declared.may_lack_offsets:
            told.notes.append(f"{stream.name}-{number} may lack offsets: which are missing cannot be said")
            continue
        missing, repeated = _holes(plan, stream, number)
        listed = ", ".join(str(hole) for hole in missing[:_NAMED])
        more = f", and {len(missing) - _NAMED:,} ranges more" if len(missing) > _NAMED else ""
        if missing:
            told.notes.append(f"The files lack {listed}{more}")
        offsets[stream.name][number] |= repeated
        if not missing and not repeated:
            lost = _lost(row)
            offsets[stream.name][number] |= lost
            says = (
                f"offset {min(lost):,} was taken by no task, by the digests" if lost else "a task lost or repeated some"
            )
            told.notes.append(f"The files of {stream.name}-{number} hold each planned offset once: {says}")
        if not offsets[stream.name][number]:
            del offsets[stream.name][number]
    for name in [name for name, there in offsets.items() if not there]:
        del offsets[name]


def _holes(plan: Plan, stream: PlannedStream, number: int) -> tuple[list[OffsetRange], set[int]]:
    """The planned offsets that no record of the files has, known gaps aside, and those that several have."""
    planned, partition = stream.partitions[number], StreamPartition(stream.name, number)
    times = np.zeros(planned.end - planned.start, np.uint8)
    for batch in batches_of(plan, stream, [planned], [stream.declared.offset]):
        there = offsets_of(stream, batch)
        inside = there[(there >= planned.start) & (there < planned.end)] - planned.start
        # An offset counts up to twice.
        values, counts = np.unique(inside, return_counts=True)
        times[values] = np.minimum(times[values] + np.minimum(counts, 2), 2)
    lacking = times == 0
    for gap in plan.gaps.get(partition, ()):
        lacking[gap.offsets.start - planned.start : gap.offsets.end - planned.start] = False
    edges = np.flatnonzero(np.diff(np.concatenate([[0], lacking.astype(np.int8), [0]]))) + planned.start
    holes = [OffsetRange(partition, int(first), int(end)) for first, end in edges.reshape(-1, 2)]
    return holes, {int(place) + planned.start for place in np.flatnonzero(times > 1)[:_NAMED]}


def _lost(row: Any) -> set[int]:
    """The one offset that no task took: the digest of the range lacks it."""
    accounted, start, end = int(row.taken + row.dropped + row.set_aside), int(row.start), int(row.end)
    if accounted != row.planned - 1 or end - start > _MOST_DIGESTS or not row.digest_planned:
        return set()
    wanted = (int(row.digest_planned, 16) - int(row.digest_found, 16)) % MODULUS
    digest = offset_digest(start)
    for offset in range(start, end):
        if digest == wanted:
            return {offset}
        digest = digest * BASE % MODULUS
    return set()


def _look_at_rows(
    attempt: Attempt, asked: Asked, stage: Stage, table: str, key: str | None, places: Sequence[int], told: Offenders
) -> None:
    """The rows at these places of the result that was judged, and the records of their keys that the stage reads."""
    start, keys = 0, dict[str, None]()
    for file in table_files(attempt, table):
        inside = [place - start for place in sorted(places) if start <= place < start + file.records]
        start += file.records
        if not inside:
            continue
        uri = attempt.ledger.uri(file.path)
        rows = _rows(uri, inside)
        if key and key in rows.column_names:
            texts = key_texts(one_of_equals(rows[key].combine_chunks()), _format(stage))
            keys |= dict.fromkeys(text for text in texts.to_pylist() if text is not None)
        found = zip(inside, plain_rows(rows), strict=True)
        told.rows.extend(ResultRow(table, uri, number, columns) for number, columns in found)
    wanted = [each for each in keys if asked.key in (None, each)]
    if asked.key is not None and key:
        told.rows = [row for row in told.rows if str(row.columns.get(key)) == asked.key]
    told.rows = told.rows[: asked.most]
    if not places:
        told.notes.append("It is about the table as a whole, and not about single rows")
        return
    keyed = [read.name for read in stage.streams if read.placement.key]
    for name in keyed if wanted else ():
        if asked.stream in (None, name):
            told.records.append(of_keys(attempt, name, wanted, asked.most))
    if not keyed:
        told.notes.append(f"Stage {stage.name} reads what other stages left: no stream has the keys of its rows")


def _format(stage: Stage) -> str:
    return next((read.placement.key_format.value for read in stage.inputs if read.placement.key), "string")


def _rows(uri: str, numbers: Sequence[int]) -> pa.Table:
    """The rows of a Parquet file with these numbers, ascending."""
    start, found = 0, list[pa.RecordBatch]()
    try:
        with reaching("the file cannot be read", uri, AGAIN), Files().open(uri) as source:
            file = open_parquet(source)
            for batch in file.iter_batches(_BATCH_ROWS):
                inside = [number - start for number in numbers if start <= number < start + len(batch)]
                found.append(batch.take(pa.array(inside, pa.int64())))
                start += len(batch)
            return pa.Table.from_batches(found, file.schema_arrow)
    except FileNotFoundError as error:
        what, then = "the file with rows of the result is gone", "run the batch again: it makes them anew"
        raise Refused.of(Kind.TASK_FILES, what, uri, then, file=uri) from error


def _note_more(result: Mapping[str, Any], shown: int, told: Offenders) -> None:
    bad = result["result"].get("unexpected_count") or 0
    if bad > shown > 0:
        told.notes.append(f"{many(shown, 'row')} of {bad:,}: a check keeps the places of the first")
