"""Claims by slot, over any history of counts and stops, and how the work of a group is cut: all is done once."""

from __future__ import annotations

from itertools import count

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from partitioning.samza.checkpoints import SlotClaims
from spark_jobs.group import Sent, Work, pieces

HASHES = st.lists(st.integers(0, 2**31 - 1), max_size=30)
COUNTS = st.integers(1, 7)


@settings(deadline=None)
@given(HASHES, st.lists(st.tuples(COUNTS, st.lists(st.none() | st.integers(0, 30), max_size=7)), max_size=5), COUNTS)
def test_every_record_is_done_once_whatever_follows_what(
    hashes: list[int], history: list[tuple[int, list[int | None]]], last: int
) -> None:
    """Each task reads on until some offset, or stops without saying how far it came: then it did nothing."""
    claims, times = SlotClaims(), [0] * len(hashes)
    to_the_end: list[int | None] = [len(hashes)] * last
    for tasks, ends in [*history, (last, to_the_end)]:
        for task, stop in enumerate(ends[:tasks]):
            if stop is None:
                continue
            before = claims
            start = before.start(task, tasks, beginning=0)
            end = max(start, min(stop, len(hashes)))
            for offset in range(start, end):
                if hashes[offset] % tasks == task and not before.holds(hashes[offset], offset):
                    times[offset] += 1
            claims = before.claim(task, tasks, end)
            held = [before.holds(h, offset) for offset, h in enumerate(hashes)]
            assert all(claims.holds(h, offset) for offset, h in enumerate(hashes) if held[offset]), (
                "a claim was dropped"
            )
        assert all(times[o] == claims.holds(h, o) for o, h in enumerate(hashes)), "what is claimed is what was done"
    assert times == [1] * len(hashes)


@settings(deadline=None)
@given(st.lists(st.tuples(COUNTS, st.integers(0, 6), st.integers(0, 30)), max_size=5), COUNTS, st.integers(0, 30))
def test_a_task_starts_no_later_than_any_of_its_slots(
    claimed: list[tuple[int, int, int]], tasks: int, beginning: int
) -> None:
    claims = SlotClaims()
    for among, task, done in claimed:
        claims = claims.claim(task % among, among, done)
    for task in range(tasks):
        mine = [h for h in range(2 * 3 * 4 * 5 * 7) if h % tasks == task]
        starts = [max((d for count, t, d in claimed if h % count == t % count), default=beginning) for h in mine]
        assert claims.start(task, tasks, beginning) == min(starts)


@given(COUNTS, COUNTS)
def test_finer_slots_claim_the_same(tasks: int, finer: int) -> None:
    claims = SlotClaims()
    for task in range(tasks):
        claims = claims.claim(task, tasks, 10 * task)
    refined = claims.refined(finer)
    assert all(refined.holds(h, o) == claims.holds(h, o) for h in range(50) for o in range(0, 70, 5))
    assert len(refined.done) % finer == 0


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
