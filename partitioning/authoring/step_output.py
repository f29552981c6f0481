"""Outputs of steps: what SQL calls their rows and keys, and how another step is added to them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self

from partitioning.authoring.arguments import checked
from partitioning.authoring.step_rules import cannot_meet, unfinished
from partitioning.errors import refuse
from partitioning.model.composite_key import key_parts
from partitioning.model.graph import Join, Op, Step, quote
from partitioning.model.placement import KeyFormat
from partitioning.values import Value

if TYPE_CHECKING:
    from partitioning.authoring.pipeline import Pipeline


@checked
class StepOutput(Value, frozen=True):
    """The output of a stream or step. `alias` is its name in SQL, `key` its key column, empty if it has none; one that
    is made of several has their names (see `partitioning.model.composite_key`).

    A step has the name that the user gives it, otherwise one made from its input: `flights.filter`. A given name is
    also the alias from there on. An `unfinished` flow has a row for each key of each task (see `partial`).
    """

    pipeline: Pipeline
    step: str
    alias: str
    key: str
    key_format: KeyFormat
    unfinished: bool = False

    def aggregated(self, columns: str) -> str:
        """The SELECT of these aggregates by the flow's key."""
        return f"SELECT {listed(self._key_columns, columns)} FROM {self._source} GROUP BY ALL"

    @property
    def _source(self) -> str:
        return f"{quote(self.step)} AS {quote(self.alias)}"

    @property
    def _without_nulls(self) -> str:
        """The key; null if a column that it is made of is."""
        known = " AND ".join(f"{quote(self.alias)}.{quote(part)} IS NOT NULL" for part in key_parts(self.key))
        return f"CASE WHEN {known} THEN {self._qualified_key} END" if known else self._qualified_key

    @property
    def _key_columns(self) -> tuple[str, ...]:
        """The key column, then those that it is made of."""
        return (self.key, *key_parts(self.key)) if self.key else ()

    @property
    def _qualified_key(self) -> str:
        return f"{quote(self.alias)}.{quote(self.key)}"

    def _keys_of(self, flows: Sequence[Self]) -> str:
        """A SELECT list of this flow's key columns, each as the first of these flows that has a row has it."""
        sides = [[f"{quote(flow.alias)}.{quote(column)}" for column in flow._key_columns] for flow in flows]
        keys = zip(map(any_of, zip(*sides, strict=True)), self._key_columns, strict=True)
        return ", ".join(f"{key} AS {quote(column)}" for key, column in keys)

    def _with(self, others: Sequence[Self], op: Op, how: str = Join.FULL) -> list[Self]:
        """This flow and the others. Raises Refused, with all findings, if `op` cannot combine them."""
        flows = [self, *others]
        refuse(cannot_meet(op, how, flows))
        return flows

    def _step(
        self,
        op: Op,
        sql: str,
        expressions: tuple[str, ...],
        name: str | None,
        *,
        inputs: Sequence[Self] = (),
        key: str | None = None,
        key_format: str | None = None,
        alias: str = "",
        **more: Any,
    ) -> Self:
        read = inputs or (self,)
        refuse(unfinished(op, read))
        step = Step(
            name or f"{self.step}.{op}",
            op,
            tuple(flow.step for flow in read),
            sql,
            expressions,
            key=self.key if key is None else key,
            key_format=KeyFormat(key_format or self.key_format),
            **more,
        )
        flow = type(self)(
            self.pipeline, step.name, alias or name or self.alias, step.key, step.key_format, op is Op.PARTIAL
        )
        self.pipeline._add(step, flow)
        return flow


def names(columns: Iterable[str]) -> str:
    """A SELECT list of these columns."""
    return ", ".join(map(quote, columns))


def listed(keys: Sequence[str], columns: str) -> str:
    """A SELECT list of the keys, if any, and of what `columns` says."""
    return f"{names(keys)}, {columns}" if keys else columns


def any_of(keys: Sequence[str]) -> str:
    """The first of these expressions that is not null."""
    return keys[0] if len(keys) == 1 else f"coalesce({', '.join(keys)})"


def met_by_key(key: str, other: StepOutput, equal: str) -> str:
    """The condition that a key is that of another flow's record. As in SQL, `=` is not true of keys with a NULL."""
    nulls = [f"{quote(other.alias)}.{quote(part)} IS NOT NULL" for part in key_parts(other.key) if equal == "="]
    return " AND ".join([f"{key} {equal} {other._qualified_key}", *nulls])
