"""The query of a table: the one query of DuckDB's SQL, over all records that batches have taken, that its rows are."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.state_sql import THIS_BATCH, passed_by
from partitioning.explain.surprises import JoinsATable, joined_by_batch
from partitioning.model.composite_key import canonical, key_parts
from partitioning.model.graph import Graph, Op, Step, quote, state_of
from partitioning.model.leaving import DAY_END
from partitioning.model.mark_columns import CHANGE
from partitioning.model.meaning import Meaning, RowKind, is_log, meanings, of_one_batch
from partitioning.model.offsets import OffsetRange
from partitioning.model.placement import KeyFormat, keeps_empty
from partitioning.model.plan import Plan
from partitioning.model.read_ends import StreamProgress
from partitioning.model.sources import IcebergSource, LandedSource
from partitioning.model.stage_inputs import PlannedStream
from partitioning.model.streams import DELETED, Column, Layout, NullKeys, Stream
from partitioning.model.table_mode import CHANGE_TYPE, COMES, left_of

# Which partition a record lies in, as an expression of a pipeline may name it.
_PARTITION = "_partition"
# The columns with a record's file, and with its place in it.
_FILE, _ROW = "@file", "file_row_number"
_VARIABLE = re.compile(r"getvariable\('((?:[^']|'')+)'\)")
_FLOATING = re.compile(r"\b(?:FLOAT|DOUBLE)\b")
_SINCE_1970 = datetime(1970, 1, 1, tzinfo=UTC)
_ARE = {
    RowKind.RECORDS: "what comes of each record",
    RowKind.NEWEST: "the newest row of each key, over all batches",
    RowKind.CHANGES: "what comes and what goes in each batch",
}


def rows_are(means: Meaning) -> str:
    """What the rows of a table are, in words.

    >>> rows_are(Meaning(RowKind.NEWEST))
    'the newest row of each key, over all batches'
    """
    if means.is_query:
        return _ARE.get(means.rows, "all rows of now")
    said = "of a batch" if means.rows is RowKind.OF_BATCH else "not those of its query"
    return f"{said}: in step {means.step}, {means.why}"


def logical_sql(graph: Graph | Pipeline, step: str) -> str:
    """The SELECT that a step is of its inputs, over all records: without what batches need to take rows back."""
    steps = {each.name: each for each in graph.steps}
    it = steps[step]
    before = steps.get(it.inputs[0])
    match it.op:
        case Op.CHANGES:
            return f"SELECT * FROM {quote(it.inputs[-1])}"
        case Op.KEEP | Op.ROWS:
            return f"SELECT * FROM {quote(it.inputs[0])}"
        case Op.TO_STREAM if is_log(it):
            return f"SELECT *, '{COMES}' AS {CHANGE_TYPE} FROM {quote(it.inputs[0])}"
        case Op.TO_STREAM if CHANGE in it.sql:
            return f"SELECT * FROM {quote(it.inputs[0])}"
        case Op.UPSERT if CHANGE in it.sql:
            change = quote(CHANGE)
            return it.sql.removeprefix(f"SELECT * EXCLUDE ({change}) FROM (").removesuffix(f") WHERE {change} > 0")
        case Op.PARTIAL if CHANGE in it.sql:
            keys = ", ".join(map(quote, (it.key, *key_parts(it.key))))
            return f"SELECT {keys}, {it.expressions[0]} FROM {quote(it.inputs[0])} AS {_alias(it)} GROUP BY ALL"
        case Op.COMBINE | Op.FILTER | Op.SELECT if before and _of_totals(before, steps):
            return f"SELECT * FROM {quote(before.name)}"
        case _:
            return it.sql.replace(f", {quote(CHANGE)} FROM", " FROM")


def _alias(partial: Step) -> str:
    """The name of what a step aggregates, in its expressions."""
    return partial.sql.rpartition(" AS ")[2].removesuffix(" GROUP BY ALL")


def _of_totals(step: Step, steps: Mapping[str, Step]) -> bool:
    """Whether a step is one of those of which totals consist, but for the SELECT at their end."""
    before = steps.get(step.inputs[0])
    match step.op:
        case Op.PARTIAL:
            return CHANGE in step.sql
        case Op.COMBINE:
            return before is not None and before.op is Op.PARTIAL and CHANGE in before.sql
        case Op.FILTER:
            return before is not None and before.op is Op.COMBINE and _of_totals(before, steps)
        case _:
            return False


def table_query(
    graph: Graph,
    plan: Plan,
    table: str,
    skipped: Sequence[OffsetRange] = (),
    doubled: Collection[str] = (),
    now: Iterable[PlannedStream] = (),
    shown: Plan | None = None,
) -> str:
    """The query that a result table is after a plan's batch, for DuckDB alone. Batches were asked to leave out records
    that are `skipped`. Of `doubled` streams several files have the same records. Streams of `now` have the columns that
    Iceberg tables have by now. The table has the columns of the plan whose rows are `shown`, as of a backfill.

    It has a row for each row of the table; of one whose rows are of a batch, for each that this batch makes. Functions
    are only named.
    """
    return "\n".join(_Query(graph, plan, table, skipped, doubled, now, shown or plan).lines()) + "\n"


class _Query:
    def __init__(
        self,
        graph: Graph,
        plan: Plan,
        table: str,
        skipped: Sequence[OffsetRange],
        doubled: Collection[str],
        now: Iterable[PlannedStream],
        shown: Plan,
    ) -> None:
        self._graph, self._plan, self._doubled, self._shown = graph, plan, doubled, shown
        self._write = next(write for write in graph.writes if write.table == table)
        self._means = meanings(graph)[table]
        above = graph.above(self._write.step)
        self._streams = [stream for stream in graph.streams if stream.name in above]
        self._steps = {step.name: step for step in graph.steps if step.name in above}
        self._now = {stream.name: stream for stream in now}
        self._skipped = {str(each.partition): each.end for each in skipped}
        self._one_batch = of_one_batch(self._means, self._steps.values())

    def lines(self) -> Iterator[str]:
        parts = [*self._ctes()]
        yield from self._said()
        yield from self._settings("".join(parts))
        yield "WITH"
        yield ",\n".join(parts)
        yield f"SELECT {self._columns()} FROM {quote(self._write.step)};"

    def _said(self) -> Iterator[str]:
        over = f"the records of batch {self._plan.batch}" if self._one_batch else "all records up to that batch"
        after = f"of pipeline {self._plan.pipeline} after batch {self._plan.batch}"
        yield f"-- Table {self._write.table} {after}, over {over}."
        yield f"-- Its rows are {rows_are(self._means)}."
        if self._one_batch and not self._write.mode.keeps:
            yield "-- So it has these rows of this batch, until the next batch replaces them."
        elif self._one_batch:
            yield "-- So it has these rows of this batch (with lineage, _batch says which), and others of the others."
        elif not self._means.is_query:
            yield "-- So it is not this query once records have come in several batches."
        step = self._steps.get(self._write.step)
        if step and is_log(step):
            yield "-- These are the rows that have come and not gone, as those of the table are by:"
            yield f"-- SELECT *, '{COMES}' AS {CHANGE_TYPE} FROM ({left_of(quote(self._write.table))})"
        if self._means.instead:
            yield f"-- Instead: {self._means.instead}."

    def _settings(self, text: str) -> Iterator[str]:
        """What batches have set, and the times by which steps go, as far as the watermark has come."""
        of_2 = self._plan.planned_for.version.partition(".")[0] not in {"0", "1"}
        yield "SET TimeZone = 'UTC';" + (" SET error_on_division_by_zero = false;" if of_2 else "")
        known = {THIS_BATCH: self._plan.batch, DAY_END: self._plan.day_end}
        for step in self._plan.steps:
            if step.state and step.state.watermark:
                known[passed_by(step.name)[1]] = step.state.watermark.now
        for name in dict.fromkeys(_VARIABLE.findall(text)):
            number = known.get(name)
            when = "" if number is None or name == THIS_BATCH else f"  -- {_time(number)}"
            value = "NULL" if number is None else number
            named = name.replace("''", "'")
            yield f"SET VARIABLE {quote(named)} = {value}::BIGINT;{when}"

    def _columns(self) -> str:
        """The columns of the table, as far as they are known."""
        written = (each for each in self._shown.writes() if each.declared.table == self._write.table)
        return ", ".join(quote(column.name) for each in written for column in each.columns) or "*"

    def _ctes(self) -> Iterator[str]:
        for stream in self._streams:
            yield _cte(stream.name, _words_of(stream, self._plan.ends.stream(stream.name)), self._of_stream(stream))
        tables = {stream.name for stream in self._streams if stream.table}
        for step in self._steps.values():
            state, sql = state_of(step.name), logical_sql(self._graph, step.name)
            if step.function:
                how = "Spark's DataFrames" if step.on_dataframes else "Arrow tables"
                said, given = f"{step.function} on {how}", ", ".join(map(quote, step.inputs))
                yield _cte(step.name, [said], f"SELECT * FROM {quote(step.function)}({given})")
                continue
            if step.state and quote(state) in sql:
                yield _cte(state, ["nothing is kept, as all records are there"], f"{step.state.sql} LIMIT 0")
            yield _cte(step.name, self._by_batch(step, tables), sql)

    def _by_batch(self, step: Step, tables: set[str]) -> Iterator[str]:
        """In what a step goes by batches, and its query by all records."""
        if step.op is Op.DISTINCT:
            yield "DISTINCT BY BATCH: of records that are alike the first to come stays, which may not be the earliest"
        found = joined_by_batch(step, self._steps, tables) if step.op is Op.JOIN else None
        if isinstance(found, JoinsATable):
            yield f"JOIN AS OF BATCH: each batch joins {' and '.join(found.tables)} as it is when the batch is planned"
        elif found:
            yield f"JOIN OF A BATCH: records of {' and '.join(found.streams)} that come in one batch"

    def _of_stream(self, stream: Stream) -> str:
        """The SELECT of the records that were taken, with their partition and offset behind the other columns."""
        progress = self._plan.ends.stream(stream.name)
        columns = progress.columns if progress else ()
        was = {column.name: quote(column.name) for column in columns}
        if progress and (now := self._now.get(stream.name)):
            names = {number: quote(name) for name, number in progress.ids.items()}
            columns = now.columns
            was |= {name: names.get(number, "NULL") for name, number in now.ids.items()}
        parts, offset = key_parts(stream.key), quote(stream.offset)
        made = [f"{canonical(parts)} AS {quote(stream.key)}"] if parts else []
        typed = [
            f"{was[column.name]}::{column.type} AS {quote(column.name)}"
            for column in columns
            if column.name not in ({stream.key, stream.offset} if parts else {stream.offset})
        ]
        starts, ends = self._bounds(stream)
        wheres = [f"{offset} < {ends}", *([f"{offset} >= {starts}"] if starts else [])]
        if stream.null_keys is NullKeys.DROP:
            wheres.append(f"{quote(stream.key)} IS NOT NULL")
            if not keeps_empty(stream.hash) and stream.key_format in {KeyFormat.STRING, KeyFormat.BYTES}:
                wheres.append(f"{quote(stream.key)} <> ''")
        listed = ", ".join([*made, *typed, quote(_PARTITION), offset])
        records = _records(stream, columns)
        if stream.name in self._doubled and _has_files(stream):
            records = f"(FROM {records} QUALIFY row_number() OVER (PARTITION BY {quote(_PARTITION)}, {offset}) = 1)"
        sql = f"SELECT {listed}\n  FROM {records}\n  WHERE {' AND '.join(wheres)}"
        if not stream.table:
            return sql
        newest = f"row_number() OVER (PARTITION BY {quote(stream.key)} ORDER BY {offset} DESC) = 1"
        return f"{sql}\n  QUALIFY {quote(stream.key)} IS NULL OR {newest}"

    def _bounds(self, stream: Stream) -> tuple[str, str]:
        """Of each partition the first offset, if it is not the first of all, and the end."""
        progress, here = self._plan.ends.stream(stream.name), quote(_PARTITION)
        ends = {end.partition: end.end for end in (progress.ends if progress else ())}
        starts = {number: self._skipped.get(f"{stream.name}-{number}", 0) for number in ends}
        if self._one_batch and not stream.table:
            planned = [each for each in self._plan.streams if each.name == stream.name]
            taken = {each.partition: each.start for one in planned for each in one.partitions}
            starts = {number: taken.get(number, ends[number]) for number in ends}
        first, behind = ([of.get(number, 0) for number in range(max(of, default=0) + 1)] for of in (starts, ends))
        return f"{first}[{here} + 1]" if any(first) else "", f"{behind}[{here} + 1]"


def _has_files(stream: Stream) -> bool:
    """Whether DuckDB alone reads the stream's records where they have landed."""
    if not isinstance(stream.origin, LandedSource):
        return False
    if stream.changes or stream.key_bytes or stream.keys or stream.layout is Layout.AIVEN:
        return False
    # Only of Parquet files it numbers the rows.
    return stream.format.by_duckdb and (stream.format.has_types or not stream.counted)


