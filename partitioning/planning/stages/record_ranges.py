"""Ranges: whether the tasks of a stage may each take a range of a stream partition's offsets, and what then moves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.errors import Finding, Refused, about
from partitioning.kinds import Kind
from partitioning.model.graph import Graph, Op
from partitioning.model.statistics import Statistics
from partitioning.model.streams import NullKeys, Stream
from partitioning.planning.exchanges.cuts import cuts
from partitioning.planning.stages.scheme_choice import Choice, choices, chosen_schemes
from partitioning.planning.stages.waves import StageOutline, waves
from partitioning.values import replace


def spread(pipeline: Pipeline, settings: Settings, statistics: Statistics) -> Graph:
    """The graph to plan. Partial steps whose tasks are to take ranges leave rows of a key in several tasks.

    So these have to move before they are combined, also if their key is the one by which the stream lies.
    """
    graph = pipeline.graph
    if not any(scheme.most_records for scheme in chosen_schemes(pipeline, settings)):
        return graph
    parts = waves(*cuts(graph, statistics)).parts
    try:
        chosen = choices(pipeline, settings, parts)
    except Refused:
        # It is refused again when the stages are cut, with all else that is wrong.
        return graph
    in_ranges = {
        step.name
        for part, choice in zip(parts, chosen, strict=True)
        if choice.scheme is not None and choice.scheme.most_records
        for step in part.steps
        if step.op is Op.PARTIAL
    }
    steps = tuple(replace(step, rekeys=True) if step.name in in_ranges else step for step in graph.steps)
    return replace(graph, steps=steps)


def unfit(part: StageOutline, choice: Choice, streams: Sequence[Stream]) -> Iterator[Finding]:
    """What keeps a part that was given a scheme `records` from that: `streams` are those that it reads."""
    where, scheme = f"stage {part.name}", choice.scheme
    keyed = [step for step in part.steps if step.keyed]
    if keyed:
        names = ", ".join(step.name for step in keyed)
        what = f"scheme {scheme} keeps no keys together, but {names} needs them together"
        yield Finding(
            Kind.SCHEME, what, where, _instead([step.op for step in keyed]), about(scheme=scheme, names=names)
        )
    if choice.partitioner is not None:
        what = f"scheme {scheme} keeps no keys together, so a partitioner has none to deal"
        yield Finding(
            Kind.SCHEME,
            what,
            where,
            "leave the partitioner out, or use cogroup, elastic(F) or tasks(L)",
            about(scheme=scheme),
        )
    if not streams:
        what = f"it reads no stream, so there are no offsets for {scheme} to deal"
        yield Finding(Kind.SCHEME, what, where, "leave the scheme to stages that read streams", about(scheme=scheme))
    for stream in streams:
        if stream.table:
            what = f"{stream.name} is a table: of each key only the latest record counts, wherever that lies"
            yield Finding(
                Kind.SCHEME, what, where, f"leave {scheme} to stages that read no table", about(stream=stream.name)
            )
        if stream.null_keys is NullKeys.OWN_TASK:
            what = f"records of {stream.name} without a key have a task of their own, which reads whole partitions"
            yield Finding(
                Kind.SCHEME,
                what,
                where,
                f'declare null_keys="drop" or "refuse", or leave {scheme} out',
                about(stream=stream.name),
            )


def _instead(ops: Sequence[Op]) -> str:
    """What to do where steps need keys together."""
    others = "cogroup, elastic(F) or tasks(L)"
    if all(op in (Op.AGGREGATE, Op.COMBINE) for op in ops):
        return f"aggregate by partial() and combine(), and give the scheme to the partial step alone; or use {others}"
    return f"use {others}, which deal records by key"
