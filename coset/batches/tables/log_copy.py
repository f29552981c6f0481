"""A copy of a table's Delta log on this machine's disk: delta-rs reads and commits there, without a request.

A listing tells whether the copy is as the log is: an object is known by its etag. A commit counts once it is stored
under its name, if nobody has stored another there.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Hashable, Iterator, Mapping
from hashlib import md5
from pathlib import Path
from typing import Any, TypeVar, cast

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, TableNotFoundError

from partitioning.documents.store import Store, at_once
from partitioning.documents.stores import store_at
from partitioning.model.root_names import LOG
from spark_jobs.engine.task_folder import KeptFolder

T = TypeVar("T")
# What a line of a commit does, under the name of its kind.
Action = dict[str, Any]

_HINT = f"{LOG}_last_checkpoint"
_COMMIT = re.compile(LOG + r"[0-9]{20}\.json")
_CHECKPOINT = re.compile(LOG + r"([0-9]{20})\.checkpoint(?:\..+)?\.(?:parquet|json)")
_WHOLE_CHECKPOINT = re.compile(LOG + r"([0-9]{20})\.checkpoint\.parquet")


class TableLog(DeltaTable):
    """A table by the copy of its log. It has no rows, and what it commits is stored by `LogCopy.push`."""

    copy: LogCopy
    # What was worked out of a version, by what was asked.
    known: tuple[int, dict[Hashable, object]] = (-1, {})
    # The last version whose files were asked for, and how it added them, by their paths.
    listed: tuple[int, Mapping[str, Mapping[str, Any]]] = (-1, {})

    def once(self, asked: Hashable, work_out: Callable[[], T]) -> T:
        """The result of `work_out`, which is called once for this version of the log."""
        if self.known[0] != self.version():
            self.known = self.version(), {}
        _, found = self.known
        if asked not in found:
            found[asked] = work_out()
        return cast(T, found[asked])

    @property
    def table_uri(self) -> str:
        """The address of the table itself."""
        return self.copy.where

    def commit(self, version: int) -> bytes | None:
        """What a version committed. None if the log has lost that."""
        return self.copy.commit(version)

    def entries(self) -> Iterator[dict[str, Any]]:
        """What each version says of itself, the newest first, up to one that the log has lost."""
        for version in range(self.version(), -1, -1):
            if (data := self.commit(version)) is None:
                return
            info: dict[str, Any] = next((each["commitInfo"] for each in actions_in(data) if "commitInfo" in each), {})
            yield {**info, "version": version}

    def history(self, limit: int | None = None) -> list[dict[str, Any]]:
        """The same as a list, of the last `limit` versions."""
        return [entry for entry, _ in zip(self.entries(), range(limit or self.version() + 1), strict=False)]


class LogCopy:
    """The copy of one log, from its newest checkpoint on, for one thread."""

    def __init__(self, where: str) -> None:
        self.where = where
        self._kept = KeptFolder()
        # The digests that objects have as long as they are as they were copied.
        self._etags = dict[str, str]()
        self._begins = ""
        self._table: TableLog | None = None

    def table(self) -> TableLog | None:
        """The table as it is now. None if there is none. Raises delta-rs's errors and the store's."""
        if any(self._unknown()):
            # A commit that was not pushed: whoever made it was interrupted.
            self.forget()
        if self._fetch() and self._table is not None:
            self._table.update_incremental()
        elif self._table is None:
            try:
                self._table = self._of(TableLog(self._folder))
            except TableNotFoundError:
                return None
        return self._table

    def create(self, *args: Any, **options: Any) -> TableLog:
        """Make the table, with the arguments of delta-rs. Raises delta-rs's errors and the store's."""
        made = TableLog.create(self._folder, *args, **options)
        assert isinstance(made, TableLog)
        self._table = self._of(made)
        self.push(-1)
        return self._table

    def push(self, after: int) -> None:
        """Store what delta-rs has committed to the copy, as the versions `after` the one that was read.

        Raises CommitFailedError if somebody else has committed such a version, and the store's errors.
        """
        store, new = self._store(), list(self._unknown())
        for version, key in enumerate((key for key in new if _COMMIT.fullmatch(key)), after + 1):
            data, wanted = self._path(key).read_bytes(), _commit_key(version)
            if key != wanted or store.put_new(key, data) != data:
                raise CommitFailedError(f"somebody else has committed {wanted}")
            self._etags[key] = _etag(data)
        for key in (key for key in new if _CHECKPOINT.fullmatch(key)):
            # A version has one content, so it does not matter whose checkpoint of it stays.
            data = self._path(key).read_bytes()
            store.put(key, data)
            self._etags[key] = _etag(data)
            store.put(_HINT, self._path(_HINT).read_bytes())
        if self._table is not None:
            # delta-rs leaves the object that made a commit at the version before.
            self._table.update_incremental()

    def forget(self) -> None:
        """Copy the log anew the next time."""
        shutil.rmtree(self._path(LOG), ignore_errors=True)
        self._etags, self._begins, self._table = {}, "", None

    def checkpoint(self) -> tuple[int, list[Path]]:
        """The files of the checkpoint that the copy begins with, and the first version after it."""
        begins = self._begins[len(LOG) :]
        there = (key for key in self._etags if begins and key.startswith(self._begins) and _CHECKPOINT.fullmatch(key))
        return (int(begins) + 1 if begins else 0), [self._path(key) for key in sorted(there)]

    def amend(self, version: int, change: Callable[[list[Action]], list[Action]]) -> None:
        """Change the actions of a version that delta-rs has committed to the copy, and that is not stored yet."""
        path = self._path(_commit_key(version))
        actions = change(actions_in(path.read_bytes()))
        # Delta's kernel misreads escapes of some characters that need two.
        path.write_text("".join(f"{json.dumps(action, ensure_ascii=False)}\n" for action in actions), "utf-8")

    def commit(self, version: int) -> bytes | None:
        """What a version committed, from the copy or the store."""
        key = _commit_key(version)
        path = self._path(key)
        return path.read_bytes() if path.exists() else self._store().get(key)

    def _fetch(self) -> bool:
        """Copy what is new. Returns whether there was anything."""
        store = self._store()
        listed = self._listed(store)
        if any(listed.get(key, etag) != etag or key not in listed for key, etag in self._etags.items()):
            # It was rolled back, restored or cleaned up.
            self.forget()
            listed = self._listed(store)
        begins = max((match[1] for match in map(_WHOLE_CHECKPOINT.fullmatch, listed) if match), default="")
        if begins > self._begins[len(LOG) :]:
            self._begin_at(LOG + begins)
            listed = {key: etag for key, etag in listed.items() if key >= self._begins}
        new = [key for key in listed if key not in self._etags]
        for key, data in zip(new, at_once(store.get, new), strict=True):
            if data is not None:
                path = self._path(key)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
                self._etags[key] = listed[key]
        return bool(new)

    def _listed(self, store: Store) -> dict[str, str]:
        """The etags of the log's objects, from the newest known checkpoint on."""
        if not self._etags and (hint := store.get(_HINT)) is not None:
            self._begins = _named_in(hint)
        listed = _all(store, self._begins)
        if self._begins and not any(key.startswith(self._begins) and _CHECKPOINT.fullmatch(key) for key in listed):
            # The checkpoint that the hint names is not there.
            self.forget()
            listed = _all(store, "")
        return listed

    def _begin_at(self, begins: str) -> None:
        """Leave out what is before a checkpoint."""
        for key in [key for key in self._etags if key < begins]:
            self._path(key).unlink(missing_ok=True)
            del self._etags[key]
        # It may name a checkpoint that has just been left out. In the copy nobody needs it.
        self._path(_HINT).unlink(missing_ok=True)
        self._begins, self._table = begins, None

    def _of(self, table: TableLog) -> TableLog:
        table.copy = self
        return table

    def _store(self) -> Store:
        return store_at(self.where)

    @property
    def _folder(self) -> str:
        return str(self._kept.path)

    def _path(self, key: str) -> Path:
        return self._kept.path / key

    def _unknown(self) -> Iterator[str]:
        """The objects that only the copy has."""
        folder = self._path(LOG)
        names = sorted(path.name for path in folder.iterdir() if path.is_file()) if folder.exists() else []
        return (key for key in (f"{LOG}{name}" for name in names) if key not in self._etags and key != _HINT)


