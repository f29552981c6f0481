"""Claims: what an order says of the records of a partition, for the proof to hold against them."""

from __future__ import annotations

from dataclasses import dataclass

from partitioning.model.leaving import LeftPartition
from partitioning.model.order import Order, Ordered
from partitioning.model.placement import OPAQUE
from partitioning.model.private import is_private
from partitioning.model.stage_inputs import PlannedPartition
from partitioning.model.takes import taken


@dataclass(frozen=True, slots=True)
class Claims:
    """What an order claims about the records of a partition, each of which a record can violate.

    If the stream is `placed`, keys have `h mod partitions = partition`, by any hash of its placement; by that of the
    order they agree with it modulo `shared`. If there are `owned` residues, taken keys have
    `h mod cosets` among them. One key in `sample` is sampled, none if it is 0. Offsets are consecutive, or only
    ascending if there are `gaps`. Values of a `private` key go into no receipt, nor does what may quote other
    columns if the order `hides` some.
    """

    placed: bool
    partitions: int
    partition: int
    cosets: int
    owned: tuple[int, ...]
    sample: int
    gaps: bool
    shared: int
    private: bool = False
    hides: bool = False

    @property
    def owned_where_placed(self) -> bool:
        """Whether the task owns each key that lies in the partition: there, keys agree modulo the `cosets`."""
        return self.placed and self.shared == self.cosets and self.partition % self.cosets in self.owned

    @classmethod
    def of(cls, order: Order, ordered: Ordered, planned: PlannedPartition | LeftPartition) -> Claims:
        """The claims of `order` about one partition of an input."""
        placement, task = ordered.placement, order.task
        placed = placement.hash != OPAQUE
        return cls(
            placed,
            placement.partitions,
            planned.partition % placement.partitions,
            order.cosets,
            task.owns if placed and _owns_all(order, ordered, planned.partition) else (),
            ordered.compared(order.key_sample) if task.owns else 0,
            ordered.sparse or (isinstance(planned, PlannedPartition) and planned.missing > 0),
            placement.shared(order.cosets),
            is_private(placement.key, order.private or ()),
            bool(order.private),
        )


def _owns_all(order: Order, ordered: Ordered, partition: int) -> bool:
    """Whether the task owns all keys that it takes from a partition. If not, the stage needs no co-location."""
    step = ordered.placement.shared(order.cosets)
    residues = taken(order.task, ordered.name, order.cosets, step)
    return set(residues.get(partition % step, ())) <= set(order.task.owns)
