"""The files of a planned partition, against a count of what each of its offsets is held by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import pairwise

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from partitioning.authoring.pipeline import Pipeline
from partitioning.errors import Refused
from partitioning.model.plan import Plan
from partitioning.model.streams import Discovered, DiscoveredPartition, InputFile, Sparse
from partitioning.planning.check import check_plan
from partitioning.planning.planner import plan_batch
from partitioning.values import replace
from tests.examples import examples
from tests.plans import COLUMNS

FOLDER = "s3://landing/topics/s/partition=1"

# Where files begin and end, whose names say which partition, and whether they are landed twice.
cuts = st.lists(st.integers(0, 12), min_size=2, max_size=6, unique=True).map(sorted)
changes = st.lists(
    st.tuples(
        st.sampled_from(["none", "drop", "begin", "end", "partition", "name", "twice", "swap"]), st.integers(0, 5)
    ),
    max_size=2,
)


def file(start: int, end: int, partition: int = 1, says: int | None = None) -> InputFile:
    named = start if says is None else says
    return InputFile(f"{FOLDER}/s+{partition}+{named:010}.parquet", 10, f"e{start}", start, end)


def plan_of(files: Sequence[InputFile], start: int, end: int, missing: int, gap: int | None) -> Plan:
    """A plan whose second partition is said to be read from these files."""
    pipeline = Pipeline("p", source="s3://landing/topics")
    pipeline.stream("s", key="k", partitions=2, null_keys="drop").filter("true", name="kept").write("t")
    found = Discovered("s", COLUMNS, (DiscoveredPartition(0), DiscoveredPartition(1, (file(0, 1),))))
    plan = plan_batch(pipeline, [found], {"t": COLUMNS})
    assert plan is not None
    (stream,) = plan.streams
    first, second = stream.partitions
    second = replace(second, start=start, end=end, files=tuple(files), missing=missing, bytes=0)
    declared = replace(stream.declared, sparse=UNSET if gap is None else Sparse(gap))
    return replace(plan, streams=(replace(stream, declared=declared, partitions=(first, second)),))


def changed(files: list[InputFile], change: str, place: int) -> list[InputFile]:
    at = place % len(files) if files else 0
    match change if files else "none":
        case "drop":
            files.pop(at)
        case "begin":
            files[at] = file(max(0, files[at].start - 1), files[at].end)
        case "end":
            files[at] = file(files[at].start, files[at].end + 1)
        case "partition":
            files[at] = file(files[at].start, files[at].end, partition=0)
        case "name":
            files[at] = file(files[at].start, files[at].end, says=files[at].start + 1)
        case "twice":
            files.insert(at, files[at])
        case "swap":
            files[at], files[-1] = files[-1], files[at]
    return files


def is_right(files: Sequence[InputFile], start: int, end: int, missing: int, gap: int | None) -> bool:
    """Whether the files hold the range, by each offset of it."""
    held = [offset for one in files for offset in range(one.start, one.end)]
    there = Counter(held)
    absent = [offset for offset in range(start, end) if offset not in there]
    runs = "".join("-" if offset in there else "x" for offset in range(start, end)).split("-")
    return (
        held == sorted(held)
        and set(there.values()) <= {1}
        and all(set(range(start, end)) & set(range(one.start, one.end)) for one in files)
        and len(absent) == missing
        and max(map(len, runs)) <= (gap or 0)
        and len({one.path for one in files}) == len(files)
        and all(one.path.endswith(f"s+1+{one.start:010}.parquet") for one in files)
    )


@settings(deadline=None, max_examples=examples(400))
@given(cuts, changes, st.sampled_from([None, 0, 1, 3]), st.integers(-1, 1))
def test_the_check_refuses_just_the_files_that_do_not_hold_the_range(
    cuts: list[int], changes: list[tuple[str, int]], gap: int | None, more: int
) -> None:
    start, end = cuts[0], cuts[-1]
    files = [file(first, last) for first, last in pairwise(cuts)]
    for change, place in changes:
        files = changed(files, change, place)
    held = {offset for one in files for offset in range(one.start, one.end)}
    missing = sum(offset not in held for offset in range(start, end)) + more * (gap == 1)
    right = is_right(files, start, end, missing, gap)
    event("right" if right else "wrong")
    plan = plan_of(files, start, end, missing, gap)
    with nullcontext() if right else pytest.raises(Refused, match="s-1"):
        check_plan(plan)
