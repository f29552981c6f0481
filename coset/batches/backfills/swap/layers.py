"""Layers: the versions of a batch's rows, by the name that ran them: its first run below its backfills.

Readers see the top layer. A swap adds a layer, and an undo removes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import assert_never

from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.model.backfill import Swap, SwapKind, name_of


class Layers:
    """The layers of a pipeline's batches after these swaps."""

    def __init__(self, store: Store, pipeline: str, decided: Iterable[Swap]) -> None:
        self._store = store
        self._pipeline = pipeline
        self._names: dict[int, list[str]] = {}
        for swap in decided:
            self._turn(swap)

    def _turn(self, swap: Swap) -> None:
        for batch in swap.batches:
            names = self._names.setdefault(batch, [self._pipeline])
            match swap.turn:
                case SwapKind.SWAP:
                    names.append(name_of(self._pipeline, swap.backfill))
                case SwapKind.UNDO:
                    names.pop()
                case SwapKind.CANCEL:
                    pass
                case _:
                    assert_never(swap.turn)

    def names(self, batch: int) -> Sequence[str]:
        """The names of a batch's layers, the lowest first."""
        return self._names.get(batch, [self._pipeline])

    def top(self, batch: int) -> Ledger:
        """The ledger of a batch's top layer, whose rows count."""
        return Ledger(self._store, self.names(batch)[-1])

    def exchanged(self) -> dict[int, str]:
        """The batches whose rows are a backfill's, with the name of that backfill."""
        tops = {batch: names[-1] for batch, names in sorted(self._names.items())}
        return {batch: name for batch, name in tops.items() if name != self._pipeline}
