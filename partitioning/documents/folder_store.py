"""The store in a folder: objects are files under `file:///folder`. It serves one machine; it needs no server."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import file_digest, md5
from itertools import islice
from pathlib import Path

from partitioning.documents.store import PAGE_KEYS, Entry, Found, KeyPage
from partitioning.errors import CosetError, Refused, Unreachable
from partitioning.kinds import Kind
from partitioning.model.root_names import UNFINISHED
from partitioning.model.sources import FOLDER

_ABSENT = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
# Errors that waiting does not mend: links in a circle, names that no file can have.
_NEVER = {errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL}
# How often others may come and go at a key. A link that leads nowhere is there and cannot be read however often.
_TRIES = 100
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS}


class FolderStore:
    """A store in a folder of this machine, which is made when the first object is stored.

    An object's etag is the MD5 digest of its content, as S3 has it for a small object. A writer makes a file under
    another name and then links or renames it, so that no reader ever meets half an object.

    Raises Refused if the folder may not be read or written, and Unreachable if its disk does not answer.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self._folder = path_of(root)

    def get(self, key: str) -> bytes | None:
        with self._errors(key):
            try:
                return self._path(key).read_bytes()
            except _ABSENT:
                return None

    def get_part(self, key: str, start: int, end: int, etag: str | None) -> bytes | None:
        path = self._path(key)
        with self._errors(key):
            try:
                with path.open("rb") as file:
                    if etag not in (None, etag_of(path)):
                        return None
                    file.seek(start)
                    data = file.read(end - start)
            except _ABSENT:
                return None
        return data if len(data) == end - start else None

    def put_new(self, key: str, data: bytes) -> bytes:
        path = self._path(key)
        with self._errors(key), self._written(path, data) as unfinished:
            for _ in range(_TRIES):
                try:
                    os.link(unfinished, path)
                    return data
                except FileExistsError:
                    # Who was first may take it away before it is read: then the key is free again.
                    with suppress(FileNotFoundError):
                        return path.read_bytes()
                except OSError as error:
                    if error.errno in _NO_LINKS:
                        raise self._without_links(key) from error
                    raise
            return path.read_bytes()

    def put(self, key: str, data: bytes) -> Entry:
        path = self._path(key)
        with self._errors(key), self._written(path, data) as unfinished:
            unfinished.replace(path)
        return Entry(key, len(data), md5(data, usedforsecurity=False).hexdigest())

    def delete(self, key: str) -> None:
        with self._errors(key):
            self._path(key).unlink(missing_ok=True)

    def head(self, key: str) -> Entry | None:
        with self._errors(key):
            found = self._found(key)
        return None if found is None else found.entry

    def list(self, prefix: str, limit: int | None = None) -> Iterator[Entry]:
        with self._errors(prefix):
            for found in islice(self._listed(prefix, ""), limit):
                yield found.entry

    def page(self, prefix: str, after: str, limit: int | None = None) -> KeyPage:
        most = PAGE_KEYS if limit is None else min(limit, PAGE_KEYS)
        with self._errors(prefix):
            some = tuple(islice(self._listed(prefix, after), most + 1))
        return KeyPage(some[:most], len(some) > most)

    def _listed(self, prefix: str, after: str) -> Iterator[Found]:
        """The objects behind a key, in the order of their keys."""
        for key in _keys(self._folder, "", prefix, after):
            # A file may be removed while the listing goes on, as an object in S3 may be.
            if (found := self._found(key)) is not None:
                yield found

    def _found(self, key: str) -> Found | None:
        path = self._path(key)
        try:
            there = path.stat()
            return Found(Entry(key, there.st_size, etag_of(path)), datetime.fromtimestamp(there.st_mtime, UTC))
        except _ABSENT:
            return None

    @contextmanager
    def _written(self, path: Path, data: bytes) -> Iterator[Path]:
        """A file beside `path` that holds `data` and is safe on the disk. It is removed if it still has that name."""
        unfinished = path.with_name(f"{UNFINISHED}{os.getpid()}-{secrets.token_hex(4)}")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with unfinished.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            yield unfinished
        finally:
            unfinished.unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self._folder / key

    @contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        """Turn errors of the operating system into ours: what, where, and what to do next."""
        try:
            yield
        except CosetError:
            raise
        except PermissionError as error:
            what = f"access is denied: {error}"
            then = f"give user {os.getuid()} the right to read and write the folder {self._folder}"
            raise Refused.of(Kind.STORE_DENIED, what, self.uri(key), then, key=key) from error
        except (NotADirectoryError, FileExistsError, IsADirectoryError) as error:
            there, needed = ("folder", "file") if isinstance(error, IsADirectoryError) else ("file", "folder")
            what = f"a {there} stands where a {needed} is needed: {error}"
            then = "move it elsewhere, or name another folder as the store"
            raise Refused.of(Kind.STORE_ADDRESS, what, self.uri(key), then, key=key) from error
        except OSError as error:
            what, then = f"the folder cannot be read or written: {error}", "free its disk, or mount it again"
            if error.errno in _NEVER:
                then = "correct the name or the link that the error names"
                raise Refused.of(Kind.STORE_ADDRESS, what, self.uri(key), then, key=key) from error
            raise Unreachable.of(Kind.STORE_UNREACHABLE, what, self.uri(key), then, key=key) from error

    def _without_links(self, key: str) -> Refused:
        what = f"the file system of {self._folder} has no hard links, which decide who comes first"
        then = "name a folder on a local disk, or use s3://bucket/prefix"
        return Refused.of(Kind.STORE_ADDRESS, what, self.uri(key), then, root=self.root)

    def uri(self, key: str) -> str:
        return f"{self.root}/{key}"


def path_of(uri: str) -> Path:
    """The path that a `file://` URI names, as it is written: nothing in it is escaped.

    >>> path_of("file:///home/me/store").as_posix()
    '/home/me/store'
    """
    return Path(uri.removeprefix(FOLDER))


def etag_of(path: Path) -> str:
    """The MD5 digest of a file's content. It is worked out once for each state of a file in a process."""
    there = path.stat()
    return _etag(str(path), there.st_ino, there.st_size, there.st_mtime_ns)


@lru_cache(maxsize=1 << 16)
def _etag(path: str, inode: int, size: int, changed: int) -> str:
    with open(path, "rb") as file:
        return file_digest(file, lambda: md5(usedforsecurity=False)).hexdigest()


def _keys(folder: Path, under: str, prefix: str, after: str) -> Iterator[str]:
    """The keys in a folder, in order, that start with `prefix` and are greater than `after`.

    A folder sorts by its name and a slash, as its keys do: `a-b` comes before `a/b`.
    """
    try:
        with os.scandir(folder) as entries:
            names = sorted(
                f"{entry.name}/" if entry.is_dir() else entry.name
                for entry in entries
                if not entry.name.startswith(UNFINISHED)
            )
    except _ABSENT:
        return
    for name in names:
        key = under + name
        if name.endswith("/"):
            may_match = key.startswith(prefix) or prefix.startswith(key)
            if may_match and (key > after or after.startswith(key)):
                yield from _keys(folder / name, key, prefix, after)
        elif key.startswith(prefix) and key > after:
            yield key
