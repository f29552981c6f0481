"""A trial on the command line: rows of one's own go in, and rows of result tables come out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path

from coset.batches.planning import agreed
from coset.batches.step_rows import Sample, step_rows
from coset.batches.tables.first_rows import FirstRows, first_rows
from coset.cli import pipelines
from coset.cli.other_stores import to_begin
from coset.cli.output import Answer, Block, Table, tracked
from coset.cli.status import newest
from coset.sources import landing
from partitioning.authoring.pipeline import Pipeline
from partitioning.commands import Run
from partitioning.documents.ledger import Ledger
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.streams import Stream
from partitioning.sections import many


def land(named: str, stream: str, file: Path) -> Answer:
    """Land the rows of a file as records of a stream, and say where they are."""
    declared = _stream(named, stream)
    landed = landing.land(declared, file, partial(tracked, what="stream partitions", name=f"land {stream}"))
    said = f"Landed {many(sum(map(len, landed)), 'row')} in {declared.source}: {', '.join(map(str, landed))}"
    value = {"stream": stream, "source": declared.source, "landed": map(str, landed)}
    return Answer(value, [said if landed else f"Nothing to land: {file} has no rows"])


def rows(named: str, root: str, table: str | None, most: int) -> Answer:
    """The first rows of a pipeline's result tables. Raises Refused too if these do not hold what was published."""
    pipeline, store = pipelines.load(named), store_at(root)
    agreed(pipeline, store)
    tables = pipelines.tables_of(pipeline, named, [table] if table else [])
    found = [(name, first_rows(store, name, most, pipeline.private)) for name in tables]

    @cache
    def begin() -> Sequence[str]:
        stands = (ledger := Ledger(store, pipeline.name)).standing()
        batch, needs, then = newest(ledger, stands)
        if stands.open and then:
            return batch, *needs, then
        return (f"Next: {pipelines.shown().line(Run(pipeline.name), *to_begin(pipeline.name, root))}",)

    value = ({"table": name} | _plain(each) for name, each in found)
    return Answer(value, (block for name, each in found for block in _shown(name, each, most, begin)))


def step(named: str, name: str | None, sample: Sample, most: int) -> Answer:
    """Rows of a step of a pipeline, of the last result table's by default, made of what has landed."""
    pipeline = pipelines.load(named)
    name = name or _last(pipeline)
    found = step_rows(pipeline, name, sample, most, partial(tracked, what="task groups", name=f"make rows of {name}"))
    if found is None:
        return Answer({"step": name, "rows": [], "of": 0, "looked": 0, "landed": 0}, ["Nothing has landed yet"])
    looked = f"{found.looked:,} of {many(found.landed, 'record')} that have landed, {sample} of each stream partition"
    left_out = f", the first {most:,} by their columns" if found.of > most else ""
    title = f"Step {name}: {many(found.of, 'row')}{left_out}"
    table = Table(title, found.rows.column_names, [list(row.values()) for row in found.rows.to_pylist()])
    value = {"step": name, "rows": found.rows.to_pylist()}
    figures = {"of": found.of, "looked": found.looked, "landed": found.landed}
    return Answer(value | figures, [table, f"Looked at {looked}. Nothing is stored"])


def _last(pipeline: Pipeline) -> str:
    if not pipeline.writes:
        names = [*(stream.name for stream in pipeline.streams), *(step.name for step in pipeline.steps)]
        then = f"name one of {', '.join(names)}"
        what = "the pipeline writes no table, and no step is named"
        raise Refused.of(Kind.ARGUMENT, what, "--step", then, pipeline=pipeline.name)
    return pipeline.writes[-1].step


def _shown(name: str, found: FirstRows | None, most: int, begin: Callable[[], Sequence[str]]) -> Iterator[Block]:
    if found is None:
        yield f"Table {name}: nothing is published to it yet"
        yield from begin()
    else:
        left_out = f", the first {most:,}" if found.of > most else ""
        title = f"Table {name}, version {found.version}: {many(found.of, 'row')}{left_out}"
        yield Table(title, found.rows.column_names, [list(row.values()) for row in found.rows.to_pylist()])


def _stream(named: str, name: str) -> Stream:
    streams = {stream.name: stream for stream in pipelines.load(named).streams}
    if name not in streams:
        then = f"name one of {', '.join(streams)}"
        raise Refused.of(Kind.ARGUMENT, f"the pipeline has no stream {name!r}", named, then, stream=name)
    return streams[name]


def _plain(found: FirstRows | None) -> dict[str, object]:
    """The rows for programs."""
    if found is None:
        return {"version": None, "rows": 0, "first": []}
    return {"version": found.version, "rows": found.of, "first": found.rows.to_pylist()}
