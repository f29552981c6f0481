"""Files, checked: whether those of a planned partition hold what the batch reads of it, and are its own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import assert_never

from partitioning.errors import Finding
from partitioning.model.gaps import Explained
from partitioning.model.offsets import StreamPartition
from partitioning.model.plan import Plan
from partitioning.model.sources import IcebergSource, KafkaSource, LandedSource, named_file
from partitioning.model.stage_inputs import PlannedPartition, PlannedStream
from partitioning.model.streams import InputFile, Layout
from partitioning.planning.task_coverage import unsound

_FOLDER = re.compile(r"/partition=(?P<folder>[0-9]+)/[^/]*$")


def file_findings(plan: Plan, stream: PlannedStream, planned: PlannedPartition) -> Iterator[Finding]:
    """Findings for the files of a partition: files that are missing, hold an offset twice, hold nothing of the range,
    are out of order, are planned twice, or belong to another partition, stream or topic."""
    where = str(StreamPartition(stream.name, planned.partition))
    disorder = list(_disorder(planned))
    # Files that overlap do not show what is missing.
    wrongs = [*disorder, *([] if disorder else _lacks(plan, stream, planned))]
    wrongs += [wrong for file in planned.files if (wrong := _of_another(stream, planned, file))]
    for number, wrong in enumerate(wrongs):
        yield unsound(wrong, where, number=number)


def _disorder(planned: PlannedPartition) -> Iterator[str]:
    start, end, files = planned.start, planned.end, planned.files
    for file in files:
        # An empty file shows that the records before it are gone.
        if not (max(file.start, start) < min(file.end, end) or start < file.start == file.end):
            yield f"{file.path} holds [{file.start},{file.end}), nothing of what is planned, [{start},{end})"
    for one, other in pairwise(files):
        if one == other:
            yield f"{one.path} is planned twice"
        elif other.start < one.end:
            yield f"{other.path} begins at {other.start}, before the end of {one.path}, {one.end}"


def _lacks(plan: Plan, stream: PlannedStream, planned: PlannedPartition) -> Iterator[str]:
    gaps = plan.gaps.get(StreamPartition(stream.name, planned.partition), ())
    lack = sum(gap.missing for gap in gaps)
    if hole := next((gap for gap in gaps if gap.explained is Explained.NOBODY), None):
        where = "is in no file" if hole.file is None else f"lacks {hole.missing} offsets in {hole.file}"
        yield f"{hole.offsets} {where}, and nothing says why"
    elif lack != planned.missing:
        yield f"{planned.missing} offsets are said to be missing, but its files lack {lack}"


def _of_another(stream: PlannedStream, planned: PlannedPartition, file: InputFile) -> str | None:
    """What is wrong if a file says that it belongs to another partition, stream or topic."""
    number = planned.partition
    match stream.declared.origin:
        case KafkaSource() as source:
            mine = source.uri(stream.name, number)
            if file.path != mine:
                return f"{file.path} is not its log, {mine}"
            return (
                None if file.etag == stream.topic else f"{mine} is of the topic {file.etag}, planned is {stream.topic}"
            )
        case LandedSource():
            return _landed_of_another(stream, planned, file)
        case IcebergSource() as source:
            mine = source.uri(stream.name)
            return None if file.snapshot else f"{file.path} is of no snapshot of {mine}"
        case _:
            assert_never(stream.declared.origin)


def _landed_of_another(stream: PlannedStream, planned: PlannedPartition, file: InputFile) -> str | None:
    number = planned.partition
    folder = _FOLDER.search(file.path) if stream.declared.lies_by is Layout.PARTITION else None
    if folder and int(folder["folder"]) != number:
        return f"{file.path} lies in the folder of partition {folder['folder']}"
    name = named_file(file.path)
    if not name:
        return None
    # What lies before is another file's, or was read.
    of_others = [double.start for double in planned.doubles if (double.path, double.end) == (file.path, file.start)]
    starts = [file.start, *of_others, *([file.first] if file.first < file.start <= planned.start else [])]
    if (name["stream"], int(name["partition"])) != (stream.name, number) or file.first not in starts:
        return f"{file.path} is, by its name, not the file of {stream.name}-{number} from {file.start} on"
    return None
