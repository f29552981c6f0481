"""Streams in other formats than Parquet whose columns, or whose declaration, change between batches."""

from __future__ import annotations

import io
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import msgspec
import pytest

from coset.batches import steps
from coset.batches.backfills import actions
from coset.batches.backfills.actions import Asked
from coset.batches.planning import preview
from coset.batches.verifying import verify
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.documents.document import digest
from partitioning.documents.store import Store
from partitioning.errors import Refused
from tests import backfilled
from tests.batches import erase, rows
from tests.running import next_batch, run_and_publish

KEYS = {"ad": "VARCHAR"}
GO_ON = Settings(go_on=("seen",))


def views(store: Store, select: str = "n", **declared: Any) -> Pipeline:
    made = Pipeline("evolving", source=f"{store.root}/topics")
    made.stream("views", key="ad", partitions=1, hash="opaque", **declared).select(select).write("seen")
    return made


def in_json(store: Store, select: str = "n", **columns: str) -> Pipeline:
    return views(store, select, format="json", columns=KEYS | columns)


def land(store: Store, first: int, data: bytes, ending: str) -> str:
    key = f"topics/views/partition=0/views+0+{first:010}.{ending}"
    store.put(key, data)
    return key


def land_json(store: Store, first: int, *records: Mapping[str, Any]) -> str:
    lines = [msgspec.json.encode({**record, "_offset": first + n}) for n, record in enumerate(records)]
    return land(store, first, b"\n".join(lines), "json")


def land_avro(store: Store, first: int, types: Mapping[str, Any], *records: Mapping[str, Any]) -> str:
    fields = [{"name": name, "type": kind} for name, kind in {**types, "_offset": "long"}.items()]
    sink = io.BytesIO()
    schema = {"type": "record", "name": "View", "fields": fields}
    fastavro.writer(sink, schema, [{**record, "_offset": first + n} for n, record in enumerate(records)])
    return land(store, first, sink.getvalue(), "avro")


def run(store: Store, made: Pipeline, docs: Path, settings: Settings = DEFAULTS) -> list[tuple[object, ...]]:
    """All rows after the next batch."""
    run_and_publish(next_batch(made, store.root, settings), docs)
    return rows(store.root, "seen")


def run_again(store: Store, made: Pipeline, docs: Path, *, repaired: bool = False) -> list[tuple[object, ...]]:
    """All rows after a backfill of the first batch, if they are the table's query."""
    request = backfilled.run_again(made, store, Asked(0, None, DEFAULTS, repaired=repaired), docs)
    actions.swap(store, request, digest(actions.comparison(store, request)), "it is declared otherwise")
    (found,) = verify(made, store)
    assert found.difference
    assert found.difference.same
    return rows(store.root, "seen")


def refusal(store: Store, made: Pipeline) -> str:
    with pytest.raises(Refused) as caught:
        preview(made, store)
    return str(caught.value)


def test_a_column_of_json_is_there_as_soon_as_it_is_declared(store: Store, tmp_path: Path) -> None:
    land_json(store, 0, {"ad": "a", "n": 1, "page": "home"})
    assert run(store, in_json(store, "n::BIGINT AS n", n="INTEGER"), tmp_path) == [("a", 1)]
    land_json(store, 1, {"ad": "b", "n": 2**40, "page": "cart"}, {"ad": "c"})
    wider = in_json(store, "n::BIGINT AS n, page", n="BIGINT", page="VARCHAR")
    # The record of before has a page, and its row does not.
    assert "it has no column page yet" in refusal(store, wider)
    assert run(store, wider, tmp_path, GO_ON) == [("a", 1, None), ("b", 2**40, "cart"), ("c", None, None)]


def test_a_column_of_json_is_gone_with_its_declaration(store: Store, tmp_path: Path) -> None:
    land_json(store, 0, {"ad": "a", "n": 1, "page": "home"})
    run(store, in_json(store, "n", n="INTEGER", page="VARCHAR"), tmp_path)
    land_json(store, 1, {"ad": "b", "n": 2, "page": "cart"})
    assert "page" in refusal(store, in_json(store, "n, page", n="INTEGER"))
    assert run(store, in_json(store, "n", n="INTEGER"), tmp_path) == [("a", 1), ("b", 2)]


