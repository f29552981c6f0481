"""`python -m bench.upserts`: small batches upserted into a table of many keys, and what it costs to read it then.

The first batch has all keys; each of the others gives some of them newer rows. Coset writes partitions again
(`updates="rewrite"`) or rows beside the data (`updates="beside"`), Spark runs `MERGE INTO` a Delta table with deletion
vectors, PyIceberg runs `upsert`. Coset keeps state beside the table, and proves and checks each batch. Delta tables are
read by DuckDB and by Spark after the batches, and once more after their files were put together. All is done on the
local disk, each by a process of its own. With `--page` the figures go into that page.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.elsewhere import environment_of
from bench.figures import put, table
from bench.party import JARS
from bench.upserting import table_of
from coset.cli.output import Table, show
from demo.kafka_jars import jars_of
from partitioning.sections import size

_COMMAND = "python -m bench.upserts"
_ROOT = Path(__file__).parents[1]
# PyIceberg, and the last DuckDB whose extension for Delta is a package.
_PACKAGES = (
    "pyiceberg[pyarrow,sql-sqlite]==0.12.0",
    *(f"{name}==1.5.5" for name in ("duckdb", "duckdb-extensions", "duckdb-extension-delta")),
)
_FIRST = "coset-rewrite"
SYSTEMS = {
    _FIRST: "Coset, `rewrite`",
    "coset-beside": "Coset, `beside`",
    "delta": "Delta 4.4, Spark 4.2, `MERGE INTO`, vectors",
    "iceberg": "PyIceberg 0.12, `upsert`",
}
_TIDY = {_FIRST: "coset-compacted", "coset-beside": "coset-compacted", "delta": "delta-optimized"}
_READERS = {"duckdb-reads": "DuckDB", "spark-reads": "Spark"}
Line = Mapping[str, Any]


@dataclass
class Upserted:
    """What a system's batches took, and readings of its table, before and after its files were put together."""

    batches: Sequence[Line]
    readings: dict[str, list[Sequence[Line]]] = field(default_factory=dict)

    def of(self, figure: str) -> float:
        """The median of the batches after the first."""
        return float(median(batch[figure] for batch in self.batches[1:]))

    @property
    def rows(self) -> set[tuple[int, ...]]:
        """What readers found: the number of rows, and the sum of a column."""
        return {tuple(line["rows"]) for some in self.readings.values() for lines in some for line in lines}

    def reading(self, reader: str) -> str:
        """CPU and wall seconds before / after."""
        return " → ".join(
            f"{median(line['cpu'] for line in lines):.2f} / {median(line['wall'] for line in lines):.2f}"
            for lines in self.readings.get(reader, ())
        )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog=_COMMAND, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--changed", type=int, nargs="+", default=[10_000, 1_000], help="keys that a batch changes")
    parser.add_argument("--only", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), help="these systems only")
    parser.add_argument("--page", type=Path)
    asked, lines, same = parser.parse_args(arguments), list[str](), True
    for changed in asked.changed:
        with tempfile.TemporaryDirectory(prefix="coset-upserts-") as temp:
            files = list(files_made(Path(temp), asked.keys, asked.batches, changed))
            found = {name: upserted for name in asked.only if (upserted := _upserted(name, Path(temp, name), files))}
        head, *rows = figures(found, asked.only)
        title = f"{asked.batches} batches of {changed:,} of {asked.keys:,} keys"
        agree = len({found_rows for each in found.values() for found_rows in each.rows}) <= 1
        said = f"{title}; all readers found {'the same' if agree else 'OTHER'} rows"
        show(Table(said, head, rows))
        lines += [f"{said}:", "", *table(head, *rows), ""]
        same &= agree
    if asked.page:
        put(
            asked.page,
            _COMMAND,
            [*lines, f"{os.cpu_count()} cores, with a load of {os.getloadavg()[0]:.1f} at the end"],
        )
    return 0 if same else 1


def packages() -> Path:
    """The Python that has PyIceberg, and DuckDB with its extension for Delta."""
    return environment_of("pyiceberg-0.12.0-duckdb-1.5.5", *_PACKAGES)


def delta_jars() -> Path:
    """The folder with the jars of Delta for Spark."""
    return jars_of(Path(__file__).with_name("delta.pom.xml"))


def files_made(folder: Path, keys: int, batches: int, changed: int) -> Iterator[Path]:
    """A file of all keys, and one of some for each batch."""
    random = np.random.default_rng(changed)
    for number in range(1 + batches):
        users = np.sort(random.choice(keys, min(changed, keys), replace=False)) if number else np.arange(keys)
        file = folder / f"{number}.parquet"
        columns = {
            "user": pa.array(np.char.add("user-", users.astype("U10")).tolist()),
            "seen": np.full(len(users), number),
            "amount": random.integers(0, 1_000_000, len(users)),
            "name": pa.array([f"name of {user} as of {number}" for user in users.tolist()]),
        }
        pq.write_table(pa.table(columns), file)
        yield file


def _upserted(name: str, folder: Path, files: Sequence[Path]) -> Upserted | None:
    """What a system does with all batches; None, and why on the screen, if it fails."""
    folder.mkdir()
    try:
        lines = _run(name, folder, *files)
        made = Upserted([line for line in lines if "reads" not in line])
        if name not in _TIDY:
            made.readings[name] = [[line for line in lines if "reads" in line][1:]]
            return made
        for tidied in (False, True):
            if tidied:
                _run(_TIDY[name], folder)
            for reader in _READERS:
                made.readings.setdefault(reader, []).append(_run(reader, table_of(name, folder))[1:])
    except subprocess.CalledProcessError as error:
        print(f"{SYSTEMS[name]} failed: {' '.join(map(str, error.cmd))}", file=sys.stderr)
        return None
    return made


def _run(what: str, folder: Path, *files: Path) -> list[Line]:
    elsewhere = what in {"iceberg", "duckdb-reads"}
    python = packages() if elsewhere else Path(sys.executable)
    variables = {**os.environ, "PYTHONPATH": str(_ROOT)}
    if what in {"delta", "delta-optimized", "spark-reads"}:
        variables[JARS] = str(delta_jars())
    command = [*map(str, (python, "-m", "bench.upserting", what, folder, *files))]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=variables, check=True)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def figures(found: Mapping[str, Upserted], asked: Sequence[str]) -> Iterator[Sequence[str]]:
    """A row for what the columns are, and one for each system."""
    reads = [f"read by {name}, CPU / wall s, then tidied" for name in _READERS.values()]
    yield "a batch", "written", "to the table", "CPU s", "wall s", "bytes ×", "CPU ×", *reads
    first = found.get(_FIRST)
    for name in asked:
        if (each := found.get(name)) is None:
            yield SYSTEMS[name], "failed", *(7 * ("",))
            continue
        times = [f"{each.of(of) / first.of(of):.3f}" if first else "" for of in ("written", "cpu")]
        readings = [each.reading(reader) for reader in _READERS]
        if name not in _TIDY:
            readings = [f"{each.reading(name)} (by itself)", ""]
        sizes = size(round(each.of("written"))), size(round(each.of("table")))
        yield SYSTEMS[name], *sizes, f"{each.of('cpu'):.2f}", f"{each.of('wall'):.2f}", *times, *readings


if __name__ == "__main__":
    sys.exit(main())
