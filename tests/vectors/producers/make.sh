#!/bin/sh
# Asks the producers anew where they put keys: writes keys.txt and placements.jsonl. Needs Go, Node, Maven, Java and the registries.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
home=$(mktemp -d)
trap 'chmod -R u+w "$home"; rm -rf "$home"' EXIT
cp -r "$here"/* "$home"
cd "$home"
python3 - > keys.txt <<'PY'
# Where the hash without its sign is 2^31: FNV-1a of the first, Java's hashCode of the second.
EDGES = ("qqk42v", "polygenelubricants")
OTHERS = ("ä", "Zürich", "東京", "кот", "😀", "a😀b", "\x00", "ord/2026/11", '{"id":1001}', "N14228")

keys = [
    "",
    *EDGES,
    *OTHERS,
    *(("abcdefghij" * 4)[:length] for length in range(1, 40)),
    *(f"user-{n}" for n in range(68)),
]
for key in keys:
    print(key.encode().hex())
PY
python3 -m venv v
v/bin/pip install --quiet --disable-pip-version-check confluent-kafka==2.16.1 kafka-python==3.0.12 aiokafka==0.14.0
cat > clients.py <<'PY'
"""Where librdkafka, kafka-python and aiokafka put keys. Reads keys as hexadecimal lines, writes a JSON object a line.

librdkafka is that of confluent-kafka, whose partitioners are public functions: every client that binds it has them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from ctypes import CDLL, c_char_p, c_int32, c_size_t, c_void_p, create_string_buffer
from importlib.metadata import version
from pathlib import Path

import aiokafka.partitioner
import confluent_kafka
import kafka.partitioner

KEYS = [bytes.fromhex(line) for line in sys.stdin.read().split("\n")[:-1]]
COUNTS = (8, 12, 65521)


def one(place: Callable[[], int]) -> int | None:
    """The one partition that a key has. None if calls differ."""
    seen = {place() for _ in range(40)}
    return None if len(seen) > 1 else seen.pop()


def write(client: str, version: str, setting: str, place: Callable[[bytes | None, int], int]) -> None:
    placed = {count: [one(lambda key=key, count=count: place(key, count)) for key in KEYS] for count in COUNTS}
    none = one(lambda: place(None, 12))
    print(json.dumps({"client": client, "version": version, "setting": setting, "none": none, "placed": placed}))


def librdkafka() -> None:
    (path,) = (Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs").glob("librdkafka-*")
    library = CDLL(str(path))
    library.rd_kafka_version_str.restype = c_char_p
    library.rd_kafka_conf_new.restype = library.rd_kafka_new.restype = library.rd_kafka_topic_new.restype = c_void_p
    library.rd_kafka_new.argtypes = (c_int32, c_void_p, c_char_p, c_size_t)
    library.rd_kafka_topic_new.argtypes = (c_void_p, c_char_p, c_void_p)
    topic = library.rd_kafka_topic_new(
        library.rd_kafka_new(0, library.rd_kafka_conf_new(), create_string_buffer(512), 512), b"orders", None
    )
    # In its configuration each is called by its name here; the first is its default.
    names = ("consistent_random", "consistent", "murmur2_random", "murmur2", "fnv1a_random", "fnv1a", "random")
    for name in names:
        function = getattr(library, f"rd_kafka_msg_partitioner_{name}")
        function.argtypes = (c_void_p, c_char_p, c_size_t, c_int32, c_void_p, c_void_p)
        function.restype = c_int32

        def place(key: bytes | None, count: int, function: Callable[..., int] = function) -> int:
            return function(topic, key, len(key or b""), count, None, None)

        setting = "" if name == "consistent_random" else f"partitioner={name}"
        write("librdkafka", library.rd_kafka_version_str().decode(), setting, place)


def in_python() -> None:
    of = {count: list(range(count)) for count in COUNTS}
    default = kafka.partitioner.DefaultPartitioner()

    class Cluster:
        """Of the cluster, what the partitioner asks it."""

        def __init__(self, count: int) -> None:
            self.partitions_for_topic = self.available_partitions_for_topic = lambda topic: of[count]

        def topics(self) -> list[str]:
            return ["orders"]

    write(
        "kafka-python",
        version("kafka-python"),
        "",
        lambda key, count: default.partition("orders", key, key, b"", b"", Cluster(count)),
    )
    ours = aiokafka.partitioner.DefaultPartitioner()
    write("aiokafka", version("aiokafka"), "", lambda key, count: ours(key, of[count], of[count]))


librdkafka()
in_python()
PY
v/bin/python clients.py < keys.txt > placements.jsonl
(cd go && go run . < ../keys.txt) >> placements.jsonl
(cd node && npm install --silent >&2 && node clients.mjs < ../keys.txt) >> placements.jsonl
(cd java && mvn -q -B dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=libs >&2 &&
    java -cp 'libs/*' Clients.java 4.1.1 < ../keys.txt) >> placements.jsonl
python3 - <<'PY' > "$here/placements.jsonl"
import json
made = [json.loads(line) for line in open("placements.jsonl")]
for each in sorted(made, key=lambda each: (each["client"], each["version"], each["setting"])):
    print(json.dumps(dict(sorted(each.items())), ensure_ascii=False, separators=(",", ":")))
PY
cp keys.txt "$here/keys.txt"
