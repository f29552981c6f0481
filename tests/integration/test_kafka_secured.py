"""A broker that asks for TLS and a password: batches from it, what is refused, and that nothing tells the password."""

from __future__ import annotations

import gzip
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from coset.batches.planning import preview
from coset.batches.runners.children import free_ports
from coset.sources.kafka import cluster, topic_reader
from coset.sources.kafka.properties import PROPERTIES
from coset.sources.reader import Batch
from demo.kafka_server import KafkaServer, start_kafka
from demo.s3_server import make_certificate
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import CosetError, Refused, Unreachable
from spark_jobs.engine.take import Taken
from tests import forked
from tests.batches import rows
from tests.kafka import TAILS, admin, counted, new_topic, produce, start_again, views
from tests.real_batches import spoil_kernel
from tests.running import next_batch, run_and_publish, run_groups

USER, PASSWORD = "reader", "hidden-from-everybody"
# Who asks without TLS, as these tests do to write, may do all.
SETTINGS = """\
listeners=PLAINTEXT://127.0.0.1:{{port}},SECURED://127.0.0.1:{secured},MUTUAL://127.0.0.1:{mutual},\\
CONTROLLER://127.0.0.1:{{controller}}
advertised.listeners=PLAINTEXT://127.0.0.1:{{port}},SECURED://127.0.0.1:{secured},MUTUAL://127.0.0.1:{mutual}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURED:SASL_SSL,MUTUAL:SSL
listener.name.mutual.ssl.client.auth=required
ssl.truststore.type=PEM
ssl.truststore.location={trusted}
sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.secured.scram-sha-512.sasl.jaas.config=\\
org.apache.kafka.common.security.scram.ScramLoginModule required;
ssl.keystore.type=PEM
ssl.keystore.location={keystore}
super.users=User:ANONYMOUS
"""


@dataclass(frozen=True)
class Secured:
    """A broker, as those see it who have a password, or a certificate, and what they need to be let in."""

    broker: KafkaServer
    seen: KafkaServer
    properties: Mapping[str, str]
    seen_by_certificate: KafkaServer
    certificate: Mapping[str, str]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    certificate, key, keystore = (folder / name for name in ("certificate.pem", "key.pem", "keystore.pem"))
    make_certificate(certificate, key, "127.0.0.1")
    keystore.write_text(key.read_text() + certificate.read_text())
    own, own_key = folder / "own.pem", folder / "own-key.pem"
    make_certificate(own, own_key)
    port, mutual = free_ports(2)
    settings = SETTINGS.format(secured=port, mutual=mutual, keystore=keystore, trusted=own)
    broker = start_kafka(folder / "kafka", settings)
    login = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    with admin(broker) as client:
        for answer in client.alter_user_scram_credentials(
            [UserScramCredentialUpsertion(USER, login, PASSWORD.encode())]
        ).values():
            answer.result()
    yield Secured(
        broker,
        KafkaServer(folder, f"127.0.0.1:{port}"),
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
            "ssl.ca.location": str(certificate),
        },
        KafkaServer(folder, f"127.0.0.1:{mutual}"),
        {
            "security.protocol": "SSL",
            "ssl.ca.location": str(certificate),
            "ssl.certificate.location": str(own),
            "ssl.key.location": str(own_key),
        },
    )
    broker.stop()


