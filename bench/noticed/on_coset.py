"""Coset: what it refuses, and what comes of doing what it says then."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import assert_never

import duckdb
from deltalake import DeltaTable

from bench.noticed.outcome import Outcome, Run, Verdict
from bench.noticed.topics import KEY, PARTITIONS, Fault, Rows, Topics
from coset.batches import steps
from coset.batches.interpreter import run_batch, silently
from coset.batches.ref import BatchRef
from coset.batches.runners.local import Local
from coset.batches.runners.runner import Runner
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS
from partitioning.documents.stores import store_at
from partitioning.errors import Finding, Refused
from partitioning.model.placement import CRC32, MURMUR2, OPAQUE, HashName
from spark_jobs.tables.table_schema import folder as table_folder

_TABLE = "paid"
_DECLARE, _LAND = f'declare hash="{CRC32}"', "remove the file and land it again"
_PAGE = "landed-files.md#records-in-a-wrong-partition"


@contextmanager
def coset() -> Iterator[Run]:
    """The join, and if it is refused the join again, after what Coset or its docs say is to be done."""
    yield _followed


def _followed(topics: Topics, folder: Path) -> Outcome:
    topics.land(folder / "topics")
    try:
        ref, _ = steps.plan(pipeline(folder), str(folder / "store"))
        return Outcome.of(published(ref, folder), topics.joined)
    except Refused as refusal:
        said = tuple(map(_sentence, refusal.findings))
        done, ref = _corrected(topics.fault, folder, said)
    then = Outcome.of(published(ref, folder), topics.joined)
    named = any("'customer-" in sentence for sentence in said)
    return Outcome(Verdict.NAMED if named else Verdict.REFUSED, said=said, done=done, then=then)


def _corrected(fault: Fault, folder: Path, said: tuple[str, ...]) -> tuple[str, BatchRef | None]:
    """Do what was said about a fault. Raises AssertionError if it was not said."""
    match fault:
        case Fault.HASH:
            assert any(_DECLARE in sentence for sentence in said)
            return f'The payments were declared `hash="{CRC32}"`', _anew(folder, CRC32)
        case Fault.COUNT:
            return f"The payments were declared otherwise, as [landed files]({_PAGE}) says", _anew(folder, OPAQUE)
        case Fault.LANDED:
            assert all(_LAND in sentence for sentence in said)
            shutil.rmtree(folder / "topics")
            Topics.of(Fault.NONE).land(folder / "topics")
            return "The files were removed and landed again", steps.plan(pipeline(folder), str(folder / "store"))[0]
        case Fault.NONE:
            raise AssertionError(said)
        case _:
            assert_never(fault)


def pipeline(folder: Path, hash: HashName = MURMUR2) -> Pipeline:
    """The join; `hash` is that of the payments, which move if nobody knows it."""
    made = Pipeline(_TABLE, source=str(folder / "topics"))
    orders = made.stream("orders", key=KEY, partitions=PARTITIONS)
    payments = made.stream("payments", key=KEY, partitions=PARTITIONS, hash=hash)
    if hash == OPAQUE:
        payments = payments.repartition()
    orders.join(payments, "order_id, payment_id", name="joined").write(_TABLE)
    return made


def published(ref: BatchRef | None, folder: Path, runner: Runner | None = None) -> Rows:
    """The rows of the result table, after the batch was run."""
    assert ref is not None
    with runner or Local(processes=1) as used:
        run_batch(ref, used, folder / "docs", silently)
    table = DeltaTable(table_folder(store_at(str(folder / "store")), _TABLE)).to_pyarrow_dataset()
    with duckdb.connect() as connection:
        connection.register("published", table)
        return Counter(connection.execute(f"SELECT {KEY}, order_id, payment_id FROM published").fetchall())


def _anew(folder: Path, hash: HashName) -> BatchRef | None:
    """Give the refused batch up, and plan its records again with another hash."""
    why = "the payments lie otherwise"
    _, ref, _ = steps.replan(pipeline(folder, hash), str(folder / "store"), DEFAULTS, why)
    return ref


def _sentence(found: Finding) -> str:
    """A finding by its kind, the first two lines of what it says, and what it says is to be done to the input."""
    what = " ".join(line.strip(" -") for line in found.what.splitlines()[:2])
    steps = (step for step in found.then.split("; ") if _DECLARE in step or _LAND in step)
    return "; ".join((f"{found.kind}: {what}", *steps))
