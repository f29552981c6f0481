"""Combines by chance: what is planned makes of parts of the records, in any order, what DuckDB makes of all at once."""

from __future__ import annotations

import random
from collections.abc import Iterator

import duckdb
import pytest

from coset.testing.likeness import without
from partitioning.authoring.pipeline import Pipeline
from partitioning.errors import Refused
from partitioning.model.graph import Step, quote
from partitioning.model.streams import Column, Discovered
from spark_jobs.sql.column_check import check_sql
from spark_jobs.sql.combined_results import Aggregated
from spark_jobs.sql.expressions import Rules, parse
from tests.examples import share

TYPES = {
    "k": "VARCHAR",
    "n": "BIGINT",
    "m": "BIGINT",
    "x": "DOUBLE",
    "f": "FLOAT",
    "d": "DECIMAL(9,2)",
    "s": "VARCHAR",
    "b": "BOOLEAN",
    "xs": "BIGINT[]",
    "r": "STRUCT(a BIGINT, s VARCHAR)",
    "shown": "DOUBLE",
}
STREAM = Discovered("s", (*(Column(name, kind) for name, kind in TYPES.items()), Column("_offset", "BIGINT")), ())
# What records have: few values, which come again, and no value.
GIVEN = {
    "BIGINT": ("NULL", "-7", "-1", "0", "2", "3", "5", "9000"),
    "DOUBLE": ("NULL", "-2.25", "0", "0.25", "4.5", "150"),
    "FLOAT": ("NULL", "-2.25", "0", "0.25", "4.5", "16777216"),
    "DECIMAL(9,2)": ("NULL", "-0.75", "0", "0.25", "3.49"),
    "VARCHAR": ("NULL", "' x'", "'W'", "'10'", "'9'", "''"),
    "BOOLEAN": ("NULL", "true", "false"),
    "BIGINT[]": ("NULL", "[]", "[1]", "[3, 1]", "[2, NULL, 2]"),
    "STRUCT(a BIGINT, s VARCHAR)": ("NULL", "{'a': 1, 's': 'u'}", "{'a': NULL, 's': 'v'}", "{'a': 1, 's': NULL}"),
}
USUAL = {
    "BIGINT": ("sum({})", "min({})", "max({})"),
    "VARCHAR": ("min({})", "max({})"),
    "BOOLEAN": ("bool_or({})", "bool_and({})", "max({})"),
    "BIGINT[]": (
        "list_sort(flatten(list({})))",
        "list_sort(list_distinct(flatten(list({}))))",
        "list_slice(list_reverse_sort(flatten(list({}))), 1, 2)",
    ),
    "STRUCT(a BIGINT, s VARCHAR)": ("max({})", "min({})"),
}
AGGREGATES = {
    "BIGINT": ("bit_xor({})", "count({})", "count(*)", "avg({})", "first({} ORDER BY {})", "sum({}) FILTER ({} > 2)",
               "sum(DISTINCT {})", "arg_max({}, {} % 4)", "product({})", "count(DISTINCT {})"),
    "VARCHAR": ("string_agg({}, '' ORDER BY {})", "any_value({} ORDER BY {})", "arg_min({}, length({}))"),
    "BOOLEAN": ("count({}) > 1", "bool_or({}) FILTER (NOT {})", "sum({})"),
    "BIGINT[]": ("list_slice(list_sort(flatten(list({}))), 2, 3)", "flatten(list_sort(list({})))", "flatten(list({}))",
                 "list_distinct(flatten(list({})))", "list_sort(list_slice(flatten(list({})), 1, 2))"),
    "STRUCT(a BIGINT, s VARCHAR)": ("any_value({} ORDER BY {})", "max({}) FILTER ({}.a > 0)"),
}  # fmt: skip
ALIKE = {"DOUBLE": "BIGINT", "FLOAT": "BIGINT", "DECIMAL(9,2)": "BIGINT"}
AROUND = {
    "BIGINT": ("round({}, -1)", "coalesce({}, 0)", "greatest({}, 3)", "abs({})", "CASE WHEN {} > 5 THEN 5 ELSE {} END",
               "{} + 1", "CASE WHEN count(*) > 2 THEN {} END", "-{}"),
    "VARCHAR": ("trim({})", "lower({})", "coalesce({}, '')"),
    "BOOLEAN": ("NOT {}", "coalesce({}, false)", "{} AND count(*) > 1"),
}  # fmt: skip
OF_RECORDS = {
    "BIGINT": ("{} + 1", "abs({})", "CASE WHEN {} > 3 THEN {} END", "{} * n", "{} / 4"),
    "VARCHAR": ("upper({})", "{} || 'a'"),
    "BOOLEAN": ("{} OR n > 3",),
    "BIGINT[]": ("list_transform({}, lambda e: e + 1)",),
}


