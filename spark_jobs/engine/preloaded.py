"""Imports what every task needs, so that processes forked from this one start at once.

The only threads afterwards are those of NumPy and Arrow, which survive a fork.
"""

from __future__ import annotations

import gc

import pandas  # noqa: F401 - DuckDB imports it when the first table is registered
import pyarrow as pa

import partitioning.documents.s3_store  # noqa: F401 - a store imports it when its root is in S3
import spark_jobs.engine.kernel  # noqa: F401
from spark_jobs.engine.hashing import placement_hashes

# The first call makes Numba load its compiled functions.
placement_hashes(pa.array(["key"]), "string")
# The garbage collector of forked processes would touch, and so copy, the memory that they share.
gc.freeze()
