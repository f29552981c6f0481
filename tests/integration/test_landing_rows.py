"""Rows of a user's own are landed as a sink would land them, and shown as they came out."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coset.cli import pipelines
from coset.sources.landing import NewRows, land
from partitioning.documents.store import Store
from partitioning.kinds import Kind
from tests.followed import done, told
from tests.footers import of_no_records, with_footer
from tests.forked import at_once, coset

PIPELINE = """
from coset import Pipeline
pipeline = Pipeline("shop", source={source!r})
orders = pipeline.stream("orders", key="customer", partitions=3, null_keys="drop"{declared})
orders.filter("true").write("all_of_them")
"""
LOCAL = ("--runner", "local")


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("COSET_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def pipeline(source: str, declared: str = "") -> str:
    Path("shop.py").write_text(PIPELINE.format(source=source, declared=declared))
    return "shop.py"


def published() -> Counter[tuple[object, ...]]:
    """All rows of the table, read by another hand than the one that shows them."""
    files = Path(".coset/store/tables/all_of_them/data").rglob("*.parquet")
    return Counter(tuple(row.values()) for file in files for row in pq.read_table(file).to_pylist())


def test_rows_of_several_files_and_formats_go_behind_each_other(tmp_path: Path) -> None:
    file = pipeline(f"{tmp_path}/landing")
    Path("a.csv").write_text("customer,n\n007,1\n,2\nann,3\n")
    Path("b.jsonl").write_text('{"customer": "ann", "n": 4}\n{"customer": "bob", "n": 5}\n')
    pq.write_table(pa.table({"customer": ["007", "cid"], "n": [6, 7]}), "c.parquet")
    for name in ("a.csv", "b.jsonl", "c.parquet"):
        done("land", file, "orders", name)
    done("run", file, *LOCAL)
    wanted = [("007", 1), ("ann", 3), ("ann", 4), ("bob", 5), ("007", 6), ("cid", 7)]
    assert Counter(row[:2] for row in published().elements()) == Counter(wanted)
    Path("a.csv").write_text("customer,n\nann,8\n")
    assert "Landed 1 row" in done("land", file, "orders", "a.csv")
    done("run", file, *LOCAL)
    assert published().total() == 7
    assert "Lag: 0" in done("status", file)


def test_a_source_in_which_nothing_has_landed_says_how_rows_get_there(tmp_path: Path) -> None:
    file = pipeline(f"{tmp_path}/landing")
    found = told(Kind.FOLDERS, "explain", file)
    assert "nothing has landed there" in found.next
    Path("a.csv").write_text("customer,n\nann,1\n")
    (advised,) = re.findall("`coset (.*)`", found.next)
    done(*advised.replace("PIPELINE", file).replace("STREAM", "orders").replace("FILE", "a.csv").split())
    done("explain", file)


def test_rows_land_in_s3_as_well(store: Store) -> None:
    file = pipeline(f"{store.root}/topics")
    Path("a.csv").write_text("customer,n\nann,1\n")
    landed = json.loads(done("land", file, "orders", "a.csv", "--json"))
    assert (landed["source"], len(landed["landed"])) == (f"{store.root}/topics", 1)
    done("run", file, *LOCAL)
    assert published().total() == 1


@pytest.mark.parametrize(
    ("declared", "key", "wanted"),
    [(', key_format="long"', "12", 12), (', hash="java"', "ann", "ann"), (", offset=None", "ann", "ann")],
)
def test_keys_lie_where_the_stream_declares_them(tmp_path: Path, declared: str, key: str, wanted: object) -> None:
    file = pipeline(f"{tmp_path}/landing", declared)
    Path("a.csv").write_text(f"customer,n\n{key},1\n")
    done("land", file, "orders", "a.csv")
    done("run", file, *LOCAL)
    assert [row[0] for row in published()] == [wanted]


@pytest.mark.parametrize(
    ("rows", "says", "then"),
    [
        ("client,n\nann,1\n", "no column 'customer'", "declare key= as it is called there: it has 'client', 'n'"),
        ("customer,_offset\nann,1\n", "where offsets are to be written", "another name"),
        ('customer,n\n"ann,1\n', "cannot be read", "correct or write anew what is wrong"),
        ("customer,n\nann,1,2\n", "Expected 2 columns, got 3", "correct or write anew what is wrong"),
        ("customer,customer\nann,1\n", "two of its columns are named 'customer'", "give one of them another name"),
        ("customer,n,N\nann,1,2\n", "two of its columns are named 'n'", "capitals tell no columns apart"),
        ("customer,n,\nann,1,2\n", "one of its columns has no name", "name it in the file"),
        ("customer,_partition\nann,1\n", "'_partition', which Coset adds", "another name"),
        (None, "No such file", "name a file that is there"),
    ],
)
def test_a_file_that_is_no_rows_of_the_stream_is_refused_and_lands_nothing(
    tmp_path: Path, rows: str | None, says: str, then: str
) -> None:
    file = pipeline(f"{tmp_path}/landing")
    if rows is not None:
        Path("a.csv").write_text(rows)
    found = told(Kind.LOCAL_FILE, "land", file, "orders", "a.csv")
    assert says in str(found.findings)
    assert then in found.next
    assert not Path("landing").exists()
    Path("a.csv").write_text("customer,n\nann,1\n")
    done("land", file, "orders", "a.csv")


def test_of_a_damaged_file_it_is_not_said_that_it_is_not_there(tmp_path: Path) -> None:
    file = pipeline(f"{tmp_path}/landing")
    names = pa.array([f"{number}" * 50 for number in range(2000)])
    pq.write_table(pa.table({"customer": names}), "a.parquet", compression="snappy", use_dictionary=False)
    whole = Path("a.parquet").read_bytes()
    Path("a.parquet").write_bytes(whole[:200] + b"\xff" * 4800 + whole[5000:])
    found = told(Kind.LOCAL_FILE, "land", file, "orders", "a.parquet")
    assert "correct or write anew what is wrong in the file" in found.next


@pytest.mark.parametrize(
    ("declared", "kind"),
    [
        (', layout="time"', Kind.FOLDERS),
        (', format="avro"', Kind.FOLDERS),
        (', source="kafka://nowhere:9092", format="json", columns={"n": "BIGINT"}', Kind.FOLDERS),
        (', hash="opaque"', Kind.KEYS_DO_NOT_MEET),
    ],
)
def test_a_stream_that_is_filled_otherwise_is_refused(tmp_path: Path, declared: str, kind: Kind) -> None:
    file = pipeline(f"{tmp_path}/landing", declared)
    Path("a.csv").write_text("customer,n\nann,1\n")
    told(kind, "land", file, "orders", "a.csv")
    assert not Path("landing").exists()


def test_columns_that_do_not_fit_those_that_have_landed_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    file = pipeline(f"{tmp_path}/landing")
    Path("a.csv").write_text("customer,n\nann,1\nbob,2\ncid,3\n")
    done("land", file, "orders", "a.csv")
    landed = sorted(Path("landing").rglob("*.parquet"))
    for rows in ("customer,n\nann,lots\nbob,more\ncid,some\n", "customer,N\nann,4\nbob,5\ncid,6\n"):
        Path("b.csv").write_text(rows)
        found = told(Kind.STREAM_COLUMNS, "land", file, "orders", "b.csv")
        assert "b.csv" in str(found.findings)
        assert sorted(Path("landing").rglob("*.parquet")) == landed
    Path("b.csv").write_text("customer,n\nann,4\nbob,5\ncid,6\n")
    done("land", file, "orders", "b.csv")
    done("run", file, *LOCAL)
    assert {row[1] for row in published().elements()} == {1, 2, 3, 4, 5, 6}


def test_numbers_that_would_lose_digits_are_landed_as_text(tmp_path: Path) -> None:
    file = pipeline(f"{tmp_path}/landing")
    row = {"zip": "00501", "account": "12345678901234567890", "share": "0.1234567890123456789"}
    exact = {"n": "9223372036854775807", "x": "0.30000000000000004", "least": "0.000000000000000000001", "zero": "0"}
    Path("a.csv").write_text(f"customer,{','.join(row | exact)}\nann,{','.join((row | exact).values())}\n")
    done("land", file, "orders", "a.csv")
    done("run", file, *LOCAL)
    (shown,) = published()
    assert shown[1:8] == (*row.values(), 2**63 - 1, 0.1 + 0.2, 1e-21, 0)
    Path("a.csv").write_text(Path("a.csv").read_text().replace(",0\n", ",007\n"))
    found = told(Kind.STREAM_COLUMNS, "land", file, "orders", "a.csv")
    assert "'zero'" in str(found.findings)


@pytest.mark.parametrize(
    ("number", "kind"), [("12345678901234567890", "DECIMAL(38, 0)"), ("-0.1234567890123456789", "DECIMAL(38, 19)")]
)
def test_a_number_of_json_that_would_lose_digits_is_refused_and_lands_as_text_or_as_declared(
    tmp_path: Path, number: str, kind: str
) -> None:
    file = pipeline(f"{tmp_path}/landing")
    lines = '{{"customer": "ann", "n": [{}], "most": 9223372036854775807, "x": 0.30000000000000004}}\n'
    Path("a.jsonl").write_text(lines.format(number))
    found = told(Kind.LOCAL_FILE, "land", file, "orders", "a.jsonl")
    assert number in str(found.findings)
    Path("a.jsonl").write_text(lines.format("9" * 5_000))
    told(Kind.LOCAL_FILE, "land", file, "orders", "a.jsonl")
    assert not Path("landing").exists()
    Path("a.jsonl").write_text(lines.format(f'"{number}"'))
    done("land", file, "orders", "a.jsonl")
    columns = {"customer": "VARCHAR", "n": f"{kind}[]", "most": "BIGINT", "x": "DOUBLE"}
    file = pipeline(f"{tmp_path}/declared", f', format="json", columns={columns}')
    Path("a.jsonl").write_text(lines.format(number))
    done("land", file, "orders", "a.jsonl")
    done("run", file, *LOCAL)
    (table,) = Path(".coset/store/tables/all_of_them/data").rglob("*.parquet")
    assert pq.read_table(table)["n"].to_pylist() == [[Decimal(number)]]


SAME_COLUMNS = {
    "a.jsonl": (
        '{"customer": "ann", "n": 1.5, "at": "2026-11-01 10:00:00", "zip": "07743",'
        ' "in": [{"at": "2026-11-01 10:00:00"}]}\n',
        '{"customer": "bob", "n": 2, "at": "2026-11-01 10:00:00.25", "zip": "10115",'
        ' "in": [{"at": "2026-11-02 11:00:00.5"}]}\n'
        '{"customer": "cid", "n": null, "at": null, "zip": null, "in": []}\n',
    ),
    "a.csv": (
        "customer,n,at,zip\nann,1.5,2026-11-01 10:00:00,x07743\n",
        "customer,n,at,zip\nbob,2,2026-11-01 10:00:00.25,07743\ncid,,,\n",
    ),
}


@pytest.mark.parametrize("name", SAME_COLUMNS)
def test_text_that_looks_different_lands_in_the_columns_that_there_are(tmp_path: Path, name: str) -> None:
    file = pipeline(f"{tmp_path}/landing")
    for text in SAME_COLUMNS[name]:
        Path(name).write_text(text)
        done("land", file, "orders", name)
    done("run", file, *LOCAL)
    rows = [row for path in Path(".coset/store/tables/all_of_them/data").rglob("*.parquet") for row in _rows(path)]
    found = {row["customer"]: (row["n"], row["at"], row["zip"]) for row in rows}
    at = datetime.fromisoformat("2026-11-01 10:00:00")
    zips = ("07743", "10115") if name == "a.jsonl" else ("x07743", "07743")
    assert found == {"ann": (1.5, at, zips[0]), "bob": (2, at.replace(microsecond=250000), zips[1]), "cid": (None,) * 3}
    if name == "a.jsonl":
        within = {row["customer"]: [each["at"] for each in row["in"]] for row in rows}
        assert within == {"ann": [at], "bob": [datetime.fromisoformat("2026-11-02 11:00:00.5")], "cid": []}


def _rows(file: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(file).to_pylist()
    return rows


def test_a_type_that_no_step_could_read_is_refused(tmp_path: Path) -> None:
    odd = pa.table({"customer": ["ann"], "n": pa.array([1], pa.decimal256(76, 3))})
    pq.write_table(odd, "a.parquet")
    named = pipeline(f"{tmp_path}/landing")
    told(Kind.STREAM_COLUMNS, "land", named, "orders", "a.parquet")
    assert not Path("landing").exists()


def test_columns_land_in_types_by_which_they_can_be_sorted_into_partitions(tmp_path: Path) -> None:
    """Text that a file calls a view cannot be taken in parts; times of INT96 may lie beyond those of nanoseconds."""
    file, at = pipeline(f"{tmp_path}/landing"), datetime(9999, 12, 31, 23, 59, 59)  # noqa: DTZ001
    plain = pa.table({"customer": ["ann", "bob", None], "at": pa.array([at, None, at], pa.timestamp("us"))})
    pq.write_table(plain, "a.parquet", use_deprecated_int96_timestamps=True)
    pq.write_table(plain.set_column(0, "customer", plain["customer"].cast(pa.string_view())), "b.parquet")
    for name in ("a.parquet", "b.parquet"):
        done("land", file, "orders", name)
    done("run", file, *LOCAL)
    assert published() == Counter({("ann", at): 2, ("bob", None): 2})


def test_a_file_that_counts_its_records_in_two_ways_is_refused_where_it_is_given_and_where_it_lies(
    tmp_path: Path,
) -> None:
    file = pipeline(f"{tmp_path}/landing")
    pq.write_table(pa.table({"customer": ["ann"], "n": [1]}), "a.parquet")
    right = Path("a.parquet").read_bytes()
    Path("a.parquet").write_bytes(with_footer(right, of_no_records))
    said = "its footer says 0 records, and its row groups 1"
    assert said in str(told(Kind.LOCAL_FILE, "land", file, "orders", "a.parquet").findings)
    assert not Path("landing").exists()
    Path("a.parquet").write_bytes(right)
    done("land", file, "orders", "a.parquet")
    (landed,) = Path("landing").rglob("*.parquet")
    landed.write_bytes(with_footer(landed.read_bytes(), of_no_records))
    for words in (("land", file, "orders", "a.parquet"), ("run", file, *LOCAL), ("schemes", file)):
        found = told(Kind.FILE_UNREADABLE, *words)
        assert said in str(found.findings)
        assert found.next == "remove the file and land it again"
    landed.unlink()
    done("land", file, "orders", "a.parquet")
    done("run", file, *LOCAL)
    assert published().total() == 1


def test_rows_that_another_lands_meanwhile_stay_and_these_go_behind_them(tmp_path: Path) -> None:
    (stream,) = pipelines.load(pipeline(f"{tmp_path}/landing")).streams
    for number in range(2):
        Path(f"{number}.csv").write_text(f"customer,n\nann,{number}\n")

    def meanwhile(new: Sequence[tuple[int, NewRows]]) -> Sequence[tuple[int, NewRows]]:
        land(stream, Path("1.csv"))
        return new

    (written,) = land(stream, Path("0.csv"), meanwhile)
    assert (written.start, written.end) == (1, 2)
    assert [pq.read_table(file)["n"].to_pylist() for file in sorted(Path("landing").rglob("*.parquet"))] == [[1], [0]]


@pytest.mark.long
def test_rows_that_are_landed_at_once_all_land_also_if_they_are_alike(tmp_path: Path) -> None:
    file = pipeline(f"{tmp_path}/landing")
    for number in range(4):
        Path(f"{number}.csv").write_text("customer,n\n" + "".join(f"user-{n},{number // 2}\n" for n in range(30)))
    answers = at_once(4, partial(_lands, file))
    assert [len(answer) for answer in answers] == [3, 3, 3, 3]
    done("run", file, *LOCAL)
    assert Counter(row[1] for row in published().elements()) == Counter({0: 60, 1: 60})
    assert "Lag: 0" in done("status", file)


def _lands(file: str, number: int) -> Callable[[], list[str]]:
    (stream,) = pipelines.load(file).streams
    return lambda: [str(each) for each in land(stream, Path(f"{number}.csv"))]


def test_a_stream_that_there_is_not_is_named_otherwise(tmp_path: Path) -> None:
    file = pipeline(f"{tmp_path}/landing")
    Path("a.csv").write_text("customer,n\nann,1\n")
    assert told(Kind.ARGUMENT, "land", file, "order", "a.csv").next == "name one of orders"


def test_nothing_to_land_is_a_sentence(tmp_path: Path) -> None:
    Path("a.csv").write_text("customer,n\n")
    assert "Nothing to land" in done("land", pipeline(f"{tmp_path}/landing"), "orders", "a.csv")


def test_rows_of_every_type_are_shown_and_printed(tmp_path: Path) -> None:
    file = pipeline(f"{tmp_path}/landing")
    row = {
        "customer": "ann",
        "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "price": Decimal("1.50"),
        "tags": ["x", None],
        "raw": b"\x00",
    }
    pq.write_table(pa.Table.from_pylist([row]), "a.parquet")
    done("land", file, "orders", "a.parquet")
    done("run", file, *LOCAL)
    assert "all_of_them, version 1: 1 row" in done("rows", file)
    (told_of,) = json.loads(done("rows", file, "all_of_them", "--json"))
    (first,) = told_of["first"]
    assert (first["customer"], first["price"], first["tags"]) == ("ann", "1.50", ["x", None])


def test_of_many_rows_the_first_are_shown(tmp_path: Path) -> None:
    file = pipeline(f"{tmp_path}/landing")
    Path("a.csv").write_text("customer,n\n" + "".join(f"user-{n:03},{n}\n" for n in range(100)))
    done("land", file, "orders", "a.csv")
    done("run", file, *LOCAL)
    assert "batch 0 is shown, the last." in done("explain", file)
    asked = done("explain", file, "--scheme", "tasks(2)")
    assert "the last; the stored plan is used, the requested scheme ignored." in " ".join(asked.split())
    shown = done("rows", file, "--limit", "3")
    assert "100 rows, the first 3" in shown
    assert [line.split()[0] for line in shown.splitlines() if line.startswith("user-")] == [
        "user-000",
        "user-001",
        "user-002",
    ]
    assert told(Kind.TABLE_UNKNOWN, "rows", file, "nothing").next == "name one of all_of_them"


@pytest.mark.parametrize("command", ["rows", "compact"])
def test_files_that_are_gone_from_a_table_are_named(command: str, tmp_path: Path) -> None:
    file = pipeline(f"{tmp_path}/landing")
    Path("a.csv").write_text("customer,n\n" + "".join(f"user-{n:03},{n}\n" for n in range(100)))
    done("land", file, "orders", "a.csv")
    done("run", file, *LOCAL)
    held = partial(coset, "doctor", file, "--json")
    assert {each["what"]: each["level"] for each in json.loads(held().stdout)}["table all_of_them"] == "ok"
    first, *_, last = sorted(Path(".coset/store/tables/all_of_them/data").rglob("*.parquet"))
    first.unlink()
    last.unlink()
    (gone,) = told(Kind.FILE_GONE, command, file).findings
    assert gone["where"].removesuffix(", and 1 more file") in {f"file://{tmp_path / path}" for path in (first, last)}
    assert (gone["what"], gone["next"]) == ("the file is missing", "restore it from a backup")
    (table,) = (each for each in json.loads(held().stdout) if each["what"] == "table all_of_them")
    assert table == table | {"level": "wrong", "seen": f"{gone['what']} ({gone['where']})", "then": gone["next"]}


@pytest.mark.parametrize("command", ["rows", "compact"])
@pytest.mark.parametrize("gone", ["tables/all_of_them", "tables/all_of_them/_delta_log"])
def test_a_table_that_is_gone_is_not_one_to_which_nothing_is_published(gone: str, command: str, tmp_path: Path) -> None:
    file = pipeline(f"{tmp_path}/landing")
    Path("a.csv").write_text("customer,n\nann,1\n")
    done("land", file, "orders", "a.csv")
    done("run", file, *LOCAL)
    assert "all files of its version 1 are there" in " ".join(done("doctor", file).split())
    shutil.rmtree(Path(".coset/store", gone))
    (found,) = told(Kind.TABLE_BEHIND, command, file).findings
    assert found["what"] == "the ledger says that batch 0 is published, but the table holds none"
    examined = coset("doctor", file)
    assert (examined.returncode, "but the table holds none" in " ".join(examined.stdout.split())) == (3, True)


def test_a_table_without_a_batch_says_what_to_run(tmp_path: Path) -> None:
    file = pipeline(f"{tmp_path}/landing")
    said = done("rows", file)
    assert "Table all_of_them: nothing is published to it yet" in said
    assert said.splitlines()[-1] == f"Next: coset run {file}"
    assert json.loads(done("rows", file, "--json")) == [
        {"table": "all_of_them", "version": None, "rows": 0, "first": []}
    ]


def test_a_table_whose_first_batch_is_refused_says_that_it_is_open_and_what_to_do(tmp_path: Path) -> None:
    file = pipeline(f"{tmp_path}/landing")
    path = Path(file)
    few = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "n", "max_value": 0}}
    path.write_text(path.read_text().replace('.write("all_of_them"', f'.write("all_of_them", expect=[{few}]'))
    Path("a.csv").write_text("customer,n\nann,1\n")
    done("land", file, "orders", "a.csv")
    for why, then in (("failed", f"coset run {file}"), ("waits for a decision", f"coset replan {file}")):
        assert coset("run", file, *LOCAL).returncode == 3
        shown = done("rows", file).splitlines()
        assert shown[:2] == ["Table all_of_them: nothing is published to it yet", "Batch 0 is open."]
        assert then in shown[-1]
        (found,) = told(Kind.BATCH_UNPUBLISHED, "verify", file).findings
        assert found["what"].endswith(f"nothing to verify: batch 0 is open ({why})")
        assert then in found["next"]


def test_numbers_that_json_does_not_have_are_named(tmp_path: Path) -> None:
    file = pipeline(f"{tmp_path}/landing")
    pq.write_table(pa.table({"customer": ["ann", "bob"], "n": [float("nan"), float("inf")]}), "a.parquet")
    done("land", file, "orders", "a.parquet")
    done("run", file, *LOCAL)
    (told_of,) = json.loads(done("rows", file, "--json"), parse_constant=pytest.fail)
    assert [row["n"] for row in told_of["first"]] == ["NaN", "Infinity"]


LINES = ', format="json", columns={"customer": "VARCHAR", "n": "BIGINT", "price": "DECIMAL(20,2)", "day": "DATE"}'


def lines(folder: str = "landing") -> dict[str, list[str]]:
    """The lines that have landed, by file."""
    files = sorted(Path(folder).rglob("*.json"))
    assert not list(Path(folder).rglob("*.parquet"))
    return {str(file.relative_to(folder)): file.read_text().splitlines() for file in files}


def test_a_stream_of_json_lines_gets_each_line_as_it_is_written(tmp_path: Path) -> None:
    file = pipeline(f"{tmp_path}/landing", LINES)
    ann = '{"customer": "ann", "n": 1, "price": 12345678901234567.25, "day": "2026-11-01", "more": [1.0]}'
    Path("a.jsonl").write_text(f'{ann}\n\n{{"customer": "ann"}}\r\n')
    done("land", file, "orders", "a.jsonl")
    ((name, (first, second)),) = lines().items()
    assert re.fullmatch(r"orders/partition=\d/orders\+\d\+0000000000\.json", name)
    assert first.startswith(f'{ann[:-1]}, "_offset": 0, "coset.landed": "')
    assert second == '{"customer": "ann", "_offset": 1}'
    Path("b.csv").write_text("customer,n,price,day\nann,2,0.10,2026-11-02\n")
    pq.write_table(pa.table({"customer": ["ann"], "n": [3], "price": [Decimal("7.5")]}), "c.parquet")
    done("land", file, "orders", "b.csv")
    assert "@[3,4)" in done("land", file, "orders", "c.parquet")
    done("run", file, *LOCAL)
    rows = sorted(row[:4] for row in published().elements() if row[1] is not None)
    assert rows == [
        ("ann", 1, Decimal("12345678901234567.25"), date(2026, 11, 1)),
        ("ann", 2, Decimal("0.10"), date(2026, 11, 2)),
        ("ann", 3, Decimal("7.50"), None),
    ]
    assert published().total() == 4


BAD = '{"customer": "ann", "n": "many"}\n{"customer": "bob", "n": 5}\n{"customer": "cid", "n"\n[1]\n'


def test_lines_that_cannot_be_read_are_refused_and_land_where_they_are_set_aside(tmp_path: Path) -> None:
    Path("a.jsonl").write_text(BAD)
    file = pipeline(f"{tmp_path}/landing", LINES)
    found = told(Kind.LOCAL_FILE, "land", file, "orders", "a.jsonl")
    assert "line 1: column 'n' is not BIGINT" in str(found.findings)
    assert "let the stream set such records aside" in found.next
    assert not Path("landing").exists()
    file = pipeline(f"{tmp_path}/landing", f'{LINES}, bad_records="set aside"')
    assert "Landed 4 rows" in done("land", file, "orders", "a.jsonl")
    assert {line for each in lines().values() for line in each} >= {'{"customer": "cid", "n"', "[1]"}


@pytest.mark.long
def test_what_is_set_aside_is_tried_as_the_page_says(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/bad-records.md").read_text()
    (made, *_), (commands, *_) = (re.findall(rf"```{kind}\n(.*?)```", page, re.DOTALL) for kind in ("python", "sh"))
    made = re.sub("^(>>> |[.]{3} )", "", made, flags=re.MULTILINE)
    Path("spent.py").write_text(made.replace("s3://landing/topics", f"{tmp_path}/landing"))
    for line in commands.splitlines():
        if line.startswith("echo "):
            subprocess.run(line, shell=True, check=True)
        else:
            said = done(*line.split()[1:])
    assert "no JSON object" in said
    assert '"much"' in said
    assert [row["amount"] for row in json.loads(done("rows", "spent.py", "--json"))[0]["first"]] == [3.0]


@pytest.mark.parametrize(
    ("declared", "row", "says"),
    [
        (LINES, '{"customer": "ann", "_offset": 3}', "where offsets are to be written"),
        (LINES, '{"client": "ann"}', "no column 'customer'"),
        (', format="json", columns={"n": "BIGINT"}', '{"customer": "ann"}', "no column 'customer'"),
        (LINES, '{"customer": 7}', "column 'customer' is not VARCHAR"),
        (LINES, "[]", "line 1 is no JSON object"),
        (', format="json", columns={"customer": "BLOB"}', '{"customer": "abcd"}', "key 'customer': Invalid UTF8"),
    ],
)
def test_lines_that_are_none_of_the_stream_are_refused_and_nothing_lands(
    tmp_path: Path, declared: str, row: str, says: str
) -> None:
    file = pipeline(f"{tmp_path}/landing", declared)
    Path("a.jsonl").write_text(f"{row}\n")
    assert says in str(told(Kind.LOCAL_FILE, "land", file, "orders", "a.jsonl").findings)
    assert not Path("landing").exists()


def test_of_a_stream_that_is_declared_otherwise_no_landed_file_is_to_be_removed(tmp_path: Path) -> None:
    Path("a.jsonl").write_text('{"customer": "7a"}\n')
    done("land", pipeline(f"{tmp_path}/landing", LINES), "orders", "a.jsonl")
    file = pipeline(f"{tmp_path}/landing", LINES.replace('"customer": "VARCHAR"', '"customer": "BIGINT"'))
    found = told(Kind.FILE_UNREADABLE, "land", file, "orders", "a.jsonl")
    assert "or declare the column as it is written" in found.next
    assert "remove" not in found.next


def test_lines_without_offsets_and_with_numbers_as_keys_land_as_they_are(tmp_path: Path) -> None:
    declared = ', offset=None, key_format="long", format="json", columns={"customer": "BIGINT"}'
    file = pipeline(f"{tmp_path}/landing", declared)
    Path("a.csv").write_text("customer\n7\n8\n")
    for _ in range(2):
        assert "Landed 2 rows" in done("land", file, "orders", "a.csv")
    done("run", file, *LOCAL)
    assert Counter(row[0] for row in published().elements()) == {7: 2, 8: 2}
