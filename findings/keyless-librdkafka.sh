#!/bin/sh
# A record without a key, and one with an empty key, by the partitioners of librdkafka 2.16.0 (of confluent-kafka 2.16.1 for Python).
# Guess: what has no key goes anywhere, whatever hashes the keys; an empty key is a key, and lies where it hashes.
# Seen:  `consistent`, `murmur2` and `fnv1a` hash a missing key as an empty one: all records without a key fill one partition, the one of
#        the empty key. With `_random` behind the name they go anywhere. But only in `consistent_random`, the default, does the empty key
#        go anywhere as well; `murmur2_random` and `fnv1a_random` hash it. So after a change of the default to `murmur2` keyless records
#        are one hot partition, and records of one (empty) key, which met nowhere before, meet.
set -eu
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
python3 -m venv "$home/v"
"$home/v/bin/pip" install --quiet --disable-pip-version-check confluent-kafka==2.16.1
cat > "$home/run.py" <<'PY'
from ctypes import CDLL, c_char_p, c_int32, c_size_t, c_void_p, create_string_buffer
from pathlib import Path

import confluent_kafka

(path,) = (Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs").glob("librdkafka-*")
library = CDLL(str(path))
library.rd_kafka_conf_new.restype = library.rd_kafka_new.restype = library.rd_kafka_topic_new.restype = c_void_p
library.rd_kafka_new.argtypes = (c_int32, c_void_p, c_char_p, c_size_t)
library.rd_kafka_topic_new.argtypes = (c_void_p, c_char_p, c_void_p)
producer = library.rd_kafka_new(0, library.rd_kafka_conf_new(), create_string_buffer(512), 512)
topic = library.rd_kafka_topic_new(producer, b"orders", None)


def placed(name, key):
    function = getattr(library, f"rd_kafka_msg_partitioner_{name}")
    function.argtypes, function.restype = (c_void_p, c_char_p, c_size_t, c_int32, c_void_p, c_void_p), c_int32
    places = {function(topic, key, len(key or b""), 12, None, None) for _ in range(200)}
    return places.pop() if len(places) == 1 else "anywhere"


names = ("consistent", "consistent_random", "murmur2", "murmur2_random", "fnv1a", "fnv1a_random")
seen = {name: (placed(name, None), placed(name, b"")) for name in names}
for name, (missing, empty) in seen.items():
    print(f"{name:18} no key: {missing}, empty key: {empty}")
assert seen == {
    "consistent": (0, 0),
    "consistent_random": ("anywhere", "anywhere"),
    "murmur2": (9, 9),
    "murmur2_random": ("anywhere", 9),
    "fnv1a": (3, 3),
    "fnv1a_random": ("anywhere", 3),
}, "it has changed"
PY
"$home/v/bin/python" "$home/run.py" 2>/dev/null
