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
    from expectations import continuity, coverage, ready_made
    from expectations.colocation import ExpectKeysToHashToTheirPartition, ExpectKeysToMeetInOneTask
finally:
    if _collecting:
        gc.enable()

__all__ = ["ExpectKeysToHashToTheirPartition", "ExpectKeysToMeetInOneTask", "continuity", "coverage", "ready_made"]
