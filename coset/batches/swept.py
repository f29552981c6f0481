"""How far a pipeline's folders were swept, so that only what is new, and what was kept then, is listed again.

It is a hint. A file that comes later into a batch that was swept is found by `coset clean --all`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import ClassVar

from msgspec import field

from coset.batches.backfills.request import backfills
from coset.batches.backfills.swap.swaps import swaps
from partitioning.documents.document import decode, encode
from partitioning.documents.store import Store
from partitioning.values import Document

# Of the newest batches others may still write: one that was paused, or comes second.
_AGAIN = 10


class Swept(Document, frozen=True):
    """What needs no other look: batches of the pipeline with numbers less than `before` and its first `backfills`, but
    for the batches to look at `again`, by the name of the pipeline or the backfill."""

    FORMAT: ClassVar[str] = "coset.swept/1"

    pipeline: str
    before: int = 0
    backfills: int = 0
    again: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def to_look_at(self, store: Store, newest: int) -> dict[str, set[int]]:
        """The batches whose folders have to be listed, by the name of the pipeline or the backfill."""
        first = max(0, min(self.before, newest + 1 - _AGAIN))
        look = {name: set(batches) for name, batches in self.again.items()}
        look.setdefault(self.pipeline, set()).update(range(first, newest + 1))
        for again in backfills(store, self.pipeline):
            if again.number >= self.backfills:
                look.setdefault(again.name, set()).update(again.batches)
        return look


def swept(store: Store, pipeline: str) -> Swept | None:
    """How far it was swept. None if it never was."""
    data = store.get(_key(pipeline))
    return None if data is None else decode(Swept, data, f"{store.root}/{_key(pipeline)}")


def put_swept(store: Store, pipeline: str, newest: int, kept: Iterable[int]) -> None:
    """Note that all was swept up to the newest batch, and that files of these batches were kept that may go later."""
    stay, ended = set(kept), {turn.backfill for turn in swaps(store, pipeline)}
    known = list(backfills(store, pipeline))
    again: Mapping[str, Collection[int]] = {pipeline: stay} | {
        one.name: stay.intersection(one.batches) if one.number in ended else one.batches for one in known
    }
    listed = {name: tuple(sorted(batches)) for name, batches in again.items() if batches}
    store.put(_key(pipeline), encode(Swept(pipeline, newest + 1, len(known), listed)))


def _key(pipeline: str) -> str:
    return f"{pipeline}/swept.json"
