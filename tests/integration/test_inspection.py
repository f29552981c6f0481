"""`coset inspect`: what has landed is told without a declaration, and the declaration that it prints runs as it is."""

from __future__ import annotations

import gzip
import io
import json
import re
import uuid
import zlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from hashlib import md5
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coset.sources.landed import discover
from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from partitioning.framed_keys import json_object
from partitioning.hashes import hash_of, murmur2, placement_hash
from partitioning.model.streams import Format, Layout, Stream
from partitioning.values import replace
from tests import forked
from tests.commands import coset, refused, succeeded
from tests.flipped import flipped
from tests.footers import as_int96
from tests.landed import land_file, land_table
from tests.there import there
from tests.written import WRITERS, Writer, land_rows, row

VECTORS = Path(__file__).parents[1] / "vectors" / "producers"
KEYS = [bytes.fromhex(line).decode() for line in (VECTORS / "keys.txt").read_text().split("\n")[:-1]]
DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "how-to" / "producers.md").read_text()
# The hash that the page has for each client and setting of which keys were placed.
SAID = {
    tuple(cell.strip().strip("`") for cell in line.split("|")[1:5])
    for line in PAGE.split("\n")
    if line.startswith("| ") and "opaque" not in line
}
PLACED = {
    (each["client"], each["version"], each["setting"]): each["placed"]
    for each in map(json.loads, (VECTORS / "placements.jsonl").read_text().splitlines())
}
CLIENTS = [(*who, hash) for *who, hash in sorted(SAID) if tuple(who) in PLACED]

Place = Callable[[int, Any], int]


def land(root: str, keys: Sequence[Any], place: Place, partitions: int, kind: pa.DataType | None = None) -> None:
    """Land records of these customers as topic `orders`, each in the partition that `place` gives it by its number and
    key, each with another amount."""
    # Java's hash of numbers that count records would place them by turns.
    amounts = [int.from_bytes(md5(b"%d" % number).digest()[:7]) for number in range(len(keys))]
    places = [place(number, key) for number, key in enumerate(keys)]
    for partition in range(partitions):
        mine = [number for number, there in enumerate(places) if there == partition]
        table = pa.table(
            {
                "amount": pa.array([amounts[n] for n in mine], pa.int64()),
                "customer": pa.array([keys[n] for n in mine], kind),
            }
        )
        if mine:
            land_file(table, "orders", root, partition, 0)


def inspected(address: str) -> dict[str, Any]:
    """What a program is told of a topic."""
    return dict(json.loads(succeeded("inspect", address, "--json").stdout))


def call(found: Mapping[str, Any]) -> str:
    """What declares the stream, in one line."""
    lines = str(found["declaration"]).partition("\norders = ")[2].split("\n")
    assert max(map(len, lines)) <= 80
    said = " ".join(line.strip() for line in lines)
    return re.sub(r",? ([)}])", r"\1", re.sub(r"([({]) ", r"\1", said))


def ran(found: Mapping[str, Any], folder: Path, variable: str = "") -> int:
    """Paste the declaration into a pipeline that counts by key, and run it; how many records it has published."""
    steps = f'{variable or found["stream"]}.aggregate("count(*) AS n", name="each").write("counted")\n'
    (folder / "pasted.py").write_text(f"{found['declaration']}\n{steps}", encoding="utf-8")
    done = forked.coset("run", "pasted.py", "--runner", "local", folder=folder)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "is published" in done.stdout
    shown = forked.coset("rows", "pasted.py", "--json", "--limit", "10000", folder=folder)
    (table,) = json.loads(shown.stdout)
    return sum(each["n"] for each in table["first"])


