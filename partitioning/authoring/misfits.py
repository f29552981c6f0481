"""Checks of steps: why flows cannot be re-keyed, combined or written."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

from partitioning.errors import Finding, about
from partitioning.kinds import Kind
from partitioning.model.graph import Join, Mode, Op
from partitioning.model.placement import KeyFormat
from partitioning.numbers import DAYS
from partitioning.values import replace

if TYPE_CHECKING:
    from partitioning.authoring.flow import Flow


def bad_key(key: str, key_format: str, where: str) -> Iterator[Finding]:
    """What is wrong with a new key column."""
    if not key:
        yield Finding(
            Kind.KEYS_DO_NOT_MEET,
            "'' cannot be the key column",
            where,
            "name the column that holds the key",
            about(key=key),
        )
    if key_format not in tuple(KeyFormat):
        yield Finding(
            Kind.DECLARATION,
            f"unknown key format {key_format!r}",
            where,
            f"use one of {', '.join(KeyFormat)}",
            about(key_format=key_format),
        )


def no_key(flow: Flow, where: str) -> Finding:
    """The finding that a flow needs a key for this."""
    return Finding(Kind.KEYS_DO_NOT_MEET, f"{flow.step} has no key", where, "rekey it first", about(step=flow.step))


def unfinished(op: Op | None, flows: Sequence[Flow]) -> Iterator[Finding]:
    """The finding that a partial flow must be combined first, since its number of rows depends on the number of
    tasks."""
    for flow in flows:
        if flow.unfinished and op is not Op.COMBINE:
            what = f"{flow.step} is partial: it has a row per key of each task"
            yield Finding(
                Kind.DECLARATION, what, f"{op or 'write'} of {_and(flows)}", "combine it first", about(step=flow.step)
            )


def cannot_meet(op: Op, how: str, flows: Sequence[Flow]) -> Iterator[Finding]:
    """Why `op`, a join of the kind `how` or another, cannot combine flows."""
    where = f"{op} of {_and(flows)}"
    if how not in tuple(Join):
        yield Finding(Kind.DECLARATION, f"unknown join {how!r}", where, f"use {', '.join(Join)}", about(how=how))
    if len(flows) == 1 and op is not Op.SPARK:
        yield Finding(Kind.DECLARATION, f"there is nothing to {op} with", where, "name another flow", about(op=op))
    if any(flow.pipeline is not flows[0].pipeline for flow in flows):
        yield Finding(
            Kind.DECLARATION,
            "the flows are of different pipelines",
            where,
            "declare their streams in one",
            about(flows=[flow.step for flow in flows]),
        )
    yield from unfinished(op, flows)
    if op is Op.MERGE:
        yield from _unlike(flows, where)
    else:
        yield from (no_key(flow, where) for flow in flows if not flow.key)
        # A function gets flows by position, not by name.
        aliases = [flow.alias.lower() for flow in flows if op is not Op.SPARK]
        for alias in sorted({alias for alias in aliases if aliases.count(alias) > 1}):
            what = f"SQL cannot tell the flows apart: two are named {alias!r}"
            yield Finding(Kind.NAME, what, where, "give the step before one of them a name=", about(alias=alias))


def cannot_keep(flow: Flow, op: Op, times: Mapping[str, timedelta]) -> Iterator[Finding]:
    """Why a flow's records cannot be kept by key for these times (by name, each at least as long as the one before)."""
    where = f"{op} of {flow.step}"
    if not flow.key:
        yield no_key(flow, where)
    for name, time in times.items():
        if time <= timedelta(0):
            yield Finding(
                Kind.DECLARATION, f"{name} is {time}", where, "give a time above 0", about(name=name, time=time)
            )
        elif finding := DAYS.finding(math.ceil(time / timedelta(days=1)), where):
            yield replace(
                finding, what=f"{name} in days: {finding.what}", about=about(name=name, **dict(finding.about))
            )
    for (name, time), (longer, most) in pairwise(times.items()):
        if most < time:
            yield Finding(
                Kind.DECLARATION,
                f"{longer} is {most}, {name} is {time}",
                where,
                f"keep for as long as {name}, or longer",
                about(longer=longer, most=most, name=name, time=time),
            )


def cannot_write(flow: Flow, table: str, mode: str, deletes: str | None) -> Iterator[Finding]:
    """Why a flow cannot be written to a table in that mode."""
    where = f"write of {flow.step}"
    if any(write.table == table for write in flow.pipeline.writes):
        yield Finding(
            Kind.NAME,
            f"table {table!r} is written twice",
            flow.pipeline.name,
            "write each table once",
            about(table=table),
        )
    yield from unfinished(None, [flow])
    if mode not in tuple(Mode):
        yield Finding(Kind.DECLARATION, f"unknown mode {mode!r}", where, f"use {', '.join(Mode)}", about(mode=mode))
    if mode == Mode.UPSERT and not flow.key:
        yield no_key(flow, where)
    if mode != Mode.UPSERT and deletes is not None:
        yield Finding(
            Kind.DECLARATION,
            f"mode {mode!r} deletes nothing",
            where,
            f"leave deletes out, or use mode={Mode.UPSERT.value!r}",
            about(mode=mode),
        )


def _unlike(flows: Sequence[Flow], where: str) -> Iterator[Finding]:
    if len({flow.step for flow in flows}) < len(flows):
        yield Finding(
            Kind.DECLARATION,
            "a flow is merged with itself",
            where,
            "name each flow once",
            about(flows=[flow.step for flow in flows]),
        )
    if len({(flow.key, flow.key_format) for flow in flows}) > 1:
        listed = ", ".join(f"{flow.step}: {flow.key or 'none'} ({flow.key_format})" for flow in flows)
        yield Finding(
            Kind.KEYS_DO_NOT_MEET,
            f"flows to merge have different keys ({listed})",
            where,
            "rekey them alike",
            about(listed=listed),
        )


def _and(flows: Sequence[Flow]) -> str:
    return " and ".join(flow.step for flow in flows)
