"""Files whose schema says any type that Arrow has: values and keys are what they mean, or refused by name."""

from __future__ import annotations

import base64
import io
import re
import uuid
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coset.batches import steps
from coset.batches.planning import preview
from coset.sources.file_columns import cast_exactly
from coset.sources.plain_arrays import plain_type
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS
from partitioning.authoring.words import KeyFormatName
from partitioning.documents.store import Store
from partitioning.errors import Refused
from partitioning.hashes import placement_hash
from tests.batches import rows
from tests.footers import as_int96, int96
from tests.landed import land_file
from tests.refused import finding_of
from tests.running import next_batch, run_and_publish

NOON = datetime(2026, 1, 2, 12, 30, 15, 250_000)  # noqa: DTZ001
ZONED = NOON.replace(tzinfo=UTC)
ONE = uuid.UUID(int=7)
TEXT, BYTES, NUMBERS = ("ä", "b"), (b"\xff", b"b"), (1, 2)
NESTED = pa.struct([("x", pa.string_view()), ("y", pa.list_(pa.string_view()))])
STRUCTS = {"x": "ä", "y": ["a", None]}, {"x": None, "y": None}
SHAPE = pa.fixed_shape_tensor(pa.int32(), [2])

# Types with two values; what they are as SQL's text, if that is no text of Python's values.
VALUES: dict[pa.DataType, tuple[Any, ...]] = {
    pa.bool_(): (True, False),
    **{kind: NUMBERS for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    **{kind: NUMBERS for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())},
    **{kind: (1.5, 2.5) for kind in (pa.float16(), pa.float32(), pa.float64())},
    pa.list_(pa.float16()): ([1.5, None], []),
    **{kind: TEXT for kind in (pa.string(), pa.large_string(), pa.string_view())},
    **{kind: BYTES for kind in (pa.binary(), pa.large_binary(), pa.binary_view())},
    pa.binary(2): (b"ab", b"cd"),
    **{kind: (date(2026, 1, 2), date(1, 1, 1)) for kind in (pa.date32(), pa.date64())},
    **{kind: (time(12, 30, 15), time(0, 0)) for kind in (pa.time32("s"), pa.time32("ms"), pa.time64("us"))},
    pa.time64("ns"): (time(12, 30, 15), time(0, 0)),
    **{pa.timestamp(unit): (NOON.replace(microsecond=0), NOON.replace(1700, microsecond=0)) for unit in ("s", "ns")},
    **{pa.timestamp(unit): (NOON, NOON.replace(9999)) for unit in ("ms", "us")},
    **{pa.timestamp(unit, "UTC"): (ZONED, ZONED.replace(9999)) for unit in ("ms", "us")},
    pa.timestamp("ns", "UTC"): (ZONED, ZONED.replace(1700)),
    pa.timestamp("us", "Europe/Berlin"): (ZONED, ZONED.replace(1970)),
    **{pa.duration(unit): (timedelta(hours=1), timedelta(0)) for unit in ("s", "ms", "us", "ns")},
    **{
        kind: (Decimal("1.50"), Decimal("-2.25"))
        for kind in (pa.decimal32(5, 2), pa.decimal64(15, 2), pa.decimal128(38, 2), pa.decimal256(38, 2))
    },
    **{kind: (["ä", None], []) for kind in (pa.list_(pa.string()), pa.large_list(pa.large_string()))},
    **{kind: (["ä", None], []) for kind in (pa.list_view(pa.string_view()), pa.large_list_view(pa.string()))},
    pa.list_(pa.int64(), 2): ([1, None], [3, 4]),
    NESTED: STRUCTS,
    pa.list_view(NESTED): ([STRUCTS[0], None], [STRUCTS[1]]),
    pa.map_(pa.string_view(), pa.list_view(pa.int64())): ([("a", [1, 2])], [("b", None), ("c", [])]),
    pa.dictionary(pa.int8(), pa.string()): TEXT,
    pa.dictionary(pa.int32(), pa.large_string()): TEXT,
    pa.dictionary(pa.int32(), pa.int64()): NUMBERS,
    pa.struct([("x", pa.dictionary(pa.int8(), pa.string()))]): ({"x": "ä"}, {"x": "b"}),
    pa.uuid(): (ONE.bytes, ONE.bytes),
    pa.struct([("x", pa.uuid())]): ({"x": ONE.bytes}, {"x": None}),
    pa.bool8(): (True, False),
    pa.json_(): ('{"a": 1}', "[2]"),
    SHAPE: ([1, 2], [3, 4]),
    pa.opaque(pa.int32(), "of", "somebody"): NUMBERS,
}
KEYED = ["a", "b", None, "c"]
REFUSED = [pa.decimal256(76, 3), pa.decimal256(39, 2), pa.list_(pa.decimal256(76, 3))]
# No file of Parquet has these: PyArrow does not write them.
UNWRITTEN = [
    pa.month_day_nano_interval(),
    pa.run_end_encoded(pa.int32(), pa.string()),
    pa.dense_union([pa.field("a", pa.int32())]),
    pa.sparse_union([pa.field("a", pa.int32())]),
]
# Of what nothing says the type.
UNTYPED = [pa.null()]


