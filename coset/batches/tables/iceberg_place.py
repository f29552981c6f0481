"""The place of Iceberg tables: a namespace of a catalogue, which the environment names."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa

from coset.sources.iceberg.named_catalogue import catalogue, catalogue_errors
from partitioning.commands import Repeat
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.sources import NAMESPACE

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

# The variable with the catalogue, by its name in PyIceberg's configuration, and the namespace: `prod.analytics`.
ASKED = "COSET_ICEBERG"


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace of a catalogue, by its name in PyIceberg's configuration."""

    catalogue: str
    name: str

    def named(self, table: str) -> str:
        return f"{self.catalogue}.{self.name}.{table}"


def asked() -> Namespace | None:
    """The place that the environment names. None if it names none. Raises Refused if it cannot be one."""
    said = os.environ.get(ASKED, "")
    if not said:
        return None
    if found := NAMESPACE.fullmatch(said):
        return Namespace(*found.groups())
    then = "write CATALOGUE.NAMESPACE, such as prod.analytics, with a catalogue of PyIceberg's configuration"
    raise Refused.of(Kind.SETTING, f"iceberg, or {ASKED}, cannot be {said!r}", "environment", then, said=said)


def try_place() -> str | None:
    """Make a table where the environment asks for Iceberg tables, and remove it. Returns the place; None if it asks for
    none. Raises as `follow`."""
    if (place := asked()) is None:
        return None
    # Hive has no names with a hyphen.
    table = f"{place.name}.doctor_{uuid4().hex}"
    with catalogue_errors(place.catalogue, Repeat()):
        known = catalogue(place.catalogue)
        make_namespace(known, place)
        known.create_table(table, pa.schema([("k", pa.string())]))
        try:
            known.purge_table(table)
        except NotImplementedError:
            known.drop_table(table)
    return f"{place.catalogue}.{place.name}"


def make_namespace(known: Catalog, place: Namespace) -> None:
    """Make a namespace, and those that it is in, unless it is there: who may make tables may not make namespaces."""
    levels = place.name.split(".")
    try:
        if not known.namespace_exists(place.name):
            for level in range(len(levels)):
                known.create_namespace_if_not_exists(tuple(levels[: level + 1]))
    except ValueError as error:
        what = f"the catalogue {place.catalogue} cannot have the namespace {place.name}: {error}"
        raise Refused.of(Kind.SETTING, what, "environment", "name one without a dot", namespace=place.name) from error
