"""A real Kafka broker for the demo and the tests: without ZooKeeper, on loopback and free ports only.

python -m demo.kafka_server
"""

from __future__ import annotations

import base64
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from signal import Signals

from confluent_kafka import Consumer, KafkaException, TopicPartition

from coset.batches.runners import children
from coset.batches.runners.children import free_ports
from demo.kafka_jars import archive, archived, java, kafka_jars
from partitioning.errors import CosetError, Refused
from partitioning.kinds import Kind

_START_TRIES = 3
_ANSWERS_WITHIN_SECONDS = 90
_STOPPED_WITHIN_SECONDS = 20
_ARCHIVED_WITHIN_SECONDS = 120
_JAVA_OPTIONS = ("-Xshare:auto", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xms128m", "-Xmx512m")
# Kafka's own defaults are for three brokers.
_SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
log.dirs={data}
auto.create.topics.enable=false
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
log.cleaner.backoff.ms=200
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=true
"""
# Kafka takes the last of two settings.
_MEMBER = """\
process.roles=broker
node.id={node}
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port}
"""


@dataclass(slots=True)
class KafkaServer:
    """A broker that keeps its records in `folder` and answers at `address`, as long as this process runs."""

    folder: Path
    address: str
    cluster: str = ""
    controller: int = 0
    options: tuple[str, ...] = ()
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def source(self) -> str:
        """The source by which a pipeline names it."""
        return f"kafka://{self.address}"

    def start(self) -> None:
        """Start it, for the first time or again with its records. Raises Refused if it does not answer."""
        with (self.folder / "server.log").open("ab") as log:
            command = [*_kafka("kafka.Kafka", *self.options), str(self.folder / "server.properties")]
            self._process = children.start(command, os.environ, log, signal.SIGKILL)
        until = time.monotonic() + _ANSWERS_WITHIN_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                self.stop()
                log_file = str(self.folder / "server.log")
                what, then = "the Kafka broker does not answer", "read the log, then try again"
                raise Refused.of(Kind.DEMO, what, log_file, then, log=log_file)

    def stop(self, asked: Signals = signal.SIGTERM, within: float = _STOPPED_WITHIN_SECONDS) -> None:
        """Stop it; what it holds stays in its folder."""
        if self._process is not None:
            children.stop(self._process, within, asked)
            self._process = None

    def _answers(self) -> bool:
        """Whether the coordinator of groups answers, which is the last that comes up."""
        quiet = {"bootstrap.servers": self.address, "group.id": "ready", "log_level": 0, "log.connection.close": False}
        consumer = Consumer(quiet)
        try:
            consumer.committed([TopicPartition("ready", 0)], timeout=2)
        except KafkaException:
            time.sleep(0.2)
            return False
        finally:
            consumer.close()
        return True


def start_kafka(folder: Path, settings: str = "") -> KafkaServer:
    """Start a broker, and controller, in a folder of its own; its log is there, `server.log`.

    `settings` are lines that come after its own in `server.properties`. Raises Refused if it does not answer.
    """
    archived(_make_archive)
    cluster = base64.urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")
    return _start(folder, cluster, settings)


def _make_archive(unfinished: Path) -> None:
    """Write the classes that a broker loads into a file, by a broker that nobody uses."""
    server = _prepared(unfinished.parent / "broker", "a" * 22, "", 0, 1)
    server.options = (f"-XX:ArchiveClassesAtExit={unfinished}",)
    server.start()
    server.stop(within=_ARCHIVED_WITHIN_SECONDS)


def start_member(first: KafkaServer, node: int, folder: Path, settings: str = "") -> KafkaServer:
    """Start another broker, with this number, in the cluster of the first; the rest is as with the first."""
    return _start(folder, first.cluster, _MEMBER + settings, first.controller, node)


def _start(folder: Path, cluster: str, settings: str, controller: int = 0, node: int = 1) -> KafkaServer:
    for left in reversed(range(_START_TRIES)):
        server = _prepared(folder / f"broker-{left}", cluster, settings, controller, node)
        try:
            server.start()
        except Refused:
            # Most likely another process took one of the free ports meanwhile.
            if not left:
                raise
        else:
            return server
    raise AssertionError


def _prepared(folder: Path, cluster: str, settings: str, controller: int, node: int) -> KafkaServer:
    folder.mkdir(parents=True)
    port, free = free_ports(2)
    server = KafkaServer(folder, f"127.0.0.1:{port}", cluster, controller or free)
    file = folder / "server.properties"
    values = {"port": port, "controller": server.controller, "node": node, "data": folder / "data"}
    file.write_text((_SETTINGS + settings).format_map(values))
    command = [*_kafka("kafka.tools.StorageTool"), "format", f"--cluster-id={cluster}", "-c", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip()
        what = f"Kafka's folder cannot be made: {said[-500:]}"
        raise Refused.of(Kind.DEMO, what, str(folder), "read what it says", folder=folder, code=done.returncode)
    return server


def _kafka(main: str, *options: str) -> list[str]:
    of_archive = options or (f"-XX:SharedArchiveFile={archive()}", "-Xlog:cds*=off")
    return [java(), *_JAVA_OPTIONS, *of_archive, "-cp", f"{kafka_jars()}/*", main]


def main() -> None:
    """Run a broker in the foreground until Ctrl-C or SIGTERM, and print its address."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="coset-kafka-") as folder:
        server = start_kafka(Path(folder))
        try:
            print(f"Kafka runs at {server.source}; Ctrl-C ends it, and removes what it holds.", flush=True)
            signal.pause()
        except KeyboardInterrupt:
            print()
        finally:
            # A second signal does not cut the stop short.
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)
            server.stop()


if __name__ == "__main__":
    try:
        main()
    except CosetError as error:
        sys.exit(str(error))