class Combined:
    """Writes aggregates of columns of the same names that fit one another. What is `shown` is made of them, and nothing
    else is made of it."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        names = chance.sample([*TYPES][1:-1], chance.choice((1, 1, 2)))
        known = AGGREGATES if chance.random() < 0.2 else USUAL
        self._usual = {name: chance.choice(known[ALIKE.get(TYPES[name], TYPES[name])]) for name in names}
        self.names = [*self._usual, "shown"]

    def columns(self, *, of_records: float = 0, wrong: bool = False) -> str:
        """The columns, of which one is perhaps made in a wrong way; or of more than a column of a record."""
        made = {name: self._usual[name].replace("{}", self._given(name, of_records)) for name in self._usual}
        name = self._chance.choice([*made])
        made["shown"] = f"length(coalesce(({made[name]})::VARCHAR, 'none')) / 3"
        if wrong:
            made[name] = self._wrong(name)
        return ", ".join(f"({sql})::{TYPES[name]} AS {name}" for name, sql in made.items())

    def _given(self, name: str, of_records: float) -> str:
        others = OF_RECORDS.get(ALIKE.get(TYPES[name], TYPES[name]), ("{}",))
        return (self._chance.choice(others) if self._chance.random() < of_records else "{}").replace("{}", name)

    def _wrong(self, name: str) -> str:
        kind, usual = ALIKE.get(TYPES[name], TYPES[name]), self._usual[name]
        others = self._chance.choice((USUAL[kind], AGGREGATES[kind], AGGREGATES[kind]))
        match self._chance.randrange(4):
            case 0:
                return self._chance.choice(AROUND.get(kind, others)).replace("{}", usual).replace("{}", name)
            case 1:
                return usual.replace("{}", self._given(name, 1))
            case _:
                return self._chance.choice(others).replace("{}", name)


def written(chance: random.Random) -> Pipeline:
    """A combine of records, of what tasks or batches made of them, or of what was made of that."""
    pipeline, combined, wrong = Pipeline("p", source="s3://nowhere/topics"), Combined(chance), chance.randrange(5)
    each = pipeline.stream("s", key="k", partitions=2).select(", ".join([*TYPES][1:]), name="each")
    part = combined.columns(of_records=0.3, wrong=wrong == 0)
    again, last = combined.columns(wrong=wrong == 1), combined.columns(wrong=wrong == 2)
    match chance.randrange(6):
        case 0:
            each = each.select(", ".join(combined.names), name="few")
            made = each.combine(last, running=True, name="last")
        case 1:
            made = each.partial(part, by=chance.choice(("k", None)), name="part").combine(last, fan_in=2, name="last")
        case 2:
            made = each.aggregate(part).combine(last, running=True, name="last")
        case 3:
            made = each.aggregate(part).aggregate(again).combine(last, running=True, name="last")
        case 4:
            by = chance.choice(("upper(k)", "upper(k)", f"{combined.names[0]}::VARCHAR"))
            made = each.aggregate(part).rekey("g", sql=by).combine(f"k, {last}", running=True, name="last")
        case _:
            made = each.partial(f"{part}, n % 2 AS odd", by="k", name="part").combine(f"{last}, odd", name="last")
    made.to_stream().write("t")
    return pipeline


def fed(chance: random.Random, connection: duckdb.DuckDBPyConnection) -> int:
    """Records of some keys, each in one of so many parts."""
    parts = chance.randint(2, 4)
    rows = [
        ", ".join((str(chance.randrange(parts)), chance.choice(("'a'", "'A'", "NULL")), *_values(chance)))
        for _ in range(chance.randint(3, 16))
    ]
    typed = ", ".join(f"{name}::{kind} AS {name}" for name, kind in TYPES.items())
    values = ", ".join(f"({row})" for row in rows)
    sql = f"SELECT part, {typed} FROM (VALUES {values}) AS given(part, {', '.join(TYPES)})"
    connection.execute(f"CREATE OR REPLACE TEMP TABLE records AS {sql}")
    return parts


def _values(chance: random.Random) -> Iterator[str]:
    return (chance.choice(GIVEN[kind]) for name, kind in TYPES.items() if name != "k")


def made(connection: duckdb.DuckDBPyConnection, steps: list[Step], parts: list[int]) -> list[tuple[object, ...]]:
    """What the last of the steps makes, which goes on from what it made of the parts before."""
    *before, last = steps
    connection.execute("DROP TABLE IF EXISTS kept")
    for number, part in enumerate(parts):
        known = f'"each" AS (SELECT * EXCLUDE (part) FROM records WHERE {part} IN (-1, part))'
        known += "".join(f", {quote(step.name)} AS ({step.sql})" for step in before)
        reads = quote(last.inputs[0])
        both = f"FROM {reads}{' UNION ALL BY NAME FROM kept' if number else ''}"
        sql = f"WITH {known} SELECT * FROM (WITH {reads} AS ({both}) {last.sql})"
        connection.execute(f"CREATE OR REPLACE TEMP TABLE kept AS {sql}")
    return sorted(connection.execute("FROM kept").fetchall(), key=repr)


@pytest.mark.parametrize("seed", share(range(2)))
def test_a_combine_that_is_planned_is_its_query(seed: int) -> None:
    chance, planned = random.Random(seed), 0
    with duckdb.connect() as connection:
        for number in range(120):
            pipeline = written(chance)
            try:
                check_sql(pipeline, [STREAM])
            except Refused:
                continue
            planned += 1
            steps = [step for step in pipeline.steps if step.name not in {"each", "last.to_stream"}]
            for _ in range(2):
                parts = [*range(fed(chance, connection))]
                chance.shuffle(parts)
                at_once, apart = made(connection, steps, [-1]), made(connection, steps, parts)
                assert not without(at_once, apart) + without(apart, at_once), (number, [step.sql for step in steps])
    assert planned > 40, planned


CALLS = (
    *("{}(n)", "{}(x)", "{}(s)", "{}(b)", "{}(xs)", "{}(r)", "{}(DISTINCT n)", "{}(n, 2)", "{}(x, 0.5)"),
    *("{}(s, n)", "{}(n, (m, n))", "{}(r, (n, r))", "{}(s ORDER BY n)", "{}(s, '-' ORDER BY n, s)", "len({}(n))"),
    *("{}(n + m ORDER BY n, m)", "list_sort({}(n))", "list_sort(list_distinct({}(s)))", "{}(x ORDER BY abs(x))"),
)


def test_aggregates_of_rows_that_change_are_the_same_in_any_order() -> None:
    chance, planned = random.Random(0), set[str]()
    with duckdb.connect() as connection:
        rules = Rules(connection)
        sql = "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type = 'aggregate' ORDER BY ALL"
        names = [*(name for (name,) in connection.execute(sql).fetchall()), "geomean", "json_group_array"]
        connection.execute("SET threads = 1")
        fed(chance, connection)
        for call in (each.format(name) for each in CALLS for name in names):
            if [*Aggregated(rules, parse(connection, call), TYPES, ()).of_order()]:
                continue
            orders = (f"SELECT {call} FROM (FROM records ORDER BY md5(rowid::VARCHAR || {seed}))" for seed in range(3))
            try:
                one, *others = [connection.execute(each).fetchall() for each in orders]
            except duckdb.Error:
                continue
            planned.add(call)
            assert not any(without(one, other) for other in others), (call, one, others)
    assert len(planned) > 150, len(planned)
