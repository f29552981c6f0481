"""Checksums of Parquet pages: they are verified wherever rows are read, and are in all that Coset writes."""

from __future__ import annotations

import io
import uuid
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coset.batches import steps
from coset.batches.attempt import Attempt
from coset.batches.compared_rows import rows_of
from coset.batches.result_rows import result_rows
from coset.batches.tables.compaction import compact
from coset.sources.formats.parquet import ParquetRows
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from partitioning.model.receipt import Role
from partitioning.model.task_engine import USUAL
from spark_jobs.tables.table_schema import table_schema
from tests.batches import rows
from tests.flipped import flipped
from tests.landed import land_file
from tests.refused import finding_of
from tests.running import next_batch, run_and_publish, run_groups, task_receipts
from tests.there import there


def landed(store: Store, *, checked: bool, spoil: bool = True) -> str:
    """A stream's only file; gives its source. Its values are read as others, which nothing but a checksum tells."""
    source = f"{store.root}/{uuid.uuid4().hex}/topics"
    keys = [f"key-{n}" for n in range(20)]
    table = pa.table({"k": keys, "v": range(1000, 1020)})
    uri = land_file(table, "views", source, 0, 0)
    lake, key = store_at(source), uri.removeprefix(f"{source}/")
    data = there(lake.get(key))
    sink = io.BytesIO()
    columns = pq.read_table(io.BytesIO(data)).select(["v", "k", "_offset"])
    pq.write_table(columns, sink, compression="none", use_dictionary=False, write_page_checksum=checked)
    lake.put(key, flipped(sink.getvalue()) if spoil else sink.getvalue())
    return source


def sums(source: str) -> Pipeline:
    pipeline = Pipeline("sums", source=source)
    views = pipeline.stream("views", key="k", partitions=1)
    views.aggregate("sum(v) AS v").write(
        "sums", expect=[{"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "v"}}]
    )
    return pipeline


def test_a_landed_file_with_a_flipped_bit_is_refused_by_the_checksum_of_its_page(store: Store, tmp_path: Path) -> None:
    ref = next_batch(sums(source := landed(store, checked=True)), store.root)
    finding = finding_of(run_and_publish, ref, tmp_path)
    assert "the file cannot be read" in finding.what
    assert "CRC checksum" in finding.what
    assert finding.where == f"{source}/views/partition=0/views+0+0000000000.parquet"
    assert Ledger(store, "sums").verdict(0) is None


def test_a_flipped_bit_among_the_offsets_is_refused_where_they_are_looked_at(store: Store) -> None:
    sink = io.BytesIO()
    offsets = pa.table({"_offset": pa.array(range(20), pa.int64())})
    whole = {"compression": "none", "use_dictionary": False, "write_statistics": False, "write_page_checksum": True}
    pq.write_table(offsets, sink, **whole)
    with pytest.raises(OSError, match="CRC checksum"):
        ParquetRows(pa.BufferReader(flipped(sink.getvalue())), "_offset", USUAL).facts()


def test_a_file_without_checksums_is_read_as_it_is(store: Store, tmp_path: Path) -> None:
    run_and_publish(next_batch(sums(landed(store, checked=False)), store.root), tmp_path)
    assert len(rows(store.root, "sums")) == 20


def test_what_tasks_leave_has_checksums_and_they_are_verified(store: Store) -> None:
    ref = next_batch(sums(landed(store, checked=False, spoil=False)), store.root)
    run_groups(ref)
    (task,) = task_receipts(ref)
    ledger, plan = ref.load()
    receipt = there(ledger.receipt(0, 0, 0))
    assert {artefact.role for artefact in receipt.artefacts} == {Role.TABLE, Role.KEYS}
    for artefact in receipt.artefacts:
        data = there(store.get(artefact.path))
        store.put(artefact.path, flipped(data) if artefact.role is Role.TABLE else bytes([data[0] ^ 1]) + data[1:])
    with pytest.raises(Refused, match="CRC checksum"):
        list(result_rows(Attempt(ledger, plan, 0))["sums"].read(["k", "v"]))
    with pytest.raises(Refused, match="CRC checksum"):
        list(rows_of([ledger.uri(file.path) for file in task.left(Role.TABLE)], table_schema(plan.writes()[0])))
    with pytest.raises(Refused, match="the file has the content sha256:"):
        steps.audit(ref)


def test_what_compaction_writes_has_checksums(store: Store, tmp_path: Path) -> None:
    pipeline = sums(landed(store, checked=False, spoil=False))
    run_and_publish(next_batch(pipeline, store.root, Settings.parse(scheme=["tasks(2)"])), tmp_path)
    (done,) = compact(pipeline, store, timedelta(days=1))
    assert (done.files, done.made) == (2, 1)
    (key,) = (entry.key for entry in store.list("tables/sums/") if "compact" in entry.key)
    data = there(store.get(key))
    with pytest.raises(OSError, match="CRC checksum"):
        pq.read_table(io.BytesIO(flipped(data)), page_checksum_verification=True)
