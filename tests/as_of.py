"""Joins as of a time: batches of clicks and of versions, and what one process makes of all of them at once."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.words import MissingVersion
from partitioning.documents.store import Store
from tests.histories import Click
from tests.outer import LATE, MINUTE, PARTITIONS, Arrived, Outer, Pair, pairs_of

# Much less than the records are apart, so that most versions are older than what is kept.
KEEP = 10
# A version with such an identity ends the validity of those before it.
GONE = 4


def valid(click: Click, versions: Iterable[Click]) -> int | None:
    """The identity of the version of a click: of those that are not after it the newest, unless that is a deletion."""
    best: Click | None = None
    for version in versions:
        if click.key is not None and version.key == click.key and version.minute <= click.minute:
            later = best is None or (version.minute, version.identity) > (best.minute, best.identity)
            best = version if later else best
    return None if best is None or best.identity % GONE == 0 else best.identity


def versions_of(arrived: Arrived, missing: MissingVersion) -> list[Pair]:
    """What one process makes of all records."""
    pairs = [(click.key, click.identity, valid(click, arrived.views)) for click in arrived.clicks]
    return sorted((pair for pair in pairs if missing == "null" or pair[2] is not None), key=repr)


class AsOf(Outer):
    """A pipeline that gives clicks with the version that was valid at their time, batch by batch."""

    def __init__(self, store: Store, missing: MissingVersion = "null", wait: int = 0) -> None:
        super().__init__(store, "left")
        self._missing, self._wait = missing, wait

    @property
    def pipeline(self) -> Pipeline:
        pipeline = Pipeline("outer", source=self.source)
        clicks, versions = (
            pipeline.stream(name, key="k", partitions=PARTITIONS, null_keys="own task", time="seen", late=LATE * MINUTE)
            for name in ("clicks", "views")
        )
        clicks.join_as_of(
            versions,
            "clicks.id AS click, views.id AS view",
            times=("clicks.seen", "views.seen"),
            keep=timedelta(minutes=KEEP),
            wait=timedelta(minutes=self._wait),
            missing=self._missing,
            deletes=f"id % {GONE} = 0",
            name="pairs",
        ).write("pairs")
        return pipeline


AS_OF = "as of"


def in_time(store: Store, how: str) -> Outer:
    """A pipeline whose join is left or full, or as of a time."""
    return AsOf(store) if how == AS_OF else Outer(store, how)


def rows_of(arrived: Arrived, how: str) -> list[Pair]:
    """What one process makes of all records."""
    return versions_of(arrived, "null") if how == AS_OF else pairs_of(arrived, how)
