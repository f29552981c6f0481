"""Expectations on what a batch continues: positions by ledger and logs, gaps between, and the watermarks it goes by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd

from coset.sources.rows import each_row
from expectations.judging import TableExpectation
from partitioning.explain.missing import doubts
from partitioning.explain.watermarks import event_time
from partitioning.model.receipt import MODULUS
from partitioning.sections import many


class ExpectBatchToContinueThePrevious(TableExpectation):
    """Expect each stream partition to start at its last published end, and tables to be read whole unless they are
    kept.

    Judges a table with a row for each stream partition: stream, partition, whether it is read whole, beginning, start.
    Three offsets may be missing: the end of published batches (published), the start that a first batch was asked for
    (asked), and the beginning that was found, if it is before the plan's (found).
    """

    sentence = "Every stream partition starts where the last published batch that read it ended; tables are read whole."
    needed = ("stream", "partition", "whole", "beginning", "start", "published", "asked", "found")

    def _judge(self, frame: pd.DataFrame) -> tuple[str, int, int, Iterable[str]]:
        wrongs = [(row, _wrong(row)) for row in each_row(frame)]
        bad = [f"{row.stream}-{row.partition}: {wrong}" for row, wrong in wrongs if wrong]
        return f"{many(len(frame), 'stream partition')}, {_seen(frame)}", len(frame), len(bad), bad


def _wrong(row: Any) -> str | None:
    asked, published, found = _known(row.asked), _known(row.published), _known(row.found)
    beginning = row.beginning if found is None else found
    if row.whole:
        if row.start != beginning:
            return f"the table begins at offset {beginning:,}, but is read from {row.start:,} on"
        return None
    expected = published if published is not None else asked if asked is not None else beginning
    ended = f"the last published batch ended at {expected:,}" if published is not None else f"it begins at {expected:,}"
    if row.start > expected:
        return f"{ended}: {many(row.start - expected, 'record')} left out"
    if row.start < expected:
        return f"{ended}: {many(expected - row.start, 'record')} before it would count twice"
    return None


def _seen(frame: pd.DataFrame) -> str:
    streams = frame[~frame["whole"].astype(bool)]
    first = streams[streams["published"].isna()]
    skipped = first[first["asked"].notna() & (first["start"] > first["beginning"])]
    said = [f"{len(first):,} of them for the first time" if len(first) else "all continued"]
    if len(skipped):
        records = int((skipped["start"] - skipped["beginning"]).sum())
        said.append(f"{many(records, 'record')} skipped in {len(skipped):,} of these, as [starts] asks")
    return "; ".join(said)


class ExpectEndsToBeRemembered(TableExpectation):
    """Expect a plan to remember all that it does not read: how far it was read, by which batch, and what it was.

    Judges a table with a row for each such stream (without a partition) and each stream partition: stream, partition,
    plan_end, plan_batch, ledger_end, ledger_batch, and what else differs (differs).
    """

    sentence = "What was read before and is not read now is remembered."
    needed = ("stream", "partition", "plan_end", "plan_batch", "ledger_end", "ledger_batch", "differs")

    def _judge(self, frame: pd.DataFrame) -> tuple[str, int, int, Iterable[str]]:
        rows = list(each_row(frame))
        bad = [f"{_of(row)}: {wrong}" for row in rows if (wrong := _misremembered(row))]
        return many(int(frame["partition"].count()), "stream partition"), len(frame), len(bad), bad


def _of(row: Any) -> str:
    return row.stream if pd.isna(row.partition) else f"{row.stream}-{row.partition}"


def _misremembered(row: Any) -> str | None:
    by_plan, by_ledger = _read_to(row.plan_end, row.plan_batch), _read_to(row.ledger_end, row.ledger_batch)
    if by_plan != by_ledger:
        return f"the plan remembers that it was {by_plan}, by the ledger it was {by_ledger}"
    return None if pd.isna(row.differs) else f"the plan does not remember {row.differs} as the ledger has it"


def _read_to(end: Any, batch: Any) -> str:
    return "never read" if pd.isna(end) else f"read up to {end:,} by batch {batch}"


class ExpectGapsToBeExplained(TableExpectation):
    """Expect an explanation for each offset that no file holds: the footer of a sparse stream's file, the gap between
    two of them, or an accepted loss.

    Judges a table with a row for each stream partition: stream, partition, how many offsets are missing by the plan and
    by its files, how many of these only a declaration explains (declared) or nothing does (unexplained), and the first
    unexplained gap. Gaps that only a declaration explains are a warning.
    """

    sentence = "Every offset that no file holds is missing for a reason."
    needed = ("stream", "partition", "missing", "lack", "declared", "unexplained", "gap")

    def _judge(self, frame: pd.DataFrame) -> tuple[str, int, int, Iterable[str]]:
        wrongs = [(row, _unexplained(row)) for row in each_row(frame)]
        bad = [f"{row.stream}-{row.partition}: {wrong}" for row, wrong in wrongs if wrong]
        observed = f"{many(len(frame), 'stream partition')}, {many(int(frame['lack'].sum()), 'offset')} missing"
        if declared := int(frame["declared"].sum()):
            observed += f". Warning: {doubts(declared)}"
        return observed, len(frame), len(bad), bad


def _unexplained(row: Any) -> str | None:
    if row.missing != row.lack:
        return f"the plan says that {many(row.missing, 'offset')} are missing, its files lack {row.lack:,}"
    if row.unexplained:
        return f"{many(row.unexplained, 'offset')} are missing and nothing says why, the first in {row.gap}"
    return None


class ExpectGapsToBeEmpty(TableExpectation):
    """Expect nothing in the gaps that readers saw: no file that no plan names, no record that a broker gives to another
    consumer.

    Judges a table with a row for each stream partition with gaps: stream, partition, how many gaps there are (missing
    if its readers did not say), how many were checked (looked), how many files or records were there (found), and the
    first of them (first).
    """

    sentence = "Where offsets are missing, nothing is there when it is looked for again."
    needed = ("stream", "partition", "gaps", "looked", "found", "first")

    def _judge(self, frame: pd.DataFrame) -> tuple[str, int, int, Iterable[str]]:
        bad = frame[frame["found"] > 0]
        told = (f"{row.stream}-{row.partition}: {_there_is(row)}" for row in each_row(bad))
        looked, gaps = int(frame["looked"].sum()), int(frame["gaps"].sum())
        seen = [f"{many(gaps, 'gap')} in {many(len(frame), 'stream partition')}"]
        if looked < gaps:
            seen.append(f"{looked:,} of them looked into; the others are what their readers say")
        if unknown := int(frame["gaps"].isna().sum()):
            seen.append(f"readers of an earlier version, which did not say where, in {unknown:,} of these")
        return "; ".join(seen), len(frame), len(bad), told


def _there_is(row: Any) -> str:
    there = "1 file or record lies" if row.found == 1 else f"{row.found:,} files or records lie"
    return f"{there} where readers found nothing, the first is {row.first}"


class ExpectTablesToHoldThePreviousBatch(TableExpectation):
    """Expect the log of each result table to name the batch and plan that the ledger published to it last.

    Judges a table with a row for each result table: table, log_batch, log_plan, ledger_batch, ledger_plan.
    """

    sentence = "Every result table holds what the ledger published last, by the table's own log."
    needed = ("table", "log_batch", "log_plan", "ledger_batch", "ledger_plan")

    def _judge(self, frame: pd.DataFrame) -> tuple[str, int, int, Iterable[str]]:
        wrongs = [(row, _differs(row)) for row in each_row(frame)]
        bad = [f"{row.table}: {wrong}" for row, wrong in wrongs if wrong]
        return many(len(frame), "result table"), len(frame), len(bad), bad


def _differs(row: Any) -> str | None:
    log, ledger = _known(row.log_batch), _known(row.ledger_batch)
    if log != ledger:
        return f"its log says {_batch(log)}, the ledger {_batch(ledger)}"
    log_plan, ledger_plan = _known(row.log_plan), _known(row.ledger_plan)
    if log_plan is not None and log_plan != ledger_plan:
        return f"batch {log} in its log is of the plan {log_plan}, in the ledger of {ledger_plan}"
    return None


def _batch(number_of: Any) -> str:
    return "no batch" if number_of is None else f"batch {number_of}"


def _known(value: Any) -> Any:
    return None if pd.isna(value) else value


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
    plan, ledger = _known_time(row.by_plan), _known_time(row.by_ledger)
    return f"{row.of}: the {row.which} is {plan} by the plan, {ledger} by the ledger"


def _known_time(time: Any) -> str:
    return "not known" if pd.isna(time) else event_time(int(time))
