"""Keys in files beside those of values, as Confluent's sinks land them with store.kafka.keys=true."""

from __future__ import annotations

import base64
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coset.batches.backfills import actions
from coset.batches.backfills.actions import Asked
from coset.batches.publication import abandon
from coset.batches.verifying import verify
from coset.sources.formats.opening import open_keys
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import CosetError, Refused
from partitioning.hashes import murmur2
from partitioning.model.streams import Format
from tests.backfilled import run_again
from tests.batches import rows
from tests.commands import succeeded
from tests.running import next_batch, run_and_publish, run_groups

# How the sink's format classes write keys of each kind: the type in Avro, which it takes from Connect's.
TEXT, BYTES = ["null", "string"], ["null", "bytes"]
RECORD = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}, {"name": "land", "type": TEXT}]}
IN_PARQUET = {
    "text": pa.string(),
    "bytes": pa.binary(),
    "record": pa.struct([("id", pa.int64()), ("land", pa.string())]),
}
IN_AVRO: dict[str, Any] = {"text": TEXT, "bytes": BYTES, "record": RECORD}
ENDINGS = {"avro": "avro", "json": "json.gz", "parquet": "snappy.parquet"}

# A record's key and a number.
Sent = tuple[Any, int]


def _keys(kind: str, written_as: str, keys: Sequence[Any]) -> bytes:
    made = io.BytesIO()
    match written_as:
        case "avro":
            fastavro.writer(made, fastavro.parse_schema(IN_AVRO[kind]), keys)
        case "json":
            import gzip

            texts = [base64.b64encode(key).decode() if isinstance(key, bytes) else key for key in keys]
            made.write(gzip.compress("".join(json.dumps(key, ensure_ascii=False) + "\n" for key in texts).encode()))
        case _:
            pq.write_table(pa.table({"key": pa.array(keys, IN_PARQUET[kind])}), made, compression="snappy")
    return made.getvalue()


def _values(written_as: str, numbers: Sequence[int], first: int) -> bytes:
    lines = [{"n": n, "id": "another", "_offset": first + place} for place, n in enumerate(numbers)]
    made = io.BytesIO()
    match written_as:
        case "json":
            made.write("".join(json.dumps(line) + "\n" for line in lines).encode())
        case "avro":
            kinds = (("n", "long"), ("id", "string"), ("_offset", "long"))
            fields = [{"name": name, "type": kind} for name, kind in kinds]
            fastavro.writer(made, {"type": "record", "name": "V", "fields": fields}, lines)
        case _:
            # Small row groups, which readers may pass over.
            pq.write_table(pa.Table.from_pylist(lines), made, row_group_size=7)
    return made.getvalue()


class Beside:
    """A topic whose keys lie in files of their own."""

    def __init__(self, store: Store, kind: str, keys: str = "avro", written_as: str = "parquet") -> None:
        self.store, self.kind, self.keys, self.written_as = store, kind, keys, written_as
        self.there, self.ends = store_at(f"{store.root}/topics"), Counter[int]()
        self.begun = list[str]()

    def send(self, sent: Sequence[Sent], hashed: Callable[[Any], bytes], into: int | None = None) -> None:
        """Land records where producers put them, or all in one partition."""
        for partition in range(4):
            mine = [one for one in sent if (murmur2(hashed(one[0])) % 4 if into is None else into) == partition]
            if mine:
                self.land(partition, mine)

    def land(self, partition: int, mine: Sequence[Sent], keys: Sequence[Any] | None = None) -> None:
        first = self.ends[partition]
        begin = f"orders/partition={partition}/orders+{partition}+{first:010}"
        values = _values(self.written_as, [n for _, n in mine], first)
        self.there.put(f"{begin}.{'snappy.parquet' if self.written_as == 'parquet' else self.written_as}", values)
        self.there.put(self.name_of_keys(begin), _keys(self.kind, self.keys, keys or [key for key, _ in mine]))
        self.there.put(f"{begin}.headers.avro", b"other columns")
        self.ends[partition] += len(mine)
        self.begun.append(begin)

    def name_of_keys(self, begin: str) -> str:
        return f"{begin}.keys.{ENDINGS[self.keys]}"

    def pipeline(self, **options: Any) -> Pipeline:
        columns: dict[str, str] = {"n": "BIGINT"} if self.written_as == "json" else {}
        columns |= options.pop("columns", {})
        pipeline = Pipeline("summed", source=f"{self.store.root}/topics")
        given = {"keys": self.keys, "format": self.written_as, "columns": columns, **options}
        orders = pipeline.stream("orders", partitions=4, **given)
        orders.select("n").combine("sum(n)::BIGINT AS n", running=True, name="sums").write("sums", mode="upsert")
        return pipeline

    def batch(self, limit: int | None = None, **options: Any) -> None:
        """A batch, after which the table is its query."""
        pipeline = self.pipeline(**options)
        run_and_publish(next_batch(pipeline, self.store.root, Settings(limit=limit)))
        (found,) = verify(pipeline, self.store)
        assert not isinstance(found.found, str)
        assert found.found.same

    def sums(self) -> dict[Any, Any]:
        # Behind them is the partition of the table.
        return {row[:-2]: row[-2] for row in rows(self.store.root, "sums")}


