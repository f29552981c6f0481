"""Batches in which a migration loses a row that a step kept, or gives it another key: each is refused."""

from __future__ import annotations

from pathlib import Path

from tests.integration.test_changed_state import Changing, clicks, history, tallied
from tests.judged import MIGRATED, Refusal, caught_by, refusal
from tests.running import run_groups

__all__ = ["history"]


def migrated(history: Changing, function: str) -> Refusal:
    """A batch whose one task migrates twelve rows by a function."""
    history.batch(tallied(), clicks(*range(12)))
    ref = history.planned(tallied(function), clicks(1), "tasks(1)")
    run_groups(ref)
    return refusal(ref)


@caught_by(MIGRATED)
def test_a_migration_that_loses_a_row_is_refused(history: Changing, tmp_path: Path) -> Refusal:
    said = migrated(history, "with_twice_without_one")
    assert "11 rows of 12 that were kept" in said.findings[0]
    return said


@caught_by(MIGRATED)
def test_a_migration_that_changes_a_key_is_refused(history: Changing, tmp_path: Path) -> Refusal:
    said = migrated(history, "with_twice_under_another_key")
    assert "12 rows, but not of the keys that were kept" in said.findings[0]
    return said
