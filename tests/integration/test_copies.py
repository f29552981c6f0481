"""Copies of state where a group ran before: fewer bytes are fetched, and what is damaged or gone only costs time."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from coset.batches.ref import BatchRef
from coset.batches.runners.local import Local
from coset.sources.copies import FOLDER, MOST, Copies
from partitioning.authoring.settings import Settings
from partitioning.documents.store import Store
from partitioning.errors import Refused
from tests.histories import Click, History
from tests.totals import totals


def batch(history: History, keys: int = 300) -> tuple[BatchRef, str]:
    """Run a batch that has so many keys; the sentence on its one group."""
    history.land([Click(f"key-{number}", number, 0) for number in range(keys)], [], 4)
    ref = history.plan(Settings.parse(groups=1), 4)
    with Local(processes=1) as runner:
        said = runner.group(ref, 0)
    return ref, said


def garbled(folder: Path) -> None:
    for copy in folder.iterdir():
        copy.write_bytes(copy.read_bytes()[:-1] + b"!")


def emptied(folder: Path) -> None:
    for copy in folder.iterdir():
        copy.unlink()


def removed(folder: Path) -> None:
    shutil.rmtree(folder)


def fetched(said: str) -> float:
    """The bytes of state that a group fetched, by its sentence."""
    found = re.search(r"([\d.]+) (kB|B) of state were read(?:, ([\d.]+) (kB|B) of it from the cache)?", said)
    assert found is not None, said
    units = {"B": 1, "kB": 1000, None: 0}
    return float(found[1]) * units[found[2]] - float(found[3] or 0) * units[found[4]]


def test_a_group_that_runs_where_it_ran_fetches_less_than_elsewhere(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History(store, tmp_path, totals)
    planned, costs = [], []
    for number, (place, keys) in enumerate([("here", 3000), ("here", 5), ("here", 5), ("elsewhere", 5), ("here", 5)]):
        monkeypatch.setenv("COSET_LOCATION", place)
        monkeypatch.setenv(FOLDER, str(tmp_path / place))
        ref, said = batch(history, keys)
        assert history.publish(ref)["totals"] == sorted(((f"key-{n}", number + 1, n) for n in range(keys)), key=repr)
        planned.append(ref.load()[1].groups[0].location)
        costs.append(fetched(said) if number else 0)
    assert planned == [None, "here", "here", "here", "elsewhere"]
    _, cold, same, other, back = costs
    # What the last batches left, beside all that was ever kept.
    assert 0 < 5 * same < cold <= other
    assert 0 < 5 * back < other


def test_what_did_not_change_is_not_fetched_again(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path / "copies"))
    history = History(store, tmp_path, totals)
    said = []
    for _ in range(3):
        ref, sentence = batch(history)
        history.publish(ref)
        said.append(sentence)
    assert "of state" not in said[0]
    assert "of state were read" in said[1]
    assert "copies" not in said[1]
    assert "of it from the cache" in said[2]


@pytest.mark.parametrize("spoil", [garbled, emptied, removed])
def test_a_copy_that_is_spoiled_is_fetched_again(
    spoil: Callable[[Path], None], store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "copies"
    monkeypatch.setenv(FOLDER, str(folder))
    history = History(store, tmp_path, totals)
    for _ in range(2):
        ref, _ = batch(history)
        history.publish(ref)
    assert list(folder.iterdir())
    spoil(folder)
    ref, said = batch(history)
    assert "copies" not in said
    assert history.publish(ref)["totals"] == sorted(((f"key-{n}", 3, n) for n in range(300)), key=repr)


def test_the_copies_that_were_longest_not_used_go_first(tmp_path: Path) -> None:
    copies = Copies(tmp_path, most=3 * (100 + 32))
    for name in "abc":
        assert copies.get(name, lambda: bytes(100)) == bytes(100)
    oldest, *others = sorted(tmp_path.iterdir())
    for age, path in enumerate((oldest, *others)):
        os.utime(path, (age, age))
    copies.get("d", lambda: bytes(100))
    assert not oldest.exists()
    assert {*others} <= {*tmp_path.iterdir()}
    assert (copies.fetched, copies.found) == (400, 0)


def test_a_folder_that_cannot_be_used_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(FOLDER, str(tmp_path / "file" / "copies"))
    with pytest.raises(Refused, match="the folder cannot be made"):
        Copies.of_environment()
    monkeypatch.setenv(FOLDER, str(tmp_path / "copies"))
    monkeypatch.setenv(MOST, "ten")
    with pytest.raises(Refused, match="'ten' is no number of bytes"):
        Copies.of_environment()