def _sums(sent: Sequence[Any]) -> dict[Any, int]:
    sums = Counter[Any]()
    for key, n in sent:
        sums[tuple(key.values()) if isinstance(key, dict) else (key,)] += n
    return dict(sums)


@pytest.mark.parametrize("written_as", ["parquet", "avro", "json"])
@pytest.mark.parametrize("keys", ["avro", "json", "parquet"])
def test_keys_are_those_of_the_files_beside_values(keys: str, written_as: str, store: Store) -> None:
    landed = Beside(store, "text", keys, written_as)
    options: Any = {"key": "customer", "columns": {"customer": "VARCHAR"} if keys == "json" else {}}
    sent = [(f"c{n % 9}ä", n) for n in range(120)]
    landed.send(sent[:70], str.encode)
    landed.batch(**options)
    landed.send(sent[70:], str.encode)
    landed.batch(**options)
    assert landed.sums() == _sums(sent)


@pytest.mark.parametrize("keys", ["avro", "json", "parquet"])
def test_keys_that_are_bytes_are_read_as_in_a_broker(keys: str, store: Store) -> None:
    landed = Beside(store, "bytes", keys)
    landed.send([(f"c{n % 9}".encode(), n) for n in range(60)], bytes)
    landed.batch(key="customer", key_bytes="key", columns={"key": "BLOB"} if keys == "json" else {})
    assert landed.sums() == _sums([(f"c{n % 9}", n) for n in range(60)])


@pytest.mark.parametrize("keys", ["avro", "json", "parquet"])
def test_fields_of_keys_hide_columns_of_values(keys: str, store: Store) -> None:
    landed = Beside(store, "record", keys)
    sent = [({"id": n % 7, "land": "DE" if n % 2 else None}, n) for n in range(80)]
    landed.send(sent, lambda key: json.dumps(key, separators=(",", ":")).encode())
    columns = {"id": "BIGINT", "land": "VARCHAR"} if keys == "json" else {}
    landed.batch(key=("id", "land"), key_format="json", columns=columns)
    assert landed.sums() == _sums(sent)


@pytest.mark.parametrize(("written_as", "offset"), [("json", "_offset"), ("json", None), ("parquet", "_offset")])
def test_batches_end_within_a_file_and_go_on_there(written_as: str, offset: str | None, store: Store) -> None:
    landed = Beside(store, "text", written_as=written_as)
    sent = [(f"c{n % 9}", n) for n in range(100)]
    landed.send(sent, str.encode)
    for _ in range(2):
        landed.batch(30, key="customer", offset=offset)
    assert landed.sums() == _sums(sent)


