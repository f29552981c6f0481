"""Credentials are in no document, page, answer, message or list of processes: they are looked for everywhere."""

from __future__ import annotations

import gzip
import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

import pyarrow as pa
import pytest

from demo.s3_server import S3Server
from partitioning.documents.stores import store_at
from tests.forked import coset
from tests.landed import land_table
from tests.told import SECRET, Recorder, recording

PIPELINE = """
import os
from coset import Pipeline

pipeline = Pipeline("clicked", source=os.environ["COSET_STORE"] + "/topics", owner="ana@example.org")
clicks = pipeline.stream("clicks", key="k", partitions=2)
counts = clicks.aggregate("count(*) AS n", name="counts").combine("sum(n)::BIGINT AS n", running=True, name="totals")
counts.write("counts", mode="upsert", expect=[{{"type": "expect_column_max_to_be_between", "kwargs": {kwargs}}}])
"""
LOOKED_AT = (
    ("status",), ("status", "--json"), ("report",), ("report", "--json"), ("metrics",), ("incidents",), ("explain",),
    ("explain", "--batch", "0"), ("explain", "--query", "counts"), ("records", "--batch", "0", "--sql"), ("rows",),
    ("verify",), ("doctor",), ("gaps",), ("schemes",), ("clean", "--dry-run"), ("backfills",),
)  # fmt: skip


@contextmanager
def processes() -> Iterator[list[str]]:
    """The arguments of all processes that are seen meanwhile: whoever has an account on the machine reads them."""
    seen, over = set[str](), Event()

    def watch() -> None:
        while not over.wait(0.01):
            for process in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):
                    seen.add(process.read_text(errors="replace"))

    told, watcher = list[str](), Thread(target=watch)
    watcher.start()
    try:
        yield told
    finally:
        over.set()
        watcher.join()
        told.extend(seen)


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    with recording() as started:
        yield started


@pytest.mark.long
def test_no_credential_is_stored_shown_sent_or_an_argument(s3: S3Server, recorder: Recorder, tmp_path: Path) -> None:
    secrets = {SECRET, s3.environment["AWS_SECRET_ACCESS_KEY"]}
    root, file, docs = f"s3://test/{uuid.uuid4().hex}", tmp_path / "clicked.py", tmp_path / "docs"
    environment = {**os.environ, **s3.environment, "COSET_STORE": root, "COSET_NOTIFY": recorder.address}
    answers = list[str]()

    def ran(*words: str, code: int = 0, **more: str) -> None:
        done = coset(*words, environment={**environment, **more}, folder=tmp_path)
        answers.extend((done.stdout, done.stderr))
        assert done.returncode == code, done.stderr

    def land(count: int) -> None:
        land_table(
            pa.table({"k": [f"k{number}" for number in range(count)]}),
            "clicks",
            f"{root}/topics",
            key="k",
            partitions=2,
        )

    run = ("run", str(file), "--docs", str(docs), "--runner")
    with processes() as arguments:
        land(4)
        file.write_text(PIPELINE.format(kwargs={"column": "n", "max_value": 9}))
        # Settings of Spark are arguments of a JVM.
        ran(*run, "spark", "--master", "local[1]")
        for command, *options in LOOKED_AT:
            ran(command, str(file), *options)
        ran("backfill", str(file), "--from", "0", "--runner", "local", "--docs", str(docs), "--why", "by a test")
        land(3)
        file.write_text(PIPELINE.format(kwargs={"column": "n", "max_value": 1}))
        ran(*run, "local", code=3)
        ran("abandon", str(file), "--why", "by a test", "--docs", str(docs))
        # What the server says of a wrong one, and what is said of an address that nobody answers.
        ran("status", str(file), code=3, AWS_SECRET_ACCESS_KEY=(wrong := "wr0ng-" + uuid.uuid4().hex))
    stored = [(entry.key, store_at(root).get(entry.key) or b"") for entry in store_at(root).list("")]
    pages = [(str(page), page.read_bytes()) for page in docs.rglob("*") if page.is_file()]
    messages = [("message", json.dumps(each).encode()) for each in recorder.messages]
    told = [("answer", each.encode()) for each in answers] + [("arguments", each.encode()) for each in arguments]
    assert len(stored) > 20
    assert len(pages) > 3
    assert messages
    assert any("org.apache.spark" in each for each in arguments)
    for where, data in [*stored, *pages, *messages, *told]:
        text = gzip.decompress(data) if where.endswith(".gz") else data
        assert [each for each in (*secrets, wrong) if each.encode() in text] == [], where
