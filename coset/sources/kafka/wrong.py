"""Errors in a record's bytes, and which of several records has one."""

from __future__ import annotations

from collections.abc import Callable, Sequence


class Wrong(Exception):
    """Raised if the record with this index, in what is read together, cannot be read; what to do, if that is known."""

    def __init__(self, number: int, what: str, then: str = "") -> None:
        super().__init__(what)
        self.number = number
        self.what = what
        self.then = then


def first_wrong(
    written: Sequence[bytes | None], read: Callable[[bytes], object], errors: tuple[type[Exception], ...]
) -> Wrong:
    """The first that `read` cannot read, and its error."""
    for number, data in enumerate(written):
        try:
            if data is not None:
                read(data)
        except errors as error:
            return Wrong(number, str(error).partition("\n")[0], getattr(error, "then", ""))
    raise AssertionError
