"""A trial on the command line: rows of one's own go in, and rows of result tables come out."""

from __future__ import annotations

from pathlib import Path

import msgspec

from coset.batches.tables.first_rows import FirstRows, first_rows
from coset.cli import pipelines
from coset.cli.output import show, show_json, show_table
from coset.sources import landing
from partitioning.commands import Run
from partitioning.errors import Finding, Refused, about
from partitioning.kinds import Kind
from partitioning.model.streams import Stream
from partitioning.sections import many


def land(named: str, stream: str, file: Path, *, as_json: bool) -> None:
    """Land the rows of a file as records of a stream, and say where they are."""
    declared = _stream(named, stream)
    landed = landing.land(declared, file)
    if as_json:
        show_json({"stream": stream, "source": declared.source, "landed": [str(each) for each in landed]})
    elif not landed:
        show(f"Nothing to land: {file} has no rows")
    else:
        count = many(sum(map(len, landed)), "row")
        show(f"Landed {count} in {declared.source}: {', '.join(map(str, landed))}")


def rows(named: str, root: str, table: str | None, most: int, *, as_json: bool) -> None:
    """The first rows of a pipeline's result tables."""
    found = [(name, first_rows(root, name, most)) for name in _tables(named, table)]
    if as_json:
        show_json([{"table": name} | _plain(each) for name, each in found])
        return
    for name, each in found:
        if each is None:
            then = pipelines.shown().line(Run(pipelines.load(named).name))
            show(f"Table {name}: nothing is published to it yet", f"Next: {then}")
            continue
        left_out = f", the first {most:,}" if each.of > most else ""
        title = f"Table {name}, version {each.version}: {many(each.of, 'row')}{left_out}"
        show_table(title, each.rows.column_names, [list(row.values()) for row in each.rows.to_pylist()])


def _stream(named: str, name: str) -> Stream:
    streams = {stream.name: stream for stream in pipelines.load(named).streams}
    if name not in streams:
        then = f"name one of {', '.join(streams)}"
        raise Refused(Finding(Kind.ARGUMENT, f"the pipeline has no stream {name!r}", named, then, about(stream=name)))
    return streams[name]


def _tables(named: str, table: str | None) -> list[str]:
    tables = [write.table for write in pipelines.load(named).writes]
    if table is None:
        return tables
    if table not in tables:
        then = f"name one of {', '.join(tables)}"
        what = f"the pipeline writes no table {table!r}"
        raise Refused(Finding(Kind.TABLE_UNKNOWN, what, named, then, about(table=table)))
    return [table]


def _plain(found: FirstRows | None) -> dict[str, object]:
    """The rows as JSON has them, where a float that is no number is null."""
    if found is None:
        return {"version": None, "rows": 0, "first": []}
    first = msgspec.json.decode(msgspec.json.encode(found.rows.to_pylist()))
    return {"version": found.version, "rows": found.of, "first": first}
