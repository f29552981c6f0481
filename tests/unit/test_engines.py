"""What DuckDB answers otherwise in another version: the table that Coset ships, and what of it a pipeline uses."""

from __future__ import annotations

import re
from collections import defaultdict
from datetime import timedelta

import pytest
from packaging.version import Version

from partitioning.authoring.pipeline import Pipeline
from partitioning.model.plan import Plan
from partitioning.model.task_engine import Differs, Engine
from partitioning.values import replace
from spark_jobs.sql import engines
from spark_jobs.sql.engines import _Change, _Changes, engine
from tests.engines.answering import FUNCTIONS, answer, connected
from tests.engines.calls import calls
from tests.plans import COLUMNS, plan_of, tails, tails_found

TABLE = engines._changes()


def made_in(version: str) -> Plan:
    return replace(plan_of(tails(), tails_found()), engine=Engine(version))


def test_the_table_knows_the_version_that_is_here() -> None:
    """If it does not: `make engines WAS=… NOW=…`."""
    assert Version(engines.HERE) <= max(map(Version, TABLE.versions))


def test_what_the_table_says_of_the_version_that_is_here_is_so() -> None:
    database = connected()
    ways = defaultdict[str, list[list[str]]](list)
    for some in calls(database.execute(FUNCTIONS).fetchall()):
        for shown, asked in zip(some.shown, some.ways, strict=True):
            ways[shown].append(asked)
    said, wrong = dict[str, tuple[str, str]](), []
    for change in TABLE.changes:
        # Functions that are gone nobody can ask for; aggregates of several signatures are shown alike.
        if len(ways[change.example]) == 1:
            before, _ = said.get(change.example, (change.was, ""))
            there = Version(change.since) <= Version(engines.HERE)
            said[change.example] = change.now if there else before, change.names[0]
    for example, (answered, name) in said.items():
        found = answer(database, *ways[example])
        if not answered.endswith("…") and found != answered:
            wrong.append((name, example, answered, found))
    assert wrong == [] or engines.HERE not in TABLE.versions
    assert len(said) > 100


FAKE = _Changes(
    ("1.5.0", "1.5.5", "2.0.1"),
    tuple(
        _Change(since, names, how, (1, 2), ("VARCHAR",), (), "example", "before", "after")
        for since, names, how in (
            ("1.5.5", ("levenshtein", "editdist3"), Differs.VALUE),
            ("1.5.5", ("jaccard",), Differs.VALUE),
            ("2.0.1", ("sum",), Differs.TYPE),
            ("2.0.1", ("::TIMESTAMP",), Differs.REFUSED),
            ("2.0.1", ("COLLATE de",), Differs.TYPE),
            ("2.0.1", ("<",), Differs.CRASHES),
            ("2.0.1", ("time_bucket",), Differs.VALUE),
            ("2.0.1", ("abs",), Differs.ACCEPTED),
            ("2.0.1", ("row_number",), Differs.VALUE),
        )
    ),
)


def shop() -> Pipeline:
    """A pipeline that uses each of them but `jaccard`, each in a place of its own."""
    pipeline = Pipeline("shop", source="s3://landing/topics")
    late = timedelta(hours=1)
    views = pipeline.stream("views", key="k", partitions=2, time="abs(seen)::TIMESTAMP", late=late)
    near = views.select("editdist3(page, 'x') AS far, seen, page", name="near")
    near.filter("page COLLATE de = 'x' AND far > 3", name="kept").latest("seen", name="newest").to_stream().write(
        "newest"
    )
    near.windows("count(*) AS n", time="seen", every=late, name="hourly").write("hourly")
    return pipeline


