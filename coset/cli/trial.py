"""A trial on the command line: rows of one's own go in, and rows of result tables come out."""

from __future__ import annotations

from pathlib import Path

from msgspec import to_builtins

from coset.batches.tables.first_rows import first_rows
from coset.cli import pipelines
from coset.cli.output import show, show_json, show_table
from coset.sources.landing import land as land_rows
from coset.sources.landing import read_rows
from partitioning.errors import Finding, Refused, about
from partitioning.kinds import Kind
from partitioning.model.streams import Stream
from partitioning.sections import many


def land(named: str, stream: str, file: Path, *, as_json: bool) -> None:
    """Land the rows of a file as records of a stream, and say where they are."""
    declared = _stream(named, stream)
    rows = read_rows(file, declared)
    landed = land_rows(declared, rows)
    if as_json:
        show_json({"stream": stream, "source": declared.source, "landed": [str(each) for each in landed]})
        return
    if not landed:
        show(f"Nothing to land: {file} has no rows")
        return
    show(f"Landed {many(rows.num_rows, 'row')} in {declared.source}: {', '.join(map(str, landed))}")


def rows(named: str, root: str, table: str | None, most: int, *, as_json: bool) -> None:
    """The first rows of a pipeline's result tables."""
    tables = [table] if table else [write.table for write in pipelines.load(named).writes]
    found = [(name, first_rows(root, name, most)) for name in tables]
    if as_json:
        show_json(
            [
                {"table": name, "version": each.version, "rows": each.of, "first": to_builtins(each.rows.to_pylist())}
                for name, each in found
            ]
        )
        return
    for name, each in found:
        left_out = f", the first {most:,}" if each.of > most else ""
        title = f"Table {name}, version {each.version}: {many(each.of, 'row')}{left_out}"
        show_table(title, each.rows.column_names, [list(row.values()) for row in each.rows.to_pylist()])


def _stream(named: str, name: str) -> Stream:
    streams = {stream.name: stream for stream in pipelines.load(named).streams}
    if name not in streams:
        then = f"name one of {', '.join(streams)}"
        raise Refused(Finding(Kind.ARGUMENT, f"the pipeline has no stream {name!r}", named, then, about(stream=name)))
    return streams[name]
