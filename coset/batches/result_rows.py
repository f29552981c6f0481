"""The rows that an attempt would publish to the tables of which the pipeline expects something."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import pyarrow as pa

from coset.batches.attempt import Attempt
from coset.sources.files import Files
from coset.sources.formats.parquet import open_parquet
from coset.sources.s3 import AGAIN, reaching
from expectations.rows import Rows
from partitioning.model.artefact import Role
from spark_jobs.tables.table_schema import table_schema

_BATCH_ROWS = 1 << 16


def result_rows(attempt: Attempt) -> Mapping[str, Rows]:
    """Those rows by table, to be read from the store whenever they are asked for.

    Raises Refused as `Attempt.artefacts`; reading raises Refused or Unreachable if a file cannot be read.
    """
    rows = {}
    for write in attempt.plan.writes():
        if write.declared.expectations:
            table = write.declared.table
            files = [file for file in attempt.artefacts if (file.role, file.name) == (Role.TABLE, table)]
            read = partial(_read, [attempt.ledger.uri(file.path) for file in files])
            rows[table] = Rows(table_schema(write), sum(file.records for file in files), read)
    return rows


def _read(uris: Sequence[str], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    files = Files()
    for uri in uris:
        with reaching("the file cannot be read", uri, AGAIN), files.open(uri) as source:
            yield from open_parquet(source).iter_batches(_BATCH_ROWS, columns=list(columns))
