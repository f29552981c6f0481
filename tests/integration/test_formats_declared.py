"""Streams in other formats than Parquet: what is none is refused; columns and declarations change."""

from __future__ import annotations

import gzip
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
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

PAGE = (Path(__file__).parents[2] / "docs" / "internals" / "landed-files.md").read_text()
JSON: dict[str, Any] = {"format": "json", "columns": {"member": "VARCHAR", "n": "INTEGER"}}
AVRO: dict[str, Any] = {"format": "avro"}
LINES = b'{"member":"a","n":1,"_offset":0}\n{"member":"b","n":2,"_offset":1}\n'
ROWS = [{"member": "a", "n": 1, "_offset": 0}, {"member": "b", "n": 2, "_offset": 1}]


def avro(rows: list[dict[str, Any]], kind: Any = "int") -> bytes:
    named = {"member": ["null", "string"], "n": kind, "_offset": ["null", "long"]}
    fields = [{"name": name, "type": named[name]} for name in rows[0]]
    sink = io.BytesIO()
    fastavro.writer(sink, {"type": "record", "name": "Row", "fields": fields}, rows, codec="deflate")
    return sink.getvalue()


def without(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "_offset"} for row in rows]


@dataclass
class Case:
    """A stream that is refused: how it is declared, and what lies there; and what is so after the next step."""

    said: str
    then: str
    declared: dict[str, Any]
    files: dict[str, bytes]
    corrected: dict[str, Any] = field(default_factory=dict)
    landed_again: dict[str, bytes] = field(default_factory=dict)


FIRST = "partition=0/views+0+0000000000"
SECOND = "partition=0/views+0+0000000002"
CASES = [
    Case(
        "column 'n' is declared as 'TXT', which is no type",
        "name one of DuckDB's",
        JSON | {"columns": {"member": "VARCHAR", "n": "TXT"}},
        {f"{FIRST}.json": LINES},
        {"columns": {"member": "VARCHAR", "n": "INT"}},
    ),
    Case(
        "column 'n' is declared as HUGEINT, which is not read from JSON",
        "DECIMAL",
        JSON | {"columns": {"member": "VARCHAR", "n": "HUGEINT"}},
        {f"{FIRST}.json": LINES},
        {"columns": {"member": "VARCHAR", "n": "DECIMAL(38,0)"}},
    ),
    Case(
        "line 2: column 'n' is not INTEGER: Column(/n) changed from number to string",
        "declare the column as it is written",
        JSON,
        {f"{FIRST}.json": b'{"n":null,"_offset":0}\n{"n":"2","_offset":1}\n'},
        {"columns": {"member": "VARCHAR", "n": "VARCHAR"}},
    ),
    Case(
        "line 1: column 'n' is not INTEGER: Failed to convert JSON to int32, couldn't parse:2147483648",
        "declare the column as it is written",
        JSON,
        {f"{FIRST}.json": b'{"n":2147483648,"_offset":0}\n'},
        {"columns": {"member": "VARCHAR", "n": "BIGINT"}},
    ),
    Case(
        "line 3 is no JSON object",
        "land the file again with that line corrected; or let the stream set such records aside",
        JSON,
        {f"{FIRST}.json": LINES + b'{"member":"c","n"'},
        landed_again={f"{FIRST}.json": LINES},
    ),
    Case(
        "line 1 is no JSON object: a line has to hold one object",
        "land the file again with that line corrected; or let the stream set such records aside",
        JSON,
        {f"{FIRST}.json": LINES.replace(b"\n", b" ")},
        landed_again={f"{FIRST}.json": LINES},
    ),
    Case(
        "the file is truncated or no gzip",
        "land it again",
        JSON,
        {f"{FIRST}.json.gz": gzip.compress(LINES)[:-9]},
        landed_again={f"{FIRST}.json.gz": gzip.compress(LINES)},
    ),
    Case(
        "1 records have no offset",
        "land it again",
        JSON,
        {f"{FIRST}.json": LINES + b'{"member":"c","n":3}\n'},
        landed_again={f"{FIRST}.json": LINES},
    ),
    Case(
        "2 records have no offset",
        "land it again",
        AVRO,
        {f"{FIRST}.avro": avro([row | {"_offset": None} for row in ROWS])},
        landed_again={f"{FIRST}.avro": avro(ROWS)},
    ),
    Case(
        "the file is truncated or no Avro",
        "land it again",
        AVRO,
        {f"{FIRST}.avro": avro(ROWS)[:-7]},
        landed_again={f"{FIRST}.avro": avro(ROWS)},
    ),
    Case(
        "column 'n' may be int and string, which is no type of SQL's",
        "land the column in another type",
        AVRO,
        {f"{FIRST}.avro": avro(ROWS, ["int", "string"])},
        landed_again={f"{FIRST}.avro": avro(ROWS, ["null", "int"])},
    ),
    Case(
        "the file has a column '_offset', and offset=None says that records lack their offset",
        "declare offset='_offset'",
        AVRO | {"offset": None},
        {f"{FIRST}.avro": avro(ROWS)},
        {"offset": "_offset"},
    ),
    Case(
        "there is no offset column '_offset'",
        "declare the right one",
        AVRO,
        {f"{FIRST}.avro": avro(without(ROWS))},
        {"offset": None},
    ),
    Case(
        "the file's name cannot be read",
        "if the sink writes Avro, declare format='avro'",
        JSON,
        {f"{FIRST}.avro": avro(ROWS)},
        {"format": "avro", "columns": None},
    ),
    Case(
        "no file lies in a folder views/partition=<n>/",
        'declare layout="time"',
        JSON,
        {"dt=2026-11-22/views+0+0000000000.json": LINES},
        {"layout": "time"},
    ),
    Case(
        "the file's name cannot be read",
        "name it <time>/views+<n>+<first offset, 10 digits>.json",
        JSON | {"layout": "time"},
        {"dt=2026-11-22/views.json": LINES},
        landed_again={"dt=2026-11-22/views.json": b"", "dt=2026-11-22/views+0+0000000000.json": LINES},
    ),
    Case(
        "gap: no file holds views-0@[2,3)",
        "land the files that are missing",
        AVRO | {"offset": None},
        {f"{FIRST}.avro": avro(without(ROWS)), "partition=0/views+0+0000000003.avro": avro(without(ROWS))},
        landed_again={f"{SECOND}.avro": avro(without(ROWS[:1]))},
    ),
    Case(
        # Two hours that the sink wrote at once: the records of each are not those that follow its first.
        "two files hold views-0@[1,2), and differ from offset 1 on",
        "find out which of them has what the topic has, and remove the other",
        AVRO | {"offset": None, "layout": "time"},
        {
            "hour=05/views+0+0000000000.avro": avro(without(ROWS)),
            "hour=06/views+0+0000000001.avro": avro(without(ROWS)),
        },
        landed_again={"hour=06/views+0+0000000001.avro": b"", "hour=06/views+0+0000000002.avro": avro(without(ROWS))},
    ),
]


