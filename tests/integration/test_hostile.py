"""Input that nobody means to give, and that comes all the same: it is taken as it is, or refused in plain words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from coset.batches import planning, steps
from coset.batches.ref import BatchRef
from coset.sources.landed import discover
from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.s3_store import S3Store
from partitioning.documents.split_store import SplitStore
from partitioning.documents.store import Store
from partitioning.errors import Refused
from partitioning.hashes import placement_hash
from partitioning.kinds import Kind
from partitioning.model.artefact import Role
from partitioning.model.placement import KeyFormat
from tests.landed import land_file, land_table
from tests.real_batches import delays, land_delays
from tests.running import next_batch, run_and_publish, run_groups, task_receipts
from tests.there import there


def counts(store: Store, **declared: Any) -> Pipeline:
    pipeline = Pipeline("counts", source=f"{store.root}/topics")
    views = pipeline.stream("views", key="user", partitions=2, **declared)
    views.aggregate("count(*) AS views").write("counts")
    return pipeline


def planned(pipeline: Pipeline, store: Store) -> BatchRef:
    return next_batch(pipeline, store.root)


def not_utf8(*keys: bytes) -> pa.Array:
    """Keys as text, as they are: Arrow does not look."""
    return pa.array(keys, pa.binary()).view(pa.string())


def test_a_key_that_is_no_text_is_named_by_its_file_and_offset(store: Store) -> None:
    source = f"{store.root}/topics"
    land_file(pa.table({"user": not_utf8(b"ann", b"\xff\xfe")}), "views", source, 0, 0)
    with pytest.raises(Refused) as caught:
        run_groups(planned(counts(store, hash="opaque"), store))
    (finding,) = caught.value.findings
    assert finding.what == "column 'user' at offset 1 is not UTF-8"
    assert finding.where.endswith("views+0+0000000000.parquet")


def test_keys_that_are_equal_up_to_a_nul_are_two_keys(store: Store, tmp_path: Path) -> None:
    # In two tasks: so a check that takes them for equal finds a key in both.
    other = next(
        text
        for n in range(99)
        if placement_hash(text := f"\x00{n}", KeyFormat.STRING) % 2 != placement_hash("", KeyFormat.STRING) % 2
    )
    land_table(pa.table({"user": ["", other, ""]}), "views", f"{store.root}/topics", key="user", partitions=2)
    ref = planned(counts(store), store)
    run_and_publish(ref, tmp_path)
    ledger, plan = ref.load()
    assert len(plan.stages[0].tasks) == 2
    assert ledger.commit(0) is not None


def test_a_record_without_an_offset_is_one_finding(store: Store) -> None:
    source = f"{store.root}/topics"
    for partition in range(2):
        land_file(pa.table({"user": ["a", "b"]}), "views", source, partition, 1, offsets=[None, 1])
    with pytest.raises(Refused) as caught:
        discover(counts(store).streams)
    (finding,) = caught.value.findings
    assert [place.what for place in finding.places] == ["views: 1 records have no offset"] * 2


def test_other_columns_than_the_published_table_has_are_refused_before_anything_runs(
    store: Store, tmp_path: Path
) -> None:
    land_delays(store)
    run_and_publish(planned(delays(store), store), tmp_path)
    land_table(
        pa.table({"tailnum": ["N1"], "delay": [3]}), "flights", f"{store.root}/topics", key="tailnum", partitions=8
    )
    other = Pipeline("delays", source=f"{store.root}/topics")
    flights = other.stream("flights", key="tailnum", partitions=8, null_keys="drop")
    flights.aggregate("count(*) AS flights, min(delay) AS least").write("delays")
    with pytest.raises(Refused, match="column 'delay' is BIGINT in the table, missing in the plan"):
        steps.plan(other, store.root)


@pytest.mark.usefixtures("s3")
@pytest.mark.parametrize("decided", [False, True])
def test_a_result_file_may_be_put_back_in_any_way(decided: bool, store: Store, tmp_path: Path) -> None:
    ref = planned(delays(land_delays(store)), store)
    run_groups(ref)
    steps.audit(ref)
    if decided:
        steps.check(ref, tmp_path)
    (file, *_) = (file for task in task_receipts(ref) for file in task.left(Role.TABLE))
    data = there(store.get(file.path))
    _put_in_parts(store, file.path, data)
    entry = there(store.head(file.path))
    assert entry.etag != file.etag
    steps.check(ref, tmp_path)
    assert "is published" in steps.publish(ref)


def test_a_result_file_of_other_content_is_refused(store: Store, tmp_path: Path) -> None:
    ref = planned(delays(land_delays(store)), store)
    run_groups(ref)
    steps.audit(ref)
    steps.check(ref, tmp_path)
    (file, *_) = (file for task in task_receipts(ref) for file in task.left(Role.TABLE))
    data = there(store.get(file.path))
    store.put(file.path, bytes([*data[:-1], data[-1] ^ 1]))
    with pytest.raises(Refused, match="the file has the content sha256:"):
        steps.publish(ref)


def _put_in_parts(store: Store, key: str, data: bytes) -> None:
    """As an upload in one part, whose etag is not that of the content."""
    assert isinstance(store, SplitStore)
    assert isinstance(store.documents, S3Store)
    client = store.documents._client
    at = {"Bucket": store.documents._bucket, "Key": store.documents._prefix + key}
    upload = client.create_multipart_upload(**at)["UploadId"]
    part = client.upload_part(**at, UploadId=upload, PartNumber=1, Body=data)
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    client.complete_multipart_upload(**at, UploadId=upload, MultipartUpload=parts)


def test_a_column_of_a_type_that_duckdb_does_not_have_is_named(store: Store) -> None:
    scores = pa.array([1], pa.decimal256(76, 3))
    land_file(pa.table({"user": ["a"], "score": scores, "rank": scores}), "views", f"{store.root}/topics", 0, 0)
    with pytest.raises(Refused) as caught:
        discover(counts(store).streams)
    (finding,) = caught.value.findings
    assert finding.what == (
        "views: column 'score' is decimal256(76, 3), column 'rank' is decimal256(76, 3), "
        "a type that DuckDB does not have"
    )


OWN = ("store-id", "Store-ID", "docs", "DOCS", "tables-at-7.json", "index.html", ".unfinished-1", "Tables")


@pytest.mark.parametrize("name", OWN)
def test_no_pipeline_begins_where_the_store_has_something_of_its_own(
    name: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made() -> Pipeline:
        pipeline = Pipeline(name, source=f"{store.root}/topics")
        pipeline.stream("views", key="user", partitions=2).aggregate("count(*) AS views").write("counts")
        return pipeline

    land_table(pa.table({"user": ["a", "b", "c"]}), "views", f"{store.root}/topics", key="user", partitions=2)
    before = [entry.key for entry in store.list("")]
    with pytest.raises(Refused) as caught:
        planned(made(), store)
    (finding,) = caught.value.findings
    assert (finding.kind, finding.what) == (Kind.NAME, f"a pipeline cannot be named {name!r}")
    assert finding.then.endswith("; rename it")
    assert [entry.key for entry in store.list("")] == before
    if name != "docs":
        return
    # One that an earlier version let begin goes on.
    with monkeypatch.context() as earlier:
        earlier.setattr(planning, "taken_from_pipelines", lambda _: None)
        run_and_publish(planned(made(), store), tmp_path)
    land_table(pa.table({"user": ["d"]}), "views", f"{store.root}/topics", key="user", partitions=2)
    run_and_publish(planned(made(), store), tmp_path)


@pytest.mark.parametrize("name", ["store-id", "STORE-ID", ".unfinished-x", "_delta_log", "_Delta_Log", "_change_data"])
def test_no_table_is_made_where_the_store_has_something_of_its_own(name: str, store: Store) -> None:
    pipeline = Pipeline("counts", source=f"{store.root}/topics")
    pipeline.stream("views", key="user", partitions=2).aggregate("count(*) AS views").write(name)
    land_table(pa.table({"user": ["a", "b", "c"]}), "views", f"{store.root}/topics", key="user", partitions=2)
    with pytest.raises(Refused, match=f"a table cannot be named {name!r}"):
        planned(pipeline, store)
