"""The schema registry: schemas of Avro values, by id and by the subject of a topic, and those of its keys."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import fastavro
import httpx2
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, SchemaRegistryError

from coset.sources.formats.avro import arrow_schema_of
from coset.sources.formats.landed_file import Unreadable
from coset.sources.kafka.properties import PROPERTIES, properties
from partitioning.commands import Repeat
from partitioning.errors import Finding, Refused, Unreachable
from partitioning.kinds import Kind

_THEN = "write values whose schema is a record of fields with one type each, which may be null"
# Numeric properties, which its client does not parse.
_NUMBERS = (
    "timeout",
    "cache.capacity",
    "cache.latest.ttl.sec",
    "max.retries",
    "retries.wait.ms",
    "retries.max.wait.ms",
)
_NOT_FOUND = 404
_DENIED = (401, 403)


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema as a registry has it: its id, its kind in the registry's words, and its text."""

    id: int
    kind: str
    text: str


class Registry:
    """The registry that the properties name, asked about a topic's values or keys. Raises Refused if they name none."""

    def __init__(self, topic: str, of: str = "value") -> None:
        self._subject = f"{topic}-{of}"
        self._where = f"subject {self._subject!r} of the schema registry"
        given = properties().registry
        if "url" not in given:
            then = f"give schema=, or name it as schema.registry.url in the file that {PROPERTIES} names"
            raise Refused.of(Kind.SCHEMA, "no schema registry is configured", f"stream {topic!r}", then, stream=topic)
        try:
            settings = {name: int(value) if name in _NUMBERS else value for name, value in given.items()}
            self._client = SchemaRegistryClient(settings)
        except (ValueError, TypeError):
            # The text may hold a secret.
            what = "the registry's client does not accept the properties that begin with schema.registry"
            then = "write them as confluent-kafka documents them"
            raise Refused.of(Kind.BROKER_SETTINGS, what, PROPERTIES, then, properties=sorted(given)) from None

    def versions(self) -> Iterator[tuple[str, AvroSchema]]:
        """All schemas of the topic's values with their names, oldest first. Raises Refused or Unreachable."""
        with self._reaching():
            numbers = self._client.get_versions(self._subject)
        for number in numbers:
            where = f"version {number} of {self._where}"
            with self._reaching():
                registered = self._client.get_version(self._subject, number)
            yield where, _avro(registered.schema, where)

    def registered(self) -> Iterator[RegisteredSchema]:
        """All schemas of the subject as they are registered, oldest first. Raises Refused or Unreachable."""
        with self._reaching():
            numbers = self._client.get_versions(self._subject)
        for number in numbers:
            with self._reaching():
                found = self._client.get_version(self._subject, number)
            if found.schema is None or found.schema_id is None or found.schema.references:
                what, then = "the schema refers to other subjects", "declare the id by hand, with all of its schema"
                where = f"version {number} of {self._where}"
                raise Refused.of(Kind.SCHEMA, what, where, then, subject=self._subject, version=number)
            yield RegisteredSchema(found.schema_id, found.schema.schema_type or "AVRO", found.schema.schema_str or "")

    def of_ids(self, ids: Iterable[int]) -> dict[int, tuple[str, str]]:
        """The kinds and texts of the schemas that it has of these ids, whichever their subjects, and which stand for
        themselves. Raises Refused or Unreachable."""
        found = dict[int, tuple[str, str]]()
        for id in ids:
            with suppress(_NotThere), self._reaching():
                schema = self._client.get_schema(id)
                if not schema.references:
                    found[id] = schema.schema_type or "AVRO", schema.schema_str or ""
        return found

    def schema(self, number: int) -> AvroSchema | None:
        """The schema of an id; None if there is none."""
        try:
            with self._reaching():
                registered = self._client.get_schema(number)
        except _NotThere:
            return None
        return _avro(registered, f"schema {number} of the schema registry")

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except SchemaRegistryError as error:
            status = error.http_status_code
            if status == _NOT_FOUND:
                then = "name a subject that it has, or register the schema there; of values, schema= may say it"
                raise _NotThere(
                    Finding.of(
                        Kind.SCHEMA, "the schema registry does not have it", self._where, then, subject=self._subject
                    )
                ) from None
            if status in _DENIED:
                then = f"check schema.registry.basic.auth.user.info in the file that {PROPERTIES} names"
                what = "the schema registry denied access"
                raise Refused.of(Kind.REGISTRY_DENIED, what, self._where, then, status=status) from None
            what = f"the schema registry answers with an error: HTTP status {status}"
            raise Unreachable.of(Kind.REGISTRY_UNREACHABLE, what, self._where, Repeat(), status=status) from None
        except httpx2.HTTPError as error:
            what = f"the schema registry does not answer: {type(error).__name__}"
            raise Unreachable.of(
                Kind.REGISTRY_UNREACHABLE, what, self._where, Repeat(), type=type(error).__name__
            ) from None


class _NotThere(Refused):
    """Raised when the registry has no such subject or id."""


def _avro(registered: Schema | None, where: str) -> AvroSchema:
    then = "write values whose schema is Avro and stands for itself"
    if registered is None or not registered.schema_str or registered.schema_type not in (None, "AVRO"):
        raise Refused.of(Kind.SCHEMA, "the schema is no Avro schema", where, then, schema=where)
    if registered.references:
        what = "the schema refers to other subjects"
        raise Refused.of(
            Kind.SCHEMA, what, where, then, schema=where, subjects=[each.subject for each in registered.references]
        )
    return AvroSchema(registered.schema_str, where)


class AvroSchema:
    """The parsed schema of a record, and its fields as columns. Raises Refused, with `where`, if it is invalid."""

    def __init__(self, text: str, where: str) -> None:
        try:
            self.parsed = fastavro.parse_schema(_without_uuids(json.loads(text)))
        except (ValueError, KeyError, TypeError, fastavro.schema.SchemaParseException) as error:
            said = str(error).partition("\n")[0]
            raise Refused.of(Kind.SCHEMA, f"the schema is no Avro schema: {said}", where, _THEN, schema=where) from None
        try:
            self.columns = arrow_schema_of(self.parsed)
        except Unreadable as wrong:
            raise Refused.of(Kind.SCHEMA, str(wrong), where, _THEN, schema=where) from None


def _without_uuids(schema: Any) -> Any:
    """The schema that reads UUIDs as the text that they are."""
    match schema:
        case list():
            return [_without_uuids(one) for one in schema]
        case dict():
            plain = {name: _without_uuids(value) for name, value in schema.items()}
            return {name: value for name, value in plain.items() if (name, value) != ("logicalType", "uuid")}
        case _:
            return schema