def test_keys_that_are_declared_later_are_asked_about_and_read_by_a_backfill(store: Store, tmp_path: Path) -> None:
    landed, home = Beside(store, "text"), murmur2(b"another") % 4
    sent = [(name, n) for n in range(30) if murmur2((name := f"c{n}").encode()) % 4 == home]
    landed.send(sent, str.encode)
    landed.batch(key="id", keys=None)
    assert landed.sums() == {("another",): sum(n for _, n in sent)}
    landed.send(sent, str.encode)
    later = landed.pipeline(key="id")
    with pytest.raises(Refused, match=r"to orders by id \(string\), which lies in files of keys"):
        next_batch(later, store.root)
    with pytest.raises(Refused, match="read no files of keys, and keys= is declared") as refused:
        run_again(later, store, Asked(0, None, Settings()), tmp_path)
    assert "`coset backfill summed --from 0 --cascade --input repaired`" in str(refused.value)
    backfill = run_again(later, store, Asked(0, None, Settings(), repaired=True), tmp_path)
    actions.swap(store, backfill, digest(actions.comparison(store, backfill)), "")
    assert landed.sums() == _sums(sent)
    landed.batch(key="id")
    assert landed.sums() == _sums([*sent, *sent])


def test_a_column_to_cast_that_no_record_has_is_refused_by_a_backfill_too(store: Store, tmp_path: Path) -> None:
    landed = Beside(store, "text")
    landed.send([("c1", 1)], str.encode)
    landed.batch(key="customer")
    with pytest.raises(Refused, match="there is no column 'm' to cast") as refused:
        run_again(landed.pipeline(key="customer", cast={"m": "BIGINT"}), store, Asked(0, None, Settings()), tmp_path)
    assert refused.value.findings[0].then.startswith("correct its name; there are ")


def test_a_file_counts_once_its_keys_are_there(store: Store) -> None:
    landed = Beside(store, "text")
    sent = [(f"c{n % 9}", n) for n in range(60)]
    landed.send(sent[:50], str.encode)
    landed.land(murmur2(b"c1") % 4, [("c1", 1)])
    # The sink has landed the values, and is about to land the keys.
    late = landed.name_of_keys(landed.begun[-1])
    keys = landed.there.get(late) or b""
    landed.there.delete(late)
    landed.batch(key="customer")
    assert sum(landed.sums().values()) == sum(n for _, n in sent[:50])
    landed.there.put(late, keys)
    landed.batch(key="customer")
    assert sum(landed.sums().values()) == sum(n for _, n in sent[:50]) + 1

    landed.land(murmur2(b"c1") % 4, [("c1", 1)])
    landed.there.delete(landed.name_of_keys(landed.begun[-1]))
    landed.land(murmur2(b"c1") % 4, [("c1", 1)])
    with pytest.raises(Refused, match="orders: 1 file of values without the file of keys beside it") as refused:
        landed.batch(key="customer")
    assert "leave keys= out" in str(refused.value)


def test_without_any_file_of_keys_the_declaration_is_refused(store: Store) -> None:
    landed = Beside(store, "text", "json")
    landed.send([(f"c{n % 9}", n) for n in range(20)], str.encode)
    landed.keys = "avro"
    with pytest.raises(Refused, match="files of values without the file of keys beside it"):
        landed.batch(key="customer")


@pytest.mark.parametrize("written_as", ["parquet", "json"])
@pytest.mark.parametrize("keys", ["avro", "json", "parquet"])
@pytest.mark.parametrize(
    ("many", "said"), [(3, "4 records, and its file of keys 3"), (5, "4 records, and its file of keys 5")]
)
def test_files_of_other_lengths_are_refused(many: int, said: str, keys: str, written_as: str, store: Store) -> None:
    landed = Beside(store, "text", keys, written_as)
    landed.land(2, [("c1", n) for n in range(4)], keys=["c1"] * many)
    with pytest.raises(Refused, match=f"it has {said}"):
        landed.batch(key="customer", hash="opaque", columns={"customer": "VARCHAR"} if keys == "json" else {})


