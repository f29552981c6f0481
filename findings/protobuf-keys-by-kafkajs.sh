#!/bin/sh
# One Protobuf key behind one registry's schema id: @kafkajs/confluent-schema-registry 3.9.0, confluent-kafka 2.16.1 (Python).
# Guess: both write the same bytes, as what the registry's frame is does not depend on the language; so keys meet in one partition, and each reads the
#        other's.
# Seen:  KafkaJS's client writes no index of the message behind the id, which is one zero byte for a file's first, and writes a field that has its
#        default (id 0). Python cannot read such a key. Of other bytes is another hash, so one key lies in two partitions.
# The registry is a stand-in that gives one id. Needs Node.
set -eu
home=$(mktemp -d)
trap 'kill "$registry" 2> /dev/null || true; rm -rf "$home"' EXIT
cd "$home"
cat > registry.py <<'PY'
import json
from http.server import BaseHTTPRequestHandler, HTTPServer


class Registry(BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer({"id": 7, "version": 1, "subject": "t-key", "schemaType": "PROTOBUF", **asked})

    def do_GET(self):
        known = self.path.startswith("/schemas/ids/")
        self.answer({"schema": open("key.proto").read(), "schemaType": "PROTOBUF"} if known else {}, 200 if known else 404)

    def do_PUT(self):
        self.answer({"compatibility": "NONE"})

    def answer(self, body, status=200):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *said):
        pass


server = HTTPServer(("127.0.0.1", 0), Registry)
print(f"http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
PY
printf 'syntax = "proto3";\npackage shop;\nmessage Key {\n  int64 id = 1;\n  string land = 2;\n}\n' > key.proto
python3 registry.py > address &
registry=$!
python3 -m venv v
v/bin/pip install --quiet --disable-pip-version-check 'confluent-kafka[protobuf,schemaregistry]==2.16.1' grpcio-tools==1.85.1
npm install --silent --no-fund --no-audit @kafkajs/confluent-schema-registry@3.9.0 > /dev/null
v/bin/python -m grpc_tools.protoc -I. --python_out=. key.proto
cat > node.cjs <<'JS'
const { SchemaRegistry } = require('@kafkajs/confluent-schema-registry')
const { readFileSync } = require('fs')
;(async () => {
  const registry = new SchemaRegistry({ host: readFileSync('address', 'utf8').trim() })
  const { id } = await registry.register({ type: 'PROTOBUF', schema: readFileSync('key.proto', 'utf8') }, { subject: 't-key' })
  for (const key of [{ id: 1001, land: 'NZ' }, { id: 0, land: 'NZ' }]) console.log((await registry.encode(id, key)).toString('hex'))
})()
JS
cat > run.py <<'PY'
import subprocess

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from key_pb2 import Key

where = SerializationContext("t", MessageField.KEY)
registry = SchemaRegistryClient({"url": open("address").read().strip()})
write = ProtobufSerializer(Key, registry, {"use.deprecated.format": False})
read = ProtobufDeserializer(Key, {"use.deprecated.format": False}, registry)
by_python = [write(Key(id=id, land="NZ"), where).hex() for id in (1001, 0)]
by_node = subprocess.run(["node", "node.cjs"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
refused = []
for python, node in zip(by_python, by_node):
    try:
        got = str(read(bytes.fromhex(node), where)).split()
    except Exception as error:
        got, refused = f"{type(error).__name__}: {error}", [*refused, type(error).__name__]
    print(f"Python {python}; Node {node}, which Python reads as {got}")
assert by_python == ["00000000070008e90712024e5a", "00000000070012024e5a"], "it has changed"
assert by_node == ["000000000708e90712024e5a", "0000000007080012024e5a"], "it has changed"
assert refused == ["SerializationError"] * 2, "it has changed"
PY
v/bin/python run.py
