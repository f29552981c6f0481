"""Tasks that read other parts than their orders say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from coset.sources.parts_reader import PartsReader
from partitioning.model.order import OrderedParts
from spark_jobs.engine import kernel


def read_otherwise(patch: pytest.MonkeyPatch, change: Callable[[OrderedParts], OrderedParts]) -> None:
    """From now on tasks of this process read what `change` makes of what tasks left for them."""

    class Otherwise(PartsReader):
        def __init__(self, ordered: OrderedParts, *place: Any) -> None:
            super().__init__(change(ordered), *place)

    patch.setattr(kernel, "PartsReader", Otherwise)