@pytest.mark.parametrize("spoil", ["changed", "gone"])
def test_keys_that_changed_since_the_plan_are_refused(spoil: str, store: Store) -> None:
    landed = Beside(store, "text")
    landed.send([(f"c{n % 9}", n) for n in range(40)], str.encode)
    for read_before in (False, True):
        ref = next_batch(landed.pipeline(key="customer"), store.root, again=read_before)
        if read_before:
            run_groups(ref)
        name = landed.name_of_keys(landed.begun[0])
        kept = landed.there.get(name) or b""
        landed.there.delete(name)
        if spoil == "changed":
            landed.there.put(name, _keys("text", "avro", ["c9"] * 40))
        with pytest.raises(
            CosetError, match=rf"the file (was changed|is gone) since the batch was planned[\s\S]*{re.escape(name)}"
        ):
            run_and_publish(ref)
        landed.there.delete(name)
        landed.there.put(name, kept)
        abandon(Ledger(store, "summed"), "spoilt")


def test_a_record_whose_key_lies_elsewhere_is_refused(store: Store) -> None:
    landed = Beside(store, "bytes")
    landed.send([(f"c{n % 9}".encode(), n) for n in range(40)], bytes)
    wrong = (murmur2(b"c3") + 1) % 4
    landed.send([(b"c3", 1)], bytes, into=wrong)
    with pytest.raises(CosetError, match=rf"key 'c3', orders-{wrong} at offset {landed.ends[wrong] - 1}, belongs"):
        landed.batch(key="customer", key_bytes="key")


def test_what_a_sink_landed_twice_counts_once_if_its_keys_are_the_same_too(store: Store) -> None:
    landed = Beside(store, "text")
    sent = [(f"c{n % 9}", n) for n in range(30)]
    landed.land(0, sent)
    landed.ends[0] = 20
    landed.land(0, [*sent[20:], ("c7", 30)])
    landed.batch(key="customer", hash="opaque")
    assert landed.sums() == _sums([*sent, ("c7", 30)])

    landed.ends[0] = 30
    landed.land(0, [("c8", 30), ("c8", 31)])
    with pytest.raises(Refused, match=r"two files hold orders-0@\[30,31\), and differ from offset 30 on"):
        landed.batch(key="customer", hash="opaque")


def test_lines_that_cannot_be_read_are_set_aside_and_keys_stay_with_theirs(store: Store) -> None:
    landed = Beside(store, "text", written_as="json")
    landed.land(3, [(f"c{n}", n) for n in range(5)])
    name = f"{landed.begun[0]}.json"
    lines = (landed.there.get(name) or b"").split(b"\n")
    landed.there.delete(name)
    landed.there.put(name, b"\n".join([*lines[:2], b"{broken", *lines[3:]]))
    pipeline = landed.pipeline(key="customer", hash="opaque", bad_records="set aside up to 2")
    run_and_publish(next_batch(pipeline, store.root))
    assert landed.sums() == {(f"c{n}",): n for n in (0, 1, 3, 4)}


def test_they_lie_in_folders_of_times_too(store: Store) -> None:
    landed = Beside(store, "text", "parquet")
    for hour in range(3):
        sent = [(f"c{n % 9}", n) for n in range(hour * 20, hour * 20 + 20)]
        landed.send(sent, str.encode)
        for entry in landed.there.list("orders/partition="):
            landed.there.put(f"orders/hour={hour}/{entry.key.rpartition('/')[2]}", landed.there.get(entry.key) or b"")
            landed.there.delete(entry.key)
        # A tombstone has no value, and so no file of values.
        landed.there.put(f"orders/tombstone/orders+0+{landed.ends[0]:010}.keys.parquet", b"keys of tombstones")
        landed.batch(key="customer", layout="time", offsets="sparse")
        landed.there.delete(f"orders/tombstone/orders+0+{landed.ends[0]:010}.keys.parquet")
    assert landed.sums() == _sums([(f"c{n % 9}", n) for n in range(60)])