def test_a_column_of_json_of_another_type_is_refused_unless_it_is_cast(store: Store, tmp_path: Path) -> None:
    land_json(store, 0, {"ad": "a", "n": 1})
    run(store, in_json(store, n="INTEGER"), tmp_path)
    land_json(store, 1, {"ad": "b", "n": "2"})
    assert "columns differ: n is VARCHAR, not INTEGER" in refusal(store, in_json(store, n="VARCHAR"))
    made = views(store, format="json", columns=KEYS | {"n": "VARCHAR"}, cast={"n": "INTEGER"})
    assert run(store, made, tmp_path, GO_ON) == [("a", 1), ("b", 2)]


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ({"columns": {"n": "DOUBLE"}}, {"columns": {"n": "BIGINT"}}),
        ({"columns": {"n": "DOUBLE"}}, {"columns": {"n": "DOUBLE"}, "cast": {"n": "BIGINT"}}),
        ({"columns": {"n": "DOUBLE"}, "cast": {"n": "FLOAT"}}, {"columns": {"n": "DOUBLE"}, "cast": {"n": "BIGINT"}}),
        ({"columns": {"n": "DOUBLE"}, "cast": {"n": "FLOAT"}}, {"columns": {"n": "BIGINT"}}),
    ],
)
def test_a_backfill_reads_columns_as_they_are_declared_now(
    was: dict[str, Any], now: dict[str, Any], store: Store, tmp_path: Path
) -> None:
    first, then = (
        views(store, "typeof(n) AS kind", format="json", **declared | {"columns": KEYS | declared["columns"]})
        for declared in (was, now)
    )
    land_json(store, 0, {"ad": "a", "n": 3})
    assert run(store, first, tmp_path) != [("a", "BIGINT")]
    assert run_again(store, then, tmp_path) == [("a", "BIGINT")]
    gone = in_json(store, "typeof(n) AS kind", more="BIGINT")
    with pytest.raises(Refused, match="there is no column 'n'"):
        run_again(store, gone, tmp_path)


def test_a_backfill_asks_about_a_cast_that_was_taken_back_unless_it_reads_the_files_of_now(
    store: Store, tmp_path: Path
) -> None:
    cast, plain = (views(store, "typeof(n) AS kind", format="avro", **more) for more in ({"cast": {"n": "BIGINT"}}, {}))
    land_avro(store, 0, {"ad": "string", "n": "double"}, {"ad": "a", "n": 3.0})
    assert run(store, cast, tmp_path) == [("a", "BIGINT")]
    with pytest.raises(Refused) as refused:
        run_again(store, plain, tmp_path)
    (finding,) = refused.value.findings
    assert 'declare it: `cast={"n": "BIGINT"}`' in finding.then
    assert "coset backfill evolving --from 0 --input repaired" in finding.then
    assert run_again(store, plain, tmp_path, repaired=True) == [("a", "DOUBLE")]
    assert run_again(store, cast, tmp_path) == [("a", "BIGINT")]


def test_columns_of_avro_are_added_dropped_and_widened(store: Store, tmp_path: Path) -> None:
    made = views(store, "n::BIGINT AS n, page", format="avro")
    text = ["null", "string"]
    land_avro(store, 0, {"ad": text, "n": "int", "page": text}, {"ad": "a", "n": 1, "page": "home"})
    assert run(store, made, tmp_path) == [("a", 1, "home")]
    land_avro(store, 1, {"more": "boolean", "n": "long", "ad": text}, {"ad": "b", "n": 2**40, "more": True})
    assert run(store, made, tmp_path) == [("a", 1, "home"), ("b", 2**40, None)]
    land_avro(store, 2, {"ad": text, "n": "string"}, {"ad": "c", "n": "3"})
    assert "columns differ: n is VARCHAR, not BIGINT" in refusal(store, made)


