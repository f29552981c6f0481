"""Of processes that write one object at once, one is first: in a folder and in S3."""

from __future__ import annotations

import uuid
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from partitioning.documents.stores import store_at

_TOGETHER: list[Barrier] = []


def _meet_at(barrier: Barrier) -> None:
    _TOGETHER.append(barrier)


def _first(args: tuple[str, int, int]) -> list[bytes]:
    """What a writer is told of each key. All writers begin each round together."""
    (root, writer, rounds), (barrier,) = args, _TOGETHER
    store, told = store_at(root), list[bytes]()
    for number in range(rounds):
        barrier.wait()
        told.append(store.put_new(f"key-{number}", b"%d" % writer))
    return told


# In a folder, so many that a store which looks first and writes then is found out.
@pytest.mark.parametrize(("kind", "rounds"), [("folder", 300), ("s3", 30)])
def test_of_racing_processes_one_is_first_and_all_are_told_so(
    kind: str, rounds: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if kind == "s3":
        request.getfixturevalue("s3")
    root = str(tmp_path / "store") if kind == "folder" else f"s3://test/{uuid.uuid4().hex}"
    spawned = get_context("spawn")
    with ProcessPoolExecutor(4, spawned, _meet_at, (spawned.Barrier(4),)) as pool:
        told = list(pool.map(_first, [(root, writer, rounds) for writer in range(4)]))
    held = [store_at(root).get(f"key-{number}") for number in range(rounds)]
    assert told == [held] * 4
    assert len(set(held)) > 1, "one writer was always first: they did not race"
    assert len(list(store_at(root).list(""))) == rounds
