"""Key search: by which column, key format and hash the records of a topic lie in their partitions.

Each hash is tried on each column that can be a key. A wrong one explains one key of as many as there are partitions, so
a few keys tell them apart.
"""

from __future__ import annotations

import math
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import permutations
from operator import attrgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coset.sources.landed_keys import making_keys
from coset.sources.plain_arrays import texts_of_uuids
from expectations.key_hashes import schema_id_of
from partitioning.errors import Refused
from partitioning.model.composite_key import bad_part
from partitioning.model.key_schemas import KeySchema, key_schema
from partitioning.model.placement import (
    CRC32,
    JSON,
    MURMUR2,
    OPAQUE,
    HashName,
    KeyFormat,
    json_hash,
    possible_hashes,
    schema_hash,
)
from partitioning.model.streams import Column
from partitioning.values import replace
from spark_jobs.engine.hashing import keyed, placement_hashes

# Chance lays out one topic in so many like this: that is taken for no chance.
_SURELY = 10_000
# A hash that places so large a part of keys explains where they lie.
_MOST = 0.75
# Fewer keys say nothing of a part.
_ENOUGH = 10
# So many columns are tried in pairs.
_IN_PAIRS = 6
_FEW = 64
_WHOLE = ("BIGINT", "INTEGER")
# Keys of one field, by any id, as each serialiser writes them most often.
_OF_NUMBERS, _OF_TEXTS = (
    (f"avro 0({kind})", f"avro 0({{}} null|{kind})", "json-schema 0({})", f"protobuf 0({{}} 1 {of_protobuf})")
    for kind, of_protobuf in (("long", "int64"), ("string", "string"))
)


class HowSure(StrEnum):
    """What the keys seen tell: the hash, surely or perhaps; nothing, as all records lie in one partition; the hash of
    most; that equal keys lie together by a hash that is not known; that records lie by turns; or nothing."""

    SURELY = "surely"
    PERHAPS = "perhaps"
    ONE_PARTITION = "one partition"
    MOSTLY = "mostly"
    TOGETHER = "together"
    BY_TURNS = "by turns"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Placing:
    """A way in which keys may be placed: `columns` of the type `column_type` in this format by this hash, as a stream
    declares them. Numbers that are hashed `as_text` cannot be declared. A schema registry's serialiser writes them by a
    `schema`."""

    columns: tuple[str, ...]
    column_type: str
    key_format: str
    hash: HashName
    as_text: bool = False
    schema: KeySchema | None = None

    @property
    def key(self) -> str | tuple[str, ...]:
        """The key as a stream declares it."""
        return self.columns if self.key_format == JSON or (self.schema and self.schema.columns) else self.columns[0]

    def __str__(self) -> str:
        written = "text" if self.as_text or self.key_format == KeyFormat.STRING else self.key_format
        under = f" under schema {self.schema.id}" if self.schema else ""
        return f"{self.hash} of {', '.join(self.columns)} as {written}{under}"


@dataclass(frozen=True, slots=True)
class Tried:
    """How many keys a placing explains, of those that were seen in `partitions`, and how many records have none, of how
    many that have one or are empty."""

    placing: Placing
    partitions: int
    keys: int
    explained: int
    without: int
    records: int

    @property
    def part(self) -> float:
        """The part of the keys that it explains."""
        return self.explained / self.keys if self.keys else 0.0

    @property
    def explains_all(self) -> bool:
        """Whether it explains each of them, by chance or not."""
        return 0 < self.keys == self.explained


@dataclass(frozen=True, slots=True)
class KeySearch:
    """What was found: what is told, by the `best` placing; the next best of others; which others put all keys there as
    well; how those lie that the best does not explain; and the column of which most values lie in several partitions,
    with how many do."""

    told: HowSure
    best: Tried | None = None
    next_best: Tried | None = None
    alike: tuple[Placing, ...] = ()
    others: str = ""
    spread: tuple[str, int] = ("", 0)


