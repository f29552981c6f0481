"""Findings whose next step is followed: for each kind, the test that meets it and does what it says next."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from coset.cli.asked import OPTIONS
from coset.cli.main import app  # noqa: F401  it declares the options
from partitioning.kinds import Kind
from partitioning.model.verdict import Outcome
from tests import forked

# Tests that meet findings of these kinds, and run the command that they name, as it is written, or do what they say
# and run the same command again.
FOLLOWED: dict[str, dict[str, set[Kind]]] = {
    "tests/integration/test_folder_store.py": {
        "test_tasks_on_other_machines_cannot_use_a_folder": {Kind.STORE_ELSEWHERE}
    },
    "tests/integration/test_iceberg.py": {
        "test_a_catalogue_that_does_not_answer_stops_no_batch": {Kind.ICEBERG_UNREACHABLE},
        "test_what_others_wrote_there_is_taken_back_or_the_table_made_again": {Kind.ICEBERG_TABLE},
    },
    "tests/integration/test_iceberg_inputs.py": {
        "test_a_table_with_deleted_rows_is_begun_anew_with_what_is_there": {Kind.STREAM_DELETES}
    },
    "tests/integration/test_keys_in_parts.py": {
        "test_a_key_that_is_too_large_alone_is_named_with_the_memory_that_does": {Kind.MEMORY}
    },
    "tests/integration/test_next_steps.py": {
        "test_what_there_is_not_is_looked_up_by_the_command_that_is_named": {
            Kind.BATCH_UNPUBLISHED,
            Kind.BATCH_NONE_OPEN,
            Kind.BACKFILL_UNKNOWN,
        },
        "test_a_batch_that_waits_is_planned_anew_or_tried_again": {Kind.BATCH_WAITS},
        "test_a_backfill_that_was_paused_cancelled_or_put_in_place_says_how_to_go_on": {
            Kind.BACKFILL_HELD,
            Kind.BACKFILL_UNREADY,
            Kind.BACKFILL_TURN,
        },
        "test_a_file_that_lands_in_a_gap_of_a_batch_is_read_by_a_backfill_with_repaired_input": {Kind.PROOF},
    },
    "tests/integration/test_next_steps_batches.py": {
        "test_a_store_that_answers_again_is_asked_again": {Kind.STORE_UNREACHABLE},
        "test_a_write_whose_end_nobody_knows_is_settled_by_the_same_command": {Kind.STORE_UNKNOWN},
        "test_what_is_gone_is_restored_from_a_backup": {
            Kind.DOCUMENT_DAMAGED,
            Kind.DOCUMENT_MISSING,
            Kind.TABLE_BEHIND,
            Kind.TABLE_AHEAD,
        },
        "test_batches_are_named_that_are_published": {Kind.BATCH_UNKNOWN},
        "test_a_batch_that_is_open_is_finished_first": {Kind.BATCH_OPEN},
        "test_a_table_of_another_pipeline_is_handed_over": {Kind.TABLE_OWNER, Kind.TABLE_AGAIN},
        "test_a_rule_of_a_table_is_dropped_as_it_is_said": {Kind.TABLE_RULE},
        "test_rows_that_may_go_are_named": {Kind.ROWS_TAKEN},
        "test_what_others_did_is_accepted_by_name": {Kind.TABLE_CHANGED},
        "test_a_table_that_there_is_not_is_named_otherwise": {Kind.TABLE_UNKNOWN},
        "test_tables_that_are_to_lie_elsewhere_are_copied_and_moved": {Kind.TABLE_PLACE},
        "test_lost_state_is_made_anew": {Kind.STATE_GONE},
        "test_a_table_that_is_not_its_query_is_made_anew": {Kind.TABLE_DIFFERS},
        "test_a_table_that_lacks_rows_is_made_whole_or_goes_on_by_its_name": {Kind.TABLE_BEGINS, Kind.TABLE_QUERY},
        "test_files_are_put_back_that_a_query_needs": {Kind.VERIFY_INPUT},
        "test_a_version_that_is_gone_is_that_of_a_later_batch": {Kind.VERIFY_VERSION},
        "test_what_a_changed_step_is_to_do_is_said_by_name": {Kind.STATE_CHANGED},
        "test_what_another_version_of_duckdb_was_to_run_is_planned_anew": {Kind.ENGINE},
        "test_a_renamed_step_begins_anew_or_is_named_as_it_was": {Kind.STATE_BEGINS},
        "test_what_later_batches_went_on_from_is_run_too": {Kind.BACKFILL_APPROVAL, Kind.BACKFILL_LATER},
    },
    "tests/integration/test_next_steps_elsewhere.py": {
        "test_a_store_that_does_not_know_the_pipeline_is_asked_about": {Kind.STORE_NEW}
    },
    "tests/integration/test_next_steps_pipelines.py": {
        "test_words_of_a_command_are_corrected": {
            Kind.ARGUMENT,
            Kind.LOCAL_FILE,
            Kind.NUMBER,
            Kind.PIPELINE_UNKNOWN,
            Kind.SCHEME,
            Kind.STORE_ADDRESS,
            Kind.STATE_NONE,
        },
        "test_settings_are_corrected": {Kind.SETTING, Kind.PARTITIONER, Kind.GROUPER},
        "test_variables_are_corrected": {Kind.LOCATION, Kind.STORE_DENIED},
        "test_lines_are_corrected": {
            Kind.PIPELINE_FAILS,
            Kind.DECLARATION,
            Kind.NAME,
            Kind.KEYS_DO_NOT_MEET,
            Kind.SQL,
            Kind.SQL_COLUMN,
            Kind.SQL_TYPE,
            Kind.IMPORT,
            Kind.TABLE_COLUMNS,
        },
        "test_a_function_is_corrected_and_the_same_command_goes_on": {Kind.FUNCTION, Kind.RUN_ENDED},
        "test_expectations_are_corrected_and_the_batch_is_planned_anew": {
            Kind.EXPECTATION_UNKNOWN,
            Kind.EXPECTATION,
            Kind.EXPECTATION_FAILS,
        },
        "test_a_table_keeps_its_mode_or_another_one_is_named": {Kind.TABLE_MODE},
        "test_a_step_on_data_frames_needs_a_runner_that_has_spark": {Kind.RUNNER},
        "test_a_process_may_open_more_files": {Kind.OPEN_FILES},
    },
    "tests/integration/test_next_steps_streams.py": {
        "test_files_are_mended": {Kind.FOLDERS, Kind.PARTITIONS, Kind.STREAM_TWICE, Kind.FILE_UNREADABLE, Kind.RECORD},
        "test_a_topic_that_was_made_anew_with_fewer_records_is_begun_anew": {Kind.STREAM_RESET},
        "test_a_topic_that_was_made_anew_is_begun_anew_or_gone_on_with": {Kind.STREAM_REPLACED},
        "test_what_was_lost_unread_is_put_back_or_named": {Kind.STREAM_LOST},
        "test_a_stream_is_declared_sparse_as_it_is_said": {Kind.STREAM_GAP},
        "test_a_batch_begins_with_a_file": {Kind.STREAM_START},
        "test_a_loss_that_is_none_is_left_out": {Kind.LOSS_UNFOUNDED},
        "test_a_column_is_cast_as_it_is_said": {Kind.STREAM_COLUMNS},
        "test_a_planned_file_is_put_back_or_planned_anew": {Kind.FILE_GONE, Kind.FILE_CHANGED},
        "test_a_key_has_the_format_that_is_declared": {Kind.KEY},
    },
}
# Tests that meet findings of these kinds where no command does what they say, but a broker, a registry, Spark, Airflow
# or whoever wrote what is wrong.
IN_WORDS: dict[str, dict[str, set[Kind]]] = {
    "tests/airflow/test_dag_files.py": {
        "test_a_plan_of_more_waves_than_the_dag_has_is_refused_before_it_runs": {Kind.PLAN_WAVES},
        "test_only_a_run_of_airflows_own_backfill_is_refused": {Kind.AIRFLOW_DATES},
        "test_a_worker_without_a_store_is_told_which_variable_names_it": {Kind.STORE_UNNAMED},
    },
    "tests/integration/test_iceberg.py": {"test_a_catalogue_that_denies_access_says_so": {Kind.ICEBERG_DENIED}},
    "tests/integration/test_backfills.py": {
        "test_a_batch_that_went_on_from_what_is_exchanged_is_refused": {Kind.STATE_EXCHANGED},
        "test_another_result_of_the_same_pipeline_is_a_defect": {Kind.BACKFILL_UNEQUAL},
    },
    "tests/integration/test_backfills_compacted.py": {
        "test_rows_that_others_put_together_are_told_before_anything_runs": {Kind.BACKFILL_TABLE},
        "test_a_repair_that_lacks_offsets_or_has_them_twice_is_refused": {Kind.BACKFILL_INPUT},
    },
    "tests/integration/test_kafka_leaders.py": {
        "test_without_a_leader_brokers_are_unreachable_until_there_is_one": {Kind.BROKER_UNREACHABLE}
    },
    "tests/integration/test_kafka_logs.py": {
        "test_a_topic_that_was_made_anew_is_refused_at_each_step": {Kind.TOPIC_UNKNOWN}
    },
    "tests/integration/test_kafka_secured.py": {
        "test_what_cannot_be_right_is_refused_at_once_and_by_what_to_do_next": {
            Kind.BROKER_DENIED,
            Kind.BROKER_SETTINGS,
        }
    },
    "tests/integration/test_kafka_values.py": {
        "test_no_error_tells_a_secret": {Kind.REGISTRY_UNREACHABLE, Kind.REGISTRY_DENIED},
        "test_a_topic_that_the_registry_does_not_know_is_refused": {Kind.SCHEMA},
    },
    "tests/integration/test_wheel.py": {"test_what_only_an_extra_brings_is_named_with_the_extra": {Kind.EXTRA}},
    "tests/integration/test_owners.py": {
        "test_a_batch_that_is_not_checked_yet_is_refused_before_it_is_decided": {Kind.BATCH_UNDECIDED}
    },
    "tests/integration/test_publication.py": {
        "test_only_an_open_undecided_batch_can_be_abandoned": {Kind.BATCH_DECIDED},
        "test_a_commit_object_of_another_plan_is_a_conflict": {Kind.DOCUMENTS_DISAGREE},
        "test_a_file_that_changed_after_the_verdict_is_refused_and_nothing_published": {Kind.TASK_FILES},
    },
    "tests/integration/test_serve.py": {
        "test_servers_end_with_the_command_that_started_them_and_one_process_serves_a_folder": {Kind.DEMO}
    },
    "tests/integration/test_steps.py": {
        "test_a_check_that_runs_before_its_audit_is_refused_and_leaves_the_attempt_open": {Kind.BATCH_UNRUN}
    },
    "tests/integration/test_takeover_landed.py": {
        "test_what_has_not_landed_is_refused_with_what_has": {Kind.CHECKPOINTS}
    },
    "tests/spark/test_frames.py": {
        "test_rows_that_are_lost_or_doubled_on_their_way_to_tasks_are_noticed": {Kind.SPARK_ROWS}
    },
    "tests/spark/test_group.py": {"test_spark_that_cannot_start_is_told_with_its_log": {Kind.SPARK}},
    "tests/spark/test_standalone.py": {
        "test_without_a_worker_a_group_says_so_and_ends_as_unreachable": {Kind.NO_WORKER},
        "test_a_worker_that_cannot_run_the_code_of_the_driver_is_refused_before_it_reads": {Kind.WORKER},
    },
    "tests/spark/test_shipped.py": {"test_what_cannot_be_shipped_is_refused": {Kind.SHIPPING}},
    "tests/unit/test_combines.py": {"test_what_depends_on_groups_or_order_is_found": {Kind.COMBINE_ORDER}},
    "tests/unit/test_corpus.py": {"test_a_newer_document_is_refused_with_what_to_do": {Kind.DOCUMENT_FORMAT}},
    "tests/unit/test_project.py": {"test_a_secret_is_refused_and_not_repeated": {Kind.SECRET}},
    "tests/unit/test_samza.py": {"test_everything_wrong_with_a_grouping_is_found_at_once": {Kind.SAMZA}},
}
# Kinds that no input has, and why.
UNRAISED = {
    Kind.OLDER: "Only what older versions have stored is of this kind, and it is shown in their words.",
    Kind.PLAN_UNSOUND: "Planning makes no such plan; tests/unit/test_checking.py makes them by hand.",
}


@dataclass(frozen=True)
class Told:
    """The findings of one kind that a command failed with."""

    words: tuple[str, ...]
    findings: tuple[dict[str, Any], ...]

    @property
    def next(self) -> str:
        """What they say to do next."""
        return "\n".join(finding["next"] for finding in self.findings)

    @property
    def commands(self) -> list[tuple[str, ...]]:
        """The commands that they name, once each, ready to be run."""
        return commands(self.next)

    def follow(self, *more: str, which: int = 0) -> str:
        """Run one of the commands as it is written, in another shell; it succeeds."""
        return in_another_shell(*self.commands[which], *more)

    def again(self, *more: str) -> str:
        """Run the same command again, after what the words say was done; it succeeds."""
        return done(*self.words, *more)


REPORTED = {outcome.exit_code for outcome in Outcome}


def told(kind: Kind, *words: str, code: int = 3, folder: Path | None = None) -> Told:
    """Run a command that fails, and says so with findings of this kind."""
    __tracebackhide__ = True
    result = forked.coset(*words, "--json", folder=folder)
    assert result.returncode == code, forked.how(result)
    findings = json.loads(result.stderr.splitlines()[-1])["findings"]
    found = tuple(finding for finding in findings if finding["kind"] == kind)
    assert found, findings
    return Told(words, found)


def in_another_shell(*words: str, folder: Path | None = None) -> str:
    """Run a command that succeeds where another store is named, and no other variable that an option stands for is set:
    it acts where its words say."""
    __tracebackhide__ = True
    variables = {each.variable for options in OPTIONS.values() for each in options.values()}
    with TemporaryDirectory() as another:
        other = Path(another, "another")
        environment = {name: value for name, value in os.environ.items() if name not in variables}
        said = done(*words, environment=environment | {"COSET_STORE": str(other)}, folder=folder)
        assert not other.exists(), words
    return said


def done(*words: str, environment: Mapping[str, str] | None = None, folder: Path | None = None) -> str:
    """Run a command that succeeds; what it prints. A report ends as its batch did."""
    __tracebackhide__ = True
    result = forked.coset(*words, environment=environment, folder=folder)
    assert result.returncode in (REPORTED if words[0] == "report" else {0}), forked.how(result)
    return result.stdout


def commands(text: str) -> list[tuple[str, ...]]:
    """The commands in a text, once each, ready to be run."""
    lines = dict.fromkeys(re.findall(r"`coset ([^`]+)`", text))
    assert lines, text
    return [tuple(word.replace("…", "it is asked for") for word in shlex.split(line)) for line in lines]
