"""The proof, judged by Great Expectations. Importing this registers Coset's expectations by name."""

import logging

# Logging at INFO, as Airflow does, would show hundreds of its own lines, mostly from its import.
if (_gx := logging.getLogger("great_expectations")).level == logging.NOTSET:
    _gx.setLevel(logging.WARNING)

from expectations.colocation import ExpectKeysToHashToTheirPartition, ExpectKeysToMeetInOneTask
from expectations.continuity import (
    ExpectBatchToContinueThePrevious,
    ExpectEndsToBeRemembered,
    ExpectGapsToBeEmpty,
    ExpectGapsToBeExplained,
    ExpectTablesToHoldThePreviousBatch,
)
from expectations.coverage import (
    ExpectOffsetsToBeCoveredExactlyOnce,
    ExpectRecordsToHaveKeys,
    ExpectRecordsToLieWhereTheirKeysHash,
)
from expectations.production import ExpectRowsToBeWrittenAsTheyWereMade
from expectations.table_rows import ExpectTablesToKeepTheirRows

__all__ = [
    "ExpectBatchToContinueThePrevious",
    "ExpectEndsToBeRemembered",
    "ExpectGapsToBeEmpty",
    "ExpectGapsToBeExplained",
    "ExpectKeysToHashToTheirPartition",
    "ExpectKeysToMeetInOneTask",
    "ExpectOffsetsToBeCoveredExactlyOnce",
    "ExpectRecordsToHaveKeys",
    "ExpectRecordsToLieWhereTheirKeysHash",
    "ExpectRowsToBeWrittenAsTheyWereMade",
    "ExpectTablesToHoldThePreviousBatch",
    "ExpectTablesToKeepTheirRows",
]
