"""What is no file of a stream's format or layout is refused, and what the refusal says to do helps."""

from __future__ import annotations

import gzip
import io
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fastavro
import pytest

from coset.batches.planning import preview
from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.store import Store
from partitioning.errors import Refused

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
