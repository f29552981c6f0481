"""`python -m bench.scheduled`: what a DAG of many mapped copies takes under Airflow's scheduler.

Airflow's parts are those of `tests/airflow_parts.py`: two schedulers that run tasks in processes of their own, over
PostgreSQL. Each copy is a task group whose only task reads four records, as a job of a Spark server on this machine. It
shows when each kind of task ran, and the processor seconds and the memory of each part of Airflow with all that it
started.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from sqlalchemy import create_engine, text

from bench.asked import BUCKET, STORE
from bench.measure import cpu_of_all, memory_of_all
from bench.scale import land
from coset.batches.runners.spark_server import start_spark
from coset.cli.output import Table, show
from demo.s3_server import served
from tests.airflow_parts import ROOT, Parts, airflow_parts
from tests.postgres import postgres

DAG = "scale"
_FILE = '''"""Airflow: the DAG whose copies are counted."""

from bench.scale import pipeline
from coset import Settings
from coset.airflow import coset_dag

dag = coset_dag(pipeline({groups}), settings=Settings(groups={groups}), max_active_tasks={slots})
'''
_TASKS = """
    SELECT task_id, count(*), min(start_date), max(end_date),
           percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM end_date - start_date)),
           max(try_number)
    FROM task_instance WHERE start_date IS NOT NULL GROUP BY task_id ORDER BY 3
"""
_LOOK_EVERY_SECONDS = 5


def main() -> int:
    """Run one batch and show the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=1_000, help="so many task groups, and mapped copies")
    parser.add_argument(
        "--slots", type=int, default=4, help="how many copies run at once, half of it in each scheduler"
    )
    asked = parser.parse_args()
    with TemporaryDirectory() as name, served(Path(name) / "s3", (BUCKET,)):
        land(asked.groups, 0)
        spark = start_spark("local[2]", Path(name) / "spark.log")
        try:
            _run(Path(name), {"host": spark.address, "password": spark.token}, asked.groups, asked.slots)
        finally:
            spark.stop()
    return 0


def _run(folder: Path, spark: dict[str, str], groups: int, slots: int) -> None:
    (folder / "dags").mkdir()
    (folder / "dags" / f"{DAG}.py").write_text(_FILE.format(groups=groups, slots=slots))
    variables = {
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", **spark}),
        "AIRFLOW__CORE__PARALLELISM": str(slots // 2),
        "COSET_DOCS": str(folder / "docs"),
        "COSET_STORE": STORE,
        "PYTHONPATH": str(ROOT),
    }
    with postgres() as database, airflow_parts(folder, database, DAG, variables) as parts:
        before, peaks = _cpu(parts), dict.fromkeys(parts.running, 0)
        began = time.monotonic()
        parts.api.pause(DAG, paused=False)
        run, state = parts.api.start(DAG), "queued"
        while state in {"queued", "running"}:
            time.sleep(_LOOK_EVERY_SECONDS)
            peaks = {name: max(peak, memory_of_all(parts.running[name].pid)) for name, peak in peaks.items()}
            state = next(each["state"] for each in parts.api.runs(DAG) if each["dag_run_id"] == run)
        took, spent = time.monotonic() - began, _cpu(parts)
        with create_engine(database).connect() as connection:
            ran = connection.execute(text(_TASKS)).all()
    title = f"{groups:,} copies, {slots} at once: {state} after {took:.0f} s, load {median(os.getloadavg()):.0f}"
    first = ran[0][2]
    columns = ("task", "copies", "from", "to", "median", "tries")
    rows = [
        (
            name,
            f"{copies:,}",
            *(f"{(at - first).total_seconds():.0f} s" for at in (start, end)),
            f"{usual:.1f} s",
            tries,
        )
        for name, copies, start, end, usual, tries in ran
    ]
    show(Table(title, columns, [tuple(map(str, row)) for row in rows]))
    costs = [(name, f"{spent[name] - before[name]:.0f}", f"{peaks[name] / 1e6:,.0f} MB") for name in peaks]
    show(Table("Airflow's parts, with all that they started", ("part", "CPU s", "memory"), costs))


def _cpu(parts: Parts) -> dict[str, float]:
    return {name: cpu_of_all(process.pid) for name, process in parts.running.items()}


if __name__ == "__main__":
    raise SystemExit(main())
