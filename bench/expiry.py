"""`python -m bench.expiry`: what it costs that keys expire, of a million keys of running totals.

Without `keep=`, with it while none expires, and with it when one key in a hundred does, whose rows are given. The first
batch has all keys, the other ten thousand. In one process, without Spark, from and to a folder; with the proof and the
checks of Great Expectations.
"""

from __future__ import annotations

import argparse
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.table import Table

from bench.changed_state import run_whole, written
from bench.measure import measured
from coset.cli.output import console
from coset.sources.landing import land_rows
from partitioning.authoring.pipeline import Pipeline

_PARTITIONS, _TOUCHED, _HOUR = 8, 10_000, timedelta(hours=1)
_COLUMNS = "sum(n)::BIGINT AS n, max(seen) AS seen"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.expiry", description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    keys = parser.parse_args().keys
    table = Table(title=f"Running totals of {keys:,} keys")
    for name in ("", "CPU s", "wall s", "state written"):
        table.add_column(name, justify="left" if not name else "right")
    for keep, what in ((None, "no keep="), (3 * _HOUR, "none expires"), (_HOUR, "1 % expires")):
        with tempfile.TemporaryDirectory() as temp:
            pipeline = _pipeline(Path(temp), {} if keep is None else {"time": "seen", "keep": keep})
            for batch in range(2):
                land_rows(pipeline.streams[0], _records(batch, keys), "rows")
                with measured() as cost:
                    ref = run_whole(pipeline, Path(temp))
                name = f"{what}: {f'{_TOUCHED:,}' if batch else 'all'} keys"
                table.add_row(name, f"{cost.cpu:.1f}", f"{cost.wall:.1f}", written(ref))
    console(stderr=False).print(table)
    return 0


def _records(batch: int, keys: int) -> pa.Table:
    """Of the first batch, one key in a hundred is two hours older than the others."""
    random = np.random.default_rng(batch)
    users = random.integers(0, keys, _TOUCHED) if batch else np.arange(keys)
    seconds = np.where((users % 100 == 0) & (batch == 0), 0, 7_200)
    named = pa.array(np.char.add("user-", users.astype("U8")).tolist())
    return pa.table({"user": named, "seen": pa.array(seconds * 10**6, pa.timestamp("us"))})


def _pipeline(folder: Path, more: dict[str, Any]) -> Pipeline:
    pipeline = Pipeline("totals", source=folder / "topics")
    records = pipeline.stream("a", key="user", partitions=_PARTITIONS, time="seen").select("1::BIGINT AS n, seen")
    totals = records.combine(_COLUMNS, running=True, name="totals", **more)
    totals.write("totals")
    if more:
        totals.expired(name="ended").write("ended")
    return pipeline


if __name__ == "__main__":
    raise SystemExit(main())
