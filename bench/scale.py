"""`python -m bench.scale`: what a batch of many tasks costs whoever plans, judges and publishes it.

It lands a file of some records in each of so many stream partitions, and runs some batches of them in an S3 server, by
the local runner in this process. Of each step it shows processor seconds, the peak of memory, and what it asked the
server, by a proxy that counts.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.asked import SOURCE, STORE, SUBJECTS, Asked, Request, by_subject, counted, in_words, land_views
from bench.measure import measured
from coset.batches import steps
from coset.batches.ref import BatchRef
from coset.batches.runners.local import Local
from coset.cli.output import Table, show
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.document import encode
from partitioning.documents.stores import store_at
from partitioning.hashes import placement_hash
from spark_jobs.group import encoded, orders_of

RECORDS = 4


def pipeline(partitions: int) -> Pipeline:
    """A pipeline that counts, in a task for each stream partition."""
    made = Pipeline("scale", source=SOURCE)
    views = made.stream("views", key="member", partitions=partitions)
    views.aggregate("count(*) AS views").write("counted")
    return made


def land(partitions: int, batch: int) -> None:
    """A file with some records of one member in each partition."""
    member, left = 0, set(range(partitions))
    while left:
        partition = placement_hash(f"m-{member}", "string") % partitions
        if partition in left:
            left.remove(partition)
            land_views(partition, batch * RECORDS, [f"m-{member}"] * RECORDS)
        member += 1


def main() -> int:
    """Run batches and show the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=10_000, help="so many stream partitions and tasks")
    parser.add_argument("--groups", type=int, default=1_000, help="so many task groups")
    parser.add_argument("--batches", type=int, default=2, help="so many batches, one after the other")
    asked = parser.parse_args()
    with counted() as server, TemporaryDirectory() as folder:
        for batch in range(asked.batches):
            land(asked.tasks, batch)
            _run(server, Path(folder), asked.tasks, asked.groups, batch)
    return 0


def _run(server: Asked, docs: Path, tasks: int, groups: int, batch: int) -> None:
    rows, everything = list[tuple[str, ...]](), Counter[Request]()
    server.since()

    @contextmanager
    def row(name: str) -> Iterator[None]:
        with measured() as cost:
            yield
        requests = server.since()
        everything.update(requests)
        rows.append((name, f"{cost.cpu:.1f}", f"{cost.memory / 1e6:,.0f} MB", in_words(requests)))

    with row("plan"):
        ref, said = steps.plan(pipeline(tasks), STORE, Settings.parse(groups=groups))
    assert ref is not None, said
    ref = ref.in_hand()
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
    title = f"Batch {batch}: {tasks:,} tasks in {groups:,} groups. {_sizes(ref)}"
    show(Table(title, ("step", "CPU s", "memory", "requests"), rows))
    show(Table(f"Requests of batch {batch}: {in_words(everything)}", SUBJECTS, by_subject(everything)))


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
