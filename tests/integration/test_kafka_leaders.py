"""Topics that several brokers hold: a partition's leader moves, or it has none, after the batch was planned."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from signal import Signals
from typing import Any

import pytest
from confluent_kafka import ElectionType, KafkaException, TopicPartition
from confluent_kafka.cimpl import NewTopic

from coset.batches import steps
from coset.batches.backfills import actions as backfills
from coset.batches.backfills.actions import Asked
from coset.batches.planning import preview
from coset.batches.ref import BatchRef
from coset.sources.kafka import cluster, topic_reader
from coset.sources.kafka.cluster import Cluster, Log, describe, logs
from coset.sources.kafka.properties import PROPERTIES
from coset.sources.reader import Batch
from demo.kafka_server import KafkaServer, start_kafka, start_member
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import Refused, Unreachable
from partitioning.model.sources import KafkaSource
from spark_jobs.engine.take import Taken
from tests.batches import rows
from tests.kafka import COLUMNS, TAILS, admin, produce
from tests.real_batches import spoil_kernel
from tests.refused import finding_of
from tests.running import next_batch, run_and_publish, run_groups, task_receipts

# How soon the controller sees that a broker is gone.
SOON = "broker.session.timeout.ms=4000\nbroker.heartbeat.interval.ms=300\n"
# A reader has some two thousand records at most that are not asked for yet.
LITTLE_AHEAD = "fetch.max.bytes=20000\nmessage.max.bytes=20000\nqueued.min.messages=1000\n"
WRITES, RECORDS = 20, 200


class Brokers:
    """Three brokers: the first is the controller, the others hold the only partition of `topic`."""

    def __init__(self, folder: Path) -> None:
        self.first = start_kafka(folder / "1", SOON)
        self.members = {node: start_member(self.first, node, folder / str(node), SOON) for node in (2, 3)}
        every = (*self.members.values(), self.first)
        self.all = KafkaServer(folder, ",".join(broker.address for broker in every))
        self.topic = ""

        self._down = set[int]()

    def stop(self, node: int, asked: Signals = signal.SIGTERM) -> None:
        self.members[node].stop(asked)
        self._down.add(node)

    def start_all(self) -> None:
        while self._down:
            self.members[self._down.pop()].start()

    def end(self) -> None:
        for broker in (*self.members.values(), self.first):
            broker.stop()

    def leader(self) -> int:
        """Which broker leads the partition, -1 if none does."""
        leader: int = self._partition().leader
        return leader

    def write(self, first: int, records: int) -> None:
        """Write records with numbers from the first on."""
        numbers = range(first, first + records)
        rows = ((TAILS[number % len(TAILS)], {"n": number, "more": "x" * 500}) for number in numbers)
        produce(self.first, self.topic, rows)

    def leave_one(self) -> None:
        """From now on only the leader has what is written."""
        self.stop(3)
        while self._partition().isrs != [2]:
            time.sleep(0.1)

    def lose(self) -> None:
        """The broker becomes the leader that does not have what was written since."""
        self.stop(2, signal.SIGKILL)
        self._down.discard(3)
        self.members[3].start()
        while self._partition().leader == 2:
            time.sleep(0.1)
        while self.leader() != 3:
            # A client that takes the broker that is down for the controller waits for it in vain.
            with suppress(KafkaException), admin(self.first) as client:
                client.elect_leaders(ElectionType.UNCLEAN, [TopicPartition(self.topic, 0)]).result()

    def _partition(self) -> Any:
        with admin(self.first) as client:
            return client.list_topics(self.topic, timeout=10).topics[self.topic].partitions[0]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    started = Brokers(tmp_path_factory.mktemp("brokers"))
    yield started
    started.end()


@pytest.fixture
def brokers(three: Brokers, request: pytest.FixtureRequest) -> Iterator[Brokers]:
    """All run, and the second leads the partition of a topic with some records."""
    three.topic = f"views_{request.node.name}"
    with admin(three.first) as client:
        while len(client.list_topics(timeout=10).brokers) < 3:
            time.sleep(0.1)
        client.create_topics([NewTopic(three.topic, 1, replica_assignment=[[2, 3]])])[three.topic].result()
    for start in range(0, WRITES * RECORDS, RECORDS):
        three.write(start, RECORDS)
    assert three.leader() == 2
    yield three
    three.start_all()


def copied(brokers: Brokers) -> Pipeline:
    """A pipeline whose result is the records, with their offsets."""
    made = Pipeline("copied", source=brokers.all.source)
    views = made.stream(brokers.topic, key="tail", partitions=1, format="json", columns=COLUMNS)
    views.select("n, _offset AS at", name="rows").write("rows")
    return made


def planned(brokers: Brokers, store: Store) -> BatchRef:
    ref = next_batch(copied(brokers), store.root)
    assert [str(range_) for range_ in ref.load()[1].ranges()] == [f"{brokers.topic}-0@[0,{WRITES * RECORDS})"]
    return ref


def check_published(ref: BatchRef, store: Store, docs: Path) -> None:
    """The batch, once it is judged and published, has each record once, with its offset."""
    run_and_publish(ref, docs)
    written = sorted((TAILS[number % len(TAILS)], number, number) for number in range(WRITES * RECORDS))
    assert [row[:3] for row in rows(store.root, "rows")] == written
    assert f"{WRITES * RECORDS:,} records" in steps.report(ref, docs)


@pytest.mark.long
def test_a_leader_that_moves_after_planning_makes_no_difference_and_the_next_batch_goes_on(
    brokers: Brokers, store: Store, tmp_path: Path
) -> None:
    ref = planned(brokers, store)
    brokers.stop(2)
    assert brokers.leader() == 3
    check_published(ref, store, tmp_path)
    brokers.write(WRITES * RECORDS, 10)
    plan = preview(copied(brokers), store).plan
    assert plan is not None
    assert plan.records == 10
    before, after = Ledger(store, "copied").standing().published, plan
    assert before is not None
    assert 0 <= before.streams[0].partitions[0].epoch < after.streams[0].partitions[0].epoch


@pytest.mark.long
def test_without_a_controller_batches_go_on(
    brokers: Brokers, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "ANSWERS_WITHIN_SECONDS", 4.0)
    ref = planned(brokers, store)
    # It is also the one that answers for consumer groups.
    brokers.first.stop(signal.SIGKILL)
    try:
        check_published(ref, store, tmp_path)
        assert preview(copied(brokers), store).plan is None
        assert "the consumer group coset.copied was not updated, the next batch tries again" in steps.publish(ref)
    finally:
        brokers.first.start()
    assert "the consumer group coset.copied is updated" in steps.publish(ref)


@pytest.mark.long
def test_a_leader_that_is_killed_in_the_middle_makes_no_difference(
    brokers: Brokers, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = tmp_path / "kafka.properties"
    properties.write_text(LITTLE_AHEAD)
    monkeypatch.setenv(PROPERTIES, str(properties))
    monkeypatch.setattr(topic_reader, "_RECORDS_AT_ONCE", 100)
    ref = planned(brokers, store)
    reached = list[int | None]()

    def kill(batch: Batch, _: Taken) -> None:
        reached.append(batch.reached)
        if len(reached) == 3:
            brokers.stop(2, signal.SIGKILL)

    spoil_kernel(monkeypatch, kill)
    run_groups(ref)
    assert brokers.leader() == 3
    assert (reached[2] or 0) < WRITES * RECORDS / 2
    assert len(reached) > 10
    assert [(one.read, one.reached) for one in task_receipts(ref)[0].partitions] == [(WRITES * RECORDS,) * 2]
    check_published(ref, store, tmp_path)


@pytest.mark.long
def test_a_client_that_knows_a_broker_that_is_gone_asks_others(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = KafkaSource(tuple(brokers.all.address.split(",")))
    client = Cluster(source)
    # Which broker is asked for a topic is what the last answer said, and that is any.
    while client.admin.list_topics(timeout=10).controller_id != 2:
        time.sleep(0.05)
    brokers.stop(2, signal.SIGKILL)
    with monkeypatch.context() as patch:
        patch.setattr(cluster, "ANSWERS_WITHIN_SECONDS", 0.6)
        with pytest.raises(Unreachable, match="the log's offsets cannot be asked for"):
            logs(Cluster(source), brokers.topic, [0])
    assert describe(client, brokers.topic).partitions == 1
    assert logs(client, brokers.topic, [0]) == {0: Log(0, WRITES * RECORDS, epoch=1)}


@pytest.mark.long
def test_without_a_leader_brokers_are_unreachable_until_there_is_one(
    brokers: Brokers, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = planned(brokers, store)
    with monkeypatch.context() as patch:
        patch.setattr(cluster, "ANSWERS_WITHIN_SECONDS", 1.5)
        patch.setattr(topic_reader, "NO_PROGRESS_SECONDS", 1.0)
        for node in (2, 3):
            brokers.stop(node, signal.SIGKILL)
        while brokers.leader() != -1:
            time.sleep(0.1)
        with pytest.raises(Unreachable, match="no broker leads a partition") as error:
            run_groups(ref)
        assert error.value.exit_code == 6
        with pytest.raises(Unreachable, match="start the brokers that hold it"):
            preview(copied(brokers), store_at(f"{store.root}/other"))
    brokers.start_all()
    check_published(ref, store, tmp_path)


@pytest.mark.long
def test_records_that_were_read_and_replaced_refuse_the_next_plan(
    brokers: Brokers, store: Store, tmp_path: Path
) -> None:
    check_published(planned(brokers, store), store, tmp_path)
    brokers.leave_one()
    brokers.write(0, 100)
    run_and_publish(next_batch(copied(brokers), store.root), tmp_path)
    brokers.lose()
    # By its end, the log has all that was read, and more.
    brokers.write(500, 300)
    assert logs(Cluster(KafkaSource(tuple(brokers.all.address.split(",")))), brokers.topic, [0])[0].end == 4300
    finding = finding_of(steps.plan, copied(brokers), store.root)
    assert finding.what == (
        f"{brokers.topic}: in partition 0, records before 4100, which is committed, were lost with a leader, "
        "and others have their offsets now"
    )
    assert finding.then.endswith("then give the topic another stream name, or restore it")
    assert len(backfills.preview(copied(brokers), store, Asked(0, 0, DEFAULTS))) == 1
    with pytest.raises(Refused, match="records before 4100 were lost with a leader since the batch was planned"):
        backfills.preview(copied(brokers), store, Asked(0, 1, DEFAULTS))


@pytest.mark.long
def test_records_that_are_replaced_once_they_are_planned_close_the_attempt(brokers: Brokers, store: Store) -> None:
    brokers.leave_one()
    brokers.write(0, 100)
    ref = next_batch(copied(brokers), store.root)
    run_groups(ref)
    brokers.lose()
    brokers.write(500, 300)
    for _ in range(2):
        with pytest.raises(Refused, match="records before 4100 were lost with a leader since the batch was planned"):
            steps.audit(ref)
        run_groups(ref)
    # What the error names: the records that are there now are planned, and published.
    _, again, sentence = steps.replan(copied(brokers), store.root, DEFAULTS, "records were lost")
    assert again is not None, sentence
    run_and_publish(again)
    written = {(row[1], row[2]) for row in rows(store.root, "rows")}
    assert written == {(number, number) for number in range(4000)} | {(500 + more, 4000 + more) for more in range(300)}
