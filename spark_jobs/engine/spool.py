"""A spool: takes rows in any order and returns them by partition. Within a partition they keep their order."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from spark_jobs.engine.arrays import numbers


@dataclass(frozen=True, slots=True)
class _Run:
    """Rows sorted by partition. The rows of `partitions[i]` are [starts[i], starts[i + 1])."""

    rows: pa.RecordBatch
    partitions: np.ndarray
    starts: np.ndarray

    def of(self, partition: int) -> pa.RecordBatch | None:
        place = np.searchsorted(self.partitions, partition)
        if place == len(self.partitions) or self.partitions[place] != partition:
            return None
        return self.rows.slice(self.starts[place], self.starts[place + 1] - self.starts[place])


class Spool:
    """Rows of a schema. So many bytes of them are held in memory; the rest is spilled to files in a folder, `temp`.

    Read it once, after the last row was added.
    """

    def __init__(self, schema: pa.Schema, temp: Path, held: int) -> None:
        self._schema = schema
        self._temp = temp
        self._held = held
        self._rows: list[pa.RecordBatch] = []
        self._places: list[np.ndarray] = []
        self._bytes = 0
        self._runs: list[_Run] = []

    def add(self, rows: pa.RecordBatch, partitions: np.ndarray) -> None:
        """Add rows, with the partition of each (int64)."""
        self._rows.append(rows)
        self._places.append(partitions)
        self._bytes += rows.nbytes
        if self._bytes > self._held:
            self._runs.append(self._kept(self._sorted()))

    def parts(self) -> Iterator[tuple[int, Sequence[pa.RecordBatch]]]:
        """Each partition that has rows, ascending, with its rows."""
        if self._rows:
            self._runs.append(self._sorted())
        for partition in sorted({int(number) for run in self._runs for number in run.partitions}):
            found = (run.of(partition) for run in self._runs)
            yield partition, [rows for rows in found if rows is not None]

    def _sorted(self) -> _Run:
        """Sort the rows in memory, and forget them."""
        places = np.concatenate(self._places)
        order = np.argsort(places, kind="stable")
        table = pa.Table.from_batches(self._rows, self._schema).take(numbers(order)).combine_chunks()
        self._rows, self._places, self._bytes = [], [], 0
        partitions, starts = np.unique(places[order], return_index=True)
        (rows,) = table.to_batches()
        return _Run(rows, partitions, np.append(starts, len(order)))

    def _kept(self, run: _Run) -> _Run:
        """Spill the rows to a file, which is mapped into memory."""
        descriptor, path = tempfile.mkstemp(".arrow", dir=self._temp)
        os.close(descriptor)
        with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, self._schema) as writer:
            writer.write_batch(run.rows)
        rows = pa.ipc.open_file(pa.memory_map(path)).get_batch(0)
        return _Run(rows, run.partitions, run.starts)
