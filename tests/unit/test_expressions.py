"""Expressions are made of what is known; whatever else a parse tree may come to hold is refused."""

import pytest

from partitioning.errors import Refused
from spark_jobs.engine.task_database import connect
from spark_jobs.sql.expressions import Rules, Tree, parse

_LISTS = [
    "a, b.c AS d, -a, NOT a, a AND b, a IS NULL, a IN (1, 2), a BETWEEN 1 AND 2, a < b, a LIKE 'x', a COLLATE NOCASE",
    "CASE WHEN a THEN 1 ELSE 2 END, CAST(a AS int), TRY_CAST(a AS int), a::STRUCT(x int), DATE '2013-01-01'",
    "*, * EXCLUDE (a), COLUMNS('a.*'), [1, 2][1], a[1:2], {'x': 1}.x, MAP {'x': 1}, INTERVAL 1 day",
    "list_transform(a, lambda x: x + 1), [x FOR x IN a IF x > 1], abs(a), TRY(a / b)",
]


def _broken(tree: Tree) -> dict[str, str]:
    with connect() as connection:
        return Rules(connection).broken(tree, aggregates=False, columns={"a", "b"}, relations=set())


def _parsed(text: str) -> Tree:
    with connect() as connection:
        return parse(connection, text)


@pytest.mark.parametrize("text", _LISTS)
def test_what_sql_has_for_one_record_is_allowed(text: str) -> None:
    assert _broken(_parsed(text)) == {}


def test_a_clause_that_a_newer_duckdb_adds_is_refused() -> None:
    assert _broken({**_parsed("a"), "pivot_clause": {"on": "b"}}) == {
        "pivot_clause is no part of an expression": "write it as a step of its own"
    }


def test_a_kind_of_expression_that_a_newer_duckdb_adds_is_refused() -> None:
    tree = _parsed("a")
    (column,) = tree["select_list"]
    (what,) = _broken({**tree, "select_list": [{**column, "class": "ORACLE"}]})
    assert what == "ORACLE is not known to be the same in each task"


def test_a_parameter_is_refused() -> None:
    assert list(_broken(_parsed("$1 AS a"))) == ["PARAMETER is not known to be the same in each task"]


def test_more_than_expressions_is_no_list_of_expressions() -> None:
    with pytest.raises(Refused, match="only a list of SELECT expressions is allowed"):
        _parsed("a UNION SELECT b")


@pytest.mark.parametrize(
    "text",
    [
        *("version() AS v", "current_setting('memory_limit') AS m"),
        # Clocks that DuckDB lists as functions of their arguments.
        *("current_localtime() AS c", "current_localtimestamp() AS c"),
    ],
)
def test_what_tells_of_the_machine_or_the_time_is_refused(text: str) -> None:
    (what,) = _broken(_parsed(text))
    assert what.endswith("gives another result in each task and each run")


@pytest.mark.parametrize("text", ["hash(a) AS c", "a.hash() AS c", "list_transform([a], lambda x: HASH(x, 1)) AS c"])
def test_a_hash_that_the_next_version_of_duckdb_may_change_is_refused(text: str) -> None:
    (then,) = _broken(_parsed(text)).values()
    assert then == "use md5_number or sha256 of a text"
    assert _broken(_parsed("md5_number(a::VARCHAR) % 10 AS c, sha256(concat(a, '/', b)) AS d")) == {}


@pytest.mark.parametrize("text", ["age(a) AS c", "a.age() AS c", "list_transform([a], lambda x: AGE(x)) AS c"])
def test_the_time_since_a_time_goes_by_the_clock(text: str) -> None:
    what, then = "age of one time goes by today's date", "give it both times: age(later, earlier)"
    assert _broken(_parsed(text)) == {what: then}


def test_the_time_between_two_columns_is_no_clock() -> None:
    assert _broken(_parsed("age(a, b) AS c")) == {}
