"""Schema evolution: one schema for the files of a stream, although its columns change over the years.

Columns may be added, reordered, widened, and dropped if they may be null. Where a file lacks one, it is null.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from coset.sources.file_columns import FileColumns
from partitioning.errors import Finding
from partitioning.kinds import Kind
from partitioning.model.streams import Column

_WIDENING = (
    ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"),
    ("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"),
    ("FLOAT", "DOUBLE"),
)
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
_MOST_DIGITS = 38
_BEFORE = "the files of earlier batches"


def common_type(one: str, other: str) -> str | None:
    """The type that holds the values of both unchanged. None if there is none.

    >>> common_type("INTEGER", "BIGINT"), common_type("DECIMAL(10,2)", "DECIMAL(9,4)"), common_type("BIGINT", "VARCHAR")
    ('BIGINT', 'DECIMAL(12,4)', None)
    """
    if one == other:
        return one
    for kinds in _WIDENING:
        if one in kinds and other in kinds:
            return max(one, other, key=kinds.index)
    decimals = _DECIMAL.fullmatch(one), _DECIMAL.fullmatch(other)
    if decimals[0] is None or decimals[1] is None:
        return None
    scales = [int(match[2]) for match in decimals if match]
    whole = max(int(match[1]) - int(match[2]) for match in decimals if match)
    digits = whole + max(scales)
    return f"DECIMAL({digits},{max(scales)})" if digits <= _MOST_DIGITS else None


@dataclass(slots=True)
class Evolution:
    """The columns of a stream: `known` from earlier batches, of which `required` were never null, and those of files
    added since. The types of `fixed` ones may not change; `cast` gives types that override."""

    known: Sequence[Column]
    required: Sequence[str]
    fixed: frozenset[str]
    cast: Mapping[str, str]
    _types: dict[str, str] = field(default_factory=dict)
    _where: dict[str, str] = field(default_factory=dict)
    _lacking: set[str] = field(default_factory=set)
    _nullable: set[str] = field(default_factory=set)
    # By partition, the columns without nulls so far, and the newest of its files.
    _had: dict[int, dict[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._types = {column.name: column.type for column in self.known}
        self._where = dict.fromkeys(self._types, _BEFORE)
        self._nullable = set(self._types) - set(self.required)

    def add(self, where: str, partition: int, file: FileColumns) -> Iterator[Finding]:
        """Add the columns of a file. Yields findings for what does not fit those before.

        Call it with the files of a partition in their order.
        """
        types = {column.name: column.type for column in file.columns}
        had = self._had.setdefault(partition, dict.fromkeys(self.required, _BEFORE))
        for name in sorted(self._types.keys() - types.keys()):
            self._lacking.add(name)
            if name in self.fixed:
                yield self._differs(name, "missing", where)
            elif name in had:
                yield self._dropped(name, where, had[name])
        if self._types:
            self._lacking.update(types.keys() - self._types.keys())
        self._nullable.update(types.keys() - file.required)
        for name, kind in types.items():
            if name in file.required:
                had[name] = where
            else:
                had.pop(name, None)
            if name in self._types:
                yield from self._together(name, kind, where)
            else:
                self._types[name], self._where[name] = kind, where

    @property
    def columns(self) -> tuple[Column, ...]:
        """All columns, with types that hold the values of every file."""
        return tuple(Column(name, self.cast.get(name, kind)) for name, kind in self._types.items())

    @property
    def lacking(self) -> tuple[str, ...]:
        """The columns that some file does not have."""
        return tuple(sorted(self._lacking))

    @property
    def never_null(self) -> tuple[str, ...]:
        """The columns that every file has and none allows to be null."""
        return tuple(sorted(self._types.keys() - self._nullable - self._lacking))

    def _together(self, name: str, kind: str, where: str) -> Iterator[Finding]:
        before = self._types[name]
        both = common_type(before, kind)
        if name in self.cast:
            return
        if both is None or (name in self.fixed and kind != before):
            yield self._differs(name, kind, where)
        elif both != before:
            self._types[name], self._where[name] = both, where

    def _differs(self, name: str, kind: str, where: str) -> Finding:
        before, anew = self._types[name], "give the stream another name from there on"
        then = f"land the column under another name, declare cast={{{name!r}: {before!r}}}, or {anew}"
        if name in self.fixed:
            then = f"land it as before, since keys and offsets keep their types, or {anew}"
        what = f"columns differ: {name} is {kind}, not {before}"
        return Finding.of(
            Kind.STREAM_COLUMNS,
            what,
            f"{where}, compared with {self._where[name]}",
            then,
            name=name,
            kind=kind,
            before=before,
        )

    def _dropped(self, name: str, where: str, before: str) -> Finding:
        what = f"columns differ: {name} is missing, not {self._types[name]}, and it was never null"
        then = "land it with the column, or let it be null first; or give the stream another name from there on"
        return Finding.of(Kind.STREAM_COLUMNS, what, f"{where}, compared with {before}", then, name=name)