def _records(stream: Stream, columns: Sequence[Column]) -> str:
    """The landed files as a relation, with the partition of each record; of others a table that the reader makes."""
    if not _has_files(stream):
        # The name alone would be that of the CTE itself.
        return f"main.{quote(stream.name)}"
    is_json = not stream.format.has_types
    folders, ending = "partition=*" if stream.layout is Layout.PARTITION else "**", "json*" if is_json else "parquet"
    files = _text(f"{stream.source.rstrip('/')}/{stream.name}/{folders}/*.{ending}")
    read = f"read_{'json' if is_json else 'parquet'}({files}, filename = '{_FILE}', hive_partitioning = false"
    read += f", columns = {_types(stream, columns)}" if is_json else ", union_by_name = true"
    if not is_json and any(_FLOATING.search(column.type) for column in columns):
        # Statistics of Parquet tell the least and greatest value, which are no NaN.
        read += ", can_have_nan = true"
    # Their names are `<stream>+<partition>+<first offset>.<ending>`.
    more = f"*, split_part({quote(_FILE)}, '+', -2)::INTEGER AS {quote(_PARTITION)}"
    if stream.counted:
        first = f"split_part(split_part({quote(_FILE)}, '+', -1), '.', 1)::BIGINT"
        more += f", {first} + {_ROW} AS {quote(stream.offset)}"
        read += f", {_ROW} = true"
    return f"(SELECT {more} FROM {read}))"