@pytest.mark.parametrize("who", CLIENTS, ids=" ".join)
def test_the_hash_of_each_client_is_told_by_the_keys_that_it_placed(who: tuple[str, ...], store: Store) -> None:
    client, version, setting, hash = who
    # An empty key that may lie anywhere lies here.
    places = [5 if place is None else place for place in PLACED[client, version, setting]["12"]]
    land(store.root, KEYS, lambda number, _: places[number], 12)
    found = inspected(f"{store.root}/orders")
    assert (found["key"]["told"], found["key"]["columns"]) == ("surely", ["customer"])
    declared = '"orders", key="customer", partitions=12'
    if hash != "murmur2":
        declared += f', hash="{hash}"'
    if hash == "crc32":
        declared += ', null_keys="own task"'
    assert call(found) == f"pipeline.stream({declared})"
    assert found["key"]["explained"] == found["key"]["keys"] == (119 if hash == "crc32" else 120)
    # By crc32_consistent only the empty key lies elsewhere.
    assert found["key"]["next_best"]["explained"] < (120 if hash == "crc32" else 100)


def test_it_says_how_sure_it_is_and_what_else_puts_the_keys_there(store: Store) -> None:
    land(store.root, [f"c{n % 300}" for n in range(600)], lambda _, key: zlib.crc32(key.encode()) % 4, 4)
    shown = succeeded("inspect", f"{store.root}/orders", "--wide").stdout
    page = (DOCS / "guide" / "landing.md").read_text().partition("$ coset inspect s3://landing/topics/orders\n")[2]
    assert shown == page.partition("```")[0].replace("s3://landing/topics", store.root.removeprefix("file://"))
    assert "All keys seen lie by crc32_consistent of customer as text too" in shown


FORMATS = [
    (WRITERS[0], Layout.PARTITION, False),
    (WRITERS[2], Layout.TIME, True),
    (WRITERS[3], Layout.TIME, False),
    (WRITERS[4], Layout.PARTITION, True),
    (WRITERS[5], Layout.PARTITION, False),
    (WRITERS[7], Layout.TIME, True),
    *((writer, Layout.TIME, False) for writer in WRITERS[10:]),
]


@pytest.mark.parametrize(("writer", "layout", "counted"), FORMATS, ids=str)
def test_what_lies_in_any_format_and_layout_runs_as_it_is_declared(
    writer: Writer, layout: Layout, counted: bool, tmp_path: Path
) -> None:
    rows = [{**row(number), "member": f"member-{number % 50}"} for number in range(200)]
    source = f"{tmp_path}/topics"
    land_rows(rows, source, writer, layout, counted=counted, partitions=3, ends={})
    found = inspected(f"{source}/views")
    assert (found["format"], found["layout"]) == (writer.format, layout)
    said = found["declaration"]
    assert ("offset=None" in said, 'layout="time"' in said) == (counted, layout is Layout.TIME)
    assert (f'format="{writer.format}"' in said) is (writer.format != "parquet")
    assert (found["key"]["told"], found["key"]["columns"]) == ("surely", ["member"])
    assert [each["column"] for each in found["times"]][-1] == "at"
    assert sum(each["records"] for each in found["offsets"]) == 200
    assert ran(found, tmp_path) == 200


@pytest.mark.parametrize(
    ("key_format", "kind", "value"),
    [
        ("long", pa.int64(), lambda n: n * 7),
        ("int", pa.int32(), lambda n: n * 7),
        ("double", pa.float64(), lambda n: n / 7),
        ("uuid", pa.uuid(), lambda n: uuid.UUID(int=n).bytes),
        ("bytes", pa.binary(), lambda n: bytes([n, 255])),
    ],
)
def test_keys_of_each_format_are_told(
    key_format: str, kind: pa.DataType, value: Callable[[int], Any], store: Store
) -> None:
    keys = [value(n) for n in range(200)]
    text = {n: str(uuid.UUID(bytes=key)) for n, key in enumerate(keys)} if key_format == "uuid" else {}
    land(store.root, keys, lambda n, key: hash_of("murmur2", "")(text.get(n, key), key_format) % 6, 6, kind)
    found = inspected(f"{store.root}/orders")
    assert call(found) == f'pipeline.stream("orders", key="customer", partitions=6, key_format="{key_format}")'
    assert found["key"]["told"] == "surely"


