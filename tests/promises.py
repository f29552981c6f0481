"""`python -m tests.promises` writes docs/internals/promises.md: what is promised, and what was done to break it.

With `all`, or with names of tests, it runs these before, with all examples, and remembers how often each met its class
of faults. It ends non-zero if one fails, or never met it.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

from tests.model.__main__ import FAULTS
from tests.seeded.__main__ import faults
from tests.specification.guards import GUARDS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "internals" / "promises.md"
# How often each test met its faults, and the day of that.
MET = Path(__file__).with_name("promises.json")
# A promise, the properties of the specification that it is, and the invariants of the model.
PROMISES = (
    ("No record is in a table twice.", ("Once",), ("i1_each_batch_is_in_a_table_once", "i1_no_record_is_there_twice")),
    (
        "A published batch is in all of its tables, and so are all records before its end.",
        ("Whole",),
        ("i2_batches_follow_one_another", "i6_what_was_told_is_so", "i7_receipts_say_what_tables_have"),
    ),
    (
        "Only rows that were judged are published.",
        ("Judged",),
        ("i5_only_what_was_decided_is_visible", "i5_only_what_was_judged_is_decided"),
    ),
    ("Files of what is published, or will be, stay.", ("Held",), ("i5_files_that_count_are_there",)),
    ("Totals go on from those of the last published batch.", ("GoesOn",), ()),
    (
        "After a swap or an undo readers see what was decided last.",
        ("AsDecided", "SwapEnds"),
        ("i7_swaps_are_whole_once_they_have_a_receipt",),
    ),
    (
        "A plan and a verdict stay as they were first stored.",
        ("PlanStays", "VerdictStays"),
        ("i7_what_is_written_once_stays",),
    ),
    (
        "If one process goes on, all that landed is published, whatever the others do.",
        ("Progress",),
        ("i8_all_is_published_at_last", "i8_one_gets_on_beside_a_bad_one"),
    ),
    (
        "Who is refused is told why, and is sent for no backup.",
        (),
        (
            "i9_refusals_have_names",
            "i9_nobody_is_sent_for_a_backup",
            "i9_what_is_unknown_was_not_answered",
            "i9_who_is_denied_is_told_so",
            "i9_who_is_ill_ends_too",
        ),
    ),
)
# The classes of faults, and tests that meet them.
CLASSES = {
    "a process killed at any step, again and again": "test_a_run_killed_at test_a_run_killed_again_and_again",
    "a driver, an executor or a worker killed": (
        "test_a_driver_that_is_killed_in_mid_task_takes_its_executors_along_and_its_group_runs_again"
        " test_groups_use_both_hosts_and_an_executor_that_is_killed_evicted_or_stopped_in_mid_task_loses_nothing"
        " test_a_function_that_ends_its_process_is_told_from_memory_that_ran_out"
    ),
    "a document stored, its answer lost": "test_a_document_that_is_stored_but_never_answered_is_read_back",
    "a commit stored, its answer lost": "test_a_delta_commit_that_is_stored_but_not_answered_counts_once",
    "many processes at once": "test_sixteen_processes_publishing_one_batch_make_one_version_of_it",
    "a process that slept": (
        "test_a_run_stopped_at test_a_publisher_that_slept_through_two_batches_is_refused_by_the_log"
        " test_a_scheduler_that_is_stopped_with_its_tasks_and_goes_on_once_it_was_given_up_doubles_none"
        " test_a_driver_or_a_python_worker_that_is_stopped_and_goes_on_once_another_has_published_doubles_none"
        " test_who_stopped_before_it_asked_the_catalogue_takes_nothing_back_of_what_came_meanwhile"
    ),
    "a write that arrives late": "test_every_order_of_two_with_a_crash_and_a_lost_answer_does",
    "a store that fails or is slow": "test_a_batch_ends_right_though_one_request_in_twenty_is_spoiled",
    "a conflict that is none": "test_a_document_that_meets_a_fault_once_is_stored_once",
    "a listing that lags, or leaves something out": (
        "test_the_newest_plan_is_found_where_the_listing_lags_behind"
        " test_where_a_listing_leaves_something_out_nothing_goes_that_counts"
    ),
    "a damaged document": "test_any_truncation_is_refused test_a_damaged_verdict_is_refused",
    "a lost document": "test_a_lost_commit_object_is_made_again_with_the_same_bytes",
    "all documents lost": "test_a_table_that_is_ahead_of_a_lost_control_folder_is_refused",
    "a wrong clock": (
        "test_runs_whose_clocks_are_hours_apart test_the_times_of_new_records_count_when_the_clock_was_set_back"
    ),
    "input that changed": "test_a_file_that_changed_after_it_was_opened_is_refused_and_what_was_read_is_not_used",
    "offsets that are missing": "test_a_hole_that_is_larger_than_declared_is_refused_with_its_range",
    "offsets that come twice": "test_offsets_that_are_missing_or_twice_are_told_and_declared",
    "a topic made anew, records expired": "test_a_topic_that_was_reset_is_refused",
    "null and odd keys": "test_keys_that_are_equal_up_to_a_nul_are_two_keys",
    "partitions that come and go": "test_new_partitions_start_at_their_beginning",
    "other counts": "test_a_batch_of_records_by_the_old_and_by_the_new_count",
    "other columns": "test_columns_that_are_added_dropped_reordered_and_widened_are_read_together",
    "records that nobody can read": "test_a_line_that_cannot_be_read_is_set_aside_and_the_others_count",
    "code that loses or doubles rows": "test_a_writer_that_drops_or_doubles_a_row_is_refused",
    "a full disk": ("test_a_run_whose_store_is_full test_a_full_disk_is_freed_before_the_same_command_is_run_again"),
    "few file descriptors": "test_a_run_that_may_open_few_files",
    "no memory left": "test_a_function_that_ends_its_process_is_told_from_memory_that_ran_out",
    "two schedulers, of which one is killed, and tasks cleared": (
        "test_a_scheduler_that_is_killed_in_mid_run_with_its_tasks_costs_no_record_and_doubles_none"
        " test_a_task_whose_process_is_killed_is_tried_again"
        " test_what_was_marked_failed_publishes_nothing_until_it_is_cleared_and_cleared_again_changes_nothing"
    ),
    "a broker that goes": (
        "test_a_leader_that_is_killed_in_the_middle_makes_no_difference"
        " test_without_a_leader_brokers_are_unreachable_until_there_is_one"
    ),
    "all of these in turn": "test_a_soak_loses_and_doubles_nothing",
    "a backfill beside batches": "test_every_order_of_two_keeps_what_was_promised",
    "files changed before a commit": ("test_a_file_that_changed_after_the_verdict_is_refused_and_nothing_published"),
    "cleaning and vacuum": (
        "test_a_table_that_was_compacted_vacuumed_and_checkpointed_keeps_its_batches"
        " test_a_compaction_that_stops_while_a_swap_is_taken_back_removes_nothing_that_a_table_has"
        " test_a_compaction_that_ends_early_leaves_what_another_wrote_meanwhile"
    ),
    "odd characters in names": "test_names_with_quotes_stay_names",
    "a store that ignores conditions": "test_a_store_that_does_not_keep_its_word_is_refused",
    "very many tasks": "test_a_hundred_thousand_tasks_in_a_thousand_groups_move_seldom",
    "credentials that expire": "test_credentials_that_expire_in_the_middle_of_each_step_are_asked_for_again",
    "documents of other versions": (
        "test_a_plan_of_a_newer_version_is_refused_and_nothing_is_changed"
        " test_batches_go_on_from_what_a_released_version_left"
    ),
}
_WORDS = """# Promises

