"""Claims by slot: over any history of task counts and stops, no record is lost and none is done twice."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from partitioning.samza.checkpoints import SlotClaims

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
    for count, task, done in claimed:
        claims = claims.claim(task % count, count, done)
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
