"""What a pipeline has read and does not read now, and what it is let forget, on the command line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import to_builtins

from coset.batches.ends import Known, forget
from coset.cli import pipelines
from coset.cli.output import Answer, check_reason
from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.ledger import Ledger
from partitioning.documents.stores import store_at
from partitioning.model.offsets import StreamPartition
from partitioning.model.read_ends import End, Ends, What
from partitioning.sections import MOST_ROWS, many


def forgotten(named: str, root: str, stream: str, partition: int | None, what: What, why: str) -> Answer:
    """Let the pipeline forget, and say what follows from it."""
    check_reason(why, "why it is forgotten")
    made = forget(Ledger(store_at(root), pipelines.load(named).name), stream, partition, what, why)
    twice, gone = made.counted_twice, [{"offsets": str(one.offsets), "what": one.what} for one in made.forgotten]
    text = (*map(str, made.forgotten), f"{many(twice, 'record')} can be counted twice; result tables stay as they are.")
    return Answer(to_builtins(made) | {"forgotten": gone, "counted_twice": twice}, text)


def not_read(pipeline: Pipeline, ends: Ends) -> Iterator[tuple[StreamPartition, End]]:
    """The stream partitions that batches have read, and that the pipeline does not have any more."""
    counts = {stream.name: stream.partitions for stream in pipeline.streams}
    for read in ends.streams:
        for end in read.ends:
            if end.partition >= counts.get(read.name, 0):
                yield StreamPartition(read.name, end.partition), end


def told(unread: Sequence[tuple[StreamPartition, End]], known: Known) -> Iterator[str]:
    """What is not read any more, and what is forgotten, in sentences."""
    for partition, end in unread[:MOST_ROWS]:
        yield f"Not read any more: {partition}, committed up to offset {end.end:,} by batch {end.batch}."
    if len(unread) > MOST_ROWS:
        yield f"Not read any more: {many(len(unread) - MOST_ROWS, 'stream partition')} more."
    yield from (f"{one}." for one in known.forgotten)
