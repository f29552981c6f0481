"""Records on the command line, also as SQL: those that a batch read, and those that do not meet an expectation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from coset.batches.attempt import Attempt
from coset.batches.offenders import Asked, Offenders, ResultRow, judged, offenders
from coset.batches.records import Record, Search, first_of, of_keys
from coset.batches.result_rows import set_aside_in
from coset.cli import pipelines, plans
from coset.cli.output import Answer, Block, Table
from coset.sources.landed_keys import landed_columns
from coset.sources.reader import RAW, WHY
from partitioning.documents.folder_store import path_of
from partitioning.documents.ledger import Ledger
from partitioning.documents.stores import store_at
from partitioning.errors import CosetError, Refused
from partitioning.kinds import Kind
from partitioning.model.failure import together
from partitioning.model.graph import quote
from partitioning.model.plan import Plan
from partitioning.model.private import MASK, is_private, without_values
from partitioning.model.sources import FOLDER, KafkaSource
from partitioning.model.stage_inputs import PlannedStream
from partitioning.sections import many
from partitioning.texts import visible

_S3 = "INSTALL httpfs; LOAD httpfs; CREATE SECRET (TYPE s3, PROVIDER credential_chain);"


def preamble(files: Iterable[str]) -> Iterator[str]:
    """What DuckDB needs first, if these files lie in S3."""
    if any(file.startswith("s3://") for file in files):
        yield "-- Once for each session; with another server than AWS, name its ENDPOINT in the secret."
        yield _S3


def of_records(plan: Plan, records: Sequence[Record], private: Collection[str]) -> Iterator[str]:
    """Statements that select these records, one for each stream partition; comments where DuckDB cannot read them."""
    by_partition: dict[tuple[str, int], list[Record]] = defaultdict(list)
    for record in records:
        by_partition[record.stream, record.partition].append(record)
    for (name, number), found in by_partition.items():
        yield from _of_partition(plan.stream(name), number, found, _columns(found, private))


def of_rows(rows: Sequence[ResultRow], private: Collection[str]) -> Iterator[str]:
    """Statements that select these rows of result files."""
    by_file: dict[str, list[ResultRow]] = defaultdict(list)
    for row in rows:
        by_file[row.file].append(row)
    for file, found in by_file.items():
        yield f"-- Rows of table {visible(found[0].table)}, by their number in the file."
        numbers = ", ".join(str(row.number) for row in found)
        source = _parquet([file], "file_row_number = true")
        yield f"SELECT {_columns(found, private)} FROM {source}\nWHERE file_row_number IN ({numbers});"


def _of_partition(stream: PlannedStream, number: int, records: Sequence[Record], columns: str) -> Iterator[str]:
    declared, where = stream.declared, f"{stream.name}-{number}"
    files = list(dict.fromkeys(record.file for record in records))
    offsets = ", ".join(str(record.offset) for record in records)
    kind = declared.format
    if isinstance(declared.origin, KafkaSource):
        yield f"-- {where} lies in a broker: read the topic from offset {offsets}, for instance with kcat -o."
    elif (
        declared.tells_deletes
        or declared.keys
        or not kind.by_duckdb
        or (declared.counted and not kind.has_types)
        or any(file.rows for file in stream.partitions[number].files)
    ):
        yield f"-- {where} at offset {offsets}: in {', '.join(map(visible, files))}."
    elif declared.counted:
        yield f"-- {where}: a file's name has the offset of its first record, and the others follow."
        begins = {file.path: file.first for file in stream.partitions[number].files}
        for file in files:
            rows = ", ".join(str(each.offset - begins[file]) for each in records if each.file == file)
            yield (
                f"SELECT {begins[file]} + file_row_number AS {quote(declared.offset)}, {columns}\n"
                f"FROM {_parquet([file], 'file_row_number = true')}\nWHERE file_row_number IN ({rows});"
            )
    else:
        yield f"-- {where}: the column {visible(declared.offset)} has each record's offset."
        source = _parquet(files, "union_by_name = true") if kind.has_types else _json(stream, files)
        yield f"SELECT {columns} FROM {source}\nWHERE {quote(declared.offset)} IN ({offsets});"


def _columns(found: Sequence[Record | ResultRow], private: Collection[str]) -> str:
    """All columns; private ones masked, so that what is pasted shows no more than was shown."""
    hidden = [f"'{MASK}' AS {quote(name)}" for name in found[0].columns if is_private(name, private)]
    return f"* REPLACE ({', '.join(hidden)})" if hidden else "*"


def _parquet(files: Sequence[str], more: str) -> str:
    return f"read_parquet({_listed(files)}, hive_partitioning = false, {more})"


def _json(stream: PlannedStream, files: Sequence[str]) -> str:
    landed = landed_columns(stream.declared, stream.columns)
    columns = ", ".join(f"{quote(column.name)}: {_text(column.type)}" for column in landed)
    return (
        f"read_json({_listed(files)}, format = 'newline_delimited', hive_partitioning = false, columns = {{{columns}}})"
    )


def _listed(files: Sequence[str]) -> str:
    return f"[{', '.join(_text(str(path_of(file)) if file.startswith(FOLDER) else file) for file in files)}]"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


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
    yield from preamble([*files, *_files(search for each in found for search in each.records)])
    for each in found:
        yield from (*(f"-- {line}" for line in each.says.splitlines()), *_notes(each, "-- "))
        yield from of_rows(each.rows, private)
        for search in each.records:
            yield from of_records(plan, search.found, private)


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
        lines = (line for search in found for line in of_records(plan, search.found, private))
        return _selected(value, chain(preamble(_files(found)), lines), _failed(errors, private))
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
