"""What every task needs, imported before there is one: processes that are forked from one that has it begin at once.

Of threads there are but those of NumPy and Arrow, which know how to be forked.
"""

from __future__ import annotations

import gc

import pandas  # noqa: F401 - DuckDB imports it with the first table that it is given
import pyarrow as pa

import spark_jobs.engine.kernel  # noqa: F401
from spark_jobs.engine.hashing import placement_hashes

# Numba gets ready with the first function that is called.
placement_hashes(pa.array(["key"]), "string")
# What is imported stays: the collector of garbage need not look at it in each of the processes, which share it.
gc.freeze()
