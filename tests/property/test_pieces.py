"""How the work of a task group is cut into pieces for workers."""

from __future__ import annotations

from itertools import count

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.group import Sent, Work, pieces

PIECE = 500_000


@st.composite
def works(draw: st.DrawFn) -> Work:
    numbers, sizes = count(), st.tuples(st.integers(1, 5), st.integers(0, 2 * PIECE))
    return [
        Sent([str(next(numbers)).encode() for _ in range(orders)], records)
        for orders, records in draw(st.lists(sizes, min_size=1, max_size=40))
    ]


def cut(work: Work, workers: int) -> list[list[int]]:
    return [msgspec.json.decode(piece, type=list[int]) for piece in pieces(work, workers)]


@given(works(), st.integers(1, 50))
def test_each_order_is_in_one_piece_and_no_worker_is_left_idle(work: Work, workers: int) -> None:
    parts = cut(work, workers)
    orders = sum(len(sent.orders) for sent in work)
    assert sorted(order for part in parts for order in part) == list(range(orders))
    assert len(parts) >= min(workers, orders)


@given(works(), st.integers(1, 50))
def test_what_reads_together_is_parted_only_for_idle_workers_and_large_work_stays_alone(
    work: Work, workers: int
) -> None:
    parts = [set(part) for part in cut(work, workers)]
    if len(work) >= workers:
        for sent in work:
            orders = set(map(int, sent.orders))
            (part,) = (part for part in parts if part & orders)
            assert orders <= part
            assert part == orders or sum(one.records for one in work if part & set(map(int, one.orders))) <= 2 * PIECE


def test_small_tasks_go_together() -> None:
    assert cut([Sent([b"%d" % task], 1_000) for task in range(8)], 2) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    # Each worker gets two pieces of what is larger.
    assert cut([Sent([b"%d" % task], 200_000) for task in range(8)], 2) == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert cut([Sent([b"%d" % task], 600_000) for task in range(3)], 2) == [[0], [1], [2]]
