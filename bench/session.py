"""`python -m bench.session`: one party in a process of its own, which prints what its runs cost as JSON: a line for
each point of a query, as soon as it has all runs of it.

Parties of other versions of Spark run it, and have nothing but PySpark.
"""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.measure import cpu_of, measured
from bench.party import PARTIES
from bench.workload import Point, Query, Workload


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.session", description=__doc__)
    parser.add_argument("party", choices=PARTIES)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", required=True)
    parser.add_argument("--query", type=Query, required=True, nargs="+")
    parser.add_argument("--runs", type=int, required=True)
    parser.add_argument("--tasks", type=int)
    parser.add_argument("--server", type=int, required=True, help="the S3 server's process")
    parser.add_argument("--prepare", action="store_true", help="prepare it only")
    asked = parser.parse_args()
    party = PARTIES[asked.party]
    module = importlib.import_module(party.module)
    for query in asked.query:
        workload = Workload.of(asked.size, asked.folder, query, asked.party, asked.tasks)
        if asked.prepare:
            for at in workload.all:
                getattr(module, party.prepare or "")(at)
        else:
            for point in _run(getattr(module, party.function), workload, asked.runs, asked.server):
                print(json.dumps({"query": query, **point}), flush=True)


def _run(session: Any, workload: Workload, asked: int, server: int) -> Iterator[Mapping[str, Any]]:
    """The first run counts from the start of the process."""
    runs = list(workload.runs(asked))
    last = {at.point: number for number, (_, at) in enumerate(runs)}
    costs: dict[Point, list[Mapping[str, Any]]] = {point: [] for point in last}
    with ExitStack() as ends:
        for number, (stretch, at) in enumerate(runs):
            before = cpu_of(server)
            with measured(since_start=number == 0) as cost:
                if number == 0:
                    run = ends.enter_context(session(workload))
                look = run(number, at)
            costs[at.point].append({"stretch": stretch, **asdict(cost), "server": cpu_of(server) - before})
            if number == last[at.point]:
                yield {"point": at.point.name, "runs": costs[at.point], **asdict(look())}


if __name__ == "__main__":
    main()
