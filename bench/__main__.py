"""`python -m bench`: every party that can answers each query, cold and warm; costs and results are compared.

The queries: `counted`, a cogrouped aggregate of 10 and 5 million records; `in-time`, a join of the same in a window;
`merged`, 900,000 placed and 100,000 re-keyed records; `elastic`, the first by 2, 4 and 8 times as many tasks; `hot` and
`hot-joined`, a key with 40 % of the records; `batches`, 50 small batches with totals that go on; `rescaled`, totals of
ten million keys by another number of tasks; `changing` and `changing-joined`, the newest records of a million keys,
alone and joined with totals, summed by 200 teams over small batches; `by-records`, the first of up to 100 million views
and half as many clicks; `by-share`, as `hot` by the share of one key.

Coset reads and writes an S3 server on this machine, whose own cost is shown apart; the others read the same files from
the local disk. Processor time is that of all processes of a party; the median of some runs counts. What is to be
reached (`bench/targets.py`) is said below each table. With `--page` the figures that decide and the
missed targets go into that page, and plots beside it; those of queries that are not asked stay there. Without `--query`
those are asked for which it has a place.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from bench.elsewhere import python_of, variables_of
from bench.figures import Answers, compared, place, put, table, tables
from bench.making import make
from bench.party import PARTIES, emptied
from bench.plots import plots
from bench.targets import verdicts
from bench.workload import Query, Workload
from coset.cli.output import console
from coset.sources.s3 import s3_filesystem, split
from demo.s3_server import served

_FOLDER = Path(".coset/bench")
COMMAND = "python -m bench"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog=COMMAND, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--size",
        choices=("full", "small"),
        default="full",
        help="small: try all of it out, in a process for each party",
    )
    parser.add_argument(
        "--runs", type=int, default=3, help="runs of each party, two or more; the first is the cold one"
    )
    parser.add_argument("--json", action="store_true", help="print the figures for machines")
    parser.add_argument("--only", nargs="+", choices=PARTIES, default=list(PARTIES), help="these parties only")
    parser.add_argument("--query", type=Query, choices=list(Query), nargs="+", help="these only")
    parser.add_argument("--tasks", type=int, help="run so many tasks of Coset; by default, one for each coset")
    parser.add_argument("--page", type=Path)
    asked = parser.parse_args(arguments)
    page = asked.page.read_text() if asked.page else None
    asked.query = asked.query or [query for query in Query if page is None or place(_of(query)) in page]
    to = console(stderr=asked.json)
    found = _of_all(to, asked)
    if asked.json:
        print(json.dumps({query: vars(answers) for query, answers in found.items()}))
    for query, answers in found.items():
        for title, (head, *rows) in tables(answers).items():
            shown = Table(title=f"{query}: {query.asks}\n{title}")
            for name in head:
                shown.add_column(name, justify="left" if name == "party" else "right")
            for row in rows:
                shown.add_row(*row)
            to.print(shown)
        to.print(*verdicts(answers), sep="\n")
        if asked.page:
            put(asked.page, _of(query), on_page(answers, asked.page))
    return 0 if all(answers.same and answers.all_answered for answers in found.values()) else 1


def _of(query: Query) -> str:
    """The command that finds the figures of a query."""
    return f"{COMMAND} --query {query}"


def _of_all(to: Console, asked: argparse.Namespace) -> dict[Query, Answers]:
    """The answers to each query."""
    folder, found = _FOLDER.resolve(), {query: Answers(query, asked.size) for query in asked.query}
    # Only a process that answers one query can be cold.
    together = [asked.query] if asked.size == "small" else [[query] for query in asked.query]
    # Batches of an earlier benchmark would go on.
    stored = emptied(folder / asked.size / "s3")
    with to.status("") as status, served(stored, ("landing", "coset")) as server:
        for queries in together:
            for query in queries:
                status.update(f"making records of {query}")
                for workload in Workload.of(asked.size, folder, query).all:
                    make(workload)
            for party in asked.only:
                some = [query for query in queries if query in PARTIES[party].answers]
                if some:
                    status.update(f"{', '.join(queries)}: {PARTIES[party].title}")
                    for query, points in _measured(party, some, asked, server.process.pid).items():
                        found[query].parties[party] = points
            for query in queries:
                if query is Query.BY_RECORDS:
                    _forget(Workload.of(asked.size, folder, query))
    shutil.rmtree(stored)
    return found


def _forget(workload: Workload) -> None:
    """Remove what is too large to be kept: records and results."""
    for folder in (workload.folder / workload.query.data, workload.folder / "results" / workload.query):
        shutil.rmtree(folder, ignore_errors=True)


def _measured(
    name: str, queries: Sequence[Query], asked: argparse.Namespace, server: int
) -> Mapping[Query, dict[str, Any]]:
    """What a party's runs of some queries cost and left, by query and point. It may lack memory for all records."""
    party, folder = PARTIES[name], _FOLDER.resolve()
    command = [python_of(party), "-m", "bench.session", name, str(folder), "--size", asked.size]
    command += ["--runs", str(asked.runs), "--server", str(server), "--query", *queries]
    command += ["--tasks", str(asked.tasks)] if asked.tasks else []
    variables = variables_of(party)
    if party.prepare:
        subprocess.run([*command, "--prepare"], env=variables, stdout=subprocess.DEVNULL, check=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=variables, check=False)
    if queries != [Query.BY_RECORDS]:
        done.check_returncode()
    found: dict[Query, dict[str, Any]] = {query: {} for query in queries}
    for line in done.stdout.splitlines():
        if line.startswith('{"query"'):
            left = json.loads(line)
            query, point, files = Query(left.pop("query")), left.pop("point"), left.pop("files")
            found[query][point] = {**left, "checksums": _checksums(query, files)}
    return found


def _checksums(query: Query, files: Sequence[str]) -> list[int]:
    """The number of rows, the sum of each figure, and a digest of all rows. Of totals that go on, the last row of a key
    counts; no figure of it is ever smaller than before."""
    key, *figures = query.columns
    with duckdb.connect() as connection:
        for number, file in enumerate(files):
            remote = file.startswith("s3://")
            read = pq.read_table("/".join(split(file)), filesystem=s3_filesystem()) if remote else pq.read_table(file)
            connection.register(f"part{number}", read)
        answer = " UNION ALL ".join(f"SELECT {', '.join(query.columns)} FROM part{n}" for n in range(len(files)))
        if query.arrives and not query.changes:
            answer = f"SELECT {key}, {', '.join(f'max({n}) AS {n}' for n in figures)} FROM ({answer}) GROUP BY {key}"
        sums, hashed = (", ".join(each.format(name) for name in figures) for each in ("sum({})", "{}::BIGINT"))
        (row,) = connection.execute(
            f"SELECT count(*), {sums}, bit_xor(hash({key}, {hashed})) FROM ({answer})"
        ).fetchall()
    return [int(value) for value in row]


def on_page(answers: Answers, page: Path) -> Iterator[str]:
    """The figures that decide, and each target that was missed; the terminal has all."""
    same, *targets = verdicts(answers)
    missed = [target for target in targets if not target.startswith("reached")]
    yield from (f"## `{answers.query}`: {answers.query.asks}", "", *table(*compared(answers)), "")
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    yield f"- {same}; {load}; {len(targets) - len(missed)} of {len(targets)} targets reached"
    yield from (f"- {line}" for line in missed)
    yield from plots(answers, page)


if __name__ == "__main__":
    sys.exit(main())
