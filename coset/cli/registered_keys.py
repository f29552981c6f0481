"""Registered keys on the command line: the schemas that a registry has of a topic's keys, as a stream declares them."""

from __future__ import annotations

from collections.abc import Iterator

from coset.cli.output import Answer, Block
from coset.sources.kafka.registry import RegisteredSchema, Registry
from coset.sources.keys_seen import FRAMINGS
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.key_schemas import Framing
from partitioning.sections import many


def schemas(topic: str) -> Answer:
    """The schemas of a topic's keys, oldest first, and the options that declare them. Stores nothing.

    Raises Refused if no registry is configured or it has none, or not all of one kind; Unreachable if it does not
    answer.
    """
    found = list(Registry(topic, "key").registered())
    kinds = sorted({each.kind for each in found})
    if len(kinds) != 1 or kinds[0] not in FRAMINGS:
        what = f"the keys have schemas of {' and '.join(kinds)}, which no stream declares together"
        then = "declare the stream with hash='opaque' and move its records, .repartition()"
        raise Refused.of(Kind.SCHEMA, what, f"topic {topic!r}", then, kinds=kinds)
    framing = FRAMINGS[kinds[0]]
    ids = [each.id for each in found]
    texts: list[int] | dict[int, str] = (
        ids if framing is Framing.JSON_SCHEMA else {each.id: each.text for each in found}
    )
    value = {"topic": topic, "key_format": framing, "key_schemas": texts}
    return Answer(value, _lines(framing, found, topic))


def _lines(framing: Framing, found: list[RegisteredSchema], topic: str) -> Iterator[Block]:
    yield (
        f"The keys of {topic} have {many(len(found), 'schema')}. Declare those that records have, the newest last; if "
        "all have the newest, that one alone, and nothing moves:"
    )
    yield ""
    yield f'key_format="{framing}",'
    if framing is Framing.JSON_SCHEMA:
        yield f"key_schemas={[each.id for each in found]},"
        return
    yield "key_schemas={"
    yield from (f"    {each.id}: {each.text!r}," for each in found)
    yield "},"
