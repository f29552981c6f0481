"""Samples: a combine, and the partial step before it, on some records in some order and groups."""

from __future__ import annotations

import random
from collections.abc import Sequence

import duckdb
import pyarrow as pa

from coset.testing.likeness import without
from partitioning.errors import Finding, Refused
from partitioning.kinds import Kind
from partitioning.model.graph import Step, quote

_MOST_TASKS = 6
_READ = "@read"
Rows = Sequence[tuple[object, ...]]


class _Tree:
    """Partial results, as the numbers of the records that went into them; groups of groups in parentheses."""

    def __init__(self, rows: pa.Table, text: str) -> None:
        self.rows = rows
        self.text = text


class CombineTrial:
    """The steps, on parts of a table of records."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, combine: Step, partial: Step | None, table: pa.Table
    ) -> None:
        self._connection = connection
        self._combine = combine
        self._partial = partial
        self._table = table

    def check(self, records: Sequence[int], chance: random.Random) -> None:
        """Deal records to tasks, and combine what these give in some groups."""
        whole = self._combined([self._task(records)])
        # A task without any records leaves partial results too.
        tasks = [list[int]() for _ in range(chance.randint(1, min(_MOST_TASKS, len(records) + 1)))]
        for record in records:
            chance.choice(tasks).append(record)
        left = [self._task(task) for task in tasks]
        while len(left) > 1:
            chance.shuffle(left)
            width = chance.randint(1, len(left) - 1)
            left = [self._combined(left[unifier::width]) for unifier in range(width)]
        (found,) = left if left[0].text.startswith("(") else [self._combined(left)]
        if (difference := _difference(whole.rows, found.rows)) is not None:
            raise Refused(self._finding(records, found.text, *difference))

    def _task(self, records: Sequence[int]) -> _Tree:
        """What the partial step gives of some records."""
        rows = self._table.take(pa.array(records, pa.int64()))
        text = f"[{' '.join(map(str, records))}]"
        return _Tree(rows if self._partial is None else self._given(self._partial, rows), text)

    def _combined(self, parts: Sequence[_Tree]) -> _Tree:
        """What the combine step gives of partial results in this order."""
        rows = pa.concat_tables([part.rows for part in parts])
        return _Tree(self._given(self._combine, rows), f"({' '.join(part.text for part in parts)})")

    def _given(self, step: Step, rows: pa.Table) -> pa.Table:
        self._connection.register(_READ, rows)
        known_as = f"WITH {quote(step.inputs[0])} AS (SELECT * FROM {quote(_READ)})"
        try:
            given = self._connection.sql(f"{known_as} {step.sql}").to_arrow_table()
        except duckdb.Error as error:
            what = f"SQL failed: {' '.join(str(error).split())}"
            then = "correct the expression or the rows"
            raise Refused.of(Kind.SQL, what, f"step {step.name!r}", then, step=step.name) from error
        finally:
            self._connection.unregister(_READ)
        return given

    def _finding(self, records: Sequence[int], grouping: str, wanted: Rows, found: Rows) -> Finding:
        shown = "; ".join(f"{number}: {self._table.slice(number, 1).to_pylist()[0]}" for number in sorted(records)[:6])
        more = f"; and {len(records) - 6} more" if len(records) > 6 else ""
        what = f"combined as {grouping} it gives {_text(found)}, and of all at once {_text(wanted)}"
        where = f"step {self._combine.name!r} on the records {shown}{more}"
        then = "use aggregates that give the same in any order and groups: sum of sums and counts, min, max, bool_or"
        return Finding.of(Kind.COMBINE_ORDER, what, where, then, grouping=grouping)


def _difference(wanted: pa.Table, found: pa.Table) -> tuple[Rows, Rows] | None:
    """The rows that only one has, if there are any."""
    sides = [list(zip(*(column.to_pylist() for column in table.columns), strict=True)) for table in (wanted, found)]
    left, right = without(*sides), without(*reversed(sides))
    return (left, right) if left or right else None


def _text(rows: Rows) -> str:
    return ", ".join(map(str, rows[:3])) + (" …" if len(rows) > 3 else "") if rows else "no row"
