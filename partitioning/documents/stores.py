"""Stores by their roots: which kinds there are, where the tables of one lie, and whether one does what all rests on.
The store in a folder.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cached_property, lru_cache, partial
from hashlib import file_digest, md5
from itertools import islice
from pathlib import Path
from secrets import token_hex

from partitioning.documents.store import PAGE_KEYS, Entry, Found, KeyPage, Store, numbered
from partitioning.errors import CosetError, Refused, Unreachable
from partitioning.kinds import Kind
from partitioning.model.root_names import (
    STORE_ID,
    TABLES,
    UNFINISHED,
    TablesAt,
    tables_at_key,
    uri_of_key,
    usual_tables,
)
from partitioning.model.sources import FOLDER, address_of, why_no_root
from partitioning.values import replace

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


RACERS = 8
CONDITIONAL = "use a store with conditional writes (If-None-Match), as S3, SeaweedFS and MinIO have"


def check_first_use(store: Store) -> None:
    """Raise Refused if a store without an id lets several create an object, or does not read or list what was written.

    It writes an object and removes it. A store gets its id with its first published batch, or as its tables are to lie
    elsewhere, and is not asked again.
    """
    if store.get(STORE_ID) is not None:
        return
    key, broken = f"{STORE_ID}-probe-{token_hex(8)}", list[str]()
    try:
        told = told_at_once(store, key)
        if len(told) > 1:
            broken.append(several_told(told))
        elif store.put_new(key, b"later") not in told:
            broken.append("an object that was there was replaced, though only a new one was to be created")
        elif store.get(key) not in told:
            broken.append("an object was read otherwise than it was written")
        if not any(entry.key == key for entry in store.list(key)):
            broken.append("an object that was written is not listed")
    finally:
        # Who may not remove it leaves a few bytes there.
        with suppress(CosetError):
            store.delete(key)
    if broken:
        what = f"the store cannot be relied on: {'; '.join(broken)}"
        then = f"{CONDITIONAL}; `coset doctor` tries one"
        raise Refused.of(Kind.STORE_ADDRESS, what, store.root, then, root=store.root)


def told_at_once(store: Store, key: str) -> set[bytes]:
    """What several who create an object at once are told is stored."""
    with ThreadPoolExecutor(RACERS) as pool:
        return set(pool.map(lambda number: store.put_new(key, f"{number}".encode()), range(RACERS)))


def several_told(told: set[bytes]) -> str:
    """How many of them were told that theirs is stored, in words."""
    return f"of {RACERS} who wrote an object at once, {len(told)} were told that theirs is stored"


class SplitStore:
    """The store at the root of `documents`, with the tables where its own documents say that they lie.

    That is read once, when a table is first asked for: take a new object after a move.
    """

    def __init__(self, documents: Store, open_at: Callable[[str], Store]) -> None:
        self.root, self.documents, self._open_at = documents.root, documents, open_at

    @cached_property
    def tables(self) -> str:
        """The address of the tables. Raises Refused if the document that names it is damaged."""
        named = [each.address for each in numbered(self.documents, TablesAt, tables_at_key)]
        return named[-1] if named else usual_tables(self.root)

    def uri(self, key: str) -> str:
        """The address of an object."""
        return uri_of_key(self.root, self.tables if key.startswith(TABLES) else "", key)

    def get(self, key: str) -> bytes | None:
        store, inner = self._of(key)
        return store.get(inner)

    def get_part(self, key: str, start: int, end: int, etag: str | None) -> bytes | None:
        store, inner = self._of(key)
        return store.get_part(inner, start, end, etag)

    def put_new(self, key: str, data: bytes) -> bytes:
        store, inner = self._of(key)
        return store.put_new(inner, data)

    def put(self, key: str, data: bytes) -> Entry:
        store, inner = self._of(key)
        return _named(store.put(inner, data), key, inner)

    def delete(self, key: str) -> None:
        store, inner = self._of(key)
        store.delete(inner)

    def head(self, key: str) -> Entry | None:
        store, inner = self._of(key)
        found = store.head(inner)
        return found and _named(found, key, inner)

    def list(self, prefix: str, limit: int | None = None) -> Iterator[Entry]:
        store, inner = self._of(prefix)
        return map(partial(_named, key=prefix, inner=inner), store.list(inner, limit))

    def page(self, prefix: str, after: str, limit: int | None = None) -> KeyPage:
        store, inner = self._of(prefix)
        page = store.page(inner, after.removeprefix(prefix.removesuffix(inner)), limit)
        return KeyPage(tuple(Found(_named(each.entry, prefix, inner), each.stored) for each in page.objects), page.more)

    @cached_property
    def _tables(self) -> Store:
        return self._open_at(self.tables)

    def _of(self, key: str) -> tuple[Store, str]:
        """The store that has an object, or objects that begin so, and the key there."""
        if key.startswith(TABLES) and self.tables != usual_tables(self.root):
            return self._tables, key.removeprefix(TABLES)
        return self.documents, key


def _named(found: Entry, key: str, inner: str) -> Entry:
    """An object by its key here. It was found by `inner` there, which is `key` here."""
    return found if key == inner else replace(found, key=key.removesuffix(inner) + found.key)


def store_at(root: str) -> SplitStore:
    """The store at `s3://bucket/prefix` or in a folder, `file:///…` or its whole path. Raises Refused if it is none."""
    return SplitStore(_at(root), _at)


def named_root(store: str | os.PathLike[str]) -> str:
    """The root of a store that is named by its address, or by a folder of the working folder."""
    named = os.fspath(store)
    # A colon in the first part means an address, even an invalid one.
    return named if ":" in named.partition("/")[0] else address_of(os.path.abspath(named))


def _at(root: str) -> Store:
    address = address_of(root).rstrip("/")
    if why := why_no_root(address):
        then = "write it as s3://bucket/prefix, or as the path of a folder"
        raise Refused.of(Kind.STORE_ADDRESS, f"{root!r} {why}", "store", then, root=root)
    if address.startswith(FOLDER):
        return FolderStore(address)
    from partitioning.documents.s3_store import S3Store  # noqa: PLC0415  a trial in a folder does without boto3

    return S3Store(address)