def test_a_number_of_json_lines_is_declared_as_its_producer_writes_it(tmp_path: Path) -> None:
    h = hash_of("murmur2", "")
    store = store_at(str(tmp_path / "topics"))
    for partition in range(4):
        mine = [n for n in range(100) if h(n, "int") % 4 == partition]
        lines = [
            {"id": n, "odd": "x" if n % 2 else 1, "none": None, "in": {"a": [n]}, "at": 1_764_300_000_000 + n}
            for n in mine
        ]
        store.put(f"orders/partition={partition}/orders+{partition}+0000000000.json", b"\n".join(map(_json, lines)))
    found = inspected(f"{tmp_path}/topics/orders")
    columns = '{"id": "INTEGER", "in": "STRUCT(\\"a\\" BIGINT[])", "at": "BIGINT"}'
    declared = f'"orders", key="id", partitions=4, key_format="int", offset=None, format="json", columns={columns}'
    assert call(found) == f"pipeline.stream({declared})"
    assert found["left_out"] == dict.fromkeys(("odd", "none"), "it is null in all records seen, or of several types")
    assert found["times"][0]["first"].startswith("2025-11-28 03:20:00")
    assert ran(found, tmp_path) == 100


def _json(line: object) -> bytes:
    return json.dumps(line).encode()


@pytest.mark.parametrize("columns", [("customer",), ("customer", "amount")])
def test_keys_that_are_json_objects_are_told(columns: tuple[str, ...], tmp_path: Path) -> None:
    def place(number: int, key: str) -> int:
        amount = int.from_bytes(md5(b"%d" % number).digest()[:7])
        values = [{"customer": key, "amount": amount}[name] for name in columns]
        return murmur2(json_object(json.dumps(values), columns)) % 8

    root = str(tmp_path / "topics")
    land(root, [f"c{n}" for n in range(100)], place, 8)
    found = inspected(f"{root}/orders")
    key = "(" + ", ".join(f'"{name}"' for name in columns) + (",)" if len(columns) == 1 else ")")
    assert call(found) == f'pipeline.stream("orders", key={key}, partitions=8, key_format="json")'
    assert ran(found, tmp_path) == 100


@pytest.mark.parametrize(
    "hash",
    [
        *("murmur2 of avro 1234(string)", "murmur2 of avro 1234(customer null|string)"),
        *("murmur2 of json-schema 1234(customer)", "murmur2 of protobuf 1234(customer 1 string)"),
        *("crc32 of avro 1234(long)", "murmur2 of protobuf 1234(customer 1 int64)"),
    ],
)
def test_the_schema_id_under_which_keys_lie_is_found_without_a_registry(hash: str, tmp_path: Path) -> None:
    root, h = str(tmp_path / "topics"), hash_of(hash, "here")
    number, of_fields = "long" in hash or "int64" in hash, "customer" in hash
    keys = [n * 7 if number else f"c{n}" for n in range(100)]
    key_format = "long" if number and not of_fields else "string"
    land(root, keys, lambda _, key: h(json.dumps([key]) if of_fields else key, key_format) % 12, 12)
    found = inspected(f"{root}/orders")
    name, framing = hash.split()[0], hash.split()[2]
    said = f"{name} of customer as {framing} under schema 1234. All 100 keys seen lie where it puts them"
    assert said in (says := " ".join(found["key"]["says"]))
    assert "`coset schemas orders` asks the registry" in says
    assert (found["key"]["told"], found["key"]["key_format"]) == ("surely", framing)
    assert ran(found, tmp_path) == 100


