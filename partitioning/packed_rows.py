"""Packed rows: a long sequence of small values that is held by columns, and gives a row when it is asked for.

A plan of a million stream partitions is numbers and names in a few arrays, not millions of objects.
"""

from __future__ import annotations

import operator
import typing
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, chain, count, islice
from typing import Any, TypeAlias, TypeVar, overload

import msgspec

from partitioning.values import Value

T = TypeVar("T")
V = TypeVar("V", bound=Value)


class PackedRows(Sequence[V]):
    """A frozen sequence of values of one class. It equals each sequence of the same values.

    >>> class Range(Value, frozen=True):
    ...     partition: int
    ...     end: int
    >>> ranges = PackedRows.of(Range, [Range(0, 25), Range(1, 3), Range(2, 9)])
    >>> ranges[1], len(ranges), ranges.columns["partition"]
    (Range(partition=1, end=3), 3, EqualSteps(first=0, step=1, length=3))
    """

    def __init__(self, kind: type[V], columns: Mapping[str, PackedColumn], length: int) -> None:
        self.kind = kind
        self.columns = columns
        self._length = length

    @classmethod
    def of(cls, kind: type[V], rows: Iterable[V]) -> PackedRows[V]:
        """These rows; the same object if they are held so already."""
        if isinstance(rows, cls):
            return rows
        held = tuple(rows)
        columns = {name: column(part, list(map(operator.attrgetter(name), held))) for name, part in parts(kind).items()}
        return cls(kind, columns, len(held))

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, place: int) -> V: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[V]: ...

    def __getitem__(self, place: int | slice) -> V | Sequence[V]:
        if isinstance(place, slice):
            places = range(self._length)[place]
            return (
                tuple(self)
                if len(places) == self._length and places.step == 1
                else tuple(map(self.__getitem__, places))
            )
        number = range(self._length)[place]
        return self.kind(*(column[number] for column in self.columns.values()))

    def __iter__(self) -> Iterator[V]:
        return map(self.kind, *self.columns.values())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PackedRows):
            return self.kind is other.kind and self.columns == other.columns
        return isinstance(other, tuple) and len(self) == len(other) and tuple(self) == other

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


@dataclass(frozen=True, slots=True)
class EqualSteps(Sequence[int]):
    """Numbers at equal distances."""

    first: int
    step: int
    length: int

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, place: Any) -> Any:
        return self.first + self.step * place

    def __iter__(self) -> Iterator[int]:
        return islice(count(self.first, self.step), self.length)


@dataclass(frozen=True, slots=True)
class Texts(Sequence[str]):
    """Texts by what all begin with, and the rest of each, which ends in `rest` at `ends`."""

    prefix: str
    rest: str
    ends: Numbers

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, place: Any) -> Any:
        return self.prefix + self.rest[self.ends[place - 1] if place else 0 : self.ends[place]]

    def __iter__(self) -> Iterator[str]:
        return map(self.prefix.__add__, self.rests())

    def rests(self) -> Iterator[str]:
        """Each without its beginning."""
        return map(self.rest.__getitem__, map(slice, chain((0,), self.ends), self.ends))


@dataclass(frozen=True, slots=True)
class Runs(Sequence[tuple[Value, ...]]):
    """Tuples of rows: all of them in a row, and where each tuple ends."""

    rows: PackedRows[Any]
    ends: Numbers

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, place: Any) -> Any:
        return self.rows[self.ends[place - 1] if place else 0 : self.ends[place]]

    def __iter__(self) -> Iterator[tuple[Value, ...]]:
        if self.ends == EqualSteps(1, 1, len(self.rows)):
            return zip(self.rows, strict=True)
        following = iter(self.rows)
        return (tuple(islice(following, length)) for length in self.lengths())

    def lengths(self) -> Iterator[int]:
        """How many rows each tuple has."""
        return map(operator.sub, self.ends, chain((0,), self.ends))


# Numbers beyond 64 bits, which no offset has, and values without a packed form are held one by one.
Numbers: TypeAlias = "EqualSteps | array[int] | tuple[int, ...]"
PackedColumn: TypeAlias = "Numbers | Texts | Runs | tuple[Any, ...]"


@dataclass(frozen=True, slots=True)
class FieldKind:
    """The type of a field: values of a `kind`, or tuples of rows of that kind."""

    kind: Any
    is_run: bool


@cache
def parts(kind: type[Value]) -> Mapping[str, FieldKind]:
    """The type of each field of a value class."""
    return {field.name: _part(field.type) for field in msgspec.structs.fields(kind)}


def _part(held: Any) -> FieldKind:
    inner = typing.get_args(held)[0] if typing.get_origin(held) is tuple else None
    is_run = isinstance(inner, type) and issubclass(inner, Value)
    return FieldKind(inner if is_run else held, is_run)


def column(part: FieldKind, values: Sequence[Any]) -> PackedColumn:
    """The values of a field, held together."""
    if part.is_run:
        return run(PackedRows.of(part.kind, chain.from_iterable(values)), [len(value) for value in values])
    if part.kind is int:
        return numbers(values)
    return texts(values) if part.kind is str else tuple(values)


def run(rows: PackedRows[Any], lengths: Iterable[int]) -> Runs:
    """Tuples of rows, of these lengths."""
    return Runs(rows, numbers(accumulate(lengths)))


def numbers(values: Iterable[int]) -> Numbers:
    """The numbers as steps, if they are two or more at equal distances; else in an array."""
    listed = list(values)
    if len(listed) > 1:
        first, step = listed[0], listed[1] - listed[0]
        if all(map(operator.eq, listed, count(first, step))):
            return EqualSteps(first, step, len(listed))
    try:
        return array("q", listed)
    except OverflowError:
        return tuple(listed)


def texts(values: Sequence[str]) -> Texts:
    """The texts, with what all of two or more begin with held once."""
    prefix = _beginning(values) if len(values) > 1 else ""
    rests = [value[len(prefix) :] for value in values]
    return Texts(prefix, "".join(rests), numbers(accumulate(map(len, rests))))


def _beginning(values: Sequence[str]) -> str:
    """The common beginning of all texts, found from the first and the last in order."""
    first, last = min(values), max(values)
    return next((first[:place] for place, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), first)
