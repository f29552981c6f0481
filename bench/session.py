"""`python -m bench.session`: one party in a process of its own, which prints what its runs cost as JSON.

Parties of other versions of Spark run it, and have nothing but PySpark.
"""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.measure import measured
from bench.party import PARTIES, Party
from bench.workload import Query, Workload


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.session", description=__doc__)
    parser.add_argument("party", choices=PARTIES)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", required=True)
    parser.add_argument("--query", type=Query, required=True)
    parser.add_argument("--runs", type=int, required=True)
    parser.add_argument("--tasks", type=int)
    parser.add_argument("--prepare", action="store_true", help="prepare it only")
    asked = parser.parse_args()
    workload = Workload.of(asked.size, asked.folder, asked.query, asked.tasks)
    party = PARTIES[asked.party]
    if asked.prepare:
        getattr(importlib.import_module(party.module), party.prepare or "")(workload)
    else:
        print(json.dumps(_run(party, workload, asked.runs)))


def _run(party: Party, workload: Workload, runs: int) -> Mapping[str, Any]:
    """The first run counts from the start of the process."""
    costs = []
    with ExitStack() as ends:
        with measured(since_start=True) as cost:
            run = ends.enter_context(getattr(importlib.import_module(party.module), party.function)(workload))
            files, shuffled = run(0)
        costs.append(cost)
        for number in range(1, runs):
            with measured() as cost:
                files, shuffled = run(number)
            costs.append(cost)
    return {"runs": [asdict(cost) for cost in costs], "shuffled": shuffled, "files": files}


if __name__ == "__main__":
    main()
