"""Iceberg tables in buckets, written as engines do: PyIceberg alone writes no buckets."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestWriterV2
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.transforms import BucketTransform
from pyiceberg.typedef import Record
from pyiceberg.types import IcebergType, NestedField

Row = dict[str, Any]


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """A catalogue in SQLite, which PyIceberg's variables name."""
    (tmp_path / "lake").mkdir()
    said = {"uri": f"sqlite:///{tmp_path}/lake/lake.db", "warehouse": f"file://{tmp_path}/lake"}
    for name, value in said.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)
    return load_catalog("lake", **said)


def create(
    lake: Catalog, name: str, columns: Mapping[str, IcebergType], buckets: int | None, version: int = 2
) -> Table:
    """A table of a version of the format, in so many buckets of its first column; in none if that is None."""
    lake.create_namespace_if_not_exists(name.partition(".")[0])
    fields = [NestedField(number, name, kind) for number, (name, kind) in enumerate(columns.items(), 1)]
    spec = [PartitionField(1, 1000, BucketTransform(buckets), "bucket")] if buckets else []
    said = {"format-version": str(version)}
    return lake.create_table(name, Schema(*fields), partition_spec=PartitionSpec(*spec), properties=said)


def append(table: Table, rows: Iterable[Row]) -> None:
    """Append rows by one snapshot: a file for each bucket."""
    append_files(table, files_of(table, rows))


def append_files(table: Table, files: Iterable[DataFile]) -> None:
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as change:
        for file in files:
            change.append_data_file(file)


def rewrite(table: Table, gone: Iterable[DataFile], rows: Iterable[Row], operation: Operation) -> None:
    """Replace files by one with other rows; `replace` is said of compaction, with the same rows."""
    come = files_of(table, rows)
    with table.transaction() as transaction, transaction.update_snapshot().overwrite() as change:
        # PyIceberg itself compacts nothing.
        saying: Any = change
        summary = saying._summary
        saying._summary = lambda said: Summary(operation, **summary(said).additional_properties)
        for file in gone:
            change.delete_data_file(file)
        for file in come:
            change.append_data_file(file)


class _Deletes(ManifestWriterV2):
    """A manifest of files that say which rows are deleted; PyIceberg writes none."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def delete_values(table: Table, row: Row) -> None:
    """Say that the rows like this one are deleted, as Flink does."""
    _delete(
        table, [_written(table, bucket_of(table, row), pa.Table.from_pylist([row]), DataFileContent.EQUALITY_DELETES)]
    )


def delete_positions(
    table: Table, gone: Mapping[str, Iterable[int]], written_as: FileFormat = FileFormat.PARQUET
) -> None:
    """Say that these rows of files are deleted, as engines do that merge on read: a file of them for each bucket, of
    which it is said how it is written."""
    by_bucket = dict[int | None, list[tuple[str, int]]]()
    for file in live(table):
        bucket = file.partition[0] if len(file.partition) else None
        found = sorted((file.file_path, place) for place in gone.get(file.file_path, ()))
        by_bucket.setdefault(bucket, []).extend(found)
    deletes = [
        _written(
            table,
            bucket,
            pa.table(dict(zip(("file_path", "pos"), zip(*sorted(some), strict=True), strict=True))),
            DataFileContent.POSITION_DELETES,
            written_as,
        )
        for bucket, some in by_bucket.items()
        if some
    ]
    _delete(table, deletes)


def _delete(table: Table, files: Iterable[DataFile]) -> None:
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as change:
        saying: Any = change
        saying.new_manifest_writer = lambda spec: _Deletes(
            spec, table.schema(), saying.new_manifest_output(), saying.snapshot_id, "deflate"
        )
        for file in files:
            change.append_data_file(file)


def keep_newest(table: Table) -> None:
    """Let all snapshots but the current one expire."""
    now = table.refresh().current_snapshot()
    expire = table.maintenance.expire_snapshots()
    for old in [each.snapshot_id for each in table.snapshots() if now and each.snapshot_id != now.snapshot_id]:
        expire = expire.by_id(old)
    expire.commit()


def live(table: Table) -> list[DataFile]:
    """The files that a table has."""
    return [task.file for task in table.scan().plan_files()]


def files_of(table: Table, rows: Iterable[Row]) -> list[DataFile]:
    """New files with these rows, named as Spark names them: as if they said an offset."""
    by_bucket = dict[int | None, list[Row]]()
    for row in rows:
        by_bucket.setdefault(bucket_of(table, row), []).append(row)
    return [file_of(table, bucket, some) for bucket, some in by_bucket.items()]


def bucket_of(table: Table, row: Row) -> int | None:
    """The bucket of a row, by PyIceberg."""
    for field in table.spec().fields:
        source = table.schema().find_field(field.source_id)
        return field.transform.transform(source.field_type)(row[source.name])
    return None


def file_of(table: Table, bucket: int | None, rows: list[Row]) -> DataFile:
    """A new file with these rows, which are said to be of a bucket."""
    return _written(table, bucket, pa.Table.from_pylist(rows, schema_to_pyarrow(table.schema())), DataFileContent.DATA)


def _written(
    table: Table,
    bucket: int | None,
    rows: pa.Table,
    content: DataFileContent,
    written_as: FileFormat = FileFormat.PARQUET,
) -> DataFile:
    path = f"{table.location()}/data/bucket={bucket}/00000-7-{uuid.uuid4()}-0-00001.parquet"
    output = table.io.new_output(path)
    with output.create() as sink:
        pq.write_table(rows, sink)
    return DataFile.from_args(
        _table_format_version=table.format_version,
        content=content,
        file_path=path,
        file_format=written_as,
        partition=Record(*([bucket] if table.spec().fields else [])),
        record_count=len(rows),
        file_size_in_bytes=len(output.to_input_file()),
        spec_id=table.spec().spec_id,
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
    )


def renamed(table: Table, *names: str) -> None:
    """Rename a column to the next of these names, and so on: `a, b, c` ends as `c`."""
    for old, new in pairwise(names):
        with table.refresh().update_schema() as change:
            change.rename_column(tuple(old.split(".")), new.rpartition(".")[2])


def swapped(table: Table, one: str, other: str) -> None:
    """Let two columns, or parts of one, have each other's names."""
    beside = f"{one}_"
    for old, new in ((one, beside), (other, one), (beside, other)):
        renamed(table, old, new)
