"""Expressions are made of what is known, all else is refused; and which columns of theirs are private."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from partitioning.authoring.pipeline import Pipeline
from partitioning.errors import Finding, Refused
from partitioning.kinds import Kind
from partitioning.model.private import without_values
from spark_jobs.engine.task_database import connect
from spark_jobs.sql.expressions import Rules, Tree, parse
from tests.called import FAILED, calls

_LISTS = [
    "a, b.c AS d, -a, NOT a, a AND b, a IS NULL, a IN (1, 2), a BETWEEN 1 AND 2, a LIKE 'x', a COLLATE NOCASE < b",
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


@pytest.mark.parametrize(
    "text", ["a COLLATE NOCASE", "max(a COLLATE NOCASE)", "lower(a COLLATE NOCASE) = b AND b COLLATE de"]
)
def test_a_column_that_goes_by_another_order_of_texts_is_refused(text: str) -> None:
    assert (
        "compare with it at once, a COLLATE NOCASE = b, or make texts alike: lower(a)"
        in _broken(_parsed(text)).values()
    )


def test_a_parameter_is_refused() -> None:
    assert list(_broken(_parsed("$1 AS a"))) == ["PARAMETER is not known to be the same in each task"]


def test_more_than_expressions_is_no_list_of_expressions() -> None:
    with pytest.raises(Refused, match="only a list of SELECT expressions is allowed"):
        _parsed("a UNION SELECT b")


@pytest.mark.parametrize(
    "text",
    [
        *("version() AS v", "current_setting('memory_limit') AS m", "vector_type(a) AS v"),
        *("today() AS t", "ago(a) AS t"),
        # Clocks that DuckDB lists as functions of their arguments.
        *("current_localtime() AS c", "current_localtimestamp() AS c"),
    ],
)
def test_what_tells_of_the_machine_or_the_time_is_refused(text: str) -> None:
    (what,) = _broken(_parsed(text))
    assert what.endswith("gives another result in each task and each run")


@pytest.mark.parametrize("name", ["user", "current_user", "SESSION_USER", "current_role", "current_catalog"])
def test_who_asks_is_no_value_of_a_record_unless_there_is_such_a_column(name: str) -> None:
    tree = _parsed(f"{name} AS c")
    assert list(_broken(tree)) == [f"{name} is no column, and says who asks"]
    with connect() as connection:
        assert not Rules(connection).broken(tree, aggregates=False, columns={name.lower()}, relations=set())


# What tells of the machine, the session or the run, though two runs on one machine may be told the same.
_OF_THE_RUN = {
    *("current_connection_id", "current_database", "current_query", "current_query_id", "current_schema"),
    *("current_schemas", "current_setting", "current_transaction_id", "currval", "getvariable", "hash"),
    *("in_search_path", "nextval", "random", "setseed", "setval", "sleep_ms", "stats", "txid_current"),
    *("vector_type", "version", "write_log"),
}


@pytest.mark.long
def test_of_all_functions_those_are_refused_that_go_by_the_clock_or_the_run() -> None:
    faketime = shutil.which("faketime")
    assert faketime, "What goes by the clock is measured with another clock: apt-get install faketime"
    winter, summer = (
        json.loads(subprocess.check_output([faketime, "-f", f"@{at}", sys.executable, "-m", "tests.called"]))
        for at in ("2027-01-15 03:04:05", "2028-07-20 15:16:17")
    )
    differing = {text for text in winter if winter[text] != summer[text]}
    with connect() as connection:
        rules = Rules(connection)
        trees = {text: parse(connection, text) for text in winter}
        refused = {
            text for text, tree in trees.items() if rules.broken(tree, aggregates=False, columns=(), relations=())
        }
    assert sorted(differing - refused) == []
    for name, types, stability, texts in calls():
        if name in _OF_THE_RUN or differing.intersection(texts):
            continue
        # What a newer DuckDB adds has to be judged: it is refused and gives the same, or could not be seen to change.
        assert refused.isdisjoint(texts) or "TIME WITH TIME ZONE" in types, (name, types)
        called = not all(winter[text].startswith(FAILED) for text in texts)
        assert called or stability == "CONSISTENT" or name == "error", (name, types)


@pytest.mark.parametrize("text", ["hash(a) AS c", "a.hash() AS c", "list_transform([a], lambda x: HASH(x, 1)) AS c"])
def test_a_hash_that_the_next_version_of_duckdb_may_change_is_refused(text: str) -> None:
    (then,) = _broken(_parsed(text)).values()
    assert then == "use md5_number or sha256 of a text"
    assert _broken(_parsed("md5_number(a::VARCHAR) % 10 AS c, sha256(concat(a, '/', b)) AS d")) == {}


@pytest.mark.parametrize("text", ["age(a) AS c", "a.age() AS c", "list_transform([a], lambda x: AGE(x)) AS c"])
def test_the_time_since_a_time_goes_by_the_clock(text: str) -> None:
    what, then = "age of one time goes by today's date", "give it both times: age(later, earlier)"
    assert _broken(_parsed(text)) == {what: then}


@pytest.mark.parametrize(
    "text", ["age(a, b) AS c", "time_bucket(INTERVAL 1 hour, a::TIMESTAMPTZ)", "a AT TIME ZONE 'Asia/Tokyo'"]
)
def test_the_time_between_two_columns_and_in_a_zone_is_no_clock(text: str) -> None:
    assert _broken(_parsed(text)) == {}


@pytest.mark.parametrize(
    "text", ["a::TIMETZ AT TIME ZONE 'Europe/Berlin'", "TRY_CAST(a AS TIME WITH TIME ZONE)[1]", "a::timetz[]"]
)
def test_a_time_without_a_date_has_the_offset_of_today_in_a_zone(text: str) -> None:
    what, then = "TIME WITH TIME ZONE goes by today's date in another zone", "use TIME, or TIMESTAMP WITH TIME ZONE"
    assert _broken(_parsed(text)) == {what: then}


@pytest.mark.parametrize(
    ("listed", "made"),
    [
        ("city", set()),
        ("name AS n, city AS place", {"n"}),
        ("upper(p.Name) loud", {"loud"}),
        ("loud: upper(name)", {"loud"}),
        ('name::VARCHAR AS "full name"', {"full name", "full"}),
        ("concat(city, ', ', name) AS both, 1 AS one", {"both"}),
        ("CASE WHEN name = 'x' THEN 1 END AS odd", {"odd"}),
        ("surname AS s", set()),
    ],
)
def test_what_names_a_private_column_is_private(listed: str, made: set[str]) -> None:
    pipeline = Pipeline("people", source="s3://lake/topics")
    people = pipeline.stream("people", key="id", partitions=2, private=["name"])
    people.select(listed, name="shown").write("people")
    assert made <= pipeline.private
    assert pipeline.private <= made | {"name", "full", "full name"}


def test_privacy_goes_through_several_steps_and_keys() -> None:
    pipeline = Pipeline("people", source="s3://lake/topics")
    people = pipeline.stream("people", key="id", partitions=2, private=("name",))
    loud = people.select("upper(name) AS loud, city").rekey("initial", sql="loud[1]", key_format="string")
    loud.aggregate("count(*) AS many, max(city) AS last", name="counted").write("counted")
    assert pipeline.private == {"name", "loud", "initial"}


def test_without_a_declaration_nothing_is_private() -> None:
    pipeline = Pipeline("people", source="s3://lake/topics")
    pipeline.stream("people", key="id", partitions=2).select("name AS n").write("people")
    assert pipeline.private == frozenset()


@pytest.mark.parametrize("name", ["_offset", "_partition", ""])
def test_offsets_and_partitions_cannot_be_private(name: str) -> None:
    pipeline = Pipeline("people", source="s3://lake/topics")
    with pytest.raises(Refused, match="cannot be private"):
        pipeline.stream("people", key="id", partitions=2, private=(name,))


def test_one_column_needs_no_brackets() -> None:
    pipeline = Pipeline("people", source="s3://lake/topics")
    pipeline.stream("people", key="id", partitions=2, private="name")
    assert pipeline.private == {"name"}


def test_what_may_quote_a_value_is_cut_off() -> None:
    failed = Finding.of(
        Kind.SQL, "SQL failed: cannot convert 'Ann'", "step 'a', first key 'Ann'", "correct it", asked="Ann"
    )
    hidden = without_values(failed)
    assert "Ann" not in str(hidden)
    assert hidden.what == "SQL failed: the rest may quote a private column, and is not shown"
    assert hidden.about == ()
    gone = Finding.of(Kind.FILE_GONE, "the file is gone: s3://a", "s3://a", "restore it", file="s3://a")
    assert without_values(gone) is gone


def test_a_key_that_a_function_made_is_not_quoted() -> None:
    what = "the function f returned the key 'it\\'s \"Ann\"', which is not in its input"
    hidden = without_values(Finding.of(Kind.FUNCTION, what, "step 'a'", "correct it"))
    assert hidden.what == "the function f returned the key •••, which is not in its input"
    offset = Finding.of(Kind.KEY, "column 'name' at offset 5 is not UTF-8", "s3://a", "land it again")
    assert without_values(offset).what == offset.what