*Which promises hold through crashes, and how was that checked?*

`python -m tests.promises` writes this page.

{promises}

**Specification.** `tests/specification/Batches.tla`, in [TLA+](https://lamport.azurewebsites.net/tla/tla.html),
says what processes do to the store and the tables, from [plan to publication](publication.md). TLC looks at all
orders of calls: of one or two actors, batches and tables, with a crash and a lost answer. Each guard has its own
bounds: with it all properties hold, in so many states; without it one fails.

{guards}

`tests/integration/test_specification.py` compares.

**Code.** `tests/model` runs the real code. *Taken out* are guards of it: `python -m tests.model` finds each by an
invariant of that row. `tests/integration/test_traces.py` holds 10,000 schedules of it against the specification, which
has to allow each step, and refuses forged ones. It refuses what the code does without {refused} of the guards too. Of
the others an invariant tells more than what was stored in which order.

`tests/model/lasting.py` has actors that never get well: they come back, crash after each number of writes, or are
denied a verb. Beside any of them all has to be published within 200 requests.

**Faults.** A test meets each class, so many times when it last ran, on {day} or later:

{classes}

**Checked within these bounds**: no proof for more actors. Not specified: clocks, several pipelines with one table,
two backfills, hand-over, restoring, compaction, and what Spark, Airflow and the store do inside.
"""


def page() -> str:
    """The page."""
    met = {test: told.split(", ") for test, told in json.loads(MET.read_text()).items()}
    return _WORDS.format(
        promises=_table("promise | specification | model | taken out", map(_promise, PROMISES)),
        guards=_table(
            "guard | fails without it | states | code",
            (
                f"`{each.guard}` | `{each.fails}` | {each.states:,} | `{each.code.__module__}.{each.code.__qualname__}`"
                for each in GUARDS
            ),
        ),
        refused=sum(fault.refused for fault in faults(FAULTS)),
        day=min(day for _, day in met.values()),
        classes="\n".join(
            f"- {fault}: {', '.join(f'`{test}` ({met[test][0]})' for test in tests.split())}"
            for fault, tests in CLASSES.items()
        ),
    )


def there() -> dict[str, list[str]]:
    """The files with a test of a name."""
    found = dict[str, list[str]]()
    for file in (ROOT / "tests").rglob("test_*.py"):
        for name in re.findall(r"^def (test_\w+)\(", file.read_text(), re.M):
            found.setdefault(name, []).append(str(file))
    return found


def run(tests: Collection[str]) -> int:
    """Run tests, and remember how often they met their faults."""
    where, met = there(), Counter[str]()
    with TemporaryDirectory() as folder:
        file = Path(folder) / "told.xml"
        words = ["--hypothesis-profile", "thorough", f"--junitxml={file}"]
        words += [f"{place}::{each}" for each in tests for place in where[each]]
        code = subprocess.run([sys.executable, "-m", "pytest", *words], check=False, cwd=ROOT).returncode
        if not file.exists():
            print(f"pytest was ended by signal {-code}")
            return 1
        for case in ElementTree.parse(file).iter("testcase"):
            passed = {told.tag for told in case}.isdisjoint(("failure", "error", "skipped"))
            met[case.get("name", "").partition("[")[0]] += passed
    day = str(datetime.now(UTC).date())
    known = json.loads(MET.read_text()) if MET.exists() else {}
    MET.write_text(json.dumps(known | {each: f"{met[each]}, {day}" for each in tests}, indent=1, sort_keys=True) + "\n")
    never = [each for each in tests if not met[each]]
    print(*(f"never met: {each}" for each in never), sep="\n")
    return code or min(len(never), 1)


def _promise(promise: tuple[str, tuple[str, ...], tuple[str, ...]]) -> str:
    words, properties, invariants = promise
    out = (fault.name for fault in faults(FAULTS) if fault.found_by in invariants)
    return " | ".join((words, _code(properties), _code(invariants), _code(out)))


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _table(head: str, rows: Iterable[str]) -> str:
    def lines() -> Iterator[str]:
        yield head
        yield " | ".join("---" for _ in head.split("|"))
        yield from rows

    return "\n".join(f"| {line} |" for line in lines())


def main(words: Sequence[str]) -> int:
    code = run(" ".join(CLASSES.values()).split() if list(words) == ["all"] else words) if words else 0
    PAGE.write_text(page())
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
