"""Files with the bytes of keys beside values, as Aiven's sinks land them: the key's columns are read from its bytes."""

from __future__ import annotations

import base64
import io
import json
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from coset.batches.publication import abandon
from coset.batches.verifying import verify
from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import CosetError, Refused
from partitioning.framed_keys import framed
from partitioning.hashes import murmur2
from partitioning.model.key_schemas import Framing, KeyField, KeySchema
from partitioning.model.private import private_names
from tests.batches import rows
from tests.commands import succeeded
from tests.registry import USER, running
from tests.running import next_batch, run_and_publish

FIELDS = [{"name": "id", "type": "long"}, {"name": "land", "type": ["null", "string"]}]
SCHEMAS = {id: json.dumps({"type": "record", "name": "Key", "doc": f"{id}", "fields": FIELDS}) for id in (1, 2)}
# The columns that JSON does not say.
IN_JSON = {"columns": {"key": "BLOB", "value": 'STRUCT("n" BIGINT, "id" VARCHAR)'}}

LONG = KeySchema(Framing.AVRO, 7, (KeyField("", "long"),))

# A key's bytes and a number.
Sent = tuple[bytes | None, int]


def _file(written_as: str, sent: Sequence[Sent], first: int) -> bytes:
    """A file as Aiven's writers make it, with an envelope of key, offset and value."""
    lines: list[dict[str, Any]] = [
        {"key": key, "offset": first + place, "value": {"n": n, "id": "another"}} for place, (key, n) in enumerate(sent)
    ]
    made = io.BytesIO()
    match written_as:
        case "json":
            # Its JsonConverter writes bytes as base64, and leaves out a key that is not there.
            for line in lines:
                key = line.pop("key")
                text: Any = {} if key is None else {"key": base64.b64encode(key).decode()}
                made.write(json.dumps(text | line).encode() + b"\n")
        case "parquet":
            of_value = pa.struct([("n", pa.int64()), ("id", pa.string())])
            kinds = pa.schema([("key", pa.binary()), ("offset", pa.int64()), ("value", of_value)])
            pq.write_table(pa.Table.from_pylist(lines, kinds), made)
        case _:
            of_value = {
                "type": "record",
                "name": "V",
                "fields": [{"name": "n", "type": "long"}, {"name": "id", "type": "string"}],
            }
            fields = [("key", ["null", "bytes"]), ("offset", "long"), ("value", of_value)]
            schema = {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields]}
            fastavro.writer(made, schema, lines)
    return made.getvalue()


class Landed:
    """A topic of orders of which a sink has landed keys and values, and the sums of what was sent."""

    def __init__(self, store: Store, written_as: str = "parquet") -> None:
        self.root, self.written_as = store.root, written_as
        self.store, self.ends = store, Counter[int]()
        self.sums = Counter[Any]()

    def send(self, sent: Sequence[Sent], into: int | None = None) -> None:
        """Land records where producers put them, or all in one partition."""
        for partition in range(4):
            mine = [one for one in sent if (murmur2(one[0] or b"") % 4 if into is None else into) == partition]
            if mine:
                first = self.ends[partition]
                name = f"orders/partition={partition}/orders+{partition}+{first:010}.{self.written_as}"
                store_at(f"{self.root}/topics").put(name, _file(self.written_as, mine, first))
                self.ends[partition] += len(mine)

    def pipeline(self, **keys: Any) -> Pipeline:
        more: Any = IN_JSON if self.written_as == "json" else {}
        pipeline = Pipeline("summed", source=f"{self.root}/topics")
        declared = {"key_bytes": "key", "offset": "offset", "format": self.written_as, **more, **keys}
        orders = pipeline.stream("orders", partitions=4, **declared)
        orders.select("value.n AS n").combine("sum(n)::BIGINT AS n", running=True, name="sums").write(
            "sums", mode="upsert"
        )
        return pipeline

    def batch(self, **keys: Any) -> int:
        """A batch, after which the table is its query; how many exchanges it has."""
        pipeline = self.pipeline(**keys)
        ref = next_batch(pipeline, self.root)
        run_and_publish(ref)
        (found,) = verify(pipeline, self.store)
        assert not isinstance(found.found, str)
        assert found.found.same
        return len(ref.load()[1].exchanges)

    def table(self) -> dict[Any, Any]:
        # Behind them is the partition of the table.
        return {row[:-2]: row[-2] for row in rows(self.root, "sums")}


@pytest.fixture(scope="module")
def written() -> Iterator[Callable[[int, Any], bytes]]:
    """What a real serialiser makes of a key under a schema."""
    with running() as registry:
        client = SchemaRegistryClient({"url": registry.url, "basic.auth.user.info": USER})
        serialisers = {id: AvroSerializer(client, text) for id, text in SCHEMAS.items()}
        where, first = SerializationContext("orders", MessageField.KEY), {"id": 1, "land": None}
        # The registry counts them as they come.
        assert [serialisers[id](first, where)[:5] for id in (1, 2)] == [b"\0\0\0\0\1", b"\0\0\0\0\2"]

        def of(id: int, key: tuple[int, str | None]) -> bytes:
            return bytes(serialisers[id](dict(zip(("id", "land"), key, strict=True)), where))

        yield of