def test_keys_behind_several_ids_are_told_whom_to_ask(store: Store) -> None:
    of = [hash_of(f"murmur2 of avro {id}(string)", "here") for id in (7, 8)]
    land(store.root, [f"c{n % 50}" for n in range(100)], lambda n, key: of[n // 50](key, "string") % 8, 8)
    found = inspected(f"{store.root}/orders")
    assert found["key"]["told"] in {"by turns", "nothing"}
    says = " ".join(found["key"]["says"])
    assert "these records lie by several or by a schema that no column shows: `coset schemas orders` asks" in says


def test_records_by_turns_are_told_and_their_declaration_moves_them(tmp_path: Path) -> None:
    root = str(tmp_path / "topics")
    land(root, [f"c{n % 33}" for n in range(400)], lambda n, _: n % 8, 8)
    found = inspected(f"{root}/orders")
    assert found["key"]["told"] == "by turns"
    assert "33 values of customer lie in several partitions" in found["key"]["says"][0]
    assert call(found) == 'pipeline.stream("orders", key="customer", partitions=8, hash="opaque").repartition()'
    assert ran(found, tmp_path) == 400


def test_numbers_that_count_records_may_mean_that_these_lie_by_turns(store: Store) -> None:
    land(store.root, list(range(400)), lambda n, _: n % 8, 8, pa.int64())
    found = inspected(f"{store.root}/orders")
    assert call(found).endswith('key="customer", partitions=8, key_format="long", hash="java")')
    assert found["key"]["says"][1] == "If customer counts the records, they lie by turns: see who writes the topic"


def test_equal_keys_that_lie_together_by_an_unknown_hash_stay_where_they_are(tmp_path: Path) -> None:
    root = str(tmp_path / "topics")
    land(root, [f"c{n % 33}" for n in range(400)], lambda _, key: md5(key.encode()).digest()[0] % 8, 8)
    found = inspected(f"{root}/orders")
    assert found["key"]["told"] == "together"
    assert call(found) == 'pipeline.stream("orders", key="customer", partitions=8, hash="opaque")'
    assert ran(found, tmp_path) == 400


def test_where_nothing_tells_the_key_it_says_so(store: Store) -> None:
    # No value occurs twice.
    land(store.root, [f"c{n}" for n in range(100)], lambda n, _: n % 8, 8)
    found = inspected(f"{store.root}/orders")
    assert found["key"]["told"] == "nothing"
    assert "see who writes the topic (docs/how-to/producers.md)" in found["key"]["says"][0]
    assert call(found).endswith('hash="opaque").repartition()')


def test_one_partition_tells_no_key(store: Store) -> None:
    land(store.root, [f"c{n}" for n in range(100)], lambda _n, _: 0, 1)
    found = inspected(f"{store.root}/orders")
    assert found["key"]["told"] == "one partition"
    assert "name the column that records are joined or counted by" in found["key"]["says"][0]


def test_few_keys_are_no_proof(store: Store) -> None:
    land(store.root, ["a", "d", "f"] * 4, lambda _, key: murmur2(key.encode()) % 4, 4)
    found = inspected(f"{store.root}/orders")
    assert (found["key"]["told"], found["key"]["keys"]) == ("perhaps", 3)
    assert "All 3 keys seen lie where it puts them, and so few may lie so by chance" in found["key"]["says"][0]
    assert call(found) == 'pipeline.stream("orders", key="customer", partitions=4)'


def test_numbers_that_are_hashed_as_text_are_told(store: Store) -> None:
    keys = [n % 60 for n in range(200)]
    land(store.root, keys, lambda _, key: murmur2(str(key).encode()) % 8, 8, pa.int64())
    found = inspected(f"{store.root}/orders")
    assert "customer is a number, and its producer hashes it as text" in found["key"]["says"][1]
    assert call(found) == 'pipeline.stream("orders", key="customer", partitions=8, key_format="long", hash="opaque")'


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (lambda key: murmur2(key.encode()) % 4, "the others lie by 4 partitions, as before the topic grew"),
        (lambda key: zlib.crc32(key.encode()) % 8, "the others lie by crc32, as if two sorts of producers wrote"),
    ],
    ids=["grew", "two producers"],
)
def test_a_hash_of_most_keys_is_told_with_how_the_others_lie(
    other: Callable[[str], int], says: str, tmp_path: Path
) -> None:
    root = str(tmp_path / "topics")
    keys = [f"c{n}" for n in range(300)]
    land(root, keys, lambda n, key: other(key) if n < 60 else murmur2(key.encode()) % 8, 8)
    found = inspected(f"{root}/orders")
    assert found["key"]["told"] == "mostly"
    assert says in found["key"]["says"][0]
    assert call(found) == 'pipeline.stream("orders", key="customer", partitions=8, hash="opaque").repartition()'
    assert ran(found, tmp_path) == 300


