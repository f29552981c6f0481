"""Records on the command line: those that a batch read, and those that do not meet an expectation."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from coset.batches import records_sql
from coset.batches.attempt import Attempt
from coset.batches.kept_aside import set_aside_in
from coset.batches.offenders import Asked, Offenders, ResultRow, judged, offenders
from coset.batches.records import Record, Search, first_of, of_keys
from coset.cli import pipelines, plans
from coset.cli.output import Answer, Block, Table
from coset.sources.reader import RAW, WHY
from partitioning.documents.ledger import Ledger
from partitioning.documents.stores import store_at
from partitioning.errors import CosetError, Refused
from partitioning.kinds import Kind
from partitioning.model.failure import together
from partitioning.model.plan import Plan
from partitioning.model.private import MASK, is_private, without_values
from partitioning.sections import many

_NUMBERS = ("partition", "offset")


def offending(named: str, root: str, batch: int | None, asked: Asked, *, sql: bool) -> Answer:
    """The records and rows that do not meet an expectation of a batch's newest checked attempt, and the error of what
    could not be read; or the SQL that selects them."""
    ledger, plan, private = _planned(named, root, batch, asked.stream)
    attempt = judged(ledger, plan)
    found = list(offenders(attempt, asked))
    for each in found:
        _hide([*(record for search in each.records for record in search.found), *each.rows], private)
    errors = [each.failed for each in found if each.failed is not None]
    value = {"pipeline": plan.pipeline, "batch": plan.batch, "attempt": attempt.number}
    if sql:
        return _selected(value, _offenders_sql(plan, found, private), _failed(errors, private))
    unmet = (_plain_offenders(plan, each) for each in found)
    text = _offenders(plan, attempt.number, asked, found)
    return Answer(value | {"unmet": unmet}, text, _failed(errors, private))


def _selected(about: dict[str, Any], sql: Iterable[str], failed: CosetError | None) -> Answer:
    lines = [line for text in sql for line in text.split("\n")]
    return Answer(about | {"sql": "\n".join(lines)}, lines, failed)


def _failed(errors: Sequence[CosetError], private: Collection[str]) -> CosetError | None:
    """What could not be read, without values of private columns."""
    if not errors:
        return None
    error = together(errors)
    return type(error)(*map(without_values, error.findings)) if private else error


def _offenders(plan: Plan, attempt: int, asked: Asked, found: Sequence[Offenders]) -> Iterator[Block]:
    of_one = "" if asked.expectation is None else f" {asked.expectation}"
    unmet = f"{many(len(found), 'expectation')} not met" if found else f"no expectation{of_one} is unmet"
    yield from (f"Batch {plan.batch} of {plan.pipeline}, attempt {attempt}: {unmet}", "")
    for each in found:
        yield from (*each.says.splitlines(), *_notes(each, "  "), "")
        yield from _rows(each)
        yield from map(_search, each.records)


def _offenders_sql(plan: Plan, found: Sequence[Offenders], private: Collection[str]) -> Iterator[str]:
    files = [row.file for each in found for row in each.rows]
    yield from records_sql.preamble([*files, *_files(search for each in found for search in each.records)])
    for each in found:
        yield from (*(f"-- {line}" for line in each.says.splitlines()), *_notes(each, "-- "))
        yield from records_sql.of_rows(each.rows, private)
        for search in each.records:
            yield from records_sql.of_records(plan, search.found, private)


def read(named: str, root: str, batch: int | None, asked: Asked, *, sql: bool) -> Answer:
    """The records that a batch read: of a stream or all, of a key or the first; or the SQL that selects them."""
    ledger, plan, private = _planned(named, root, batch, asked.stream)
    verdict = ledger.published(plan.batch)
    attempt = Attempt(ledger, plan, verdict.attempt if verdict else ledger.attempt(plan.batch))
    found, errors = list[Search](), list[CosetError]()
    for name in [asked.stream] if asked.stream else [stream.name for stream in plan.streams]:
        try:
            if asked.key is None:
                found.append(first_of(plan, name, asked.most))
            else:
                found.append(of_keys(attempt, name, [asked.key], asked.most))
        except CosetError as error:
            errors.append(error)
    _hide([record for search in found for record in search.found], private)
    value = {"pipeline": plan.pipeline, "batch": plan.batch}
    if sql:
        lines = (line for search in found for line in records_sql.of_records(plan, search.found, private))
        return _selected(value, chain(records_sql.preamble(_files(found)), lines), _failed(errors, private))
    streams = (_plain_search(plan, search) for search in found)
    return Answer(value | {"streams": streams}, map(_search, found), _failed(errors, private))


def set_aside(named: str, root: str, batch: int | None, asked: Asked) -> Answer:
    """The records that a batch set aside, of a stream or all: of the attempt that is published, or the newest."""
    ledger, plan, _ = _planned(named, root, batch, asked.stream)
    found = [each for each in set_aside_in(ledger, plan) if asked.stream in (None, each["stream"])]
    shown = [dict(each, raw=each["raw"].decode(errors="backslashreplace")) for each in found[: asked.most]]
    more = ", and there are more: --limit shows them" if len(found) > asked.most else ""
    title = f"Batch {plan.batch} of {plan.pipeline} set {many(len(found), 'record')} aside{more}"
    columns = ("stream", "partition", "offset", "step", "why", "raw", "file")
    rows = [tuple(_number(each[name]) if name in _NUMBERS else each[name] for name in columns) for each in shown]
    value = {"pipeline": plan.pipeline, "batch": plan.batch, "set_aside": len(found), "records": shown}
    return Answer(value, [Table(title, columns, rows)])


def _planned(named: str, root: str, batch: int | None, stream: str | None) -> tuple[Ledger, Plan, frozenset[str]]:
    """The plan of a batch, of the newest if none is given, and the columns that were private then or are now. Raises
    Refused if it does not read the stream."""
    pipeline = pipelines.load(named)
    ledger = Ledger(store_at(root), pipeline.name)
    plan = plans.of_batch(ledger, batch)
    if stream is not None and stream not in (names := [each.name for each in plan.streams]):
        what, then = f"batch {plan.batch} reads no stream {stream!r}", f"name one of {', '.join(names)}"
        raise Refused.of(Kind.ARGUMENT, what, "--stream", then, stream=stream)
    return ledger, plan, plan.private | pipeline.private


def _hide(found: Iterable[Record | ResultRow], private: Collection[str]) -> None:
    """Mask the values of private columns."""
    for each in found:
        for name, value in each.columns.items():
            # Why a record cannot be used, and its bytes, quote all of its columns.
            told = bool(private) and name in (WHY.name, RAW.name)
            if value is not None and (told or is_private(name, private)):
                each.columns[name] = MASK


def _files(found: Iterable[Search]) -> list[str]:
    return [record.file for search in found for record in search.found]


def _notes(told: Offenders, before: str) -> Iterable[str]:
    failed = ["What lies there cannot be read: see below"] if told.failed else []
    return [f"{before}{note}" for note in (*told.notes, *failed)]


def _search(search: Search) -> Table:
    looked = f"looked at {many(search.looked, 'record')}"
    more = ", and there are more: --limit shows them" if search.more else ""
    title = f"{search.stream}: {many(len(search.found), 'record')}, {looked}{more}"
    # Not all records say why they cannot be used.
    columns = list(dict.fromkeys(name for record in search.found for name in record.columns))
    rows = [
        (_number(record.partition), _number(record.offset), *map(record.columns.get, columns), record.file)
        for record in search.found
    ]
    return Table(title, ("partition", "offset", *columns, "file"), rows)


def _rows(told: Offenders) -> Iterator[Table]:
    by_table: dict[str, list[Any]] = {}
    for row in told.rows:
        by_table.setdefault(row.table, []).append(row)
    for table, rows in by_table.items():
        title = f"Table {table}: {many(len(rows), 'row')} that the batch would publish"
        cells = [(*row.columns.values(), _number(row.number), row.file) for row in rows]
        yield Table(title, (*rows[0].columns, "row", "file"), cells)


def _number(number: int) -> str:
    """As SQL takes it, without separators."""
    return str(number)


def _plain_offenders(plan: Plan, told: Offenders) -> dict[str, object]:
    return {
        "expectation": told.expectation,
        "says": told.says,
        "notes": told.notes,
        "read": told.failed is None,
        "streams": [_plain_search(plan, search) for search in told.records],
        "rows": [
            {"table": row.table, "file": row.file, "row": row.number, "columns": dict(row.columns)} for row in told.rows
        ],
    }


def _plain_search(plan: Plan, search: Search) -> dict[str, object]:
    key = plan.stream(search.stream).declared.key
    records = [
        {
            "file": record.file,
            "partition": record.partition,
            "offset": record.offset,
            "key": record.columns.get(key),
            "columns": dict(record.columns),
        }
        for record in search.found
    ]
    return {"stream": search.stream, "looked": search.looked, "more": search.more, "records": records}
