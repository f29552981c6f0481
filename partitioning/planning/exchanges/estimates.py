"""Estimates: how many records each stream and step gives, counted in the last batch or guessed from that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from partitioning.model.graph import Graph, Op, Step
from partitioning.model.statistics import Statistics
from partitioning.values import Value

# Steps with exactly one output record for each input record.
_AS_MANY = (Op.REKEY, Op.REPARTITION, Op.SELECT)
# The suffix of a step's version that waits for no exchange (see `versions`). It has the step's rows.
EARLY = ".early"


class Estimate(Value, frozen=True):
    """A number of records; `known` if it was counted or follows from what was."""

    records: int
    known: bool


def estimates(graph: Graph, statistics: Statistics | None = None) -> Mapping[str, Estimate]:
    """An estimate of the records of each stream and step. A count from the last batch is exact.

    Without a count, a stream has the mean of the known streams, or one record if none is known. A merge has the sum of
    its inputs, a join or cogroup as many as its largest input, and any other step as many as it reads. Filters are not
    guessed: a filter looks neither cheaper nor dearer than its input.
    """
    counted = statistics.records if statistics else {}
    known = [counted[stream.name] for stream in graph.streams if stream.name in counted]
    guess = max(1, sum(known) // len(known)) if known else 1
    estimated: dict[str, Estimate] = {}
    for stream in graph.streams:
        estimated[stream.name] = Estimate(counted.get(stream.name, guess), stream.name in counted)
    for step in graph.steps:
        count = counted.get(step.name, counted.get(f"{step.name}{EARLY}"))
        guessed = _step(step, [estimated[name] for name in step.inputs])
        estimated[step.name] = guessed if count is None else Estimate(count, known=True)
    return estimated


def total(parts: Iterable[Estimate]) -> Estimate:
    """All records together.

    >>> total([Estimate(900, known=True), Estimate(100, known=True)])
    Estimate(records=1000, known=True)
    """
    listed = list(parts)
    return Estimate(sum(part.records for part in listed), all(part.known for part in listed))


def _step(step: Step, inputs: list[Estimate]) -> Estimate:
    if step.op is Op.MERGE:
        return total(inputs)
    largest = max(source.records for source in inputs)
    return Estimate(largest, step.op in _AS_MANY and all(source.known for source in inputs))
