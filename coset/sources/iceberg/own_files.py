"""Own files: what a thread wrote last to folders of Iceberg tables. No such file changes: it need not read them."""

from __future__ import annotations

from threading import local
from typing import Generic, TypeVar

T = TypeVar("T")
# Of so many tables.
_MOST = 64


class OwnFiles(local, Generic[T]):
    """What files of tables have, by where they lie: of each table the last that was kept."""

    def __init__(self) -> None:
        self._of = dict[str, tuple[str, T]]()

    def keep(self, table: str, where: str, what: T) -> None:
        self._of.pop(table, None)
        self._of[table] = where, what
        while len(self._of) > _MOST:
            del self._of[next(iter(self._of))]

    def found(self, table: str, where: str) -> T | None:
        """What the file there has. None if it is not known."""
        kept, what = self._of.get(table, ("", None))
        return what if kept == where else None
