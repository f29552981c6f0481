"""What happens to a topic's log in its broker: transactions, compaction, retention, growth, deletion."""

from __future__ import annotations

import re
import time
from collections import Counter
from pathlib import Path

import pytest

from coset.batches import steps
from coset.batches.planning import preview
from coset.batches.ref import BatchRef
from coset.sources.kafka import topic_reader
from coset.sources.kafka.topic_discovery import discover
from coset.sources.reader import Batch
from demo.kafka_server import KafkaServer
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.store import Store
from partitioning.errors import Refused
from partitioning.hashes import placement_hash
from partitioning.model.offsets import OffsetRange
from partitioning.model.sources import KafkaSource
from partitioning.values import replace
from spark_jobs.engine.take import Taken
from tests.batches import rows
from tests.kafka import (
    TAILS,
    counted,
    create,
    delete,
    grow,
    new_topic,
    produce,
    remove_before,
    start_again,
    transactions,
    views,
)
from tests.real_batches import spoil_kernel
from tests.refused import finding_of
from tests.running import next_batch, run_and_publish, run_groups, task_receipts
from tests.sparse import published


def counts(store: Store) -> dict[object, object]:
    """How many views of each tail were counted in all batches."""
    total = Counter[object]()
    for tail, count, *_ in rows(store.root, "counted"):
        assert isinstance(count, int)
        total[tail] += count
    return dict(total)


def planned(store: Store, made: Pipeline) -> BatchRef:
    return next_batch(made, store.root)


def whats(error: Refused) -> list[str]:
    return [place.what for finding in error.findings for place in finding.places]


def test_aborted_and_open_transactions_are_not_read_and_what_is_missing_is_reported(
    kafka: KafkaServer, store: Store, tmp_path: Path
) -> None:
    topic = new_topic(kafka, 1)
    made = counted(kafka, topic, 1)
    with transactions(kafka, topic) as transaction:
        transaction(views(["a", "b"]), "commit")
        transaction(views(["lost", "lost", "lost"]), "abort")
        transaction(views(["a"]), "commit")
        transaction(views(["later"]), "open")
        ref = published(store, made, tmp_path)
        assert counts(store) == {"a": 2, "b": 1}
        # Three records, three of the aborted transaction, and three ends of transactions.
        assert str(ref.load()[1].ranges()[0]) == f"{topic}-0@[0,9)"
        assert f"Of {topic} records are offsets, some of which may have none" in steps.plan_page(ref)
        report = steps.report(ref, tmp_path)
        assert "(3 records in 1 stream partition," in report
        assert f"| {topic}-0@[0,9) | 6       | in the topic's log | the broker holds no more" in report
        assert preview(made, store).plan is None


def test_a_range_of_nothing_but_aborted_records_is_read_to_its_end(
    kafka: KafkaServer, store: Store, tmp_path: Path
) -> None:
    topic = new_topic(kafka, 1)
    made = counted(kafka, topic, 1)
    with transactions(kafka, topic) as transaction:
        transaction(views(["lost"]), "abort")
    ref = published(store, made, tmp_path)
    assert (counts(store), str(ref.load()[1].ranges()[0])) == ({}, f"{topic}-0@[0,2)")
    produce(kafka, topic, views(["a"]))
    assert str(published(store, made, tmp_path).load()[1].ranges()[0]) == f"{topic}-0@[2,3)"
    assert counts(store) == {"a": 1}


def test_a_batch_ends_where_its_limit_says_also_before_a_marker(
    kafka: KafkaServer, store: Store, tmp_path: Path
) -> None:
    topic = new_topic(kafka, 1)
    made = counted(kafka, topic, 1)
    with transactions(kafka, topic) as transaction:
        for _ in range(4):
            transaction(views(["a", "b"]), "commit")
    ranges = []
    while preview(made, store).plan:
        ref = published(store, made, tmp_path, Settings(limit=5))
        ranges.append(str(ref.load()[1].ranges()[0]))
    assert ranges == [f"{topic}-0@[0,5)", f"{topic}-0@[5,10)", f"{topic}-0@[10,12)"]
    assert counts(store) == {"a": 4, "b": 4}


