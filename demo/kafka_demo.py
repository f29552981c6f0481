"""The demo from a broker: the same flights and the same pipeline, read from Kafka's topics instead of landed files.

python -m demo.kafka_demo
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from coset.batches.interpreter import run_batch
from coset.batches.planning import take_up
from coset.batches.ref import BatchRef
from coset.batches.runners.local import Local
from coset.cli.output import Table, show, show_error, step
from dags.pipelines.tail_activity import pipeline
from demo import comparison
from demo.kafka_landing import in_broker, make_topics, produce
from demo.kafka_server import KafkaServer, start_kafka
from demo.landing import PARTS
from demo.s3_server import start_server
from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import CosetError, Finding, about
from partitioning.kinds import Kind

_STORE = "s3://coset"


def run(folder: Path) -> None:
    """Run all of it in a folder of its own. Raises CosetError if a figure differs from the raw data's."""
    with step("start S3"):
        s3 = start_server(folder / "s3", ("coset",))
    os.environ.update(s3.environment)
    try:
        with step("start Kafka") as said:
            kafka = start_kafka(folder / "kafka")
            said.append(kafka.source)
        try:
            _run(kafka, folder / "docs")
        finally:
            kafka.stop()
    finally:
        s3.stop()


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
        raise CosetError(
            Finding(
                Kind.DEMO,
                what,
                kafka.source,
                "report this",
                about(aircraft=results.aircraft, different=results.different),
            )
        )
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
