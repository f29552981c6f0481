"""Private columns: which names are private, and what is cut off of errors."""

from __future__ import annotations

import pytest

from partitioning.authoring.pipeline import Pipeline
from partitioning.errors import Finding, Refused
from partitioning.kinds import Kind
from partitioning.model.private import without_values


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
