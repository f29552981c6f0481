"""Choices: the scheme and the partitioner that settings and pipeline name for each stage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import PartitionerRef, Settings
from partitioning.errors import Finding, Refused
from partitioning.model.schemes import Scheme
from partitioning.planning.stages.waves import Part

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen for a stage, None where nothing was. `named` if the scheme is for this stage and not for all."""

    scheme: Scheme | None
    named: bool
    partitioner: PartitionerRef | str | None


def choices(pipeline: Pipeline, settings: Settings, parts: Sequence[Part]) -> tuple[Choice, ...]:
    """The choice for each part. Settings win over the pipeline, and what names a stage or a step of it over the rest.

    Raises Refused, with all findings, for names that are no stage's or step's and for steps of one stage that
    are given different things.
    """
    findings = list(_unknown(pipeline, settings, parts))
    chosen = []
    for part in parts:
        names = (part.name, *(step.name for step in part.steps))
        found: list[tuple[Scheme, bool]] = []
        for schemes, scheme in ((settings.schemes, settings.scheme), (pipeline.schemes, pipeline.scheme)):
            found.extend((each, True) for each in _one("schemes", schemes, names, part, findings))
            found.extend([(scheme, False)] if scheme is not None else [])
        partitioners = [
            each
            for given in (settings.partitioners, pipeline.partitioners)
            for each in _one("partitioners", given, names, part, findings)
        ]
        scheme, named = found[0] if found else (None, False)
        chosen.append(Choice(scheme, named, partitioners[0] if partitioners else None))
    if findings:
        raise Refused(*findings)
    return tuple(chosen)


def _one(what: str, given: Mapping[str, T], names: Sequence[str], part: Part, findings: list[Finding]) -> Iterator[T]:
    """What is given for a part under any of its names; a finding if that differs."""
    found = {name: given[name] for name in names if name in given}
    if len({str(each) for each in found.values()}) > 1:
        listed = ", ".join(f"{name}: {each}" for name, each in found.items())
        findings.append(
            Finding(f"one stage is given different {what} ({listed})", f"stage {part.name}", "give it one of them")
        )
    yield from list(found.values())[:1]


def _unknown(pipeline: Pipeline, settings: Settings, parts: Sequence[Part]) -> Iterator[Finding]:
    steps = [step for part in parts for step in part.steps]
    known = {part.name for part in parts} | {step.name for step in steps}
    combines = {step.name for step in steps if step.op == "combine"}
    for where, given in (
        ("schemes in the settings", settings.schemes),
        ("partitioners in the settings", settings.partitioners),
        (f"schemes of pipeline {pipeline.name!r}", pipeline.schemes),
        (f"partitioners of pipeline {pipeline.name!r}", pipeline.partitioners),
    ):
        for name in given:
            if name not in known:
                listed = ", ".join(part.name for part in parts)
                yield Finding(
                    f"there is no stage or step {name!r}", where, f"name a step, or one of these stages: {listed}"
                )
    for name in settings.fan_in:
        if name not in combines:
            listed = ", ".join(sorted(combines)) or "there is none"
            yield Finding(f"there is no combine step {name!r}", "fan_in in the settings", f"name a combine: {listed}")
