"""Pace: when task groups may start, how many run at once, and which batch waits until somebody asks for it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from partitioning.commands import Replan, Run
from partitioning.documents.ledger import Ledger, Standing
from partitioning.errors import Finding, Refused
from partitioning.kinds import Kind
from partitioning.model.plan import Plan


class Pace(Protocol):
    """Decides when task groups may start. Threads call it before and after each group."""

    def at_once(self, most: int) -> int:
        """How many groups may run at once. The runner takes `most`."""

    def wait(self, plan: Plan, group: int) -> None:
        """Return when the group may start. Raises Refused if no group may start any more."""

    def done(self, plan: Plan, group: int) -> Sequence[str]:
        """Note that the group has run. Returns sentences on the progress."""

    def cancel(self) -> None:
        """Make all waiting threads return or raise."""


class Unbound:
    """The pace of live batches: as fast as the runner."""

    def at_once(self, most: int) -> int:
        return most

    def wait(self, plan: Plan, group: int) -> None:
        pass

    def done(self, plan: Plan, group: int) -> Sequence[str]:
        return ()

    def cancel(self) -> None:
        pass


class OpenBecause(StrEnum):
    """Why a batch is open: it was not checked yet; its last attempt failed, and the next run makes another; two failed
    in the same way, so that it waits for a decision; or it is to be published, and that has not ended."""

    UNRUN = "not run"
    FAILED = "failed"
    WAITS = "waits for a decision"
    UNPUBLISHED = "not published"


def open_because(ledger: Ledger, standing: Standing) -> OpenBecause | None:
    """Why the newest batch is open; None if it is not."""
    if standing.plan is None or not standing.open:
        return None
    batch = standing.plan.batch
    if ledger.verdict(batch) is not None:
        return OpenBecause.UNPUBLISHED
    if waits_for(ledger, batch):
        return OpenBecause.WAITS
    return OpenBecause.FAILED if ledger.attempt(batch) else OpenBecause.UNRUN


def waits_for(ledger: Ledger, batch: int) -> tuple[Finding, ...]:
    """The findings of the last two attempts, if both found the same. Otherwise empty."""
    attempt = ledger.attempt(batch)
    if attempt < 2:
        return ()
    last, before = (found_by(ledger.failed_check(batch, attempt - past)) for past in (1, 2))
    return last if last == before else ()


def warned(ledger: Ledger, batch: int, attempt: int) -> tuple[Finding, ...]:
    """The unmet expectations of an attempt that are warnings, if it was judged."""
    return found_by(ledger.judgement(batch, attempt), "warnings")


def balanced(ledger: Ledger, batch: int, attempt: int) -> tuple[str, ...]:
    """How the rows of an attempt's tables were found to add up, if it was judged."""
    results = json.loads(ledger.judgement(batch, attempt) or b"{}").get("results", ())
    found = [each["result"] for each in results if each["expectation"] == "expect_rows_of_tables_to_balance"]
    return tuple(each["observed_value"] for each in found if "observed_value" in each)


def found_by(report: bytes | None, kind: str = "findings") -> tuple[Finding, ...]:
    """The findings in the report of a check, or its `warnings`. Empty if another version of Coset wrote the report in
    another form."""
    try:
        return msgspec.convert(json.loads(report or b"{}").get(kind, ()), tuple[Finding, ...])
    except msgspec.ValidationError:
        return ()


def check_not_waiting(ledger: Ledger, batch: int) -> None:
    """Raise Refused with the findings of the checks if the batch waits."""
    if wrong := waits_for(ledger, batch):
        where = f"batch {batch} of {ledger.pipeline}, {ledger.attempt(batch)} attempts"
        once_more = Run(ledger.pipeline, again=True)
        then = ("correct it, then ", Replan(ledger.pipeline), "; ", once_more, " tries the same plan")
        waits = "the batch waits, its checks failed twice in the same way"
        raise Refused(
            *(
                Finding.of(
                    Kind.BATCH_WAITS,
                    f"{waits}: {found.what}",
                    where,
                    then,
                    **dict(found.about) | {"waits_for": found.kind, "at": found.where},
                )
                for found in wrong
            )
        )
