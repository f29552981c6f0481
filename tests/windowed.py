"""Windows of event time that are given when they close: batches of clicks and views, and what all of them give."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from partitioning.authoring.pipeline import Pipeline
from tests.histories import MINUTE as MICROSECONDS
from tests.histories import Click
from tests.logs import log_of
from tests.outer import END, LATE, MINUTE, PARTITIONS, Arrived, Outer

EVERY, KEEP = 15, 40
# Of sessions.
GAP, LONG = 7, 120
# A key, the minute in which a window begins, how many records it has, and the sum of their identities.
Window = tuple[str | None, int, int, int]
COLUMNS = "count(*) AS n, sum(id)::BIGINT AS ids"


def windows_of(records: Iterable[Click]) -> list[Window]:
    """What one process makes of all records."""
    found = defaultdict[tuple[str | None, int], list[int]](list)
    for record in records:
        found[record.key, record.minute - record.minute % EVERY].append(record.identity)
    return sorted(((key, start, len(ids), sum(ids)) for (key, start), ids in found.items()), key=repr)


def sessions_of(records: Iterable[Click]) -> list[Window]:
    """What one process makes of all records, one after the other. None crosses the bounds of windows."""
    found: list[Window] = []
    for key in {record.key for record in records}:
        last = None
        for record in sorted((each for each in records if each.key == key), key=lambda each: each.minute):
            if last is None or record.minute - last > GAP or record.minute // LONG > last // LONG:
                found.append((key, record.minute, 0, 0))
            (_, start, count, ids), last = found.pop(), record.minute
            found.append((key, start, count + 1, ids + record.identity))
    return sorted(found, key=repr)


def pipeline_of(source: str, late: str) -> Pipeline:
    """Clicks and views, counted together in windows."""
    pipeline = Pipeline("outer", source=source)
    said: dict[str, Any] = {"key": "k", "partitions": PARTITIONS, "null_keys": "own task", "time": "seen"}
    said |= {"bad_records": "set aside" if late == "set aside" else "refuse", "late": LATE * MINUTE}
    clicks, views = (pipeline.stream(name, **said) for name in ("clicks", "views"))
    both = clicks.select("id, seen", name="c").merge(views.select("id, seen", name="v"), name="both")
    lengths: dict[str, Any] = {"every": EVERY * MINUTE, "late": late}
    lengths |= {"keep": KEEP * MINUTE} if late == "correct" else {}
    lengths |= {"every": LONG * MINUTE, "gap": GAP * MINUTE, "late": "drop"} if late == "sessions" else {}
    counted = both.windows(COLUMNS, time="seen", name="counted", **lengths)
    if late == "correct":
        one = "concat_ws(' ', k, window_start) AS one"
        counted.select(f"{one}, n, ids, window_start, window_end").rekey("one").write("windows", mode="upsert")
    else:
        counted.write("windows")
    return pipeline


class Windowed(Outer):
    """Batches of clicks and views. Of late records it does what `how` says."""

    @property
    def pipeline(self) -> Pipeline:
        return pipeline_of(self.source, self.how)

    def windows(self) -> list[Window]:
        """The published rows but those of the end."""
        rows = log_of(self.store, "windows").to_pyarrow_table()
        found = []
        for row in rows.to_pylist():
            start, end = (int(row[name].timestamp() * 10**6) // MICROSECONDS for name in ("window_start", "window_end"))
            assert end - start == EVERY or self.how == "sessions"
            found.append((row["k"], start, row["n"], row["ids"]))
        return sorted((window for window in found if window[1] < END - END % EVERY), key=repr)


def both(arrived: Arrived) -> list[Click]:
    """The records of both streams."""
    return [*arrived.clicks, *arrived.views]
