"""A run that is killed anywhere is taken up again by the next one, and every flight counts exactly once.

So it is with a run that is stopped and goes on when another has done its work, whose clock is wrong, or that lacks
disk or file descriptors; where a step keeps state, and at a level of unifiers or between two."""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import duckdb
import psutil
import pyarrow as pa
import pytest
import time_machine

from coset.batches.backfills import actions
from coset.batches.backfills.actions import Asked
from coset.batches.kept import kept_state, rows_kept
from coset.batches.sweeping import sweep
from coset.cli.pipelines import load
from demo.landing import STREAMS, land, raw, read
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.model.receipt import Role
from tests.as_of import AS_OF, in_time, rows_of
from tests.backfilled import run_again
from tests.begun import Begun
from tests.examples import few, share
from tests.forked import coset
from tests.histories import Click, History
from tests.killed import POINTS, arm, killed_once
from tests.landed import land_table
from tests.logs import log_of
from tests.outer import some
from tests.small import until
from tests.there import there

ROWS = 500


def some_flights() -> pa.Table:
    """Flights of the whole year, a few of them without a tail number."""
    year = read("flights")
    flights = year.take(pa.array(range(0, year.num_rows, year.num_rows // ROWS))).slice(0, ROWS)
    assert flights["tailnum"].null_count
    return flights


def land_some(source: str) -> None:
    """Land them as the demo lands all of them."""
    key, partitions = STREAMS["flights"]
    land_table(some_flights(), "flights", source, key=key, partitions=partitions)


def queried(query: str) -> list[tuple[str | None, int, int]]:
    """What a query says of them; their table is `flights`."""
    with duckdb.connect() as connection:
        connection.register("flights", some_flights())
        return connection.execute(query).fetchall()


_PIPELINE = str(Path(__file__).parents[1] / "pipelines" / "flights_counted.py")
# Where it is not a Spark job that is killed, Spark would only have to be waited for.
_SPARK, _NO_SPARK = ("--master", "local[2]"), ("--runner", "local")
_BY_TAIL_NUMBER = """
    SELECT tailnum, count(*), sum(distance)::BIGINT FROM flights WHERE month BETWEEN {months} GROUP BY 1 ORDER BY 1
"""
# Where a process stops while it does what no other waits for.
STOPS = [point for point in POINTS if not point.startswith("job.")]
Counted = tuple[str | None, int, int]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Some flights, landed."""
    where = str(tmp_path_factory.mktemp("landed") / "topics")
    land_some(where)
    return where


@pytest.fixture(scope="module")
def counted() -> list[Counted]:
    """Flights and miles by tail number, straight from the package's data."""
    return queried(_BY_TAIL_NUMBER.format(months="1 AND 12"))


@pytest.mark.parametrize("point", few(sorted(POINTS, key="verdict.after".__ne__)))
def test_a_run_killed_at(point: str, source: str, store: Store, counted: list[Counted]) -> None:
    killed = _run(source, store, *_runner(point), killed_at=point)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    plans = {entry.key: store.get(entry.key) for entry in store.list("flights_counted/plans/")}
    _finish_and_compare(source, store, counted)
    assert plans == {key: store.get(key) for key in plans}


@pytest.mark.long
def test_a_run_killed_with_its_spark_job_in_the_middle(store: Store) -> None:
    source = f"{store.root}/topics"
    land(0, source)
    with subprocess.Popen(
        [sys.executable, "-m", "coset.cli.main", *_arguments(store, *_SPARK)],
        env=os.environ | {"FLIGHTS_SOURCE": source},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as run:
        deadline = time.monotonic() + 120
        while not _first_files(store) and time.monotonic() < deadline and run.poll() is None:
            time.sleep(0.05)
        os.killpg(run.pid, signal.SIGKILL)
    assert run.returncode == -signal.SIGKILL
    four_months = raw().execute(_BY_TAIL_NUMBER.format(months="1 AND 4")).fetchall()
    _finish_and_compare(source, store, four_months)


@pytest.mark.long
def test_a_run_killed_again_and_again(source: str, store: Store, counted: list[Counted]) -> None:
    for point in ("plan.after", "job.before", "verdict.before", "delta.before", "delta.after", "commit.before"):
        killed = _run(source, store, *_runner(point), killed_at=point)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
    _finish_and_compare(source, store, counted)


@pytest.mark.parametrize("point", few(sorted(STOPS, key="verdict.before".__ne__)))
def test_a_run_stopped_at(point: str, source: str, store: Store, tmp_path: Path, counted: list[Counted]) -> None:
    place = tmp_path / "process"
    with ThreadPoolExecutor(1) as pool:
        stopped = pool.submit(_run, source, store, *_NO_SPARK, first=partial(_stopping, point, place))
        assert until(lambda: place.exists() and _status(place) == psutil.STATUS_STOPPED)
        _finish_and_compare(source, store, counted)
        os.kill(int(place.read_text()), signal.SIGCONT)
        ended = stopped.result()
    assert ended.returncode == 0, ended.stderr
    _finish_and_compare(source, store, counted)


def test_runs_whose_clocks_are_hours_apart(source: str, store: Store, counted: list[Counted]) -> None:
    for point, hours in zip(("plan.after", "verdict.before", "delta.after"), (7, -9, 30), strict=True):
        killed = _run(source, store, *_NO_SPARK, first=partial(_at, hours, point))
        assert killed.returncode == -signal.SIGKILL, killed.stderr
    _finish_and_compare(source, store, counted)


@pytest.mark.parametrize(("files", "code"), few([(40, 3), (128, 0)]))
def test_a_run_that_may_open_few_files(
    files: int, code: int, source: str, store: Store, counted: list[Counted]
) -> None:
    limit = partial(resource.setrlimit, resource.RLIMIT_NOFILE, (files, files))
    starved = _run(source, store, *_NO_SPARK, first=limit)
    assert starved.returncode == code, starved.stderr
    _finish_and_compare(source, store, counted)


# Where it is full: in all of its steps, in the end in none.
@pytest.mark.parametrize("kilobytes", share([60, 4, *range(12, 280, 16)]))
def test_a_run_whose_store_is_full(kilobytes: int, source: str, tmp_path: Path, counted: list[Counted]) -> None:
    with small_disk(tmp_path, kilobytes) as disk:
        store = store_at(str(disk / "store"))
        full = _run(source, store, *_NO_SPARK)
        assert full.returncode == 0 or (full.returncode in (5, 6) and "free its disk" in full.stderr), full.stderr
        grow(disk, 100_000)
        _finish_and_compare(source, store, counted)


def _stopping(point: str, place: Path) -> None:
    place.write_text(str(os.getpid()))
    arm(point, signal.SIGSTOP)


def _status(place: Path) -> str:
    return str(psutil.Process(int(place.read_text())).status())


def _at(hours: int, point: str) -> None:
    """Let the clock of this process be off, and the process end there."""
    time_machine.travel(datetime.now(UTC) + timedelta(hours=hours), tick=True).start()
    arm(point)


@contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[Path]:
    """A disk of its own."""
    (disk := folder / "disk").mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "none", str(disk)]
    if subprocess.run(words, check=False, capture_output=True).returncode:
        pytest.skip("this machine lets nobody mount a disk")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def grow(disk: Path, kilobytes: int) -> None:
    subprocess.run(["mount", "-o", f"remount,size={kilobytes}k", str(disk)], check=True)


def _finish_and_compare(source: str, store: Store, counted: list[Counted]) -> None:
    finished = _run(source, store, *_NO_SPARK)
    assert finished.returncode == 0, finished.stderr
    again = _run(source, store, *_NO_SPARK)
    assert again.returncode == 0, again.stderr
    assert "Nothing to do" in again.stdout
    table = log_of(store, "flights_counted")
    assert table.transaction_version("flights_counted:flights_counted") == 0
    assert [entry["operation"] for entry in table.history()].count("WRITE") == 1
    rows = table.to_pyarrow_table(columns=["tailnum", "flights", "miles"]).sort_by("tailnum").to_pylist()
    assert [(row["tailnum"], row["flights"], row["miles"]) for row in rows] == counted
    standing = Ledger(store, "flights_counted").standing()
    assert standing.commit is not None
    assert not standing.open


def _runner(point: str) -> tuple[str, str]:
    return _SPARK if point.startswith("job.") else _NO_SPARK


def _first_files(store: Store) -> bool:
    return any(True for _ in store.list("tables/flights_counted/data/"))


def _run(
    source: str, store: Store, *words: str, killed_at: str | None = None, first: Callable[[], None] | None = None
) -> subprocess.CompletedProcess[str]:
    return coset(
        *_arguments(store, *words),
        environment=os.environ | {"FLIGHTS_SOURCE": source},
        first=partial(arm, killed_at) if killed_at else first,
    )


def _arguments(store: Store, *words: str) -> list[str]:
    return ["run", *words, _PIPELINE, "--store", store.root, "--groups", "1"]


_IN_TIME = str(Path(__file__).parents[1] / "pipelines" / "in_time.py")
_ARRIVED = some(random.Random(7), 40)
# Each point has two of the joins or all, and each join has three of the points.
_KILLED = (
    *(("verdict.after", how) for how in (AS_OF, "left", "full")),
    ("group-0.before", AS_OF),
    ("group-0.before", "full"),
    ("group-0.after", "left"),
    ("group-0.after", AS_OF),
    ("delta.after", "full"),
    ("delta.after", "left"),
)


@pytest.mark.parametrize(("point", "how"), few(_KILLED))
def test_a_batch_that_is_killed_gives_what_is_over_once(point: str, how: str, begun: Begun, tmp_path: Path) -> None:
    store = begun.by(_begin, how)
    joined = in_time(store, how)
    killed_once(point, _IN_TIME, store.root, tmp_path, IN_TIME_STORE=store.root, IN_TIME_HOW=how)
    joined.close()
    assert joined.pairs() == rows_of(_ARRIVED, how)


def _begin(how: str, store: Store) -> None:
    joined = in_time(store, how)
    joined.batch(_ARRIVED.clicks[:20], _ARRIVED.views[:20])
    joined.batch(_ARRIVED.clicks[20:30], _ARRIVED.views[20:30], "tasks(2)")
    joined.land(_ARRIVED.clicks[30:], _ARRIVED.views[30:])


@pytest.mark.long
@pytest.mark.parametrize("how", [AS_OF, "left", "full"])
def test_a_backfill_with_other_tasks_gives_the_same_rows_by_the_same_watermarks(
    how: str, store: Store, tmp_path: Path
) -> None:
    chance = random.Random(8)
    arrived, joined = some(chance, 30), in_time(store, how)
    joined.all_in(arrived, 3, chance)
    backfill = run_again(joined.pipeline, store, Asked(0, None, Settings.parse(scheme="tasks(2)")), tmp_path)
    assert str(actions.comparison(store, backfill)).startswith("identical: ")


_KEPT = str(Path(__file__).parents[1] / "pipelines" / "kept.py")
# Before a group's receipt, all that its tasks left is nobody's; between two Delta commits, one table has the batch.
_POINTS = ("group-0.before", "group-0.after", "verdict.before", "verdict.after", "delta.after")


@pytest.mark.parametrize("point", few(_POINTS))
def test_a_run_with_state_killed_at(point: str, store: Store, tmp_path: Path) -> None:
    history = History(store, tmp_path, kept_pipeline)
    for batch, count in enumerate((30, 20, 10)):
        history.land([Click(f"key-{number}", number, batch) for number in range(count)], [], 4)
        if batch == 1:
            killed_once(point, _KEPT, store.root, tmp_path, DELAYS_SOURCE=f"{store.root}/topics")
        else:
            history.publish(history.plan(Settings(), 4))
    counts = {f"key-{number}": 1 + (number < 20) + (number < 10) for number in range(30)}
    assert kept(store, "totals") == counts
    sweep(kept_pipeline(f"{store.root}/topics", 4), store)
    assert kept(store, "totals") == counts


def kept_pipeline(source: str, _: int) -> Pipeline:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DELAYS_SOURCE", source)
        return load(_KEPT)


def kept(store: Store, step: str) -> dict[str, int]:
    """How often each key was counted."""
    ledger = Ledger(store, "kept")
    with rows_kept(ledger, kept_state(ledger, step)) as rows:
        table = rows.read_all()
    return dict(zip(table["k"].to_pylist(), table["n"].to_pylist(), strict=True))


_LEVELS = str(Path(__file__).parents[1] / "pipelines" / "pages_in_levels.py")
_STAGES = ["views", "parts.exchange.1", "parts.exchange.2", "parts.exchange"]
# The group that is being run, and how many have their receipts then: each level is a group, and a wave, of its own.
# A group's receipt is stored when what its tasks left is there: before it all that they left is nobody's.
_LEVEL_POINTS = {
    "group-0.before": 0, "group-0.after": 1, "group-1.before": 1, "group-1.after": 2, "group-2.before": 2,
    "group-2.after": 3, "group-3.before": 3,
}  # fmt: skip


@pytest.mark.parametrize(("point", "done"), few(_LEVEL_POINTS.items(), always=0))
def test_a_run_of_levels_killed_at(point: str, done: int, store: Store, tmp_path: Path) -> None:
    keys, pages = ([f"{name}-{number % count}" for number in range(300)] for name, count in (("k", 31), ("page", 47)))
    source = f"{store.root}/topics"
    land_table(pa.table({"k": keys, "page": pages}), "views", source, key="k", partitions=5)
    environment = os.environ | {"VIEWS_SOURCE": source}
    words = ("run", "--runner", "local", _LEVELS, "--store", store.root, "--docs", str(tmp_path), "--groups", "1")

    killed = coset(*words, environment=environment, first=partial(arm, point))
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    ledger = Ledger(store, "pages_in_levels")
    plan = there(ledger.plan(0))
    assert [{task.stage for task in group.tasks} for group in plan.groups] == [{stage} for stage in _STAGES]
    receipts = {entry.key: entry.etag for entry in store.list("pages_in_levels/receipts/0/")}
    assert len(receipts) == done

    finished = coset(*words, environment=environment)
    assert finished.returncode == 0, finished.stderr
    after = {entry.key: entry.etag for entry in store.list("pages_in_levels/receipts/0/")}
    assert len(after) == len(_STAGES)
    assert receipts.items() <= after.items()
    for group in range(done):
        assert f"group {group} of batch 0 of pages_in_levels: nothing to do, attempt 0 has run" in finished.stderr
    rows = log_of(store, "pages").to_pyarrow_table()
    assert rows.num_rows == len(set(pages))
    assert dict(zip(rows["page"].to_pylist(), rows["n"].to_pylist(), strict=True)) == Counter(pages)

    # What the killed run left beside it goes, with what has served; a batch needs neither any more.
    assert list(store.list("pages_in_levels/left/"))
    cleaned = coset("clean", _LEVELS, "--store", store.root, environment=environment)
    assert cleaned.returncode == 0, cleaned.stderr
    assert not list(store.list("pages_in_levels/left/"))
    verdict = there(ledger.verdict(0))
    assert {artefact.role for artefact in verdict.artefacts} == {Role.TABLE, Role.KEYS}