def key_of(number: int) -> tuple[int, str | None]:
    return number % 13 - 5, None if number % 3 else "DE"


@pytest.mark.parametrize("written_as", ["json", "parquet", "avro"])
def test_keys_are_read_from_their_bytes_and_meet_under_whichever_id(
    written_as: str, store: Store, written: Callable[..., bytes]
) -> None:
    landed, avro = Landed(store, written_as), {"key": ("id", "land"), "key_format": "avro"}
    sums = Counter[Any]()

    def send(id: int, numbers: range) -> None:
        landed.send([(written(id, key_of(n)), n) for n in numbers])
        for n in numbers:
            sums[key_of(n)] += n

    send(1, range(80))
    assert landed.batch(**avro, key_schemas={1: SCHEMAS[1]}) == 0
    assert landed.table() == sums
    send(2, range(80, 120))
    send(1, range(120, 160))
    with pytest.raises(CosetError, match=r"offset \d+: its key has the schema 2, and key_schemas= names 1"):
        landed.batch(**avro, key_schemas={1: SCHEMAS[1]})
    abandon(Ledger(store, "summed"), "a new id")
    assert landed.batch(**avro, key_schemas=SCHEMAS) == 1
    send(2, range(160, 200))
    assert landed.batch(**avro, key_schemas={2: SCHEMAS[2]}) == 0
    assert landed.table() == sums


def test_a_key_of_one_value_may_not_be_there(store: Store) -> None:
    landed = Landed(store, "json")
    landed.send([(struct.pack(">q", n % 7), 1) for n in range(40)])
    landed.send([(None, 5)] * 3, into=1)
    landed.batch(key="id", key_format="long", null_keys="drop")
    assert landed.table() == {(n,): 6 if n < 5 else 5 for n in range(7)}


def test_text_is_the_bytes_of_its_utf_8(store: Store) -> None:
    binary, text = Landed(store), Landed(store_at(f"{store.root}/text"), "json")
    keys = [f"c{n % 7}ä" for n in range(40)]
    binary.send([(key.encode(), 1) for key in keys])
    binary.batch(key="customer")
    assert binary.table() == {(key,): count for key, count in Counter(keys).items()}

    # What lies there in base64 are texts to whoever declares them so.
    for key in keys:
        text.send([(key.encode(), 1)], into=murmur2(base64.b64encode(key.encode())) % 4)
    text.batch(key="customer", columns={**IN_JSON["columns"], "key": "VARCHAR"})
    assert {base64.b64decode(key).decode(): count for (key,), count in text.table().items()} == Counter(keys)


def test_keys_that_are_json_objects_have_the_types_that_are_declared(store: Store) -> None:
    landed = Landed(store)
    keys = [(n % 9, "ä" if n % 2 else None) for n in range(40)]
    landed.send(
        [
            (json.dumps({"id": id, "land": land}, ensure_ascii=False, separators=(",", ":")).encode(), 1)
            for id, land in keys
        ]
    )
    landed.batch(key=("id", "land"), key_format="json", columns={"id": "INTEGER", "land": "VARCHAR"})
    assert landed.table() == Counter(keys)


def test_a_record_whose_key_lies_elsewhere_is_refused_as_ever(store: Store, written: Callable[..., bytes]) -> None:
    landed, avro = Landed(store), {"key": ("id", "land"), "key_format": "avro", "key_schemas": {1: SCHEMAS[1]}}
    key = written(1, (3, None))
    landed.send([(written(1, key_of(n)), n) for n in range(40)])
    wrong = (murmur2(key) + 1) % 4
    landed.send([(key, 1)], into=wrong)
    with pytest.raises(
        CosetError, match=rf"key '\[3,null\]', orders-{wrong} at offset {landed.ends[wrong] - 1}, belongs"
    ):
        landed.batch(**avro)


def test_a_record_whose_key_cannot_be_read_is_set_aside_where_that_is_declared(
    store: Store, written: Callable[..., bytes]
) -> None:
    landed, avro = Landed(store), {"key": ("id", "land"), "key_format": "avro", "key_schemas": {1: SCHEMAS[1]}}
    landed.send(
        [(written(1, (1, "DE")), 1), (b"no frame", 2), (None, 3), (written(1, (1, "DE")), 4)],
        into=murmur2(written(1, (1, "DE"))) % 4,
    )
    with pytest.raises(CosetError, match="orders: offset 1: the key does not begin with the id of a schema"):
        landed.batch(**avro)
    abandon(Ledger(store, "summed"), "bad keys")
    pipeline = landed.pipeline(**avro, bad_records="set aside up to 2")
    run_and_publish(next_batch(pipeline, store.root))
    assert landed.table() == {(1, "DE"): 5}


