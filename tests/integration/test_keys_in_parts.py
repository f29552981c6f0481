"""What memory is too small for is done for some keys after the others, and gives what it would give at once."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from coset.batches.interpreter import run_batch, silently
from coset.batches.restoring import restore
from coset.batches.runners.local import Local
from coset.batches.tables.logs import opened_whole
from coset.batches.tables.table_reader import live_rows
from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.table_mode import Mode
from spark_jobs.engine.relations import Relations
from spark_jobs.tables.table_schema import folder
from tests.examples import few
from tests.followed import done, told
from tests.landed import land_file
from tests.running import next_batch

HOUR, TIMES, BOTH = timedelta(hours=1), ("seen", "seen"), "one.seen, one.text AS a, other.text AS b"
NAMES, COUNT = ("one", "other"), 30_000
Steps = Callable[[Flow, Flow], Flow]


def with_key(flow: Flow) -> Flow:
    return flow.filter("k IS NOT NULL")


# What brings records of a key together, with how its table is written.
STEPS: list[tuple[str, Mode, Steps]] = [
    ("join", Mode.APPEND, lambda one, other: one.join(other, BOTH)),
    ("left join", Mode.APPEND, lambda one, other: one.join(other, BOTH, how="left", on="one.v % 3 <> other.v % 3")),
    ("full join", Mode.APPEND, lambda one, other: one.join(other, BOTH, how="full")),
    (
        "cogroup",
        Mode.APPEND,
        lambda one, other: one.cogroup("max(text) AS a", (other, "list(text ORDER BY text) AS b")),
    ),
    ("texts", Mode.APPEND, lambda one, _: one.aggregate("string_agg(text, ',' ORDER BY text) AS a, count(*) AS n")),
    (
        "lists",
        Mode.APPEND,
        lambda one, _: one.aggregate("list(text ORDER BY text) AS a", by="v % 2 AS odd"),
    ),
    ("newest", Mode.APPEND, lambda one, _: one.aggregate("arg_max(text, (v, text)) AS a, max(text) AS b")),
    (
        "partial",
        Mode.APPEND,
        lambda one, _: one.partial("max(text) AS a", by="v", key_format="long").combine("max(a) AS a"),
    ),
    (
        "running",
        Mode.UPSERT,
        lambda one, _: with_key(one).select("text").combine("max(text) AS text", running=True),
    ),
    ("latest", Mode.UPSERT, lambda one, _: with_key(one).latest("v")),
    (
        "changing",
        Mode.UPSERT,
        lambda one, other: one.latest("v", name="x").join(other.latest("v", name="y"), "x.text, y.v"),
    ),
    ("kept", Mode.UPSERT, lambda one, _: with_key(one).kept().aggregate("list(text ORDER BY text) AS a")),
    ("distinct", Mode.APPEND, lambda one, _: one.distinct("v % 50", time="seen", within=HOUR)),
    ("wide state", Mode.APPEND, lambda one, _: with_key(one).distinct("v, text", time="seen", within=2400 * HOUR)),
    ("in time", Mode.APPEND, lambda one, other: one.join_within(other, BOTH, times=TIMES, within=HOUR)),
    ("alone", Mode.APPEND, lambda one, other: one.join_within(other, BOTH, times=TIMES, within=HOUR, how="full")),
    ("as of", Mode.APPEND, lambda one, other: one.join_as_of(other, BOTH, times=TIMES, keep=1000 * HOUR)),
    ("windows", Mode.APPEND, lambda one, _: one.windows("list(text ORDER BY text) AS a", time="seen", every=24 * HOUR)),
    ("twice", Mode.APPEND, lambda one, other: one.join(other, BOTH, name="met").aggregate("max(a) AS a, min(b) AS b")),
]


def records(chance: random.Random, first: int, last: int, keys: int) -> pa.Table:
    """Wide records, of which some have no key or no text, and some keys have many."""
    drawn = np.random.default_rng(chance.randrange(1 << 30))
    numbers, times = drawn.integers(0, keys * keys, last - first), np.arange(first, last) * 10_000_000
    texts = [None if number % 97 == 0 else f"{number:x}".ljust(900 + number % 400, ".") for number in numbers]
    return pa.table(
        {
            "k": pa.array([None if number % 89 == 0 else f"{int(number**0.5)}" for number in numbers], pa.string()),
            "v": numbers,
            "seen": pa.array(times, pa.timestamp("us")),
            "text": pa.array(texts, pa.string()),
        }
    )


@pytest.mark.parametrize(("name", "mode", "steps"), few(STEPS))
def test_keys_done_in_parts_are_those_done_at_once(
    name: str, mode: Mode, steps: Steps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut, divided = list[int](), Relations._insert_by_keys

    def counted(*given: Any) -> None:
        cut.append(len(cut))
        divided(*given)

    monkeypatch.setattr(Relations, "_insert_by_keys", counted)
    source, chance = f"file://{tmp_path}/topics", random.Random(name)
    pipeline = Pipeline("parts", source=source)
    declared = partial(pipeline.stream, key="k", partitions=1, time="seen", null_keys="own task")
    streams = [declared(each) for each in NAMES]
    streams[1].select("v").write("u")
    steps(*streams).write("t", mode=mode)
    roots = {memory: f"file://{tmp_path}/{memory}-store" for memory in ("16MB", "2GB")}
    were_cut = dict.fromkeys(roots, False)
    for first, last in ((0, COUNT), (COUNT, COUNT + chance.choice((500, COUNT)))):
        for stream in NAMES:
            land_file(records(chance, first, last, 20_000), stream, source, 0, first)
        for memory, root in roots.items():
            cut.clear()
            with Local(processes=1, memory=memory) as runner:
                run_batch(next_batch(pipeline, root, Settings.parse(scheme="tasks(1)")), runner, None, silently)
            were_cut[memory] |= bool(cut)
    assert were_cut == {"16MB": True, "2GB": False}
    tables = []
    for root in roots.values():
        with opened_whole(folder(store_at(root), "t")) as table, duckdb.connect() as connection:
            assert table is not None
            rows = live_rows(table)
            tables.append(connection.sql("FROM rows ORDER BY ALL").to_arrow_table())
            del rows
    assert tables[0].num_rows > 0
    assert tables[0].equals(tables[1])


HEAVY = """
import os
from coset import Pipeline
pipeline = Pipeline("heavy", source=os.environ["SOURCE"])
one = pipeline.stream("one", key="k", partitions=1)
one.aggregate("list(text ORDER BY text) AS a").write("t")
"""


def test_a_key_that_is_too_large_alone_is_named_with_the_memory_that_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, file = f"file://{tmp_path}/topics", tmp_path / "heavy.py"
    monkeypatch.setenv("SOURCE", source)
    monkeypatch.setenv("COSET_STORE", f"{tmp_path}/store")
    monkeypatch.setenv("COSET_DOCS", f"{tmp_path}/docs")
    file.write_text(HEAVY)
    rows = {"k": ["anna"] * 8000 + ["bob"], "text": [f"{number}".ljust(3000, ".") for number in range(8001)]}
    land_file(pa.table(rows), "one", source, 0, 0)
    local = ("run", str(file), "--runner", "local")
    lacking = told(Kind.MEMORY, *local, "--memory", "16MB")
    (finding,) = lacking.findings
    assert finding["what"].startswith("the key 'anna' has 8,000 rows of 24,")
    assert finding["what"].endswith(" bytes, and a task may hold 16,000,000")
    enough = re.search(r"`(--memory) ([0-9]+MB)`", lacking.next)
    assert enough
    done(*local, *enough.groups())
    # Where keys are private, another does not see them.
    pipeline = Pipeline("heavy", source=source)
    pipeline.stream("one", key="k", partitions=1, private=["k"]).aggregate("list(text ORDER BY text) AS a").write("t")
    with Local(processes=1, memory="16MB") as runner, pytest.raises(Refused, match="the key '•••' has 8,000 rows of"):
        run_batch(next_batch(pipeline, f"file://{tmp_path}/other"), runner, None, silently)


def test_a_task_that_ran_in_parts_says_so_and_the_memory_that_spares_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, file = f"file://{tmp_path}/topics", tmp_path / "heavy.py"
    monkeypatch.setenv("SOURCE", source)
    file.write_text(HEAVY)
    texts = [f"{number * 7919:x}".ljust(3000, ".") for number in range(10_000)]
    land_file(pa.table({"k": [f"{n % 5000}" for n in range(10_000)], "text": texts}), "one", source, 0, 0)
    said = re.compile(r"16\.0 MB were too little for 1 task: .* in [0-9]+ parts of its keys; .* (--memory) ([0-9]+MB)")
    memory: tuple[str, ...] = ("--memory", "16MB")
    for lacks in (True, False):
        monkeypatch.setenv("COSET_STORE", f"{tmp_path}/store-{lacks}")
        monkeypatch.setenv("COSET_DOCS", f"{tmp_path}/docs-{lacks}")
        ran = done("run", str(file), "--runner", "local", *memory)
        (page,) = tmp_path.glob(f"docs-{lacks}/heavy/batch-0-attempt-0.html")
        places = ran, done("report", str(file)), page.read_text()
        found = [said.search(place) for place in places]
        assert [bool(each) for each in found] == [lacks] * 3
        memory = found[0].groups() if found[0] else memory


def test_changes_of_a_kept_table_are_told_once(tmp_path: Path) -> None:
    source, root, count = f"file://{tmp_path}/topics", f"file://{tmp_path}/store", 6000
    pipeline = Pipeline("parts", source=source)
    pipeline.table("one", key="k", partitions=1, kept=True).select("text, v").write("t", mode="changelog")
    with Local(processes=1, memory="16MB") as runner:
        for first in (0, count):
            texts = [f"{number * 7919 + first:x}".ljust(900 + number % 300, ".") for number in range(count)]
            rows = {"k": [f"{number}" for number in range(count)], "v": range(first, first + count), "text": texts}
            land_file(pa.table(rows), "one", source, 0, first)
            run_batch(next_batch(pipeline, root, Settings.parse(scheme="tasks(1)")), runner, None, silently)
    with opened_whole(folder(store_at(root), "t")) as table, duckdb.connect() as connection:
        assert table is not None
        rows = live_rows(table)
        found = connection.sql("SELECT _change_type, count(*) FROM rows GROUP BY ALL ORDER BY ALL").fetchall()
        del rows
    assert found == [("delete", count), ("insert", 2 * count)]


def test_state_of_keys_in_parts_is_restored_in_the_memory_that_is_told(tmp_path: Path) -> None:
    """In another the rows have another order."""
    source, root = f"file://{tmp_path}/topics", f"file://{tmp_path}/store"
    pipeline = Pipeline("parts", source=source)
    pipeline.stream("one", key="k", partitions=1).latest("v", name="newest").write("t", mode="upsert")
    texts = [f"{number * 7919:x}".ljust(3000, ".") for number in range(10_000)]
    rows = {"k": [f"{number % 9000}" for number in range(10_000)], "v": range(10_000), "text": texts}
    land_file(pa.table(rows), "one", source, 0, 0)
    with Local(processes=1, memory="16MiB") as runner:
        run_batch(next_batch(pipeline, root), runner, None, silently)
    store = store_at(root)
    (lost,) = (entry.key for entry in store.list("parts/left/") if "newest" in entry.key)
    before = store.get(lost)
    store.delete(lost)
    with (
        Local(processes=1) as runner,
        pytest.raises(Refused, match=r"memory that the batch had, --memory 16\.777216MB; or"),
    ):
        restore("parts", store, runner, silently)
    with Local(processes=1, memory="16MiB") as runner:
        restore("parts", store, runner, silently)
    assert store.get(lost) == before