def encoded(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """The values as a dictionary, or as the type that they have."""
    if not pa.types.is_dictionary(kind):
        return pa.array(values, kind)
    made = pa.array(values, kind.value_type).dictionary_encode()
    return pa.DictionaryArray.from_arrays(made.indices.cast(kind.index_type), made.dictionary)


def column(kind: pa.DataType, values: tuple[Any, ...]) -> pa.Array:
    """Of four records the values: the first, none, the first again, and the second."""
    four = [values[0], None, values[0], values[1]]
    if pa.types.is_dictionary(kind):
        return encoded(four, kind)
    if kind in (SHAPE, pa.bool8()):
        return pa.ExtensionArray.from_storage(kind, pa.array(four).cast(kind.storage_type))
    if pa.types.is_struct(kind) and kind.num_fields == 1:
        part = column(kind.field(0).type, tuple(each["x"] for each in values))
        return pa.StructArray.from_arrays([part], ["x"], mask=pa.array([each is None for each in four]))
    return pa.array(four, kind)


def test_every_type_that_arrow_has_is_in_these_tables() -> None:
    every = {number for name, number in vars(pa.lib).items() if name.startswith("Type_")}
    # PyArrow makes no arrays of these.
    every -= {pa.lib.Type_INTERVAL_MONTHS, pa.lib.Type_INTERVAL_DAY_TIME}
    kinds = [*VALUES, *REFUSED, *UNWRITTEN, *UNTYPED]
    assert every <= {kind.id for kind in kinds}
    for kind in UNWRITTEN:
        with pytest.raises(pa.ArrowNotImplementedError):
            pq.ParquetWriter(io.BytesIO(), pa.schema([("v", kind)]))


def views(store: Store, select: str, **declared: Any) -> Pipeline:
    made = Pipeline("typed", source=f"{store.root}/topics")
    stream = made.stream("views", key="ad", partitions=1, hash="opaque", null_keys="drop", **declared)
    stream.select(select).write("seen")
    return made


def land(store: Store, first: int, columns: dict[str, pa.Array]) -> None:
    """PyArrow does not write all that it reads; so views are written as what they mean, and called views."""
    table = pa.table({"ad": pa.array(KEYED, pa.string_view()), **columns})
    table = table.append_column("_offset", pa.array(range(first, first + len(table)), pa.int64()))
    written = [
        pa.chunked_array([cast_exactly(chunk, plain_type(chunk.type)) for chunk in each.chunks])
        if "view" in str(each.type)
        else each
        for each in table.columns
    ]
    plain, said = pa.table(written, table.column_names), base64.b64encode(table.schema.serialize().to_pybytes())
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, plain.schema, store_schema=False) as file:
        file.write_table(plain)
        file.add_key_value_metadata({"ARROW:schema": said})
    store.put(f"topics/views/partition=0/views+0+{first:010}.parquet", sink.getvalue())


