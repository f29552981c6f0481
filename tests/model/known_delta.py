"""delta-rs without a disk: what it makes of a log is asked once, of delta-rs itself, and known from then on.

Its clock and its chance are taken out of what it commits. What two actors commit differs in both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from coset.batches.tables import log_copy
from coset.batches.tables.log_copy import LogCopy, TableLog
from partitioning.model.root_names import LOG

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TIMES = ("timestamp", "createdTime")
# What delta-rs said, by the content of a log and the question.
_KNOWN: dict[Any, Any] = {}
_WHO: list[str] = [""]


class Disk(dict[str, bytes]):
    """The files of a copy, by their keys."""

    def __init__(self) -> None:
        self.path = self

    def __truediv__(self, key: str) -> File:
        return File(self, key)

    @property
    def content(self) -> tuple[tuple[str, bytes], ...]:
        return tuple(sorted(self.items()))


class File:
    """What `LogCopy` uses of a path."""

    def __init__(self, disk: Disk, key: str) -> None:
        self._disk, self._key, self.name = disk, key, key.rpartition("/")[2]

    @property
    def parent(self) -> File:
        return self

    def mkdir(self, **_: bool) -> None: ...

    def read_bytes(self) -> bytes:
        return self._disk[self._key]

    def write_bytes(self, data: bytes) -> None:
        self._disk[self._key] = data

    def write_text(self, text: str) -> None:
        self._disk[self._key] = text.encode()

    def exists(self) -> bool:
        return self._key in self._disk or self._key == LOG

    def is_file(self) -> bool:
        return True

    def unlink(self, *, missing_ok: bool) -> None:
        self._disk.pop(self._key, None)

    def iterdir(self) -> Iterator[File]:
        return (File(self._disk, key) for key in self._disk)

    def clear(self) -> None:
        self._disk.clear()


class KnownTable:
    """A `TableLog` whose answers are remembered."""

    copy: LogCopy
    known: Any = (-1, {})
    once, commit, entries, history = TableLog.once, TableLog.commit, TableLog.entries, TableLog.history
    table_uri = TableLog.table_uri

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.update_incremental()

    @classmethod
    def create(cls, disk: Disk, *args: Any, **options: Any) -> KnownTable:
        _changed(disk, (), f"{args} {options}", lambda folder: DeltaTable.create(folder, *args, **options))
        return cls(disk)

    def update_incremental(self) -> None:
        if not self._disk:
            raise TableNotFoundError("no log")
        self._content = self._disk.content

    def version(self) -> int:
        return self._asked(DeltaTable.version)

    def metadata(self) -> Any:
        return self._asked(DeltaTable.metadata)

    def schema(self) -> Any:
        return self._asked(DeltaTable.schema)

    def protocol(self) -> Any:
        return self._asked(DeltaTable.protocol)

    def get_add_actions(self, flatten: bool = False) -> Any:
        return self._asked(DeltaTable.get_add_actions, flatten)

    def transaction_version(self, application: str) -> Any:
        return self._asked(DeltaTable.transaction_version, application)

    def create_write_transaction(self, actions: Any, mode: str, schema: Any, **options: Any) -> None:
        said = [vars(options["commit_properties"]), options["partition_filters"], options["partition_by"]]
        txns = [(each.app_id, each.version) for each in options["commit_properties"].app_transactions]
        # What it was read from may have changed in the folder: delta-rs looks there as it commits.
        version = self.version()
        _changed(
            self._disk,
            self._disk.content,
            f"{version} {actions} {mode} {schema.to_json()} {said[0]['custom_metadata']} {txns} {said[1:]}",
            lambda folder: DeltaTable(folder, version).create_write_transaction(actions, mode, schema, **options),
        )

    def _asked(self, question: Callable[..., Any], *args: Any) -> Any:
        asked = (self._content, question.__name__, *args)
        if asked not in _KNOWN:
            with _folder_with(self._content) as folder:
                _KNOWN[asked] = question(DeltaTable(folder), *args)
        return _KNOWN[asked]


def _changed(disk: Disk, content: Any, how: str, change: Callable[[str], object]) -> None:
    """Let delta-rs change a log that has this content, and put what that adds to the disk."""
    asked = (content, _WHO[0], how)
    if asked not in _KNOWN:
        with _folder_with(content) as folder:
            change(folder)
            there = {f"{LOG}{path.name}": path.read_text() for path in Path(folder, LOG).iterdir() if path.is_file()}
            new = {
                key: _stilled(text.replace(folder, "copy")) for key, text in there.items() if key not in dict(content)
            }
            _KNOWN[asked] = new
    disk.update(_KNOWN[asked])


class _folder_with(TemporaryDirectory[str]):  # noqa: N801  a context of one statement
    """A folder with the files of a log."""

    def __init__(self, content: Any) -> None:
        super().__init__()
        for key, data in content:
            path = Path(self.name, key)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)


def _stilled(text: str) -> bytes:
    number = int.from_bytes(_WHO[0].encode(), "big") % 10**12
    lines = (json.dumps(_without_chance(json.loads(line), number), sort_keys=True) for line in text.splitlines())
    return "".join(f"{line}\n" for line in lines).encode()


def _without_chance(value: Any, number: int) -> Any:
    match value:
        case dict():
            return {name: number if name in _TIMES else _without_chance(each, number) for name, each in value.items()}
        case str() if value.startswith("{"):
            return json.dumps(_without_chance(json.loads(value), number), sort_keys=True)
        case str():
            return _UUID.sub(f"00000000-0000-0000-0000-{number:012}", value)
        case list():
            return [_without_chance(each, number) for each in value]
        case _:
            return value


def remember(patch: pytest.MonkeyPatch) -> None:
    """Put this in place of delta-rs and the disk, where logs are copied."""
    patch.setattr(log_copy, "TableLog", KnownTable)
    patch.setattr(log_copy, "KeptFolder", Disk)
    patch.setattr(log_copy, "shutil", SimpleNamespace(rmtree=lambda path, **_: path.clear()))
    patch.setattr(LogCopy, "_folder", property(lambda copy: copy._kept))


def committing(name: str) -> None:
    """Let what is committed from now on be the work of this process."""
    _WHO[0] = name
