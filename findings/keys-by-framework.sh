#!/bin/sh
# Where two frameworks for Kafka in Python put a key as they are by default: FastStream 0.7.8 over each of its two clients, and Quix Streams 3.28.1.
# Guess: the brokers of one framework are one producer to who uses them, so a key lies in one partition whichever client is below; and
#        Quix Streams, which is over librdkafka, puts keys where librdkafka does by default (CRC-32), and records without a key anywhere.
# Seen:  faststream.kafka (aiokafka) puts them by murmur2, faststream.confluent by CRC-32: to change the import moves three keys of four among
#        four partitions. Quix Streams sets partitioner=murmur2: keys lie as Java's, and all records without a key in one partition.
# A mock cluster of librdkafka's stands in for brokers.
set -eu
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
python3 -m venv "$home/v"
"$home/v/bin/pip" install --quiet --disable-pip-version-check 'faststream[kafka,confluent]==0.7.8' quixstreams==3.28.1 aiokafka==0.14.0 confluent-kafka==2.12.2
cat > "$home/run.py" <<'PY'
import asyncio
import zlib

import faststream.confluent
import faststream.kafka
from aiokafka.partitioner import DefaultPartitioner
from confluent_kafka import Producer
from quixstreams import Application

# It lives as long as this producer.
cluster = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 1})
(broker,) = cluster.list_topics(timeout=10).brokers.values()
AT = f"{broker.host}:{broker.port}"
KEYS = [f"user-{number}".encode() for number in range(200)]
ALL = list(range(4))
of_java = {key: DefaultPartitioner()(key, ALL, ALL) for key in KEYS}
of_crc = {key: zlib.crc32(key) % 4 for key in KEYS}


async def by_faststream(of):
    async def publish(key):
        said = await broker.publish("v", topic="orders", key=key)
        return said.partition() if callable(said.partition) else said.partition

    async with of.KafkaBroker(AT) as broker:
        return {key: await publish(key) for key in KEYS}, {await publish(None) for _ in range(60)}


def by_quix():
    placed, keyless = {}, set()
    with Application(broker_address=AT, loglevel="ERROR").get_producer() as producer:
        for key in KEYS:
            producer.produce("orders", b"v", key, on_delivery=lambda _, said: placed.__setitem__(said.key(), said.partition()))
        for _ in range(60):
            producer.produce("orders", b"v", on_delivery=lambda _, said: keyless.add(said.partition()))
            producer.flush()
    return placed, keyless


seen = {
    "faststream.kafka": asyncio.run(by_faststream(faststream.kafka)),
    "faststream.confluent": asyncio.run(by_faststream(faststream.confluent)),
    "Quix Streams": by_quix(),
}
for name, (placed, keyless) in seen.items():
    like = [sum(placed[key] == other[key] for key in KEYS) for other in (of_java, of_crc)]
    print(f"{name:20} of 200 keys {like[0]} as by murmur2, {like[1]} as by CRC-32; records without a key in {len(keyless)} partitions")
assert seen["faststream.kafka"][0] == of_java and len(seen["faststream.kafka"][1]) > 1, "it has changed"
assert seen["faststream.confluent"][0] == of_crc and len(seen["faststream.confluent"][1]) > 1, "it has changed"
assert seen["Quix Streams"][0] == of_java and len(seen["Quix Streams"][1]) == 1, "it has changed"
PY
"$home/v/bin/python" "$home/run.py" 2> "$home/log" || { cat "$home/log"; exit 1; }
