"""Keys seen: what the files hold that lie beside those of values, without a declaration of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice

import pyarrow as pa

from coset.sources.exact_casts import cast_exactly
from coset.sources.files import Files
from coset.sources.formats.json_types import json_columns, undeclarable
from coset.sources.formats.keys_beside import KEY, JsonKeys
from coset.sources.formats.landed_file import Unreadable
from coset.sources.formats.opening import LANDED, open_keys
from coset.sources.layouts import beginning, is_of_keys
from coset.sources.plain_arrays import is_nested, plain_type
from partitioning.model.streams import Format, Stream
from partitioning.values import replace

_EVERY = 2**63 - 1


@dataclass(frozen=True, slots=True)
class KeyFiles:
    """The files of keys of a topic: how they are written, and their names by how those of the values beside them begin.
    `unread` are of no format that is read."""

    written_as: Format | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    unread: Sequence[str] = ()

    @classmethod
    def among(cls, stream: Stream, names: Iterable[str]) -> KeyFiles:
        """Those among these names. Of several formats the one that most have counts."""
        there = [name for name in names if name.removeprefix(beginning(name)).startswith(".keys.")]
        forms = sorted(LANDED)
        ways = [replace(stream, keys=each) for each in forms]
        of = {way.keys: [name for name in there if is_of_keys(way, name)] for way in ways}
        written_as = max(forms, key=lambda each: len(of[each]))
        known = of[written_as]
        unread = sorted({*there} - {name for each in of.values() for name in each})
        return cls(written_as if known else None, {beginning(name): name for name in known}, unread)

    def read(self, stream: Stream, files: Files, sampled: Sequence[str], most: int) -> list[pa.Table | None]:
        """The keys of the first records beside each of these files of values. None where they cannot be read."""
        uris = [self.names.get(beginning(name)) for name in sampled]
        if self.written_as is None:
            return [None] * len(sampled)
        written, stream = self.written_as, replace(stream, columns={})
        if not written.has_types:
            types, _ = json_columns([_lines(f"{stream.source}/{uri}", files, most) for uri in uris if uri])
            stream = replace(stream, columns=types)
            if any(undeclarable(stream)):
                return [None] * len(sampled)
        return [_table(stream, written, f"{stream.source}/{uri}", files, most) if uri else None for uri in uris]


def _lines(uri: str, files: Files, most: int) -> list[dict[str, object]]:
    with suppress(OSError, Unreadable, ValueError), files.open(uri) as source:
        blocks = JsonKeys(source, KEY, pa.schema([])).blocks()
        return [json.loads(line) for line in islice((each for block in blocks for each in block.splitlines()), most)]
    return []


def _table(stream: Stream, written_as: Format, uri: str, files: Files, most: int) -> pa.Table | None:
    with suppress(OSError, Unreadable, pa.ArrowException), files.open(uri) as source:
        landed = open_keys(stream, written_as, source)
        flat = [field.name for field in landed.schema if not is_nested(field.type)]
        batches = list(_first(landed.batches(flat, 0, _EVERY), most))
        return pa.Table.from_batches(batches) if batches and flat else None
    return None


def _first(batches: Iterable[pa.RecordBatch], most: int) -> Iterator[pa.RecordBatch]:
    """The first records, in plain types."""
    for batch in batches:
        part = batch.slice(0, most)
        plain = [cast_exactly(column, plain_type(column.type)) for column in part.columns]
        yield pa.RecordBatch.from_arrays(plain, names=part.schema.names)
        most -= len(part)
        if most <= 0:
            return


def beside(values: Sequence[pa.Table], keys: Sequence[pa.Table | None]) -> tuple[list[pa.Table], frozenset[str]]:
    """The records with the columns of their keys, and which these are. One that values have just so is theirs."""
    both = [(table, key) for table, key in zip(values, keys, strict=True) if key is not None and len(key) == len(table)]
    names = {name for _, key in both for name in key.column_names}
    theirs = {name for name in names if all(_has(table, name, key) for table, key in both)}
    return [_with(table, key, names - theirs) for table, key in zip(values, keys, strict=True)], frozenset(
        names - theirs
    )


def _has(table: pa.Table, name: str, key: pa.Table) -> bool:
    """Whether the values have a column of keys too."""
    return name in table.column_names and name in key.column_names and bool(table[name].equals(key[name]))


def _with(table: pa.Table, key: pa.Table | None, names: Iterable[str]) -> pa.Table:
    for name in names:
        if name in table.column_names:
            table = table.drop_columns([name])
        if key is not None and len(key) == len(table) and name in key.column_names:
            table = table.append_column(name, key[name])
    return table
