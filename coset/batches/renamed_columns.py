"""Renamed columns: what a pipeline reads of Iceberg tables that had another name, or other parts, when it was read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import UnsetType

from partitioning.authoring.pipeline import Pipeline
from partitioning.commands import BackfillAsking, Command, Forget
from partitioning.errors import Finding
from partitioning.kinds import Kind
from partitioning.model.column_ids import PART, are_other_parts, parts_within, renamed
from partitioning.model.read_ends import Ends
from partitioning.model.stage_inputs import PlannedStream
from partitioning.model.streams import Column, Discovered, Stream
from spark_jobs.sql.needed_columns import PASSING, columns_needed

Results = Mapping[str, tuple[Column, ...]]


def misread(pipeline: Pipeline, found: Sequence[Discovered], results: Results, ends: Ends) -> Iterator[Finding]:
    """The columns, and parts of columns, of which rows that are kept or published have the values of others, or have
    them by other names. Columns that the pipeline does not use have no finding."""
    streams = {stream.name: stream for stream in pipeline.streams}
    given = {column.name for columns in results.values() for column in columns}
    for each in found:
        stream, read = streams[each.stream], ends.stream(each.stream)
        read_ids = read.ids if read and not isinstance(read.ids, UnsetType) else {}
        if not (differing := renamed(read_ids, each.ids)):
            continue
        used = _used(pipeline, stream, each.columns, results)
        shown = used if _keeps_rows(pipeline, stream) else used & given
        for name, was in differing.items():
            column = name.partition(PART)[0]
            if column in shown or (column in used and name in read_ids):
                yield _finding(pipeline, stream, name, was)


def other_parts(
    pipeline: Pipeline, then: Iterable[PlannedStream], now: Iterable[PlannedStream], results: Results
) -> Iterator[Finding]:
    """The columns that a pipeline uses which have other parts now than when a batch planned these streams."""
    for was, stream in zip(then, now, strict=True):
        if isinstance(was.ids, UnsetType) or isinstance(stream.ids, UnsetType):
            continue
        names = {number: name for name, number in was.ids.items()}
        for column in sorted(_used(pipeline, stream.declared, stream.columns, results) & stream.ids.keys()):
            name = names.get(stream.ids[column], "")
            if name and are_other_parts(parts_within(was.ids, name), parts_within(stream.ids, column)):
                what = f"{stream.name}: column {column!r} has other parts than when the batch read it"
                then_ = "let the table's engine name its parts as they were, or begin at a later batch"
                where, values = stream.declared.source, {"stream": stream.name, "name": column}
                yield Finding.of(Kind.STREAM_COLUMNS, what, where, then_, **values)


def _used(pipeline: Pipeline, stream: Stream, columns: Sequence[Column], results: Results) -> set[str]:
    given = [column for some in results.values() for column in some]
    return {*columns_needed(pipeline.steps, given, stream.key, columns)}


def _keeps_rows(pipeline: Pipeline, stream: Stream) -> bool:
    """Whether a step keeps records of a stream with the names of their columns."""
    keeping = (step for step in pipeline.steps if step.state and step.op in PASSING)
    return any(stream in pipeline.streams_of(step.name) for step in keeping)


def _finding(pipeline: Pipeline, stream: Stream, name: str, was: str) -> Finding:
    shown, was = name.replace(PART, "."), was.replace(PART, ".")
    called = f"was named {was!r}" if was else "is a new one, and another had that name"
    what = f"{stream.name}: column {shown!r} {called} when the rows were read that are kept or published"
    then: list[str | Command] = [f"let the table's engine name it {f'{was!r} again' if was else 'otherwise'}"]
    if stream.table and name != stream.key:
        then += "; or begin anew with the table: ", Forget(pipeline.name, stream.name)
    if PART not in name:
        then += "; or run all batches again by the names of now: ", BackfillAsking(pipeline.name, 0, cascade=True)
    values = {"stream": stream.name, "name": shown}
    return Finding.of(Kind.STREAM_COLUMNS, what, stream.source, tuple(then), **values)
