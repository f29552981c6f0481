"""What a batch asks of S3, counted by a proxy, is what the page on large days reckons with."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from bench import ageing, running_totals, scale
from bench.asked import SOURCE, STORE, Asked, Priced, Request, by_price, by_subject, counted
from bench.day import requests
from bench.running_totals import PARTITIONS
from coset.batches import steps
from coset.batches.runners.local import Local
from coset.batches.tables.logs import Logs
from coset.batches.tables.owners import store_id
from coset.sources.s3 import storage_options
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.s3_store import S3Store
from partitioning.documents.stores import store_at
from tests.running import next_batch

TASKS, GROUPS = 6, 3
# Of a batch of four tasks in two groups, with two tables and state, after others, all in one process.
SMALL = {
    "files of tables": 10,
    "pages": 14,
    "audits": 4,
    "receipts": 9,
    "Delta logs": 6,
    "landed files": 10,
    "state and exchanges": 9,
    "verdicts": 5,
    "swaps": 4,
    "turns": 6,
    "plans": 4,
    "journal": 4,
    "commits": 2,
    "the store itself": 2,
    "forgets": 2,
}
# Of a table behind rows that change, written anew by each batch and held against what steps keep.
changing = Pipeline("small", source=SOURCE)
_newest = changing.stream("views", key="member", partitions=PARTITIONS).latest("_offset", name="newest")
_by_last = _newest.rekey("last", sql="right(member, 1)", name="by_last")
_by_last.aggregate("count(*) AS members", name="lasts").write("lasts", mode="upsert")
HELD = {"files of tables": 9, "Delta logs": 3}


@pytest.fixture
def s3_counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Asked]:
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    with counted() as server:
        yield server


def test_a_batch_asks_what_the_page_reckons_with(s3_counted: Asked, tmp_path: Path) -> None:
    scale.land(TASKS, 0)
    # A store that has an id is not tried any more.
    store_id(store_at(STORE))
    s3_counted.since()
    ref = next_batch(scale.pipeline(TASKS), STORE, Settings.parse(groups=GROUPS))
    ref = ref.in_hand()
    with Local(processes=1) as runner:
        for group in range(GROUPS):
            runner.group(ref, group)
    steps.audit(ref)
    steps.check(ref, tmp_path)
    steps.publish(ref, tmp_path)
    steps.report(ref, tmp_path)
    seen, reckoned = by_price(s3_counted.since()), requests(TASKS, GROUPS)
    assert seen[Priced.READ] == pytest.approx(reckoned.reads, abs=4)
    assert seen[Priced.WRITE] == pytest.approx(reckoned.writes, abs=2)
    assert seen[Priced.LIST] == pytest.approx(reckoned.lists, abs=4)


@pytest.mark.long
@pytest.mark.parametrize(("pipeline", "counts"), [(running_totals.pipeline, SMALL), (changing, HELD)])
def test_a_small_batch_asks_no_more_than_this(
    pipeline: Pipeline, counts: Mapping[str, int], s3_counted: Asked, tmp_path: Path
) -> None:
    for number in range(4):
        asked = ageing.batch(number, s3_counted, tmp_path, pipeline).requests
    found = {about: int(count) for about, count, *_ in by_subject(asked)}
    assert {about: found[about] for about in (counts if pipeline is changing else found)} == counts


def test_a_log_is_copied_once_and_then_listed(s3_counted: Asked) -> None:
    where, kinds = f"{STORE}/tables/t", Counter[str]()

    def look(batch: int) -> None:
        table = Logs().table(where)
        assert table is not None
        s3_counted.since()
        assert table.transaction_version("views:t") == batch
        assert not s3_counted.since()

    for batch in range(3):
        write_deltalake(
            where,
            pa.table({"n": [batch]}),
            mode="append",
            storage_options=storage_options(),
            commit_properties=CommitProperties(app_transactions=[Transaction("views:t", batch)]),
        )
        look(batch)
        for _ in range(2):
            s3_counted.since()
            assert Logs().table(where) is not None
            kinds.update(request.priced for request in s3_counted.since().elements())
    assert kinds == {Priced.LIST: 6}
    whole = S3Store(STORE)
    data = whole.get(newest := "tables/t/_delta_log/00000000000000000002.json")
    whole.delete(newest)
    look(1)
    assert data is not None
    whole.put(newest, data.replace(b'"version":2', b'"version":7'))
    look(7)


def test_requests_are_told_apart_by_what_they_cost_and_are_about() -> None:
    told = {
        ("HEAD", "/landing/store/tables/t/data/plan-0/attempt-0-1/a.parquet"): ("reads", "files of tables"),
        ("GET", "/landing/store/tables/t/_delta_log/0.json"): ("reads", "Delta logs"),
        ("PUT", "/landing/store/views/receipts/0/attempt-0/group-0.json"): ("writes", "receipts"),
        ("GET", "/landing?list-type=2&prefix=store%2Fviews%2Fplans%2F"): ("lists", "plans"),
        ("GET", "/landing/topics/views/partition%3D0/a.parquet"): ("reads", "landed files"),
        ("DELETE", "/landing/store/views/turns/0/check.json"): ("deletes", "turns"),
    }
    for asked, (priced, about) in told.items():
        assert Request.of(*asked) == Request(Priced(priced), about)