@pytest.mark.parametrize(
    ("was", "now", "names"),
    [
        ("1.5.0", "1.5.0", []),
        ("1.5.0", "1.5.5", ["levenshtein"]),
        ("1.5.5", "2.0.1", ["::TIMESTAMP", "COLLATE de", "<", "time_bucket", "abs", "row_number"]),
        # One between them may have brought it.
        ("1.5.0", "1.5.3", ["levenshtein"]),
        ("1.5.3", "1.5.5", ["levenshtein"]),
        ("1.5.6", "2.0.0", ["::TIMESTAMP", "COLLATE de", "<", "time_bucket", "abs", "row_number"]),
        # Nobody has looked.
        ("2.0.1", "2.0.2", None),
        ("1.4.4", "1.5.5", None),
    ],
)
@pytest.mark.parametrize("back", [False, True])
def test_a_pipeline_is_told_what_it_uses_of_what_differs(
    was: str, now: str, names: list[str] | None, back: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    was, now = (now, was) if back else (was, now)
    monkeypatch.setattr(engines, "_changes", lambda: FAKE)
    monkeypatch.setattr(engines, "HERE", now)
    found = engine(shop().graph, COLUMNS, made_in(was))
    assert found.version == now
    assert found.was == ("" if was == now else was)
    assert (None if found.answers is None else [each.name for each in found.answers]) == names
    assert engine(shop().graph, COLUMNS, None) == Engine(now)


def test_what_differs_is_told_with_who_uses_it_and_turned_when_an_older_version_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engines, "_changes", lambda: FAKE)
    monkeypatch.setattr(engines, "HERE", "1.5.5")
    found = {each.name: each for each in engine(shop().graph, COLUMNS, made_in("2.0.1")).answers or ()}
    assert {name: each.used_by for name, each in found.items()} == {
        "::TIMESTAMP": ("views", "hourly.near"),
        "COLLATE de": ("kept",),
        "<": ("kept", "hourly.near", "hourly.counted"),
        "time_bucket": ("hourly.near",),
        "abs": ("views",),
        "row_number": ("newest",),
    }
    assert (found["::TIMESTAMP"].how, found["abs"].how) == (Differs.ACCEPTED, Differs.REFUSED)
    assert (found["abs"].was, found["abs"].now) == ("after", "before")


@pytest.mark.parametrize(
    ("sql", "aside", "told"),
    [
        ("abs(length(page))", False, {"abs": Differs.ACCEPTED}),
        # What fails in one version only has a value there, and NULL or no record in the other.
        ("TRY(abs(length(page)) + 1)", False, {"abs": Differs.VALUE}),
        ("TRY(length(page)) + abs(2)", False, {"abs": Differs.ACCEPTED}),
        ("TRY_CAST(page AS DATETIME)", False, {"::TIMESTAMP": Differs.VALUE}),
        ("TRY_CAST(abs(length(page)) AS VARCHAR)", False, {"abs": Differs.ACCEPTED}),
        ("abs(length(page))", True, {"abs": Differs.VALUE}),
        ("list_aggregate([length(page)], 'SUM')", False, {"sum": Differs.TYPE}),
        ("TRY(list_aggr([length(page)], 'sum'))", False, {"sum": Differs.TYPE}),
        ("[page]::DATETIME[]", False, {"::TIMESTAMP": Differs.REFUSED}),
        ("MAP {'a': [page]}::MAP(VARCHAR, TIMESTAMP[2])", False, {"::TIMESTAMP": Differs.REFUSED}),
        ("TRY_CAST({'a': page} AS STRUCT(a TIMESTAMP))", False, {"::TIMESTAMP": Differs.VALUE}),
        ("list_transform([page], lambda x: x::TIMESTAMP)", False, {"::TIMESTAMP": Differs.REFUSED}),
    ],
)
def test_what_a_step_calls_is_found_wherever_it_stands(
    sql: str, aside: bool, told: dict[str, Differs], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "_changes", lambda: FAKE)
    monkeypatch.setattr(engines, "HERE", "2.0.1")
    pipeline = Pipeline("shop", source="s3://landing/topics")
    bad_records = "set aside" if aside else "refuse"
    views = pipeline.stream("views", key="k", partitions=2, bad_records=bad_records)
    views.select(f"{sql} AS found, page", name="near").write("near")
    answers = engine(pipeline.graph, COLUMNS, made_in("1.5.5")).answers
    assert {each.name: each.how for each in answers or ()} == told
    assert {each.used_by for each in answers or ()} == {("near",)}


@pytest.mark.parametrize("sql", ["epoch_ms(day + INTERVAL 1 minute)", "day::DATETIME", "'2026-11-28'::DATE + hour"])
def test_a_time_comes_of_a_date_too(sql: str) -> None:
    assert re.search(rf"\b({engines.RARE['TIMESTAMP']})\b", sql, re.IGNORECASE)