def test_it_is_declared_of_what_has_such_bytes_and_of_nothing_else(store: Store) -> None:
    landed = Landed(store)
    landed.send([(b"a", 1)])
    for options, what in (
        ({"key": "key"}, "column 'key' has the key's bytes, and is to be a column of its own too"),
        ({"key": ("id", "land"), "key_format": "json"}, "does not say of which types id, land are"),
        ({"key": "id", "columns": {"n": "BIGINT"}}, "columns are declared, and parquet says them itself"),
        ({"key": "id", "source": "kafka://broker:9092", "format": "bytes"}, "a broker has each key's bytes"),
        ({"key": ("a", "b"), "hash": "opaque"}, "written in an unknown way are not read from their bytes"),
    ):
        with pytest.raises(Refused, match=what):
            landed.pipeline(**options)
    for name, what in (
        ("value", "key bytes column 'value' is STRUCT"),
        ("none", "there is no key bytes column 'none'"),
    ):
        with pytest.raises(Refused, match=what):
            next_batch(landed.pipeline(key="id", key_bytes=name), store.root)


@pytest.mark.parametrize(
    ("written_as", "key", "declared"),
    [
        ("json", lambda n: framed([n * 300], LONG), [["key_value"], "avro"]),
        ("parquet", lambda n: b'\0\0\0\0\7{"id":%d}' % n, [["id"], "json-schema"]),
        ("json", lambda n: b'\0\0\0\0\7{"id":%d}' % n, [["id"], "json-schema"]),
        ("avro", lambda n: f"c{n}".encode(), [["key_value"], "string"]),
        ("json", lambda n: struct.pack(">q", n), [["key_value"], "long"]),
    ],
)
def test_inspect_declares_the_column_of_bytes(
    written_as: str, key: Callable[[int], bytes], declared: list[Any], store: Store
) -> None:
    landed = Landed(store, written_as)
    landed.send([(key(n % 40), n) for n in range(120)])
    found = json.loads(succeeded("inspect", f"{store.root}/topics/orders", "--json").stdout)
    pasted: dict[str, Any] = {}
    exec(f"{found['declaration']}\norders.aggregate('count(*) AS n').write('counted')\n", pasted)
    assert ('key_bytes="key"' in found["declaration"], found["key"]["told"]) == (True, "surely")
    assert [found["key"]["columns"], found["key"]["key_format"]] == declared
    run_and_publish(next_batch(pasted["pipeline"], store.root))
    assert [row[-1] for row in rows(store.root, "counted")] == [3] * 40


def test_inspect_says_whom_to_ask_for_the_schemas_of_landed_bytes(store: Store, written: Callable[..., bytes]) -> None:
    landed = Landed(store)
    landed.send([(written(1 + n % 2, (n, "DE")), n) for n in range(60)])
    says = succeeded("inspect", f"{store.root}/topics/orders").stdout
    assert "which is hashed with them: 1 (30 records), 2 (30 records)" in says
    assert "`coset schemas orders` asks the registry" in says
    assert 'key="key", partitions=4, key_format="bytes"' in " ".join(says.split()).replace("( ", "(")


@pytest.mark.parametrize("layout", ["partition", "time"])
def test_files_of_keys_and_headers_beside_those_of_values_are_none_of_the_stream(layout: str, store: Store) -> None:
    landed, there = Landed(store), store_at(f"{store.root}/topics")
    for first in (0, 60):
        landed.send([(f"c{n % 7}".encode(), n) for n in range(first, first + 60)])
        # As Confluent's sink names them, with store.kafka.keys and store.kafka.headers.
        for entry in [entry for entry in there.list("orders/") if entry.key.count(".") == 1]:
            value, name = there.get(entry.key) or b"", entry.key.removesuffix(".parquet")
            for beside in (".keys.avro", ".keys.parquet", ".keys.json.gz", ".headers.avro", ".headers.snappy.parquet"):
                there.put(f"{name}{beside}", value if beside == ".keys.parquet" else b"other columns")
        landed.batch(key="customer", layout=layout)
    assert landed.table() == {(f"c{key}",): sum(range(key, 120, 7)) for key in range(7)}


@pytest.mark.parametrize("private", ["id", "key"])
def test_the_bytes_of_a_key_and_its_columns_are_private_together(private: str, store: Store) -> None:
    avro: Any = {"key": ("id", "land"), "key_format": "avro", "key_schemas": {1: SCHEMAS[1]}}
    assert private_names(Landed(store).pipeline(**avro, private=(private,)).streams, ()) == {
        "id",
        "land",
        "key",
        "(id, land)",
    }
    assert private_names(Landed(store).pipeline(**avro, private=("value",)).streams, ()) == {"value"}
