"""Up to where a topic was read is known while the pipeline does not read it from its broker."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from coset.batches.ends import forget
from coset.batches.planning import preview
from demo.kafka_server import KafkaServer
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.read_ends import What
from tests.batches import rows
from tests.kafka import COLUMNS, create, delete, new_topic, produce, views
from tests.landed import land_table
from tests.sparse import published

TAILS = [f"N{number}" for number in range(20)]


def reading(source: str, *topics: str) -> Pipeline:
    """A pipeline that writes the views of each topic, as they are, to one table."""
    made = Pipeline("read", source=source)
    told: dict[str, Any] = {"format": "json", "columns": COLUMNS} if source.startswith("kafka:") else {}
    first, *others = (made.stream(topic, key="tail", partitions=2, **told) for topic in topics)
    for other in others:
        first = first.merge(other)
    first.select("n", name="seen").write("seen")
    return made


def _but(topics: Sequence[str]) -> Settings:
    """Without the other topic the table keeps what came of it."""
    return DEFAULTS if len(topics) > 1 else Settings(go_on=("seen",))


def numbers(store: Store) -> list[int]:
    return sorted(number for row in rows(store.root, "seen") if isinstance(number := row[1], int))


def test_a_topic_that_is_left_out_and_comes_back_goes_on_where_it_was(
    kafka: KafkaServer, store: Store, tmp_path: Path
) -> None:
    one, two = new_topic(kafka), new_topic(kafka)
    for round_, topics in enumerate([(one, two), (one,), (one, two)]):
        produce(kafka, one, views(TAILS, 1000 * round_))
        produce(kafka, two, views(TAILS, 1000 * round_ + 500))
        published(store, reading(kafka.source, *topics), tmp_path, _but(topics))
    assert numbers(store) == [number + more for number in (0, 500, 1000, 1500, 2000, 2500) for more in range(20)]


def test_a_topic_that_was_made_anew_while_it_was_left_out_is_refused_until_it_is_forgotten(
    kafka: KafkaServer, store: Store, tmp_path: Path
) -> None:
    one, two = new_topic(kafka), new_topic(kafka)
    for topics in ((one, two), (one,)):
        produce(kafka, one, views(TAILS))
        produce(kafka, two, views(TAILS, 500))
        published(store, reading(kafka.source, *topics), tmp_path, _but(topics))
    delete(kafka, two)
    create(kafka, two, 2)
    # More than there were, so that no offset shows it.
    produce(kafka, two, views(TAILS * 4, 7000))
    with pytest.raises(Refused, match="the topic was re-created") as refused:
        preview(reading(kafka.source, one, two), store)
    assert f"coset forget read {two} --why '…'" in refused.value.findings[0].then
    forget(Ledger(store, "read"), two, None, What.POSITION, "made anew")
    plan = published(store, reading(kafka.source, one, two), tmp_path).load()[1]
    assert [partition.start for partition in plan.stream(two).partitions] == [0, 0]
    assert numbers(store)[-80:] == list(range(7000, 7080))


def test_a_stream_that_goes_to_its_broker_and_back_has_each_record_once(
    kafka: KafkaServer, store: Store, tmp_path: Path
) -> None:
    topic, landing = new_topic(kafka), f"{store.root}/topics"
    for number, source in enumerate([landing, kafka.source, landing, kafka.source]):
        sent = list(range(20 * number, 20 * number + 20))
        table = pa.table({"tail": pa.array(TAILS, pa.string()), "n": pa.array(sent, pa.int64())})
        land_table(table, topic, landing, key="tail", partitions=2)
        produce(kafka, topic, views(TAILS, 20 * number))
        plan = published(store, reading(source, topic), tmp_path).load()[1]
        assert plan.records == 20
    assert numbers(store) == list(range(80))
    delete(kafka, topic)
    create(kafka, topic, 2)
    produce(kafka, topic, views(TAILS * 5))
    # Also if it was landed meanwhile.
    land_table(table, topic, landing, key="tail", partitions=2)
    published(store, reading(landing, topic), tmp_path)
    with pytest.raises(Refused, match="the topic was re-created"):
        preview(reading(kafka.source, topic), store)


def test_files_that_end_before_what_was_read_from_the_broker_are_waited_for(
    kafka: KafkaServer, store: Store, tmp_path: Path
) -> None:
    topic, landing = new_topic(kafka), f"{store.root}/topics"
    sent = pa.table({"tail": pa.array(TAILS, pa.string()), "n": pa.array(range(20), pa.int64())})
    land_table(sent, topic, landing, key="tail", partitions=2)
    published(store, reading(landing, topic), tmp_path)
    produce(kafka, topic, views(TAILS))
    produce(kafka, topic, views(TAILS, 20))
    published(store, reading(kafka.source, topic), tmp_path)
    with pytest.raises(Refused, match="but it was read from its broker up to") as refused:
        preview(reading(landing, topic), store)
    findings = refused.value.findings
    assert {finding.kind for finding in findings} == {Kind.STREAM_RESET}
    # To forget what was read would count it twice.
    assert {finding.then for finding in findings} == {
        "wait until all that is landed too, or read the stream from its broker until then"
    }
    # As it says.
    more = sent.set_column(1, "n", pa.array(range(20, 40), pa.int64()))
    land_table(more, topic, landing, key="tail", partitions=2)
    land_table(more.set_column(1, "n", pa.array(range(40, 60), pa.int64())), topic, landing, key="tail", partitions=2)
    published(store, reading(landing, topic), tmp_path)
    assert numbers(store) == list(range(60))
