"""`python -m bench.ageing`: what a batch costs after many others.

It starts an S3 server and runs small batches of one pipeline one after the other, by the local runner in this process.
It shows some of them: CPU seconds of this process and of the server, its requests, and the number of objects. Of the
last batch it shows what each request was for.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.asked import STORE, SUBJECTS, Asked, Request, by_subject, counted, in_words, land_views
from bench.measure import cpu_of
from bench.running_totals import PARTITIONS, pipeline
from coset.batches import steps
from coset.batches.interpreter import run_batch, silently
from coset.batches.runners.local import Local
from coset.cli.output import Table, show
from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.stores import store_at
from partitioning.hashes import placement_hash

RECORDS = 400
SHOWN = (1, 2, 5, 10, 20, 21, 50, 100, 200, 300, 400, 500, 1000)
# Figures are means over this many batches, because single ones differ: one writes a checkpoint, another does not.
MEAN_OF = 5


@dataclass(frozen=True, slots=True)
class Figures:
    """CPU seconds of planning, of the rest of a batch, and of the S3 server meanwhile, and the requests of both."""

    plan: float
    rest: float
    server: float
    requests: Counter[Request]


def batch(number: int, s3: Asked, docs: Path, of: Pipeline = pipeline) -> Figures:
    """Land some records and publish them."""
    land(number)
    s3.since()
    server = s3.server.process.pid
    before, begun = cpu_of(server), cpu_of(os.getpid())
    ref, said = steps.take_up(of, STORE)
    assert ref is not None, said
    planned = cpu_of(os.getpid())
    with Local(processes=1) as runner:
        run_batch(ref, runner, docs, silently, show_page=lambda _: None)
    return Figures(planned - begun, cpu_of(os.getpid()) - planned, cpu_of(server) - before, s3.since())


def main() -> int:
    """Run the batches and show the figures of some."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=100, help="so many batches are run")
    asked = parser.parse_args()
    with counted() as s3, TemporaryDirectory() as folder:
        _compare(asked.batches, s3, Path(folder) / "docs")
    return 0


def _compare(batches: int, s3: Asked, docs: Path) -> None:
    rows, last = [], list[Figures]()
    for number in range(batches):
        last = [*last[1 - MEAN_OF :], batch(number, s3, docs)]
        if number + 1 in SHOWN:
            means = (sum(getattr(one, name) for one in last) / len(last) for name in ("plan", "rest", "server"))
            objects = sum(1 for _ in store_at(STORE).list(""))
            requests = sum(one.requests.total() for one in last) / len(last)
            rows.append((f"{number + 1:,}", *(f"{mean:.2f}" for mean in means), f"{requests:,.0f}", f"{objects:,}"))
    columns = ("batches", "plan, CPU s", "all else, CPU s", "S3 server, CPU s", "requests", "objects")
    show(Table(f"{RECORDS} records a batch; means of the last {MEAN_OF}", columns, rows))
    of = last[-1].requests
    show(Table(f"Requests of the last batch: {in_words(of)}", SUBJECTS, by_subject(of)))


def land(number: int, records: int = RECORDS) -> None:
    """Land the files of a batch, each member's record in the partition of its key."""
    members = [f"m-{member}" for member in range(records)]
    for partition in range(PARTITIONS):
        mine = [member for member in members if placement_hash(member, "string") % PARTITIONS == partition]
        land_views(partition, number * len(mine), mine)


if __name__ == "__main__":
    raise SystemExit(main())
