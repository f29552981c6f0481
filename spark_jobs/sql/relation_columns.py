"""The columns of streams and steps: which of them an expression names, and what those of a table can be called."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from partitioning.authoring.pipeline import Pipeline
from partitioning.model.composite_key import key_columns
from partitioning.model.graph import quote
from partitioning.model.mark_columns import in_words
from partitioning.model.placement import KeyFormat
from partitioning.model.streams import Column
from spark_jobs.sql.expressions import Tree, columns_named, names_made


@dataclass(frozen=True, slots=True)
class RelationColumns:
    """The columns of a stream or step.

    `hidden` names the columns with a record's position in its stream, until an expression uses them. `lost` names the
    hidden columns that only some inputs of a merge had.
    """

    columns: tuple[Column, ...]
    hidden: frozenset[str] = frozenset()
    lost: frozenset[str] = frozenset()

    @property
    def names(self) -> frozenset[str]:
        return frozenset(column.name.lower() for column in self.columns)

    @property
    def shown(self) -> dict[str, str]:
        """The types of the columns that a result table would have, by name in lower case."""
        return {column.name.lower(): column.type for column in self.columns if column.name.lower() not in self.hidden}


class KnownRelations(dict[str, RelationColumns]):
    """The columns of those streams and steps of a pipeline that are known so far, by name."""

    def __init__(self, pipeline: Pipeline) -> None:
        super().__init__()
        self.pipeline = pipeline

    def unknown(self, inputs: Sequence[str], tree: Tree) -> Iterator[str]:
        """The names in an expression that no input has."""
        known = names_made(tree).union(*(self[name].names for name in inputs))
        for parts in columns_named(tree):
            first, *rest = (part.lower() for part in parts)
            if first not in known and not (rest and rest[0] in self._aliased(inputs, first).names):
                yield ".".join(parts)

    def lost(self, inputs: Sequence[str], tree: Tree) -> Iterator[str]:
        """The names in an expression that only some of those merged before have."""
        for parts in columns_named(tree):
            first, *rest = (part.lower() for part in parts)
            lost = frozenset[str]().union(*(self[name].lost for name in inputs if name in self))
            if first in lost or (rest and rest[0] in self._aliased(inputs, first).lost):
                yield ".".join(parts)

    def _aliased(self, inputs: Sequence[str], alias: str) -> RelationColumns:
        """The input with this alias, or a relation without columns."""
        named = {self.pipeline.flow(name).alias.lower(): name for name in inputs}
        return self.get(named.get(alias, ""), RelationColumns(()))

    def type(self, name: str, column: str) -> str:
        """The type of a column, `missing` if it is not there."""
        return next((each.type for each in self[name].columns if each.name == column), "missing")

    def listed(self, inputs: Sequence[str]) -> str:
        """The inputs as SQL calls them, with their columns: not those with marks, which no expression names."""
        return "; ".join(f"{self.pipeline.flow(name).alias} has {', '.join(self._told(name))}" for name in inputs)

    def _told(self, name: str) -> Iterator[str]:
        yield from (each.name for each in self[name].columns if in_words(each.name) == each.name)


# Spark and other readers of Delta tables refuse these characters in a column's name.
_IN_NONE = set(" ,;{}()\n\t=")


def is_plain(name: str) -> bool:
    """Whether a table can have a column of this name."""
    return not _IN_NONE & set(name)


def renaming(columns: Sequence[str], key: str, key_format: KeyFormat) -> str:
    """The calls behind which all columns of a flow have plain names; nothing if one of several columns of its key has
    none.

    >>> print(renaming(["id", "a b"], "id", KeyFormat.LONG))
    .select('* EXCLUDE ("id") RENAME ("a b" AS "a_b")')
    >>> print(renaming(["my id", "n"], "my id", KeyFormat.LONG))
    .rekey('my_id', sql='"my id"', key_format='long').select('* EXCLUDE ("my_id", "my id")')
    """
    plain, keys, rekey = dict(_plain(columns)), list(dict.fromkeys((key, *key_columns(key)))), ""
    if key in plain:
        of_format = "" if key_format is KeyFormat.STRING else f", key_format={str(key_format)!r}"
        rekey, keys = f".rekey({plain[key]!r}, sql={quote(key)!r}{of_format})", [plain.pop(key), key]
    elif plain.keys() & keys:
        return ""
    others = ", ".join(f"{quote(name)} AS {quote(made)}" for name, made in plain.items())
    selected = f"* EXCLUDE ({', '.join(map(quote, keys))})" if key else "*"
    selected += f" RENAME ({others})" if others else ""
    return f"{rekey}.select({selected!r})"


def _plain(columns: Sequence[str]) -> Iterator[tuple[str, str]]:
    """A plain name for each column that has none."""
    taken = {name.lower() for name in columns}
    for name in columns:
        if not is_plain(name):
            made = re.sub(r"\W+", "_", name).strip("_") or "column"
            while made.lower() in taken:
                made += "_"
            taken.add(made.lower())
            yield name, made