def run(made: Pipeline, store: Store, docs: Path) -> None:
    run_and_publish(next_batch(made, store.root), docs)


@pytest.mark.parametrize("before", ["nothing", "files without the columns", "files with plain ones"])
def test_values_are_what_they_mean_behind_whatever_files(before: str, store: Store, tmp_path: Path) -> None:
    """A record without a key is dropped, so that the task takes a part of each batch."""
    written = {f"v{number}": column(kind, values) for number, (kind, values) in enumerate(VALUES.items())}
    plain = {f"v{number}": column(plain_type(kind), values) for number, (kind, values) in enumerate(VALUES.items())}
    if before != "nothing":
        land(store, 0, plain if before == "files with plain ones" else {})
    land(store, 4 if before != "nothing" else 0, written)
    run(views(store, ", ".join(f"{name}::VARCHAR AS {name}" for name in written)), store, tmp_path)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("plain", pa.table(plain))
        texts = ", ".join(f"{name}::VARCHAR" for name in plain)
        expected = connection.execute(f"SELECT {texts} FROM plain").fetchall()
    nothing = [(None,) * len(plain)] * 4
    files = {"nothing": [expected], "files without the columns": [nothing, expected]}.get(before, [expected] * 2)
    wanted = [(key, *row) for file in files for key, row in zip(KEYED, file, strict=True) if key]
    assert sorted(rows(store.root, "seen"), key=str) == sorted(wanted, key=str)


@pytest.mark.parametrize("kind", REFUSED, ids=str)
def test_a_type_that_sql_lacks_is_refused_by_name(kind: pa.DataType, store: Store) -> None:
    land(store, 0, {"v": pa.nulls(4, kind)})
    named = re.escape(str(kind).replace("item", "element"))
    with pytest.raises(Refused, match=f"column 'v' is {named}, a type that DuckDB does not have"):
        preview(views(store, "ad AS a"), store)


KEYS: dict[str, tuple[tuple[Any, ...], list[pa.DataType]]] = {
    "string": (
        ("ä", "b"),
        [
            pa.string(),
            pa.large_string(),
            pa.string_view(),
            pa.dictionary(pa.int8(), pa.string()),
            pa.dictionary(pa.int32(), pa.large_string()),
        ],
    ),
    "bytes": ((b"\xff1", b"b2"), [pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(2)]),
    "uuid": ((str(ONE), str(uuid.UUID(int=8))), [pa.string(), pa.string_view()]),
    "long": ((1, 2), [pa.int64(), pa.dictionary(pa.int8(), pa.int64())]),
    "int": ((1, 2), [pa.int32()]),
    "double": ((1.5, 2.5), [pa.float64()]),
}


def test_keys_are_what_they_mean_in_each_file(store: Store, tmp_path: Path) -> None:
    """Of each key format a stream, whose files call the key by each type; the first of them has no key at all."""
    made, source = Pipeline("keyed", source=f"{store.root}/topics"), f"{store.root}/topics"
    for key_format, (keys, kinds) in KEYS.items():
        name, said = f"by_{key_format}", cast("KeyFormatName", key_format)
        places = [placement_hash(key, key_format) % 2 for key in keys]
        for partition in range(2):
            mine = [key for key, place in zip(keys, places, strict=True) if place == partition]
            land_file(pa.table({"k": pa.nulls(2)}), name, source, partition, 0)
            for number, kind in enumerate(kinds):
                land_file(
                    pa.table({"k": encoded([*mine, None], kind)}), name, source, partition, 2 + number * (len(mine) + 1)
                )
        stream = made.stream(name, key="k", partitions=2, key_format=said, null_keys="drop")
        stream.aggregate("count(*) AS n").write(name)
    run(made, store, tmp_path)
    for key_format, (keys, kinds) in KEYS.items():
        assert sorted(rows(store.root, f"by_{key_format}")) == [(key, len(kinds)) for key in sorted(keys)]


