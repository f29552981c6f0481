"""Earlier owners: what pipelines that owned a table before have appended to it, by their ledgers.

A new owner knows nothing of that, and reads streams from their start: it would append rows of the same records again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from coset.batches.tables.delta import newest_in
from coset.batches.tables.logs import Logs, opened
from coset.batches.tables.others import accepted_up_to
from coset.batches.tables.owners import earlier_owners
from partitioning.authoring.pipeline import Pipeline
from partitioning.commands import AcceptChanges, HandOver
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.errors import Finding
from partitioning.kinds import Kind
from partitioning.model.graph import Graph
from partitioning.model.offsets import OffsetRange, Span, StreamPartition
from partitioning.model.plan import Plan
from partitioning.model.read_ends import Ends
from partitioning.model.streams import Discovered, Stream
from partitioning.planning.origins import graph_of
from partitioning.sections import many
from spark_jobs.tables.table_schema import folder


def appended_again(
    store: Store,
    pipeline: Pipeline,
    discovered: Sequence[Discovered],
    ends: Ends,
    starts: Mapping[str, int],
    logs: Logs,
) -> Iterator[Finding]:
    """A finding for each earlier owner of a table that has appended rows of records which the pipeline is to append
    rows of: those that its next batches read from `ends` and `starts` on. What was accepted in the table's log is none.
    """
    for table in [write.table for write in pipeline.writes if write.mode.only_adds]:
        with opened(folder(store, table), logs) as log:
            if log is None or not (earlier := earlier_owners(log)) or not log.get_add_actions().num_rows:
                continue
            unread = _unread(_appended(pipeline.graph, table), discovered, ends, starts)
            accepted, newest = accepted_up_to(log, table), log.version()
            held = {name: newest_in(log, name, table) for name, last in earlier.items() if last > accepted}
        for name, batch in held.items():
            if batch is not None and unread and name != pipeline.name:
                yield from _findings(Ledger(store, name), batch, table, unread, ends, newest, pipeline.name)


def _appended(graph: Graph, table: str) -> tuple[Stream, ...]:
    """The streams whose records a table gets appended rows of, each record once."""
    steps = [write.step for write in graph.writes if write.table == table and write.mode.only_adds]
    names = {name for step in steps for name in graph.above(step)}
    return tuple(stream for stream in graph.streams if stream.name in names and not stream.table)


def _unread(
    streams: Sequence[Stream], discovered: Sequence[Discovered], ends: Ends, starts: Mapping[str, int]
) -> dict[StreamPartition, tuple[Stream, OffsetRange]]:
    """What a pipeline has still to read of each partition of these streams."""
    declared, found = {stream.name: stream for stream in streams}, {}
    for each in (each for each in discovered if each.stream in declared):
        for part in each.partitions:
            partition, known = StreamPartition(each.stream, part.partition), ends.end(each.stream, part.partition)
            start = known.end if known else starts.get(str(partition), part.beginning)
            if start < part.end:
                found[partition] = declared[each.stream], OffsetRange(partition, start, part.end)
    return found


def _findings(
    ledger: Ledger,
    newest_batch: int,
    table: str,
    unread: Mapping[StreamPartition, tuple[Stream, OffsetRange]],
    ends: Ends,
    version: int,
    pipeline: str,
) -> Iterator[Finding]:
    plan, counts, behind = ledger.published_before(newest_batch + 1), dict[str, int](), dict[StreamPartition, int]()
    while plan is not None:
        for partition, upto, records in _overlaps(plan, table, unread):
            counts[partition.stream] = counts.get(partition.stream, 0) + records
            behind[partition] = max(upto, behind.get(partition, 0))
        plan = ledger.published_before(plan.batch)
    if not counts:
        return
    of = " and ".join(f"{many(count, 'record')} of {stream}" for stream, count in counts.items())
    what = (
        f"pipeline {ledger.pipeline!r}, which the table belonged to before, has appended rows of {of}, "
        f"which {pipeline!r} has still to read: it would append rows of them again, and they would count twice"
    )
    begin = ""
    if not any(ends.end(each.stream, each.partition) for each in behind):
        told = [f"{partition} = {behind[partition]}" for partition in sorted(behind, key=str)]
        begin = f"; or begin behind them, with [starts] {', '.join(told)} in the settings"
    then = (
        f"name the pipeline {ledger.pipeline!r} again, and give the table back: ",
        HandOver(table, pipeline, ledger.pipeline),
        f"; or write to a table of another name{begin}; or, if they are to count twice, ",
        AcceptChanges(table, version),
    )
    yield Finding.of(Kind.TABLE_AGAIN, what, folder(ledger.store, table), then, table=table, owner=ledger.pipeline)


def _overlaps(
    plan: Plan, table: str, unread: Mapping[StreamPartition, tuple[Stream, OffsetRange]]
) -> Iterator[tuple[StreamPartition, int, int]]:
    """The partitions of which a plan's batch appended rows of what is unread, up to which offset, and how many."""
    appended = {stream.name for stream in _appended(graph_of(plan), table)}
    for stream in (stream for stream in plan.streams if stream.name in appended):
        for part in stream.partitions:
            declared, left = unread.get(StreamPartition(stream.name, part.partition), (None, None))
            if declared is None or left is None or not _same_records(declared, stream.declared):
                continue
            span = Span(max(part.start, left.start), min(part.end, left.end))
            if span.start < span.end:
                yield left.partition, span.end, part.within(span).records


def _same_records(one: Stream, other: Stream) -> bool:
    """Whether an offset is of the same record in both streams of a name: a topic is read landed or in its broker."""
    return one.source.rstrip("/") == other.source.rstrip("/") or type(one.origin) is not type(other.origin)
