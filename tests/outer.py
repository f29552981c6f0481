"""Joins in time that give what finds no partner: batches of clicks and views, and what all of them give at once."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any

from coset.batches import steps
from coset.batches.publication import abandon
from coset.batches.ref import BatchRef
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.hashes import placement_hash
from partitioning.values import Value
from tests.histories import Click, table_of
from tests.landed import land_table
from tests.logs import log_of
from tests.running import run_and_publish_unjudged, run_groups

PARTITIONS = 3
WITHIN, LATE = 10, 5
KEYS = (*"abcdefg", None)
SCHEMES = ("cogroup", "elastic(2)", "tasks(1)", "tasks(2)", "tasks(5)")
# Long after all records: once they have come, everything before is over.
END = 100_000
# A key in each partition.
_OF_EACH = [next(k for k in map(str, range(99)) if placement_hash(k) % PARTITIONS == n) for n in range(PARTITIONS)]
Pair = tuple[str | None, int | None, int | None]
MINUTE = timedelta(minutes=1)


class Arrived(Value, frozen=True):
    """Clicks and views in the order in which they come."""

    clicks: tuple[Click, ...]
    views: tuple[Click, ...]


def some(chance: random.Random, count: int, late: int = LATE) -> Arrived:
    """Records of which none is later than it may be. Views are far behind clicks."""

    def of(start: int, number: int) -> Iterator[Click]:
        now = start
        for identity in range(number):
            now += chance.choice((0, 0, 1, 3, 25))
            yield Click(chance.choice(KEYS), identity, max(0, now - chance.randrange(late + 1)))

    return Arrived(tuple(of(40, count)), tuple(of(0, count)))


def pairs_of(arrived: Arrived, how: str) -> list[Pair]:
    """What one process makes of all records."""
    near = [
        (click, view)
        for click in arrived.clicks
        for view in arrived.views
        if click.key is not None and click.key == view.key and abs(click.minute - view.minute) <= WITHIN
    ]
    pairs: list[Pair] = [(click.key, click.identity, view.identity) for click, view in near]
    met_clicks, met_views = {click for click, _ in near}, {view for _, view in near}
    pairs += [(each.key, each.identity, None) for each in arrived.clicks if each not in met_clicks]
    if how == "full":
        pairs += [(each.key, None, each.identity) for each in arrived.views if each not in met_views]
    return sorted(pairs, key=repr)


class Outer:
    """A pipeline that joins clicks with views in time, batch by batch."""

    within = WITHIN

    def __init__(self, store: Store, how: Any) -> None:
        self.store, self.how = store, how
        self.source = f"{store.root}/topics"

    @property
    def pipeline(self) -> Pipeline:
        pipeline = Pipeline("outer", source=self.source)
        clicks, views = (
            pipeline.stream(name, key="k", partitions=PARTITIONS, null_keys="own task", time="seen", late=LATE * MINUTE)
            for name in ("clicks", "views")
        )
        columns, times = "clicks.id AS click, views.id AS view", ("clicks.seen", "views.seen")
        clicks.join_within(views, columns, times=times, within=self.within * MINUTE, how=self.how, name="pairs").write(
            "pairs"
        )
        return pipeline

    def land(self, clicks: Sequence[Click], views: Sequence[Click]) -> None:
        for stream, records in (("clicks", clicks), ("views", views)):
            if records:
                land_table(table_of(records), stream, self.source, key="k", partitions=PARTITIONS)

    def plan(self, scheme: str = "cogroup") -> BatchRef | None:
        # In one group, tasks read their inputs together.
        ref, _ = steps.plan(self.pipeline, self.store.root, Settings.parse(scheme=scheme, groups=1))
        return ref

    def batch(self, clicks: Sequence[Click], views: Sequence[Click], scheme: str = "cogroup") -> BatchRef:
        self.land(clicks, views)
        ref = self.plan(scheme)
        assert ref is not None
        run_and_publish_unjudged(ref)
        return ref

    def close(self) -> None:
        """Records long after all others come, and then batches without any, until nothing else is over."""
        last = [Click(key, END, END) for key in _OF_EACH]
        self.batch(last, last)
        while (ref := self.plan()) is not None:
            run_and_publish_unjudged(ref)

    def all_in(self, arrived: Arrived, batches: int, chance: random.Random) -> None:
        """All records in so many batches, cut anywhere, each by any scheme; some are given up and planned again."""
        cuts = [_cuts(chance, len(records), batches) for records in (arrived.clicks, arrived.views)]
        for (first, last), (begin, end) in zip(*cuts, strict=True):
            self.land(arrived.clicks[first:last], arrived.views[begin:end])
            if chance.random() < 0.2 and (ref := self.plan(chance.choice(SCHEMES))):
                run_groups(ref)
                abandon(Ledger(self.store, "outer"), "another plan")
            if ref := self.plan(chance.choice(SCHEMES)):
                run_and_publish_unjudged(ref)
        self.close()

    def pairs(self) -> list[Pair]:
        """The published rows but those of the end."""
        rows = log_of(self.store, "pairs").to_pyarrow_table()
        pairs = [(row["k"], row["click"], row["view"]) for row in rows.to_pylist()]
        return sorted((pair for pair in pairs if END not in pair), key=repr)


def _cuts(chance: random.Random, count: int, batches: int) -> list[tuple[int, int]]:
    # Something of each stream has to have landed before a first batch.
    places = [0, *sorted(chance.randint(1, count) for _ in range(batches - 1)), count]
    return list(pairwise(places))
