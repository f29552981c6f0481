"""Scheme choice: the scheme and the partitioner that settings and pipeline name for each stage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.errors import Finding, refuse
from partitioning.kinds import Kind
from partitioning.model.graph import Op
from partitioning.model.schemes import COGROUP, MAX, Scheme
from partitioning.planning.stages.draft import Choice, StageDraft
from partitioning.values import replace

T = TypeVar("T")


def default_scheme(choice: Choice, *, keeps_keys: bool) -> Scheme:
    """The scheme of a stage that none was chosen for: `max`, unless equal keys or key shares have to stay together."""
    return COGROUP if keeps_keys or choice.partitioner else MAX


def with_choices(drafts: Sequence[StageDraft], pipeline: Pipeline, settings: Settings) -> tuple[StageDraft, ...]:
    """The drafts with what is chosen for them. Settings win over the pipeline, and what names a stage or a step of it
    over the rest.

    Raises Refused, with all findings, for names that are no stage's or step's and for steps of one stage that
    are given different things.
    """
    findings = list(_unknown(pipeline, settings, drafts))
    chosen = []
    for draft in drafts:
        names = (draft.name, *(step.name for step in draft.steps))
        candidates: list[tuple[Scheme, bool]] = []
        for by_name, for_all in ((settings.schemes, settings.scheme), (pipeline.schemes, pipeline.scheme)):
            candidates.extend((scheme, True) for scheme in _one("schemes", by_name, names, draft, findings))
            if for_all is not None:
                candidates.append((for_all, False))
        partitioners = [
            partitioner
            for by_name in (settings.partitioners, pipeline.partitioners)
            for partitioner in _one("partitioners", by_name, names, draft, findings)
        ]
        scheme, named = candidates[0] if candidates else (None, False)
        chosen.append(replace(draft, choice=Choice(scheme, named, partitioners[0] if partitioners else None)))
    refuse(findings)
    return tuple(chosen)


def chosen_schemes(pipeline: Pipeline, settings: Settings) -> tuple[Scheme, ...]:
    """All schemes that settings and pipeline name, for any stage."""
    named = (settings.scheme, pipeline.scheme, *settings.schemes.values(), *pipeline.schemes.values())
    return tuple(scheme for scheme in named if scheme is not None)


def _one(
    noun: str, by_name: Mapping[str, T], names: Sequence[str], draft: StageDraft, findings: list[Finding]
) -> Iterator[T]:
    """The choice for a stage under any of its names. Different choices are a finding."""
    chosen = {name: by_name[name] for name in names if name in by_name}
    if len({str(choice) for choice in chosen.values()}) > 1:
        listed = ", ".join(f"{name}: {choice}" for name, choice in chosen.items())
        what = f"one stage is given different {noun} ({listed})"
        findings.append(Finding.of(Kind.SCHEME, what, f"stage {draft.name}", "give it one of them", listed=listed))
    yield from list(chosen.values())[:1]


def _unknown(pipeline: Pipeline, settings: Settings, drafts: Sequence[StageDraft]) -> Iterator[Finding]:
    steps = [step for draft in drafts for step in draft.steps]
    known = {draft.name for draft in drafts} | {step.name for step in steps}
    combines = {step.name for step in steps if step.op is Op.COMBINE}
    for where, chosen in (
        ("schemes in the settings", settings.schemes),
        ("partitioners in the settings", settings.partitioners),
        (f"schemes of pipeline {pipeline.name!r}", pipeline.schemes),
        (f"partitioners of pipeline {pipeline.name!r}", pipeline.partitioners),
    ):
        for name in chosen:
            if name not in known:
                listed = ", ".join(draft.name for draft in drafts)
                what = f"there is no stage or step {name!r}"
                yield Finding.of(Kind.NAME, what, where, f"name a step, or one of these stages: {listed}", name=name)
    for name in settings.fan_in:
        if name not in combines:
            listed = ", ".join(sorted(combines)) or "there is none"
            what = f"there is no combine step {name!r}"
            yield Finding.of(Kind.NAME, what, "fan_in in the settings", f"name a combine: {listed}", name=name)
