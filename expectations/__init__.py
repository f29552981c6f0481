"""The proof, judged by Great Expectations. Importing this registers Coset's expectations by name."""

from expectations.colocation import ExpectKeysToHashToTheirPartition, ExpectKeysToMeetInOneTask
from expectations.continuity import (
    ExpectBatchToContinueThePrevious,
    ExpectGapsToBeExplained,
    ExpectTablesToHoldThePreviousBatch,
)
from expectations.coverage import (
    ExpectOffsetsToBeCoveredExactlyOnce,
    ExpectRecordsToHaveKeys,
    ExpectRecordsToLieWhereTheirKeysHash,
)

__all__ = [
    "ExpectBatchToContinueThePrevious",
    "ExpectGapsToBeExplained",
    "ExpectKeysToHashToTheirPartition",
    "ExpectKeysToMeetInOneTask",
    "ExpectOffsetsToBeCoveredExactlyOnce",
    "ExpectRecordsToHaveKeys",
    "ExpectRecordsToLieWhereTheirKeysHash",
    "ExpectTablesToHoldThePreviousBatch",
]
