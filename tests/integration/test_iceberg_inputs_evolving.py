"""Iceberg tables whose columns change: a column is known by its id, in earlier batches and in rows that are kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.types import ListType, LongType, MapType, NestedField, StringType, StructType

from partitioning.documents.store import Store
from partitioning.kinds import Kind
from tests.bucketed import append, create, lake, live, renamed, rewrite, swapped
from tests.commands import succeeded
from tests.followed import Told, commands, in_another_shell, told
from tests.logs import log_of
from tests.swapped import entered
from tests.there import there

__all__ = ["lake"]
LOCAL = "--runner", "local"
STREAM = 'orders = pipeline.stream("orders", key="customer", partitions=4)'
PAID = 'orders.select("amount::BIGINT AS paid", name="each").write("each")'
LATEST = 'orders.latest("_offset", name="newest").write("newest", mode="upsert")'
KEPT = 'pipeline.table("people", key="id", key_format="long", partitions=4, kept=True).write("held", mode="upsert")'


def written(folder: Path, *lines: str) -> str:
    """The file of a pipeline that reads tables of the catalogue."""
    file = folder / "evolving.py"
    first = "from coset import Pipeline", 'pipeline = Pipeline("evolving", source="iceberg://lake.shop")'
    file.write_text("\n".join([*first, *lines, ""]))
    return str(file)


def made_again(table: Table, _: str, name: str) -> None:
    """Drop a column, or a part of one, and add one of its name."""
    path = tuple(name.split("."))
    with table.refresh().update_schema() as change:
        change.delete_column(path)
    with table.refresh().update_schema() as change:
        change.add_column(path, LongType())


Change = Callable[[Table, str, str], None]


def rows_of(store: Store, name: str, *columns: str) -> list[str]:
    found = log_of(store, name).to_pyarrow_table(columns=[*columns]).to_pylist()
    return sorted(map(repr, found))


@pytest.fixture
def orders(lake: Catalog, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    """A table of orders with a batch of each pipeline that reads it."""
    entered(store, tmp_path / "docs", monkeypatch)
    table = create(lake, "shop.orders", {"customer": StringType(), "amount": LongType(), "rank": LongType()}, 4)
    append(table, [{"customer": f"c{number}", "amount": number, "rank": 10 + number} for number in range(6)])
    return table


def swapped_in(told_: str) -> None:
    """Put a backfill in place that a next step has run."""
    in_another_shell(*commands(told_)[-1])


def run_again(found: Told) -> None:
    """Run all batches again, as findings say, and put that in place."""
    swapped_in(found.follow(which=[words[0] for words in found.commands].index("backfill")))


def test_earlier_batches_run_again_by_the_names_that_columns_have_now(
    orders: Table, store: Store, tmp_path: Path
) -> None:
    file = written(tmp_path, STREAM, PAID)
    succeeded("run", file, *LOCAL)
    first = there(orders.current_snapshot()).snapshot_id
    renamed(orders, "amount", "price")
    append(orders, [{"customer": "c0", "price": 100, "rank": 1}])
    written(tmp_path, STREAM, PAID.replace("amount", "price"))
    query = succeeded("explain", file, "--query", "each", "--batch", "0").output
    with duckdb.connect() as connection:
        connection.register("rows_", orders.refresh().scan(snapshot_id=first).to_arrow())
        connection.execute("CREATE TABLE orders AS SELECT *, 0 AS _partition, -1 AS _offset FROM rows_")
        right = sorted((f"c{number}", number) for number in range(6))
        assert sorted(connection.execute(query).fetchall()) == right
    swapped_in(told(Kind.TABLE_QUERY, "run", file, *LOCAL).follow())
    succeeded("run", file, *LOCAL)
    assert rows_of(store, "each", "paid") == sorted(f"{{'paid': {paid}}}" for paid in [*range(6), 100])
    assert "Table each is its query" in succeeded("verify", file).output


def test_a_dropped_column_does_not_come_back_by_any_name(orders: Table, store: Store, tmp_path: Path) -> None:
    rank = orders.schema().find_field("rank").field_id
    with orders.update_schema() as change:
        change.delete_column("rank")
    with orders.refresh().update_schema() as change:
        change.add_column(f"@{rank}", LongType())
    each = f"""orders.select('amount, "@{rank}" AS other', name="each").write("each")"""
    succeeded("run", written(tmp_path, STREAM, each), *LOCAL)
    assert rows_of(store, "each", "other") == ["{'other': None}"] * 6


@pytest.mark.parametrize("change", [swapped, made_again])
def test_kept_records_of_a_stream_have_no_values_of_other_columns(
    orders: Table, store: Store, tmp_path: Path, change: Change
) -> None:
    file = written(tmp_path, STREAM, LATEST)
    succeeded("run", file, *LOCAL)
    append(orders.refresh(), [{"customer": "c9", "amount": 100, "rank": 30}])
    succeeded("run", file, *LOCAL)
    change(orders, "amount", "rank")
    append(orders.refresh(), [{"customer": "c0", "amount": 200, "rank": 20}])
    found = told(Kind.STREAM_COLUMNS, "run", file, *LOCAL)
    swapped_in(found.follow())
    succeeded("run", file, *LOCAL)
    right = orders.refresh().scan().to_arrow().to_pylist()
    newest = {row["customer"]: row for row in sorted(right, key=lambda row: row["amount"] == 200)}
    assert rows_of(store, "newest", "customer", "amount", "rank") == sorted(
        repr({name: row[name] for name in ("customer", "amount", "rank")}) for row in newest.values()
    )
    assert "Table newest is its query" in succeeded("verify", file).output


def test_columns_that_no_step_uses_may_have_any_names(orders: Table, store: Store, tmp_path: Path) -> None:
    file = written(tmp_path, STREAM, PAID)
    succeeded("run", file, *LOCAL)
    renamed(orders, "rank", "place")
    append(orders.refresh(), [{"customer": "c0", "amount": 100, "place": 1}])
    succeeded("run", file, *LOCAL)
    made_again(orders, "", "place")
    append(orders.refresh(), [{"customer": "c0", "amount": 101, "place": 1}])
    succeeded("run", file, *LOCAL)
    assert len(rows_of(store, "each", "paid")) == 8


def parted(lake: Catalog, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    """A table of people with a column of parts, which may be in lists and maps."""
    entered(store, tmp_path / "docs", monkeypatch)
    parts = StructType(NestedField(11, "a", LongType()), NestedField(12, "b", LongType()))
    several = ListType(13, parts, element_required=False)
    by_name = MapType(14, StringType(), 15, parts, value_required=False)
    people = create(lake, "shop.people", {"id": LongType(), "of": parts, "many": several, "per": by_name}, 4)
    append(people, [person(key, a=key, b=10 + key) for key in range(6)])
    return people.refresh()


def person(key: int, **parts: int) -> dict[str, object]:
    return {"id": key, "of": parts or None, "many": [parts], "per": [("x", parts)]}


ABOUT = "\"of.a AS a, of.b AS b, many[1].a AS c, per['x'].b AS d\""
BY_STREAM = 'pipeline.stream("people", key="id", key_format="long", partitions=4)'


@pytest.mark.parametrize("change", [swapped, made_again])
@pytest.mark.parametrize(
    "line",
    [
        KEPT.replace(".write(", f'.select({ABOUT}, name="parts").write('),
        f'{BY_STREAM}.latest("_offset", name="newest").select({ABOUT}, name="parts").write("held", mode="upsert")',
    ],
    ids=["a table", "the newest of a stream"],
)
def test_kept_rows_have_no_values_of_other_parts(
    lake: Catalog, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, change: Change
) -> None:
    people = parted(lake, store, tmp_path, monkeypatch)
    file = written(tmp_path, line)
    succeeded("run", file, *LOCAL)
    for column in ("of", "many.element", "per.value"):
        change(people, f"{column}.a", f"{column}.b")
    append(people.refresh(), [person(7, a=70, b=71)])
    found = told(Kind.STREAM_COLUMNS, "run", file, *LOCAL)
    assert any("column 'of.b'" in each["what"] for each in found.findings)
    run_again(found)
    succeeded("run", file, *LOCAL)
    assert rows_of(store, "held", "id", "a", "b", "c", "d") == flat(people)
    assert "Table held is its query" in succeeded("verify", file).output


def flat(people: Table) -> list[str]:
    rows = people.refresh().scan().to_arrow().to_pylist()
    return sorted(
        repr(
            {
                "id": row["id"],
                "a": row["of"]["a"],
                "b": row["of"]["b"],
                "c": row["many"][0]["a"],
                "d": dict(row["per"])["x"]["b"],
            }
        )
        for row in rows
    )


def test_a_table_with_other_parts_is_begun_anew_and_its_batches_run_again(
    lake: Catalog, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    people = parted(lake, store, tmp_path, monkeypatch)
    line = KEPT.replace(".write(", f'.select({ABOUT}, name="parts").write(')
    file = written(tmp_path, line)
    succeeded("run", file, *LOCAL)
    for column in ("of", "many.element", "per.value"):
        renamed(people, f"{column}.a", "z")
    append(people.refresh(), [{"id": 7, "of": {"z": 1, "b": 2}, "many": None, "per": [("x", {"z": 3, "b": 4})]}])
    new = line.replace("of.a", "of.z").replace(".a AS c", ".z AS c")
    written(tmp_path, new)
    found = told(Kind.STREAM_COLUMNS, "run", file, *LOCAL)
    in_another_shell(*next(each for each in found.commands if each[0] == "forget"))
    run_again(told(Kind.STATE_CHANGED, "run", file, *LOCAL))
    succeeded("run", file, *LOCAL)
    assert len(rows_of(store, "held", "id")) == 7
    assert "Table held is its query" in succeeded("verify", file).output


def test_a_renamed_part_that_a_stream_uses_is_read_by_its_new_name_in_all_batches(
    lake: Catalog, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    people = parted(lake, store, tmp_path, monkeypatch)
    line = f'{BY_STREAM}.select("of.a AS a", name="parts").write("held")'
    file = written(tmp_path, line)
    succeeded("run", file, *LOCAL)
    renamed(people, "of.a", "z")
    append(people.refresh(), [{"id": 7, "of": {"z": 70, "b": 71}, "many": None, "per": None}])
    written(tmp_path, line.replace("of.a", "of.z"))
    found = told(Kind.TABLE_QUERY, "run", file, *LOCAL)
    assert "of.z" in succeeded("explain", file, "--query", "held", "--batch", "0").output
    assert "Table held is its query" in succeeded("verify", file).output
    run_again(found)
    succeeded("run", file, *LOCAL)
    assert rows_of(store, "held", "a") == sorted(f"{{'a': {a}}}" for a in (*range(6), 70))


@pytest.mark.parametrize("kept", [False, True], ids=["selected", "kept whole"])
def test_a_null_stands_for_a_column_that_was_dropped(orders: Table, store: Store, tmp_path: Path, kept: bool) -> None:
    whole = 'pipeline.table("orders", key="customer", partitions=4, kept=True)'
    lines = (f'{whole}.write("each", mode="upsert")',) if kept else (STREAM, PAID)
    file = written(tmp_path, *lines)
    succeeded("run", file, *LOCAL)
    with orders.refresh().update_schema() as change:
        change.delete_column("amount")
    append(orders.refresh(), [{"customer": "c9", "rank": 1}])
    found = told(Kind.TABLE_COLUMNS if kept else Kind.SQL_COLUMN, "run", file, *LOCAL)
    assert "NULL::BIGINT" in found.next
    now = f'{whole}.select("NULL::BIGINT AS amount, rank", name="all").write("each", mode="upsert")'
    written(tmp_path, *((now,) if kept else (STREAM, PAID.replace("amount::BIGINT", "NULL::BIGINT"))))
    run_again(told(Kind.STATE_BEGINS if kept else Kind.TABLE_QUERY, "run", file, *LOCAL))
    succeeded("run", file, *LOCAL)
    column = "amount" if kept else "paid"
    assert rows_of(store, "each", column) == [f"{{'{column}': None}}"] * 7
    assert "Table each is its query" in succeeded("verify", file).output


def test_parts_that_come_and_go_leave_others_as_they_are(
    lake: Catalog, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In files that were read, in others, and in those of earlier batches."""
    entered(store, tmp_path / "docs", monkeypatch)
    parts = StructType(NestedField(11, "a", LongType()), NestedField(12, "b", LongType()))
    several = ListType(13, parts, element_required=False)
    people = create(lake, "shop.people", {"id": LongType(), "of": parts, "many": several}, 4)
    append(people, [{"id": key, "of": {"a": key, "b": 1}, "many": [{"a": key, "b": 2}]} for key in range(4)])
    of = "of.a + coalesce(many[1].a, 0) AS a"
    stream = 'pipeline.stream("people", key="id", key_format="long", partitions=4)'
    file = written(tmp_path, f'{stream}.select("{of}", name="parts").write("held")')
    succeeded("run", file, *LOCAL)
    append(people, [{"id": 10, "of": {"a": 7, "b": 1}, "many": None}])
    with people.refresh().update_schema() as change:
        for name in ("of", "many.element"):
            change.add_column((*name.split("."), "c"), LongType())
    append(people.refresh(), [{"id": 11, "of": {"a": 8, "c": 3}, "many": [{"a": 1, "c": 1}]}])
    succeeded("run", file, *LOCAL)
    succeeded("backfill", file, "--from", "0", "--cascade", "--scheme", "tasks(3)", *LOCAL)
    with people.refresh().update_schema() as change:
        for name in ("of.b", "of.c", "many.element.c"):
            change.delete_column((*name.split("."),))
    append(people.refresh(), [{"id": 12, "of": {"a": 9}, "many": [{"a": 4}]}])
    succeeded("run", file, *LOCAL)
    right = [
        {"a": row["of"]["a"] + sum(each["a"] for each in row["many"] or [])}
        for row in people.refresh().scan().to_arrow().to_pylist()
    ]
    assert rows_of(store, "held", "a") == sorted(map(repr, right))
    assert "Table held is its query" in succeeded("verify", file).output


