"""What is remembered of verifications: by part of the keys, whoever writes at the same time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from coset.batches.verified import NextPart, sample_of
from partitioning.documents.ledger import Ledger
from partitioning.errors import Refused
from partitioning.model.verification import Verification, Verifications
from tests.memory_store import MemoryStore

AT = 1_795_514_400_000


def found(part: int, parts: int, batch: int = 3, keys: int = 0, swaps: int = 0, since: int = 0) -> Verification:
    return Verification(part, parts, batch, keys, AT, swaps, since)


def known(*verifications: Verification) -> Verifications:
    now = Verifications("shop", "spent")
    for each in verifications:
        now = now.after(each)
    return now


@pytest.mark.parametrize(
    ("verifications", "said"),
    [
        ((found(0, 1),), "verified to batch 3: all keys"),
        ((found(2, 16), found(3, 16, 4)), "verified to batch 4: 2 of 16 samples, the oldest to batch 3"),
        # A whole verification is one of each part.
        ((found(0, 1), found(2, 16, 4)), "verified to batch 4: 16 of 16 samples, the oldest to batch 3"),
        # One part of another number says nothing of the others, and takes nothing away.
        ((found(0, 4), found(1, 4), found(2, 3)), "verified to batch 3: 2 of 4 samples"),
        ((found(0, 2), found(1, 2, keys=5)), "verified to batch 3: 1 of 2 samples; other rows than its query's in 2/2"),
        # Of what was equal as a whole, a part differs now.
        ((found(0, 2), found(2, 4, keys=1)), "verified to batch 3: 1 of 4 samples; other rows than its query's in 3/4"),
        ((found(1, 2, keys=5), found(1, 2, 4)), "verified to batch 4: 1 of 2 samples"),
        ((found(0, 1, keys=5),), "no sample is known to be equal; other rows than its query's in some key"),
        # Since then the rows of a backfill came.
        ((found(0, 2, swaps=1), found(1, 2)), "verified to batch 3: 1 of 2 samples"),
        ((found(0, 2, since=2), found(1, 2)), "verified to batch 3: 2 of 2 samples, rows from batch 2 on"),
    ],
)
def test_how_much_of_a_table_is_known_to_be_its_query(verifications: tuple[Verification, ...], said: str) -> None:
    swaps = max(each.swaps for each in verifications)
    assert str(known(*verifications).samples(swaps)) == said


def test_nothing_is_known_of_what_nobody_verified_and_earlier_batches_do_not_take_the_place_of_later_ones() -> None:
    assert known().samples(0) is None
    later = found(1, 2, batch=5, keys=1)
    assert known(later, found(1, 2, batch=4)).known == (later,)
    assert known(later, found(0, 1, batch=4)).known == (later, found(0, 1, batch=4))
    assert known(found(0, 1, batch=5), found(1, 2, batch=4, keys=1)).differing == ()


def test_the_next_part_is_the_one_that_was_verified_longest_ago() -> None:
    now, taken = known(), list[int]()
    for batch in range(7):
        taken.append(now.next_of(3))
        now = now.after(found(taken[-1], 3, batch))
    assert taken == [0, 1, 2, 0, 1, 2, 0]
    # Who names a part himself changes whose turn it is.
    assert now.next_of(3) == 1
    assert now.after(found(1, 3, 8)).next_of(3) == 2
    assert len(now.known) == 3


def test_processes_that_remember_at_once_lose_nothing() -> None:
    store = MemoryStore()

    def remember(part: int) -> None:
        Ledger(store, "shop").put_verification("spent", found(part, 40))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(remember, range(40)))
    now = Ledger(store, "shop").verifications("spent")
    assert (now.number, {each.part for each in now.known}) == (39, set(range(40)))
    assert Ledger(store, "shop").verifications("other") == Verifications("shop", "other")


@pytest.mark.parametrize("hint", [None, b"1", b"999", b"x"])
def test_a_hint_that_is_lost_or_wrong_changes_nothing(hint: bytes | None) -> None:
    store = MemoryStore()
    for part in range(4):
        now = Ledger(store, "shop").put_verification("spent", found(part, 4))
    store.delete("shop/verifications/spent/newest")
    if hint is not None:
        store.put("shop/verifications/spent/newest", hint)
    assert Ledger(store, "shop").verifications("spent") == now


@pytest.mark.parametrize("text", ["next", "next/16"])
def test_the_next_part_is_one_of_sixteen(text: str) -> None:
    assert sample_of(text) == NextPart(16)


@pytest.mark.parametrize("text", ["next/0", "next/", "nextt", "next/1000000", "17/16", "0/16", "", "1/16\n"])
def test_what_is_no_part_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="is no part of the keys"):
        sample_of(text)
