"""The demo: real flights arrive in three parts; Airflow plans, Spark runs, the data is proved and published.

The demo may be interrupted at any time; the next run continues it. At its end the first batch is run again under
another scheme, found identical, and swapped in.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import nullcontext, suppress
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from coset.batches.backfills import actions
from coset.batches.backfills.actions import Asked
from coset.batches.backfills.request import backfill
from coset.batches.backfills.swaps import finish, swaps
from coset.batches.planning import preview
from coset.batches.runners import children
from coset.batches.runners.connect import Connect
from coset.cli.output import Table, progress, show, step
from coset.sources.s3 import storage_options
from dags.pipelines.tail_activity import pipeline
from demo import comparison, traffic
from demo.home import LANDING, SOURCE, STORE, Home
from demo.landing import PARTS, land
from partitioning.authoring.settings import Settings
from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import CosetError
from partitioning.explain.explain import explain
from partitioning.kinds import Kind
from partitioning.model.plan import Plan
from partitioning.values import replace
from spark_jobs.tables.table_schema import folder

_NAME = pipeline.name
_LOOK_EVERY_SECONDS = 1
_AIRFLOW_ENDS_WITHIN_SECONDS = 10
_AIRFLOW = str(Path(sys.executable).with_name("airflow"))


def run(home: Home) -> None:
    """Run the rest of the demo in a home that is served, and show the results.

    Raises CosetError if a batch is not published in the end, or if a figure differs from the raw data's.
    """
    store = store_at(STORE)
    ledger = Ledger(store, _NAME)
    arrived = store_at(LANDING)
    # Set when all of a part is published; landing what is there already changes nothing.
    taken = {part: f"demo/part-{part}-taken" for part in range(PARTS)}
    parts = [part for part in taken if arrived.head(taken[part]) is None]
    left = parts or preview(pipeline, ledger.store).plan or not is_decided(store)
    with home.with_spark() if left else nullcontext():
        for part in parts:
            with step(f"land part {part}") as said:
                said.append(_counted(land(part, SOURCE)))
            _run_batches(home, ledger)
            traffic.run(home)
            arrived.put_new(taken[part], b"")
        sentence = _run_batches(home, ledger)
        if not is_decided(store):
            run_again(home, store)
    show(sentence, "")
    _show_results(home, store, ledger)


def serve(folder: Path, *, airflow: bool) -> None:
    """Keep the S3 server and a Spark server running, and all of Airflow too if asked for, until Ctrl-C or SIGTERM."""
    home = Home(folder.resolve())
    with home.served() as s3, home.with_spark() as spark:
        show(f"The S3 server runs and holds what is in {home.folder}. In another terminal:", "")
        show(*(f"export {name}={shlex.quote(value)}" for name, value in {**s3, **spark}.items()))
        try:
            show("", f"coset status {_NAME}", "", "Ctrl-C ends it.")
            if airflow:
                _prepare_airflow(home)
                _run_airflow(home)
            else:
                while True:
                    time.sleep(3600)
        except KeyboardInterrupt:
            show("")


def _run_airflow(home: Home) -> None:
    """Run Airflow's parts until they end or this process must."""
    log = home.logs / "airflow-parts.log"
    password = home.airflow / "simple_auth_manager_passwords.json.generated"
    show("", f"Airflow starts: {home.airflow_page}, admin's password in {password}, log: {log}")
    # After this signal it ends its parts; after SIGTERM it would leave them running.
    asked = signal.SIGINT
    # It prints that it ends them, and would not end them if its terminal were gone.
    with log.open("wb") as to:
        process = children.start([_AIRFLOW, "standalone"], _environment(home), to, asked)
    try:
        process.wait()
    finally:
        children.stop(process, _AIRFLOW_ENDS_WITHIN_SECONDS, asked)


