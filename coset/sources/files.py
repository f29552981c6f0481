"""Files of every kind of store for PyArrow. Each is named by its URI."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import pyarrow as pa
from pyarrow.fs import FileSystem, FileType, LocalFileSystem, S3FileSystem

from coset.sources.s3 import s3_filesystem, split
from partitioning.documents.folder_store import etag_of, path_of
from partitioning.model.sources import FOLDER


class Files:
    """The files that one piece of work opens. Keeps its connections to S3."""

    def open(self, uri: str) -> pa.NativeFile:
        """Opens a file for random access. Raises FileNotFoundError if there is none."""
        return self._of(uri).open_input_file(_path(uri))

    def stream(self, uri: str) -> pa.NativeFile:
        """Opens a file for reading from its beginning. Raises FileNotFoundError if there is none."""
        return self._of(uri).open_input_stream(_path(uri))

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


def _path(uri: str) -> str:
    return str(path_of(uri)) if uri.startswith(FOLDER) else "/".join(split(uri))
