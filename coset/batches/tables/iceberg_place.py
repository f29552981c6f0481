"""The place of Iceberg tables: a namespace of a catalogue, which the environment names."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa

from coset.sources.iceberg.named_catalogue import catalogue, catalogue_errors, place_of
from partitioning.commands import Repeat
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.sources import NAMESPACE

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table

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
    with catalogue_errors(place.catalogue, Repeat()):
        known = catalogue(place.catalogue)
        make_namespace(known, place)
        # Hive has no names with a hyphen.
        table = make_table(known, place, f"doctor_{uuid4().hex}", pa.schema([("k", pa.string())])).name()
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


def make_table(known: Catalog, place: Namespace, name: str, columns: pa.Schema | Schema, **given: Any) -> Table:
    """Make a table. Raises Refused if the catalogue does not know where its files are to be."""
    try:
        return known.create_table(f"{place.name}.{name}", columns, **given)
    except ValueError as error:
        # What derives from it is of an answer that nobody can read.
        if type(error) is not ValueError:
            raise
        what = f"the catalogue {place.catalogue} cannot make a table in {place.name}: {error}"
        then = f"say where its tables are, {place_of(place.catalogue, 'WAREHOUSE')}"
        raise Refused.of(Kind.SETTING, what, "environment", then, namespace=place.name) from error
