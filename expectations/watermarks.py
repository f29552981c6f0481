"""Expectations on event time: the watermarks by which a batch goes are those that the batches before it left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd

from coset.sources.rows import each_row
from expectations.judging import TableExpectation
from partitioning.explain.watermarks import event_time
from partitioning.model.receipt import MODULUS
from partitioning.sections import many


class ExpectWatermarksToFollow(TableExpectation):
    """Expect a plan to go by the watermarks that follow from the batches before it.

    Judges a table with a row for each time that a plan goes by: of which stream partition, stream or step (of), which
    time (which), by the plan (by_plan), and as the ledger gives it (by_ledger), in microseconds; both may be missing.
    """

    sentence = "Watermarks follow from the times that the batches before counted, and what is over for a step goes on."
    needed = ("of", "which", "by_plan", "by_ledger")

    def _judge(self, frame: pd.DataFrame) -> tuple[str, int, int, Iterable[str]]:
        same = (frame["by_plan"] == frame["by_ledger"]).fillna(False)
        bad = frame[~(same | (frame["by_plan"].isna() & frame["by_ledger"].isna()))]
        marks = frame[(frame["which"] == "watermark") & frame["by_plan"].notna()]
        seen = [f"{row.of} up to {event_time(int(row.by_plan))}" for row in each_row(marks)]
        shown = "; ".join(seen[:_SHOWN]) + ("; …" if len(seen) > _SHOWN else "")
        observed = f"{many(len(frame), 'time')}: {shown or 'no watermark is known yet'}"
        return observed, len(frame), len(bad), (_sentence(row) for row in each_row(bad))


class ExpectWhatIsOverToBeGivenOnce(TableExpectation):
    """Expect each record that waited for a partner to have met one or to be given alone, and each in a window to be
    given in it, in the batch in which its time is over.

    Judges a table with a row for each task and each such side of a join, or windows: stage, task, step; how many
    records were over (over_rows), had met a partner (met_rows) and were given alone or in a window (alone_rows), the
    sums of their keys' digests modulo a prime (over_keys, met_keys, alone_keys), how many came when their time was over
    (late), and how many are in no window as they came too late or have no time (dropped). For a join as of a time, the
    same of the rows that were given with a version (given_rows, given_keys; missing for others), and how many versions
    came when records that they are valid for may have been given (late_versions). Of a step whose keys expire
    (of_keys), these are over and given.
    """

    sentence = (
        "Each record whose time is over had met a partner, or is given alone or in its window, once, "
        "and each key that expires is given once."
    )

    def needs(self) -> list[str]:
        parts = (f"{part}_{what}" for part in ("over", "met", "alone", "given") for what in ("rows", "keys"))
        return ["stage", "task", "step", *parts, "late", "dropped", "late_versions", "of_keys"]

    def _judge(self, frame: pd.DataFrame) -> tuple[str, int, int, Iterable[str]]:
        wrongs = [(row, _not_once(row)) for row in each_row(frame)]
        bad = [f"task {row.stage}/{row.task}, step {row.step}: {wrong}" for row, wrong in wrongs if wrong]
        late, dropped, versions = (int(frame[name].sum()) for name in ("late", "dropped", "late_versions"))
        observed = "; ".join(_over(frame))
        observed += f"; {late:,} came late" if late else ""
        observed += f"; {dropped:,} dropped" if dropped else ""
        observed += f"; {many(versions, 'version')} came after records that they may be valid for" if versions else ""
        return observed, len(frame), len(bad), bad


def _over(frame: pd.DataFrame) -> Iterator[str]:
    """How many records and keys were over, and how many of them were given."""
    of_keys = frame["of_keys"].astype(bool)
    for some, is_of_keys in ((frame[~of_keys], False), (frame[of_keys], True)):
        if len(some):
            over, given, steps = int(some["over_rows"].sum()), int(some["alone_rows"].sum()), many(len(some), "step")
            if is_of_keys:
                yield f"{many(over, 'key')} expired in {steps} of tasks, {given:,} given"
            else:
                yield f"{many(over, 'record')} over in {steps} of tasks, {given:,} given alone or in windows"


def _not_once(row: Any) -> str | None:
    if pd.isna(row.over_rows):
        return "nothing says what was over"
    over, met, alone = int(row.over_rows), int(row.met_rows), int(row.alone_rows)
    if row.of_keys and over != alone:
        return f"{many(over, 'key')} expired, and {alone:,} were given"
    if over != met + alone:
        return f"{many(over, 'record')} were over, {met:,} had met a partner, and {alone:,} were given"
    over_keys, met_keys, alone_keys = (int(keys, 16) for keys in (row.over_keys, row.met_keys, row.alone_keys))
    if over_keys != (met_keys + alone_keys) % MODULUS:
        if row.of_keys:
            return f"{many(alone, 'key')} that expired were given, but not those that were over, as they were"
        return f"{many(alone, 'record')} were given, but not of the keys that were over and had met nobody"
    if not pd.isna(row.given_rows) and (int(row.given_rows), row.given_keys) != (met, row.met_keys):
        return f"{many(met, 'record')} had a version, and {int(row.given_rows):,} were given with one, or of other keys"
    return None


_SHOWN = 5


def _sentence(row: Any) -> str:
    return f"{row.of}: the {row.which} is {_known(row.by_plan)} by the plan, {_known(row.by_ledger)} by the ledger"


def _known(time: Any) -> str:
    return "not known" if pd.isna(time) else event_time(int(time))