def views(store: Store, declared: dict[str, Any]) -> Pipeline:
    made = Pipeline("refused", source=f"{store.root}/topics")
    flow = made.stream("views", key="member", partitions=1, hash="opaque", null_keys="drop", **declared)
    flow.select("n").write("seen")
    return made


def land(store: Store, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        key = f"topics/views/{name}"
        store.put(key, data) if data else store.delete(key)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.said)
def test_what_is_refused_is_taken_after_the_next_step(case: Case, store: Store) -> None:
    land(store, case.files)
    with pytest.raises(Refused) as caught:
        preview(views(store, case.declared), store)
    (finding,) = caught.value.findings
    assert case.said in finding.what
    assert case.then in finding.then
    land(store, case.landed_again)
    assert preview(views(store, case.declared | case.corrected), store).plan is not None


NOT_IN_JSON = ["HUGEINT", "UHUGEINT", "BIGNUM", "UUID", "JSON", "VARIANT", "GEOMETRY", "BIT", "TIME", "INTERVAL"]
WITHIN = ["MAP(VARCHAR, INTEGER)", "ENUM('a')", "UNION(a INTEGER)", "INTEGER[2]", "BLOB[]"]


@pytest.mark.parametrize("kind", [*NOT_IN_JSON, *WITHIN])
def test_a_type_that_json_has_no_values_of_is_refused_and_on_the_page(kind: str, store: Store) -> None:
    land(store, {f"{FIRST}.json": LINES})
    columns = {"member": "VARCHAR", "n": kind}
    with pytest.raises(Refused, match="which is not read from JSON"):
        preview(views(store, JSON | {"columns": columns}), store)
    assert f"{', '.join(NOT_IN_JSON)}; MAP, ENUM, UNION, lists of a fixed length, and lists of BLOB" in PAGE


