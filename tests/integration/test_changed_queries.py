"""Tables that rows are appended to by changed steps: a batch does not mix rows of two queries unless asked by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from coset.batches.backfills import actions, swaps
from coset.batches.backfills.actions import Asked
from coset.batches.interpreter import silently
from coset.batches.planning import take_up
from coset.batches.runners.local import Local
from coset.batches.verifying import verify
from coset.testing.runs import Trial
from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import DEFAULTS, Settings
from partitioning.authoring.words import MissingVersion, WriteMode
from partitioning.documents.document import digest
from partitioning.documents.ledger import Ledger
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.backfill import Backfill
from tests.asked_of_duckdb import is_its_query
from tests.swapped import killed

BEGIN = datetime.fromisoformat("2026-11-01")
HOUR = timedelta(hours=1)
Build = Callable[[Flow, Flow], object]


def pipeline(build: Build) -> Pipeline:
    made = Pipeline("p", source="s3://lake")
    s, u = (made.stream(name, key="k", partitions=2, time="t") for name in ("s", "u"))
    build(s, u)
    u.select("n AS m", name="of_u").write("y")
    return made


def without_u(build: Callable[[Flow], object]) -> Pipeline:
    made = Pipeline("p", source="s3://lake")
    build(made.stream("s", key="k", partitions=2, time="t"))
    return made


def records(batch: int, keys: Sequence[int], **more: object) -> list[dict[str, object]]:
    begin = BEGIN + timedelta(days=batch)
    return [{"k": f"k{key % 5}", "n": key, "t": begin + timedelta(minutes=key)} | more for key in keys]


def land(place: Trial, batch: int, **more: object) -> None:
    keys = range(3 * batch, 3 * batch + 6)
    landed = {"s": records(batch, keys, **more), "u": records(batch, [key + 40 for key in keys])}
    place.land({stream.name: landed[stream.name] for stream in place.pipeline.streams})


@pytest.fixture
def at() -> Iterator[Callable[[Pipeline], Trial]]:
    places = []

    def published(made: Pipeline) -> Trial:
        places.append(manager := Trial.made(made))
        place = manager.__enter__()
        land(place, 0)
        place.run()
        return place

    yield published
    for manager in places:
        manager.__exit__(None, None, None)


def asked(place: Trial, settings: Settings = DEFAULTS) -> list[object]:
    """Which tables a plan asks about."""
    with pytest.raises(Refused) as refused:
        place.run(settings)
    assert {finding.kind for finding in refused.value.findings} == {Kind.TABLE_QUERY}
    return [dict(finding.about)["table"] for finding in refused.value.findings]


def of(columns: str) -> Build:
    return lambda s, u: s.select(columns, name="f").write("x")


def latest(step: Callable[[Flow], Flow], mode: WriteMode) -> Build:
    return lambda s, u: step(s.latest("t", name="last")).write("x", mode=mode)


def windows(columns: str, then: str = "c, window_start") -> Build:
    return lambda s, u: s.windows(columns, time="t", every=HOUR, name="w").select(then, name="f").write("x")


def beside(then: Callable[[Flow], Flow]) -> Build:
    """Beside another table."""

    def build(s: Flow, u: Flow) -> None:
        s.select("n", name="f").write("z")
        then(s).write("x")

    return build


def of_kept(name: str) -> Build:
    """Of two steps that keep something: what one gives in each batch."""

    def build(s: Flow, u: Flow) -> None:
        kept = {"one": s.latest("t", name="one"), "other": s.latest("n", name="other")}
        for flow in kept.values():
            flow.write(flow.step, mode="upsert")
        kept[name].to_stream().write("x")

    return build


def distinct(minutes: int) -> Build:
    within, keep = timedelta(minutes=minutes), timedelta(hours=2)
    return lambda s, u: s.distinct("n % 2", time="t", within=within, keep=keep, name="d").write("x")


def negated(kind: str) -> Build:
    return lambda s, u: s.select(f"~n::{kind} AS c", name="f").select("c::BIGINT AS c", name="g").write("x")


def as_of(missing: MissingVersion) -> Build:
    return lambda s, u: s.join_as_of(
        u, "s.n AS n, u.n AS m", times=("s.t", "u.t"), keep=timedelta(hours=2), missing=missing, name="j"
    ).write("x")


CHANGES: dict[str, tuple[Build, Build]] = {
    "what another step keeps": (of_kept("one"), of_kept("other")),
    "a filter": (lambda s, u: s.filter("n > 1").write("x"), lambda s, u: s.filter("n > 2").write("x")),
    "a filter that left nothing": (
        lambda s, u: s.filter("n > 9").write("x"),
        lambda s, u: s.filter("n > 2").write("x"),
    ),
    "a filter more": (of("n"), lambda s, u: s.filter("n > 2").select("n", name="f").write("x")),
    "a column": (of("n"), of("n + 1 AS n")),
    "a column more": (of("n"), of("n, n + 1 AS m")),
    "a column more that was there": (of("n"), of("n, t")),
    "a column in quotes": (of("n"), of('n + 1 AS "n"')),
    "a column without AS": (of("n"), of("n + 1 n")),
    "a column with its name before it": (of("n: n"), of("n: n + 1")),
    "a column of all": (of("* EXCLUDE (k)"), of("* EXCLUDE (k) REPLACE (n + 1 AS n)")),
    "where a comment ends": (of("n -- a\n + 1 AS n"), of("n -- a + 1\n AS n")),
    "blanks in dollars": (of("$$a  b$$ AS n"), of("$$a b$$ AS n")),
    "a cast that another sign comes after": (negated("UTINYINT"), negated("USMALLINT")),
    "names of what is joined": (
        lambda s, u: s.select("n", name="a").join(u.select("n", name="b"), "a.n AS n", name="j").write("x"),
        lambda s, u: s.select("n", name="b").join(u.select("n", name="a"), "a.n AS n", name="j").write("x"),
    ),
    "how near distinct records are": (distinct(5), distinct(6)),
    "what is given without a version": (as_of("null"), as_of("drop")),
    "blanks in a text": (of("'a  b' AS n"), of("'a b' AS n")),
    "the other column of a join": (
        lambda s, u: s.join(u, "s.n", name="j").write("x"),
        lambda s, u: s.join(u, "u.n", name="j").write("x"),
    ),
    "the order of a join": (
        lambda s, u: s.join(u, "s.n AS n, u.n AS m", how="left", name="j").write("x"),
        lambda s, u: u.join(s, "s.n AS n, u.n AS m", how="left", name="j").write("x"),
    ),
    "how often it is merged": (
        lambda s, u: s.merge(s.filter("true", name="again"), u, name="m").select("n", name="f").write("x"),
        lambda s, u: s.merge(u.filter("true", name="again"), u, name="m").select("n", name="f").write("x"),
    ),
    "another step": (beside(lambda s: s.select("n + 5 AS n", name="g")), beside(lambda s: s.select("n", name="h"))),
    "a merge": (
        lambda s, u: s.merge(u, name="m").select("n", name="f").write("x"),
        lambda s, u: s.select("n", name="f").write("x"),
    ),
    "a stream that was read": (of("n"), lambda s, u: s.merge(u, name="m").select("n", name="f").write("x")),
    "rows of a batch": (
        lambda s, u: s.aggregate("max(n) AS n", name="a").to_stream().write("x"),
        lambda s, u: s.aggregate("min(n) AS n", name="a").to_stream().write("x"),
    ),
    "a join": (
        lambda s, u: s.join(u, "s.n AS n, u.n AS m", name="j").write("x"),
        lambda s, u: s.join(u, "s.n AS n, u.n AS m", how="left", name="j").write("x"),
    ),
    "a changelog": (
        latest(lambda last: last.filter("n > 1", name="f"), "changelog"),
        latest(lambda last: last.filter("n > 2", name="f"), "changelog"),
    ),
    "a column more of newest rows": (
        latest(lambda last: last.select("n", name="f"), "upsert"),
        latest(lambda last: last.select("n, n + 1 AS m", name="f"), "upsert"),
    ),
    "a column more before newest rows": (
        lambda s, u: s.select("n, t", name="f").latest("t", name="last").write("x", mode="upsert"),
        lambda s, u: s.select("n, t, -n AS m", name="f").latest("t", name="last").write("x", mode="upsert"),
    ),
    "windows": (windows("count(*) AS c"), windows("sum(n)::BIGINT AS c")),
    "behind windows": (windows("count(*) AS c", "c"), windows("count(*) AS c", "c + 1 AS c")),
}


@pytest.mark.parametrize("name", CHANGES)
def test_rows_of_another_query_are_appended_by_the_name_of_their_table(
    name: str, at: Callable[[Pipeline], Trial]
) -> None:
    before, now = CHANGES[name]
    place = at(pipeline(before))
    place.go_on_with(pipeline(now))
    land(place, 1)
    assert asked(place) == ["x"]
    # Another name is no answer.
    assert asked(place, Settings(go_on=("y",))) == ["x"]
    place.run(Settings(go_on=("x",)))
    # It is asked once.
    land(place, 2)
    assert place.run().startswith("Batch 2")


def test_what_a_filter_let_through_before_is_not_the_query_of_now(at: Callable[[Pipeline], Trial]) -> None:
    for name in ("a filter", "a filter that left nothing", "a filter more", "a column", "a column more", "a merge"):
        before, now = CHANGES[name]
        place = at(pipeline(before))
        place.go_on_with(pipeline(now))
        land(place, 1)
        place.run(Settings(go_on=("x",)))
        assert not is_its_query(place, "x"), name


def test_a_cast_of_a_stream_is_a_change(at: Callable[[Pipeline], Trial]) -> None:
    def cast(**kinds: str) -> Pipeline:
        made = Pipeline("p", source="s3://lake")
        made.stream("s", key="k", partitions=2, cast=kinds or None).select("n::VARCHAR AS n", name="f").write("x")
        return made

    place = at(cast())
    place.go_on_with(cast(n="DOUBLE"))
    land(place, 1)
    assert asked(place) == ["x"]


SAME: dict[str, tuple[Build, Build]] = {
    "a step's name": (of("n"), lambda s, u: s.select("n", name="g").write("x")),
    "how records move": (of("n"), lambda s, u: s.repartition(3, name="r").select("n", name="f").write("x")),
    "how merges are nested": (
        lambda s, u: s.merge(u, name="m").select("n", name="f").write("x"),
        lambda s, u: u.merge(s, name="m2").select("n", name="f").write("x"),
    ),
    "blanks": (of("n + 1 AS n"), of("n  +  1   AS n")),
    "a replaced table": (
        lambda s, u: s.select("n", name="f").to_stream().write("x", mode="replace"),
        lambda s, u: s.select("n + 1 AS n", name="f").to_stream().write("x", mode="replace"),
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_what_gives_the_same_rows_is_not_asked_about(name: str, at: Callable[[Pipeline], Trial]) -> None:
    before, now = SAME[name]
    place = at(pipeline(before))
    place.go_on_with(pipeline(now))
    land(place, 1)
    place.run()
    if name != "a replaced table":
        assert is_its_query(place, "x")


def test_a_column_that_a_stream_gets_is_not_asked_about(at: Callable[[Pipeline], Trial]) -> None:
    place = at(pipeline(of("n")))
    place.go_on_with(pipeline(of("n, more")))
    land(place, 1, more="new")
    place.run()
    assert is_its_query(place, "x")
    place.go_on_with(pipeline(of("n, more, upper(more) AS loud")))
    land(place, 2, more="new")
    assert asked(place) == ["x"]


WITH_ALIAS = "n + 1 AS more, more * 2 AS b"
READ: dict[str, tuple[Build, Build]] = {
    "an alias": (of(WITH_ALIAS), of(WITH_ALIAS)),
    "an alias before it": (of("More: n + 1, b: more * 2"), of("More: n + 1, b: more * 2")),
    "an alias without AS": (of('n + 1 "more", "more" * 2 b'), of('n + 1 "more", "more" * 2 b')),
    "all columns": 2 * (of("to_json(struct_pack(*COLUMNS(*))) AS n"),),
    "some columns": 2 * (of("coalesce(COLUMNS('^(n|more)$')::BIGINT, -1)"),),
    "a filter": 2 * (lambda s, u: s.filter("columns('^(n|more)$') IS NOT NULL", name="f").write("x"),),
    "a column more of the step before": (
        lambda s, u: s.select("n", name="e").select(WITH_ALIAS, name="f").write("x"),
        lambda s, u: s.select("n, -n AS more", name="e").select(WITH_ALIAS, name="f").write("x"),
    ),
    "a column that is made without AS": (of("n"), of("n, n + 1 more")),
}


@pytest.mark.parametrize("name", READ)
def test_a_text_that_means_another_column_as_soon_as_there_is_one_is_asked_about(
    name: str, at: Callable[[Pipeline], Trial]
) -> None:
    before, now = READ[name]
    place = at(pipeline(before))
    land(place, 1)
    place.run()
    place.go_on_with(pipeline(now))
    land(place, 2, more=7)
    assert asked(place) == ["x"]
    place.run(Settings(go_on=("x",)))
    assert not is_its_query(place, "x")
    land(place, 3)
    assert place.run().startswith("Batch 3")


def test_what_steps_keep_of_such_a_text_is_asked_about(at: Callable[[Pipeline], Trial]) -> None:
    place = at(pipeline(lambda s, u: s.select(f"{WITH_ALIAS}, t", name="f").latest("t").write("x", mode="upsert")))
    land(place, 1, more=7)
    with pytest.raises(Refused) as refused:
        place.run()
    assert {finding.kind for finding in refused.value.findings} == {Kind.STATE_CHANGED}
    assert "name its columns otherwise" in refused.value.findings[0].then


def test_a_step_of_a_tables_name_does_not_answer_for_the_table_unless_that_is_said(
    at: Callable[[Pipeline], Trial],
) -> None:
    def both(least: int) -> Build:
        def build(s: Flow, u: Flow) -> None:
            s.filter(f"n > {least}", name="f").latest("t", name="x").write("z", mode="upsert")
            s.filter(f"n > {least + 1}", name="g").write("x")

        return build

    place = at(pipeline(both(0)))
    place.go_on_with(pipeline(both(1)))
    land(place, 1)
    assert asked(place, Settings(begin_anew=("x",))) == ["x"]
    with pytest.raises(Refused) as refused:
        place.run()
    step, table = refused.value.findings
    assert step.kind == Kind.STATE_CHANGED
    assert table.then.endswith("`coset plan p --go-on x`, which answers for step 'x' too")
    place.run(Settings(go_on=("x",)))


def test_of_newest_rows_a_column_of_the_stream_is_not_asked_about(at: Callable[[Pipeline], Trial]) -> None:
    place = at(pipeline(lambda s, u: s.latest("t", name="last").write("x", mode="upsert")))
    land(place, 1, more="new")
    place.run()
    assert is_its_query(place, "x")


def merged(s: Flow, u: Flow) -> None:
    s.merge(u, name="m").select("n", name="f").write("x")


def test_a_stream_that_no_batch_has_read_changes_no_row_of_before(at: Callable[[Pipeline], Trial]) -> None:
    place = at(without_u(lambda s: s.select("n", name="f").write("x")))
    place.go_on_with(pipeline(merged))
    land(place, 1)
    # What is written of it alone is new.
    place.run()
    assert is_its_query(place, "x")


def test_a_stream_that_is_left_out_is_asked_about_and_is_whole_when_it_is_back(at: Callable[[Pipeline], Trial]) -> None:
    place = at(pipeline(merged))
    place.go_on_with(without_u(lambda s: s.select("n", name="f").write("x")))
    land(place, 1)
    assert asked(place) == ["x"]
    place.run(Settings(go_on=("x",)))
    assert not is_its_query(place, "x")
    place.go_on_with(pipeline(merged))
    land(place, 2)
    place.run(Settings(go_on=("y",)))
    assert is_its_query(place, "x")


def changed_after_three(at: Callable[[Pipeline], Trial]) -> Trial:
    """A table with rows of three batches, whose query is another now."""
    place = at(pipeline(of("n")))
    for batch in (1, 2):
        land(place, batch)
        place.run()
    place.go_on_with(pipeline(of("n + 1 AS n")))
    return place


@pytest.mark.parametrize(("first", "last"), [(1, 2), (0, 1), (1, 1)])
def test_a_backfill_that_leaves_rows_of_another_query_is_asked_for_by_their_table(
    first: int, last: int, at: Callable[[Pipeline], Trial]
) -> None:
    place = changed_after_three(at)
    store, wanted = store_at(place.root), Asked(first, last, DEFAULTS)
    with pytest.raises(Refused) as refused:
        actions.begin(place.pipeline, store, wanted)
    (finding,) = refused.value.findings
    assert finding.kind == Kind.TABLE_QUERY
    to = f" --to {last}" if last > first else ""
    assert f"coset backfill p --from {first}{to} --go-on x" in finding.then
    assert actions.begin(place.pipeline, store, replace(wanted, settings=Settings(go_on=("x",)))).batches
    assert actions.begin(place.pipeline, store, Asked(0, None, DEFAULTS)).batches == (0, 1, 2)


def backfilled(place: Trial, docs: Path, first: int = 0, last: int | None = None, go_on: str = "") -> Backfill:
    """A backfill, compared and not swapped in."""
    store = store_at(place.root)
    request = actions.begin(place.pipeline, store, Asked(first, last, Settings(go_on=(go_on,) if go_on else ())))
    with Local(processes=1) as runner:
        actions.run(place.pipeline, store, request, runner, docs, silently)
    actions.comparison(store, request)
    return request


def swap(place: Trial, request: Backfill) -> None:
    store = store_at(place.root)
    actions.swap(store, request, digest(actions.comparison(store, request)), "it is right")


def whole(place: Trial, docs: Path) -> Backfill:
    swap(place, request := backfilled(place, docs))
    return request


def later(turn: Callable[[], object]) -> list[object]:
    """The tables for which readers keep the rows that they see."""
    with pytest.raises(Refused) as refused:
        turn()
    assert {finding.kind for finding in refused.value.findings} == {Kind.BACKFILL_LATER}
    return [dict(finding.about)["table"] for finding in refused.value.findings]


def test_a_backfill_is_not_taken_back_from_under_batches_that_went_on_from_its_query(
    at: Callable[[Pipeline], Trial], tmp_path: Path
) -> None:
    place = at(pipeline(of("n")))
    store = store_at(place.root)
    place.go_on_with(pipeline(of("n + 1 AS n")))
    first = whole(place, tmp_path)
    # Nothing depends on it yet.
    actions.undo(store, first, "not yet")
    swap(place, first)
    land(place, 1)
    place.run()
    assert later(lambda: actions.undo(store, first, "no")) == ["x"]
    assert is_its_query(place, "x")
    # What the refusal names.
    place.go_on_with(pipeline(of("n")))
    whole(place, tmp_path)
    assert is_its_query(place, "x")


def test_a_table_that_a_backfill_added_is_not_taken_from_under_later_batches(
    at: Callable[[Pipeline], Trial], tmp_path: Path
) -> None:
    place = at(pipeline(of("n")))

    def both(s: Flow, u: Flow) -> None:
        of("n")(s, u)
        s.filter("n > 2", name="some").write("z")

    place.go_on_with(pipeline(both))
    request = whole(place, tmp_path)
    land(place, 1)
    place.run()
    assert later(lambda: actions.undo(store_at(place.root), request, "no")) == ["z"]
    assert is_its_query(place, "z")


def test_a_backfill_is_not_swapped_in_before_batches_that_came_meanwhile_of_another_query(
    at: Callable[[Pipeline], Trial], tmp_path: Path
) -> None:
    place = at(pipeline(of("n")))
    place.go_on_with(pipeline(of("n + 1 AS n")))
    request = backfilled(place, tmp_path)
    place.go_on_with(pipeline(of("n")))
    land(place, 1)
    place.run()
    assert later(lambda: swap(place, request)) == ["x"]
    assert is_its_query(place, "x")


def test_a_table_that_went_on_by_its_name_says_so_until_it_is_made_whole(
    at: Callable[[Pipeline], Trial], tmp_path: Path
) -> None:
    def planned() -> dict[str, int]:
        plan = Ledger(store_at(place.root), "p").standing().published
        assert plan is not None
        return plan.accepted

    place = at(pipeline(of("n")))
    place.go_on_with(pipeline(of("n + 1 AS n")))
    land(place, 1)
    place.run(Settings(go_on=("x",)))
    land(place, 2)
    place.run()
    assert planned() == {"x": 1}
    (table,) = verify(place.pipeline, store_at(place.root), ["x"])
    assert str(table).endswith("; it may differ since batch 1, as asked for by its name")
    # Taken back is what was asked for.
    swap(place, some := backfilled(place, tmp_path, last=0))
    assert is_its_query(place, "x")
    actions.undo(store_at(place.root), some, "as before")
    assert not is_its_query(place, "x")
    made = whole(place, tmp_path)
    land(place, 3)
    place.run()
    assert planned() == {}
    assert later(lambda: actions.undo(store_at(place.root), made, "no")) == ["x"]
    assert is_its_query(place, "x")


def test_a_table_says_that_it_is_held_against_a_query_that_changed_since(at: Callable[[Pipeline], Trial]) -> None:
    place = at(pipeline(of("n")))
    land(place, 1)
    place.run()
    place.go_on_with(pipeline(of("n + 1 AS n")))
    for as_of in (0, None):
        (table,) = verify(place.pipeline, store_at(place.root), ["x"], as_of=as_of)
        since = 1 if as_of is None else as_of
        assert f"; since batch {since} step f changed from " in str(table)


def planned(place: Trial) -> None:
    """The next batch, which does not run yet."""
    assert take_up(place.pipeline, store_at(place.root)).plan is not None


def test_a_batch_that_is_open_is_a_later_one(at: Callable[[Pipeline], Trial], tmp_path: Path) -> None:
    place = at(pipeline(of("n")))
    place.go_on_with(pipeline(of("n + 1 AS n")))
    first = whole(place, tmp_path)
    land(place, 1)
    planned(place)
    assert later(lambda: actions.undo(store_at(place.root), first, "no")) == ["x"]
    place.run()
    assert is_its_query(place, "x")


def test_a_backfill_is_held_against_the_batches_before_it_too(at: Callable[[Pipeline], Trial], tmp_path: Path) -> None:
    place = at(pipeline(of("n")))
    store = store_at(place.root)
    land(place, 1)
    place.run()
    place.go_on_with(pipeline(of("n + 1 AS n")))
    swap(place, one := backfilled(place, tmp_path, first=1, go_on="x"))
    # As it was.
    actions.undo(store, one, "no")
    swap(place, one)
    swap(place, nought := backfilled(place, tmp_path, last=0))
    assert is_its_query(place, "x")
    two = backfilled(place, tmp_path, first=1)
    assert later(lambda: actions.undo(store, one, "no")) == ["x"]
    actions.undo(store, nought, "as it was asked for")
    assert later(lambda: swap(place, two)) == ["x"]


def test_steps_that_keep_the_same_do_not_give_the_same(at: Callable[[Pipeline], Trial]) -> None:
    def only(condition: str) -> Build:
        within = timedelta(minutes=5)
        return lambda s, u: (
            s.filter(condition, name="f").distinct("n % 2", time="t", within=within, name="d").write("x")
        )

    place = at(pipeline(only("true")))
    land(place, 1)
    place.run()
    place.go_on_with(pipeline(only("n <> 1")))
    with pytest.raises(Refused) as refused:
        actions.begin(place.pipeline, store_at(place.root), Asked(0, 0, DEFAULTS))
    assert {finding.kind for finding in refused.value.findings} == {Kind.TABLE_QUERY}


@pytest.mark.parametrize(("batch", "since"), [(1, 1), (0, 1)])
def test_a_table_that_some_batches_were_backfilled_of_by_its_name_says_so(
    batch: int, since: int, at: Callable[[Pipeline], Trial], tmp_path: Path
) -> None:
    place = changed_after_three(at)
    swap(place, backfilled(place, tmp_path, first=batch, last=batch, go_on="x"))
    place.go_on_with(pipeline(of("n")))
    (table,) = verify(place.pipeline, store_at(place.root), ["x"])
    assert str(table).endswith(f"; it may differ since batch {since}, as asked for by its name")
    land(place, 3)
    place.run()
    plan = Ledger(store_at(place.root), "p").standing().published
    assert plan is not None
    assert plan.accepted == {"x": since}


def test_a_turn_is_allowed_that_leaves_what_was_asked_for_or_is_no_change(
    at: Callable[[Pipeline], Trial], tmp_path: Path
) -> None:
    place = at(pipeline(of("n")))
    store = store_at(place.root)
    land(place, 1)
    place.run()
    for text in ("n + 1 AS n", "n + 2 AS n"):
        place.go_on_with(pipeline(of(text)))
        swap(place, last := backfilled(place, tmp_path, last=0, go_on="x"))
    actions.undo(store, last, "as it was asked for")
    # A stream that no batch had read.
    other = at(without_u(lambda s: s.select("n", name="f").write("x")))
    swap(other, first := backfilled(other, tmp_path))
    other.go_on_with(pipeline(lambda s, u: s.merge(u, name="m").select("n", name="f").write("x")))
    land(other, 1)
    other.run()
    actions.undo(store_at(other.root), first, "no matter")
    assert is_its_query(other, "x")


def test_a_swap_that_stopped_may_be_taken_back_whatever_lies_beside_it(
    at: Callable[[Pipeline], Trial], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = changed_after_three(at)
    store = store_at(place.root)
    swap(place, backfilled(place, tmp_path, last=0, go_on="x"))
    place.go_on_with(pipeline(of("n")))
    known = {entry.key for entry in store.list("tables/x/data/")}
    last = backfilled(place, tmp_path, last=0)
    with monkeypatch.context() as patch:
        patch.setattr(swaps, "exchange", killed)
        with pytest.raises(KeyboardInterrupt):
            swap(place, last)
    # It cannot be finished: what it would put in place is lost.
    for entry in [entry for entry in store.list("tables/x/data/") if entry.key not in known]:
        store.delete(entry.key)
    actions.undo(store, last, "its files are lost")
    assert swaps.half(store, "p") is None
    assert not is_its_query(place, "x")
