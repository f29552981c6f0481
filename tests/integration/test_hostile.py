"""What nobody means to give, and that comes all the same: it is taken as it is, or refused in plain words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import botocore.auth
import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

from coset.batches import planning, steps
from coset.batches.planning import preview
from coset.batches.ref import BatchRef
from coset.cli.main import app
from coset.sources.landed import discover
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.ledger import Ledger
from partitioning.documents.s3_store import S3Store
from partitioning.documents.store import Store
from partitioning.documents.stores import SplitStore
from partitioning.errors import CosetError, Finding, Refused
from partitioning.hashes import placement_hash
from partitioning.kinds import Kind
from partitioning.model.artefact import Role
from partitioning.model.placement import KeyFormat
from partitioning.model.schemes import tasks
from tests.batches import erase
from tests.landed import land_file, land_table
from tests.real_batches import delays, land_delays
from tests.refused import finding_of
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
    finding = finding_of(run_groups, planned(counts(store, hash="opaque"), store))
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
    finding = finding_of(discover, counts(store).streams)
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
    finding = finding_of(discover, counts(store).streams)
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
    finding = finding_of(planned, made(), store)
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


# ---- topics, tables and numbers


VIEWS = pa.table({"user": ["a", "b"], "v": [1, 2]})


def pipeline(store: Store) -> Pipeline:
    counts = Pipeline("counts", source=f"{store.root}/topics")
    counts.stream("views", key="user", partitions=2, hash="opaque").select("v").write("counts")
    return counts


def land(store: Store, partition: int, first: int, table: pa.Table = VIEWS) -> None:
    land_file(table, "views", f"{store.root}/topics", partition, first)


def forget(store: Store, prefix: str) -> None:
    """Remove what retention would."""
    erase(store.root, *(entry.key for entry in store.list(f"topics/views/{prefix}")))


@pytest.fixture
def published(store: Store, tmp_path: Path) -> Store:
    """A store whose four landed records are published."""
    for partition in range(2):
        land(store, partition, 0)
    run_and_publish(next_batch(pipeline(store), store.root), tmp_path)
    return store


def refused(store: Store) -> Finding:
    """The only finding with which the next batch is refused."""
    return finding_of(preview, pipeline(store), store)


def coset(store: Store, tmp_path: Path, *words: str) -> Result:
    file = tmp_path / "counts.py"
    file.write_text(
        "from coset import Pipeline\n"
        f"pipeline = Pipeline('counts', source='{store.root}/topics')\n"
        "views = pipeline.stream('views', key='user', partitions=2, hash='opaque')\n"
        "views.select('v').write('counts')\n"
    )
    return CliRunner().invoke(app, [words[0], str(file), "--store", store.root, *words[1:]])


def test_a_stream_of_which_nothing_is_left_was_read_before_and_goes_on_from_there(published: Store) -> None:
    forget(published, "")
    finding = refused(published)
    assert finding.what == (
        "views: no file is left of it, and it was read before: views-0 up to offset 2, views-1 up to offset 2"
    )
    assert finding.where == f"{published.root}/topics/views/"
    assert finding.then.startswith("land what comes next, from these offsets on")
    for partition in range(2):
        land(published, partition, 2)
    plan = there(preview(pipeline(published), published).plan)
    assert plan.records == 4


def test_where_less_lies_than_is_committed_status_says_so_and_no_lag(published: Store, tmp_path: Path) -> None:
    forget(published, "partition=0/")
    land(published, 0, 0, VIEWS.slice(0, 1))
    shown = coset(published, tmp_path, "status")
    assert shown.exit_code == 0, shown.output
    assert "views-0 is committed up to offset 2, but its files end at offset 1." in shown.stdout
    assert "Lag: unknown in 2 stream partitions." in shown.stdout
    assert "-2" not in shown.stdout


def test_a_partition_whose_files_expired_after_they_were_read_is_idle(published: Store, tmp_path: Path) -> None:
    forget(published, "partition=0/")
    shown = coset(published, tmp_path, "status")
    assert shown.exit_code == 0, shown.output
    assert "Lag: 0 in 2 stream partitions." in shown.stdout
    land(published, 1, 2)
    plan = there(preview(pipeline(published), published).plan)
    assert [str(offsets) for offsets in plan.ranges()] == ["views-0@[2,2)", "views-1@[2,4)"]


def test_columns_that_differ_in_case_only_are_refused_before_a_plan_is_stored(store: Store) -> None:
    for partition in range(2):
        land(store, partition, 0, pa.table({"user": ["a"], "v": [1], "V": [2]}))
    finding = finding_of(steps.plan, pipeline(store), store.root)
    assert (finding.kind, finding.what) == (Kind.SQL_TYPE, "two columns are named 'v'")
    assert finding.where == "stream 'views'"
    assert finding.then == "land it with other column names; SQL does not tell cases apart"
    assert Ledger(store, "counts").plan(0) is None


def test_far_more_tasks_than_records_are_warned_of(store: Store) -> None:
    for partition in range(2):
        land(store, partition, 0)
    keyed = Pipeline("counts", source=f"{store.root}/topics")
    keyed.stream("views", key="user", partitions=2).aggregate("count(*) AS views").write("counts")
    sentence = preview(keyed, store, Settings(scheme=tasks(1000))).sentence
    assert sentence == (
        "Batch 0 is planned: 4 records in 2 task groups; 996 of 1,000 tasks have nothing to do, so choose fewer"
    )
    assert "nothing to do" not in preview(keyed, store, Settings(scheme=tasks(24))).sentence


def test_a_delta_log_of_garbage_is_one_clear_finding_without_frames(published: Store) -> None:
    log = "tables/counts/_delta_log/00000000000000000001.json"
    held = there(published.get(log))
    published.put(log, b"\x00garbage\xff")
    finding = refused(published)
    assert finding.what.startswith("the Delta log cannot be read or written: ")
    assert finding.where == f"{published.root}/tables/counts"
    assert finding.then == "run the same command again; if it fails again, restore the table's _delta_log/ as it was"
    assert not any(frame in finding.what for frame in ("start_thread", "<unknown>", "\n", "at /"))
    published.put(log, held)
    assert preview(pipeline(published), published).plan is None


@pytest.mark.usefixtures("s3")
def test_a_clock_that_is_wrong_has_to_be_set(published: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    late = datetime.now(UTC) + timedelta(hours=1)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda **_: late)
    with pytest.raises(CosetError) as caught:
        preview(pipeline(published), published)
    (finding,) = caught.value.findings
    assert "RequestTimeTooSkewed" in finding.what
    assert finding.then == "set this machine's clock"
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("runner", [(), ("--runner", "spark-submit")])
def test_a_master_that_is_none_is_refused_before_a_plan_is_stored(
    runner: tuple[str, ...], store: Store, tmp_path: Path
) -> None:
    for partition in range(2):
        land(store, partition, 0)
    shown = coset(store, tmp_path, "run", "--master", "nonsense://x", *runner)
    assert shown.exit_code == 3, shown.output
    assert "'nonsense://x' is not a Spark master" in shown.stderr
    assert "next:  name local[*], spark://host:port" in shown.stderr
    assert "at org.apache" not in shown.output
    assert Ledger(store, "counts").plan(0) is None


def test_a_module_beside_the_pipelines_file_is_not_found(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSET_IMPORTS", "lonely")
    (tmp_path / "lonely.py").write_text("def score(table):\n    return table\n")
    for partition in range(2):
        land(store, partition, 0)
    coset(store, tmp_path, "status")
    file = tmp_path / "counts.py"
    step = "views.process('lonely:score', {'user': 'VARCHAR'}).write('counts')"
    file.write_text(file.read_text().replace("views.select('v').write('counts')", step))
    command = ("explain", str(file), "--store", store.root)
    assert "'lonely:score' cannot be imported" in CliRunner().invoke(app, command).stderr
    monkeypatch.syspath_prepend(tmp_path)
    shown = CliRunner().invoke(app, command)
    assert "Batch 0 would be planned" in shown.stdout, shown.output