@dataclass(frozen=True, slots=True)
class _Keys:
    """The keys of a column, each once in each partition; how many records have one, or none; and the keys, as they are
    hashed under each format."""

    columns: tuple[str, ...]
    column_type: str
    key_format: str
    keys: pa.Array
    places: np.ndarray
    records: int
    without: int
    as_text: bool = False

    @property
    def distinct(self) -> int:
        """How many keys there are."""
        return len(self.keys.unique())

    @property
    def hashes(self) -> Sequence[tuple[HashName, HashName]]:
        """The hashes that a stream can declare of them, each with what is computed of a key."""
        return possible_hashes(self.key_format, self.columns if self.key_format == JSON else ())

    def tried(self, counts: Sequence[int]) -> Iterator[Tried]:
        """Each hash, mod each of these counts of partitions."""
        for declared, name in self.hashes:
            if (hashes := self.hashed(name)) is None:
                continue
            with_key = keyed(self.keys, hashes, name)
            judged, places = (hashes[with_key], self.places[with_key]) if len(with_key) else (hashes, self.places)
            placing = Placing(self.columns, self.column_type, self.key_format, declared, self.as_text)
            without = self.without + len(hashes) - len(judged)
            for count in counts:
                # Of other counts only what explains all is of interest, and few keys tell most of them.
                if count == counts[0] or (judged[:_FEW] % count == places[:_FEW]).all():
                    explained = int((judged % count == places).sum())
                    yield Tried(placing, count, len(judged), explained, without, self.records)

    def hashed(self, name: str) -> np.ndarray | None:
        """h(k) of each key; None if its format cannot hold one."""
        try:
            return placement_hashes(self.keys, KeyFormat.STRING if self.key_format == JSON else self.key_format, name)
        except Refused:
            return None


def search(
    sample: pa.Table,
    partition: str,
    columns: Sequence[Column],
    partitions: int,
    *,
    declares: bool,
    of_rows: bool = False,
) -> KeySearch:
    """By what the records of a sample lie in their partitions, of which there are as many or more; `partition` is the
    column that says in which. Where a stream `declares` its columns, whole numbers may be of 32 or 64 bits, and text
    may be bytes in base64. Keys `of_rows` that a table's changes have are objects, also of one column.
    """
    places = sample[partition].combine_chunks().to_numpy()
    single = [keys for column in columns for keys in _of_column(sample, places, column, declares=declares)]
    counts = range(partitions, 2 * partitions + 9)
    tried = [] if of_rows else [each for keys in single for each in keys.tried(counts)]
    if not _sure(tried, partitions):
        tried += [each for column in columns for each in _behind_ids(sample, places, column, partitions)]
    if not _sure(tried, partitions):
        parts = [each for each in columns if bad_part("", each.type, json_hash(MURMUR2, ["it"]), "") is None]
        pairs = permutations(parts, 2) if len(parts) <= _IN_PAIRS else ()
        chosen: list[tuple[Column, ...]] = [*((each,) for each in parts), *pairs]
        objects = [_of_json(sample, places, each) for each in chosen]
        tried += [each for keys in objects for each in keys.tried([partitions])]
        single += objects
    return _found(single, tried, partitions)


def search_of_objects(sample: pa.Table, partition: str, columns: Sequence[Column], partitions: int) -> KeySearch:
    """By which hash records lie in their partitions whose keys are JSON objects of these columns."""
    keys = _of_json(sample, sample[partition].combine_chunks().to_numpy(), columns)
    tried = [*keys.tried([partitions])]
    if partitions == 1:
        return KeySearch(HowSure.ONE_PARTITION, _unplaced(keys, MURMUR2, partitions))
    if best := _sure(tried, partitions):
        return KeySearch(HowSure.SURELY, best)
    if full := [each for each in tried if each.explains_all]:
        return KeySearch(HowSure.PERHAPS, full[0], alike=tuple(each.placing for each in full[1:]))
    told = HowSure.BY_TURNS if _spread(keys) else HowSure.TOGETHER
    return KeySearch(told, _unplaced(keys, OPAQUE, partitions), spread=(", ".join(keys.columns), _spread(keys)))


