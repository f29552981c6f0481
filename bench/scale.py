"""`python -m bench.scale`: what a batch of many tasks costs whoever plans, judges and publishes it.

It lands a file of some records in each of so many stream partitions, and runs two batches of them in a folder, by the
local runner in this process. Of each step it shows processor seconds, the peak of memory, and what it asked the store.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bench.measure import measured
from coset.batches import steps
from coset.batches.ref import BatchRef
from coset.batches.runners.local import Local
from coset.cli.output import Table, show
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.document import encode
from partitioning.documents.folder_store import FolderStore
from partitioning.documents.stores import store_at
from partitioning.hashes import placement_hash
from spark_jobs.group import encoded, orders_of

RECORDS = 4
ASKED = Counter[str]()


def counting() -> None:
    """Count what is asked of folders, as an object store would be asked."""
    for name in ("get", "get_part", "put_new", "put", "delete", "head", "page"):
        setattr(FolderStore, name, _counted(name, getattr(FolderStore, name)))


def _counted(name: str, method: Any) -> Any:
    def call(*given: Any, **named: Any) -> Any:
        ASKED[name] += 1
        return method(*given, **named)

    return call


def pipeline(root: Path, partitions: int) -> Pipeline:
    """A pipeline that counts, in a task for each stream partition."""
    made = Pipeline("scale", source=root / "topics")
    views = made.stream("views", key="member", partitions=partitions)
    views.aggregate("count(*) AS views").write("counted")
    return made


def land(root: Path, partitions: int, batch: int) -> None:
    """A file with some records of one member in each partition."""
    member, left = 0, set(range(partitions))
    while left:
        partition = placement_hash(f"m-{member}", "string") % partitions
        if partition in left:
            left.remove(partition)
            folder = root / "topics" / "views" / f"partition={partition}"
            folder.mkdir(parents=True, exist_ok=True)
            offsets = pa.array(range(batch * RECORDS, (batch + 1) * RECORDS), pa.int64())
            table = pa.table({"member": [f"m-{member}"] * RECORDS, "_offset": offsets})
            pq.write_table(table, folder / f"views+{partition}+{batch * RECORDS:010}.parquet")
        member += 1


def main() -> int:
    """Run two batches and show the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=10_000, help="so many stream partitions and tasks")
    parser.add_argument("--groups", type=int, default=1_000, help="so many task groups")
    asked = parser.parse_args()
    counting()
    with TemporaryDirectory() as folder:
        for batch in range(2):
            land(Path(folder), asked.tasks, batch)
            _run(Path(folder), asked.tasks, asked.groups, batch)
    return 0


def _run(root: Path, tasks: int, groups: int, batch: int) -> None:
    rows: list[tuple[str, ...]] = []

    @contextmanager
    def row(name: str) -> Iterator[None]:
        ASKED.clear()
        with measured() as cost:
            yield
        words = ", ".join(f"{count:,} {name}" for name, count in sorted(ASKED.items()))
        rows.append((name, f"{cost.cpu:.1f}", f"{cost.memory / 1e6:,.0f} MB", words))

    docs = root / "docs"
    with row("plan"):
        ref, said = steps.plan(pipeline(root, tasks), str(root / "store"), Settings.parse(groups=groups))
    assert ref is not None, said
    with row("groups"), Local(processes=1) as runner:
        _, plan = ref.load()
        for group in plan.groups:
            runner.group(ref, group.group)
    for name, does in (("audit", steps.audit), ("check", lambda ref: steps.check(ref, docs))):
        with row(name):
            does(ref)
    with row("publish"):
        steps.publish(ref, docs)
    with row("report"):
        steps.report(ref, docs)
    columns = ("step", "CPU s", "memory", "asked of the store")
    show(Table(f"Batch {batch}: {tasks:,} tasks in {groups:,} groups. {_sizes(ref)}", columns, rows))


def _sizes(ref: BatchRef) -> str:
    ledger, plan = ref.load()
    store = store_at(ledger.store.root)
    packed = store.head(ledger.key("plans", plan.batch))
    verdict = store.head(ledger.key("verdicts", plan.batch))
    receipts = [entry.size for entry in store.list(f"{plan.pipeline}/receipts/{plan.batch}/")]
    assert packed is not None
    assert verdict is not None
    orders = encoded(orders_of(plan, plan.groups[0], 0, ledger.store.root, {}))
    order = max(len(one) for together in orders for one in together)
    return (
        f"Plan {len(encode(plan)) / 1e6:.2f} MB, packed {packed.size / 1e6:.2f} MB; an order {order:,} bytes; "
        f"receipts {sum(receipts) / 1e6:.2f} MB in {len(receipts):,}; verdict {verdict.size / 1e6:.2f} MB"
    )


if __name__ == "__main__":
    os.environ.setdefault("COSET_CACHE", "")
    raise SystemExit(main())
