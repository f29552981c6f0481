"""Records as SQL: the same that were found, as statements for DuckDB that read the files by their addresses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence

from coset.batches.offenders import ResultRow
from coset.batches.records import Record
from coset.sources.landed_keys import landed_columns
from partitioning.documents.folder_store import path_of
from partitioning.model.graph import quote
from partitioning.model.plan import Plan
from partitioning.model.private import MASK, is_private
from partitioning.model.sources import FOLDER, KafkaSource
from partitioning.model.stage_inputs import PlannedStream
from partitioning.model.streams import Format
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
    kind = declared.written_as
    if isinstance(declared.origin, KafkaSource):
        yield f"-- {where} lies in a broker: read the topic from offset {offsets}, for instance with kcat -o."
    elif (
        declared.tells_deletes
        or declared.keys
        or kind is Format.AVRO
        or (kind is Format.JSON and declared.counted)
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
        source = _parquet(files, "union_by_name = true") if kind is Format.PARQUET else _json(stream, files)
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
