"""Keys that expire: batches of clicks and views, counted or the latest of each key, and what all of them give."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from partitioning.authoring.pipeline import Pipeline
from tests.histories import MINUTE as MICROSECONDS
from tests.histories import Click
from tests.logs import log_of
from tests.outer import END, LATE, MINUTE, PARTITIONS, Outer

KEEP = 20
# A key, the minute of its last record, how many records there are and the sum of their identities; or 1 and the
# identity of the latest.
Life = tuple[str | None, int, int, int]


def lives_of(records: Iterable[Click], how: str, keep: int = KEEP) -> list[Life]:
    """What one process makes of all records: a key lives until it has had none for `keep`."""
    return sorted(_lives(records, how, keep), key=repr)


def _lives(records: Iterable[Click], how: str, keep: int = KEEP) -> Iterator[Life]:
    there = sorted(records, key=lambda record: (record.minute, record.identity))
    for key in {record.key for record in there}:
        mine = [record for record in there if record.key == key]
        ends = [at for at in range(1, len(mine)) if mine[at].minute - mine[at - 1].minute > keep]
        for first, end in zip([0, *ends], [*ends, len(mine)], strict=True):
            life = mine[first:end]
            counted = (len(life), sum(one.identity for one in life))
            yield key, life[-1].minute, *(counted if how != "latest" else (1, life[-1].identity))


def pipeline_of(source: str, how: str, keep: int = KEEP) -> Pipeline:
    """Clicks and views, counted together, also after they `moved`, or the latest of them, and what expired."""
    pipeline = Pipeline("outer", source=source)
    clicks, views = (
        pipeline.stream(name, key="k", partitions=PARTITIONS, null_keys="own task", time="seen", late=LATE * MINUTE)
        for name in ("clicks", "views")
    )
    both = clicks.select("id, seen", name="c").merge(views.select("id, seen", name="v"), name="both")
    each = both.select("1::BIGINT AS n, id AS ids, seen", name="each")
    if how == "moved":
        each = each.rekey("m", sql="k").select("n, ids, seen").rekey("k", sql="m").select("n, ids, seen", name="there")
    if how != "latest":
        columns = "sum(n)::BIGINT AS n, sum(ids)::BIGINT AS ids, max(seen) AS seen"
        found = each.combine(columns, running=True, time="seen", keep=keep * MINUTE, name="found")
    else:
        found = each.latest("(seen, ids)", time="seen", keep=keep * MINUTE, name="found")
    found.filter("k IS NOT NULL").write("totals", mode="upsert")
    found.expired(name="ended").write("ended")
    return pipeline


class Expiring(Outer):
    """Batches of clicks and views, of which it keeps what `how` says, for `keep` minutes."""

    keep = KEEP

    @property
    def pipeline(self) -> Pipeline:
        return pipeline_of(self.source, self.how, self.keep)

    def rows(self, table: str) -> list[Life]:
        """The published rows but those of the end."""
        rows = log_of(self.store, table).to_pyarrow_table().to_pylist()
        found = [(row["k"], int(row["seen"].timestamp() * 10**6) // MICROSECONDS, row["n"], row["ids"]) for row in rows]
        return sorted((row for row in found if row[1] < END), key=repr)
