"""Schema evolution: one schema for the files of a stream, although its columns change over the years.

Columns may be added, reordered, widened, and dropped if they may be null. Where a file lacks one, it is null. A column
that is null in all records of a file has the type that the other files give it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from duckdb.sqltypes import DuckDBPyType

from coset.sources.databases import connect_to_ask
from coset.sources.file_columns import NULL_TYPE, FileColumns
from partitioning.errors import Finding
from partitioning.kinds import Kind
from partitioning.model.graph import quote
from partitioning.model.streams import Column
from partitioning.values import replace

_WIDENING = (
    ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"),
    ("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"),
    ("FLOAT", "DOUBLE"),
    ("TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP", "TIMESTAMP_NS"),
)
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
_MOST_DIGITS = 38
_BEFORE = "the files of earlier batches"
_TEXT = "VARCHAR"


@lru_cache(maxsize=256)
def common_type(one: str, other: str) -> str | None:
    """The type that holds the values of both unchanged. None if there is none. Reading refuses a time of a wide unit
    that a fine one does not reach.

    >>> common_type("INTEGER", "BIGINT"), common_type("DECIMAL(10,2)", "DECIMAL(9,4)"), common_type("BIGINT", "VARCHAR")
    ('BIGINT', 'DECIMAL(12,4)', None)
    >>> common_type('STRUCT(a "NULL", b INTEGER)[]', "STRUCT(b BIGINT, a VARCHAR)[]")
    'STRUCT(a VARCHAR, b BIGINT)[]'
    """
    if one == other:
        return one
    with connect_to_ask() as connection:
        both = _together(connection.sqltype(one), connection.sqltype(other))
        return both and str(connection.sqltype(both))


def _together(one: DuckDBPyType, other: DuckDBPyType) -> str | None:
    if one.id == other.id and one.id in {"list", "array", "map", "struct"}:
        return _nested(one, other)
    names = str(one), str(other)
    if NULL_TYPE in names:
        return names[names[0] == NULL_TYPE]
    if names[0] == names[1]:
        return names[0]
    for kinds in _WIDENING:
        if set(names) <= set(kinds):
            return max(names, key=kinds.index)
    decimals = [match for name in names if (match := _DECIMAL.fullmatch(name))]
    if len(decimals) < len(names):
        return None
    scale = max(int(match[2]) for match in decimals)
    digits = max(int(match[1]) - int(match[2]) for match in decimals) + scale
    return f"DECIMAL({digits},{scale})" if digits <= _MOST_DIGITS else None


def _nested(one: DuckDBPyType, other: DuckDBPyType) -> str | None:
    """The type of lists, maps or structs whose parts go together by their names."""
    parts, others = dict[str, Any](one.children), dict[str, Any](other.children)
    size = parts.pop("size") if one.id == "array" else ""
    if parts.keys() != others.keys() - ({"size"} if size else set()) or (size and size != others["size"]):
        return None
    made = {name: _together(part, others[name]) for name, part in parts.items()}
    if None in made.values():
        return None
    match one.id:
        case "struct":
            return f"STRUCT({', '.join(f'{quote(name)} {kind}' for name, kind in made.items())})"
        case "map":
            return f"MAP({made['key']}, {made['value']})"
        case _:
            return f"{made['child']}[{size}]"


@dataclass(slots=True)
class Evolution:
    """The columns of a stream: `known` from earlier batches, of which `required` were never null, and those of files
    added since. The types of `fixed` ones may not change; `cast` gives types that override, `implied` those of columns
    that no record has."""

    known: Sequence[Column]
    required: Sequence[str]
    fixed: frozenset[str]
    cast: Mapping[str, str]
    implied: Mapping[str, str] = field(default_factory=dict)
    # The types of the columns that do not go together.
    differing: dict[str, list[str]] = field(default_factory=dict)
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
        """All columns, with types that hold the values of every file, but for those of which no file says the type."""
        return tuple(Column(name, kind) for name, kind in self._all.items() if kind != NULL_TYPE)

    @property
    def untyped(self) -> tuple[str, ...]:
        """The columns that are null in all records, so that nothing says their types."""
        return tuple(name for name, kind in self._all.items() if kind == NULL_TYPE)

    @property
    def _all(self) -> dict[str, str]:
        found = self._types | {name: self.cast[name] for name in self._types if name in self.cast}
        return {name: self.implied.get(name, kind) if kind == NULL_TYPE else kind for name, kind in found.items()}

    @property
    def lacking(self) -> tuple[str, ...]:
        """The columns that some file does not have."""
        return tuple(sorted(self._lacking - set(self.untyped)))

    @property
    def never_null(self) -> tuple[str, ...]:
        """The columns that every file has and none allows to be null."""
        return tuple(sorted(self._types.keys() - self._nullable - self._lacking))

    def untyped_parts(self) -> Iterator[Finding]:
        """Findings on columns with values of which a part is null in all of them."""
        for column in self.columns:
            if NULL_TYPE in column.type:
                declared = {column.name: column.type.replace(NULL_TYPE, _TEXT)}
                what = f"column {column.name!r} is {column.type}, and nothing says of which type its nulls are"
                then = f"declare it, as cast={declared!r}, or land a file in which all parts of it have a value"
                yield Finding.of(Kind.STREAM_COLUMNS, what, self._where[column.name], then, name=column.name)

    def _together(self, name: str, kind: str, where: str) -> Iterator[Finding]:
        before = self._types[name]
        both = common_type(before, kind)
        if name in self.cast:
            return
        if both is None or (name in self.fixed and NULL_TYPE not in (before, kind) and kind != before):
            yield self._differs(name, kind, where)
        elif both != before:
            self._types[name], self._where[name] = both, where

    def _differs(self, name: str, kind: str, where: str) -> Finding:
        before, anew = self._types[name], "give the stream another name from there on"
        then = f"land the column under another name, or {anew}"
        if name in self.fixed:
            then = f"declare and land it as before, since keys and offsets keep their types, or {anew}"
        else:
            self.differing.setdefault(name, [before])
            self.differing[name] += [kind] if kind not in self.differing[name] else []
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


def with_casts(
    findings: Iterable[Finding], evolution: Evolution, reads: Callable[[str, str], str]
) -> Iterator[Finding]:
    """The findings of an evolution. Those on types that differ name the first cast of which `reads` tells, for a column
    and a type, what it reads; it is empty where a value cannot be cast."""
    casts = dict[str, str]()
    for name, kinds in evolution.differing.items():
        # Bytes take any text: the last to be named.
        one_by_one = sorted(dict.fromkeys([*kinds, _TEXT]), key="BLOB".__eq__)
        tried = ((kind, reads(name, kind)) for kind in one_by_one if NULL_TYPE not in kind)
        for kind, told in tried:
            if told:
                declared = {name: kind}
                casts[name] = f"declare cast={declared!r}, {told}; or "
                break
    for finding in findings:
        about = dict(finding.about)
        cast = casts.get(str(about.get("name")), "") if "before" in about else ""
        yield replace(finding, next=f"{cast}{finding.then}")
