"""Files that hold the same offsets: of each offset one counts, against an oracle that goes offset by offset."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coset.sources.doubles import ComparedCopies, once
from partitioning.model.offsets import Span
from partitioning.model.streams import InputFile

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
