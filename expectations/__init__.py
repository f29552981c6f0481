"""The proof, judged by Great Expectations. Importing this registers Coset's expectations by name."""

import gc
import logging

# Logging at INFO, as Airflow does, would show hundreds of its own lines, mostly from its import.
if (_gx := logging.getLogger("great_expectations")).level == logging.NOTSET:
    _gx.setLevel(logging.WARNING)

# Importing makes many objects that stay. Looking for garbage among them would take a fifth of its time.
if _collecting := gc.isenabled():
    gc.disable()
try:
    from expectations.colocation import ExpectKeysToHashToTheirPartition, ExpectKeysToMeetInOneTask
    from expectations.continuity import (
        ExpectBatchToContinueThePrevious,
        ExpectEndsToBeRemembered,
        ExpectGapsToBeEmpty,
        ExpectGapsToBeExplained,
        ExpectTablesToHoldThePreviousBatch,
        ExpectWatermarksToFollow,
        ExpectWhatIsOverToBeGivenOnce,
    )
    from expectations.coverage import (
        ExpectFewRecordsToBeSetAside,
        ExpectKeysToBeMigratedOnce,
        ExpectNoRecordToBeSetAside,
        ExpectOffsetsToBeCoveredExactlyOnce,
        ExpectRecordsToHaveKeys,
        ExpectRecordsToLieWhereTheirKeysHash,
        ExpectRowsOfTablesToBalance,
        ExpectRowsToBeWrittenAsTheyWereMade,
        ExpectSetAsideRecordsToBeKept,
        ExpectTablesToBeTheirQueries,
        ExpectTablesToKeepTheirRows,
    )
    from expectations.ready_made import (
        ExpectFewNulls,
        ExpectFresh,
        ExpectKeysAsUsual,
        ExpectNeverFalls,
        ExpectRowsAsUsual,
    )
finally:
    if _collecting:
        gc.enable()

__all__ = [
    "ExpectBatchToContinueThePrevious",
    "ExpectEndsToBeRemembered",
    "ExpectFewNulls",
    "ExpectFewRecordsToBeSetAside",
    "ExpectFresh",
    "ExpectGapsToBeEmpty",
    "ExpectGapsToBeExplained",
    "ExpectKeysAsUsual",
    "ExpectKeysToBeMigratedOnce",
    "ExpectKeysToHashToTheirPartition",
    "ExpectKeysToMeetInOneTask",
    "ExpectNeverFalls",
    "ExpectNoRecordToBeSetAside",
    "ExpectOffsetsToBeCoveredExactlyOnce",
    "ExpectRecordsToHaveKeys",
    "ExpectRecordsToLieWhereTheirKeysHash",
    "ExpectRowsAsUsual",
    "ExpectRowsOfTablesToBalance",
    "ExpectRowsToBeWrittenAsTheyWereMade",
    "ExpectSetAsideRecordsToBeKept",
    "ExpectTablesToBeTheirQueries",
    "ExpectTablesToHoldThePreviousBatch",
    "ExpectTablesToKeepTheirRows",
    "ExpectWatermarksToFollow",
    "ExpectWhatIsOverToBeGivenOnce",
]
