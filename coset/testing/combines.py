"""Combines: whether partial results give the same in whatever order and groups they are combined, on samples."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from partitioning.authoring.flow import Flow
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.graph import Op, Step

if TYPE_CHECKING:
    import pyarrow as pa
import duckdb
import pyarrow as pa

from coset.testing.likeness import without
from partitioning.errors import Finding
from partitioning.model.graph import quote

# How few rows are tried first, so that what is told of them is short.
_FEWEST = 2


def check_combine(
    flow: Flow, rows: pa.Table | Sequence[Mapping[str, object]], *, tries: int = 50, seed: int = 0
) -> None:
    """Check that a combine step, and the partial step before it, give the same however records come to tasks.

    `rows` are records of what the partial step reads, or the combine if there is none; a few hundred do. In each of
    the `tries` some of them are assigned to tasks, some of which may have none, and what the tasks give is combined in
    a random order and in random groups, level by level. The result has to be that of all these records in one task, row
    by row; floating-point numbers may differ by one in a billion, as sums do.

    Raises Refused with the records, the grouping, what it gave and what it should have, at the first that differs.
    """
    # A file of tests imports this at once: what only a run needs comes with the run.
    import pyarrow as pa  # noqa: PLC0415

    from coset.testing.combines import CombineTrial  # noqa: PLC0415
    from spark_jobs.engine.task_database import connect  # noqa: PLC0415

    combine, partial = _steps(flow)
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist([dict(row) for row in rows])
    chance = random.Random(seed)
    with connect() as connection:
        trial = CombineTrial(connection, combine, partial, table)
        for number in range(tries):
            count = min(len(table), _FEWEST + number)
            trial.check(chance.sample(range(len(table)), count), chance)


def _steps(flow: Flow) -> tuple[Step, Step | None]:
    """The combine step that a flow comes from, and the partial step before it."""
    steps = {step.name: step for step in flow.pipeline.steps}
    combine = flow.keeping or steps.get(flow.step)
    if combine is None or combine.op is not Op.COMBINE:
        what = f"{flow.step} is no combine"
        raise Refused.of(Kind.ARGUMENT, what, "check_combine", "give what .combine() returned", step=flow.step)
    before = steps.get(combine.inputs[0])
    return combine, before if before is not None and before.op is Op.PARTIAL else None


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
