"""What nobody means to give, as text that is not UTF-8: it is taken as it is, or refused in a sentence."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import botocore.auth
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from coset.batches import planning, steps
from coset.batches.planning import preview
from coset.batches.ref import BatchRef
from coset.batches.result_rows import set_aside_in
from coset.batches.tables.first_rows import first_rows, in_order
from coset.cli.main import app
from coset.sources.landed import discover
from coset.sources.landing import land as landing_of
from coset.sources.landing import land_rows
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.ledger import Ledger
from partitioning.documents.s3_store import S3Store
from partitioning.documents.store import Store
from partitioning.documents.stores import SplitStore
from partitioning.errors import CosetError, Finding, Refused
from partitioning.hashes import placement_hash
from partitioning.kinds import Kind
from partitioning.model.placement import KeyFormat
from partitioning.model.private import MASK
from partitioning.model.receipt import Role
from partitioning.model.schemes import tasks
from tests.batches import erase
from tests.commands import coset as coset_here
from tests.commands import succeeded
from tests.landed import land_file, land_table
from tests.real_batches import delays, land_delays, ran
from tests.refused import finding_of
from tests.running import next_batch, run_and_publish, run_and_publish_unjudged, run_groups, task_receipts
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


# What DuckDB would make the same key of, and what it would not.
TEXTS = [b"a", b"\xff\xfe", b"\xff", b"\xe9t\xe9", "é".encode(), b"a", None, b"\xff\xfe"]
GOOD = [text for text in TEXTS if text is None or text in (b"a", "é".encode())]
PARTITIONS = 3


def texts(*written: bytes | None) -> pa.Array:
    """Text as it was written: Arrow does not look."""
    return pa.array(written, pa.binary()).view(pa.string())


def written() -> pa.Table:
    ids = [f"k{number}" for number in range(len(TEXTS))]
    return pa.table({"id": ids, "x": texts(*TEXTS), "y": list("aabbccdd"), "n": range(len(TEXTS))})


def landed(store: Store, table: pa.Table | None = None) -> str:
    source = f"{store.root}/topics"
    land_table(written() if table is None else table, "o", source, key="id", partitions=PARTITIONS)
    return source


def orders(store: Store, table: pa.Table | None = None, **declared: Any) -> Any:
    made = Pipeline("counted", source=landed(store, table))
    return made.stream("o", key="id", partitions=PARTITIONS, **declared)


def rows(store: Store, table: str = "counts") -> list[dict[str, Any]]:
    found = first_rows(store, table, 1000)
    assert found is not None
    return list(found.rows.to_pylist())


def by_both(flow: Any) -> Pipeline:
    made = flow.select("x, y", name="both").rekey(("x", "y"), name="moved")
    made.aggregate("count(*) AS n", name="counts").write("counts")
    pipeline: Pipeline = flow.pipeline
    return pipeline


def by_one(flow: Any) -> Pipeline:
    flow.rekey("x", name="moved").aggregate("count(*) AS n", name="counts").write("counts")
    pipeline: Pipeline = flow.pipeline
    return pipeline


def upper(flow: Any) -> Pipeline:
    flow.select("upper(x) AS x", name="upper").write("counts")
    pipeline: Pipeline = flow.pipeline
    return pipeline


@pytest.mark.parametrize("made", [by_both, by_one, upper])
def test_it_is_refused_with_its_column_file_and_offset(store: Store, made: Any) -> None:
    with pytest.raises(Refused) as refused:
        ran(store, made(orders(store)))
    finding = refused.value.findings[0]
    assert finding.what.startswith("column 'x' at offset ")
    assert finding.what.endswith(" is not UTF-8")
    assert ".parquet" in finding.where
    assert "cast={'x': 'BLOB'}" in finding.then
    assert "bad_records='set aside'" in finding.then


def test_a_column_that_is_not_read_may_hold_it(store: Store) -> None:
    flow = orders(store)
    flow.rekey("y", name="moved").aggregate("count(*) AS n", name="counts").write("counts")
    run_and_publish_unjudged(ran(store, flow.pipeline))
    assert [(row["y"], row["n"]) for row in rows(store)] == [(y, 2) for y in "abcd"]


def test_read_as_bytes_it_counts(store: Store) -> None:
    flow = orders(store, cast={"x": "BLOB"})
    flow.rekey("x", name="moved", key_format="bytes").aggregate("count(*) AS n", name="counts").write("counts")
    run_and_publish_unjudged(ran(store, flow.pipeline))
    keyed = Counter(text for text in TEXTS if text is not None)
    assert {row["x"]: row["n"] for row in rows(store) if row["x"] is not None} == keyed


def nested(kind: str) -> pa.Array:
    plain = texts(*TEXTS)
    if kind.startswith("list"):
        items = plain.dictionary_encode() if kind == "list of dictionary" else plain
        return pa.ListArray.from_arrays(pa.array(range(len(TEXTS) + 1), pa.int32()), items)
    if kind == "struct":
        return pa.StructArray.from_arrays([pa.array(range(len(TEXTS))), plain], ["n", "text"])
    if kind == "map":
        keys = pa.array(["a"] * len(TEXTS))
        return pa.MapArray.from_arrays(pa.array(range(len(TEXTS) + 1), pa.int32()), keys, plain)
    return plain.dictionary_encode() if kind == "dictionary" else plain


@pytest.mark.parametrize("kind", ["plain", "dictionary", "list", "list of dictionary", "struct", "map"])
def test_records_with_it_are_set_aside_whole_and_the_others_count(store: Store, kind: str) -> None:
    flow = orders(store, written().set_column(1, "x", nested(kind)), bad_records="set aside")
    flow.select("x, n", name="kept").write("kept")
    ref = ran(store, flow.pipeline)
    run_and_publish(ref)
    good = [number for number, text in enumerate(TEXTS) if text in GOOD]
    assert sorted(row["n"] for row in rows(store, "kept")) == good
    found = aside(ref)
    assert sorted(json.loads(each["raw"])["id"] for each in found) == [
        f"k{number}" for number in range(len(TEXTS)) if number not in good
    ]
    assert {each["why"] for each in found} == {"column 'x' is not UTF-8"}
    # Also the columns that nobody read, and the bytes as they can be written.
    assert all(json.loads(each["raw"])["y"] in "abcd" for each in found)
    assert "\\\\xff" in "".join(each["raw"].decode() for each in found)


def aside(ref: BatchRef) -> list[dict[str, Any]]:
    ledger, plan = ref.load()
    return [dict(record) for record in set_aside_in(ledger, plan)]


def test_keys_of_the_others_are_counted_each_for_itself(store: Store) -> None:
    run_and_publish(ran(store, by_both(orders(store, bad_records="set aside"))))
    wanted = Counter((text, y) for text, y in zip(TEXTS, "aabbccdd", strict=True) if text in GOOD)
    found = {(row["x"] and row["x"].encode(), row["y"]): row["n"] for row in rows(store)}
    assert found == wanted


def test_what_one_stage_does_not_read_it_sets_aside_in_the_next_attempt(store: Store) -> None:
    flow = orders(store, bad_records="set aside")
    moved = flow.select("y, n", name="less").rekey("y", name="by_y").aggregate("count(*) AS n", name="counts")
    moved.write("counts")
    back = moved.rekey("id", sql="'k0'", name="back").aggregate("sum(n)::BIGINT AS n", name="all")
    flow.join(back, 'o.x, "all".n', name="joined").write("joined")
    ref = ran(store, flow.pipeline)
    with pytest.raises(Refused, match="sets 2 records aside, another stage others"):
        run_and_publish(ref)
    run_and_publish(ref)
    assert sum(row["n"] for row in rows(store)) == len(GOOD)
    assert len(aside(ref)) == len(TEXTS) - len(GOOD)


def test_nobody_is_told_what_private_text_is(store: Store) -> None:
    ref = ran(store, by_both(orders(store, bad_records="set aside", private="x")))
    run_and_publish(ref)
    assert {(each["raw"], each["why"]) for each in aside(ref)} == {(MASK.encode(), "it cannot be used as declared")}


def test_a_function_must_not_return_it(store: Store) -> None:
    made = Pipeline("counted", source=landed(store, pa.table({"id": ["a", "b"]})))
    flow = made.stream("o", key="id", partitions=PARTITIONS)
    flow.process("tests.functions:in_latin_1", {"id": "VARCHAR", "x": "VARCHAR"}, name="made").write("counts")
    with pytest.raises(Refused, match=r"tests.functions:in_latin_1 returned text in column 'x' that is not UTF-8"):
        ran(store, made)


def test_keys_of_text_that_an_expression_makes_so_are_refused(store: Store) -> None:
    made = Pipeline("counted", source=landed(store, pa.table({"id": ["a", "b", "c"]})))
    flow = made.stream("o", key="id", partitions=PARTITIONS)
    both = flow.select("printf('%c', 200 + ascii(id) % 50) AS x, id AS y", name="both").rekey(("x", "y"), name="moved")
    both.aggregate("count(*) AS n", name="counts").write("counts")
    # DuckDB 2 makes no such text.
    told = r"keys \(x, y\) have text that is not UTF-8, and cannot be told from each other|Invalid UTF8 produced by"
    with pytest.raises(Refused, match=told):
        ran(store, made)


def test_it_does_not_land(store: Store, tmp_path: Path) -> None:
    made = Pipeline("counted", source=f"{store.root}/topics")
    stream = made.stream("o", key="id", partitions=PARTITIONS).pipeline.streams[0]
    file = tmp_path / "rows.parquet"
    pq.write_table(written(), file)
    with pytest.raises(Refused, match="column 'x' has text that is not UTF-8"):
        landing_of(stream, file)
    with pytest.raises(Refused, match="column 'x' has text that is not UTF-8"):
        land_rows(stream, written(), "rows")


def test_it_is_shown_with_escapes(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSET_STORE", store.root)
    file = tmp_path / "counted.py"
    file.write_text(
        "from coset import Pipeline\n"
        f'pipeline = Pipeline("counted", source="{landed(store)}")\n'
        f'flow = pipeline.stream("o", key="id", partitions={PARTITIONS})\n'
        'flow.select("x", name="kept").write("kept")\n'
    )
    assert "is not UTF-8" in coset_here("run", str(file), "--runner", "local").stderr
    answer = succeeded("records", str(file), "--json")
    shown = [record["columns"]["x"] for each in json.loads(answer.stdout)["streams"] for record in each["records"]]
    assert sorted(shown, key=str) == sorted(
        [text and text.decode(errors="backslashreplace") for text in TEXTS], key=str
    )
    assert "\\xff\\xfe" in coset_here("records", str(file), "--key", "k1").stdout
    # As a table holds it that somebody else wrote.
    held = in_order(ds.dataset(written().select(["x"])), 100, ())
    assert sorted(held["x"].to_pylist(), key=str) == sorted(shown, key=str)


def test_records_do_not_tell_private_values_of_those_that_cannot_be_used(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSET_STORE", store.root)
    file, lines = tmp_path / "named.py", tmp_path / "lines.jsonl"
    file.write_text(
        "from coset import Pipeline\n"
        f'pipeline = Pipeline("named", source="{store.root}/topics")\n'
        'columns = {"id": "VARCHAR", "name": "VARCHAR", "n": "BIGINT"}\n'
        'declared = {"format": "json", "columns": columns, "bad_records": "set aside", "private": "name"}\n'
        'flow = pipeline.stream("o", key="id", partitions=1, **declared)\n'
        'flow.select("n", name="kept").write("kept")\n'
    )
    lines.write_text('{"id": "a", "name": "hush", "n": 1}\n{"id": "b", "name": "hush", "n": "hush"}\n')
    for arguments in (["land", str(file), "o", str(lines)], ["plan", str(file)]):
        succeeded(*arguments)
    for form in ([], ["--json"]):
        answer = succeeded("records", str(file), *form)
        assert "hush" not in answer.output
        assert MASK in answer.stdout
    assert Ledger(store, "named").plan(0) is not None
