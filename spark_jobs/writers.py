"""Writers: what a task leaves in its attempt's folders, streamed as Parquet to the store, each file an artefact."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem

from partitioning.errors import Finding, OutcomeUnknown
from partitioning.model.artefact import Artefact, Role
from partitioning.model.order import Order
from partitioning.model.plan import PlannedWrite
from sources.s3 import AGAIN, reaching, split, version
from spark_jobs.table_schema import table_schema

_KEYS = pa.schema(
    [
        ("input", pa.string()),
        ("key", pa.string()),
        ("task", pa.int64()),
        ("partition", pa.int64()),
        ("offset", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class Writers:
    """Where one run of an order writes: `run` makes the folders its own, so that no file is ever overwritten."""

    order: Order
    files: FileSystem
    run: str

    @classmethod
    def of(cls, order: Order, files: FileSystem) -> Writers:
        """The writers of a new run."""
        return cls(order, files, secrets.token_hex(4))

    def table(self, write: PlannedWrite, rows: pa.RecordBatchReader) -> Artefact | None:
        """Write a result table's rows; None if there are none, and then no file."""
        order, schema = self.order, table_schema(write)
        name = write.declared.table
        folder = f"tables/{name}/data/plan-{order.batch}/attempt-{order.attempt}-{self.run}"
        batches = (self._with_lineage(batch, schema, len(write.columns)) for batch in rows)
        return self._write(Role.TABLE, name, folder, schema, batches)

    def keys(self, sampled: list[tuple[str, int, pa.Table]]) -> Artefact | None:
        """Write the sampled keys of (input, partition); None if there are none."""
        order = self.order
        folder = f"{order.pipeline}/audits/{order.batch}/attempt-{order.attempt}/keys-{self.run}"
        batches = (batch for rows in sampled for batch in self._key_rows(*rows).to_batches())
        return self._write(Role.KEYS, order.stage, folder, _KEYS, batches)

    def _write(
        self, role: Role, name: str, folder: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]
    ) -> Artefact | None:
        path = f"{folder}/{self.order.stage}-{self.order.task.task}.parquet"
        first = next((batch for batch in batches if len(batch)), None)
        if first is None:
            return None
        uri = f"{self.order.store}/{path}"
        at = "/".join(split(uri))
        records = len(first)
        with reaching("the file cannot be written", uri, AGAIN):
            with self.files.open_output_stream(at) as stream:
                sink = _Hashed(stream)
                with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
                    writer.write_batch(first)
                    for batch in batches:
                        writer.write_batch(batch)
                        records += len(batch)
            with self.files.open_input_file(at) as written:
                size, etag = version(written)
        if size != sink.size:
            what = f"{sink.size} bytes were written, {size} bytes are there"
            raise OutcomeUnknown(Finding(what, uri, "run the same command again"))
        return Artefact(role, name, path, size, etag, f"sha256:{sink.digest.hexdigest()}", records)

    def _with_lineage(self, batch: pa.RecordBatch, schema: pa.Schema, width: int) -> pa.RecordBatch:
        """The first `width` columns of a schema are those of the rows; the rest of it is lineage."""
        lineage = {"_batch": self.order.batch, "_task": self.order.task.task}
        columns = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(batch.columns, list(schema)[:width], strict=True)
        ]
        columns += [pa.repeat(pa.scalar(lineage[field.name], field.type), len(batch)) for field in list(schema)[width:]]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _key_rows(self, read: str, partition: int, keys: pa.Table) -> pa.Table:
        constant = {"input": read, "task": self.order.task.task, "partition": partition}
        columns = [
            pa.repeat(pa.scalar(constant[field.name], field.type), len(keys))
            if field.name in constant
            else keys[field.name]
            for field in _KEYS
        ]
        return pa.table(columns, schema=_KEYS)


class _Hashed:
    """A sink that counts and digests what is written to it."""

    closed = False

    def __init__(self, stream: pa.NativeFile) -> None:
        self._stream = stream
        self.digest = sha256()
        self.size = 0

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        self.size += len(data)
        self._stream.write(data)
        return len(data)

    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        """The stream is closed by who opened it."""
