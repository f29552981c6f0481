#!/bin/sh
# Where two old clients put keys, which are still installed: kafka-node 5.0.0 (Node) and pykafka 2.8.0 (Python), among 12 partitions.
# Guess: a producer without settings puts records with one key together, by murmur2 as Java or by CRC-32 as librdkafka; a partitioner for keys has one of both.
# Seen:  neither looks at keys by default. kafka-node's Producer sends all records to the topic's first partition, and its HighLevelProducer, as pykafka, goes
#        by turns: equal keys lie apart. Their partitioners for keys are of their own. KeyedPartitioner is Java's String.hashCode without its sign,
#        which is Pulsar's, but 1 for an empty key or none. pykafka's HashingPartitioner takes SHA-1, all 160 bits, though its text says hash().
# Needs Node.
set -eu
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
cd "$home"
python3 -m venv v
v/bin/pip install --quiet --disable-pip-version-check pykafka==2.8.0 setuptools==80.9.0
npm install --silent --no-fund --no-audit --ignore-scripts --omit=optional kafka-node@5.0.0
cat > keys.js <<'JS'
const { HighLevelProducer, Producer } = require("kafka-node");
const { EventEmitter } = require("node:events");

const client = Object.assign(new EventEmitter(), { ready: false, options: {} });
const partitions = [...Array(12).keys()];
const made = { Producer: new Producer(client), HighLevelProducer: new HighLevelProducer(client), KeyedPartitioner: new Producer(client, { partitionerType: 3 }) };
const placed = Object.entries(made).map(([name, producer]) => [
  name, ["user-1", "user-1", "user-2", "ä", "", null].map((key) => producer.partitioner.getPartition(partitions, key)),
]);
console.log(JSON.stringify(Object.fromEntries(placed)));
JS
node keys.js > by-node 2> log || { cat log; exit 1; }
cat > run.py <<'PY'
import json
import threading
from hashlib import sha1

from pykafka.partitioners import HashingPartitioner, RandomPartitioner
from pykafka.producer import Producer

KEYS = ["user-1", "user-1", "user-2", "ä", ""]
ALL = list(range(12))


class Cluster:
    handler, _broker_version = threading, "2.0.0"


def of_java(key):
    """String.hashCode, without its sign."""
    number = 0
    for letter in key:
        number = (number * 31 + ord(letter)) & 0x7FFFFFFF
    return number % 12


def all_of(partitioner):
    return [partitioner(ALL, key.encode()) for key in KEYS]


seen = json.load(open("by-node"))
seen["pykafka"] = all_of(Producer(Cluster, None, auto_start=False)._partitioner)
seen["HashingPartitioner"] = all_of(HashingPartitioner())
print("for the keys", KEYS, "and none")
for name, places in seen.items():
    print(f"{name:18} {places}")
assert seen["Producer"] == [0] * 6, "it has changed"
assert seen["HighLevelProducer"] == [0, 1, 2, 3, 4, 5] and seen["pykafka"] == [1, 2, 3, 4, 5], "it has changed"
assert seen["KeyedPartitioner"] == [*map(of_java, KEYS[:4]), 1, 1], "it has changed"
assert seen["HashingPartitioner"] == [int(sha1(key.encode()).hexdigest(), 16) % 12 for key in KEYS], "it has changed"
PY
v/bin/python run.py 2> log || { cat log; exit 1; }
