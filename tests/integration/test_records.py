"""`coset records`: from a failed expectation to the records themselves, in batches that were made wrong."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coset.batches.ref import BatchRef
from coset.sources.reader import Batch
from demo.kafka_server import KafkaServer
from demo.s3_server import S3Server
from partitioning.authoring.settings import Settings
from partitioning.documents.folder_store import path_of
from partitioning.documents.store import Store
from partitioning.hashes import placement_hash
from partitioning.model.streams import NullKeys
from spark_jobs.engine.take import LEFT, Taken
from tests.begun import Begun
from tests.commands import coset, succeeded
from tests.judged import COVERED, HASH, HAVE_KEYS, IN_PLACE, MEET, refusal
from tests.kafka import new_topic, produce
from tests.landed import land_file
from tests.real_batches import TAILS, delays, land_delays, ran, spoil_kernel
from tests.running import run_and_publish

PIPELINE = str(Path(__file__).parents[1] / "pipelines" / "delays.py")


@pytest.fixture
def landed(store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    return land_delays(entered(store, monkeypatch))


def entered(store: Store, environment: pytest.MonkeyPatch) -> Store:
    environment.setenv("DELAYS_SOURCE", f"{store.root}/topics")
    environment.setenv("COSET_STORE", store.root)
    return store


def shown(*words: str, batch: int = 0) -> dict[str, Any]:
    """What the command says as JSON."""
    answer = succeeded("records", PIPELINE, "--batch", str(batch), "--json", *words)
    said: dict[str, Any] = json.loads(answer.stdout)
    return said


def offenders(ref: BatchRef, docs: Path, *words: str) -> dict[str, dict[str, Any]]:
    """What the command says of a batch that its checks refuse, by expectation; a published table is as it was."""
    refusal(ref, docs)
    before = kept(ref)
    unmet = shown("--offenders", *words)["unmet"]
    assert kept(ref) == before
    return {each["expectation"]: each for each in unmet}


def kept(ref: BatchRef) -> list[str]:
    """All that lies in the store."""
    return sorted(str(path) for path in path_of(ref.load()[0].store.root).rglob("*"))


def records(told: Mapping[str, Any], stream: str = "flights") -> list[dict[str, Any]]:
    (found,) = (each["records"] for each in told["streams"] if each["stream"] == stream)
    return list(found)


def selected(statements: str) -> list[list[dict[str, Any]]]:
    """What the printed SQL selects, statement by statement, without the columns of places."""
    with duckdb.connect() as connection:
        return [connection.sql(each).to_arrow_table().to_pylist() for each in statements.split(";") if "FROM" in each]


def test_a_record_in_a_wrong_partition_is_shown_with_its_file_offset_and_columns(landed: Store, tmp_path: Path) -> None:
    home = placement_hash("N7") % 8
    astray = (home + 1) % 8
    table = pa.table({"tailnum": ["N7"], "delay": pa.array([4711], pa.int64())})
    end = len([tail for tail in TAILS if placement_hash(tail) % 8 == astray]) * 2 + (astray == 0)
    file = land_file(table, "flights", f"{landed.root}/topics", astray, end)
    told = offenders(ran(landed, delays(landed)), tmp_path)
    (found,) = records(told[IN_PLACE])
    assert found["columns"] == {"tailnum": "N7", "delay": 4711, "_offset": end}
    assert (found["partition"], found["offset"], found["key"]) == (astray, end, "N7")
    assert found["file"].endswith(f"topics/flights/partition={astray}/{Path(str(file)).name}")
    # Its key met in two tasks: its other record and its plane are offenders too.
    both = {(each["partition"], each["key"]) for each in records(told[MEET])}
    assert both == {(home, "N7"), (astray, "N7")}
    assert {each["key"] for each in records(told[MEET], "planes")} == {"N7"}
    assert [each["offset"] for each in records(told[HASH])] == [end]


def test_records_without_a_key_that_are_refused_are_shown(landed: Store, tmp_path: Path) -> None:
    told = offenders(ran(landed, delays(landed, null_keys=NullKeys.REFUSE)), tmp_path)
    (found,) = records(told[HAVE_KEYS])
    assert (found["key"], found["columns"]["delay"]) == (None, 80)


def test_the_record_that_a_task_lost_is_found_by_its_digest(
    landed: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(batch: Batch, seen: Taken) -> None:
        if (batch.partition, seen.keys.type) == (3, pa.string()) and "flights" in batch.where:
            seen.dispositions[2:3] = LEFT

    with monkeypatch.context() as patch:
        spoil_kernel(patch, lose)
        ref = ran(landed, delays(landed))
    told = offenders(ref, tmp_path)[COVERED]
    assert [(each["partition"], each["offset"]) for each in records(told)] == [(3, 2)]
    assert "hold each planned offset once: offset 2 was taken by no task, by the digests" in told["notes"][0]


def test_rows_that_are_not_expected_are_shown_with_the_records_of_their_keys(landed: Store, tmp_path: Path) -> None:
    seats = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "seats", "max_value": 38}}
    told = offenders(ran(landed, delays(landed, expect=[seats])), tmp_path)["expect_column_values_to_be_between"]
    (row,) = told["rows"]
    assert row["columns"] == {"tailnum": "N39", "flights": 2, "delay": 79, "seats": 39}
    assert [each["columns"]["delay"] for each in records(told)] == [39, 79]
    assert {each["key"] for each in records(told) + records(told, "planes")} == {"N39"}


@pytest.mark.parametrize(("most", "listed"), [(0, 0), (1, 1), (20, 8)])
def test_a_setting_says_how_many_offenders_a_finding_lists(landed: Store, most: int, listed: int) -> None:
    seats = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "seats", "max_value": 31}}
    settings = Settings.read(f"offenders = {most}", "settings.toml")
    said = refusal(ran(landed, delays(landed, expect=[seats]), settings=settings))
    lines = said.findings[0].splitlines()[1:]
    assert len([line for line in lines if "of key" in line]) == listed
    assert ("and more: 8 in all" in said.findings[0]) is (most < 8)
    # The records are found all the same.
    (told,) = shown("--offenders")["unmet"]
    assert len(told["rows"]) == 8


def test_sql_selects_what_is_shown(landed: Store, tmp_path: Path) -> None:
    seats = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "seats", "max_value": 38}}
    refusal(ran(landed, delays(landed, expect=[seats])), tmp_path)
    answer = succeeded("records", PIPELINE, "--batch", "0", "--offenders", "--sql")
    (row,), flights, (plane,) = selected(answer.stdout)
    assert (row["tailnum"], row["seats"]) == ("N39", 39)
    assert [(flight["tailnum"], flight["delay"]) for flight in flights] == [("N39", 39), ("N39", 79)]
    assert (plane["tailnum"], plane["seats"]) == ("N39", 39)


def right_batch(store: Store) -> None:
    run_and_publish(ran(land_delays(store), delays(store)))


@pytest.fixture
def published(begun: Begun, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A batch that nothing is wrong with."""
    return entered(begun.by(right_batch), monkeypatch)


