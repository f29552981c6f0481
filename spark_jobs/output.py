"""Output: what a task writes to its attempt's folders, streamed as Parquet to the store."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem

from partitioning.errors import Finding, OutcomeUnknown
from partitioning.model.plan import Plan, PlannedWrite, TaskRef
from partitioning.model.receipt import WrittenFile
from sources.s3 import split, version
from spark_jobs.table_schema import table_schema

_KEYS = pa.schema(
    [
        ("stream", pa.string()),
        ("key", pa.string()),
        ("task", pa.int64()),
        ("partition", pa.int64()),
        ("offset", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class Output:
    """Where one run of a task writes: `run` makes the folders its own, so that no file is ever overwritten."""

    plan: Plan
    task: TaskRef
    attempt: int
    root: str
    files: FileSystem
    run: str

    @classmethod
    def of(cls, plan: Plan, task: TaskRef, attempt: int, root: str, files: FileSystem) -> Output:
        """The output of a new run."""
        return cls(plan, task, attempt, root, files, secrets.token_hex(4))

    def write(self, write: PlannedWrite, rows: pa.RecordBatchReader) -> WrittenFile | None:
        """Write a result table's rows; None if there are none, and then no file."""
        path = f"data/plan-{self.plan.batch}/attempt-{self.attempt}-{self.run}/{self._name}"
        key = f"tables/{write.declared.table}/{path}"
        written = self._stream(key, table_schema(write), rows, len(write.columns))
        if written is None:
            return None
        size, etag, records = written
        return WrittenFile(write.declared.table, path, size, etag, records)

    def write_keys(self, sampled: list[tuple[str, int, pa.Table]]) -> str | None:
        """Write the sampled keys of (stream, partition); give the object's key, None if there are no keys."""
        batches = [batch for each in sampled for batch in self._key_rows(*each).to_batches()]
        key = f"{self.plan.pipeline}/audits/{self.plan.batch}/attempt-{self.attempt}/keys-{self.run}/{self._name}"
        rows = pa.RecordBatchReader.from_batches(_KEYS, batches)
        return key if self._stream(key, _KEYS, rows, len(_KEYS)) else None

    @property
    def _name(self) -> str:
        return f"{self.task.stage}-{self.task.task}.parquet"

    def _key_rows(self, stream: str, partition: int, keys: pa.Table) -> pa.Table:
        constant = {"stream": stream, "task": self.task.task, "partition": partition}
        columns = [
            pa.repeat(pa.scalar(constant[field.name], field.type), len(keys))
            if field.name in constant
            else keys[field.name]
            for field in _KEYS
        ]
        return pa.table(columns, schema=_KEYS)

    def _stream(
        self, key: str, schema: pa.Schema, rows: pa.RecordBatchReader, width: int
    ) -> tuple[int, str, int] | None:
        """Write `rows`, whose first `width` columns are the schema's; the rest of it is lineage."""
        path = "/".join(split(f"{self.root}/{key}"))
        records = 0
        sink: pa.NativeFile | None = None
        writer: pq.ParquetWriter | None = None
        for batch in rows:
            if not len(batch):
                continue
            if writer is None or sink is None:
                sink = self.files.open_output_stream(path)
                writer = pq.ParquetWriter(sink, schema, compression="zstd")
            writer.write_batch(self._cast(batch, schema, width))
            records += len(batch)
        if writer is None or sink is None:
            return None
        writer.close()
        written = sink.tell()
        sink.close()
        size, etag = version(self.files.open_input_file(path))
        if size != written:
            what = f"{written} bytes were written, {size} bytes are there"
            raise OutcomeUnknown(Finding(what, f"{self.root}/{key}", "run the same command again"))
        return size, etag, records

    def _cast(self, batch: pa.RecordBatch, schema: pa.Schema, width: int) -> pa.RecordBatch:
        lineage = {"_batch": self.plan.batch, "_task": self.task.task}
        columns = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(batch.columns, list(schema)[:width], strict=True)
        ]
        columns += [pa.repeat(pa.scalar(lineage[field.name], field.type), len(batch)) for field in list(schema)[width:]]
        return pa.RecordBatch.from_arrays(columns, schema=schema)
