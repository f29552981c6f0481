"""Clicks of one batch, landed, and a pipeline that counts them."""

from __future__ import annotations

from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.store import Store
from tests.histories import Click, table_of
from tests.landed import land_table


def landed(store: Store, batch: int) -> None:
    clicks = [Click(f"key-{key}", 10 * batch + key, batch) for key in range(10)]
    land_table(table_of(clicks), "clicks", f"{store.root}/topics", key="k", partitions=2)


def belled(source: str) -> Pipeline:
    """How many clicks there were of each key."""
    pipeline = Pipeline("belled", source=source)
    clicks = pipeline.stream("clicks", key="k", partitions=2)
    clicks.aggregate("count(*) AS n", name="counts").write("counts")
    return pipeline
