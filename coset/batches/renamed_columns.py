"""Renamed columns: what a pipeline reads of Iceberg tables that had another name, or other parts, when it was read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from partitioning.authoring.pipeline import Pipeline
from partitioning.commands import BackfillAsking, Command, Forget
from partitioning.errors import Finding
from partitioning.kinds import Kind
from partitioning.model.graph import quote
from partitioning.model.read_ends import Ends
from partitioning.model.streams import PART, Column, Discovered, Stream, renamed
from spark_jobs.sql.left_columns import PASSING, columns_needed

Results = Mapping[str, tuple[Column, ...]]


def misread(
    pipeline: Pipeline, found: Sequence[Discovered], results: Results, ends: Ends, unlike: Sequence[Finding] = ()
) -> Iterator[Finding]:
    """The columns, and parts of columns, of which rows that are kept or published have the values of others, or have
    them by other names. Columns that the pipeline does not use have no finding.

    Others come behind them, but those that a result table has columns `unlike` the plan's because of such a name.
    """
    names, told = {dict(each.about).get("name") for each in unlike}, set[object]()
    streams = {stream.name: stream for stream in pipeline.streams}
    given = {column.name for columns in results.values() for column in columns}
    for each in found:
        stream, read = streams[each.stream], ends.stream(each.stream)
        read_ids = read.ids if read else {}
        if not (differing := renamed(read_ids, each.ids)):
            continue
        used = _used(pipeline, stream, each.columns, results)
        shown = used if _keeps_rows(pipeline, stream) else used & given
        for name, was in differing.items():
            column = name.partition(PART)[0]
            if column in shown or (column in used and name in read_ids):
                lacked = column if PART in name else was
                told.add(lacked)
                yield _finding(pipeline, stream, name, was, lacked if lacked in names else "")
    yield from (each for each in unlike if dict(each.about).get("name") not in told)


def _used(pipeline: Pipeline, stream: Stream, columns: Sequence[Column], results: Results) -> set[str]:
    given = [column for some in results.values() for column in some]
    return {*columns_needed(pipeline.steps, given, stream.key, columns)}


def _keeps_rows(pipeline: Pipeline, stream: Stream) -> bool:
    """Whether a step keeps records of a stream with the names of their columns."""
    keeping = (step for step in pipeline.steps if step.state and step.op in PASSING)
    return any(stream in pipeline.streams_of(step.name) for step in keeping)


def _finding(pipeline: Pipeline, stream: Stream, name: str, was: str, lacked: str) -> Finding:
    """What to do, if a result table has the column that is `lacked` as it was."""
    shown, was = name.replace(PART, "."), was.replace(PART, ".")
    called = f"was named {was!r}" if was else "is a new one, and another had that name"
    what = f"{stream.name}: column {shown!r} {called} when the rows were read that are kept or published"
    then: list[str | Command] = [f"let the table's engine name it {f'{was!r} again' if was else 'otherwise'}"]
    if stream.table and name != stream.key:
        then += "; or begin anew with the table: ", Forget(pipeline.name, stream.name)
    first = ""
    if lacked:
        parts = f"write {lacked!r} with the names that its parts had"
        first = f"{parts if PART in name else f'write it AS {quote(lacked)}'}, or to a table of another name, and "
    then += f"; or {first}run all batches again by the names of now: ", BackfillAsking(pipeline.name, 0, cascade=True)
    values = {"stream": stream.name, "name": shown}
    return Finding.of(Kind.STREAM_COLUMNS, what, stream.source, tuple(then), **values)
