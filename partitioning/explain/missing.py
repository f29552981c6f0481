"""Offsets that people ask about: missing ones, and records that lie in several files, of which a batch reads one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain

from partitioning.model.gaps import Explained, Gap, doubtful
from partitioning.model.offsets import OffsetRange, StreamPartition
from partitioning.model.plan import Plan
from partitioning.model.streams import InputFile
from partitioning.sections import Section, many, section


def missing(plan: Plan, seen: Iterable[Gap] = ()) -> Iterator[Section]:
    """The gaps in what a batch reads, if there are any: those that were planned, and those `seen` when it was read."""
    gaps = [*chain.from_iterable(plan.gaps.values()), *seen]
    if gaps:
        rows = [(str(gap.offsets), f"{gap.missing:,}", _where(gap), explanation(gap.explained)) for gap in gaps]
        yield section("Missing offsets", ("offsets", "missing", "where", "why"), rows, [_total(gaps), *_warning(gaps)])


def explanation(explained: Explained) -> str:
    """What explains missing offsets, in words."""
    match explained:
        case Explained.FOOTER:
            return "the file itself holds no more"
        case Explained.BROKER:
            return "the broker holds no more: markers, aborted or compacted records"
        case Explained.MARKERS:
            return "as few as markers leave"
        case Explained.COMPACTED:
            return "as many as compaction leaves in the files around"
        case Explained.DECLARED:
            return "the declaration allows it, and nothing else explains it"
        case Explained.ACCEPTED:
            return "accepted as lost"
        case Explained.NOBODY:
            return "nothing explains it"


def _where(gap: Gap) -> str:
    if gap.explained is Explained.BROKER:
        return "in the topic's log"
    return gap.file.rpartition("/")[2] if gap.file else "between two files"


def _warning(gaps: list[Gap]) -> Iterator[str]:
    if doubted := doubtful(gaps):
        yield f"Warning: {doubts(doubted)}: files may be lost."


def doubts(offsets: int) -> str:
    """A warning's words about offsets that only a declaration explains."""
    return f"{many(offsets, 'offset')} missing, which neither markers nor compaction explain"


def _total(gaps: list[Gap]) -> str:
    counts = Counter[Explained]()
    for gap in gaps:
        counts[gap.explained] += gap.missing
    listed = "; ".join(f"{counts[who]:,}: {explanation(who)}" for who in Explained if counts[who])
    return f"{many(counts.total(), 'offset')} of the ranges have no record. {listed}."


def doubles(plan: Plan) -> Iterator[Section]:
    """The doubles that planning found, if there are any."""
    rows = [
        (str(_range(stream.name, planned.partition, double)), f"{double.records:,}", double.path.rpartition("/")[2])
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