def test_a_partition_that_is_empty_yet_counts_if_the_keys_tell_it(store: Store) -> None:
    keys = [key for key in (f"c{n}" for n in range(300)) if murmur2(key.encode()) % 8 < 7]
    land(store.root, keys, lambda _, key: murmur2(key.encode()) % 8, 8)
    assert call(inspected(f"{store.root}/orders")) == 'pipeline.stream("orders", key="customer", partitions=8)'


def test_records_without_a_key_get_a_task_of_their_own(tmp_path: Path) -> None:
    root = str(tmp_path / "topics")
    keys = [None if n % 10 == 0 else f"c{n}" for n in range(200)]
    table = pa.table({"customer": keys, "amount": pa.array(range(200), pa.int64())})
    land_table(table, "orders", root, key="customer", partitions=4, files=2)
    found = inspected(f"{root}/orders")
    assert call(found) == 'pipeline.stream("orders", key="customer", partitions=4, null_keys="own task")'
    assert found["key"]["records_without"] == 20
    assert ran(found, tmp_path) == 200


def test_offsets_that_are_missing_or_twice_are_told_and_declared(tmp_path: Path) -> None:
    root = str(tmp_path / "topics")
    rows = pa.table({"customer": [f"c{n}" for n in range(40)]})
    first = [number for number in range(50) if number % 5]
    land_file(rows, "orders", root, 0, 1, offsets=first)
    land_file(rows, "orders", root, 0, 300)
    land_file(rows.slice(20), "orders", root, 0, 320)
    found = inspected(f"{root}/orders")
    (there,) = found["offsets"]
    assert there == {"partition": 0, "first": 1, "next": 340, "records": 80, "missing": 259, "doubles": 20}
    assert call(found).endswith('partitions=1, offsets="sparse(250)")')
    shown = succeeded("inspect", f"{root}/orders").stdout
    assert "259 offsets without a record, " in shown
    assert "20 records that other files have too, all the same: each counts once" in shown
    assert ran(found, tmp_path) == 80


def test_an_offset_column_of_another_name_is_found(store: Store) -> None:
    keys = [f"c{n}" for n in range(100)]
    for partition in range(4):
        mine = [key for key in keys if murmur2(key.encode()) % 4 == partition]
        at = pa.array(range(7, 7 + len(mine)), pa.int64())
        table = pa.table({"customer": mine, "short_offset": at.cast(pa.int32()), "kafka_offset": at})
        path = f"orders/partition={partition}/orders+{partition}+0000000007.parquet"
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink)
        store.put(path, sink.getvalue().to_pybytes())
    found = inspected(f"{store.root}/orders")
    assert call(found) == 'pipeline.stream("orders", key="customer", partitions=4, offset="kafka_offset")'


def test_what_is_wrong_with_the_files_is_told_beside_the_declaration(store: Store) -> None:
    land(store.root, [f"c{n}" for n in range(100)], lambda _, key: murmur2(key.encode()) % 4, 4)
    other = pa.table({"amount": pa.array([7], pa.int64()), "customer": ["other"]})
    land_file(other, "orders", store.root, 2, 1)
    result = coset("inspect", f"{store.root}/orders")
    assert result.exit_code == 3
    assert "two files hold orders-2@[1,2), and differ from offset 1 on" in result.stderr
    assert 'pipeline.stream("orders", key="customer", partitions=4)' in result.stdout


@pytest.mark.parametrize(
    ("topic", "variable"), [("class", "_class"), ("pipeline", "_pipeline"), ("2026.orders-eu", "_2026_orders_eu")]
)
def test_names_that_python_does_not_take_are_written_as_it_does(topic: str, variable: str, tmp_path: Path) -> None:
    root = f"{tmp_path}/my 'own' topics"
    table = pa.table({"customer": [f"c{n}" for n in range(100)], "a b": pa.array(range(100), pa.int64())})
    land_table(table, topic, root, key="customer", partitions=4)
    found = inspected(f"{root}/{topic}")
    assert f"\n{variable} = pipeline.stream(" in found["declaration"]
    assert ran(found, tmp_path, variable) == 100


