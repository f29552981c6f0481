"""`python -m bench`: every party answers each query over one workload, cold and warm; costs and results are compared.

Coset reads and writes an S3 server on this machine, whose own cost is shown apart; the others read the same files from
the local disk. Processor time is that of all processes of a party, warm is the median of all runs but the first.
To reach: warm and with its proof, Coset takes at most 1/5 of plain PySpark's processor time, 1/2 of Comet's, 1/4 of
Iceberg's and 1.5 times that of DuckDB alone, and shuffles nothing. The proof costs at most 20 % of the same run without
it, in processor time and in wall time, with `--tasks 100` too. With `--page` the figures go into that page.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from bench.elsewhere import python_of, variables_of
from bench.making import make, upload
from bench.measure import cpu_of
from bench.page_figures import put
from bench.party import PARTIES
from bench.workload import Query, Workload
from coset.cli.output import console
from coset.sources.s3 import s3_filesystem, split
from demo.s3_server import start_server

_FOLDER = Path(".coset/bench")
# What the proof may cost, of the same run without it.
_PROOF = 0.2
# At most so many times a party's processor time may Coset take with its proof.
_MOST = {"pyspark": 0.2, "comet": 0.5, "iceberg": 0.25, "duckdb": 1.5, "duckdb-cosets": 1.5}
_TITLES = ("party", "cold", "warm", "peak memory", "shuffled", "S3 server", "warm CPU × Coset's")
Figures = Mapping[str, Mapping[str, Any]]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--size", choices=("full", "small"), default="full")
    parser.add_argument(
        "--runs", type=int, default=4, help="runs of each party, two or more; the first is the cold one"
    )
    parser.add_argument("--json", action="store_true", help="print the figures for machines")
    parser.add_argument("--only", nargs="+", choices=PARTIES, default=list(PARTIES), help="these parties only")
    parser.add_argument("--query", type=Query, choices=list(Query), nargs="+", default=list(Query), help="these only")
    parser.add_argument("--tasks", type=int, help="run so many tasks of Coset; by default, one for each coset")
    parser.add_argument("--page", type=Path)
    asked = parser.parse_args()
    to = console(stderr=asked.json)
    found = {query: figures for query, figures in _of_all(to, asked)}
    if asked.json:
        print(json.dumps(found))
    for query, figures in found.items():
        _show(to, query, figures)
    if asked.page:
        put(asked.page, "python -m bench", _on_page(found))
    return 0 if all(_same(figures) for figures in found.values()) else 1


def _of_all(to: Console, asked: argparse.Namespace) -> Iterator[tuple[Query, Figures]]:
    """The figures of each query."""
    first = Workload.of(asked.size, _FOLDER.resolve())
    with to.status("making the workload") as status:
        make(first)
        server = start_server(first.folder / "s3", ("landing", "coset"))
        try:
            os.environ.update(server.environment)
            upload(first)
            for query in asked.query:
                # Otherwise receipts of an earlier benchmark would be audited in place of the new ones.
                s3_filesystem().delete_dir_contents("coset")
                figures = {}
                for party in asked.only:
                    status.update(f"running {PARTIES[party].title}")
                    figures[party] = _measure(party, query, asked, server.process.pid)
                yield query, figures
        finally:
            server.stop()


def _measure(name: str, query: Query, asked: argparse.Namespace, server: int) -> dict[str, Any]:
    party = PARTIES[name]
    command = [python_of(party), "-m", "bench.session", name, str(_FOLDER.resolve())]
    command += ["--size", asked.size, "--query", query, "--runs", str(asked.runs)]
    command += ["--tasks", str(asked.tasks)] if asked.tasks else []
    variables = variables_of(party)
    if party.prepare:
        subprocess.run([*command, "--prepare"], env=variables, check=True)
    before = cpu_of(server)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=variables, check=True)
    figures: dict[str, Any] = json.loads(done.stdout.strip().rpartition("\n")[2])
    figures["server"] = (cpu_of(server) - before) / asked.runs
    figures["checksums"] = _checksums(query, figures.pop("files"))
    return figures


def _checksums(query: Query, files: Sequence[str]) -> list[int]:
    """The number of rows, the sum of each figure, and a digest of all rows."""
    tables = [
        pq.read_table("/".join(split(file)), filesystem=s3_filesystem())
        if file.startswith("s3://")
        else pq.read_table(file)
        for file in files
    ]
    key, *named = query.columns
    sums, hashed = (", ".join(each.format(name) for name in named) for each in ("sum({})", "{}::BIGINT"))
    with duckdb.connect() as connection:
        for number, table in enumerate(tables):
            connection.register(f"part{number}", table)
        columns = ", ".join(query.columns)
        parts = " UNION ALL ".join(f"SELECT {columns} FROM part{number}" for number in range(len(tables)))
        (row,) = connection.execute(
            f"SELECT count(*), {sums}, bit_xor(hash({key}, {hashed})) FROM ({parts})"
        ).fetchall()
    return [int(value) for value in row]


def _show(to: Console, query: Query, figures: Figures) -> None:
    """The table of all parties, and the targets."""
    table = Table(title=f"{query.asks}\nCPU seconds of all processes / wall seconds")
    for name in _TITLES:
        table.add_column(name, justify="left" if name == "party" else "right")
    for row in _rows(figures):
        table.add_row(*row)
    to.print(table)
    for line in _verdicts(figures):
        to.print(line)


def _on_page(found: Mapping[Query, Figures]) -> Iterator[str]:
    """The same for a page."""
    yield f"{os.cpu_count()} cores, with a load of {os.getloadavg()[0]:.1f} when they ended."
    yield ""
    for query, figures in found.items():
        yield from (f"**{query.asks}**", "")
        yield f"| {' | '.join(_TITLES)} |"
        yield f"| --- |{' ---: |' * (len(_TITLES) - 1)}"
        yield from (f"| {' | '.join(row)} |" for row in _rows(figures))
        yield ""
        yield from (f"- {line}" for line in _verdicts(figures))
        yield ""


def _rows(figures: Figures) -> Iterator[tuple[str, ...]]:
    for party, costs in figures.items():
        first, *_ = costs["runs"]
        warm = _warm(costs, "cpu")
        yield (
            PARTIES[party].title,
            f"{first['cpu']:.1f} / {first['wall']:.1f}",
            f"{warm:.2f} / {_warm(costs, 'wall'):.2f}",
            f"{max(run['memory'] for run in costs['runs']) / 2**20:,.0f} MiB",
            f"{costs['shuffled'] / 2**20:,.0f} MiB",
            f"{costs['server']:.1f}",
            f"{warm / _warm(figures['coset'], 'cpu'):.2f}" if "coset" in figures else "",
        )


def _verdicts(figures: Figures) -> Iterator[str]:
    rows, *_ = (costs["checksums"] for costs in figures.values())
    yield f"results: {rows[0]:,} rows each, " + ("all the same" if _same(figures) else "they DIFFER")
    if "coset" not in figures:
        return
    coset = figures["coset"]
    if "coset-unproved" in figures:
        for what, figure in (("processor", "cpu"), ("wall", "wall")):
            share = _warm(coset, figure) / _warm(figures["coset-unproved"], figure) - 1
            yield _verdict(share <= _PROOF, f"the proof costs {share:.0%} of the {what} time without it, to reach 20%")
    for party, most in _MOST.items():
        if party in figures:
            share = _warm(coset, "cpu") / _warm(figures[party], "cpu")
            yield _verdict(share <= most, f"{share:.2f} times the CPU of {PARTIES[party].title}, warm, to reach {most}")
    yield _verdict(coset["shuffled"] == 0, f"Coset shuffles {coset['shuffled']} bytes, to reach 0")


def _warm(costs: Mapping[str, Any], figure: str) -> float:
    return float(median(run[figure] for run in costs["runs"][1:]))


def _same(figures: Figures) -> bool:
    return len({tuple(party["checksums"]) for party in figures.values()}) == 1


def _verdict(reached: bool, what: str) -> str:
    return f"{'reached' if reached else 'MISSED'}: {what}"


if __name__ == "__main__":
    sys.exit(main())