FAR = [datetime(9999, 12, 31, 23, 59, 59, 999_999), datetime(1, 1, 1), datetime(1677, 1, 1), NOON, None]  # noqa: DTZ001


GEOMETRY = {"ARROW:extension:name": "geoarrow.wkb", "ARROW:extension:metadata": "{}"}


@pytest.mark.parametrize("said", [(GEOMETRY, None), (None, GEOMETRY)], ids=["first", "then"])
def test_bytes_that_are_called_geometry_are_bytes_wherever_they_are_read(
    said: Sequence[dict[str, str] | None], store: Store, tmp_path: Path
) -> None:
    """GeoArrow's name of a type stands beside a column, and two schemas are equal that differ in it only. The second
    file begins with the last record of the first."""
    point = bytes.fromhex("0101000000000000000000f03f0000000000000040")
    values = {"g": point, "s": {"g": point}, "l": [point], "m": [("k", point)]}
    for first, beside in enumerate(said):
        field = pa.field(f"g{said.index(None)}", pa.binary(), metadata=beside)
        kinds = (field.type, pa.struct([field.with_name("g")]), pa.list_(field), pa.map_(pa.string(), field))
        fields = [pa.field(name, kind, metadata=beside) for name, kind in zip(values, kinds, strict=True)]
        arrays = [pa.array([value] * 2, kind) for value, kind in zip(values.values(), kinds, strict=True)]
        schema = pa.schema([("ad", pa.string()), *fields, ("_offset", pa.int64())])
        table = pa.Table.from_arrays([pa.array(["a"] * 2), *arrays, pa.array([first, first + 1])], schema=schema)
        pq.write_table(table, sink := io.BytesIO())
        store.put(f"topics/views/partition=0/views+0+{first:010}.parquet", sink.getvalue())
    run(views(store, "octet_length(g) AS g, s.g AS s, l[1] AS l, m['k'] AS m"), store, tmp_path)
    assert rows(store.root, "seen") == [("a", 21, point, point, point)] * 3


