"""Stages: cut the logical graph into parts that run without moving records, and choose L for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from partitioning.assignment import Task, assign
from partitioning.cosets import needs_filter
from partitioning.errors import Finding, Refused
from partitioning.graph import Step
from partitioning.pipeline import Pipeline
from partitioning.placement import OPAQUE, Placement
from partitioning.plan import STREAM, Input, PlannedWrite, Stage
from partitioning.schemes import COGROUP, MAX, Scheme
from partitioning.streams import OWN_TASK, Column, Stream


def cut(
    pipeline: Pipeline, results: Mapping[str, tuple[Column, ...]], scheme: Scheme | None = None
) -> tuple[Stage, ...]:
    """The stages of a pipeline: streams that meet in a step are in one stage, others are not.

    `results` gives each table's columns. `scheme` overrides the pipeline's own; without either a stage
    with keyed steps gets `cogroup` and one without gets `max`.

    Raises Refused, with all findings, if a stream or step leads to no table or a scheme does not fit.
    """
    findings = list(_unwritten(pipeline))
    stages = []
    for streams in _components(pipeline):
        try:
            stages.append(_stage(pipeline, streams, results, scheme or pipeline.scheme))
        except Refused as refusal:
            findings.extend(refusal.findings)
    if findings:
        raise Refused(*findings)
    return tuple(stages)


def _stage(
    pipeline: Pipeline,
    streams: tuple[Stream, ...],
    results: Mapping[str, tuple[Column, ...]],
    scheme: Scheme | None,
) -> Stage:
    name = "+".join(stream.name for stream in streams)
    roots = _roots(pipeline)
    steps = tuple(step for step in pipeline.steps if roots[step.name] & {s.name for s in streams})
    writes = tuple(
        PlannedWrite(write, results[write.table])
        for write in pipeline.writes
        if roots[write.step] & {s.name for s in streams}
    )
    keyed = any(step.keyed for step in steps)
    chosen = scheme or (COGROUP if keyed else MAX)
    assignment = assign([(stream.name, stream.partitions) for stream in streams], chosen)
    cosets = len(assignment.tasks)
    if findings := _misfits(name, streams, steps, chosen, cosets):
        raise Refused(*findings)
    tasks = assignment.tasks + _null_key_task(streams, cosets)
    return Stage(
        name,
        tuple(
            Input(each.name, STREAM, each.name, Placement(each.key, each.key_format, each.placement, each.partitions))
            for each in streams
        ),
        steps,
        writes,
        str(chosen),
        cosets,
        _why(streams, chosen, cosets, keyed, given=scheme is not None),
        tasks,
    )


def _null_key_task(streams: tuple[Stream, ...], number: int) -> tuple[Task, ...]:
    reads = {stream.name: tuple(range(stream.partitions)) for stream in streams if stream.null_keys == OWN_TASK}
    return (Task(number, reads, null_keys=True),) if reads else ()


def _misfits(
    stage: str, streams: tuple[Stream, ...], steps: tuple[Step, ...], scheme: Scheme, cosets: int
) -> list[Finding]:
    where = f"stage {stage}"
    findings = []
    keyed = [step.name for step in steps if step.keyed]
    if scheme == MAX and keyed:
        findings.append(
            Finding(
                f"scheme max keeps no keys together, but {', '.join(keyed)} needs them together",
                where,
                "use cogroup, elastic(F) or tasks(L)",
            )
        )
    for noun, values in (
        ("key formats", {stream.name: stream.key_format for stream in streams}),
        ("placements", {stream.name: stream.placement for stream in streams}),
    ):
        if len(set(values.values())) > 1:
            listed = ", ".join(f"{name}: {value}" for name, value in values.items())
            findings.append(
                Finding(
                    f"streams that meet have different {noun} ({listed}); equal keys would not meet",
                    where,
                    "declare what their producers really use; a stream placed otherwise needs an exchange",
                )
            )
    findings.extend(
        Finding(
            f"placement of {stream.name} is {OPAQUE}, so its records cannot be told apart by hash, "
            f"and {cosets} tasks do not divide its {stream.partitions} partitions",
            where,
            "use cogroup, or a number of tasks that divides all partition counts",
        )
        for stream in streams
        if stream.placement == OPAQUE and needs_filter(cosets, stream.partitions)
    )
    return findings


def _why(streams: tuple[Stream, ...], scheme: Scheme, cosets: int, keyed: bool, *, given: bool) -> str:
    counts = ", ".join(str(stream.partitions) for stream in streams)
    filtered = [stream.name for stream in streams if needs_filter(cosets, stream.partitions)]
    rule = {
        "max": f"one task per stream partition, {cosets} in all",
        "cogroup": f"gcd({counts}) = {cosets}",
        "elastic": f"{scheme.number} × gcd({counts}) = {cosets}",
        "tasks": f"{cosets} as asked",
    }[scheme.kind]
    if scheme == MAX:
        reading = "whole partitions, no filter"
    elif filtered:
        reading = f"{' and '.join(filtered)} filtered by h(key) mod {cosets}"
    else:
        reading = "whole partitions, no filter"
    source = "as given" if given else ("default where keys must meet" if keyed else "default where none meet")
    return f"{rule}; {reading}; {source}"


def _roots(pipeline: Pipeline) -> dict[str, frozenset[str]]:
    """For each stream and step, the streams that it comes from."""
    roots = {stream.name: frozenset({stream.name}) for stream in pipeline.streams}
    for step in pipeline.steps:
        roots[step.name] = frozenset[str]().union(*(roots[name] for name in step.inputs))
    return roots


def _components(pipeline: Pipeline) -> list[tuple[Stream, ...]]:
    """Streams that meet in some step, directly or through others, in declared order."""
    component = {stream.name: {stream.name} for stream in pipeline.streams}
    for met in _roots(pipeline).values():
        merged = set().union(*(component[name] for name in met))
        for name in merged:
            component[name] = merged
    seen: set[str] = set()
    found = []
    for stream in pipeline.streams:
        if stream.name not in seen:
            seen |= component[stream.name]
            found.append(tuple(s for s in pipeline.streams if s.name in component[stream.name]))
    return found


def _unwritten(pipeline: Pipeline) -> Sequence[Finding]:
    used = {write.step for write in pipeline.writes}
    for step in reversed(pipeline.steps):
        if step.name in used:
            used.update(step.inputs)
    names = [stream.name for stream in pipeline.streams] + [step.name for step in pipeline.steps]
    if not names:
        return [Finding("the pipeline has no streams", f"pipeline {pipeline.name!r}", "declare one with .stream()")]
    return [
        Finding(f"{name!r} leads to no table", f"pipeline {pipeline.name!r}", "write it with .write(), or remove it")
        for name in names
        if name not in used
    ]
