"""A stream whose columns change while it is landed: read together under one schema, or refused with what to do."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coset.batches import steps
from coset.batches.planning import preview
from coset.batches.ref import BatchRef
from coset.sources import landed
from coset.sources.landed import discover
from partitioning.authoring.pipeline import Pipeline
from partitioning.documents.store import Store
from partitioning.errors import Finding, Refused
from partitioning.explain.explain import explain
from partitioning.model.streams import Column
from tests.batches import rows
from tests.landed import land_file
from tests.refused import finding_of
from tests.running import next_batch, run_and_publish

MIDNIGHT = datetime(2026, 1, 2)  # noqa: DTZ001


def views(store: Store, select: str = "n", **declared: Any) -> Pipeline:
    made = Pipeline("evolving", source=f"{store.root}/topics")
    made.stream("views", key="ad", partitions=2, hash="opaque", **declared).select(select).write("seen")
    return made


def land(store: Store, first: int, partition: int = 0, required: tuple[str, ...] = (), **columns: Any) -> str:
    table = pa.table(columns)
    fields = [field.with_nullable(field.name not in required) for field in table.schema]
    return land_file(table.cast(pa.schema(fields)), "views", f"{store.root}/topics", partition, first)


def published(store: Store, made: Pipeline, docs: Path) -> BatchRef:
    ref = next_batch(made, store.root)
    run_and_publish(ref, docs)
    return ref


def refused(store: Store, made: Pipeline) -> Finding:
    return finding_of(preview, made, store)


def test_columns_that_are_added_dropped_reordered_and_widened_are_read_together(store: Store, tmp_path: Path) -> None:
    wide = [
        {"ad": ["a", "b"], "n": pa.array([1, 2], pa.int32()), "price": [Decimal("1.50"), Decimal("9.99")]},
        {"n": pa.array([2**40, 4], pa.int64()), "ad": ["c", "d"], "page": ["home", None]},
        {"ad": ["e"], "page": ["cart"], "price": [Decimal("12345.6789")], "share": pa.array([0.5], pa.float32())},
        {"ad": ["f"], "share": pa.array([0.1], pa.float64()), "n": pa.array([7], pa.int16())},
    ]
    for number, columns in enumerate(wide):
        land(store, [0, 2, 0, 1][number], number // 2, **columns)
    made = views(store, "n, price, page, share")
    (found,) = discover(made.streams)
    assert {column.name: column.type for column in found.columns} == {
        "ad": "VARCHAR",
        "n": "BIGINT",
        "price": "DECIMAL(9,4)",
        "_offset": "BIGINT",
        "page": "VARCHAR",
        "share": "DOUBLE",
    }
    published(store, made, tmp_path)
    tables = [pa.table(columns) for columns in wide]  # noqa: F841
    union = " UNION ALL BY NAME ".join(f"SELECT * FROM tables_{number}" for number in range(len(wide)))
    with duckdb.connect() as connection:
        for number, columns in enumerate(wide):
            connection.register(f"tables_{number}", pa.table(columns))
        expected = connection.execute(f"SELECT ad, n, price, page, share FROM ({union}) ORDER BY ALL").fetchall()
    assert [row[:5] for row in rows(store.root, "seen")] == expected


def test_a_batch_goes_on_under_the_schema_of_those_before_and_says_what_changed(store: Store, tmp_path: Path) -> None:
    made = views(store)
    land(store, 0, ad=["a"], n=pa.array([1], pa.int32()), page=["home"], required=("n",))
    before = published(store, made, tmp_path)
    land(store, 1, ad=["b"], n=pa.array([None], pa.int32()), ref=["x"])
    ref = published(store, made, tmp_path)
    page = steps.plan_page(ref)
    assert "| stream views: column n                | INTEGER, never null | INTEGER   |" in page
    assert "| stream views: column ref              |                     | VARCHAR   |" in page
    assert "| stream views: columns that files lack |                     | page, ref |" in page
    assert before.load()[1].streams[0].required == ("n",)
    assert [row[:2] for row in rows(store.root, "seen")] == [("a", 1), ("b", None)]


def test_a_running_aggregate_goes_on_over_a_widened_column(store: Store, tmp_path: Path) -> None:
    made = Pipeline("evolving", source=f"{store.root}/topics")
    stream = made.stream("views", key="ad", partitions=1)
    parts = stream.partial("max(n)::BIGINT AS n, count(*) AS views", by="ad")
    parts.combine("max(n)::BIGINT AS n, sum(views)::BIGINT AS views", running=True).to_stream().write("seen")
    land(store, 0, ad=["a", "b"], n=pa.array([1, 2], pa.int32()))
    published(store, made, tmp_path)
    land(store, 2, ad=["a"], n=pa.array([2**40], pa.int64()))
    published(store, made, tmp_path)
    assert ("a", 2**40, 2) in [row[:3] for row in rows(store.root, "seen")]


def test_types_that_do_not_go_together_are_refused_with_both_types_both_files_and_what_to_do(store: Store) -> None:
    files = land(store, 0, ad=["a"], n=pa.array([1], pa.int64())), land(store, 1, ad=["b"], n=["many"])
    finding = refused(store, views(store))
    assert finding.what == "views: columns differ: n is VARCHAR, not BIGINT"
    assert finding.where == f"{files[1]}, compared with {files[0]}"
    assert finding.then == (
        "declare cast={'n': 'VARCHAR'}, which reads them; or land the column under another name, "
        "or give the stream another name from there on"
    )


DAY = datetime(2026, 1, 2, 3, 4, 5)  # noqa: DTZ001
DIFFERING = [
    # The type of the files before reads all values.
    ([1, 2], ["3", None], "BIGINT", [1, 2, 3, None]),
    (["x", None], [1, 2], "VARCHAR", ["x", None, "1", "2"]),
    # It does not, and another does.
    ([1, 2], ["3", "many"], "VARCHAR", ["1", "2", "3", "many"]),
    ([1, 2], [0.5, 2.0], "DOUBLE", [1.0, 2.0, 0.5, 2.0]),
    ([True, False], ["true", "yes"], "VARCHAR", ["true", "false", "true", "yes"]),
    ([DAY.date(), None], [DAY, DAY], "TIMESTAMP", [datetime(2026, 1, 2), None, DAY, DAY]),  # noqa: DTZ001
    ([{"a": 1}, {"a": 2}], [{"a": 3, "b": 4}, None], "STRUCT(a BIGINT, b BIGINT)", None),
    # One would change values.
    ([1, 2], ["03", "4"], "VARCHAR", ["1", "2", "03", "4"]),
    ([True, False], [1, 2], "BIGINT", [1, 0, 1, 2]),
    ([Decimal("1.25"), None], [0.125, 1.0], "DOUBLE", [1.25, None, 0.125, 1.0]),
    # Bytes read any text, so they are the last: a column without a value, or with text, is bytes by some writers.
    (pa.nulls(2, pa.binary()), ["x", None], "VARCHAR", [None, None, "x", None]),
    ([b"x", None], [1, 2], "VARCHAR", ["x", None, "1", "2"]),
    ([b"\xff", None], ["x", "y"], "BLOB", [b"\xff", None, b"x", b"y"]),
    # None does.
    ([{"a": 1}, {"a": 2}], [1, 2], None, None),
    ([[1], [2]], [1, 2], None, None),
]


@pytest.mark.parametrize(("one", "other", "kind", "wanted"), DIFFERING)
def test_the_cast_that_is_named_was_tried_on_the_files(
    one: list[Any], other: list[Any], kind: str | None, wanted: list[Any] | None, store: Store, tmp_path: Path
) -> None:
    land(store, 0, ad=["a", "b"], n=one)
    land(store, 2, ad=["c", "d"], n=other)
    then = refused(store, views(store)).then
    if kind is None:
        assert "cast" not in then
        return
    cast = {"n": kind}
    assert then.startswith(f"declare cast={cast!r}, which reads them; or ")
    published(store, views(store, cast=cast), tmp_path)
    if wanted:
        assert [row[1] for row in rows(store.root, "seen")] == wanted


def test_a_cast_is_tried_on_all_files_of_another_type_up_to_a_hundred(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(store, 0, ad=["a"], n=[1])
    for number, text in enumerate(["2", "3", "many"], start=1):
        land(store, number, ad=["a"], n=[text])
    with pytest.raises(Refused) as caught:
        preview(views(store), store)
    assert all("'VARCHAR'}, which reads them" in finding.then for finding in caught.value.findings)
    monkeypatch.setattr(landed, "_TRIED", 2)
    with pytest.raises(Refused) as caught:
        preview(views(store), store)
    assert "'BIGINT'}, which reads the first 2 of these 3" in caught.value.findings[0].then


TIMES = {unit: pa.array([DAY, None], pa.timestamp(unit)) for unit in ("ms", "us", "ns")}


@pytest.mark.parametrize(
    ("units", "kind"),
    [
        (("ms", "us"), "TIMESTAMP"),
        (("us", "ms"), "TIMESTAMP"),
        (("ns", "us"), "TIMESTAMP_NS"),
        (("ms", "ns"), "TIMESTAMP_NS"),
    ],
)
@pytest.mark.parametrize("batches", [1, 2])
def test_times_are_read_in_the_finest_unit(
    units: tuple[str, str], kind: str, batches: int, store: Store, tmp_path: Path
) -> None:
    made = views(store, "n::TIMESTAMP AS n, within.n::TIMESTAMP AS at")
    for number, unit in enumerate(units):
        # Within lists and structs as well.
        land(store, 2 * number, ad=["a", "b"], n=TIMES[unit], within=pa.StructArray.from_arrays([TIMES[unit]], ["n"]))
        if batches == 2:
            published(store, made, tmp_path)
    if batches == 1:
        published(store, made, tmp_path)
    assert [row[:3] for row in rows(store.root, "seen")] == [("a", DAY, DAY), ("a", DAY, DAY), *[("b", None, None)] * 2]
    (found,) = discover(made.streams)
    assert {column.type for column in found.columns if column.name == "n"} == {kind}


def test_a_time_that_the_finest_unit_does_not_reach_is_refused_with_a_cast_that_reads_it(
    store: Store, tmp_path: Path
) -> None:
    land(store, 0, ad=["a"], n=pa.array([DAY], pa.timestamp("ns")))
    file = land(store, 1, ad=["b"], n=pa.array([DAY.replace(year=9999)], pa.timestamp("us")))
    with pytest.raises(Refused, match=r"column 'n' cannot be read as TIMESTAMP_NS: .*out of bounds") as caught:
        published(store, views(store, "n::TIMESTAMP AS n"), tmp_path)
    (finding,) = caught.value.findings
    assert finding.where == file
    assert "declare cast={'n': 'TIMESTAMP'}, which reads it" in finding.then


def test_what_is_refused_can_be_cast(store: Store, tmp_path: Path) -> None:
    land(store, 0, ad=["a"], n=pa.array([1], pa.int64()))
    land(store, 1, ad=["b"], n=["2"])
    made = views(store, cast={"n": "INT8"})
    assert Column("n", "BIGINT") in discover(made.streams)[0].columns
    published(store, made, tmp_path)
    assert [row[:2] for row in rows(store.root, "seen")] == [("a", 1), ("b", 2)]


def test_a_value_that_cannot_be_cast_is_refused_with_its_file(store: Store, tmp_path: Path) -> None:
    land(store, 0, ad=["a"], n=pa.array([1], pa.int64()))
    file = land(store, 1, ad=["b"], n=["many"])
    with pytest.raises(Refused, match=r"column 'n' cannot be read as BIGINT.*many") as caught:
        published(store, views(store, cast={"n": "BIGINT"}), tmp_path)
    assert caught.value.findings[0].where == file


@pytest.mark.parametrize(
    ("column", "kind", "said"),
    [
        (pa.array([MIDNIGHT, MIDNIGHT + timedelta(hours=23, minutes=59)]), "DATE", "2026-01-02 23:59:00.*time of day"),
        (
            pa.array([{"A": 1, "b": 2}] * 2),
            "STRUCT(a BIGINT, b BIGINT)",
            "it has 'A', which is not in the type, and lacks 'a'",
        ),
        (pa.array([[{"x": 1}]] * 2), "STRUCT(a BIGINT)[]", "it has 'x', which is not in the type, and lacks 'a'"),
    ],
)
def test_a_cast_that_would_drop_what_a_value_has_is_refused(
    column: pa.Array, kind: str, said: str, store: Store, tmp_path: Path
) -> None:
    file = land(store, 0, ad=["a", "b"], n=column)
    with pytest.raises(Refused, match=f"column 'n' cannot be read as .*: {said}") as caught:
        published(store, views(store, cast={"n": kind}), tmp_path)
    assert caught.value.findings[0].where == file


def test_records_whose_fields_have_other_names_are_set_aside(store: Store, tmp_path: Path) -> None:
    land(store, 0, ad=["a", "b"], n=pa.array([{"A": 1}, None]))
    land(store, 0, 1, ad=["c"], n=pa.array([{"a": 2}]))
    made = views(store, "n.a AS a", bad_records="set aside", cast={"n": "STRUCT(a BIGINT)"})
    published(store, made, tmp_path)
    assert [row[:2] for row in rows(store.root, "seen")] == [("b", None), ("c", 2)]


def test_a_cast_goes_by_the_names_of_fields(store: Store, tmp_path: Path) -> None:
    land(store, 0, ad=["a", "b"], n=pa.array([{"b": 2, "a": 1}, {"b": 4, "a": 3}]))
    land(store, 0, 1, ad=["c"], n=pa.array([{"a": 5}]))
    land(store, 1, 1, ad=["d"], n=pa.array([{"a": 6, "b": 7, "c": 8}]))
    published(store, views(store, "n.a AS a, n.b AS b", cast={"n": "STRUCT(a BIGINT, b BIGINT)"}), tmp_path)
    assert [row[:3] for row in rows(store.root, "seen")] == [("a", 1, 2), ("b", 3, 4), ("c", 5, None), ("d", 6, 7)]


@pytest.mark.parametrize(
    ("cast", "said"),
    [
        ({"m": "BIGINT"}, "there is no column 'm' to cast"),
        ({"n": "NUMBER OF"}, "column 'n' is to be cast to 'NUMBER OF', which is no type"),
    ],
)
def test_a_cast_that_makes_no_sense_is_refused(store: Store, cast: dict[str, str], said: str) -> None:
    land(store, 0, ad=["a"], n=[1])
    assert said in refused(store, views(store, cast=cast)).what


@pytest.mark.parametrize("kind", ["VARIANT", "UNION(a INTEGER)", "BIGNUM"])
def test_a_cast_to_what_files_have_no_values_of_is_refused_before_or_while_they_are_read(
    kind: str, store: Store, tmp_path: Path
) -> None:
    land(store, 0, ad=["a"], n=[1])
    with pytest.raises(Refused, match=r"column 'n' (is to be cast to|cannot be read as)"):
        published(store, views(store, "n::VARCHAR AS n", cast={"n": kind}), tmp_path)


@pytest.mark.parametrize("name", ["ad", "_offset"])
def test_keys_and_offsets_are_not_cast(store: Store, name: str) -> None:
    with pytest.raises(Refused, match=f"column '{name}' cannot be cast"):
        views(store, cast={name: "VARCHAR"})


def test_a_key_that_is_widened_is_refused_as_it_lies_elsewhere(store: Store) -> None:
    land(store, 0, ad=pa.array([1], pa.int64()), n=[1])
    land(store, 1, ad=pa.array([1], pa.int32()), n=[1])
    finding = refused(store, views(store, key_format="long"))
    assert finding.what == "views: columns differ: ad is INTEGER, not BIGINT"
    assert "keys and offsets keep their types" in finding.then


def test_a_column_that_was_never_null_must_not_be_dropped(store: Store) -> None:
    files = land(store, 0, ad=["a"], n=[1], required=("n",)), land(store, 1, ad=["a"])
    finding = refused(store, views(store, "ad AS a"))
    assert finding.what == "views: columns differ: n is missing, not BIGINT, and it was never null"
    assert finding.where == f"{files[1]}, compared with {files[0]}"


def test_a_column_that_could_be_null_before_it_went_may_be_dropped(store: Store) -> None:
    land(store, 0, ad=["a"], n=[1], required=("n",))
    land(store, 1, ad=["a"], n=[1])
    land(store, 2, ad=["a"])
    # In another partition the column came later.
    land(store, 0, 1, ad=["a"])
    land(store, 1, 1, ad=["a"], n=[1], required=("n",))
    (found,) = discover(views(store).streams)
    assert (found.lacking, found.required) == (("n",), ())


NULLS = pa.nulls(2)
# A column in a file in which it is null throughout, and in one where it is not; what SQL makes of it, and its rows.
UNTYPED: list[tuple[pa.Array, pa.Array, str, list[Any]]] = [
    (NULLS, pa.array(["x", None]), "n", [None, None, "x", None]),
    (NULLS, pa.array([1.5, None]), "n", [None, None, 1.5, None]),
    (NULLS, pa.array([[1], []]), "n", [None, None, [1], []]),
    (
        pa.array([{"a": None, "b": 1}, None]),
        pa.array([{"b": 2**40, "a": "x"}, {"b": None, "a": None}]),
        "n.a || '-' || n.b",
        [None, None, f"x-{2**40}", None],
    ),
    (pa.array([[], [None]]), pa.array([["x"], None]), "n", [[], [None], ["x"], None]),
]


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(("nulls", "typed", "sql", "wanted"), UNTYPED)
def test_a_column_that_is_null_in_all_of_a_file_has_the_type_of_the_others(
    nulls: pa.Array, typed: pa.Array, sql: str, wanted: list[Any], first: bool, store: Store, tmp_path: Path
) -> None:
    files = [(["a", "b"], nulls), (["c", "d"], typed)]
    for number, (keys, column) in enumerate(files if first else files[::-1]):
        land(store, 2 * number, ad=keys, n=column)
    made = views(store, f"{sql} AS n")
    published(store, made, tmp_path)
    # Across batches as well.
    land(store, 4, ad=["e", "f"], n=nulls)
    published(store, made, tmp_path)
    assert [row[1] for row in rows(store.root, "seen")] == [*wanted, *wanted[:2]]


def test_a_column_without_a_value_so_far_has_no_type_and_joins_once_it_has(store: Store, tmp_path: Path) -> None:
    land(store, 0, ad=["a", "b"], n=NULLS)
    for made in (views(store, "upper(n) AS n"), views(store, "ad AS a", time="n")):
        finding = refused(store, made)
        assert finding.what == "column 'n' of stream 'views' is null in all records so far, so nothing says its type"
        assert finding.then == "declare it, as cast={'n': 'VARCHAR'}, or land a file in which it has a value"
    made = Pipeline("evolving", source=f"{store.root}/topics")
    made.stream("views", key="ad", partitions=2, hash="opaque", private=["n"]).filter("true").write("seen")
    _, sentence = steps.plan(made, store.root)
    told = "ull in all records of views so far, and so without a type: n; steps and tables have such a column once a"
    assert f"; n{told}" in sentence
    published(store, made, tmp_path)
    assert rows(store.root, "seen") == [("a",), ("b",)]
    # Nothing new is to be read, and what was read before says the same.
    for other in (views(store, "upper(n) AS n"), views(store, "ad AS a", time="n")):
        assert "column 'n' of stream 'views' is null in all records so far" in refused(store, other).what
    # A file without the column says no more of it.
    land(store, 2, ad=["c"])
    planned = preview(made, store)
    assert planned.plan is not None
    assert f"N{told}" in str(explain(planned.plan))
    land(store, 3, ad=["d", "e"], n=["x", None])
    planned = preview(made, store)
    assert planned.plan is not None
    assert "without a type" not in str(explain(planned.plan))
    published(store, made, tmp_path)
    wanted = [("a", None), ("b", None), ("c", None), ("d", "x"), ("e", None)]
    assert [row[:2] for row in rows(store.root, "seen")] == wanted


def test_a_column_without_a_value_so_far_is_of_the_type_that_is_declared(store: Store, tmp_path: Path) -> None:
    land(store, 0, ad=["a", "b"], n=NULLS)
    published(store, made := views(store, "upper(n) AS n", cast={"n": "VARCHAR"}), tmp_path)
    land(store, 2, ad=["c", "d"], n=["x", None])
    published(store, made, tmp_path)
    assert [row[:2] for row in rows(store.root, "seen")] == [("a", None), ("b", None), ("c", "X"), ("d", None)]


def test_a_part_of_a_column_that_is_null_in_all_values_is_refused_until_its_type_is_known(store: Store) -> None:
    file = land(store, 0, ad=["a", "b"], n=pa.array([{"x": None, "y": 1}, None]))
    finding = refused(store, views(store))
    assert finding.what == (
        "views: column 'n' is STRUCT(x \"NULL\", y BIGINT), and nothing says of which type its nulls are"
    )
    assert finding.where == file
    (cast,) = re.findall(r"cast=({.*})", finding.then)
    assert preview(views(store, "n.x AS x", cast=eval(cast)), store).plan is not None
    land(store, 2, ad=["a"], n=pa.array([{"x": 1, "y": 2}]))
    assert preview(views(store, "n.x AS x"), store).plan is not None


def test_keys_and_offsets_may_be_null_throughout_a_file(store: Store, tmp_path: Path) -> None:
    """Keys have the type of their format; a file without offsets is refused, and not passed over."""
    made = views(store, null_keys="own task")
    land(store, 0, ad=NULLS, n=[1, 2])
    published(store, made, tmp_path)
    land(store, 2, ad=["a"], n=[3])
    published(store, made, tmp_path)
    assert [row[:2] for row in rows(store.root, "seen")] == [("a", 3), (None, 1), (None, 2)]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"ad": ["x"], "n": [4], "_offset": pa.nulls(1)}), sink)
    store.put("topics/views/partition=1/views+1+0000000000.parquet", sink.getvalue().to_pybytes())
    assert refused(store, made).what == "views: 1 records have no offset"
