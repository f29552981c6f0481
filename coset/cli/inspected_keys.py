"""Inspected keys: what the key of a topic is, as inspection found it, and how it is declared."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import pyarrow as pa

from coset.batches.key_search import HowSure, KeySearch, Placing, Tried
from coset.sources.formats.json_lines import json_columns
from coset.sources.kafka.properties import PROPERTIES, properties
from coset.sources.keys_seen import Ask, FramedSample, framed_sample, object_of, plain_keys
from coset.sources.landed_topic import SeenTopic
from partitioning.model.key_schemas import Framing, KeySchema
from partitioning.model.placement import JAVA, KeyFormat
from partitioning.model.sources import KafkaSource
from partitioning.sections import cut, many, percent

_PRODUCERS = "docs/how-to/producers.md"
# The types of columns that producers write in one way in JSON.
_ALIKE = {"BIGINT", "VARCHAR", "BOOLEAN"}
_READ_AS = {pa.string(): KeyFormat.STRING, pa.int64(): KeyFormat.LONG, pa.int32(): KeyFormat.INT}
_BY_HASH = {HowSure.SURELY, HowSure.PERHAPS, HowSure.ONE_PARTITION}
_BY_NO_HASH = {HowSure.TOGETHER, HowSure.BY_TURNS, HowSure.NOTHING}


@dataclass(frozen=True, slots=True)
class InspectedKey:
    """The `key` of a topic as it is declared: its format, the schemas of a registry if it is behind their ids, the
    types of the columns that are read from it, and which column of files has its bytes. `sample` has the ids."""

    key: str | tuple[str, ...]
    key_format: str
    schemas: Mapping[int, str] | tuple[int, ...] = ()
    types: Mapping[str, str] = field(default_factory=dict)
    sample: FramedSample | None = None
    key_bytes: str = ""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that records have of the key."""
        return self.key if isinstance(self.key, tuple) else (self.key,)

    @property
    def options(self) -> Mapping[str, Any]:
        """What is declared of it beside the hash, but for what is so by default."""
        given: dict[str, Any] = {"key_format": self.key_format} if self.key_format != KeyFormat.STRING else {}
        given |= {"key_schemas": self.schemas} if self.schemas else {}
        return {"key": self.key, **given, **({"key_bytes": self.key_bytes} if self.key_bytes else {})}


def key_of(topic: SeenTopic, found: KeySearch) -> InspectedKey:
    """How the key is declared that a search found best.

    Raises Refused or Unreachable if a schema registry is named and does not answer.
    """
    assert found.best
    placing = found.best.placing
    plain = _plain(placing)
    if placing.key_format != KeyFormat.BYTES:
        return plain
    name, landed = placing.columns[0], not isinstance(topic.stream.origin, KafkaSource)
    keys = [b64decode(key) if isinstance(key, str) else key for key in topic.sample[name].to_pylist()]
    sample = framed_sample(keys, _registry(topic.stream.name))
    # A key read from its bytes is a column beside them.
    own, key_bytes = (f"{name}_value", name) if landed else (name, "")
    if sample is None:
        read = _READ_AS.get(plain_keys(keys).type)
        return InspectedKey(own, read, key_bytes=key_bytes) if landed and read else plain
    unknown = InspectedKey(plain.key, plain.key_format, sample=sample)
    # Keys that move, or lie by a hash that nobody knows, stay bytes.
    if sample.framing is None or found.told not in _BY_HASH:
        return unknown
    types = dict[str, str]()
    if sample.framing is Framing.JSON_SCHEMA:
        types, _ = json_columns([[object_of(key) for key in keys if key is not None]])
        declares = (landed or not topic.stream.format.has_types) and types.keys() == {*sample.columns}
        if not declares or not _ALIKE.issuperset(types.values()):
            return unknown
    return InspectedKey(sample.columns or own, sample.framing, sample.schemas, types, sample, key_bytes)


def _plain(placing: Placing) -> InspectedKey:
    if placing.schema:
        return InspectedKey(placing.key, placing.schema.framing, _texts(placing.schema))
    # A number that is hashed as text is declared as a number.
    number = KeyFormat.LONG if placing.column_type == "BIGINT" else KeyFormat.INT
    return InspectedKey(placing.key, str(number if placing.as_text else placing.key_format))


def _texts(schema: KeySchema) -> Mapping[int, str] | tuple[int, ...]:
    """A schema of keys of one field, as a registry may have it."""
    (each,) = schema.fields
    match schema.framing:
        case Framing.JSON_SCHEMA:
            return (schema.id,)
        case Framing.PROTOBUF:
            return {schema.id: f'syntax = "proto3"; message Key {{ {each.type} {each.name} = {each.number}; }}'}
        case Framing.AVRO if each.name:
            fields = [{"name": each.name, "type": ["null", each.type]}]
            return {schema.id: json.dumps({"type": "record", "name": "Key", "fields": fields})}
        case Framing.AVRO:
            return {schema.id: json.dumps(each.type)}


def _registry(topic: str) -> Ask | None:
    """What asks the registry that the properties name; None if they name none."""
    if "url" not in properties().registry:
        return None

    from coset.sources.kafka.registry import Registry  # noqa: PLC0415  an extra

    return Registry(topic, "key").of_ids


