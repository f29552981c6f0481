"""Needed columns: which columns of its inputs a stage uses, so that its tasks read no others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from coset.sources.databases import connect_to_ask
from partitioning.model.composite_key import key_parts
from partitioning.model.graph import Op, Step
from partitioning.model.mark_columns import CHANGE
from partitioning.model.streams import Column
from spark_jobs.sql.expressions import Tree, columns_named, nodes, parse

# These steps have the columns of their input.
PASSING = {Op.FILTER, Op.REKEY, Op.REPARTITION, Op.MERGE, Op.LATEST, Op.TABLE, Op.DISTINCT, Op.RECENT, Op.UPSERT}
PASSING |= {Op.CHANGES, Op.KEEP, Op.ROWS, Op.TO_STREAM}


def columns_needed(
    steps: tuple[Step, ...], given: Iterable[Column], key: str, columns: Sequence[Column]
) -> tuple[str, ...]:
    """Which `columns` of an input a stage uses: for its steps, for its `given` output columns, and the `key`.

    The order stays. A `*`, or a function that sees a whole input, needs all columns. A name counts for every input,
    whichever it is meant for, so the result may have a column too many and never one too few.
    """
    every = tuple(column.name for column in columns)
    # Of records that are duplicates of one time, distinct keeps the one whose columns are the least: of all columns.
    if _see_all(steps, [step for step in steps if step.function or step.op is Op.DISTINCT]):
        return every
    trees = _parse_all(steps)
    if any(node["class"] == "STAR" for node in nodes(trees)):
        return every
    named = {key.lower(), *(part.lower() for made in (key, *(step.key for step in steps)) for part in key_parts(made))}
    named.add(CHANGE)
    named.update(column.name.lower() for column in given)
    named.update(part.lower() for parts in columns_named(trees) for part in parts)
    return tuple(name for name in every if name.lower() in named)


def functions_see_all(steps: Sequence[Step]) -> bool:
    """Whether a function in a stage sees all columns of an input, because no step before it selects some."""
    return _see_all(steps, [step for step in steps if step.function])


def _see_all(steps: Sequence[Step], seeing: Iterable[Step]) -> bool:
    """Whether some of the steps see all columns of an input of the stage."""
    passing = {step.name: step.inputs for step in steps if step.op in PASSING}
    made = {step.name for step in steps}
    reached = {name for step in seeing for name in step.inputs}
    while grown := {name for passed in reached & passing.keys() for name in passing[passed]} - reached:
        reached |= grown
    return bool(reached - made)


@lru_cache(maxsize=64)
def _parse_all(steps: tuple[Step, ...]) -> list[Tree]:
    """The parse trees of all expressions. They are cached because each task of a stage asks for the same ones."""
    with connect_to_ask() as connection:
        return [parse(connection, text) for step in steps for text in step.expressions]
