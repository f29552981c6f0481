"""The invariants: what holds in every state of the model, after every step, and at every end, whatever went wrong.

They are named after what a store has to keep to be exactly once: I1 to I9. Each says what is wrong, or nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from partitioning.documents.document import digest
from partitioning.kinds import Kind
from partitioning.model.verdict import Decision
from tests.model.seams import PREFIX
from tests.model.view import View

_ONCE = re.compile(
    rf"{PREFIX}(?:[^/]+/(?:plans|receipts|verdicts|commits|swaps|swapped|forgets)/.*|tables/[^/]+/_delta_log/[0-9]+\.json)"
)
_BACKUP = {
    kind.value
    for kind in (
        Kind.DOCUMENT_DAMAGED,
        Kind.DOCUMENT_MISSING,
        Kind.DOCUMENTS_DISAGREE,
        Kind.TABLE_AHEAD,
        Kind.TABLE_BEHIND,
        Kind.TABLE_CHANGED,
        Kind.TABLE_OWNER,
        Kind.TASK_FILES,
        Kind.FILE_GONE,
        Kind.BACKFILL_TABLE,
    )
}
Invariant = Callable[[View], Iterator[str]]


def i1_each_batch_is_in_a_table_once(view: View) -> Iterator[str]:
    for table in view.logs:
        batches = [batch for batch, _, _ in view.batches_in(table)]
        if batches != sorted(set(batches)):
            yield f"{table} has the batches {batches}"


def i1_no_record_is_there_twice(view: View) -> Iterator[str]:
    for table in view.logs:
        if twice := sorted(offset for offset, times in view.rows(table).items() if times > 1):
            yield f"{table} has {twice} twice"


def i2_batches_follow_one_another(view: View) -> Iterator[str]:
    reached = dict[str, int]()
    for batch in view.published:
        if (plan := view.plans.get(batch)) is None:
            continue
        for stream in plan.streams:
            for part in stream.partitions:
                name = f"{stream.name}-{part.partition}"
                if part.start != reached.get(name, part.start):
                    yield f"batch {batch} reads {name} from {part.start}, the one before read to {reached[name]}"
                reached[name] = part.end


def i5_only_what_was_decided_is_visible(view: View) -> Iterator[str]:
    for table in view.logs:
        for batch, info, added in view.batches_in(table):
            verdict, plan = view.verdicts.get(batch), view.plans.get(batch)
            if verdict is None or verdict.decision is not Decision.PUBLISH:
                yield f"{table} has batch {batch}, which no verdict publishes"
            elif plan is None or not digest(plan) == verdict.plan == info["coset.digest"]:
                yield f"{table} has batch {batch} of another plan"
            elif added != {file.path.removeprefix(f"tables/{table}/") for file in verdict.rows_of(table)}:
                yield f"{table} has other files of batch {batch} than its verdict names: {sorted(added)}"


def i5_only_what_was_judged_is_decided(view: View) -> Iterator[str]:
    for batch in view.published:
        if b'"met":true' not in view.judged(batch, view.verdicts[batch].attempt):
            yield f"batch {batch} is decided by an attempt whose checks did not pass"


def i5_files_that_count_are_there(view: View) -> Iterator[str]:
    for table in view.logs:
        if gone := [key for key in view.live(table) if key not in view.objects.by_key]:
            yield f"{table} lacks {gone}"
    for batch in view.plans:
        verdict = view.verdicts.get(batch)
        if verdict is None:
            named = [file for _, each in view.receipts(batch) for file in each.artefacts]
        else:
            named = [file for file in verdict.artefacts if verdict.decision is Decision.PUBLISH]
        if gone := [file.path for file in named if f"{PREFIX}{file.path}" not in view.objects.by_key]:
            yield f"of batch {batch} are gone {gone}"


def i7_receipts_say_what_tables_have(view: View) -> Iterator[str]:
    for batch, commit in view.commits.items():
        verdict, plan = view.verdicts.get(batch), view.plans.get(batch)
        if verdict is None or plan is None or (commit.plan, commit.verdict) != (digest(plan), digest(verdict)):
            yield f"the commit of batch {batch} is of another plan or verdict"
        for table in commit.tables:
            log = view.logs.get(table.table, [])
            actions = log[table.version] if table.version < len(log) else []
            if not any(each.get("commitInfo", {}).get("coset.plan") == str(batch) for each in actions):
                yield f"version {table.version} of {table.table} is not batch {batch}"


def i7_swaps_are_whole_once_they_have_a_receipt(view: View) -> Iterator[str]:
    for number, receipt in view.swapped.items():
        for table, version in receipt.tables.items():
            log = view.logs.get(table, [])
            actions = log[version] if version < len(log) else []
            if not any(each.get("commitInfo", {}).get("coset.swap") == str(number) for each in actions):
                yield f"version {version} of {table} is not swap {number}"


def i7_what_is_written_once_stays(before: View, after: View) -> Iterator[str]:
    now = after.objects.by_key
    for key, data in before.objects.by_key.items():
        if now.get(key) != data and _ONCE.fullmatch(key):
            yield f"{key} was {'replaced' if key in now else 'removed'}"


def i6_what_was_told_is_so(view: View, told: str) -> Iterator[str]:
    """`told` is what an actor ended with."""
    word, _, batch = told.partition(" ")
    if word == "published":
        commit = view.commits.get(int(batch))
        if commit is None or any(
            all(int(batch) != each for each, _, _ in view.batches_in(t.table)) for t in commit.tables
        ):
            yield f"an actor said {told!r}"


def i9_refusals_have_names(told: str) -> Iterator[str]:
    if told == "endless" or told.startswith("broke"):
        yield f"an actor ended with {told!r}"


def i9_nobody_is_sent_for_a_backup(told: str) -> Iterator[str]:
    """Nothing of the model is ever damaged, lost, or changed by others."""
    if _BACKUP & set(re.split(r"[:,] ", told)):
        yield f"an actor ended with {told!r}"


def i8_all_is_published_at_last(view: View) -> Iterator[str]:
    """After faults have stopped, and somebody has run the pipeline to its end, alone."""
    for table, rows in ((table, view.rows(table)) for table in view.logs or [""]):
        if missing := sorted(view.arrived - rows.keys()):
            yield f"{table or 'no table'} lacks {missing}"
    if view.swaps and max(view.swaps) not in view.swapped:
        yield f"swap {max(view.swaps)} is not finished"
    for table in view.logs:
        for batch, put in view.exchanged.items():
            of_batch, run = [key for key in view.live(table) if f"/plan-{batch}/" in key], re.compile("-again([0-9]+)/")
            if any([int(number) for number in run.findall(key)] != put[-1:] for key in of_batch):
                yield f"after {len(view.swaps)} swaps {table} has of batch {batch} {of_batch}"


def i9_what_is_unknown_was_not_answered(told: str) -> Iterator[str]:
    """Asked where no answer was lost and no request refused."""
    if told.startswith(("OutcomeUnknown", "Unreachable")):
        yield f"an actor ended with {told!r}, and all was answered"


def i9_who_is_denied_is_told_so(told: str) -> Iterator[str]:
    """Asked of who ended as one verb was denied."""
    if told.startswith(("Refused", "Unreachable", "OutcomeUnknown")) and Kind.STORE_DENIED.value not in told:
        yield f"an actor that was denied ended with {told!r}"


AT_AN_END = (i9_refusals_have_names, i9_nobody_is_sent_for_a_backup)
IN_EVERY_STATE: tuple[Invariant, ...] = (
    i1_each_batch_is_in_a_table_once,
    i1_no_record_is_there_twice,
    i2_batches_follow_one_another,
    i5_only_what_was_decided_is_visible,
    i5_only_what_was_judged_is_decided,
    i5_files_that_count_are_there,
    i7_receipts_say_what_tables_have,
    i7_swaps_are_whole_once_they_have_a_receipt,
)
