"""What all parties' answers to a query cost, as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from bench.party import PARTIES
from bench.workload import Data, Query


@dataclass
class Answers:
    """By party, what `bench.session` prints, the S3 server's processor time in each run, and what the rows add up to.
    It took so many `seconds` to get them."""

    query: Query
    size: str
    parties: dict[str, dict[str, Any]] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def same(self) -> bool:
        """Whether all have the same rows."""
        return len({tuple(costs["checksums"]) for costs in self.parties.values()}) <= 1

    @property
    def stretches(self) -> Mapping[str, Sequence[int]]:
        """The runs, by what is told apart of them."""
        return self.query.stretches(max(len(costs["runs"]) for costs in self.parties.values()))

    def took(self, party: str, stretch: str, figure: str = "cpu") -> float:
        """The median of a stretch of runs."""
        runs = self.parties[party]["runs"]
        return float(median(runs[number][figure] for number in self.stretches[stretch]))

    @property
    def last(self) -> str:
        """The stretch by which parties are compared."""
        return list(self.stretches)[-1]


def tabled(answers: Answers) -> Sequence[Sequence[str]]:
    """What the columns are, and a row for each party."""
    skewed, first = answers.query.data is Data.SKEWED, next(iter(answers.parties))
    compared = f"{answers.last}: CPU × {PARTIES[first].title.partition(',')[0]}'s"
    longest = ("longest task ÷ mean",) if skewed else ()
    rows = [("party", *answers.stretches, "peak memory", "moved", *longest, "S3 server", compared)]
    for party, costs in answers.parties.items():
        most = f"{costs['longest']:.2f}" if costs["longest"] else ""
        rows.append(
            (
                PARTIES[party].title,
                *(
                    f"{answers.took(party, one):.2f} / {answers.took(party, one, 'wall'):.2f}"
                    for one in answers.stretches
                ),
                f"{max(run['memory'] for run in costs['runs']) / 2**20:,.0f} MiB",
                f"{costs['moved'] / 2**20:,.1f} MiB",
                *((most,) if skewed else ()),
                f"{costs['server']:.1f}",
                f"{answers.took(party, answers.last) / answers.took(first, answers.last):.2f}",
            )
        )
    return rows
