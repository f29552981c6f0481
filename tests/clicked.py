"""Clicks of one batch, landed."""

from __future__ import annotations

from partitioning.documents.store import Store
from tests.histories import Click, table_of
from tests.landed import land_table


def landed(store: Store, batch: int) -> None:
    clicks = [Click(f"key-{key}", 10 * batch + key, batch) for key in range(10)]
    land_table(table_of(clicks), "clicks", f"{store.root}/topics", key="k", partitions=2)
