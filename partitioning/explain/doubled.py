"""Doubles: records that lie in several files, of which a batch reads one."""

from __future__ import annotations

from collections.abc import Iterator

from partitioning.model.offsets import OffsetRange, StreamPartition
from partitioning.model.plan import Plan
from partitioning.model.streams import InputFile
from partitioning.sections import Section, many, section


def doubles(plan: Plan) -> Iterator[Section]:
    """The doubles that planning found, if there are any."""
    rows = [
        (str(_range(stream.name, planned.partition, double)), f"{double.records:,}", _name(double))
        for stream in plan.streams
        for planned in stream.partitions
        for double in planned.doubles
    ]
    if rows:
        yield section("Doubles", ("offsets", "records", "file"), rows, [said(plan)])


def said(plan: Plan) -> str:
    """How many records are doubles, and that each counts once; nothing if there are none."""
    inside = behind = 0
    for planned in (planned for stream in plan.streams for planned in stream.partitions):
        for double in planned.doubles:
            held = double.held(max(double.start, planned.start), min(double.end, planned.end))
            inside += held
            behind += double.held(double.start, min(double.end, planned.start)) if double.start < planned.start else 0
    found = [
        *([f"{many(inside, 'record')} of this batch"] if inside else []),
        *([f"{many(behind, 'record')} that earlier batches read"] if behind else []),
    ]
    if not found:
        return ""
    return f"Other files have {' and '.join(found)} once more. Planning found the same in them: each counts once."


def _range(stream: str, number: int, double: InputFile) -> OffsetRange:
    return OffsetRange(StreamPartition(stream, number), double.start, double.end)


def _name(double: InputFile) -> str:
    return double.path.rpartition("/")[2]
