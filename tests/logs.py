"""Logs of result tables, as readers see them."""

from __future__ import annotations

from deltalake import DeltaTable

from coset.sources.s3 import storage_options
from partitioning.documents.store import Store
from spark_jobs.tables.table_schema import folder


def log_of(store: Store, table: str, version: int | None = None) -> DeltaTable:
    """The log of a table, the newest version if none is named."""
    return DeltaTable(folder(store, table), version, storage_options=storage_options())
