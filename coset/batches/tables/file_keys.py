"""Keys of the rows of a table's files, as they are looked for and proved: the same file is asked for twice."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from coset.batches.tables.live_files import LiveFile
from coset.batches.tables.log_copy import TableLog
from coset.sources.files import Files
from coset.sources.s3 import AGAIN, reaching

# So many bytes of keys are held until the next file is read. A file with more is read each time.
_HELD = 64 << 20


class FileKeys:
    """The columns `schema` of the files of a table. Those of the file that was read last are held."""

    def __init__(self, log: TableLog, schema: pa.Schema) -> None:
        self.schema = schema
        self._folder = log.table_uri.rstrip("/")
        self._held: tuple[str, list[pa.Table]] = "", []

    def uri(self, file: LiveFile) -> str:
        return f"{self._folder}/{file.path}"

    def of(self, file: LiveFile) -> Iterator[pa.Table]:
        """The keys of the rows, dead ones too, of each row group. Raises Coset's errors if the file cannot be read."""
        path, held = self._held
        if path == file.path:
            yield from held
            return
        held, size = [], 0
        with reaching("the file cannot be read", self.uri(file), AGAIN), Files().open(self.uri(file)) as source:
            opened = pq.ParquetFile(source)
            for group in range(opened.num_row_groups):
                # Others may have written views of text, of which PyArrow takes none.
                keys = opened.read_row_group(group, self.schema.names).select(self.schema.names).cast(self.schema)
                size += keys.nbytes
                held = [*held, keys] if size <= _HELD else []
                yield keys
        if size <= _HELD:
            self._held = file.path, held
