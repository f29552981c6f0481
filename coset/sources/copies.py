"""Cache: state files that this machine read before, on its disk, so that only changed ones are fetched.

The cache decides nothing. A missing or damaged copy is fetched again, and what is read is proved either way.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from threading import Lock

from partitioning.errors import Refused
from partitioning.kinds import Kind

# The cache folder; without it nothing is cached.
FOLDER = "COSET_COPIES"
# The most bytes that it may hold; the least recently used copies go first.
MOST = "COSET_COPIES_BYTES"
_MOST = 10 << 30
_DIGEST = sha256().digest_size


class Copies:
    """A cache in a folder, or none. `fetched` and `found` count the requested bytes that were fetched and cached.

    Several processes and threads may use one folder.
    """

    def __init__(self, folder: Path | None, most: int = _MOST) -> None:
        self.fetched = self.found = 0
        self._folder = folder
        self._most = most
        self._counting = Lock()
        # How many bytes may be added before the folder's size is checked again.
        self._spare = 0

    @classmethod
    def of_environment(cls) -> Copies:
        """The cache of this place. Raises Refused if the environment names an unusable folder or size."""
        folder, most = os.environ.get(FOLDER), os.environ.get(MOST, str(_MOST))
        if not folder:
            return cls(None)
        if not most.isdecimal():
            raise Refused.of(Kind.LOCATION, f"{most!r} is no number of bytes", MOST, "write it in digits", most=most)
        try:
            Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            what = f"the folder cannot be made: {error}"
            raise Refused.of(Kind.LOCATION, what, FOLDER, "name another one", folder=folder) from error
        return cls(Path(folder), int(most))

    def get(self, name: str, fetch: Callable[[], bytes | None]) -> bytes | None:
        """The cached bytes of this name, which never change, or else those that `fetch` returns."""
        copy = self._folder / sha256(name.encode()).hexdigest() if self._folder else None
        data = _read(copy) if copy else None
        if data is not None:
            self._count(found=len(data))
            return data
        data = fetch()
        if data is not None:
            self._count(fetched=len(data))
            if copy:
                self._keep(copy, data)
        return data

    def _keep(self, copy: Path, data: bytes) -> None:
        part = copy.with_name(f"{copy.name}.{secrets.token_hex(4)}")
        # A full disk costs time only.
        with suppress(OSError):
            part.write_bytes(sha256(data).digest() + data)
            part.replace(copy)
            self._spare -= len(data)
            if self._spare < 0:
                self._make_room(copy.parent)

    def _make_room(self, folder: Path) -> None:
        with os.scandir(folder) as entries:
            files = sorted((entry.stat().st_mtime, entry.stat().st_size, entry.path) for entry in entries)
        excess = sum(size for _, size, _ in files) - self._most
        for _, size, path in files:
            if excess <= 0:
                break
            Path(path).unlink(missing_ok=True)
            excess -= size
        self._spare = self._most // 100

    def _count(self, fetched: int = 0, found: int = 0) -> None:
        with self._counting:
            self.fetched += fetched
            self.found += found


def _read(copy: Path) -> bytes | None:
    """The copy. None if there is no complete one."""
    with suppress(OSError):
        kept = copy.read_bytes()
        if sha256(kept[_DIGEST:]).digest() == kept[:_DIGEST]:
            os.utime(copy)
            return kept[_DIGEST:]
    return None
