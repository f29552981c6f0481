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
from bench.party import PARTIES
from bench.workload import Query, Workload


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.session", description=__doc__)
    parser.add_argument("party", choices=PARTIES)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", required=True)
    parser.add_argument("--query", type=Query, required=True, nargs="+")
    parser.add_argument("--runs", type=int, required=True)
    parser.add_argument("--tasks", type=int)
    parser.add_argument("--prepare", action="store_true", help="prepare it only")
    asked = parser.parse_args()
    party, found = PARTIES[asked.party], {}
    module = importlib.import_module(party.module)
    for query in asked.query:
        workload = Workload.of(asked.size, asked.folder, query, asked.party, asked.tasks)
        if asked.prepare:
            getattr(module, party.prepare or "")(workload)
        else:
            found[query] = _run(getattr(module, party.function), workload, workload.runs(asked.runs))
    print(json.dumps(found))


def _run(session: Any, workload: Workload, runs: int) -> Mapping[str, Any]:
    """The first run counts from the start of the process."""
    costs = []
    with ExitStack() as ends:
        with measured(since_start=True) as cost:
            run = ends.enter_context(session(workload))
            look = run(0)
        costs.append(cost)
        for number in range(1, runs):
            with measured() as cost:
                look = run(number)
            costs.append(cost)
        left = look()
    return {"runs": [asdict(cost) for cost in costs], **asdict(left)}


if __name__ == "__main__":
    main()