def test_a_stream_goes_on_in_another_format_once_the_files_of_the_old_one_are_gone(
    store: Store, tmp_path: Path
) -> None:
    old = land_json(store, 0, {"ad": "a", "n": 1})
    run(store, in_json(store, n="BIGINT"), tmp_path)
    made = views(store, format="avro")
    land_avro(store, 1, {"ad": "string", "n": "long"}, {"ad": "b", "n": 2})
    assert "if the sink writes JSON, declare format='json'" in refusal(store, made)
    erase(store.root, old)
    assert run(store, made, tmp_path) == [("a", 1), ("b", 2)]


def test_offsets_go_on_whether_they_are_written_or_counted(store: Store, tmp_path: Path) -> None:
    types = {"ad": "string", "n": "long"}
    land_avro(store, 0, types, {"ad": "a", "n": 1})
    assert run(store, views(store, format="avro"), tmp_path) == [("a", 1)]
    # Counted as another column, since files have one of the usual name.
    land_avro(store, 1, types, {"ad": "b", "n": 2})
    counted = views(store, format="avro", offset=None)
    assert "declare offset='_offset'" in refusal(store, counted)
    assert run(store, views(store, format="avro"), tmp_path) == [("a", 1), ("b", 2)]


def test_of_a_sparse_stream_files_say_how_many_records_they_hold(store: Store, tmp_path: Path) -> None:
    lines = [{"ad": f"a{offset}", "n": offset, "_offset": offset} for offset in (0, 2, 5)]
    land(store, 0, b"\n".join(map(msgspec.json.encode, lines)), "json")
    declared: dict[str, Any] = {"format": "json", "columns": KEYS | {"n": "INTEGER"}}
    assert "3 records have the offsets [0,6): a gap" in refusal(store, views(store, **declared))
    assert run(store, views(store, **declared, offsets="sparse"), tmp_path) == [("a0", 0), ("a2", 2), ("a5", 5)]


def test_a_value_that_only_reading_finds_is_refused_with_what_to_do(store: Store, tmp_path: Path) -> None:
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 2}
    made = views(store, "n::VARCHAR AS n", format="avro")
    land_avro(store, 0, {"ad": "string", "n": decimal}, {"ad": "a", "n": Decimal("1" * 40)})
    with pytest.raises(Refused) as caught:
        run(store, made, tmp_path)
    (finding,) = caught.value.findings
    assert "column 'n' cannot be read as decimal128(38, 2)" in finding.what
    assert finding.then.startswith("land the column in a type that holds its values, and `coset replan")
    land_avro(store, 0, {"ad": "string", "n": decimal}, {"ad": "a", "n": Decimal("1" * 36)})
    _, ref, _ = steps.replan(made, store.root, DEFAULTS, "landed again")
    assert ref is not None
    run_and_publish(ref, tmp_path)
    assert rows(store.root, "seen") == [("a", f"{'1' * 36}.00")]


@pytest.mark.parametrize("first", [True, False])
def test_a_column_of_avro_that_may_be_null_alone_has_the_type_of_the_other_files(
    first: bool, store: Store, tmp_path: Path
) -> None:
    made = views(store, "n, s.x AS x", format="avro")
    struct = {"type": "record", "name": "S", "fields": [{"name": "x", "type": "null"}]}
    other = {"type": "record", "name": "S", "fields": [{"name": "x", "type": ["null", "string"]}]}
    files: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"ad": "string", "n": "null", "s": struct}, {"ad": "a", "n": None, "s": {"x": None}}),
        ({"ad": "string", "n": ["null", "long"], "s": other}, {"ad": "b", "n": 7, "s": {"x": "y"}}),
    ]
    for number, (types, record) in enumerate(files if first else files[::-1]):
        land_avro(store, number, types, record)
    assert run(store, made, tmp_path) == [("a", None, None), ("b", 7, "y")]