def notes_of(key: InspectedKey, found: KeySearch, topic: str) -> Iterator[str]:
    """What is to be known of keys behind ids."""
    ask = f"`coset schemas {topic}` asks the registry that is schema.registry.url in the file that {PROPERTIES} names"
    if key.sample is None and key.schemas:
        yield (
            "The key is written by a serialiser of a schema registry, by the id under which all lie where they do. See "
            f"which schema that is, and which came before or after it: {ask}"
        )
    if key.sample is None:
        if found.told in _BY_NO_HASH:
            yield (
                "If a serialiser of a schema registry writes its keys, the ids of their schemas are hashed with them, "
                f"and these records lie by several or by a schema that no column shows: {ask}. Which id a record has, "
                "only its key's own bytes say: let the sink land them"
            )
        return
    ids = ", ".join(f"{id} ({many(count, 'record')})" for id, count in key.sample.ids.items())
    yield f"Keys begin with the id of their schema in a registry, which is hashed with them: {ids}"
    if not key.schemas:
        yield (
            f"Which schemas these are, the keys do not say: {ask}, and prints key_format= and key_schemas= for them. "
            "Until then a key is its bytes, and another one under another id"
        )
    elif len(key.sample.ids) > 1:
        yield "If the newest id is not the last in key_schemas=, write it last"


def key_value(found: KeySearch, key: InspectedKey) -> dict[str, object]:
    """What is told of the key, for programs."""
    best, other = found.best, found.next_best
    assert best
    return {
        "told": found.told,
        "columns": key.columns,
        "key_format": key.key_format,
        "ids": key.sample and key.sample.ids,
        "hash": best.placing.hash,
        "keys": best.keys,
        "explained": best.explained,
        "records_without": best.without,
        "next_best": other and {"placing": str(other.placing), "explained": other.explained, "keys": other.keys},
        "alike": [str(each) for each in found.alike],
    }


def key_text(found: KeySearch) -> Iterator[str]:
    """What the keys tell, how surely, and where to look for what they do not."""
    best, told = found.best, found.told
    assert best
    column = ", ".join(best.placing.columns)
    near = found.next_best
    following = f"; the next best, {near.placing}, explains {_share(near)}" if near else ""
    match told:
        case HowSure.SURELY:
            yield (
                f"Key: {best.placing}. All {many(best.keys, 'key')} seen lie where it puts them, of "
                f"{many(best.partitions, 'partition')}{following}"
            )
        case HowSure.PERHAPS:
            yield (
                f"Key: perhaps {best.placing}. All {many(best.keys, 'key')} seen lie where it puts them, and so few "
                "may lie so by chance: look again when more have landed, or see who writes the topic and what "
                f"{_PRODUCERS} says of that client"
            )
        case HowSure.ONE_PARTITION:
            yield (
                "Key: not known. All records lie in one partition, where any key and hash put them: name the column "
                f"that records are joined or counted by. {column} stands for it here; before the topic grows, see "
                f"what {_PRODUCERS} says of its client"
            )
        case HowSure.MOSTLY:
            others = found.others or "how the others lie is not known: see who else writes the topic"
            yield (
                f"Key: {best.placing} for {_share(best)} of {many(best.keys, 'key')} seen, and not for all; {others}. "
                "Each batch moves its records"
            )
        case HowSure.TOGETHER:
            yield (
                f"Key: perhaps {column}, by a hash that is not known. Each of its {many(best.keys, 'value')} lies in "
                f"one partition only{following}. See how the producer serialises keys, and which client it is "
                f"({_PRODUCERS}); until then the number of tasks has to divide that of partitions"
            )
        case HowSure.BY_TURNS:
            yield (
                f"Key: not known. No hash of a column puts records where they lie{following}; "
                f"{many(found.spread[1], 'value')} of {found.spread[0]} lie in several partitions. Its producer takes "
                "partitions in turn or at random, as kafka-go without a Balancer, or goes by a key that is no column: "
                f"see its settings ({_PRODUCERS}), and land the key. {column} stands for it here: name the column that "
                "records are joined or counted by. Each batch moves its records"
            )
        case HowSure.NOTHING:
            yield (
                f"Key: not known. No hash of a column puts records where they lie{following}, and no value occurs "
                f"often enough to tell more: see who writes the topic ({_PRODUCERS}). {column} stands for it here: "
                "name the column that records are joined or counted by. Each batch moves its records"
            )


def key_notes(found: KeySearch) -> Iterator[str]:
    """What is to be known beside."""
    best = found.best
    assert best
    if best.placing.as_text:
        column = best.placing.columns[0]
        yield (
            f"{column} is a number, and its producer hashes it as text. The declaration takes records as they lie; so "
            f'that tasks may be of any number, land it as text, or declare key=("{column}",) and a function of your '
            'own, hash="package.module:function", which is given its values as a JSON array'
        )
    counts = best.placing.column_type in {"BIGINT", "INTEGER"} and best.placing.hash == JAVA
    if counts and found.told is HowSure.SURELY:
        column = best.placing.columns[0]
        yield f"If {column} counts the records, they lie by turns: see who writes the topic"
    if found.alike:
        alike = cut([str(each) for each in found.alike])
        yield f"All keys seen lie by {alike} too: {_PRODUCERS} says where they differ"
    if best.without:
        yield (
            f"Of {many(best.without, 'record')} seen the key is null or empty: they get a task of their own, and "
            'null_keys="drop" leaves them out'
        )


def _share(tried: Tried) -> str:
    return percent(Fraction(tried.explained, tried.keys)) if tried.keys else "nothing"
