"""The demo from a broker: the same flights and the same pipeline, read from Kafka's topics instead of landed files.

Records are produced as JSON, in the parts in which they land as files.

python -m demo.kafka_demo
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from coset.batches.interpreter import run_batch
from coset.batches.planning import take_up
from coset.batches.ref import BatchRef
from coset.batches.runners.local import Local
from coset.cli.output import Table, show, show_error, step
from coset.sources.file_columns import columns_of
from dags.pipelines.tail_activity import pipeline
from demo import comparison
from demo.kafka_server import KafkaServer, start_kafka
from demo.landing import PARTS, part_of, read
from demo.s3_server import served
from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import CosetError, Unreachable
from partitioning.kinds import Kind
from partitioning.model.stream_rules import checked
from partitioning.model.streams import Format, Stream
from partitioning.values import replace

_WITHIN_SECONDS = 60


def make_topics(kafka: KafkaServer, streams: tuple[Stream, ...]) -> None:
    """Make the topics of streams. Raises Unreachable."""
    client = AdminClient({"bootstrap.servers": kafka.address})
    topics = [NewTopic(stream.name, stream.partitions, 1) for stream in streams]
    try:
        for made in client.create_topics(topics).values():
            made.result(_WITHIN_SECONDS)
    except KafkaException as error:
        raise _failed(kafka, error.args[0].str()) from error


def produce(kafka: KafkaServer, streams: tuple[Stream, ...], part: int) -> Mapping[str, int]:
    """Write one part of the year to its topics. Returns how many records each got. Raises Unreachable."""
    # As Kafka's own producers do; librdkafka places keys otherwise by default.
    producer = Producer({"bootstrap.servers": kafka.address, "partitioner": "murmur2_random", "linger.ms": 50})
    counts = {stream.name: _produce(producer, stream, part) for stream in streams}
    if producer.flush(_WITHIN_SECONDS):
        raise _failed(kafka, "it did not take all records")
    return counts


def in_broker(stream: Stream, kafka: KafkaServer) -> Stream:
    """The stream as it is declared where its topic is read from the broker."""
    columns = columns_of(read(stream.name).schema).columns
    values = {column.name: column.type for column in columns if column.name != stream.key}
    return checked(replace(stream, source=kafka.source, format=Format.JSON, columns=values))


def _produce(producer: Producer, stream: Stream, part: int) -> int:
    table = _of_part(stream.name, part)
    encode = msgspec.json.encode
    for row in table.to_pylist():
        key = row.pop(stream.key)
        producer.produce(stream.name, key=key, value=encode(row))
        producer.poll(0)
    return len(table)


def _of_part(stream: str, part: int) -> pa.Table:
    table = read(stream)
    if stream != "flights":
        return table if part == 0 else table.slice(0, 0)
    return table.filter(pc.equal(pa.array([part_of(month) for month in table["month"].to_pylist()]), part))


def _failed(kafka: KafkaServer, said: str) -> Unreachable:
    return Unreachable.of(
        Kind.DEMO, f"the broker failed: {said}", kafka.address, "run the same command again", address=kafka.address
    )


_STORE = "s3://coset"


def run(folder: Path) -> None:
    """Run all of it in a folder of its own. Raises CosetError if a figure differs from the raw data's."""
    with ExitStack() as stack:
        with step("start S3"):
            stack.enter_context(served(folder / "s3", ("coset",)))
        with step("start Kafka") as said:
            kafka = start_kafka(folder / "kafka")
            stack.callback(kafka.stop)
            said.append(kafka.source)
        _run(kafka, folder / "docs")


def _run(kafka: KafkaServer, docs: Path) -> None:
    store = store_at(_STORE)
    from_broker = pipeline.with_streams(lambda stream: in_broker(stream, kafka))
    make_topics(kafka, from_broker.streams)
    for part in range(PARTS):
        with step(f"produce part {part}") as said:
            counts = produce(kafka, from_broker.streams, part)
            said.append(", ".join(f"{count:,} {stream}" for stream, count in counts.items() if count))
        _run_batch(from_broker, store, docs)
    results = comparison.compare(Ledger(store, pipeline.name), pipeline.name)
    show(Table("Results", results.columns, results.rows))
    what = f"{results.different:,} of {results.aircraft:,} aircraft differ from the raw data"
    if not results.equal:
        counts = {"aircraft": results.aircraft, "different": results.different}
        raise CosetError.of(Kind.DEMO, what, kafka.source, "report this", **counts)
    show(f"The same result from the broker as from landed files (`make demo`): {what}.")


def _run_batch(from_broker: Pipeline, store: Store, docs: Path) -> None:
    taken = take_up(from_broker, store)
    assert taken.plan is not None
    show(taken.sentence)
    with Local() as runner:
        run_batch(BatchRef.of(store, taken.plan), runner, docs, step)


if __name__ == "__main__":
    try:
        with tempfile.TemporaryDirectory(prefix="coset-demo-kafka-") as folder:
            run(Path(folder))
    except CosetError as error:
        show_error(error)
        sys.exit(error.exit_code)