def _found(keys: Sequence[_Keys], tried: Sequence[Tried], partitions: int) -> KeySearch:
    now = [each for each in tried if each.partitions == partitions]
    if best := _sure(tried, partitions):
        alike = tuple(each.placing for each in now if each.explains_all and _same(best, each) and each is not best)
        rest = [each for each in now if each.placing not in (best.placing, *alike) and each.keys >= _ENOUGH]
        return KeySearch(HowSure.SURELY, best, max(rest, key=attrgetter("part"), default=None), alike)
    plain = [each for each in keys if not each.as_text and each.key_format != JSON and each.distinct]
    if not plain:
        return KeySearch(HowSure.NOTHING)
    # Most keys are texts, and occur more than once.
    stands = max(plain, key=lambda each: (each.key_format == KeyFormat.STRING, _spread(each)))
    if partitions == 1:
        return KeySearch(HowSure.ONE_PARTITION, _unplaced(stands, MURMUR2, partitions))
    # A column that most records lack, or a number that is hashed as text, is told by many keys only.
    usual = [each for each in now if each.without <= each.records and not each.placing.as_text]
    if full := [each for each in usual if each.explains_all]:
        best = max(full, key=lambda each: (-len(each.placing.columns), each.keys))
        return KeySearch(HowSure.PERHAPS, best, alike=tuple(each.placing for each in full if each is not best))
    near = max((each for each in now if each.keys >= _ENOUGH), key=attrgetter("part"), default=None)
    if near and near.part >= _MOST:
        mine = next(each for each in keys if _is_of(each, near.placing))
        return KeySearch(HowSure.MOSTLY, near, others=_others(mine, near))
    # A column with no more values than there are partitions may be the partition itself.
    several = [each for each in plain if partitions < each.distinct == len(each.keys)]
    if together := [each for each in several if _surely(each.records - len(each.keys), partitions)]:
        # A column that lies with its key, as the lines of an order, has more values.
        mine = min(together, key=lambda each: each.distinct)
        return KeySearch(HowSure.TOGETHER, _unplaced(mine, OPAQUE, partitions), near)
    apart = max(plain, key=_spread)
    told = HowSure.BY_TURNS if _spread(apart) else HowSure.NOTHING
    return KeySearch(told, _unplaced(stands, OPAQUE, partitions), near, spread=(apart.columns[0], _spread(apart)))


def _sure(tried: Sequence[Tried], partitions: int) -> Tried | None:
    """What explains all keys, of which there are too many for chance: with the fewest partitions, then the most
    keys."""
    enough = _SURELY * max(1, len(tried)) * (partitions + 9)
    full = [each for each in tried if each.explains_all and each.partitions ** min(each.keys, 1_000) >= enough]
    declarable = [each for each in full if not each.placing.as_text] or full
    fewest = min((each.partitions for each in declarable), default=partitions)
    return max((each for each in declarable if each.partitions == fewest), key=lambda each: each.keys, default=None)


def _same(one: Tried, other: Tried) -> bool:
    return one.placing.columns == other.placing.columns and one.placing.key_format == other.placing.key_format


def _surely(times: int, partitions: int) -> bool:
    """Whether so many records do not lie where they do by chance."""
    return times * math.log(partitions) >= math.log(_SURELY)


def _spread(keys: _Keys) -> int:
    """How many keys lie in several partitions."""
    return int(pc.sum(pc.greater(keys.keys.value_counts().field("counts"), 1)).as_py() or 0)


def _is_of(keys: _Keys, placing: Placing) -> bool:
    mine = (keys.columns, keys.key_format, keys.column_type, keys.as_text)
    return mine == (placing.columns, placing.key_format, placing.column_type, placing.as_text)


def _unplaced(keys: _Keys, hash: HashName, partitions: int) -> Tried:
    """A column that stands for the key, under a hash that is not found."""
    placing = Placing(keys.columns, keys.column_type, keys.key_format, hash)
    return Tried(placing, partitions, keys.distinct, 0, keys.without, keys.records)