def nanos(at: datetime | None, finer: int = 0) -> bytes | None:
    """A time as INT96."""
    return None if at is None else int96((at - datetime(1970, 1, 1)) // timedelta(microseconds=1) * 1000 + finer)  # noqa: DTZ001


def land_int96(store: Store, first: int, times: list[bytes | None]) -> str:
    """Land times, of themselves and within a struct, a list and a map, two records a row group."""
    kind = pa.binary(12)
    columns = {
        "ad": ["a"] * len(times),
        "t": pa.array(times, kind),
        "s": pa.array([{"x": each, "n": 1} for each in times], pa.struct([("x", kind), ("n", pa.int64())])),
        "l": pa.array([[each, each] for each in times], pa.list_(kind)),
        "m": pa.array([[("k", each)] for each in times], pa.map_(pa.string(), kind)),
        "_offset": range(first, first + len(times)),
    }
    sink = io.BytesIO()
    plain: dict[str, Any] = {"use_dictionary": False, "store_schema": False, "compression": "none"}
    pq.write_table(pa.table(columns), sink, row_group_size=2, **plain)
    key = f"topics/views/partition=0/views+0+{first:010}.parquet"
    store.put(key, as_int96(sink.getvalue()))
    return f"{store.root}/{key}"


WITHIN = "t, s.x AS s, l[2] AS l, m['k'] AS m"


def test_int96_times_beyond_those_of_nanoseconds_are_what_they_are(store: Store, tmp_path: Path) -> None:
    """Julian days and nanoseconds of the day: 9999 would be 1816 if they were nanoseconds since 1970."""
    land_int96(store, 0, [nanos(at) for at in FAR])
    made = Pipeline("typed", source=f"{store.root}/topics")
    stream = made.stream("views", key="ad", partitions=1, hash="opaque", time="t")
    stream.filter("t >= TIMESTAMP '2100-01-01'").select("t").write("late")
    stream.select(WITHIN).write("seen")
    run(made, store, tmp_path)
    assert rows(store.root, "late") == [("a", FAR[0])]
    assert sorted(rows(store.root, "seen"), key=str) == sorted([("a", *[at] * 4) for at in FAR], key=str)


@pytest.mark.parametrize("at", [NOON, FAR[0]])
def test_a_part_finer_than_microseconds_is_refused_by_name_or_kept(at: datetime, store: Store, tmp_path: Path) -> None:
    file = land_int96(store, 0, [nanos(NOON), nanos(at, 789)])
    finding = finding_of(run, views(store, WITHIN), store, tmp_path)
    assert f"column 't' cannot be read as TIMESTAMP: Failed to parse string: '{at}789'" in finding.what
    assert finding.where == file
    kind = "TIMESTAMP_NS" if at == NOON else "VARCHAR"
    assert finding.then.startswith(f"declare cast={{'t': '{kind}'}}, which reads it, and ")
    if at == NOON:
        made = views(store, "epoch_ns(t) % 1000 AS t", cast={"t": "TIMESTAMP_NS"})
        steps.replan(made, store.root, DEFAULTS, "cast")
        run(made, store, tmp_path)
        assert rows(store.root, "seen") == [("a", 0), ("a", 789)]


def test_a_year_that_arrow_does_not_print_is_told_and_read_as_text(store: Store, tmp_path: Path) -> None:
    land_int96(store, 0, [int96(10**22), None])
    finding = finding_of(run, views(store, WITHIN), store, tmp_path)
    assert "cannot be read as TIMESTAMP" in finding.what
    assert finding.then.startswith("declare cast={'t': 'VARCHAR'}, which reads it, and ")
    made = views(store, "t", cast={"t": "VARCHAR"})
    steps.replan(made, store.root, DEFAULTS, "cast")
    run(made, store, tmp_path)
    assert rows(store.root, "seen") == [("a", "318857-05-20 17:46:40.000000"), ("a", None)]


def test_a_record_with_a_finer_time_is_set_aside_alone(store: Store, tmp_path: Path) -> None:
    land_int96(store, 0, [nanos(FAR[0]), nanos(NOON, 1), nanos(NOON)])
    run(views(store, WITHIN, bad_records="set aside"), store, tmp_path)
    assert rows(store.root, "seen") == [("a", *[NOON] * 4), ("a", *[FAR[0]] * 4)]


MOST = 2**63 - 1


@pytest.mark.parametrize(("unit", "number"), [("ns", MOST), ("ns", -MOST), ("ms", 2**62)])
@pytest.mark.parametrize("nested", [False, True])
def test_a_time_that_sql_takes_for_another_is_refused(
    unit: str, number: int, nested: bool, store: Store, tmp_path: Path
) -> None:
    """DuckDB takes the least and the most of each unit for infinity, and casts of others may end its database."""
    times = pa.array([0, number, None, 1], pa.timestamp(unit))
    land(store, 0, {"v": pa.StructArray.from_arrays([times], ["x"]) if nested else times})
    with pytest.raises(
        Refused, match=rf"column 'v' cannot be read as .*: {number} {unit} since 1970 is no time in SQL"
    ) as caught:
        run(views(store, "v.x::TIMESTAMP AS v" if nested else "v::TIMESTAMP AS v"), store, tmp_path)
    told = "land the column under another name" if nested else "declare cast={'v': 'BIGINT'}, which reads it"
    assert told in caught.value.findings[0].then


def test_nanoseconds_of_a_time_zone_are_refused_or_kept(store: Store, tmp_path: Path) -> None:
    land(store, 0, {"v": pa.array([0, 1, None, 2], pa.timestamp("ns", "UTC"))})
    with pytest.raises(
        Refused, match=r"column 'v' cannot be read as TIMESTAMP WITH TIME ZONE: .* lose data: 1"
    ) as caught:
        run(views(store, "v"), store, tmp_path)
    assert "declare cast={'v': 'TIMESTAMP_NS'}, which reads it" in caught.value.findings[0].then
