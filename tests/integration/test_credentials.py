"""Credentials are in no document, page, answer, message or process list, and a machine may have an identity instead."""

from __future__ import annotations

import gzip
import json
import os
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Event, Thread
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import grpc
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from coset.batches import steps
from coset.batches.ref import BatchRef
from coset.batches.runners.local import Local
from coset.sources.s3 import in_python, storage_options
from demo.s3_server import S3Server, start_server
from partitioning.documents.document import canonical, digest_of, pack, unpack
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from tests.forked import coset
from tests.identity import IDENTITY, SHORT, STATIC, identity
from tests.landed import land_table
from tests.real_batches import delays, land_flights, land_planes, stored
from tests.running import run_and_publish
from tests.small import KEYS, SLOW, small_batch
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


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    with identity(tmp_path_factory.mktemp("identity") / "s3", ("test",)) as variables:
        yield variables


@pytest.fixture
def on_it(machine: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in STATIC:
        monkeypatch.delenv(name, raising=False)
    for name, value in machine.items():
        monkeypatch.setenv(name, value)


def test_credentials_that_expire_in_the_middle_of_each_step_are_asked_for_again(on_it: None, tmp_path: Path) -> None:
    batch = small_batch(SLOW)
    with Local(processes=1) as runner:
        for group in batch.plan.groups:
            began = time.monotonic()
            assert "2 tasks read" in runner.group(batch.ref, group.group)
            assert time.monotonic() - began > SHORT
    for step in (steps.audit, partial(steps.check, docs_folder=tmp_path), partial(steps.publish, docs_folder=tmp_path)):
        time.sleep(SHORT + 1)
        step(batch.ref)
    table = DeltaTable(f"{batch.ledger.store.root}/tables/sums", storage_options=storage_options())
    assert table.to_pyarrow_table().num_rows == KEYS


def test_a_machine_without_credentials_is_told_what_it_may_have(on_it: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(IDENTITY)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(Refused, match="there are no S3 credentials") as refusal:
        store_at(f"s3://test/{uuid.uuid4().hex}").get("a")
    assert "AWS_SHARED_CREDENTIALS_FILE" in str(refusal.value)


# What each part would do for anyone who asks: list and read a bucket, write to it, remove it with all data.
ASKED = [
    ("GET", "/buckets/test/?limit=10"), ("GET", "/buckets/test/held"), ("PUT", "/buckets/test/planted"),
    ("DELETE", "/buckets/test/held"), ("GET", "/test/?list-type=2"), ("GET", "/test/held"), ("GET", "/dir/assign"),
    ("GET", "/col/delete?collection=test"),
]  # fmt: skip


def answer(port: int, method: str, path: str) -> int:
    try:
        with urlopen(Request(f"http://127.0.0.1:{port}{path}", method=method), timeout=10) as response:
            return int(response.status)
    except HTTPError as error:
        return error.code
    except OSError:
        return 0


def test_no_port_answers_those_without_credentials(s3: S3Server) -> None:
    held = store_at("s3://test")
    held.put("held", b"as it was")
    answered = {(port, *asked): answer(port, *asked) for port in s3.ports for asked in ASKED}
    assert {asked: status for asked, status in answered.items() if 200 <= status < 400} == {}
    assert held.get("held") == b"as it was"
    assert held.head("planted") is None


def test_no_part_speaks_to_a_stranger(s3: S3Server) -> None:
    for port in s3.ports:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel, pytest.raises(grpc.FutureTimeoutError):
            grpc.channel_ready_future(channel).result(timeout=1)


def test_only_its_owner_can_read_what_a_server_keeps(tmp_path: Path) -> None:
    server = start_server(tmp_path / "s3", ("test",))
    server.stop()
    secret = ("data", "keys", "keys/key.pem", "s3.json")
    assert {name for name in secret if (tmp_path / "s3" / name).stat().st_mode & 0o077} == set()


def planted(store: Store, ref: BatchRef, function: str, of: str = '"murmur2"') -> BatchRef:
    """The stored plan, valid in itself, with `function` in the place of each hash, or of something else."""
    key = ref.plan_uri.removeprefix(f"{store.root}/")
    data = store.get(key)
    assert data is not None
    document = json.loads(
        unpack(data, key).replace(of.encode(), (f'"{function}"' if of[0] == '"' else function).encode())
    )
    del document["digest"]
    digest = digest_of(canonical(document))
    store.put(key, pack(canonical(document | {"digest": digest})))
    return BatchRef(ref.plan_uri, digest)


@pytest.mark.parametrize("function", ["os:system", "subprocess:getoutput", "posix:system", "pickle:loads"])
def test_a_planted_plan_calls_nothing(function: str, store: Store, tmp_path: Path) -> None:
    marker = tmp_path / "called"
    land_flights(store, [f"touch {marker}"])
    land_planes(store)
    ref = planted(store, stored(store, delays(store)), function)
    with pytest.raises(Refused, match=f"'{function}' is not allowed to be called here") as caught:
        run_and_publish(ref, tmp_path / "docs")
    assert "COSET_IMPORTS=" in caught.value.findings[0].then
    assert not marker.exists()


def test_what_the_deployment_allows_is_called(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marker = tmp_path / "called"
    land_flights(store, [f"touch {marker}"])
    land_planes(store)
    ref = planted(store, stored(store, delays(store)), "os:system")
    monkeypatch.setenv("COSET_IMPORTS", "shop, os")
    with pytest.raises(Refused):
        run_and_publish(ref, tmp_path / "docs")
    assert marker.exists()


@pytest.mark.parametrize(
    "sql",
    [
        "(SELECT count(*) FROM read_text('/etc/hostname'))",
        "(SELECT count(*) FROM read_csv('/etc/passwd'))",
        "(SELECT count(*) FROM '/etc/passwd')",
        "getenv('HOME')",
    ],
)
def test_planted_sql_reads_nothing_and_is_refused(sql: str, store: Store, tmp_path: Path) -> None:
    land_flights(store, ["N1"])
    land_planes(store)
    ref = planted(store, stored(store, delays(store)), f"{sql} AS flights", "count(*) AS flights")
    with pytest.raises(Refused) as caught:
        run_and_publish(ref, tmp_path / "docs")
    finding = caught.value.findings[0]
    assert finding.what.startswith("SQL failed: ")
    assert finding.where.startswith("step ")


def test_a_line_of_python_opens_a_table_where_it_is_shown_and_has_no_secret(s3: S3Server) -> None:
    where = f"s3://test/{uuid.uuid4().hex}"
    write_deltalake(where, pa.table({"n": [1]}), storage_options=storage_options())
    line, seen = in_python(where, "version() == 0 or seen.append(1)"), list[int]()
    exec(line, {"seen": seen})
    assert not seen
    assert not [value for name, value in s3.environment.items() if value in line and name != "AWS_REGION"]
