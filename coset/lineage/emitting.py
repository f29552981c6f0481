"""Lineage: other catalogues are told of each attempt of a batch, by OpenLineage's own client and its configuration.

It decides nothing: what cannot be told is said in the log, and the batch goes on. Without a configuration nothing is
imported and nothing is sent.
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
from partitioning.model.verdict import Verdict

if TYPE_CHECKING:
    from coset.lineage.events import AttemptRun

_log = logging.getLogger(__name__)
# They write a line or more about each failure, some with addresses.
_TALKATIVE = "openlineage"
_FILES = ("openlineage.yml", "~/.openlineage/openlineage.yml")


def tell_start(ledger: Ledger, plan: Plan) -> None:
    """An attempt is about to run for the first time: it has no receipt."""

    def event(told: AttemptRun) -> Any:
        from coset.lineage.events import started  # noqa: PLC0415  it is optional

        return started(told, _now())

    def is_first() -> bool:
        attempt = ledger.attempt(plan.batch)
        numbers = (group.group for group in plan.groups)
        return ledger.verdict(plan.batch) is None and all(
            ledger.receipt(plan.batch, attempt, number) is None for number in numbers
        )

    if _is_told(plan) and is_first():
        _tell(ledger, plan, ledger.attempt(plan.batch), event)


def tell_failure(ledger: Ledger, plan: Plan, attempt: int, report: bytes) -> None:
    """An attempt was closed with this report."""

    def event(told: AttemptRun) -> Any:
        from coset.lineage.events import failed  # noqa: PLC0415

        return failed(told, _now(), json.loads(report))

    _tell(ledger, plan, attempt, event)


def tell_given_up(ledger: Ledger, plan: Plan, verdict: Verdict) -> None:
    """A batch was given up."""

    def event(told: AttemptRun) -> Any:
        from coset.lineage.events import given_up  # noqa: PLC0415

        return given_up(told, verdict, _decided(verdict))

    _tell(ledger, plan, verdict.attempt, event)


def tell_published(ledger: Ledger, plan: Plan) -> None:
    """A batch is published. Told again, it is the same event: at the time of the verdict."""
    if not _is_told(plan):
        return
    verdict, commit = ledger.verdict(plan.batch), ledger.commit(plan.batch)
    if verdict is None or commit is None:
        return
    key = f"{plan.pipeline}/audits/{plan.batch}/attempt-{verdict.attempt}/judgement.json"

    def event(told: AttemptRun) -> Any:
        from coset.lineage.events import completed  # noqa: PLC0415

        return completed(told, verdict, commit, _decided(verdict), json.loads(ledger.store.get(key) or b"{}"))

    _tell(ledger, plan, verdict.attempt, event)


def is_configured() -> bool:
    """Whether OpenLineage's client would find a configuration, as its documentation says where."""
    if os.environ.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return False
    named = any(name in os.environ for name in ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG"))
    return named or any(name.startswith("OPENLINEAGE__") for name in os.environ) or any(map(_is_file, _FILES))


def _now() -> int:
    return time.time_ns() // 1_000_000


def _decided(verdict: Verdict) -> int:
    """When a verdict was taken; earlier versions did not say."""
    return verdict.taken.ended if verdict.taken else _now()


def _is_file(name: str) -> bool:
    return Path(name).expanduser().is_file()


def _is_told(plan: Plan) -> bool:
    """Batches of a backfill are compared, and published by a swap: they are none of the pipeline's."""
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

        namespace = os.environ.get("OPENLINEAGE_NAMESPACE") or "coset"
        client = OpenLineageClient()
        client.emit(event(AttemptRun(plan, attempt, ledger.store.root, namespace)))
        client.close(timeout=5)
    except ImportError:
        _untold(plan, "its client is not installed: pip install 'coset[lineage]'")
    except Exception as error:
        # What it says may name an address with a secret.
        _untold(plan, type(error).__name__)
    finally:
        talkative.setLevel(before)


def _untold(plan: Plan, why: str) -> None:
    _log.warning("Lineage of batch %s of %s: OpenLineage could not be told: %s", plan.batch, plan.pipeline, why)
