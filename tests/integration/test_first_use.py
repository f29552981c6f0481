"""The first use of a store: one that does not do what everything rests on is refused before anything lies in it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from coset.batches.planning import take_up
from coset.batches.tables.table_base import move
from coset.testing.runs import Trial
from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.folder_store import FolderStore
from partitioning.documents.store import Entry
from partitioning.documents.stores import SplitStore, check_first_use
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.root_names import STORE_ID


class LastWins(FolderStore):
    """Conditions are accepted and ignored."""

    def put_new(self, key: str, data: bytes) -> bytes:
        self.put(key, data)
        return data


class LaterWins(FolderStore):
    """Of those who come at once one wins; who comes later replaces what is there."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self._calls = count(1)

    def put_new(self, key: str, data: bytes) -> bytes:
        if next(self._calls) > 8:
            self.put(key, data)
            return data
        return super().put_new(key, data)


class Behind(FolderStore):
    """What was just written is read later."""

    def get(self, key: str) -> bytes | None:
        return None


class Unlisted(FolderStore):
    """What was just written is listed later."""

    def list(self, prefix: str, limit: int | None = None) -> Iterator[Entry]:
        return iter(())


@pytest.mark.parametrize(
    ("store", "said"),
    [
        (LastWins, "of 8 who wrote an object at once, 8 were told that theirs is stored"),
        (LaterWins, "an object that was there was replaced, though only a new one was to be created"),
        (Behind, "an object was read otherwise than it was written"),
        (Unlisted, "an object that was written is not listed"),
    ],
)
def test_a_store_that_does_not_keep_its_word_is_refused(store: type[FolderStore], said: str, tmp_path: Path) -> None:
    with pytest.raises(Refused) as refused:
        check_first_use(store(f"file://{tmp_path}"))
    (finding,) = refused.value.findings
    assert (finding.kind, finding.what) == (Kind.STORE_ADDRESS, f"the store cannot be relied on: {said}")


def test_a_store_is_asked_before_its_first_plan_and_until_it_has_an_id(tmp_path: Path) -> None:
    made = Pipeline("p", source="s3://lake")
    made.stream("s", key="k", partitions=1).write("t")
    with Trial.made(made) as trial:
        trial.land({"s": [{"k": "a"}]})
        store = LastWins(f"file://{tmp_path}")
        with pytest.raises(Refused, match="cannot be relied on"):
            take_up(trial.pipeline, store)
        assert list(store.list("")) == []
        store.put(STORE_ID, b"known")
        assert take_up(trial.pipeline, store).plan is not None


def test_a_store_whose_tables_are_to_lie_elsewhere_is_asked_as_well(tmp_path: Path) -> None:
    store = SplitStore(LastWins(f"file://{tmp_path}/store"), FolderStore)
    with pytest.raises(Refused, match="cannot be relied on"):
        move(store, f"file://{tmp_path}/tables", "there is more room")
    assert list(store.list("")) == []
