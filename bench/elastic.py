"""`python -m bench.elastic`: the workload's query by more and more tasks that share stream partitions (`elastic(F)`).

Each runs three times in processes of this machine, without Spark, its audit included; the median counts. To reach: four
times the tasks cost at most 1.5 times the processor time, and eight times at most 2.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from statistics import median

from rich.table import Table

from bench.making import make, pipeline_for, upload
from bench.measure import measured
from bench.workload import Workload
from coset.batches import audit
from coset.batches.runners.local import Local
from coset.batches.steps import plan
from coset.cli.output import console
from coset.sources.s3 import s3_filesystem
from demo.s3_server import start_server
from partitioning.authoring.settings import Settings
from partitioning.model.shared_reads import read_together

_FOLDER = Path(".coset/bench")
_FACTORS = {1: None, 4: 1.5, 8: 2.0}
_RUNS = 3


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.elastic", description=__doc__)
    parser.add_argument("--size", choices=("full", "small"), default="full")
    workload = Workload.of(parser.parse_args().size, _FOLDER.resolve())
    make(workload)
    to = console(stderr=False)
    table = Table(title="CPU seconds of all processes / wall seconds")
    for name in ("tasks", "pieces", "median", "times that of F = 1", "to reach"):
        table.add_column(name, justify="right")
    server = start_server(workload.folder / "s3", ("landing", "coset"))
    try:
        os.environ.update(server.environment)
        upload(workload)
        s3_filesystem().delete_dir_contents("coset")
        first = None
        for factor, most in _FACTORS.items():
            tasks, pieces, cpu, wall = _measure(factor)
            first = first or cpu
            reach = "" if most is None else f"{most}: {'reached' if cpu <= most * first else 'MISSED'}"
            table.add_row(str(tasks), str(pieces), f"{cpu:.2f} / {wall:.2f}", f"{cpu / first:.2f}", reach)
    finally:
        server.stop()
    to.print(table)
    return 0


def _measure(factor: int) -> tuple[int, int, float, float]:
    """The number of tasks, the number of pieces of work, and the cost of a run."""
    ref, _ = plan(pipeline_for(), f"s3://coset/elastic-{factor}", Settings.parse(scheme=f"elastic({factor})", groups=1))
    assert ref is not None
    ledger, planned = ref.load()
    costs = []
    with Local(processes=2) as runner:
        for number in range(_RUNS):
            with measured() as cost:
                runner.group(ref, 0)
                coverage = audit.audit(ledger, planned, number).coverage
            assert (coverage["digest_found"] == coverage["digest_planned"]).all()
            ledger.close_attempt(planned.batch, number, b"{}")
            costs.append(cost)
    (group,) = planned.groups
    pieces = len(read_together(planned, group))
    return len(group.tasks), pieces, median(cost.cpu for cost in costs), median(cost.wall for cost in costs)


if __name__ == "__main__":
    sys.exit(main())