def test_a_compacted_topic_gives_what_is_left_of_it(kafka: KafkaServer, store: Store, tmp_path: Path) -> None:
    eager = {"min_cleanable_dirty_ratio": "0.0001", "segment_ms": "100", "max_compaction_lag_ms": "100"}
    topic = new_topic(kafka, 1, cleanup_policy="compact", **eager)
    made = counted(kafka, topic, 1)
    produce(kafka, topic, views(["a", "b", "a", "a"]))
    ref, later = planned(store, made), 0
    while _read(ref) == 4 + later:
        # Another record begins another segment, and only those before the last are compacted.
        later += 1
        produce(kafka, topic, [(f"later{later}", {"n": 0})])
        time.sleep(0.5)
        assert later < 60, "it was not compacted"
        _, again, _ = steps.replan(made, store.root, Settings(), "it is not compacted yet")
        assert again is not None
        ref = again
    run_and_publish(ref, tmp_path)
    read = {row[0]: row[1:3] for row in rows(store.root, "counted")}
    assert (read["a"], read["b"]) == ((1, 3), (1, 1))
    assert "in the topic's log" in steps.report(ref, tmp_path)


def _read(ref: BatchRef) -> int:
    """How many records the only task of a batch reads."""
    run_groups(ref)
    (receipt,) = task_receipts(ref)
    return receipt.partitions[0].read


def test_partitions_that_were_added_are_refused_until_they_are_declared(
    kafka: KafkaServer, store: Store, tmp_path: Path
) -> None:
    topic = new_topic(kafka, 1)
    produce(kafka, topic, views(TAILS))
    published(store, counted(kafka, topic, 1), tmp_path)
    grow(kafka, topic, 2)
    produce(kafka, topic, views(TAILS))
    with pytest.raises(Refused, match="the topic has 2 partitions, but 1 are declared"):
        preview(counted(kafka, topic, 1), store)
    published(store, counted(kafka, topic, 2), tmp_path)
    assert counts(store) == dict.fromkeys(TAILS, 2)


def test_what_retention_took_unread_is_refused_and_may_be_accepted(
    kafka: KafkaServer, store: Store, tmp_path: Path
) -> None:
    topic = new_topic(kafka, 1)
    made = counted(kafka, topic, 1)
    produce(kafka, topic, views(["a"] * 10))
    published(store, made, tmp_path)
    remove_before(kafka, topic, 0, 5)
    assert preview(made, store).plan is None
    produce(kafka, topic, views(["b"] * 10))
    remove_before(kafka, topic, 0, 14)
    finding = finding_of(preview, made, store)
    assert finding.what.endswith("[10,14) is lost")
    lost = f"{topic}-0@[10,14)"
    assert "the broker's retention has removed it" in finding.then
    assert f"--accept-loss '{lost}'" in finding.then
    ref = published(store, made, tmp_path, Settings(accept_loss=(OffsetRange.parse(lost),)))
    assert [str(loss) for loss in ref.load()[1].losses] == [lost]
    assert counts(store) == {"a": 10, "b": 6}


def test_a_log_that_was_emptied_unread_is_refused_and_may_be_accepted(
    kafka: KafkaServer, store: Store, tmp_path: Path
) -> None:
    topic = new_topic(kafka, 1)
    made = counted(kafka, topic, 1)
    produce(kafka, topic, views(["a"] * 3))
    published(store, made, tmp_path)
    produce(kafka, topic, views(["b"] * 3))
    remove_before(kafka, topic, 0, 6)
    with pytest.raises(Refused, match=r"\[3,6\) is lost"):
        preview(made, store)
    accepted = Settings(accept_loss=(OffsetRange.parse(f"{topic}-0@[3,6)"),))
    published(store, made, tmp_path, accepted)
    produce(kafka, topic, views(["c"]))
    published(store, made, tmp_path)
    assert counts(store) == {"a": 3, "c": 1}


def test_a_partition_that_was_empty_and_lost_its_first_records_unread_is_refused(
    kafka: KafkaServer, store: Store, tmp_path: Path
) -> None:
    topic = new_topic(kafka, 2)
    made = counted(kafka, topic, 2)
    one = next(tail for tail in TAILS if placement_hash(tail) % 2 == 1)
    produce(kafka, topic, views([one]))
    published(store, made, tmp_path)
    produce(kafka, topic, views(["x"] * 3), partition=0)
    remove_before(kafka, topic, 0, 3)
    with pytest.raises(Refused, match=r"\[0,3\) is lost"):
        preview(made, store)


def test_a_log_that_was_emptied_before_its_first_batch_begins_where_it_is(
    kafka: KafkaServer, store: Store, tmp_path: Path
) -> None:
    topic = new_topic(kafka, 2)
    produce(kafka, topic, views(["x"] * 4), partition=0)
    remove_before(kafka, topic, 0, 4)
    produce(kafka, topic, views(TAILS))
    made = counted(kafka, topic, 2)
    published(store, made, tmp_path)
    assert counts(store) == dict.fromkeys(TAILS, 1)


