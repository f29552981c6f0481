"""Keys seen: what the files hold that lie beside those of values, without a declaration of them. A sample of framed
keys: the ids of schemas that it begins with.
"""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import pyarrow as pa

from coset.sources.file_columns import cast_exactly
from coset.sources.files import Files
from coset.sources.formats.json_lines import json_columns, undeclarable
from coset.sources.formats.keys_beside import KEY, JsonKeys
from coset.sources.formats.landed_file import Unreadable
from coset.sources.formats.opening import LANDED, open_keys
from coset.sources.layouts import beginning, is_of_keys
from coset.sources.plain_arrays import is_nested, plain_type
from partitioning.authoring.key_texts import avro_fields, protobuf_columns
from partitioning.framed_keys import FRAME, framed_id, message_of, schema_id, values_of
from partitioning.model.key_schemas import Framing, KeyField, KeySchema
from partitioning.model.streams import Format, Stream
from partitioning.values import replace

# Keys of eight bytes may be numbers. So many of those are not all Avro by chance, not even if they count.
_NUMBER, _SURELY = 8, 129
# A topic's keys have few schemas; of numbers, the bytes there are many.
_MOST = 20
# What keys of one value are, as the registry would say it.
_OF_ONE_VALUE = ("long", "string")
_PACKED = {8: (struct.Struct(">q"), pa.int64()), 4: (struct.Struct(">i"), pa.int32())}
FRAMINGS = {"AVRO": Framing.AVRO, "PROTOBUF": Framing.PROTOBUF, "JSON": Framing.JSON_SCHEMA}

# What a registry has of these ids: of each the kind in its words and the text, if it has it.
Ask = Callable[[Iterable[int]], Mapping[int, tuple[str, str]]]


@dataclass(frozen=True, slots=True)
class FramedSample:
    """The ids with which keys begin, each with how many keys have it, and what a stream declares of them, if that is
    known: the framing, the schemas, and the columns, none of a key that is one value."""

    ids: Mapping[int, int]
    framing: Framing | None = None
    schemas: Mapping[int, str] | tuple[int, ...] = ()
    columns: tuple[str, ...] = ()


def framed_sample(keys: Collection[bytes | None], ask: Ask | None) -> FramedSample | None:
    """What keys have frames of; None if one of them has no frame, or they may as well be numbers. `ask` asks the
    registry, if one is known.

    >>> framed_sample([bytes.fromhex("0000000007d20f"), None], None)
    FramedSample(ids={7: 1}, framing=<Framing.AVRO: 'avro'>, schemas={7: '"long"'}, columns=())
    >>> framed_sample([bytes.fromhex("000000000600"), b"ann"], None)

    Raises what `ask` raises.
    """
    there = list(dict.fromkeys(key for key in keys if key is not None))
    counts = Counter(framed_id(key) for key in keys if key is not None)
    ids = {id: counts[id] for id in sorted(id for id in counts if id)}
    if not there or len(ids) < len(counts) or len(ids) > _MOST:
        return None
    if columns := _of_objects(there):
        return FramedSample(ids, Framing.JSON_SCHEMA, tuple(ids), columns)
    if registered := _as_registered(ids, there, ask(ids) if ask else {}):
        return registered
    read = _as_read(ids, there)
    may_be_numbers = {*map(len, there)} == {_NUMBER} and (len(there) < _SURELY or read.framing is None)
    return None if may_be_numbers else read


def _as_registered(
    ids: Mapping[int, int], keys: Sequence[bytes], found: Mapping[int, tuple[str, str]]
) -> FramedSample | None:
    """As a registry has the schemas, if it has all of them, of one kind, and of those that a stream can declare."""
    kinds = {kind for kind, _ in found.values()}
    texts, columns = {id: text for id, (_, text) in found.items()}, set[tuple[str, ...]]()
    if texts.keys() != ids.keys() or len(kinds) != 1:
        return None
    framing = FRAMINGS.get(kinds.pop())
    with suppress(ValueError):
        if framing is Framing.AVRO:
            columns = {tuple(field.name for field in avro_fields(text) if field.name) for text in texts.values()}
        elif framing is Framing.PROTOBUF:
            columns = {protobuf_columns(texts[schema_id(key)], message_of(key)) for key in keys}
    return FramedSample(ids, framing, texts, columns.pop()) if len(columns) == 1 else None


def _as_read(ids: Mapping[int, int], keys: Sequence[bytes]) -> FramedSample:
    """As the keys tell by themselves, if all are one value in Avro, to the last byte."""
    for kind in _OF_ONE_VALUE:
        with suppress(ValueError):
            for key in keys:
                values_of(key, KeySchema(Framing.AVRO, schema_id(key), (KeyField("", kind),)))
            return FramedSample(ids, Framing.AVRO, dict.fromkeys(ids, f'"{kind}"'))
    return FramedSample(ids)


def _of_objects(keys: Sequence[bytes]) -> tuple[str, ...]:
    """The fields of keys that are JSON objects, all with the same ones in one order."""
    try:
        fields = {tuple(object_of(key)) for key in keys}
    except (ValueError, TypeError):
        return ()
    return fields.pop() if len(fields) == 1 else ()


def plain_keys(written: Sequence[bytes | None]) -> pa.Array:
    """Keys as what their bytes may be: text where all are, else numbers where all have the size of one, and are not
    behind a schema registry's ids."""
    there = [key for key in written if key is not None]
    if all(map(_is_text, there)):
        return pa.array([None if key is None else key.decode() for key in written], pa.string())
    sizes = {len(key) for key in there}
    if len(sizes) > 1 or not sizes <= _PACKED.keys() or framed_sample(written, None):
        return pa.array(written, pa.binary())
    packed, kind = _PACKED[sizes.pop()]
    return pa.array([None if key is None else packed.unpack(key)[0] for key in written], kind)


def _is_text(key: bytes) -> bool:
    try:
        return min(map(ord, key.decode()), default=ord(" ")) >= ord(" ")
    except UnicodeDecodeError:
        return False


def object_of(key: bytes) -> dict[str, Any]:
    """The JSON object behind a frame. Raises ValueError or TypeError if there is none."""
    return dict(json.loads(key[FRAME.size :]))


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
