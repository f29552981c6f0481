"""Stores that are begun in one way, and from which tests go on in several."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from partitioning.documents.store import Store
from partitioning.documents.stores import store_at


class Begun:
    """Stores in folders, for tests that run one after the other: each goes on from the beginning that it names."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def by(self, begin: Callable[..., None], *how: str) -> Store:
        """The store as `begin(*how, store)` has left it, which is done once. What was done in it since is gone."""
        root = self._folder / "-".join((begin.__name__, *how)).replace(" ", "-")
        kept, store = root.with_suffix(".kept"), store_at(str(root))
        if kept.exists():
            shutil.rmtree(root)
            shutil.copytree(kept, root)
        else:
            begin(*how, store)
            shutil.copytree(root, kept)
        return store