def test_what_retention_takes_after_planning_is_refused_by_the_task(kafka: KafkaServer, store: Store) -> None:
    topic = new_topic(kafka, 1)
    produce(kafka, topic, views(["a"] * 10))
    ref = planned(store, counted(kafka, topic, 1))
    remove_before(kafka, topic, 0, 4)
    with pytest.raises(Refused) as refused:
        run_groups(ref)
    assert whats(refused.value) == [f"the broker's retention has removed {topic}-0@[0,4) since the batch was planned"]


def test_a_batch_that_lost_a_part_is_planned_again_without_it(kafka: KafkaServer, store: Store, tmp_path: Path) -> None:
    topic = new_topic(kafka, 1)
    made = counted(kafka, topic, 1)
    produce(kafka, topic, views(["a"] * 3))
    published(store, made, tmp_path)
    produce(kafka, topic, views(["b"] * 7))
    planned(store, made)
    remove_before(kafka, topic, 0, 5)
    lost = OffsetRange.parse(f"{topic}-0@[3,5)")
    with pytest.raises(Refused, match=rf"`--accept-loss '{re.escape(str(lost))}'` of `coset plan`, `run` and `replan`"):
        steps.replan(made, store.root, Settings(), "retention was first")
    # What was given up stays so.
    run_and_publish(next_batch(made, store.root, Settings(accept_loss=(lost,))), tmp_path)
    assert counts(store) == {"a": 3, "b": 5}


def test_what_retention_takes_while_it_is_read_is_refused_by_the_task(
    kafka: KafkaServer, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(kafka, 1)
    produce(kafka, topic, views(["a"] * 10))
    ref = planned(store, counted(kafka, topic, 1))
    spoil_kernel(monkeypatch, lambda *_: remove_before(kafka, topic, 0, 4))
    with pytest.raises(Refused, match=rf"retention has removed {topic}-0@\[0,4\)"):
        run_groups(ref)


def test_what_retention_takes_after_it_was_read_does_no_harm(kafka: KafkaServer, store: Store) -> None:
    topic = new_topic(kafka, 1)
    produce(kafka, topic, views(["a"] * 10))
    ref = planned(store, counted(kafka, topic, 1))
    run_groups(ref)
    remove_before(kafka, topic, 0, 4)
    run_and_publish(ref)
    assert counts(store) == {"a": 10}


def test_a_topic_that_was_made_anew_is_refused_at_each_step(kafka: KafkaServer, store: Store, tmp_path: Path) -> None:
    topic = new_topic(kafka, 1)
    made = counted(kafka, topic, 1)
    produce(kafka, topic, views(["a"] * 3))
    published(store, made, tmp_path)
    produce(kafka, topic, views(["b"] * 3))
    ref = planned(store, made)
    delete(kafka, topic)
    with pytest.raises(Refused, match="there is no topic"):
        run_groups(ref)
    create(kafka, topic, 1)
    # As many as there were, so that no offset shows it.
    produce(kafka, topic, views(["c"] * 6))
    with pytest.raises(Refused, match="the topic was re-created since the batch was planned"):
        run_groups(ref)
    with pytest.raises(Refused, match="the topic was re-created: it has the id"):
        steps.replan(made, store.root, Settings(), "made anew")
    assert counts(store) == {"a": 3}


def test_a_log_that_ends_before_what_is_committed_is_refused(kafka: KafkaServer, store: Store, tmp_path: Path) -> None:
    topic = new_topic(kafka, 1)
    made = counted(kafka, topic, 1)
    produce(kafka, topic, views(["a"] * 3))
    plan = published(store, made, tmp_path).load()[1]
    (stream,) = plan.streams
    further = replace(stream.partitions[0], end=9)
    ahead = replace(plan, streams=(replace(stream, partitions=(further,)),))
    with pytest.raises(Refused, match="the log of partition 0 ends at 3, but 9 is committed"):
        discover([(stream.declared, KafkaSource((kafka.address,)))], ahead.ends)


@pytest.mark.long
def test_a_broker_that_is_restarted_in_the_middle_is_waited_for(
    kafka: KafkaServer, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_reader, "_RECORDS_AT_ONCE", 100)
    topic = new_topic(kafka, 1)
    made = counted(kafka, topic, 1)
    large = "x" * 10_000
    produce(kafka, topic, [(tail, {"n": 1, "more": large}) for tail in TAILS * 250])
    ref = planned(store, made)
    batches = []

    def restart(batch: Batch, _: Taken) -> None:
        batches.append(batch.reached)
        if len(batches) == 3:
            kafka.stop()
            start_again(kafka)

    spoil_kernel(monkeypatch, restart)
    run_and_publish(ref)
    assert len(batches) > 3
    assert counts(store) == dict.fromkeys(TAILS, 250)
