"""What the checks say of batches from a broker that are made wrong, and who else is told how far a pipeline is."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]
from typer.testing import CliRunner

from coset.batches import steps
from coset.batches.backfills import actions as backfills
from coset.batches.backfills.actions import Asked
from coset.batches.interpreter import silently
from coset.batches.planning import preview
from coset.batches.progress import progress
from coset.batches.runners.local import Local
from coset.batches.runners.spark import Spark
from coset.cli.main import app
from coset.sources.kafka import cluster, topic_reader
from coset.sources.kafka.topic_reader import KafkaReader
from coset.sources.reader import Batch
from demo.kafka_server import KafkaServer
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.store import Store
from partitioning.errors import Refused, Unreachable
from partitioning.model.read_ends import NOTHING
from partitioning.model.schemes import Scheme
from spark_jobs.engine.take import LEFT, OUTSIDE, Taken
from tests.batches import rows
from tests.judged import COVERED, EMPTY, IN_PLACE, Refusal, caught_by, refusal, results, saying
from tests.kafka import COLUMNS, TAILS, counted, deny, new_topic, produce, remove_before, transactions, views
from tests.real_batches import ran, spoil_kernel
from tests.refused import finding_of
from tests.running import next_batch, run_and_publish, run_groups, task_receipts
from tests.sparse import published

FOUR = Settings(scheme=Scheme.parse("tasks(4)"))


def test_a_task_that_loses_a_record_that_others_saw_is_refused(
    kafka: KafkaServer, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, readings = new_topic(kafka, 1), []
    produce(kafka, topic, views(TAILS))

    def lose(batch: Batch, seen: Taken) -> None:
        readings.append(batch)
        # The second task does not see the first record at all.
        if len(readings) == 2:
            seen.dispositions[0] = OUTSIDE

    spoil_kernel(monkeypatch, lose)
    said = refusal(ran(store, counted(kafka, topic, 1), settings=FOUR))
    assert f"{topic}-0@[0,40): a task read 39 of 40 records" in said.findings[0]
    assert "did not read the same offsets" in said.findings[0]
    # Where that task saw nothing, another look finds the record.
    assert said.failed == (COVERED, EMPTY)


def skipping(patch: pytest.MonkeyPatch, *offsets: int) -> None:
    """Readers that pass over these offsets, as if the broker had none there."""
    messages = KafkaReader._messages

    def skip(self: KafkaReader, *given: Any) -> Iterator[tuple[list[Message], int]]:
        for some, reached in messages(self, *given):
            yield [message for message in some if message.offset() not in offsets], reached

    patch.setattr(KafkaReader, "_messages", skip)


@caught_by(EMPTY)
@pytest.mark.parametrize("scheme", ["tasks(1)", "tasks(4)"])
def test_a_record_that_every_reader_passes_over_is_seen_by_another_look(
    kafka: KafkaServer, store: Store, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> Refusal:
    topic = new_topic(kafka, 1)
    produce(kafka, topic, views(TAILS))
    skipping(monkeypatch, 17)
    return saying(
        refusal(ran(store, counted(kafka, topic, 1), settings=Settings.parse(scheme=scheme))),
        f"{topic}-0: 1 file or record lies where readers found nothing, the first is offset 17 in ",
    )


@caught_by(EMPTY)
def test_the_first_and_the_last_records_that_are_passed_over_are_seen(
    kafka: KafkaServer, store: Store, monkeypatch: pytest.MonkeyPatch
) -> Refusal:
    topic = new_topic(kafka, 1)
    produce(kafka, topic, views(TAILS))
    skipping(monkeypatch, 0, 1, 38, 39)
    return saying(
        refusal(ran(store, counted(kafka, topic, 1))),
        f"{topic}-0: 2 files or records lie where readers found nothing, the first is offset 0 in ",
    )


def test_what_transactions_leave_is_looked_into_and_nothing_is_found(
    kafka: KafkaServer, store: Store, tmp_path: Path
) -> None:
    topic = new_topic(kafka, 1)
    with transactions(kafka, topic) as transaction:
        for number, then in enumerate(("commit", "abort", "commit")):
            transaction(views(TAILS[:5], number), then)
    ref = published(store, counted(kafka, topic, 1), tmp_path)
    (found,) = (result for result in results(ref) if result["expectation"] == EMPTY)
    assert found["success"]
    assert found["result"]["observed_value"] == "2 gaps in 1 stream partition"


@caught_by(COVERED)
def test_a_record_that_no_task_takes_is_refused(
    kafka: KafkaServer, store: Store, monkeypatch: pytest.MonkeyPatch
) -> Refusal:
    topic = new_topic(kafka, 1)
    produce(kafka, topic, views(TAILS))

    def leave(batch: Batch, seen: Taken) -> None:
        seen.dispositions[np.array([key == "N7" for key in seen.keys.to_pylist()], np.bool_)] = LEFT

    spoil_kernel(monkeypatch, leave)
    return saying(refusal(ran(store, counted(kafka, topic, 1), settings=FOUR)), "1 record of 40 not taken by any task")


@caught_by(COVERED)
def test_a_range_that_is_not_read_to_its_end_is_refused(
    kafka: KafkaServer, store: Store, monkeypatch: pytest.MonkeyPatch
) -> Refusal:
    topic = new_topic(kafka, 1)
    produce(kafka, topic, views(TAILS))
    batches = KafkaReader.batches

    def stopping(self: KafkaReader, columns: list[str]) -> Iterator[Batch]:
        # It ends early for all tasks alike, so that none can tell of another.
        for batch in batches(self, columns):
            if batch.reached is not None and batch.reached <= 20:
                yield batch

    monkeypatch.setattr(topic_reader, "_RECORDS_AT_ONCE", 10)
    monkeypatch.setattr(KafkaReader, "batches", stopping)
    ref = ran(store, counted(kafka, topic, 1))
    assert [receipt.partitions[0].reached for receipt in task_receipts(ref)] == [20]
    return saying(refusal(ref), "a task read 20 of 40 records")


def test_a_producer_with_another_partitioner_is_refused_and_can_be_declared_as_the_refusal_says(
    kafka: KafkaServer, store: Store
) -> None:
    topic = new_topic(kafka, 4)
    produce(kafka, topic, views(TAILS), partitioner="consistent_random")
    said = refusal(ran(store, counted(kafka, topic, 4)))
    assert IN_PLACE in said.failed
    assert any("where its producer did not put it" in finding for finding in said.findings)
    assert any('declare hash="crc32"' in step for step in said.next)
    _, again, _ = steps.replan(counted(kafka, topic, 4, hash="crc32"), store.root, Settings(), "it hashes by CRC32")
    assert again is not None
    run_and_publish(again)
    assert len(rows(store.root, "counted")) == len(TAILS)


def test_a_receipt_says_up_to_where_it_was_read_and_tasks_of_a_group_read_together(
    kafka: KafkaServer, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, readers = new_topic(kafka, 1), []
    with transactions(kafka, topic) as transaction:
        transaction(views(TAILS), "commit")
    batches = KafkaReader.batches

    def counting(self: KafkaReader, columns: list[str]) -> Iterator[Batch]:
        readers.append(self)
        return batches(self, columns)

    monkeypatch.setattr(KafkaReader, "batches", counting)
    ref = ran(store, counted(kafka, topic, 1), settings=Settings(scheme=Scheme.parse("tasks(4)"), groups=1))
    seen = [receipt.partitions[0] for receipt in task_receipts(ref)]
    assert [(one.read, one.end, one.reached) for one in seen] == [(40, 41, 41)] * 4
    assert len({one.held for one in seen}) == 1
    assert len(readers) == 1
    run_and_publish(ref)


def test_tasks_that_share_a_partition_by_offsets_read_their_parts(
    kafka: KafkaServer, store: Store, tmp_path: Path
) -> None:
    topic = new_topic(kafka, 1)
    with transactions(kafka, topic) as transaction:
        transaction(views(TAILS[:10]), "commit")
        transaction(views(TAILS[:10]), "abort")
        transaction(views(TAILS[:10]), "commit")
    made = Pipeline("copied", source=kafka.source)
    declared = made.stream(topic, key="tail", partitions=1, format="json", columns=COLUMNS)
    declared.select("n, _offset AS place", name="rows").write("rows")
    ref = published(store, made, tmp_path, Settings(scheme=Scheme.parse("records(7)")))
    # 30 records, and an end of each transaction.
    assert [receipt.partitions[0].reached for receipt in task_receipts(ref)] == [6, 13, 19, 26, 33]
    places = [*range(10), *range(22, 32)]
    assert [row[2] for row in sorted(rows(store.root, "rows"), key=lambda row: str(row[2]).zfill(2))] == places


@pytest.mark.long
def test_a_batch_on_spark_gives_the_same(kafka: KafkaServer, store: Store, tmp_path: Path) -> None:
    topic = new_topic(kafka)
    produce(kafka, topic, views(TAILS * 2))
    run_and_publish(next_batch(counted(kafka, topic), store.root), tmp_path, Spark("local[2]"))
    assert {row[:2] for row in rows(store.root, "counted")} == {(tail, 2) for tail in TAILS}


def test_the_consumer_group_and_status_agree(kafka: KafkaServer, store: Store, tmp_path: Path) -> None:
    topic = new_topic(kafka)
    made = counted(kafka, topic)
    produce(kafka, topic, views(TAILS))
    ref = published(store, made, tmp_path)
    produce(kafka, topic, views(TAILS[:7]))
    told = committed(kafka, topic, "coset.counted")
    now = progress(made, ref.load()[1].ends, datetime.now(UTC))
    assert [told[number].offset for number in (0, 1)] == [one.committed for one in now.partitions]
    assert told[0].metadata == f"batch 0 of plan {ref.digest}"
    assert sum(ends(kafka, topic)) - sum(place.offset for place in told.values()) == now.lag == 7
    assert all(0 < (one.lag_seconds or 0) < 600 for one in now.partitions if one.lag)
    assert "the consumer group coset.counted is updated" in steps.publish(ref)


def test_status_and_metrics_show_the_lag_of_a_topic(kafka: KafkaServer, store: Store, tmp_path: Path) -> None:
    topic = new_topic(kafka, 1)
    produce(kafka, topic, views(["a", "b"]))
    file = tmp_path / "counted.py"
    file.write_text(
        "from coset import Pipeline\n"
        f"pipeline = Pipeline('counted', source='{kafka.source}')\n"
        f"views = pipeline.stream('{topic}', key='tail', partitions=1, format='json', columns={{'n': 'BIGINT'}})\n"
        "views.aggregate('count(*) AS views').write('counted')\n"
    )
    said = CliRunner().invoke(app, ["status", str(file), "--store", store.root, "--json"])
    (partition,) = json.loads(said.output)["partitions"]
    assert (partition["committed"], partition["latest"], partition["lag"]) == (None, 2, 2)
    assert partition["lag_seconds"] > 0
    said = CliRunner().invoke(app, ["metrics", str(file), "--store", store.root])
    assert f'coset_lag_records{{pipeline="counted",stream="{topic}",partition="0"}} 2' in said.output
    said = CliRunner().invoke(app, ["explain", str(file), "--store", store.root])
    assert "2 records" in said.output


def test_a_group_that_could_not_be_told_is_told_with_the_next_batch(
    kafka: KafkaServer, store: Store, tmp_path: Path
) -> None:
    topic = new_topic(kafka, 1)
    made = counted(kafka, topic, 1)
    produce(kafka, topic, views(["a"]))
    # While somebody has joined the group, nobody else can commit for it.
    with joined(kafka, topic, "coset.counted"):
        ref = published(store, made, tmp_path)
        said = steps.publish(ref)
    assert "the consumer group coset.counted was not updated, the next batch tries again" in said
    assert [row[:2] for row in rows(store.root, "counted")] == [("a", 1)]
    produce(kafka, topic, views(["a"]))
    published(store, made, tmp_path)
    assert committed(kafka, topic, "coset.counted")[0].offset == 2


@pytest.mark.parametrize("operation", [AclOperation.READ, AclOperation.DESCRIBE])
def test_what_a_broker_does_not_allow_is_refused(
    kafka: KafkaServer, store: Store, tmp_path: Path, operation: AclOperation
) -> None:
    topic = new_topic(kafka, 1)
    produce(kafka, topic, views(["a"]))
    deny(kafka, topic, operation)
    with pytest.raises(Refused, match=r"the broker denied access \(TOPIC_AUTHORIZATION_FAILED\)"):
        published(store, counted(kafka, topic, 1), tmp_path)


def test_brokers_that_are_away_are_unreachable(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "ANSWERS_WITHIN_SECONDS", 1.0)
    away = KafkaServer(Path(), "127.0.0.1:1")
    made = counted(away, "views")
    with pytest.raises(Unreachable, match="the topic cannot be looked at: _TIMED_OUT") as error:
        preview(made, store)
    assert error.value.exit_code == 6
    now = progress(made, NOTHING, datetime.now(UTC))
    assert isinstance(now.wrong, Unreachable)
    assert [one.latest for one in now.partitions] == [None, None]


@pytest.mark.parametrize("command", ["status", "metrics"])
def test_commands_that_look_end_with_the_code_of_brokers_that_are_away(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr(cluster, "ANSWERS_WITHIN_SECONDS", 1.0)
    (tmp_path / "away.py").write_text(
        "from coset import Pipeline\n"
        'pipeline = Pipeline("away", source="kafka://127.0.0.1:1")\n'
        'views = pipeline.stream("views", key="ad", partitions=2, format="json", columns={"n": "BIGINT"})\n'
        'views.write("counted")\n'
    )
    asked = [command, str(tmp_path / "away.py"), "--store", store.root]
    assert CliRunner().invoke(app, asked).exit_code == 6


@pytest.mark.long
def test_brokers_that_go_away_while_a_range_is_read_are_unreachable_in_the_end(
    kafka: KafkaServer, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "ANSWERS_WITHIN_SECONDS", 1.0)
    monkeypatch.setattr(topic_reader, "NO_PROGRESS_SECONDS", 1.0)
    monkeypatch.setattr(topic_reader, "_RECORDS_AT_ONCE", 100)
    topic = new_topic(kafka, 1)
    produce(kafka, topic, [(tail, {"n": 1, "more": "x" * 10_000}) for tail in TAILS * 250])
    ref = next_batch(counted(kafka, topic, 1), store.root)
    stopped = threading.Event()

    def stop(_: Batch, __: Taken) -> None:
        if not stopped.is_set():
            stopped.set()
            kafka.stop()

    try:
        with monkeypatch.context() as patch:
            spoil_kernel(patch, stop)
            with pytest.raises(Unreachable):
                run_groups(ref)
    finally:
        kafka.start()
    run_groups(ref)


def test_a_backfill_names_what_the_broker_no_longer_holds(kafka: KafkaServer, store: Store, tmp_path: Path) -> None:
    topic = new_topic(kafka, 1)
    made = counted(kafka, topic, 1)
    for _ in range(2):
        produce(kafka, topic, views(["a", "b"]))
        published(store, made, tmp_path)
    pairs = backfills.preview(made, store, Asked(0, None, Settings()))
    assert [plan.records for _, plan in pairs] == [2, 2]
    remove_before(kafka, topic, 0, 1)
    finding = finding_of(backfills.preview, made, store, Asked(0, None, Settings()))
    assert f"retention has removed {topic}-0@[0,1)" in finding.what
    later = Asked(1, None, Settings(scheme=Scheme.parse("tasks(2)")))
    backfill = backfills.begin(made, store, later)
    with Local(processes=1) as runner:
        backfills.run(made, store, backfill, runner, tmp_path, silently)
    assert backfills.comparison(store, backfill).same


def committed(kafka: KafkaServer, topic: str, group: str) -> dict[int, TopicPartition]:
    """What an ordinary client is told that a group has committed."""
    consumer = Consumer({"bootstrap.servers": kafka.address, "group.id": group})
    try:
        places = consumer.committed([TopicPartition(topic, number) for number in (0, 1)], timeout=10)
        return {place.partition: place for place in places if place.offset >= 0}
    finally:
        consumer.close()


@contextmanager
def joined(kafka: KafkaServer, topic: str, group: str) -> Iterator[None]:
    consumer = Consumer({"bootstrap.servers": kafka.address, "group.id": group, "enable.auto.commit": False})
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.1)
    try:
        yield
    finally:
        consumer.close()


def ends(kafka: KafkaServer, topic: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": kafka.address, "group.id": "ends"})
    try:
        return [consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=10)[1] for number in (0, 1)]
    finally:
        consumer.close()
