"""Text that is not UTF-8, which Parquet files may hold: no key is made of it, and no batch counts it as other text."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from coset.batches.ref import BatchRef
from coset.batches.result_rows import set_aside_in
from coset.batches.tables.first_rows import first_rows, in_order
from coset.sources.landing import land, land_rows
from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.ledger import Ledger
from partitioning.documents.store import Store
from partitioning.errors import Refused
from partitioning.model.private import MASK
from tests.commands import coset, succeeded
from tests.landed import land_table
from tests.real_batches import ran
from tests.running import run_and_publish, run_and_publish_unjudged

# What DuckDB would make the same key of, and what it would not.
TEXTS = [b"a", b"\xff\xfe", b"\xff", b"\xe9t\xe9", "é".encode(), b"a", None, b"\xff\xfe"]
GOOD = [text for text in TEXTS if text is None or text in (b"a", "é".encode())]
PARTITIONS = 3


def texts(*written: bytes | None) -> pa.Array:
    """Text as it was written: Arrow does not look."""
    return pa.array(written, pa.binary()).view(pa.string())


def written() -> pa.Table:
    ids = [f"k{number}" for number in range(len(TEXTS))]
    return pa.table({"id": ids, "x": texts(*TEXTS), "y": list("aabbccdd"), "n": range(len(TEXTS))})


def landed(store: Store, table: pa.Table | None = None) -> str:
    source = f"{store.root}/topics"
    land_table(written() if table is None else table, "o", source, key="id", partitions=PARTITIONS)
    return source


def orders(store: Store, table: pa.Table | None = None, **declared: Any) -> Any:
    made = Pipeline("counted", source=landed(store, table))
    return made.stream("o", key="id", partitions=PARTITIONS, **declared)


def rows(store: Store, table: str = "counts") -> list[dict[str, Any]]:
    found = first_rows(store, table, 1000)
    assert found is not None
    return list(found.rows.to_pylist())


def by_both(flow: Any) -> Pipeline:
    made = flow.select("x, y", name="both").rekey(("x", "y"), name="moved")
    made.aggregate("count(*) AS n", name="counts").write("counts")
    pipeline: Pipeline = flow.pipeline
    return pipeline


def by_one(flow: Any) -> Pipeline:
    flow.rekey("x", name="moved").aggregate("count(*) AS n", name="counts").write("counts")
    pipeline: Pipeline = flow.pipeline
    return pipeline


def upper(flow: Any) -> Pipeline:
    flow.select("upper(x) AS x", name="upper").write("counts")
    pipeline: Pipeline = flow.pipeline
    return pipeline


@pytest.mark.parametrize("made", [by_both, by_one, upper])
def test_it_is_refused_with_its_column_file_and_offset(store: Store, made: Any) -> None:
    with pytest.raises(Refused) as refused:
        ran(store, made(orders(store)))
    finding = refused.value.findings[0]
    assert finding.what.startswith("column 'x' at offset ")
    assert finding.what.endswith(" is not UTF-8")
    assert ".parquet" in finding.where
    assert "cast={'x': 'BLOB'}" in finding.then
    assert "bad_records='set aside'" in finding.then


def test_a_column_that_is_not_read_may_hold_it(store: Store) -> None:
    flow = orders(store)
    flow.rekey("y", name="moved").aggregate("count(*) AS n", name="counts").write("counts")
    run_and_publish_unjudged(ran(store, flow.pipeline))
    assert [(row["y"], row["n"]) for row in rows(store)] == [(y, 2) for y in "abcd"]


def test_read_as_bytes_it_counts(store: Store) -> None:
    flow = orders(store, cast={"x": "BLOB"})
    flow.rekey("x", name="moved", key_format="bytes").aggregate("count(*) AS n", name="counts").write("counts")
    run_and_publish_unjudged(ran(store, flow.pipeline))
    keyed = Counter(text for text in TEXTS if text is not None)
    assert {row["x"]: row["n"] for row in rows(store) if row["x"] is not None} == keyed


def nested(kind: str) -> pa.Array:
    plain = texts(*TEXTS)
    if kind.startswith("list"):
        items = plain.dictionary_encode() if kind == "list of dictionary" else plain
        return pa.ListArray.from_arrays(pa.array(range(len(TEXTS) + 1), pa.int32()), items)
    if kind == "struct":
        return pa.StructArray.from_arrays([pa.array(range(len(TEXTS))), plain], ["n", "text"])
    if kind == "map":
        keys = pa.array(["a"] * len(TEXTS))
        return pa.MapArray.from_arrays(pa.array(range(len(TEXTS) + 1), pa.int32()), keys, plain)
    return plain.dictionary_encode() if kind == "dictionary" else plain


@pytest.mark.parametrize("kind", ["plain", "dictionary", "list", "list of dictionary", "struct", "map"])
def test_records_with_it_are_set_aside_whole_and_the_others_count(store: Store, kind: str) -> None:
    flow = orders(store, written().set_column(1, "x", nested(kind)), bad_records="set aside")
    flow.select("x, n", name="kept").write("kept")
    ref = ran(store, flow.pipeline)
    run_and_publish(ref)
    good = [number for number, text in enumerate(TEXTS) if text in GOOD]
    assert sorted(row["n"] for row in rows(store, "kept")) == good
    found = aside(ref)
    assert sorted(json.loads(each["raw"])["id"] for each in found) == [
        f"k{number}" for number in range(len(TEXTS)) if number not in good
    ]
    assert {each["why"] for each in found} == {"column 'x' is not UTF-8"}
    # Also the columns that nobody read, and the bytes as they can be written.
    assert all(json.loads(each["raw"])["y"] in "abcd" for each in found)
    assert "\\\\xff" in "".join(each["raw"].decode() for each in found)


def aside(ref: BatchRef) -> list[dict[str, Any]]:
    ledger, plan = ref.load()
    return [dict(record) for record in set_aside_in(ledger, plan)]


def test_keys_of_the_others_are_counted_each_for_itself(store: Store) -> None:
    run_and_publish(ran(store, by_both(orders(store, bad_records="set aside"))))
    wanted = Counter((text, y) for text, y in zip(TEXTS, "aabbccdd", strict=True) if text in GOOD)
    found = {(row["x"] and row["x"].encode(), row["y"]): row["n"] for row in rows(store)}
    assert found == wanted


def test_what_one_stage_does_not_read_it_sets_aside_in_the_next_attempt(store: Store) -> None:
    flow = orders(store, bad_records="set aside")
    moved = flow.select("y, n", name="less").rekey("y", name="by_y").aggregate("count(*) AS n", name="counts")
    moved.write("counts")
    back = moved.rekey("id", sql="'k0'", name="back").aggregate("sum(n)::BIGINT AS n", name="all")
    flow.join(back, 'o.x, "all".n', name="joined").write("joined")
    ref = ran(store, flow.pipeline)
    with pytest.raises(Refused, match="sets 2 records aside, another stage others"):
        run_and_publish(ref)
    run_and_publish(ref)
    assert sum(row["n"] for row in rows(store)) == len(GOOD)
    assert len(aside(ref)) == len(TEXTS) - len(GOOD)


def test_nobody_is_told_what_private_text_is(store: Store) -> None:
    ref = ran(store, by_both(orders(store, bad_records="set aside", private="x")))
    run_and_publish(ref)
    assert {(each["raw"], each["why"]) for each in aside(ref)} == {(MASK.encode(), "it cannot be used as declared")}


def test_a_function_must_not_return_it(store: Store) -> None:
    made = Pipeline("counted", source=landed(store, pa.table({"id": ["a", "b"]})))
    flow = made.stream("o", key="id", partitions=PARTITIONS)
    flow.process("tests.functions:in_latin_1", {"id": "VARCHAR", "x": "VARCHAR"}, name="made").write("counts")
    with pytest.raises(Refused, match=r"tests.functions:in_latin_1 returned text in column 'x' that is not UTF-8"):
        ran(store, made)


def test_keys_of_text_that_an_expression_makes_so_are_refused(store: Store) -> None:
    made = Pipeline("counted", source=landed(store, pa.table({"id": ["a", "b", "c"]})))
    flow = made.stream("o", key="id", partitions=PARTITIONS)
    both = flow.select("printf('%c', 200 + ascii(id) % 50) AS x, id AS y", name="both").rekey(("x", "y"), name="moved")
    both.aggregate("count(*) AS n", name="counts").write("counts")
    # DuckDB 2 makes no such text.
    told = r"keys \(x, y\) have text that is not UTF-8, and cannot be told from each other|Invalid UTF8 produced by"
    with pytest.raises(Refused, match=told):
        ran(store, made)


def test_it_does_not_land(store: Store, tmp_path: Path) -> None:
    made = Pipeline("counted", source=f"{store.root}/topics")
    stream = made.stream("o", key="id", partitions=PARTITIONS).pipeline.streams[0]
    file = tmp_path / "rows.parquet"
    pq.write_table(written(), file)
    with pytest.raises(Refused, match="column 'x' has text that is not UTF-8"):
        land(stream, file)
    with pytest.raises(Refused, match="column 'x' has text that is not UTF-8"):
        land_rows(stream, written(), "rows")


def test_it_is_shown_with_escapes(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSET_STORE", store.root)
    file = tmp_path / "counted.py"
    file.write_text(
        "from coset import Pipeline\n"
        f'pipeline = Pipeline("counted", source="{landed(store)}")\n'
        f'flow = pipeline.stream("o", key="id", partitions={PARTITIONS})\n'
        'flow.select("x", name="kept").write("kept")\n'
    )
    assert "is not UTF-8" in coset("run", str(file), "--runner", "local").stderr
    answer = succeeded("records", str(file), "--json")
    shown = [record["columns"]["x"] for each in json.loads(answer.stdout)["streams"] for record in each["records"]]
    assert sorted(shown, key=str) == sorted(
        [text and text.decode(errors="backslashreplace") for text in TEXTS], key=str
    )
    assert "\\xff\\xfe" in coset("records", str(file), "--key", "k1").stdout
    # As a table holds it that somebody else wrote.
    held = in_order(ds.dataset(written().select(["x"])), 100, ())
    assert sorted(held["x"].to_pylist(), key=str) == sorted(shown, key=str)


def test_records_do_not_tell_private_values_of_those_that_cannot_be_used(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSET_STORE", store.root)
    file, lines = tmp_path / "named.py", tmp_path / "lines.jsonl"
    file.write_text(
        "from coset import Pipeline\n"
        f'pipeline = Pipeline("named", source="{store.root}/topics")\n'
        'columns = {"id": "VARCHAR", "name": "VARCHAR", "n": "BIGINT"}\n'
        'declared = {"format": "json", "columns": columns, "bad_records": "set aside", "private": "name"}\n'
        'flow = pipeline.stream("o", key="id", partitions=1, **declared)\n'
        'flow.select("n", name="kept").write("kept")\n'
    )
    lines.write_text('{"id": "a", "name": "hush", "n": 1}\n{"id": "b", "name": "hush", "n": "hush"}\n')
    for arguments in (["land", str(file), "o", str(lines)], ["plan", str(file)]):
        succeeded(*arguments)
    for form in ([], ["--json"]):
        answer = succeeded("records", str(file), *form)
        assert "hush" not in answer.output
        assert MASK in answer.stdout
    assert Ledger(store, "named").plan(0) is not None