def test_the_records_of_a_key_are_looked_for_where_it_hashes(published: Store) -> None:
    (said,) = shown("--stream", "flights", "--key", "N7")["streams"]
    assert [each["columns"]["delay"] for each in said["records"]] == [7, 47]
    home = placement_hash("N7") % 8
    there = [tail for tail in TAILS if placement_hash(tail) % 8 == home]
    assert said["looked"] == 2 * len(there) + (home == 0)
    assert {each["partition"] for each in said["records"]} == {home}


def test_a_batch_that_nothing_is_wrong_with_has_no_offenders(published: Store) -> None:
    answer = succeeded("records", PIPELINE, "--batch", "0", "--offenders")
    assert answer.stdout == "Batch 0 of delays, attempt 0: no expectation is unmet\n\n"


def test_a_batch_that_was_not_checked_has_none_either_and_says_so(landed: Store) -> None:
    ran(landed, delays(landed))
    answer = coset("records", PIPELINE, "--batch", "0", "--offenders")
    assert answer.exit_code == 3
    assert "no attempt of batch 0 was checked" in answer.stderr


def test_a_file_that_is_gone_is_told_after_what_can_be_read(published: Store) -> None:
    for file in path_of(published.root).glob("topics/planes/**/*.parquet"):
        file.unlink()
    answer = coset("records", PIPELINE, "--batch", "0", "--key", "N7")
    assert answer.exit_code == 3
    assert "flights: 2 records" in answer.stdout
    assert "the file is gone since the batch was planned" in answer.stderr
    assert "without it nobody can see what the batch read" in answer.stderr
    assert answer.stderr.count("next:") == 1
    for file in path_of(published.root).glob("topics/flights/**/*.parquet"):
        file.unlink()
    gone = coset("records", PIPELINE, "--batch", "0").stderr
    assert "more files" in gone
    # No batch is open, and this one may be published.
    assert "coset replan" not in gone


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--stream", "flihgts"), "batch 0 reads no stream 'flihgts'"),
        (("--expectation", "expect_x"), "--expectation\n  next:  add --offenders"),
    ],
)
def test_what_makes_no_sense_is_refused(landed: Store, words: Sequence[str], says: str) -> None:
    ran(landed, delays(landed))
    answer = coset("records", PIPELINE, "--batch", "0", *words)
    assert answer.exit_code == 3
    assert says in answer.stderr


def test_records_and_rows_in_s3_are_named_by_their_addresses(s3: S3Server, landed: Store, tmp_path: Path) -> None:
    assert landed.root.startswith("s3://")
    unlikely = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "delay", "max_value": 30}}
    refusal(ran(landed, delays(landed, expect=[unlikely])), tmp_path)
    (told,) = shown("--offenders", "--limit", "2")["unmet"]
    (row, _), found = told["rows"], records(told)
    assert row["file"].startswith(f"{landed.root}/tables/delays/data/plan-0/attempt-0")
    assert found
    assert all(each["file"].startswith(f"{landed.root}/topics/flights/") for each in found)
    statements = coset("records", PIPELINE, "--batch", "0", "--offenders", "--sql").stdout
    assert "LOAD httpfs" in statements
    assert all(each["file"] in statements for each in (row, *found))