def _counted(landed: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {stream}" for stream, count in landed.items() if count) or "is there already"


def _run_batches(home: Home, ledger: Ledger) -> str:
    """Run batch after batch through Airflow until nothing is left, and return the sentence that says so."""
    taken = preview(pipeline, ledger.store)
    while taken.plan is not None:
        _run_batch(home, ledger, taken.plan.batch)
        taken = preview(pipeline, ledger.store)
    return taken.sentence


def _run_batch(home: Home, ledger: Ledger, number: int) -> None:
    """Run the DAG once, and show each document of the batch as it appears in the store."""
    _prepare_airflow(home)
    log = home.logs / f"batch-{number}.log"
    with step(f"batch {number}") as said, log.open("wb") as to:
        # If this process is killed, Airflow is killed too: after SIGTERM it would end its task, and go on.
        process = children.start([_AIRFLOW, "dags", "test", _NAME], _environment(home), to, signal.SIGKILL)
        try:
            for name, text in _watched(process, ledger, number):
                progress(name, text)
        finally:
            children.stop(process, _AIRFLOW_ENDS_WITHIN_SECONDS)
        said.append(f"Airflow's log: {log}")
        if ledger.commit(number) is None:
            code = process.returncode
            what = f"batch {number} is not published; Airflow ended with exit code {code}"
            then = "read the end of the log; the same command goes on where this one stopped"
            raise CosetError.of(Kind.DEMO, what, str(log), then, number=number, returncode=code)


def _watched(process: subprocess.Popen[bytes], ledger: Ledger, number: int) -> Iterator[tuple[str, str]]:
    """The documents of a batch as they appear, until it is published or the process ends."""
    seen: set[str] = set()
    while True:
        # The process is polled first, so that its last documents are seen.
        ended = process.poll() is not None
        for name, text in _documents(ledger, number):
            if name not in seen:
                seen.add(name)
                yield name, text
        if ended:
            return
        with suppress(subprocess.TimeoutExpired):
            process.wait(_LOOK_EVERY_SECONDS)


def _documents(ledger: Ledger, number: int) -> Iterator[tuple[str, str]]:
    plan = ledger.plan(number)
    if plan is None:
        return
    tasks = sum(len(stage.tasks) for stage in plan.stages)
    yield "planned", f"{plan.records:,} records, {tasks} tasks in {len(plan.groups)} groups"
    attempt = ledger.attempt(number)
    for group in plan.groups:
        if ledger.receipt(number, attempt, group.group) is not None:
            yield f"ran group {group.group}", f"{group.records:,} records, {', '.join(map(str, group.tasks))}"
    if (verdict := ledger.verdict(number)) is not None:
        yield "checked", f"{verdict.decision}: {verdict.why}"
    if (commit := ledger.commit(number)) is not None:
        yield "published", ", ".join(f"{table.table} at Delta version {table.version}" for table in commit.tables)


def _prepare_airflow(home: Home) -> None:
    """Make Airflow's database, once."""
    ready = home.airflow / ".ready"
    if ready.exists():
        return
    log = home.logs / "airflow.log"
    home.logs.mkdir(parents=True, exist_ok=True)
    with step("set up Airflow") as said, log.open("wb") as to:
        said.append(f"log: {log}")
        command = [_AIRFLOW, "db", "migrate"]
        done = subprocess.run(command, env=_environment(home), stdout=to, stderr=subprocess.STDOUT, check=False)
        if done.returncode:
            what = f"airflow db migrate ended with exit code {done.returncode}"
            raise CosetError.of(Kind.DEMO, what, str(log), "read the log", returncode=done.returncode)
    ready.touch()


def _environment(home: Home) -> Mapping[str, str]:
    return os.environ | home.airflow_environment()


def _show_results(home: Home, store: Store, ledger: Ledger) -> None:
    """Shows the plan, the batches, where the reports are, and the results beside the raw data's."""
    plan = ledger.standing().published
    assert plan is not None
    stages = {f"Stage {stage.name}" for stage in plan.stages}
    for section in explain(plan):
        if section.title in stages:
            show(replace(section, title=f"The plan of batch {plan.batch}. {section.title}"))
    show(Table("Batches", ("batch", "verdict", "why", "published"), _batches(ledger, plan)))
    show_results(store)
    show(f"Data Docs: {home.docs / _NAME / 'index.html'}", "")
    results = comparison.compare(ledger, _NAME)
    notes = [
        "Left: the published table, all batches added up. Right: the same query by DuckDB over the raw package data.",
        f"{results.different:,} of {results.aircraft:,} aircraft differ.",
    ]
    show(Table("Results", results.columns, results.rows, notes))
    if not results.equal:
        what, then = "the results differ from the raw data", "report this with the logs"
        raise CosetError.of(Kind.DEMO, what, STORE, then, different=results.different)
    traffic.show_results()
    show(f"Look around: `make serve`, then `coset status {_NAME}` in another terminal.")


def _batches(ledger: Ledger, newest: Plan) -> Iterator[tuple[object, ...]]:
    for number in range(newest.batch + 1):
        verdict, commit = ledger.verdict(number), ledger.commit(number)
        assert verdict is not None
        tables = ", ".join(f"{table.table} version {table.version}" for table in commit.tables) if commit else "no"
        yield number, verdict.decision, verdict.why, tables


_SCHEME = "tasks(12)"
_WHY = "the demo shows it"


def is_decided(store: Store) -> bool:
    """Whether the backfill is swapped in, or is about to be."""
    return any(swaps(store, pipeline.name))


def run_again(home: Home, store: Store) -> None:
    """Run the first batch again on the Spark server, beside the published data; compare, and swap."""
    request = actions.begin(pipeline, store, Asked(0, 0, Settings.parse(scheme=_SCHEME, groups=2), _WHY))
    with Connect(os.environ["SPARK_MASTER"], "1GB") as runner:
        actions.run(pipeline, store, request, runner, home.docs, step)
    with step("compare and swap") as said:
        found = actions.comparison(store, request)
        said.append(str(found))
        actions.swap(store, request, digest(found), _WHY)


def show_results(store: Store) -> None:
    """One line on the backfill. Raises CosetError if readers did not see the same rows before and after."""
    swapped, request = finish(store, pipeline.name), backfill(store, pipeline.name, 0)
    assert swapped is not None
    before, now = (_tasks(ledger) for ledger in (Ledger(store, pipeline.name), Ledger(store, request.name)))
    for table, version in swapped.tables.items():
        rows = _seen(table, version)
        if rows != _seen(table, version - 1):
            what, where = "a backfill changed the rows", f"{table}, version {version}"
            raise CosetError.of(Kind.DEMO, what, where, "report this", table=table, version=version)
        said = (
            f"Batch 0 was run again under {_SCHEME}, with {now} tasks instead of {before}, found identical, and swapped"
        )
        seen = f"readers see the same {len(rows):,} rows in {table} version {version} as in version {version - 1}"
        show(f"{said}: {seen}.", "")


def _tasks(ledger: Ledger) -> int:
    plan = ledger.plan(0)
    assert plan is not None
    return sum(len(stage.tasks) for stage in plan.stages)


def _seen(table: str, version: int) -> pa.Table:
    """The rows of a version of the table, without the column of tasks."""
    delta = DeltaTable(folder(store_at(STORE), table), version=version, storage_options=storage_options())
    return delta.to_pyarrow_table().drop_columns(["_task"]).sort_by([("_batch", "ascending"), ("tailnum", "ascending")])
