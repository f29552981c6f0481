"""The context of planning stages: what the batch reads, and what is known of the batches before."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from partitioning.model.plan import Plan
from partitioning.model.planned_streams import PlannedPartition, PlannedStream
from partitioning.model.read_ends import NOTHING, Ends
from partitioning.model.statistics import Statistics
from partitioning.model.table_parts import TablePart
from partitioning.planning.stages.step_states import StateSnapshot
from partitioning.values import Value


class StageContext(Value, frozen=True):
    """What stages are planned from, beside pipeline and settings.

    `streams` say what the batch reads. `published` is the last published plan, `kept` the state that it left; steps in
    `anew` begin without theirs. `ends` say how far streams were read. `named` is the owner of the batch, if not the
    pipeline. `day_end` is the end of the day, in microseconds. `parts` has the partitions of upserted tables, by table.
    """

    batch: int = 0
    streams: tuple[PlannedStream, ...] = ()
    published: Plan | None = None
    ends: Ends = NOTHING
    statistics: Statistics | None = None
    kept: StateSnapshot | None = None
    anew: Collection[str] = ()
    named: str | None = None
    day_end: int | None = None
    parts: Mapping[str, tuple[TablePart, ...]] = {}

    @property
    def records(self) -> int:
        """How many records the batch reads."""
        return sum(part.records for stream in self.streams for part in stream.partitions)

    @property
    def planned(self) -> Mapping[str, Sequence[PlannedPartition]]:
        """What the batch reads of each stream."""
        return {stream.name: stream.partitions for stream in self.streams}


NOTHING_BEFORE = StageContext()