def test_it_stores_nothing(store: Store) -> None:
    land(store.root, [f"c{n}" for n in range(100)], lambda _, key: murmur2(key.encode()) % 4, 4)
    before = list(store.list(""))
    inspected(f"{store.root}/orders")
    assert list(store.list("")) == before


def test_a_folder_of_topics_names_them_with_the_command_for_each(store: Store) -> None:
    """However many files the first of them has, and also those that lie beside each other by Aiven's template."""
    data = WRITERS[0].write([row(0)], None)
    for start in range(250):
        store.put(f"orders/partition=0/orders+0+{start:010}.parquet", data)
    store.put("orders-eu/year=2026/orders-eu+0+0000000000.parquet", data)
    store.put("spent/part-4-12.parquet", data)
    store.put("views-0-0", data)
    store.put("views-1-0", data)
    wrong = coset("inspect", store.root)
    refused(wrong, "the folder is no topic's, and has 3 topics within")
    commands = re.findall(r"`coset inspect ([^`]+)`", wrong.stderr)
    assert commands == [f"{store.root}/{name}" for name in ("orders", "orders-eu", "views")]
    for address in commands[1:]:
        succeeded("inspect", address)


def test_a_topic_in_a_bucket_is_found_from_anywhere_near(s3: object, store: Store) -> None:
    land(store.root, [f"c{n}" for n in range(100)], lambda _, key: murmur2(key.encode()) % 4, 4)
    right = f"{store.root}/orders"
    for near in (store.root, f"{right}/partition=1/", f"{store.root}/oders"):
        wrong = coset("inspect", near)
        refused(wrong, f"next:  name that of a topic: `coset inspect {right}`")
    assert call(inspected(right)) == 'pipeline.stream("orders", key="customer", partitions=4)'
    refused(coset("inspect", "s3://no-such-bucket/topics/orders"), "there is no bucket", "create it, or correct")


def test_what_is_no_topic_is_refused_with_what_to_do(store: Store) -> None:
    address = f"{store.root}/orders"
    refused(coset("inspect", address), "no file of a topic is there", "correct the address")
    store.put("orders/part-00000.parquet", b"")
    refused(coset("inspect", address), "none of 1 file there is named as files of a topic are", "docs/internals/landed")
    refused(coset("inspect", "s3://"), "names no bucket", "s3://bucket/topics/orders")
    land_file(pa.table({"customer": ["a"]}), "orders", f"{store.root}/b", 0, 0)
    store.put("b/orders/partition=1/orders+1+0000000000.json", b"{}\n")
    mixed = coset("inspect", f"{store.root}/b/orders")
    refused(mixed, "files of several formats: 1 file of Parquet, 1 file of JSON", "move the files of the others")
    refused(coset("inspect", f"{store.root}/b"), f"next:  name that of a topic: `coset inspect {store.root}/b/orders`")


def test_files_that_hold_nothing_to_go_by_are_refused(store: Store) -> None:
    land_file(pa.table({"customer": pa.array([], pa.string())}), "orders", store.root, 0, 0)
    refused(coset("inspect", f"{store.root}/orders"), "no record is there yet", "run the same command again")
    store.put("bad/partition=0/bad+0+0000000000.parquet", b"PAR1")
    refused(coset("inspect", f"{store.root}/bad"), "truncated or no Parquet", "remove the file and land it again")
    land_file(pa.table({"ok": [True, False]}), "flags", store.root, 0, 0)
    refused(
        coset("inspect", f"{store.root}/flags"), "no column can be a key: there are ok BOOLEAN", "land the record's"
    )


def test_what_only_reading_the_records_shows_is_told_too(store: Store) -> None:
    land(store.root, [f"c{n}" for n in range(200)], lambda _, key: murmur2(key.encode()) % 4, 4)
    sink, key = io.BytesIO(), "orders/partition=2/orders+2+0000000000.parquet"
    data = pq.read_table(io.BytesIO(there(store.get(key))))
    pq.write_table(data, sink, compression="none", use_dictionary=False, write_page_checksum=True)
    store.put(key, flipped(sink.getvalue()))
    result = coset("inspect", f"{store.root}/orders")
    assert result.exit_code == 3
    for said in ("the file cannot be read: could not verify page integrity", key, "remove the file and land it again"):
        assert said in result.stderr
    assert 'pipeline.stream("orders", key="customer", partitions=4)' in result.stdout
    store.put("alone/partition=0/alone+0+0000000000.parquet", flipped(sink.getvalue()))
    refused(coset("inspect", f"{store.root}/alone"), "could not verify page integrity", "alone+0+0000000000.parquet")