def test_a_renamed_key_is_that_of_all_batches(
    lake: Catalog, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered(store, tmp_path / "docs", monkeypatch)
    people = create(lake, "shop.people", {"id": LongType(), "amount": LongType()}, 4)
    append(people, [{"id": key, "amount": key} for key in range(6)])
    file = written(tmp_path, KEPT)
    succeeded("run", file, *LOCAL)
    renamed(people, "id", "number")
    rewrite(people.refresh(), live(people.refresh())[:1], [], Operation.OVERWRITE)
    written(tmp_path, KEPT.replace('key="id"', 'key="number"').replace("held", "numbered"))
    found = told(Kind.STREAM_COLUMNS, "run", file, *LOCAL)
    assert {*told(Kind.STATE_CHANGED, "run", file, *LOCAL).commands} == {*found.commands}
    swapped_in(found.follow())
    succeeded("run", file, *LOCAL)
    right = people.refresh().scan().to_arrow().to_pylist()
    assert rows_of(store, "numbered", "number", "amount") == sorted(map(repr, right))
    assert "Table numbered is its query" in succeeded("verify", file).output


@pytest.mark.parametrize("kept", [False, True], ids=["a stream", "a table"])
@pytest.mark.parametrize(
    ("name", "chosen"),
    [("amount", "price AS amount, of"), ("of.a", "amount, {a: of.price, b: of.b} AS of")],
    ids=["a column", "a part"],
)
def test_a_result_table_keeps_what_it_has_of_a_name_that_changed(
    lake: Catalog, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, chosen: str, kept: bool
) -> None:
    """One finding says what to write, and which command to run then."""
    entered(store, tmp_path / "docs", monkeypatch)
    parts = StructType(NestedField(11, "a", LongType()), NestedField(12, "b", LongType()))
    people = create(lake, "shop.people", {"id": LongType(), "amount": LongType(), "of": parts}, 4)
    append(people, [{"id": key, "amount": key, "of": {"a": key, "b": 1}} for key in range(4)])
    source = KEPT.partition(".write")[0] if kept else BY_STREAM
    to = '.write("held", mode="upsert")' if kept else '.write("held")'
    file = written(tmp_path, source + to)
    succeeded("run", file, *LOCAL)
    renamed(people, name, "price")
    for number in range(2):
        new = {"id": 7 + number, "amount": 7, "price": 7, "of": {"a": 7, "price": 7, "b": 1}}
        append(people.refresh(), [new])
        if number == 0:
            (found,) = told(Kind.STREAM_COLUMNS, "run", file, *LOCAL).findings
            assert f"was named {name!r}" in found["what"]
            assert "or to a table of another name, and run all batches again" in found["next"]
            written(tmp_path, f'{source}.select("{chosen}", name="whole"){to}')
            kind = Kind.STREAM_COLUMNS if kept or "." in name else Kind.TABLE_QUERY
            run_again(told(kind, "run", file, *LOCAL))
        succeeded("run", file, *LOCAL)
    right = [{"id": key, "amount": min(key, 7), "of": {"a": min(key, 7), "b": 1}} for key in (*range(4), 7, 8)]
    assert rows_of(store, "held", "id", "amount", "of") == sorted(map(repr, right))
    assert "Table held is its query" in succeeded("verify", file).output


def test_what_a_table_had_is_verified_although_another_has_its_name(
    lake: Catalog, orders: Table, store: Store, tmp_path: Path
) -> None:
    file = written(tmp_path, STREAM, PAID)
    succeeded("run", file, *LOCAL)
    lake.drop_table("shop.orders")
    create(lake, "shop.orders", {"customer": StringType(), "rank": LongType(), "amount": LongType()}, 4)
    assert "Table each is its query" in succeeded("verify", file).output
