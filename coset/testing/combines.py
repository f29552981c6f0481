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

    from coset.testing.samples import CombineTrial  # noqa: PLC0415
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
