"""Outputs of tasks for later tasks (exchanges, results, state): byte ranges of their files, in order."""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from coset.sources.copies import Copies
from coset.sources.file_columns import arrow_schema
from coset.sources.reader import Batch
from partitioning.commands import Replan, Restore, Then, backfill_of
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.leaving import POSITIONS, LeftPart
from partitioning.model.order import POSITION, OrderedParts
from partitioning.model.sources import FOLDER
from partitioning.model.stage_inputs import StateInput
from partitioning.model.task_engine import USUAL, TaskMemory

# How much is fetched by a request. As many requests run ahead of the reader as memory has room for.
_CHUNK = 4 << 20

# Makes rows of a version of state, counted from 1, such rows as are kept now, in that schema.
ReadAs = Callable[[pa.RecordBatch, int, pa.Schema], pa.RecordBatch]


class PartsReader:
    """Reads the parts that an order names, partition by partition, in the order of the tasks that wrote them.

    `copies` is an optional local cache of state files. `read_as` makes the rows of earlier versions of state those of
    now. Raises Refused if a file is gone or was replaced, and
    Unreachable if the store does not answer.
    """

    def __init__(
        self,
        ordered: OrderedParts,
        store: str,
        pipeline: str,
        copies: Copies,
        read_as: ReadAs | None = None,
        memory: TaskMemory = USUAL,
    ) -> None:
        self._ahead = max(1, memory.part // _CHUNK)
        self._ordered = ordered
        self._copies = copies if isinstance(ordered.read, StateInput) else None
        self._store = store_at(store)
        self._kind, self._then = _when_gone(ordered, pipeline)
        self._schema = left_schema(arrow_schema(ordered.columns))
        versions = ordered.read.versions if isinstance(ordered.read, StateInput) else ()
        self._schemas = [self._schema, *(left_schema(arrow_schema(version.columns)) for version in versions)]
        self._read_as = read_as

    @property
    def empty(self) -> bool:
        return not any(partition.parts for partition in self._ordered.partitions)

    def schema(self, columns: Sequence[str]) -> pa.Schema:
        return pa.schema([self._schema.field(name) for name in columns])

    def batches(self, columns: Sequence[str]) -> Iterator[Batch]:
        places = [(left.partition, part) for left in self._ordered.partitions for part in left.parts]
        with ThreadPoolExecutor(self._ahead) as pool:
            fetched = self._fetched((part for _, part in places), pool)
            for (partition, part), chunks in zip(places, fetched, strict=True):
                where = f"{self._store.root}/{part.path}"
                shift = part.first - part.task * POSITIONS
                one = part.end - part.start <= _CHUNK
                file = next(chunks, b"") if one else io.BufferedReader(_Chunks(chunks), _CHUNK)
                for read in self._decoded(file, where, self._schemas[part.version]):
                    records = (
                        self._read_as(read, part.version, self._schema) if part.version and self._read_as else read
                    )
                    place = records.schema.get_field_index(POSITION)
                    shifted = pc.add(records.column(place), shift)
                    records = records.set_column(place, POSITION, shifted)
                    yield Batch(partition, part.first, part.first + part.records, where, records)

    def _decoded(self, file: bytes | io.BufferedIOBase, where: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        source = pa.BufferReader(file) if isinstance(file, bytes) else pa.PythonFile(file, mode="r")
        try:
            while True:
                try:
                    message = pa.ipc.read_message(source)
                except EOFError:
                    return
                yield pa.ipc.read_record_batch(message, schema)
        except (pa.ArrowException, OSError) as error:
            what = f"the file is not as a task left it: {error}"
            raise Refused.of(self._kind, what, where, self._then, file=where) from error

    def _fetched(self, parts: Iterable[LeftPart], pool: ThreadPoolExecutor) -> Iterator[Iterator[bytes]]:
        """The chunks of each part, to be read in order. Some are requested ahead."""
        asked = deque[Callable[[], bytes]]()
        # A folder has nothing to wait for.
        is_folder = self._store.root.startswith(FOLDER)
        ranges = [
            [(part, start, min(start + _CHUNK, part.end)) for start in range(part.start, part.end, _CHUNK)]
            for part in parts
        ]
        waiting = (one for part in ranges for one in part)

        def chunks(count: int) -> Iterator[bytes]:
            for _ in range(count):
                while len(asked) < self._ahead and (one := next(waiting, None)) is not None:
                    asked.append(partial(self._get, *one) if is_folder else pool.submit(self._get, *one).result)
                yield asked.popleft()()

        for part in ranges:
            yield chunks(len(part))

    def _get(self, part: LeftPart, start: int, end: int) -> bytes:
        def fetch() -> bytes | None:
            return self._store.get_part(part.path, start, end, part.etag)

        # The output of tasks is read once, so it is not cached.
        name = f"{self._store.root}/{part.path} {part.etag} {start} {end}"
        data = self._copies.get(name, fetch) if self._copies else fetch()
        if data is None:
            where = f"{self._store.root}/{part.path}"
            what = "the file is gone or was changed since a task left it"
            raise Refused.of(self._kind, what, where, self._then, file=part.path)
        return data


def _when_gone(ordered: OrderedParts, pipeline: str) -> tuple[Kind, Then]:
    """The finding for a missing file, and what to do: lost state can be rebuilt."""
    if isinstance(ordered.read, StateInput):
        of = backfill_of(pipeline)
        return Kind.STATE_GONE, Restore(of[0] if of else pipeline)
    return Kind.TASK_FILES, (Replan(pipeline), ": what a task left for others cannot be made again by itself")


def left_schema(columns: pa.Schema) -> pa.Schema:
    """The columns of a file for later tasks: these, and each row's position."""
    return columns.append(pa.field(POSITION, pa.int64()))


class _Chunks(io.RawIOBase):
    """A file made of chunks of bytes."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        if not self._rest:
            self._rest = memoryview(next(self._chunks, b""))
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count
