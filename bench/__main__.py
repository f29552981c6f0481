"""`python -m bench`: make the workload once, run every party cold and warm, compare costs and results.

Coset reads and writes an S3 server on this machine, whose own cost is shown apart; the others read the same
files from the local disk. Processor time is that of all processes of a party, warm is the median of all
runs but the first. To reach: warm and with its proof, Coset takes at most 1/5 of plain PySpark's processor
time and 1.5 times that of DuckDB alone, and shuffles nothing. The proof costs at most 20 % of the same run
without it, in processor time and in wall time, with `--tasks 100` too.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from bench.measure import cpu_of, measured
from bench.party import PARTIES
from bench.workload import Workload
from coset.batches.runners.spark_settings import environment
from coset.cli.output import console
from coset.sources.s3 import s3_filesystem, split
from demo.s3_server import start_server

_FOLDER = Path(".coset/bench")
# What the proof may cost, of the same run without it.
_PROOF = 0.2
_CHECKSUMS = """
    SELECT count(*), sum(views), sum(viewed), sum(clicks), sum(clicked),
           bit_xor(hash(key, views::BIGINT, viewed::BIGINT, clicks::BIGINT, clicked::BIGINT))
    FROM result
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--size", choices=("full", "small"), default="full")
    parser.add_argument(
        "--runs", type=int, default=4, help="runs of each party, two or more; the first is the cold one"
    )
    parser.add_argument("--json", action="store_true", help="print the figures for machines")
    parser.add_argument("--only", nargs="+", choices=PARTIES, default=list(PARTIES), help="these parties only")
    parser.add_argument("--tasks", type=int, help="run so many tasks of Coset; by default, one for each coset")
    parser.add_argument("--party", choices=PARTIES, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    workload = Workload.of(asked.size, _FOLDER.resolve(), asked.tasks)
    if asked.party:
        print(json.dumps(_run(asked.party, workload, asked.runs)))
        return 0
    to = console(stderr=asked.json)
    with to.status("making the workload") as status:
        workload.make()
        server = start_server(workload.folder / "s3", ("landing", "coset"))
        try:
            os.environ.update({**server.environment, **environment(sys.executable)})
            workload.upload()
            # Otherwise receipts of an earlier benchmark would be audited in place of the new ones.
            s3_filesystem().delete_dir_contents("coset")
            figures = {}
            for party in asked.only:
                status.update(f"running {PARTIES[party][0]}")
                figures[party] = _measure(party, asked, server.process.pid)
        finally:
            server.stop()
    if asked.json:
        print(json.dumps(figures))
    _show(to, figures)
    return 0 if len({tuple(party["checksums"]) for party in figures.values()}) == 1 else 1


def _run(party: str, workload: Workload, runs: int) -> Mapping[str, Any]:
    """Run a party in this process; the first run counts from the start of the process."""
    _, module, function = PARTIES[party]
    with measured(since_start=True) as cold:
        session = getattr(importlib.import_module(module), function)(workload)
        run = session.__enter__()
        files, shuffled = run(0)
    costs = [cold]
    for number in range(1, runs):
        with measured() as cost:
            files, shuffled = run(number)
        costs.append(cost)
    session.__exit__(None, None, None)
    return {"runs": [asdict(cost) for cost in costs], "shuffled": shuffled, "files": files}


def _measure(party: str, asked: argparse.Namespace, server: int) -> dict[str, Any]:
    before = cpu_of(server)
    command = [sys.executable, "-m", "bench", "--party", party, "--size", asked.size, "--runs", str(asked.runs)]
    command += ["--tasks", str(asked.tasks)] if asked.tasks else []
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, Any] = json.loads(done.stdout.strip().rpartition("\n")[2])
    figures["server"] = (cpu_of(server) - before) / asked.runs
    figures["checksums"] = _checksums(figures.pop("files"))
    return figures


def _checksums(files: Sequence[str]) -> list[int]:
    tables = [
        pq.read_table("/".join(split(file)), filesystem=s3_filesystem())
        if file.startswith("s3://")
        else pq.read_table(file)
        for file in files
    ]
    with duckdb.connect() as connection:
        names = "key, views, viewed, clicks, clicked"
        for number, table in enumerate(tables):
            connection.register(f"part{number}", table)
        parts = " UNION ALL ".join(f"SELECT {names} FROM part{number}" for number in range(len(tables)))
        connection.execute(f"CREATE VIEW result AS {parts}")
        (row,) = connection.execute(_CHECKSUMS).fetchall()
    return [int(value) for value in row]


def _show(to: Console, figures: Mapping[str, Mapping[str, Any]]) -> None:
    """The table of all parties, and the targets."""
    table = Table(title="CPU seconds of all processes / wall seconds")
    for name in ("party", "cold", "warm", "peak memory", "shuffled", "S3 server", "warm CPU × Coset's"):
        table.add_column(name, justify="left" if name == "party" else "right")
    warm = {party: median(run["cpu"] for run in costs["runs"][1:]) for party, costs in figures.items()}
    for party, costs in figures.items():
        first, *rest = costs["runs"]
        table.add_row(
            PARTIES[party][0],
            f"{first['cpu']:.1f} / {first['wall']:.1f}",
            f"{warm[party]:.2f} / {median(run['wall'] for run in rest):.2f}",
            f"{max(run['memory'] for run in costs['runs']) / 2**20:,.0f} MiB",
            f"{costs['shuffled'] / 2**20:,.0f} MiB",
            f"{costs['server']:.1f}",
            f"{warm[party] / warm['coset']:.2f}" if "coset" in warm else "",
        )
    to.print(table)
    rows, *_ = (costs["checksums"] for costs in figures.values())
    same = len({tuple(party["checksums"]) for party in figures.values()}) == 1
    to.print(f"results: {rows[0]:,} rows each, " + ("all the same" if same else "they DIFFER"))
    if {"coset", "coset-unproved"} <= set(warm):
        _judge_proof(to, figures)
    if set(PARTIES) <= set(warm):
        _judge(to, warm, figures["coset"]["shuffled"])


def _judge_proof(to: Console, figures: Mapping[str, Mapping[str, Any]]) -> None:
    for what, figure in (("processor", "cpu"), ("wall", "wall")):
        proved, unproved = (
            median(run[figure] for run in figures[party]["runs"][1:]) for party in ("coset", "coset-unproved")
        )
        share = proved / unproved - 1
        to.print(
            f"{_verdict(share <= _PROOF)}: the proof costs {share:.0%} of the {what} time without it, to reach 20%"
        )


def _judge(to: Console, warm: Mapping[str, float], shuffled: int) -> None:
    for what, figure, most in (
        ("of plain PySpark's CPU", warm["coset"] / warm["pyspark"], 0.2),
        ("times the CPU of DuckDB in one process", warm["coset"] / warm["duckdb"], 1.5),
        ("times the CPU of DuckDB with cosets dealt to processes by hand", warm["coset"] / warm["duckdb-cosets"], 1.5),
        ("bytes shuffled", shuffled, 0),
    ):
        to.print(f"{_verdict(figure <= most)}: Coset with its proof, warm: {figure:.2f} {what}, to reach {most}")


def _verdict(reached: bool) -> str:
    return "reached" if reached else "MISSED"


if __name__ == "__main__":
    sys.exit(main())
