"""What is read of state is proved, whoever left it, and so are the times that a batch goes by."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from coset.batches.ref import BatchRef
from partitioning.authoring.settings import Settings
from partitioning.documents.document import encode
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.errors import Refused
from partitioning.model.graph import Step
from partitioning.model.leaving import LeftPart, LeftPartition
from partitioning.model.order import OrderedParts
from partitioning.model.plan import Plan
from partitioning.model.receipt import Role
from partitioning.model.stage_inputs import StateInput
from partitioning.values import replace
from tests.as_of import AsOf
from tests.expiring import Expiring
from tests.histories import Click, History
from tests.integration.test_watermarks import A, B, Clicks
from tests.judged import COVERED, FOLLOW, IN_PLACE, ONCE, Refusal, caught_by, refusal, saying
from tests.misread import read_otherwise
from tests.outer import END, Outer
from tests.real_batches import ran
from tests.running import run_groups, task_receipts
from tests.there import there
from tests.totals import totals
from tests.windowed import Windowed

Parts = tuple[LeftPart, ...]


def second(store: Store, docs: Path) -> BatchRef:
    """The third of three batches that have the same keys, planned."""
    history = History(store, docs, totals)
    for batch in range(3):
        history.land([Click(f"key-{number}", number, batch) for number in range(40)], [], 4)
        ref = history.plan(Settings.parse(groups=2), 4)
        if batch < 2:
            history.publish(ref)
    return ref


def run_spoiled(ref: BatchRef, patch: pytest.MonkeyPatch, spoil: Callable[[Parts], Parts]) -> None:
    """Run the batch; whoever reads partition 1 of state reads other parts of it than the order says."""

    def spoiled(left: LeftPartition) -> LeftPartition:
        return replace(left, parts=spoil(left.parts)) if left.partition == 1 else left

    def of_state(read: OrderedParts) -> OrderedParts:
        if not isinstance(read.read, StateInput):
            return read
        return replace(read, partitions=tuple(map(spoiled, read.partitions)))

    read_otherwise(patch, of_state)
    run_groups(ref)


@caught_by(COVERED)
def test_a_run_that_is_not_read_is_missed(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Refusal:
    ref = second(store, tmp_path)
    run_spoiled(ref, monkeypatch, lambda parts: parts[1:])
    return refusal(ref, tmp_path)


@caught_by(COVERED)
def test_a_run_that_is_read_twice_is_seen(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Refusal:
    ref = second(store, tmp_path)
    run_spoiled(ref, monkeypatch, lambda parts: (*parts, parts[0]))
    return refusal(ref, tmp_path)


def test_state_of_other_keys_is_seen(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ref = second(store, tmp_path)
    ledger, _ = ref.load()
    verdict = there(ledger.verdict(0))
    (file,) = (file for file in verdict.artefacts if file.role is Role.STATE and file.task == 2)
    (theirs,) = file.parts

    def others(parts: Parts) -> Parts:
        stolen = {
            "task": file.task,
            "path": file.path,
            "size": file.size,
            "etag": file.etag,
            "start": theirs.start,
            "end": theirs.end,
        }
        return (replace(parts[0], **stolen), *parts[1:])

    run_spoiled(ref, monkeypatch, others)
    said = refusal(ref, tmp_path)
    assert IN_PLACE in said.failed
    assert any("where the task that wrote it did not put it" in finding for finding in said.findings)


@pytest.mark.parametrize("gone", [True, False], ids=["gone", "changed"])
def test_a_file_of_state_that_is_not_what_was_left_is_refused(gone: bool, store: Store, tmp_path: Path) -> None:
    ref = second(store, tmp_path)
    ledger, _ = ref.load()
    verdict = there(ledger.verdict(0))
    path = next(file.path for file in verdict.artefacts if file.role is Role.STATE)
    if gone:
        store.delete(path)
    else:
        store.put(path, (store.get(path) or b"")[::-1])
    with pytest.raises(Refused, match="the file is gone or was changed since a task left it"):
        run_groups(ref)


@pytest.mark.parametrize("gone", [True, False], ids=["gone", "another"])
def test_a_verdict_that_is_not_the_pinned_one_is_refused(gone: bool, store: Store, tmp_path: Path) -> None:
    ref = second(store, tmp_path)
    ledger, _ = ref.load()
    verdict, key = ledger.verdict(0), ledger.key("verdicts", 0)
    assert verdict is not None
    if gone:
        store.delete(key)
    else:
        fewer = tuple(file for file in verdict.artefacts if file.task != 2)
        store.put(key, encode(replace(verdict, artefacts=fewer)))
    with pytest.raises(Refused, match=r"the verdict sha256:.*, which names totals\.state, ") as refused:
        run_groups(ref)
    assert "restore the document from a backup" in refused.value.findings[0].then


def test_a_batch_that_failed_has_left_nothing(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ref = second(store, tmp_path)
    with monkeypatch.context() as patch:
        run_spoiled(ref, patch, lambda parts: parts[1:])
        refusal(ref, tmp_path)
    history = History(store, tmp_path, totals)
    written = history.publish(ref, attempt=1)
    assert written["totals"] == sorted(((f"key-{number}", 3, number) for number in range(40)), key=repr)
    assert {file.records for task in task_receipts(ref, 1) for file in task.left(Role.STATE)} != {0}
    assert Ledger(store, "kept").attempt(2) == 1


@caught_by(FOLLOW)
def test_a_plan_whose_watermark_is_ahead_of_what_was_counted_is_refused(store: Store) -> Refusal:
    clicks = Clicks(store)
    clicks.batch((A, 5), (B, 3))
    clicks.land((A, 6), (B, 6))

    def hurried(plan: Plan) -> Plan:
        (mark,) = plan.watermarks
        assert mark.time is not None
        return replace(plan, watermarks=(replace(mark, time=mark.time + 60 * 10**6),))

    said = refusal(ran(store, clicks.pipeline, hurried))
    assert "- clicks: the watermark is 2026-01-01 12:02:00 by the plan, 2026-01-01 12:01:00 by the ledger" in str(
        said.findings[0]
    )
    return said


def otherwise(name: str | None, sql: str, wrong: str) -> Callable[[Plan], Plan]:
    """The plan with other SQL in one of its steps, or in each that has it."""

    def given(step: Step) -> Step:
        assert step.name != name or sql in step.sql
        return replace(step, sql=step.sql.replace(sql, wrong)) if name in (None, step.name) else step

    return lambda plan: replace(
        plan, stages=tuple(replace(stage, steps=tuple(map(given, stage.steps))) for stage in plan.stages)
    )


@caught_by(ONCE)
@pytest.mark.parametrize("wrong", ['"clicks"."@new"', "false", "true"])
def test_a_join_that_gives_too_early_or_never_or_again_what_found_no_partner_is_refused(
    store: Store, wrong: str
) -> Refusal:
    outer = Outer(store, "left")
    outer.batch([Click("a", 1, 0), Click("a", 2, 118)], [Click("b", 3, 0)])
    last = [Click(key, END, 130) for key in "abcdefgh"]
    outer.batch(last, last)
    outer.land([Click("a", 4, 131)], [Click("b", 4, 131)])

    ref = ran(store, outer.pipeline, otherwise(None, 'THEN "clicks"."@closes"', f"THEN {wrong}"))
    return saying(refusal(ref), "over, 0 had met a partner")


@caught_by(ONCE)
@pytest.mark.parametrize(
    ("late", "sql", "wrong"),
    [
        ("correct", "\"@time\" < getvariable('counted.both@now') - 899999999 AND", ""),
        ("correct", "< getvariable('counted.both@now')", "< getvariable('counted.both@before')"),
        ("correct", "OR bool_or", "OR true OR bool_or"),
        ("correct", 'count(*) AS "@records"', '1 AS "@records"'),
        ("sessions", "HAVING coalesce(", "HAVING true OR coalesce("),
        ("sessions", "AND NOT coalesce(", "OR coalesce("),
        ("sessions", "<= 420000000", "<= 0"),
        ("sessions", 'count(*) AS "@records"', '1 AS "@records"'),
    ],
)
def test_windows_or_sessions_that_are_given_too_early_or_late_or_again_or_in_part_are_refused(
    store: Store, late: str, sql: str, wrong: str
) -> Refusal:
    windowed = Windowed(store, late)
    windowed.batch([Click("a", 1, 0), Click("a", 2, 50)], [Click("b", 3, 0)])
    for minute in (40, 60):
        last = [Click(key, END, minute + early) for early in (-5, -1, 0) for key in "abcdefgh"]
        windowed.batch(last, last)
    windowed.land([Click("a", 4, 61)], [Click("b", 4, 61)])
    said = refusal(ran(store, windowed.pipeline, otherwise("counted.counted", sql, wrong)))
    assert re.search("were over, 0 had met a partner|were given, but not of the keys", said.findings[0])
    return said


@caught_by(ONCE)
@pytest.mark.parametrize(
    ("sql", "wrong"),
    [
        ("> 1200000000", "> 0"),
        ('max("@time") AS "@time"', 'min("@time") AS "@time"'),
        ('sum("@records")', "count(*)"),
        ('WHERE "@time" IS NOT NULL', "WHERE ids > 2"),
    ],
)
def test_keys_that_expire_too_early_or_late_or_in_part_are_refused(store: Store, sql: str, wrong: str) -> Refusal:
    expiring = Expiring(store, "combine")
    last = [Click(key, END, 60) for key in "abcdefgh"]
    expiring.batch([Click("a", 1, 0)], [Click("a", 3, 0)])
    expiring.batch(last, last)
    expiring.land([Click("a", 4, 1), Click("a", 2, 19)], [Click("b", 4, 10)])
    said = refusal(ran(store, expiring.pipeline, otherwise("found", sql, wrong)))
    assert re.search("keys? expired, and|were given, but not those that were over", said.findings[0])
    return said


@caught_by(ONCE)
@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ('WHERE "@closes"', "WHERE true", "were over"),
        ('WHERE "@closes"', "WHERE false", "2 records had a version, and 0 were given with one"),
        ('>= "views"."@since"', '< "views"."@since"', "were over"),
        ("ASOF LEFT JOIN", "LEFT JOIN", "had a version"),
    ],
)
def test_a_join_as_of_a_time_that_gives_a_record_too_early_or_never_or_another_version_is_refused(
    store: Store, right: str, wrong: str, said: str
) -> Refusal:
    as_of = AsOf(store)
    as_of.batch([Click("a", 1, 0), Click("a", 2, 118)], [Click("a", 3, 0), Click("a", 5, 1)])
    last = [Click(key, END, 130) for key in "abcdefgh"]
    as_of.batch(last, last)
    as_of.land([Click("a", 4, 131)], [Click("b", 3, 131)])
    return saying(refusal(ran(store, as_of.pipeline, otherwise(None, right, wrong))), said)