def test_records_without_a_column_that_can_be_a_key_are_there_all_the_same(store: Store) -> None:
    nested = pa.table({"tags": [["a"]], "where": [{"x": 1}]})
    pq.write_table(nested, sink := io.BytesIO())
    store.put("nested/partition=0/nested+0+0000000000.parquet", sink.getvalue())
    refused(
        coset("inspect", f"{store.root}/nested"),
        "no column can be a key: there are tags VARCHAR[], where STRUCT(x BIGINT)",
        "land the record's key",
    )
    times = pa.table({"at": pa.array([datetime(9999, 1, 1)], pa.timestamp("us"))})  # noqa: DTZ001
    pq.write_table(times, sink := io.BytesIO(), use_deprecated_int96_timestamps=True)
    store.put("times/partition=0/times+0+0000000000.parquet", sink.getvalue())
    refused(coset("inspect", f"{store.root}/times"), "no column can be a key: there are at TIMESTAMP")
    fine = pa.table({"at": pa.array([b"\1" + b"\0" * 7 + (2_461_000).to_bytes(4, "little")], pa.binary(12))})
    pq.write_table(fine, sink := io.BytesIO(), use_dictionary=False, store_schema=False, compression="none")
    store.put("fine/partition=0/fine+0+0000000000.parquet", as_int96(sink.getvalue()))
    refused(coset("inspect", f"{store.root}/fine"), "no column can be a key: there are at TIMESTAMP")


UUID = "0b1f6a7e-5c1d-4b52-9a47-2f5c8d1e9c3b"
OF_OTHERS = {
    "Spark's file sink": (f"part-00000-{UUID}-c000.snappy.parquet", f"hour=5/part-00011-{UUID}.c000.json"),
    "Flink's FileSink": (f"2026-11-29--07/part-{UUID}-0", "part-4-12.avro", f"part-{UUID}-3-7"),
    "Vector's aws_s3 sink": (f"date=2026-11-29/1764400000-{UUID}.log.gz",),
    "Fluent Bit's S3 output": ("2026/11/29/07/15/30-objectaBcD1234", "2026/11/29/07-objectaBcD1234.gz"),
}


@pytest.mark.parametrize(
    ("writer", "named"),
    [
        (WRITERS[0], "orders-{}-{}"),
        (WRITERS[1], "orders-{}-{}.gz"),
        (WRITERS[4], "orders-{:010}-{:020}.gz"),
        (WRITERS[5], "orders/2026/11/orders-{}-{}.avro"),
        (WRITERS[10], "orders/orders-{}-{:020}"),
        (WRITERS[13], "orders-{}-{}.gz"),
    ],
    ids=str,
)
def test_files_of_aivens_default_template_are_read_whatever_they_hold(writer: Writer, named: str, store: Store) -> None:
    """Beside those of topics whose names begin alike. The declaration that inspect prints is the one that is needed."""
    rows = [row(number) for number in range(60)]
    for partition in range(2):
        mine = [each for each in rows if placement_hash(each["member"]) % 2 == partition]
        for start in (0, 9):
            part = mine[start : start + 9 if start == 0 else None]
            store.put(named.format(partition, start), writer.write(part, start))
    for name in ("orders-eu-0-0", "orders-1-0-0.gz", "orders-notes.txt", "orders2/orders2-0-0"):
        store.put(name, b"of another")
    said = succeeded("inspect", f"{store.root}/orders").stdout
    assert "orders: 60 records in 2 partitions" in said
    made: dict[str, Any] = {}
    exec(said[said.index("from coset import Pipeline") :].replace(".repartition()", ""), made)
    (stream,) = made["pipeline"].streams
    assert (stream.layout, stream.format) == (Layout.AIVEN, writer.format)
    (found,) = discover([stream])
    assert [next((file.start, file.end) for file in each.files) for each in found.partitions] == [(0, 9), (0, 9)]
    # Who declares another layout is told.
    for layout in (Layout.PARTITION, Layout.TIME):
        with pytest.raises(Refused, match='declare layout="aiven"'):
            discover([replace(stream, layout=layout)])


