"""Files of every kind of store for PyArrow. Each is named by its URI."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from hashlib import sha256
from typing import TypeVar

import pyarrow as pa
from pyarrow.fs import FileSystem, FileType, LocalFileSystem, S3FileSystem

from coset.sources.s3 import s3_filesystem, split
from partitioning.documents.folder_store import etag_of, path_of
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.model.sources import FOLDER

A = TypeVar("A")

# A file of at most so many bytes is written by one request, whose answer has its etag.
_WHOLE = 4 << 20
# So much of a file's end is kept, or read, to be looked at: a Parquet file's footer is nearly always in it.
TAIL = 1 << 16


class NewFile:
    """A file that is being written, with the size and the digest of what was written. PyArrow takes it as a sink.

    It is held in memory up to so many bytes, `most`; then it is created.
    """

    closed = False

    def __init__(self, create: Callable[[], pa.NativeFile], most: int) -> None:
        self.digest, self.size = sha256(), 0
        self._create, self._most = create, most
        self._begin, self._last = bytearray(), bytearray()
        self._stream: pa.NativeFile | None = None

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        self.size += len(data)
        self._last += data[-TAIL:]
        # Many small writes move what is kept once in a while only.
        if len(self._last) > 2 * TAIL:
            del self._last[:-TAIL]
        if self._stream is None and self.size > self._most:
            self._stream = self._create()
            self._stream.write(self._begin)
            self._begin.clear()
        if self._stream is None:
            self._begin += data
        else:
            self._stream.write(data)
        return len(data)

    @property
    def tail(self) -> bytes:
        """The end of what was written."""
        return bytes(self._last[-TAIL:])

    def flush(self) -> None:
        """All is there once the file is ended."""

    def close(self) -> None:
        """Who opened it ends it."""

    def end(self) -> bytes | None:
        """Finish the file. The whole content, if it is small and is not stored yet."""
        if self._stream is None:
            return bytes(self._begin)
        self._stream.close()
        return None


class Files:
    """The files that one piece of work opens. Keeps its connections to S3."""

    def open(self, uri: str) -> pa.NativeFile:
        """Opens a file for random access. Raises FileNotFoundError if there is none."""
        return self._of(uri).open_input_file(_path(uri))

    def stream(self, uri: str) -> pa.NativeFile:
        """Opens a file for reading from its beginning. Raises FileNotFoundError if there is none."""
        return self._of(uri).open_input_stream(_path(uri))

    def whole(self, uri: str, size: int, etag: str, most: int) -> pa.NativeFile | None:
        """The content of a file of at least one byte and at most so many, by one request. None if it is larger, or is
        not there with this size and etag. Raises the store's errors."""
        if not 0 < size <= most:
            return None
        store, name = _place(uri)
        data = store.get_part(name, 0, size, etag)
        return None if data is None else pa.BufferReader(data)

    def written(self, uri: str, write: Callable[[NewFile], A]) -> tuple[A, NewFile, int, str]:
        """A new file, which `write` has written: its answer, the file, and by the store its size and etag.

        Raises PyArrow's errors and the store's.
        """
        # A folder has no requests to save: files are written where they lie, and not forced to the disk one by one.
        new = NewFile(lambda: self.create(uri), 0 if uri.startswith(FOLDER) else _WHOLE)
        answer = write(new)
        if (data := new.end()) is not None:
            store, name = _place(uri)
            there = store.put(name, data)
            return answer, new, there.size, there.etag
        with self.open(uri) as file:
            return answer, new, *version(uri, file)

    def create(self, uri: str) -> pa.NativeFile:
        """Opens a file for writing. In S3 it exists once it is closed, in a folder at once."""
        if uri.startswith(FOLDER):
            path_of(uri).parent.mkdir(parents=True, exist_ok=True)
        return self._of(uri).open_output_stream(_path(uri))

    def missing(self, uris: Sequence[str]) -> list[str]:
        """Which of these files, all of one store, do not exist."""
        found = self._of(uris[0]).get_file_info([_path(uri) for uri in uris]) if uris else []
        return [uri for uri, info in zip(uris, found, strict=True) if info.type is FileType.NotFound]

    def _of(self, uri: str) -> FileSystem:
        return self._folders if uri.startswith(FOLDER) else self._s3

    @cached_property
    def _s3(self) -> S3FileSystem:
        return s3_filesystem()

    @cached_property
    def _folders(self) -> LocalFileSystem:
        return LocalFileSystem()


def version(uri: str, file: pa.NativeFile) -> tuple[int, str]:
    """Size and etag of an open file, from the store."""
    if uri.startswith(FOLDER):
        return file.size(), etag_of(path_of(uri))
    return file.size(), file.metadata().get("ETag", b"").decode().strip('"')


def _place(uri: str) -> tuple[Store, str]:
    """The folder of a file as a store, and the file's name there."""
    folder, _, name = uri.rpartition("/")
    return store_at(folder), name


def _path(uri: str) -> str:
    return str(path_of(uri)) if uri.startswith(FOLDER) else "/".join(split(uri))
