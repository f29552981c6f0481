"""The columns of streams and steps: which of them an expression names, and what those of a table can be called. Keys
that can be placed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from partitioning.authoring.pipeline import Pipeline
from partitioning.errors import Finding
from partitioning.kinds import Kind
from partitioning.model.composite_key import key_columns, key_parts, kind
from partitioning.model.graph import Step, quote
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
        """The inputs with their columns, for people: not those with marks, which no expression names."""
        known = {
            name: [each.name for each in self[name].columns if in_words(each.name) == each.name] for name in inputs
        }
        return "; ".join(f"{name} has {', '.join(columns)}" for name, columns in known.items())


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


def unfit_keys(step: Step, columns: Sequence[Column], known: KnownRelations) -> list[Finding]:
    """Why a step with these columns cannot have its key: a new one is not there or does not fit its format; or, if it
    has one of several columns, these cannot be parts of one, or are of other kinds in some of its inputs."""
    new = [*_unfit_new_key(step, columns, known)] if step.rekeys or step.function else []
    return new or ([*_unfit_parts(step, columns), *_unlike_parts(step, known)] if key_parts(step.key) else [])


def unfit_state_key(step: Step, columns: Sequence[Column], known: KnownRelations) -> Iterator[Finding]:
    """Why the declared state of a function cannot have the key of its input."""
    flow = known.pipeline.flow(step.inputs[0])
    return _unfit(step, columns, flow.key, flow.key_format, " in state")


def _unfit_new_key(step: Step, columns: Sequence[Column], known: KnownRelations) -> Iterator[Finding]:
    if step.key:
        yield from _unfit(step, columns, step.key, step.key_format, f"; {known.listed(step.inputs)}")


def _unfit_parts(step: Step, columns: Sequence[Column]) -> Iterator[Finding]:
    types = {column.name: column.type for column in columns}
    for column in key_parts(step.key) if step.rekeys or step.function else ():
        if types.get(column) is None or kind(types[column]) is None:
            said = types.get(column, "missing")
            what = f"key column {column!r} is {said}, which no key of several columns can have"
            then = "cast it before: to VARCHAR, a whole number, DECIMAL, DATE or TIMESTAMP"
            yield Finding.of(Kind.KEYS_DO_NOT_MEET, what, _where(step), then, column=column, type=types.get(column))


def _unlike_parts(step: Step, known: KnownRelations) -> Iterator[Finding]:
    keys = {name: key_parts(known.pipeline.flow(name).key) for name in step.inputs} if step.keyed else {}
    for number in range(len(key_parts(step.key)) if all(keys.values()) and len(keys) > 1 else 0):
        met = {name: known.type(name, key[number]) for name, key in keys.items()}
        if len({kind(each) for each in met.values()}) > 1:
            listed = ", ".join(f"{keys[name][number]} of {name} is {each}" for name, each in met.items())
            what, then = f"key columns of different types would never meet: {listed}", "cast one of them before"
            yield Finding.of(Kind.KEYS_DO_NOT_MEET, what, _where(step), then, listed=listed)


def _unfit(step: Step, columns: Sequence[Column], key: str, form: KeyFormat, listed: str) -> Iterator[Finding]:
    kind = {column.name: column.type for column in columns}.get(key)
    wanted = " or ".join(form.column_types)
    if kind in form.column_types:
        return
    if kind is None:
        what, then = f"there is no column {key!r}", f"correct the name{listed}"
    else:
        what = f"key column {key!r} is {kind}, not {wanted} under key format {form.value!r}"
        fitting = " or ".join(f"key_format={each.value!r}" for each in KeyFormat if kind in each.column_types)
        then = f"cast it, or declare {fitting}" if fitting else "cast it"
    values = {"key": key, "kind": kind, "wanted": wanted, "value": form.value}
    yield Finding.of(Kind.KEYS_DO_NOT_MEET, what, _where(step), then, **values)


def _where(step: Step) -> str:
    return f"step {step.name!r}"