def test_csv_of_aivens_sink_is_refused_by_name(store: Store) -> None:
    page = "set format.output.type=jsonl, avro or parquet"
    store.put("orders-0-0.gz", gzip.compress(b"aGFsbG8=,0\n"))
    refused(coset("inspect", f"{store.root}/orders"), "neither Parquet, nor Avro, nor JSON", "may be CSV", page)
    columns = {"id": "BIGINT"}
    declared = Stream("orders", store.root, "id", 4, format=Format.JSON, columns=columns, layout=Layout.AIVEN)
    with pytest.raises(Refused, match=f"if the sink writes CSV, as it does by default, {page}"):
        discover([declared])
    store.put("named/named-0-0.csv", b"aGFsbG8=,0\n")
    refused(coset("inspect", f"{store.root}/named"), "named-0-0.csv is a name of Aiven's sink", page)
    with pytest.raises(Refused, match=r"a sink that writes CSV is told otherwise as docs/internals/landed-files\.md"):
        Pipeline("p", source=store.root).stream("orders", key="id", partitions=1, format="csv")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["flat-0-0.csv", "flat/0/0.json", "flat/flat_0_0.json.gz", "flat/k_ann"])
def test_files_of_another_template_are_refused_by_name_also_beside_topics(name: str, store: Store) -> None:
    store.put("orders-0-0", b'{"customer":"ann"}')
    store.put(name, b"eA==,0")
    refused(coset("inspect", f"{store.root}/flat"), "none of 1 file there is named as files of a topic", "landed-files")


@pytest.mark.parametrize("line", [{"value": {"id": 1}}, {"value": {"id": 1}, "offset": 0}], ids=str)
@pytest.mark.parametrize("form", ["json", "parquet"])
def test_an_envelope_of_aivens_sink_without_keys_names_what_to_set(form: str, line: Any, store: Store) -> None:
    if form == "json":
        store.put("orders-0-0", json.dumps(line).encode())
    else:
        pq.write_table(pa.Table.from_pylist([line]), sink := io.BytesIO())
        store.put("orders-0-0", sink.getvalue())
    said = "no column can be a key: there are "
    refused(coset("inspect", f"{store.root}/orders"), said, "by format.output.fields=key,value,offset, or, if the")


def test_of_a_file_that_is_longer_than_the_records_looked_at_nothing_else_is_told(store: Store) -> None:
    text, lines = "x" * 1000, list[str]()
    for number in range(6_000):
        lines.append(json.dumps({"customer": f"c{number % 50}", "text": text, "_offset": number}))
    store.put("orders/partition=0/orders+0+0000000000.json", "\n".join(lines).encode())
    assert succeeded("inspect", f"{store.root}/orders").stderr == ""


@pytest.mark.parametrize(("sink", "names"), OF_OTHERS.items(), ids=list(OF_OTHERS))
def test_files_of_other_tools_are_refused_by_the_tools_name(sink: str, names: Sequence[str], store: Store) -> None:
    """Beside a file of its own, as what a tool leaves beside its files says nothing."""
    for number, name in enumerate(names):
        root = f"{store.root}/{number}"
        store_at(root).put(f"orders/{name}", b"")
        store_at(root).put("orders/_spark_metadata/0", b"v1")
        store_at(root).put("orders/.part-0-1.inprogress.x", b"")
        refused(coset("inspect", f"{root}/orders"), f"is a name of {sink}", "landed-files.md#other-tools says")
        declared = Stream("orders", root, "id", 4, layout=Layout.TIME)
        with pytest.raises(Refused, match=f"the file's name cannot be read: it is one of {sink}") as caught:
            discover([declared])
        assert len(caught.value.findings) == 1
