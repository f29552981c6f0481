"""What is to be reached, and whether it was.

Warm and with its proof, Coset takes at most 1/5 of plain PySpark's processor time, 1/2 of Comet's, 1/4 of Iceberg's
and 1.5 times that of DuckDB alone, and moves nothing that lies right. The proof costs at most 20 % of the same run
without it. Four times the tasks cost at most 1.5 times the processor time, eight times at most 2. Totals that go on
cost at most what Structured Streaming takes. Changes cost at most 1/10 of what PySpark takes to compute all anew, and
0.4 times what DuckDB does. The longest task of a hot key's stream takes at most 1.3 times the mean,
and to split hot keys costs at most 2 % where there are none.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from statistics import median, quantiles

from bench.figures import Answers
from bench.party import PARTIES
from bench.workload import Point, Query, Workload

# The proof may cost so much of the same run without it.
_PROOF = 0.2
# At most so many times a party's processor time may Coset take with its proof.
_OF_SPARK = {"pyspark": 0.2, "comet": 0.5, "iceberg": 0.25}
_OF_ALL = _OF_SPARK | {"duckdb": 1.5, "duckdb-cosets": 1.5}
_OF_STREAMING = {"streaming": 1.0}
_OF_ANEW = {"pyspark-totals": 0.1, "duckdb": 0.4}
_MOST = {
    **dict.fromkeys((Query.COUNTED, Query.IN_TIME), _OF_ALL),
    Query.BY_RECORDS: _OF_ALL,
    **dict.fromkeys((Query.HOT, Query.HOT_JOINED), _OF_SPARK),
    **dict.fromkeys((Query.BATCHES, Query.RESCALED), _OF_STREAMING),
    **dict.fromkeys((Query.CHANGING, Query.CHANGING_JOINED), _OF_ANEW),
}
_OF_FACTORS = {"F = 4": 1.5, "F = 8": 2.0}
# The task that takes most of a hot key's stream, of the mean task.
_LONGEST = 1.3
# What it costs to split hot keys where there are none, of the same run that leaves them.
_NOTHING_HOT = 0.02


def verdicts(answers: Answers) -> Iterator[str]:
    """What was compared, as sentences."""
    # By point, of which some may have the same.
    counts = dict.fromkeys(f"{count:,}" for point in answers.query.points for count, *_ in answers.checksums(point))
    agree = "all the same" if answers.same else "they DIFFER"
    yield f"results: {' / '.join(counts)} rows each, {agree}"
    for party in answers.parties:
        if failed := answers.failed_at(party):
            yield f"FAILED: {PARTIES[party].title} at {failed.name}: look above for what it said"
    for what, figure, most in _compared(answers):
        yield f"{'reached' if figure <= most else 'MISSED'}: {what}, to reach {most:,}"


def _compared(answers: Answers) -> Iterator[tuple[str, float, float]]:
    """What, by how much, and how much it may be."""
    took, last = answers.took, answers.last
    parties = [party for party in answers.parties if not answers.failed_at(party)]
    if {"coset", "coset-unproved"} <= set(parties):
        for what, figure in (("processor", "cpu"), ("wall", "wall")):
            share = took("coset", last, figure) / took("coset-unproved", last, figure) - 1
            yield f"the proof costs {share:.2f} of the {what} time without it", share, _PROOF
    for coset, (party, most) in product(
        ("coset", "coset-local", "coset-resident"), _MOST.get(answers.query, {}).items()
    ):
        if {coset, party} <= set(parties):
            times = took(coset, last) / took(party, last)
            what = f"{PARTIES[coset].title}: {times:.2f} times the CPU of {PARTIES[party].title}, {last}"
            yield what, times, most
    for party, (name, most) in product(parties, _OF_FACTORS.items() if answers.query is Query.ELASTIC else ()):
        if party.startswith("coset"):
            times = took(party, name) / took(party, "F = 1")
            yield f"{PARTIES[party].title}: {name} takes {times:.2f} times F = 1", times, most
    if answers.query is Query.BY_SHARE and {"coset", "coset-unsplit"} <= set(parties):
        nothing_hot = answers.query.points[0].name
        more = took("coset", nothing_hot) / took("coset-unsplit", nothing_hot) - 1
        runs = answers.of("coset-unsplit", nothing_hot)
        low, _, high = quantiles(runs)
        what = f"where no key is hot, to split costs {more:.3f} of the processor time without, by {len(runs)} runs each"
        yield f"{what}, of which half lie within {(high - low) / median(runs):.3f}", more, _NOTHING_HOT
    if "coset" in parties:
        for point in answers.query.points:
            yield from _of_records(answers, point, **answers.parties["coset"][point.name])


def _of_records(
    answers: Answers, point: Point, moved: int, moved_records: int, longest: float, **_: object
) -> Iterator[tuple[str, float, float]]:
    """What Coset's tasks moved and took."""
    match answers.query:
        case Query.COUNTED | Query.IN_TIME:
            yield f"Coset moves {moved:,} bytes", moved, 0
        case Query.MERGED:
            other_key = Workload.of(answers.size, Path(), answers.query).topics[-1]
            yield f"Coset moves {moved_records:,} records", moved_records, sum(other_key.rounds)
        case Query.HOT | Query.HOT_JOINED:
            yield f"the longest task took {longest:.2f} times the records of the mean", longest, _LONGEST
        case Query.BY_SHARE:
            yield f"{point.name}: the longest task took {longest:.2f} times the mean", longest, _LONGEST
        case _:
            return