def test_records_in_a_broker_are_found_by_key_offset_and_expectation(
    kafka: KafkaServer, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSET_STORE", store.root)
    topic = new_topic(kafka)
    produce(kafka, topic, [(f"k{number % 5}", {"n": number}) for number in range(20)])
    (file := tmp_path / "copied.py").write_text(
        f"from coset import Pipeline\npipeline = Pipeline('copied', source={kafka.source!r})\n"
        f"rows = pipeline.stream({topic!r}, key='tail', partitions=2, format='json', columns={{'n': 'INTEGER'}})\n"
        "wrong = {'type': 'expect_column_values_to_be_between', 'kwargs': {'column': 'n', 'max_value': 18}}\n"
        "rows.select('n', name='rows').write('rows', expect=[wrong])\n"
    )

    def found(*words: str) -> dict[str, Any]:
        answer = succeeded("records", str(file), "--batch", "0", "--json", *words)
        return json.loads(answer.stdout)

    assert coset("run", str(file), "--runner", "local", "--docs", str(tmp_path / "docs")).exit_code == 3
    (unmet,) = found("--offenders")["unmet"]
    assert [row["columns"]["n"] for row in unmet["rows"]] == [19]
    of_key = records(unmet, topic)
    assert sorted(each["columns"]["n"] for each in of_key) == [4, 9, 14, 19]
    assert {each["key"] for each in of_key} == {"k4"}
    assert all(each["file"] is None or each["file"].startswith("kafka://") for each in of_key)
    assert records(found("--key", "k4"), topic) == of_key
    assert len(records(found("--limit", "7"), topic)) == 7
    statements = coset("records", str(file), "--batch", "0", "--key", "k4", "--sql").stdout
    assert statements.startswith("--")
    assert all(f"{each['offset']}" in statements for each in of_key)


def test_offsets_that_a_file_lacks_and_repeats_are_named(landed: Store, tmp_path: Path) -> None:
    end = len([tail for tail in (*TAILS, *TAILS) if placement_hash(tail) % 8 == 2])
    tail = next(tail for tail in TAILS if placement_hash(tail) % 8 == 2)
    flights = pa.table({"tailnum": [tail] * 4, "delay": pa.array(range(4), pa.int64())})
    land_file(flights, "flights", f"{landed.root}/topics", 2, end, offsets=[end, end + 1, end + 1, end + 3])
    told = offenders(ran(landed, delays(landed)), tmp_path)[COVERED]
    assert told["notes"] == [f"The files lack flights-2@[{end + 2},{end + 3})"]
    # The one after the hole is out of order too.
    assert [each["offset"] for each in records(told)] == [end + 1, end + 1, end + 3]


def test_the_next_step_of_a_failed_expectation_leads_to_its_records(landed: Store, tmp_path: Path) -> None:
    ref = ran(landed, delays(landed, null_keys=NullKeys.REFUSE))
    refusal(ref, tmp_path)
    answer = coset("report", PIPELINE, "--batch", "0")
    (command,) = set(re.findall(r"`coset (records \S+ --batch 0 --offenders --store \S+)` the records", answer.stdout))
    answer = succeeded(*command.split())
    assert "flights: 1 record, looked at 1 record\n" in answer.stdout


@pytest.mark.parametrize("form", ["json", "counted"])
def test_sql_reads_other_landed_files_as_well(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setenv("COSET_STORE", store.root)
    flights = [{"tailnum": "N7", "delay": 1}, {"tailnum": "N8", "delay": 2}, {"tailnum": "N7", "delay": 3}]
    if form == "json":
        declared = "format='json', columns={'tailnum': 'VARCHAR', 'delay': 'BIGINT', '_offset': 'BIGINT'}"
        lines = "".join(json.dumps({**row, "_offset": place + 20}) + "\n" for place, row in enumerate(flights))
        store.put("topics/flights/partition=0/flights+0+0000000020.json", lines.encode())
    else:
        declared = "offset=None"
        sink = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(flights), sink)
        store.put("topics/flights/partition=0/flights+0+0000000020.parquet", sink.getvalue())
    made = tmp_path / "late.py"
    made.write_text(
        "from coset import Pipeline\n"
        f"pipeline = Pipeline('late', source={store.root + '/topics'!r})\n"
        f"flights = pipeline.stream('flights', key='tailnum', partitions=1, {declared})\n"
        "flights.write('late')\n"
    )
    succeeded("plan", str(made))
    answer = coset("records", str(made), "--batch", "0", "--key", "N7", "--sql")
    within = coset("records", str(made), "--batch", "0", "--key", "N7", "--sql", "--json")
    assert json.loads(within.stdout)["sql"] == answer.stdout.removesuffix("\n")
    assert answer.exit_code == 0, answer.output
    (found,) = selected(answer.stdout)
    assert [(each["_offset"], each["tailnum"], each["delay"]) for each in found] == [(20, "N7", 1), (22, "N7", 3)]
