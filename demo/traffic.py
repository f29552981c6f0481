"""The demo's second pipeline: flights move to their airports, totals continue, and the number of tasks changes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from coset.batches import steps
from coset.batches.auditing.audit_tables import load
from coset.batches.interpreter import run_batch
from coset.batches.kept import kept_state
from coset.batches.runners.connect import Connect
from coset.cli.output import Table, show, step
from dags.pipelines.airport_traffic import pipeline
from demo.comparison import side_by_side
from demo.home import STORE, Home
from partitioning.authoring.settings import Settings
from partitioning.documents.ledger import Ledger
from partitioning.documents.stores import store_at
from partitioning.errors import CosetError
from partitioning.kinds import Kind
from partitioning.model.plan import Plan
from partitioning.sections import size

# The number of tasks by batch, where it is not that of the streams.
_TASKS = {1: "tasks(5)"}
_SHOWN = 4

_OURS = """
    SELECT origin, observations, departures, arrivals, dep_delay, arr_delay
    FROM published QUALIFY _batch = max(_batch) OVER (PARTITION BY origin)
"""
_THEIRS = """
    WITH departed AS (SELECT origin, count(*) AS departures, sum(dep_delay) AS dep_delay FROM flights GROUP BY ALL),
    arrived AS (SELECT dest AS origin, count(*) AS arrivals, sum(arr_delay) AS arr_delay FROM flights GROUP BY ALL),
    observed AS (SELECT origin, count(*) AS observations FROM weather GROUP BY ALL)
    SELECT origin, coalesce(observations, 0) AS observations, coalesce(departures, 0) AS departures,
        coalesce(arrivals, 0) AS arrivals, coalesce(dep_delay, 0)::BIGINT AS dep_delay,
        coalesce(arr_delay, 0)::BIGINT AS arr_delay
    FROM departed FULL JOIN arrived USING (origin) FULL JOIN observed USING (origin)
"""
_LARGEST = "SELECT origin, departures, arrivals FROM {rows} ORDER BY departures DESC, arrivals DESC, origin"


@dataclass(frozen=True, slots=True)
class _Comparison:
    airports: int
    different: int
    rows: tuple[tuple[object, ...], ...]


def run(home: Home) -> None:
    """Run batches on the Spark server until nothing is left."""
    while True:
        newest = Ledger(store_at(STORE), pipeline.name).standing().plan
        tasks = _TASKS.get(newest.batch + 1) if newest else None
        ref, sentence = steps.plan(pipeline, STORE, Settings.parse(scheme=tasks, groups=2))
        if ref is None:
            return
        with step(f"airports {ref.load()[1].batch}") as said:
            said.append(sentence)
        with Connect(os.environ["SPARK_MASTER"], "1GB") as runner:
            run_batch(ref, runner, home.docs, step)


def show_results() -> None:
    """Show what moved, the state, and the totals beside the raw data's. Raises CosetError if a total differs."""
    ledger = Ledger(store_at(STORE), pipeline.name)
    newest = ledger.standing().published
    assert newest is not None
    columns = ("batch", "tasks", "records moved", "size", "records spared, as planned", "rows of state left")
    show(Table("Airports: what moved in each batch, and what did not", columns, _moved(ledger, newest)))
    state = kept_state(ledger, "traffic")
    compared = _compare(ledger)
    notes = [
        "Left: the totals that went on over all batches. Right: the same counts by DuckDB over the raw package data.",
        f"Kept for the next batch: {state.read.records:,} rows in {len(state.read.runs)} runs, "
        f"{size(sum(state.bytes))}, placed by {state.read.placement}.",
        f"{compared.different:,} of {compared.airports:,} airports differ.",
    ]
    names = ("airport", "departures, Coset", "departures, DuckDB", "arrivals, Coset", "arrivals, DuckDB")
    show(Table("Airports: results", names, compared.rows, notes))
    if compared.different:
        what, then = "the airports differ from the raw data", "report this with the logs"
        raise CosetError.of(Kind.DEMO, what, STORE, then, different=compared.different)


def _moved(ledger: Ledger, newest: Plan) -> Iterator[tuple[object, ...]]:
    for number in range(newest.batch + 1):
        plan, verdict = ledger.plan(number), ledger.verdict(number)
        assert plan is not None
        assert verdict is not None
        moved = load(ledger, plan, verdict.attempt).moved
        exchanges, state = moved[moved["kind"] == "exchange"], moved[moved["kind"] == "state"]
        yield (
            number,
            max(len(stage.tasks) for stage in plan.stages if stage.wave),
            f"{exchanges['records'].sum():,}",
            size(int(exchanges["bytes"].sum())),
            f"{sum(exchange.spares or 0 for exchange in plan.exchanges):,}",
            f"{state['records'].sum():,}",
        )


def _compare(ledger: Ledger) -> _Comparison:
    with side_by_side(ledger, "airport_traffic", _OURS, _THEIRS) as (database, different):
        ours, theirs = (
            {name: counts for name, *counts in database.execute(_LARGEST.format(rows=side)).fetchall()}
            for side in ("ours", "theirs")
        )
    rows = tuple(
        (name, *(side for pair in zip(ours.get(name, (None, None)), counts, strict=True) for side in pair))
        for name, counts in list(theirs.items())[:_SHOWN]
    )
    return _Comparison(len(theirs), different, rows)