def test_keys_beside_are_declared_of_what_has_them(store: Store) -> None:
    landed = Beside(store, "record", "json")
    landed.send([({"id": 1, "land": None}, 1)], lambda key: b"")
    for options, what in (
        ({"key": "id", "keys": "csv"}, "keys='csv' is no format of files of keys"),
        ({"key": "id"}, "its keys are JSON, which does not say of which types id are"),
        ({"key": "id", "columns": {"other": "BIGINT", "id": "BIGINT"}}, "columns are declared, and parquet says them"),
        ({"key": "id", "layout": "aiven", "columns": {"id": "BIGINT"}}, "keys= is of files that Confluent's sinks"),
    ):
        with pytest.raises(Refused, match=what):
            landed.pipeline(**options)
    landed = Beside(store, "record", "avro")
    landed.send([({"id": 1, "land": None}, 1)], lambda key: b"")
    for options, what in (
        ({"key": "idd"}, "its file of keys has the columns id, land, and not idd"),
        ({"key": "id"}, "key column 'id' is BIGINT, not VARCHAR under key format 'string'"),
    ):
        with pytest.raises(Refused, match=what):
            next_batch(landed.pipeline(**options), store.root)


def _of_object(key: Any) -> bytes:
    return json.dumps(key, separators=(",", ":")).encode()


@pytest.mark.parametrize("written_as", ["parquet", "json"])
@pytest.mark.parametrize("keys", ["avro", "json", "parquet"])
@pytest.mark.parametrize("kind", ["text", "bytes", "record"])
def test_inspect_declares_them(kind: str, keys: str, written_as: str, store: Store) -> None:
    landed = Beside(store, kind, keys, written_as)
    key_of: dict[str, Callable[[int], Any]] = {
        "text": lambda n: f"c{n}",
        "bytes": lambda n: f"c{n}".encode(),
        "record": lambda n: {"id": n, "land": "DE"},
    }
    hashed: dict[str, Callable[[Any], bytes]] = {"text": str.encode, "bytes": bytes, "record": _of_object}
    landed.send([(key_of[kind](n % 40), n) for n in range(120)], hashed[kind])
    answer = succeeded("inspect", f"{store.root}/topics/orders", "--json").stdout
    found = json.loads(answer)
    assert (found["key"]["told"], f'keys="{keys}"' in found["declaration"]) == ("surely", True), answer
    assert any("lies in 4 files beside those of values" in each for each in found["key"]["says"])
    pasted: dict[str, Any] = {}
    exec(f"{found['declaration']}\norders.aggregate('count(*) AS n').write('counted')\n", pasted)
    run_and_publish(next_batch(pasted["pipeline"], store.root))
    assert [row[-1] for row in rows(store.root, "counted")] == [3] * 40


def test_inspect_says_when_they_are_not_needed_or_not_read(store: Store) -> None:
    landed = Beside(store, "text")
    landed.send([("another", n) for n in range(60)], str.encode)
    says = succeeded("inspect", f"{store.root}/topics/orders").stdout
    assert "1 file of keys beside those of values are passed over" in says
    name = landed.name_of_keys(landed.begun[0])
    landed.there.put(name.replace(".avro", ".bin"), landed.there.get(name) or b"")
    landed.there.delete(name)
    says = succeeded("inspect", f"{store.root}/topics/orders").stdout
    assert "1 file of keys are of no format that is read" in says
    assert "set keys.format.class to AvroFormat" in says


@pytest.mark.parametrize("name", ['cus"tomer', "cus\\tomer"])
def test_a_key_of_json_has_any_name(name: str) -> None:
    pipeline = Pipeline("named", source="s3://landing/topics")
    pipeline.stream("orders", key=name, partitions=1, keys="json", columns={name: "VARCHAR"})
    keys = open_keys(pipeline.streams[0], Format.JSON, pa.BufferReader(b'"ann"\n"bob"\n'), name)
    assert [row[name] for batch in keys.batches([name], 0, 9) for row in batch.to_pylist()] == ["ann", "bob"]