@pytest.fixture
def topic(secured: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """One with some records, of which a reader may do no more than the docs ask for."""
    name = new_topic(secured.broker, 1)
    produce(secured.broker, name, views(TAILS))
    allowed = ((ResourceType.TOPIC, name), (ResourceType.GROUP, "coset.counted"))
    rules = [
        AclBinding(kind, named, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
        for kind, named in allowed
        for operation in (AclOperation.READ, AclOperation.DESCRIBE)
        for user in (USER, "CN=coset")
    ]
    with admin(secured.broker) as client:
        for answer in client.create_acls(rules).values():
            answer.result()
    monkeypatch.setenv(PROPERTIES, str(tmp_path / "kafka.properties"))
    give(secured.properties)
    return name


def give(properties: Mapping[str, str]) -> None:
    """Give readers these properties, as a deployment does."""
    Path(os.environ[PROPERTIES]).write_text("".join(f"{name}={value}\n" for name, value in properties.items()))


def test_commands_read_a_secured_broker_and_nothing_tells_the_password(
    secured: Secured, topic: str, store: Store, tmp_path: Path
) -> None:
    file, docs = tmp_path / "counted.py", tmp_path / "docs"
    file.write_text(
        "from coset import Pipeline\n"
        f"pipeline = Pipeline('counted', source='{secured.seen.source}')\n"
        f"views = pipeline.stream('{topic}', key='tail', partitions=1, format='json', columns={{'n': 'BIGINT'}})\n"
        "views.aggregate('count(*) AS views').write('counted')\n"
    )

    def coset(*words: str) -> str:
        done = forked.coset(words[0], str(file), "--store", store.root, *words[1:])
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    said = [
        coset("explain"),
        coset("run", "--runner", "local", "--docs", str(docs)),
        coset("explain", "--batch", "0", "--json"),
        coset("status"),
        coset("report", "--docs", str(docs)),
    ]
    assert [row[:2] for row in rows(store.root, "counted")] == sorted((tail, 1) for tail in TAILS)
    assert "the consumer group coset.counted is updated" in said[1]
    stored = [store.get(entry.key) or b"" for entry in store.list("")]
    stored = [gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data for data in stored]
    pages = [path.read_bytes() for path in docs.rglob("*") if path.is_file()]
    assert any(secured.seen.address.encode() in data for data in stored), "plans are among them"
    assert pages
    told = [text for text in (*map(str.encode, said), *stored, *pages) if PASSWORD.encode() in text]
    assert not told


def test_what_cannot_be_right_is_refused_at_once_and_by_what_to_do_next(
    secured: Secured, topic: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "ANSWERS_WITHIN_SECONDS", 6.0)
    made, other = counted(secured.seen, topic, 1), store_at(f"{store.root}/other")
    certificate = tmp_path / "certificate.pem"
    make_certificate(certificate, tmp_path / "key.pem", "127.0.0.1")
    ref = next_batch(made, store.root)
    for wrong, kind, what, then in (
        ({"sasl.password": PASSWORD[1:]}, Refused, "denied access (_AUTHENTICATION)", "check the cred"),
        ({"sasl.username": "stranger"}, Refused, "denied access (_AUTHENTICATION)", "check the cred"),
        ({"ssl.ca.location": str(certificate)}, Refused, "the broker's certificate, or that", "ssl.ca.location"),
        ({"ssl.ca.location": "/nowhere"}, Refused, "property 'ssl.ca.location' is not acc", "as librdkafka documents"),
        ({"security.protocol": "PLAINTEXT"}, Unreachable, "_TIMED_OUT", "security.protocol in the file"),
    ):
        give({**secured.properties, **wrong})
        for does in (lambda: preview(made, other), lambda: run_groups(ref)):
            began = time.monotonic()
            with pytest.raises(CosetError) as refused:
                does()
            # What may pass is waited for, and asked again.
            assert kind is Unreachable or time.monotonic() - began < cluster.ANSWERS_WITHIN_SECONDS
            (finding,) = refused.value.findings
            assert type(refused.value) is kind
            assert what in finding.what
            assert then in finding.then
            assert PASSWORD[1:] not in str(finding)
    give(secured.properties)
    run_and_publish(ref, tmp_path)
    assert [row[:2] for row in rows(store.root, "counted")] == sorted((tail, 1) for tail in TAILS)


@pytest.mark.long
def test_a_secured_broker_that_is_restarted_in_the_middle_is_waited_for(
    secured: Secured, topic: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    little_ahead = {"fetch.max.bytes": "20000", "message.max.bytes": "20000", "queued.min.messages": "100"}
    give({**secured.properties, **little_ahead})
    monkeypatch.setattr(topic_reader, "_RECORDS_AT_ONCE", 20)
    for _ in range(20):
        produce(secured.broker, topic, [(tail, {"n": 1, "more": "x" * 1000}) for tail in TAILS])
    ref = next_batch(counted(secured.seen, topic, 1), store.root)
    batches = list[int | None]()

    def restart(batch: Batch, _: Taken) -> None:
        batches.append(batch.reached)
        if len(batches) == 3:
            secured.broker.stop()
            start_again(secured.broker)

    spoil_kernel(monkeypatch, restart)
    run_and_publish(ref, tmp_path)
    assert len(batches) > 20
    assert [row[:2] for row in rows(store.root, "counted")] == sorted((tail, 21) for tail in TAILS)


@pytest.mark.long
def test_who_has_a_certificate_needs_no_password(
    secured: Secured, topic: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "ANSWERS_WITHIN_SECONDS", 6.0)
    made, other = counted(secured.seen_by_certificate, topic, 1), store_at(f"{store.root}/other")
    give(secured.certificate)
    ref = next_batch(made, store.root)
    stranger, key = tmp_path / "stranger.pem", tmp_path / "stranger-key.pem"
    make_certificate(stranger, key)
    strangers = {"ssl.certificate.location": str(stranger), "ssl.key.location": str(key)}
    none = {name: value for name, value in secured.certificate.items() if name not in strangers}
    for wrong in (none, {**secured.certificate, **strangers}):
        give(wrong)
        for does in (lambda: preview(made, other), lambda: run_groups(ref)):
            began = time.monotonic()
            with pytest.raises(Refused, match="or that of who asks, is not accepted") as refused:
                does()
            assert time.monotonic() - began < cluster.ANSWERS_WITHIN_SECONDS
            assert "what else begins with ssl." in refused.value.findings[0].then
    give(secured.certificate)
    run_and_publish(ref, tmp_path)
    assert [row[:2] for row in rows(store.root, "counted")] == sorted((tail, 1) for tail in TAILS)


@pytest.mark.long
def test_a_broker_whose_certificate_is_for_another_host_is_refused(secured: Secured, topic: str, store: Store) -> None:
    named = KafkaServer(secured.seen.folder, secured.seen.address.replace("127.0.0.1", "localhost"))
    with pytest.raises(Refused, match="the broker's certificate, or that of who asks, is not accepted") as refused:
        preview(counted(named, topic, 1), store)
    assert "ssl.ca.location" in refused.value.findings[0].then