def _types(stream: Stream, columns: Sequence[Column]) -> str:
    """The columns of JSON lines, as they are read: those that are cast are of the type that they were declared with."""
    declared = stream.columns
    types = {column.name: declared.get(column.name, column.type) for column in columns if column.name in declared}
    listed = (f"{_text(name)}: {_text(kind)}" for name, kind in (types | {stream.offset: "BIGINT"}).items())
    return f"{{{', '.join(listed)}}}"


def _words_of(stream: Stream, progress: StreamProgress | None) -> Iterator[str]:
    """What is to be known of the records of a stream."""
    snapshots = {end.epoch for end in progress.ends} if progress else set[int]()
    if isinstance(stream.origin, IcebergSource) and len(snapshots) == 1 and snapshots != {-1}:
        of_all = [f"0 AS {_PARTITION}", f"-1 AS {stream.offset}", *([f"false AS {DELETED}"] if stream.table else [])]
        rows = f"{stream.origin.uri(stream.name)} in snapshot {snapshots.pop()}"
        yield f"make a table {stream.name} of the rows of {rows}, all with {', '.join(of_all)}"
    elif not _has_files(stream):
        yield f"{stream.source}: make a table {stream.name} of its records, with {_PARTITION} and {stream.offset}"
    if stream.table:
        yield "the newest record of each key"
    if stream.sets_aside:
        yield "without the records that were set aside: leave them out here too"


def _cte(name: str, said: Iterable[str], sql: str) -> str:
    comments = "".join(f"  -- {each}\n" for each in said)
    return f"{quote(name)} AS (\n{comments}  {sql}\n)"


def _text(text: str) -> str:
    """A text as SQL."""
    return "'" + text.replace("'", "''") + "'"


def _time(number: int) -> str:
    """Microseconds since 1970 for people."""
    return f"{_SINCE_1970 + timedelta(microseconds=number):%Y-%m-%d %H:%M:%S} UTC"
