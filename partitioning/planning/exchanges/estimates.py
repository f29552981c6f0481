"""Estimates: how many records each stream and step gives, counted in the last batch or guessed from that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from partitioning.model.graph import Graph, Step
from partitioning.model.statistics import Statistics

# Steps that give a record for each they get, whatever its values are.
_AS_MANY = ("rekey", "repartition", "select")


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number of records; `known` if it was counted or follows from what was."""

    records: int
    known: bool


def estimates(graph: Graph, statistics: Statistics | None = None) -> Mapping[str, Estimate]:
    """An estimate for each stream and step. What the last batch counted is known.

    Otherwise a stream gives the mean of those that are known, or one record if none is; a merge gives the sum of
    its inputs, a join or cogroup as many as its largest input, and any other step as many as it gets: filters
    are not guessed, so they look neither cheaper nor dearer than what is before them.
    """
    counted = statistics.records if statistics else {}
    known = [counted[stream.name] for stream in graph.streams if stream.name in counted]
    guess = max(1, sum(known) // len(known)) if known else 1
    found: dict[str, Estimate] = {}
    for stream in graph.streams:
        found[stream.name] = Estimate(counted.get(stream.name, guess), stream.name in counted)
    for step in graph.steps:
        if step.name in counted:
            found[step.name] = Estimate(counted[step.name], known=True)
        else:
            found[step.name] = _step(step, [found[name] for name in step.inputs])
    return found


def total(some: Iterable[Estimate]) -> Estimate:
    """All records together.

    >>> total([Estimate(900, known=True), Estimate(100, known=True)])
    Estimate(records=1000, known=True)
    """
    listed = list(some)
    return Estimate(sum(each.records for each in listed), all(each.known for each in listed))


def _step(step: Step, inputs: list[Estimate]) -> Estimate:
    if step.op == "merge":
        return total(inputs)
    largest = max(each.records for each in inputs)
    return Estimate(largest, step.op in _AS_MANY and all(each.known for each in inputs))