@pytest.mark.parametrize(
    ("declared", "said", "corrected"),
    [
        ({"format": "json"}, "JSON does not say of which types its columns are", JSON),
        ({"format": "avro", "columns": {"n": "INT"}}, "columns are declared, and avro says them itself", AVRO),
        ({"format": "csv"}, "unknown format 'csv'", AVRO),
        ({"layout": "hour"}, "unknown layout 'hour'", {"layout": "time"}),
        ({"offset": None, "offsets": "sparse"}, "offsets are counted, and some may be missing", {"offsets": "sparse"}),
        (
            {"format": "json", "offset": None, "columns": {"member": "TEXT", "_offset": "BIGINT"}},
            "column '_offset' is declared, and offset=None says that records lack it",
            JSON | {"offset": None},
        ),
    ],
)
def test_declarations_that_cannot_be_are_refused(
    declared: dict[str, Any], said: str, corrected: dict[str, Any], store: Store
) -> None:
    with pytest.raises(Refused, match=re.escape(said)):
        views(store, declared)
    assert views(store, corrected)


KEYS = {"ad": "VARCHAR"}
GO_ON = Settings(go_on=("seen",))


def declared_views(store: Store, select: str = "n", **declared: Any) -> Pipeline:
    made = Pipeline("evolving", source=f"{store.root}/topics")
    made.stream("views", key="ad", partitions=1, hash="opaque", **declared).select(select).write("seen")
    return made


def in_json(store: Store, select: str = "n", **columns: str) -> Pipeline:
    return declared_views(store, select, format="json", columns=KEYS | columns)


def land_bytes(store: Store, first: int, data: bytes, ending: str) -> str:
    key = f"topics/views/partition=0/views+0+{first:010}.{ending}"
    store.put(key, data)
    return key


def land_json(store: Store, first: int, *records: Mapping[str, Any]) -> str:
    lines = [msgspec.json.encode({**record, "_offset": first + n}) for n, record in enumerate(records)]
    return land_bytes(store, first, b"\n".join(lines), "json")


def land_avro(store: Store, first: int, types: Mapping[str, Any], *records: Mapping[str, Any]) -> str:
    fields = [{"name": name, "type": kind} for name, kind in {**types, "_offset": "long"}.items()]
    sink = io.BytesIO()
    schema = {"type": "record", "name": "View", "fields": fields}
    fastavro.writer(sink, schema, [{**record, "_offset": first + n} for n, record in enumerate(records)])
    return land_bytes(store, first, sink.getvalue(), "avro")


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
    made = declared_views(store, format="json", columns=KEYS | {"n": "VARCHAR"}, cast={"n": "INTEGER"})
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
        declared_views(store, "typeof(n) AS kind", format="json", **declared | {"columns": KEYS | declared["columns"]})
        for declared in (was, now)
    )
    land_json(store, 0, {"ad": "a", "n": 3})
    assert run(store, first, tmp_path) != [("a", "BIGINT")]
    assert run_again(store, then, tmp_path) == [("a", "BIGINT")]
    gone = in_json(store, "typeof(n) AS kind", more="BIGINT")
    with pytest.raises(Refused, match="there is no column 'n'"):
        run_again(store, gone, tmp_path)


def test_a_backfill_reads_a_column_that_was_declared_since_and_batches_go_on_from_its_types(
    store: Store, tmp_path: Path
) -> None:
    land_json(store, 0, {"ad": "a", "n": 1, "page": "home"})
    run(store, in_json(store, "* EXCLUDE (ad, _offset)", n="BIGINT"), tmp_path)
    made = in_json(store, "* EXCLUDE (ad, _offset)", n="DOUBLE", page="VARCHAR")
    wrong = in_json(store, "n", n="INTEGR")
    with pytest.raises(Refused, match="'INTEGR', which is no type"):
        run_again(store, wrong, tmp_path)
    with pytest.raises(Refused, match=r"n is BIGINT in the table, DOUBLE in the plan|column 'n'"):
        run_again(store, made, tmp_path)
    made = in_json(store, "n::BIGINT AS n, page, typeof(n) AS kind", n="DOUBLE", page="VARCHAR")
    assert run_again(store, made, tmp_path) == [("a", 1, "home", "DOUBLE")]
    land_json(store, 1, {"ad": "b", "n": 2.5, "page": "cart"})
    assert run(store, made, tmp_path)[1:] == [("b", 2, "cart", "DOUBLE")]