def actions_in(data: bytes) -> list[Action]:
    """The actions of a commit.

    >>> actions_in(b'{"txn": {"appId": "a"}}\\n\\n{"add": {"path": "b"}}')
    [{'txn': {'appId': 'a'}}, {'add': {'path': 'b'}}]
    """
    return [json.loads(line) for line in data.splitlines() if line.strip()]


def _all(store: Store, after: str) -> dict[str, str]:
    """The etags of the log's objects behind a key, but for the hint, which those who read the store need."""
    etags, more = dict[str, str](), True
    while more:
        page = store.page(LOG, after)
        etags |= {found.entry.key: found.entry.etag for found in page.objects}
        after, more = max(etags, default=""), page.more
    etags.pop(_HINT, None)
    return etags


def _commit_key(version: int) -> str:
    return f"{LOG}{version:020}.json"


def _named_in(hint: bytes) -> str:
    """Where the checkpoint begins that a hint names. Empty if it names none: a hint may be damaged."""
    try:
        return f"{LOG}{int(json.loads(hint)['version']):020}"
    except (ValueError, KeyError, TypeError):
        return ""


def _etag(data: bytes) -> str:
    """The etag of an object that was stored at once. Where a store gives others, the object is read again."""
    return md5(data, usedforsecurity=False).hexdigest()
