"""Client properties beside the brokers' addresses, from the file that COSET_KAFKA_PROPERTIES names.

They may be secrets: they go to the clients and into no plan, log or error.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from partitioning.errors import Refused
from partitioning.kinds import Kind

PROPERTIES = "COSET_KAFKA_PROPERTIES"
_REGISTRY = "schema.registry."


@dataclass(frozen=True, slots=True)
class Properties:
    """Properties of the brokers' clients, as librdkafka names them, and of the registry's client."""

    clients: Mapping[str, str]
    registry: Mapping[str, str]


def properties() -> Properties:
    """The file's properties; none without a file. Raises Refused if it cannot be read."""
    named = os.environ.get(PROPERTIES)
    if not named:
        return Properties({}, {})
    then = "write a property a line, as name=value; workers elsewhere need the file at the same place"
    try:
        lines = Path(named).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        said = error.strerror if isinstance(error, OSError) else "it is no text"
        what = f"the properties of Kafka's clients cannot be read: {said}"
        raise Refused.of(Kind.BROKER_SETTINGS, what, PROPERTIES, then, file=named) from None
    read: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith(("#", "!")):
            continue
        name, equals, value = text.partition("=")
        if not equals:
            raise Refused.of(Kind.BROKER_SETTINGS, f"line {number} is no property", PROPERTIES, then, number=number)
        read[name.strip()] = value.strip()
    return Properties(
        {name: value for name, value in read.items() if not name.startswith(_REGISTRY)},
        {name.removeprefix(_REGISTRY): value for name, value in read.items() if name.startswith(_REGISTRY)},
    )


def environment() -> dict[str, str]:
    """The variable that names the file, if it is set: tasks elsewhere need it too."""
    return {name: os.environ[name] for name in (PROPERTIES,) if os.environ.get(name)}
