"""Actors: who has to do something about a finding. docs/guide/operating.md says what, and whether at night."""

from __future__ import annotations

from enum import StrEnum
from typing import assert_never

from partitioning.kinds import Kind


class Actor(StrEnum):
    """Who has to do something about a finding."""

    NOBODY = "nobody"
    OPERATOR = "operator"
    PRODUCER = "producer"
    AUTHOR = "author"
    CALLER = "caller"
    COSET = "Coset"


def actor(kind: Kind) -> Actor:
    """Who has to do something about findings of a kind.

    >>> actor(Kind.STORE_UNREACHABLE).value, actor(Kind.SQL).value
    ('nobody', 'author')
    """
    match kind:
        case (
            Kind.BROKER_UNREACHABLE
            | Kind.REGISTRY_UNREACHABLE
            | Kind.STORE_UNREACHABLE
            | Kind.STORE_UNKNOWN
            | Kind.ICEBERG_UNREACHABLE
            | Kind.RUN_ENDED
        ):
            return Actor.NOBODY
        case (
            Kind.OLDER
            | Kind.LOCATION
            | Kind.BROKER_DENIED
            | Kind.BROKER_SETTINGS
            | Kind.REGISTRY_DENIED
            | Kind.STORE_UNNAMED
            | Kind.STORE_ADDRESS
            | Kind.STORE_ELSEWHERE
            | Kind.STORE_DENIED
            | Kind.DOCUMENT_FORMAT
            | Kind.DOCUMENT_DAMAGED
            | Kind.DOCUMENT_MISSING
            | Kind.DOCUMENTS_DISAGREE
            | Kind.TASK_FILES
            | Kind.TABLE_CHANGED
            | Kind.TABLE_PLACE
            | Kind.ICEBERG_TABLE
            | Kind.ICEBERG_DENIED
            | Kind.TABLE_BEHIND
            | Kind.TABLE_AHEAD
            | Kind.STATE_GONE
            | Kind.BACKFILL_TABLE
            | Kind.VERIFY_INPUT
            | Kind.SPARK
            | Kind.NO_WORKER
            | Kind.WORKER
            | Kind.ENGINE
            | Kind.MEMORY
            | Kind.OPEN_FILES
        ):
            return Actor.OPERATOR
        case (
            Kind.FOLDERS
            | Kind.PARTITIONS
            | Kind.STREAM_RESET
            | Kind.STREAM_REPLACED
            | Kind.STREAM_LOST
            | Kind.STREAM_DELETES
            | Kind.STREAM_GAP
            | Kind.STREAM_TWICE
            | Kind.STREAM_COLUMNS
            | Kind.FILE_GONE
            | Kind.FILE_CHANGED
            | Kind.FILE_UNREADABLE
            | Kind.RECORD
            | Kind.KEY
            | Kind.TOPIC_UNKNOWN
            | Kind.SCHEMA
            | Kind.PROOF
            | Kind.EXPECTATION
        ):
            return Actor.PRODUCER
        case (
            Kind.SETTING
            | Kind.SECRET
            | Kind.PIPELINE_FAILS
            | Kind.DECLARATION
            | Kind.NAME
            | Kind.KEYS_DO_NOT_MEET
            | Kind.SQL
            | Kind.SQL_COLUMN
            | Kind.SQL_TYPE
            | Kind.COMBINE_ORDER
            | Kind.FUNCTION
            | Kind.IMPORT
            | Kind.EXPECTATION_UNKNOWN
            | Kind.SCHEME
            | Kind.PARTITIONER
            | Kind.GROUPER
            | Kind.PLAN_WAVES
            | Kind.BATCH_WAITS
            | Kind.EXPECTATION_FAILS
            | Kind.TABLE_COLUMNS
            | Kind.TABLE_OWNER
            | Kind.TABLE_AGAIN
            | Kind.TABLE_RULE
            | Kind.ROWS_TAKEN
            | Kind.TABLE_MODE
            | Kind.TABLE_DIFFERS
            | Kind.TABLE_BEGINS
            | Kind.TABLE_QUERY
            | Kind.STATE_CHANGED
            | Kind.STATE_BEGINS
            | Kind.SHIPPING
        ):
            return Actor.AUTHOR
        case (
            Kind.ARGUMENT
            | Kind.LOCAL_FILE
            | Kind.NUMBER
            | Kind.PIPELINE_UNKNOWN
            | Kind.STORE_NEW
            | Kind.STREAM_START
            | Kind.LOSS_UNFOUNDED
            | Kind.BATCH_UNKNOWN
            | Kind.BATCH_UNPUBLISHED
            | Kind.VERIFY_VERSION
            | Kind.BATCH_NONE_OPEN
            | Kind.BATCH_OPEN
            | Kind.BATCH_DECIDED
            | Kind.BATCH_UNDECIDED
            | Kind.BATCH_UNRUN
            | Kind.TABLE_UNKNOWN
            | Kind.STATE_EXCHANGED
            | Kind.STATE_NONE
            | Kind.BACKFILL_UNKNOWN
            | Kind.BACKFILL_HELD
            | Kind.BACKFILL_INPUT
            | Kind.BACKFILL_UNREADY
            | Kind.BACKFILL_APPROVAL
            | Kind.BACKFILL_TURN
            | Kind.BACKFILL_LATER
            | Kind.RUNNER
            | Kind.EXTRA
            | Kind.AIRFLOW_DATES
            | Kind.CHECKPOINTS
            | Kind.SAMZA
            | Kind.DEMO
        ):
            return Actor.CALLER
        case Kind.PLAN_UNSOUND | Kind.BACKFILL_UNEQUAL | Kind.SPARK_ROWS:
            return Actor.COSET
        case _:
            assert_never(kind)
