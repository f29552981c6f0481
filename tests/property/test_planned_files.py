"""What is listed, planned and counted of files: of each offset one counts, against oracles that go one by one."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from coset.sources.doubles import ComparedCopies, once
from coset.sources.layouts import folder, listed
from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.store import PAGE_KEYS, Entry, Found, KeyPage
from partitioning.errors import Refused
from partitioning.model.offsets import Span
from partitioning.model.plan import Plan
from partitioning.model.streams import Discovered, DiscoveredPartition, InputFile, Sparse
from partitioning.planning.check import check_plan
from partitioning.planning.planner import plan_batch
from partitioning.values import replace
from tests.examples import examples
from tests.memory_store import MemoryStore
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
    declared = replace(stream.declared, sparse=None if gap is None else Sparse(gap))
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


# What each file has at each of its offsets, by its path; None is an offset that it lacks.
Contents = dict[str, dict[int, int | None]]

FILES = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 15)), min_size=1, max_size=6)
CHANGED = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 44), st.none() | st.just(-1)), max_size=3)


def held(contents: Contents, file: InputFile, start: int, end: int) -> dict[int, int]:
    there = contents[file.path]
    return {at: value for at in range(start, end) if (value := there.get(at)) is not None}


@given(FILES, CHANGED, st.sets(st.integers(0, 44), max_size=5))
def test_each_offset_counts_once_and_what_differs_is_found(
    spans: list[tuple[int, int]], changed: list[tuple[int, int, int | None]], lacking: set[int]
) -> None:
    contents: Contents = {}
    for number, (start, count) in enumerate(spans):
        there = {at: None if at in lacking else at for at in range(start, start + count)}
        there |= {at: value for which, at, value in changed if which == number and at in there}
        contents[str(number)] = there
    files = [
        InputFile(path, 1, "", min(there), max(there) + 1, sum(value is None for value in there.values()))
        for path, there in contents.items()
    ]
    compared = list[tuple[int, int]]()

    def compare(one: InputFile, other: InputFile, span: Span) -> ComparedCopies:
        compared.append((span.start, span.end))
        first, second = (held(contents, file, span.start, span.end) for file in (one, other))
        unlike = [at for at in range(span.start, span.end) if first.get(at) != second.get(at)]
        return ComparedCopies(len(second), min(unlike, default=None))

    counting, doubles, differences = once(files, compare)
    # No offset is in two files that count, each is in one that holds it, and nothing else is in any.
    counted = [(at, file.path) for file in counting for at in range(file.start, file.end)]
    assert len({at for at, _ in counted}) == len(counted)
    assert {at for at, _ in counted} == {at for there in contents.values() for at in there}
    assert all(at in contents[path] for at, path in counted)
    assert [file.start for file in counting] == sorted(file.start for file in counting)
    # A file counts there, or is a double there: never both, and nothing of it is forgotten.
    beside = [(at, file.path) for file in doubles for at in range(file.start, file.end)]
    every = [(at, path) for path, there in contents.items() for at in there]
    assert sorted([*counted, *beside]) == sorted(every)
    # Footers say how many records a file has, and so do its parts.
    for file in (*counting, *doubles):
        assert file.records == len(held(contents, file, file.start, file.end))
    # All that is double is compared with what counts, and found if it is not the same.
    assert sum(end - start for start, end in compared) == len(beside)
    by_offset = dict(counted)
    wrong = {(at, path) for at, path in beside if contents[path][at] != contents[by_offset[at]][at]}
    assert bool(wrong) == bool(differences)
    for each in differences:
        assert (each.first, each.other.path) in wrong
        assert not any(each.offsets.start <= at < each.first for at, path in wrong if path == each.other.path)


NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Keys(MemoryStore):
    """A store of many keys, which counts what it is asked."""

    def __init__(self, keys: Sequence[str]) -> None:
        super().__init__()
        self.keys, self.requests, self.given = sorted(keys), 0, 0

    def page(self, prefix: str, after: str, limit: int | None = None) -> KeyPage:
        first = bisect_right(self.keys, after)
        last = min(first + min(limit or PAGE_KEYS, PAGE_KEYS), len(self.keys))
        self.requests, self.given = self.requests + 1, self.given + last - first
        objects = tuple(Found(Entry(key, 0, ""), NOW) for key in self.keys[first:last])
        assert all(found.entry.key.startswith(prefix) for found in objects)
        return KeyPage(objects, last < len(self.keys))


def landed(read: Sequence[int], new: Sequence[int]) -> tuple[Keys, Mapping[str, str]]:
    """So many files of each partition were read, and so many are behind them."""
    keys, starts = [], {}
    for number, (before, since) in enumerate(zip(read, new, strict=True)):
        keys += [f"{folder('views', number)}{offset:010}" for offset in range(before + since)]
        if before:
            starts[folder("views", number)] = f"{folder('views', number)}{before - 1:010}"
    return Keys(keys), starts


COUNTS = st.sampled_from([0, 1, 2, 30, 99, 100, 101, 300, 1200])


@given(st.lists(st.tuples(COUNTS, COUNTS), min_size=1, max_size=30))
def test_all_that_is_behind_what_was_read_is_listed_and_nothing_else(partitions: list[tuple[int, int]]) -> None:
    store, starts = landed(*zip(*partitions, strict=True))
    behind = [key for key in store.keys if key > starts.get(f"{key.rpartition('/')[0]}/", "")]
    assert [found.entry.key for found in listed(store, "views", starts)] == behind
    assert store.requests <= 2 * len(partitions) + len(behind) / 100 + 5


@pytest.mark.parametrize(
    ("partitions", "read", "new", "requests", "keys"),
    [
        pytest.param(4, 5, 1, 1, 20, id="young"),
        pytest.param(4, 500, 1, 4, 400, id="old"),
        pytest.param(4, 50_000, 1, 4, 400, id="very old"),
        pytest.param(1000, 3, 1, 8, 4000, id="many small partitions"),
        pytest.param(2, 0, 50_000, 104, 100_000, id="all new"),
        pytest.param(2, 50_000, 5000, 19, 11_000, id="much new"),
    ],
)
def test_what_a_listing_costs(partitions: int, read: int, new: int, requests: int, keys: int) -> None:
    store, starts = landed([read] * partitions, [new] * partitions)
    assert len(list(listed(store, "views", starts))) == partitions * new
    assert store.requests <= requests
    assert store.given <= keys


def test_a_burst_in_one_partition_does_not_make_the_others_cost_more() -> None:
    store, starts = landed([0] + [5000] * 10, [5000] + [1] * 10)
    assert len(list(listed(store, "views", starts))) == 5010
    assert store.given <= 5000 + PAGE_KEYS + 10 * 100