def _others(keys: _Keys, near: Tried) -> str:
    """How the keys lie that the best placing puts elsewhere: by fewer partitions, or by another hash."""
    hashes = keys.hashed(dict(keys.hashes)[near.placing.hash])
    assert hashes is not None
    bad = hashes % near.partitions != keys.places
    left = _Keys(
        keys.columns, keys.column_type, keys.key_format, keys.keys.filter(pa.array(bad)), keys.places[bad], 0, 0
    )
    for each in left.tried(range(int(left.places.max()) + 1, near.partitions + 1)):
        if each.explains_all and _surely(each.keys - 1, near.partitions):
            if each.placing.hash == near.placing.hash:
                return f"the others lie by {each.partitions} partitions, as before the topic grew"
            if each.partitions == near.partitions:
                return f"the others lie by {each.placing.hash}, as if two sorts of producers wrote the topic"
    return ""


def _of_column(sample: pa.Table, places: np.ndarray, column: Column, *, declares: bool) -> Iterator[_Keys]:
    """The keys of a column in each format that its values can have been serialised in."""
    values = sample[column.name].combine_chunks()
    if column.type == "UUID":
        values = texts_of_uuids(values)
    for key_format in KeyFormat:
        if column.type in key_format.column_types:
            yield _distinct((column.name,), column.type, key_format, values, places)
    if declares and column.type == "VARCHAR" and (decoded := _from_base64(values)) is not None:
        yield _distinct((column.name,), "BLOB", KeyFormat.BYTES, decoded, places)
    if column.type in _WHOLE:
        if declares and column.type == "BIGINT" and _fits(values):
            yield _distinct((column.name,), "INTEGER", KeyFormat.INT, values, places)
        yield _distinct((column.name,), column.type, KeyFormat.STRING, values.cast(pa.string()), places, as_text=True)


def _from_base64(values: pa.Array) -> pa.Array | None:
    """The bytes of which all texts are the base64; None if one is not."""
    try:
        return pa.array([None if text is None else b64decode(text, validate=True) for text in values.to_pylist()])
    except ValueError:
        return None


def _fits(values: pa.Array) -> bool:
    bounds: Mapping[str, pa.Scalar] = pc.min_max(values)
    least, most = bounds["min"].as_py(), bounds["max"].as_py()
    return least is not None and least >= -(2**31) and most < 2**31


def _of_json(sample: pa.Table, places: np.ndarray, columns: Sequence[Column]) -> _Keys:
    names = tuple(column.name for column in columns)
    with making_keys(names) as keys_of:
        return _distinct(names, "", JSON, keys_of(sample.select(dict.fromkeys(names))), places)


def _behind_ids(sample: pa.Table, places: np.ndarray, column: Column, partitions: int) -> Iterator[Tried]:
    """A column as serialisers of a schema registry write keys of one field, if under one id all lie where they do."""
    whole = column.type in _WHOLE
    if not whole and column.type != "VARCHAR":
        return
    plain = _distinct((column.name,), column.type, "", sample[column.name].combine_chunks(), places)
    # Under one id each key lies in one partition.
    if plain.distinct < len(plain.keys) or partitions ** min(plain.distinct, 1_000) < _SURELY * 10**8:
        return
    as_object = _of_json(sample, places, (column,))
    for text in _OF_NUMBERS if whole else _OF_TEXTS:
        schema = key_schema(text.format(column.name))
        assert schema
        keys = as_object if schema.columns else plain
        for name in (MURMUR2, CRC32):
            id = schema_id_of(keys.keys.to_pylist(), keys.places.tolist(), partitions, schema_hash(name, schema))
            if id is not None:
                under = replace(schema, id=id)
                placing = Placing((column.name,), column.type, under.framing, name, schema=under)
                yield Tried(placing, partitions, plain.distinct, plain.distinct, plain.without, plain.records)


def _distinct(
    columns: tuple[str, ...], kind: str, key_format: str, values: pa.Array, places: np.ndarray, *, as_text: bool = False
) -> _Keys:
    pairs = pa.table({"key": values, "place": pa.array(places)}).filter(pc.is_valid(pc.field("key")))
    once = pairs.group_by(["key", "place"], use_threads=False).aggregate([])
    keys, there = once["key"].combine_chunks(), once["place"].to_numpy()
    return _Keys(columns, kind, key_format, keys, there, len(pairs), len(values) - len(pairs), as_text)