def test_a_backfill_asks_about_a_cast_that_was_taken_back_unless_it_reads_the_files_of_now(
    store: Store, tmp_path: Path
) -> None:
    cast, plain = (
        declared_views(store, "typeof(n) AS kind", format="avro", **more) for more in ({"cast": {"n": "BIGINT"}}, {})
    )
    for first in (0, 1):
        land_avro(store, first, {"ad": "string", "n": "double"}, {"ad": "a", "n": 3.0})
        assert run(store, cast, tmp_path) == [("a", "BIGINT")] * (first + 1)
    with pytest.raises(Refused) as refused:
        run_again(store, plain, tmp_path)
    (finding,) = refused.value.findings
    assert 'declare it: `cast={"n": "BIGINT"}`' in finding.then
    assert "coset backfill evolving --from 0 --cascade --input repaired" in finding.then
    assert run_again(store, plain, tmp_path, repaired=True) == [("a", "DOUBLE")] * 2
    assert run_again(store, cast, tmp_path) == [("a", "BIGINT")] * 2


def test_columns_of_avro_are_added_dropped_and_widened(store: Store, tmp_path: Path) -> None:
    made = declared_views(store, "n::BIGINT AS n, page", format="avro")
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
    made = declared_views(store, format="avro")
    land_avro(store, 1, {"ad": "string", "n": "long"}, {"ad": "b", "n": 2})
    assert "if the sink writes JSON, declare format='json'" in refusal(store, made)
    erase(store.root, old)
    assert run(store, made, tmp_path) == [("a", 1), ("b", 2)]


def test_offsets_go_on_whether_they_are_written_or_counted(store: Store, tmp_path: Path) -> None:
    types = {"ad": "string", "n": "long"}
    land_avro(store, 0, types, {"ad": "a", "n": 1})
    assert run(store, declared_views(store, format="avro"), tmp_path) == [("a", 1)]
    # Counted as another column, since files have one of the usual name.
    land_avro(store, 1, types, {"ad": "b", "n": 2})
    counted = declared_views(store, format="avro", offset=None)
    assert "declare offset='_offset'" in refusal(store, counted)
    assert run(store, declared_views(store, format="avro"), tmp_path) == [("a", 1), ("b", 2)]


def test_of_a_sparse_stream_files_say_how_many_records_they_hold(store: Store, tmp_path: Path) -> None:
    lines = [{"ad": f"a{offset}", "n": offset, "_offset": offset} for offset in (0, 2, 5)]
    land_bytes(store, 0, b"\n".join(map(msgspec.json.encode, lines)), "json")
    declared: dict[str, Any] = {"format": "json", "columns": KEYS | {"n": "INTEGER"}}
    assert "3 records have the offsets [0,6): a gap" in refusal(store, declared_views(store, **declared))
    assert run(store, declared_views(store, **declared, offsets="sparse"), tmp_path) == [
        ("a0", 0),
        ("a2", 2),
        ("a5", 5),
    ]


def test_a_value_that_only_reading_finds_is_refused_with_what_to_do(store: Store, tmp_path: Path) -> None:
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 2}
    made = declared_views(store, "n::VARCHAR AS n", format="avro")
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
    made = declared_views(store, "n, s.x AS x", format="avro")
    struct = {"type": "record", "name": "S", "fields": [{"name": "x", "type": "null"}]}
    other = {"type": "record", "name": "S", "fields": [{"name": "x", "type": ["null", "string"]}]}
    files: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"ad": "string", "n": "null", "s": struct}, {"ad": "a", "n": None, "s": {"x": None}}),
        ({"ad": "string", "n": ["null", "long"], "s": other}, {"ad": "b", "n": 7, "s": {"x": "y"}}),
    ]
    for number, (types, record) in enumerate(files if first else files[::-1]):
        land_avro(store, number, types, record)
    assert run(store, made, tmp_path) == [("a", None, None), ("b", 7, "y")]
