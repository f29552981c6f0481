"""A batch that has run, audited and checked: which expectations are not met, and that nothing came of it.

A test says by `caught_by` which expectation has to refuse the batch that it makes wrong.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

import pytest

from coset.batches import publication, steps
from coset.batches.ref import BatchRef
from partitioning.errors import Refused

COVERED = "expect_offsets_to_be_covered_exactly_once"
HAVE_KEYS = "expect_records_to_have_keys"
CONTINUES = "expect_batch_to_continue_the_previous"
EXPLAINED = "expect_gaps_to_be_explained"
REMEMBERED = "expect_ends_to_be_remembered"
EMPTY = "expect_gaps_to_be_empty"
HOLD = "expect_tables_to_hold_the_previous_batch"
BALANCE = "expect_rows_of_tables_to_balance"
QUERIES = "expect_tables_to_be_their_queries"
KEEP = "expect_tables_to_keep_their_rows"
IN_PLACE = "expect_records_to_lie_where_their_keys_hash"
MEET = "expect_keys_to_meet_in_one_task"
PRODUCED = "expect_rows_to_be_written_as_they_were_made"
MIGRATED = "expect_keys_to_be_migrated_once"
ASIDE_KEPT = "expect_set_aside_records_to_be_kept"
ASIDE_FEW = "expect_few_records_to_be_set_aside"
HASH = "expect_keys_to_hash_to_their_partition"
FOLLOW = "expect_watermarks_to_follow"
ONCE = "expect_what_is_over_to_be_given_once"

# The tests that are `caught_by` each expectation.
CAUGHT: dict[str, set[str]] = {}

P = ParamSpec("P")


@dataclass(frozen=True)
class Refusal:
    """What Great Expectations said of an attempt: the expectations not met, each with its finding and next step."""

    failed: tuple[str, ...]
    findings: tuple[str, ...]
    next: tuple[str, ...]


def caught_by(expectation: str) -> Callable[[Callable[P, Refusal]], Callable[P, None]]:
    """A test that makes a batch wrong and gives its refusal, which has to be this expectation's and no other's."""

    def made_a_test(make_wrong: Callable[P, Refusal]) -> Callable[P, None]:
        CAUGHT.setdefault(expectation, set()).add(make_wrong.__name__)

        @wraps(make_wrong)
        def test(*args: P.args, **kwargs: P.kwargs) -> None:
            assert set(make_wrong(*args, **kwargs).failed) == {expectation}

        return test

    return made_a_test


def refusal(ref: BatchRef, docs: Path | None = None) -> Refusal:
    """Audit and check a batch, which has to fail and to leave everything as it was before. Without `docs` no page is
    made."""
    ledger, plan = ref.load()
    attempt, before = ledger.attempt(plan.batch), held(ref)
    steps.audit(ref)
    with pytest.raises(Refused) as refused:
        steps.check(ref, docs)
    unmet = [each for each in results(ref, attempt) if not each["success"] and each["severity"] == "error"]
    failed = tuple(result["expectation"] for result in unmet)
    findings = tuple(finding.what for finding in refused.value.findings)
    next_steps = tuple(finding.then for finding in refused.value.findings)
    assert len(failed) == len(findings)
    assert ledger.verdict(plan.batch) is None
    with pytest.raises(Refused, match="is not decided"):
        steps.publish(ref)
    assert ledger.commit(plan.batch) is None
    assert held(ref) == before
    assert ledger.attempt(plan.batch) == attempt + 1
    return Refusal(failed, findings, next_steps)


def saying(refused: Refusal, *parts: str) -> Refusal:
    """The refusal, whose first finding says all of this."""
    missing = [part for part in parts if part not in refused.findings[0]]
    assert not missing, f"{missing} not in {refused.findings}"
    return refused


def results(ref: BatchRef, attempt: int = 0) -> list[dict[str, Any]]:
    """What Great Expectations found of each expectation of an attempt."""
    ledger, plan = ref.load()
    stored = ledger.store.get(f"{plan.pipeline}/audits/{plan.batch}/attempt-{attempt}/judgement.json")
    assert stored is not None
    found: list[dict[str, Any]] = json.loads(stored)["results"]
    return found


def held(ref: BatchRef) -> dict[str, int | None]:
    """The newest batch that each result table holds."""
    ledger, plan = ref.load()
    tables = [write.declared.table for write in plan.writes()]
    return {table: publication.transaction_version(ledger.store, plan.pipeline, table) for table in tables}
