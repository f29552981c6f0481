#!/bin/sh
# Asks the serialisers anew how they write keys: writes keys.jsonl. Needs Python, Node and their registries of packages.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
home=$(mktemp -d)
trap 'kill "$registry"; rm -rf "$home"' EXIT
cp -r "$here"/* "$home"
cd "$home"
cat > registry.py <<'PY'
"""A schema registry for serialisers to ask: it gives each schema the next id of a list. Prints its address."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

IDS = [7, 8, 300, 65_536, 100_001, 2**31 - 1, *range(1000, 1100)]
SCHEMAS: list[dict[str, Any]] = []


class Registry(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        schema = {"schema": asked["schema"], "schemaType": asked.get("schemaType", "AVRO")}
        if schema not in SCHEMAS:
            SCHEMAS.append(schema)
        id = IDS[SCHEMAS.index(schema)]
        self._answer({"id": id, "version": 1, "subject": self.path.split("/")[2], **schema})

    def do_GET(self) -> None:
        if self.path.startswith("/schemas/ids/"):
            self._answer(SCHEMAS[IDS.index(int(self.path.split("?")[0].rsplit("/", 1)[1]))])
        else:
            self._answer({}, 404)

    def do_PUT(self) -> None:
        self._answer({"compatibility": "NONE"})

    def _answer(self, body: dict[str, Any], status: int = 200) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *said: object) -> None:
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Registry)
print(f"http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
PY
cat > cases.py <<'PY'
"""The keys that serialisers are asked to write: a JSON object a line, with the schema and the values of its fields."""

from __future__ import annotations

import json
from typing import Any

TEXTS = ["", "ann", "Zürich", "東京", "a😀b", 'a"b\\c', "\t\x1f\x7f", "x" * 64, "N14228"]
LONGS = [0, 1, -1, 63, 64, -64, -65, 1001, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)]
INTS = [each for each in LONGS if -(2**31) <= each < 2**31]


def record(*fields: dict[str, Any], **more: Any) -> str:
    return json.dumps({"type": "record", "name": "Key", "namespace": "shop", "fields": list(fields), **more})


def rows(*columns: list[Any]) -> list[list[Any]]:
    """As many rows as the longest column has values."""
    return [[column[row % len(column)] for column in columns] for row in range(max(map(len, columns)))]


ID, LAND = {"name": "id", "type": "long"}, {"name": "land", "type": "string"}
PROTO = 'syntax = "proto3";\npackage shop;\n'
CASES = [
    ("avro", '"long"', [], rows(LONGS)),
    ("avro", '"int"', [], rows(INTS)),
    ("avro", '"string"', [], rows(TEXTS)),
    ("avro", record(ID), ["id"], rows(LONGS)),
    ("avro", record(ID, doc="The number of a customer."), ["id"], rows(LONGS)),
    ("avro", record(LAND, ID), ["land", "id"], rows(TEXTS, LONGS)),
    (
        "avro",
        record(
            {"name": "land", "type": ["null", "string"]},
            {"name": "number", "type": ["int", "null"]},
            {"name": "good", "type": "boolean"},
        ),
        ["land", "number", "good"],
        rows([*TEXTS, None], [*INTS, None], [True, False]),
    ),
    (
        "protobuf",
        f"{PROTO}message Key {{\n  string land = 1;\n  int64 id = 2;\n}}\n",
        ["land", "id"],
        rows(TEXTS, LONGS),
    ),
    (
        "protobuf",
        f"{PROTO}// Not this one.\nmessage Other {{\n  bool it = 1;\n}}\nmessage Key {{\n  bool good = 17;\n  optional int32 number = 3;\n"
        "  sint64 id = 2; /* signed */\n}\n",
        ["good", "number", "id"],
        rows([True, False], [*INTS, None], LONGS),
    ),
    (
        "json-schema",
        json.dumps(
            {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "title": "Key",
                "type": "object",
                "properties": {"id": {"type": "integer"}, "land": {"type": ["string", "null"]}},
            }
        ),
        ["id", "land"],
        rows(INTS, ["", "ann", "Zürich", "東京", 'a"b\\c', "N14228", None]),
    ),
]

if __name__ == "__main__":
    for framing, schema, columns, keys in CASES:
        print(json.dumps({"framing": framing, "schema": schema, "columns": columns, "keys": keys}))
PY
cat > python_clients.py <<'PY'
"""What confluent-kafka's serialisers write of the keys that it reads, at the registry that is named."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext


def compiled(schema: str, name: str) -> Any:
    """The class of the message Key of a Protobuf schema."""
    folder = Path(mkdtemp())
    (folder / f"{name}.proto").write_text(schema)
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", f"--python_out={folder}", f"{name}.proto"], check=True
    )
    sys.path.insert(0, str(folder))
    return import_module(f"{name}_pb2").Key


registry = SchemaRegistryClient({"url": sys.argv[1]})
for number, line in enumerate(sys.stdin):
    case = json.loads(line)
    columns, where = case["columns"], SerializationContext(f"topic{number}", MessageField.KEY)
    match case["framing"]:
        case "avro":
            write = AvroSerializer(registry, case["schema"])
            keys = [dict(zip(columns, row)) if columns else row[0] for row in case["keys"]]
        case "protobuf":
            Key = compiled(case["schema"].replace("package shop;", f"package shop{number};"), f"key{number}")
            write = ProtobufSerializer(Key, registry, {"use.deprecated.format": False})
            keys = [Key(**{name: v for name, v in zip(columns, row) if v is not None}) for row in case["keys"]]
        case _:
            write = JSONSerializer(case["schema"], registry)
            keys = [dict(zip(columns, row)) for row in case["keys"]]
    written = [write(key, where) for key in keys]
    answer = {"client": "confluent-kafka", "version": version("confluent-kafka"), **case}
    answer |= {"id": int.from_bytes(written[0][1:5], "big"), "hex": [each.hex() for each in written]}
    print(json.dumps(answer, ensure_ascii=False))
PY
python3 -m venv v
v/bin/pip install --quiet --disable-pip-version-check 'confluent-kafka[avro,protobuf,json]==2.16.1' grpcio-tools==1.85.1 orjson==3.13.0
(cd node && npm install --silent >&2)
python3 registry.py > address &
registry=$!
sleep 2
python3 cases.py > cases.jsonl
v/bin/python python_clients.py "$(cat address)" < cases.jsonl > python.jsonl
node node/clients.mjs "$(cat address)" < cases.jsonl > node.jsonl
cat python.jsonl node.jsonl > "$here/keys.jsonl"
