"""Stores as released versions of Coset left them, under tests/documents/stores, and the pipelines that wrote them.

This file runs with the code of any version since 0.2.0. In a checkout of a version that is to be released,
`python -m tests.released 0.4.0` writes its stores; what was released is never written anew. Those of 0.1.0 were written
by that version's own code in the same way, with the pipeline `first`.
"""

from __future__ import annotations

import io
import os
import sys
import zipfile
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from pyarrow.fs import S3FileSystem

from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from tests.landed import land_table
from tests.running import next_batch

FOLDER = Path(__file__).with_name("documents") / "stores"
MEMBERS = [f"m-{number}" for number in range(12)]
# How far a store's second batch is: published as the first is, planned, run, or decided but not committed.
STATES = ("published", "planned", "run", "decided")


def place(version: str, state: str) -> str:
    """Where a store and what was landed for it lie; plans name the landed files, so it is always there."""
    return f"s3://test/released/{version}/{state}"


def shop(source: str) -> Pipeline:
    """A pipeline with all that batches hand over: totals, newest and distinct records, a kept table, and moved ones."""
    pipeline = Pipeline("shop", source=source)
    clicks = pipeline.stream("clicks", key="member", partitions=4)
    members = pipeline.table("members", key="member", partitions=2, kept=True)
    sums = clicks.aggregate("sum(amount)::BIGINT AS amount, count(*) AS n", name="sums")
    totals = sums.combine("sum(amount)::BIGINT AS amount, sum(n)::BIGINT AS n", running=True, name="totals")
    totals.write("totals", mode="upsert")
    clicks.latest("clicked", name="newest").write("newest", mode="upsert", lineage=False)
    once = clicks.distinct("click", time="make_timestamp_ms(clicked)", within=timedelta(days=1), name="once")
    once.write("clicks_once", lineage=False)
    clicks.join(members, "clicks.click, members.town", name="named").write("named", lineage=False)
    clicks.rekey("page", name="by_page").aggregate("count(*) AS n", name="pages").write("pages", lineage=False)
    return pipeline


def first(source: str) -> Pipeline:
    """A pipeline as 0.1.0 could run it."""
    pipeline = Pipeline("first", source=source)
    clicks = pipeline.stream("clicks", key="member", partitions=4)
    members = pipeline.table("members", key="member", partitions=2)
    clicks.join(members, "clicks.click, members.town", name="named").write("named", lineage=False)
    return pipeline


def clicks(batch: int) -> list[tuple[str, int, int, int, str]]:
    """What lands for a batch: member, click, time, amount and page. Each has some clicks of the one before again."""
    fresh = range(30 * batch, 30 * batch + 30)
    again = range(30 * batch - 5, 30 * batch) if batch else ()
    return [(MEMBERS[click * 7 % 12], click, 1_000 * click, click % 11, f"p-{click % 5}") for click in (*again, *fresh)]


def members(batch: int) -> list[tuple[str, str]]:
    """What is said of members before a batch: all at first, then some move."""
    return [(member, f"town-{batch}") for member in MEMBERS[:: 1 if batch == 0 else 3]]


def land(source: str, batch: int) -> None:
    """Land what a batch reads."""
    names = ("member", "click", "clicked", "amount", "page")
    land_table(_table(names, clicks(batch)), "clicks", source, key="member", partitions=4)
    land_table(_table(("member", "town"), members(batch)), "members", source, key="member", partitions=2)


def _table(names: Sequence[str], rows: Sequence[tuple[object, ...]]) -> pa.Table:
    return pa.table(dict(zip(names, zip(*rows, strict=True), strict=True)))


def restore(version: str, state: str) -> Store:
    """Put a store, and what was landed for it, where it was; gives the store."""
    root = store_at(place(version, state))
    for entry in list(root.list("")):
        root.delete(entry.key)
    with zipfile.ZipFile(FOLDER / f"{version}-{state}.zip") as archive:
        for name in archive.namelist():
            _put(root, name, archive.read(name), archive.getinfo(name).comment.decode())
    return store_at(f"{root.root}/store")


def _put(root: Store, name: str, data: bytes, etag: str) -> None:
    """Store an object as it was stored, at once or in parts: its etag, by which documents know it, says which."""
    if "-" not in etag:
        root.put(name, data)
    else:
        filesystem = S3FileSystem(
            endpoint_override=os.environ["AWS_ENDPOINT_URL"].partition("//")[2], scheme="http", region="us-east-1"
        )
        with filesystem.open_output_stream(f"{root.root.removeprefix('s3://')}/{name}") as sink:
            sink.write(data)
    stored = root.head(name)
    assert stored is not None
    assert stored.etag == etag


def keep(version: str, state: str) -> None:
    """Write a store, and what was landed for it, to an archive, always the same bytes for the same content."""
    root, kept = store_at(place(version, state)), io.BytesIO()
    with zipfile.ZipFile(kept, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, etag in sorted((entry.key, entry.etag) for entry in root.list("")):
            data, kept_as = root.get(name), zipfile.ZipInfo(name)
            assert data is not None
            kept_as.comment = etag.encode()
            archive.writestr(kept_as, data, zipfile.ZIP_DEFLATED)
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{version}-{state}.zip").write_bytes(kept.getvalue())


def _made(version: str, state: str, docs: Path) -> None:
    """Run the first batch, and of the second what its state says."""
    from coset.batches import steps
    from tests.running import run_and_publish, run_groups

    source, root = f"{place(version, state)}/topics", f"{place(version, state)}/store"
    for batch in range(2):
        land(source, batch)
        ref = next_batch(shop(source), root)
        if batch == 0 or state == "published":
            run_and_publish(ref, docs)
        elif state != "planned":
            run_groups(ref)
            if state == "decided":
                ledger, plan = ref.load()
                steps.audit(ref)
                steps.check(ref, docs)
                assert ledger.verdict(plan.batch) is not None
    keep(version, state)


def main(version: str) -> None:
    """Write the stores of the version whose code this is."""
    from demo.s3_server import start_server

    with TemporaryDirectory() as folder:
        server = start_server(Path(folder) / "s3", ("test",))
        os.environ.update(server.environment)
        try:
            for state in STATES:
                _made(version, state, Path(folder) / "docs")
        finally:
            server.stop()


if __name__ == "__main__":
    main(sys.argv[1])
