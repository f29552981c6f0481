"""Lineage: sends events about each attempt of a batch to catalogues, by OpenLineage's client and its configuration.

An event that cannot be sent is a line in the log, and the batch continues. Without a configuration nothing is imported
or sent.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from partitioning.documents.ledger import Ledger
from partitioning.model.backfill import pipeline_of
from partitioning.model.plan import Plan
from partitioning.model.root_names import TABLES
from partitioning.model.verdict import Outcome, Verdict
from partitioning.texts import environment

if TYPE_CHECKING:
    from coset.lineage.events import AttemptRun

_log = logging.getLogger(__name__)
# These loggers write about each failure, sometimes with addresses.
_TALKATIVE = "openlineage"
_FILES = ("openlineage.yml", "~/.openlineage/openlineage.yml")


def tell_start(ledger: Ledger, plan: Plan) -> None:
    """Send the start of an attempt, if it has no receipt yet."""

    def event(told: AttemptRun) -> Any:
        from coset.lineage.events import started  # noqa: PLC0415  it is optional

        return started(told, _now())

    def is_first() -> bool:
        attempt = ledger.attempt(plan.batch)
        numbers = (group.group for group in plan.groups)
        return ledger.verdict(plan.batch) is None and not ledger.receipts(plan.batch, attempt, numbers)

    if _is_told(plan) and is_first():
        _tell(ledger, plan, ledger.attempt(plan.batch), event)


def tell_failure(ledger: Ledger, plan: Plan, attempt: int, outcome: Outcome, report: bytes) -> None:
    """Send that an attempt was closed, with this outcome and report."""

    def event(told: AttemptRun) -> Any:
        from coset.lineage.events import failed  # noqa: PLC0415

        return failed(told, outcome, _now(), json.loads(report))

    _tell(ledger, plan, attempt, event)


def tell_given_up(ledger: Ledger, plan: Plan, verdict: Verdict) -> None:
    """Send that a batch was given up."""

    def event(told: AttemptRun) -> Any:
        from coset.lineage.events import given_up  # noqa: PLC0415

        return given_up(told, verdict, _decided(verdict))

    _tell(ledger, plan, verdict.attempt, event)


def tell_published(ledger: Ledger, plan: Plan) -> None:
    """Send that a batch is published. Sent again, it is the same event, with the time of the verdict."""
    if not _is_told(plan):
        return
    verdict, commit = ledger.verdict(plan.batch), ledger.commit(plan.batch)
    if verdict is None or commit is None:
        return
    judgement = ledger.judgement(plan.batch, verdict.attempt)

    def event(told: AttemptRun) -> Any:
        from coset.lineage.events import completed  # noqa: PLC0415

        return completed(told, verdict, commit, _decided(verdict), json.loads(judgement or b"{}"))

    _tell(ledger, plan, verdict.attempt, event)


def is_configured() -> bool:
    """Whether OpenLineage's client would find a configuration, in the places that its documentation names."""
    if os.environ.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return False
    named = any(name in os.environ for name in ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG"))
    named |= any(name.startswith("OPENLINEAGE__") for name in os.environ)
    return named or any(Path(name).expanduser().is_file() for name in _FILES)


def _now() -> int:
    return time.time_ns() // 1_000_000


def _decided(verdict: Verdict) -> int:
    """When a verdict was taken. Verdicts of earlier versions have no time: then now."""
    return verdict.taken.ended if verdict.taken else _now()


def _is_told(plan: Plan) -> bool:
    """Whether events are sent for this plan. Batches of a backfill have none: they are not the pipeline's own."""
    return is_configured() and pipeline_of(plan.pipeline) is None


def _tell(ledger: Ledger, plan: Plan, attempt: int, event: Callable[[AttemptRun], Any]) -> None:
    if not _is_told(plan):
        return
    talkative = logging.getLogger(_TALKATIVE)
    before = talkative.level
    talkative.setLevel(logging.CRITICAL)
    try:
        from openlineage.client import OpenLineageClient  # noqa: PLC0415

        from coset.lineage.events import AttemptRun  # noqa: PLC0415

        namespace, tables = os.environ.get("OPENLINEAGE_NAMESPACE", ""), ledger.uri(TABLES).rstrip("/")
        client = OpenLineageClient()
        client.emit(event(AttemptRun(plan, attempt, tables, namespace, environment())))
        client.close(timeout=5)
    except ImportError:
        _untold(plan, "its client is not installed: pip install 'coset[lineage]'")
    except Exception as error:
        # The error's text may have an address with a secret.
        _untold(plan, type(error).__name__)
    finally:
        talkative.setLevel(before)


def _untold(plan: Plan, why: str) -> None:
    _log.warning("Lineage of batch %s of %s: OpenLineage could not be told: %s", plan.batch, plan.pipeline, why)
