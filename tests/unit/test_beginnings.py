"""Steps that keep something, in a pipeline that is another now: what is seen as a change of them, and what is not."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest

from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.authoring.words import NullKey
from partitioning.diff.plan_diff import diff
from partitioning.documents.document import decode, encode
from partitioning.errors import Refused
from partitioning.explain.explain import explain
from partitioning.kinds import Kind
from partitioning.model.graph import Step
from partitioning.model.offsets import OffsetRange, StreamPartition
from partitioning.model.plan import Plan
from partitioning.model.read_ends import Ends, Forgotten, What
from partitioning.model.task_engine import Differs, Engine, OtherAnswer
from partitioning.planning.origins import Origins, said, told_changes
from partitioning.values import replace
from tests.plans import arrived, plan_of
from tests.refused import finding_of

Build = Callable[[Pipeline], None]
SUM = "sum(n)::BIGINT AS n"


def views(pipeline: Pipeline, key: str = "tailnum", partitions: int = 4, null_keys: NullKey = "refuse") -> Flow:
    return pipeline.stream("views", key=key, partitions=partitions, null_keys=null_keys)


def running(flow: Flow, columns: str = "count(*) AS n", name: str = "totals") -> Flow:
    return flow.aggregate(columns).combine(SUM, running=True, name=name)


def plain(pipeline: Pipeline) -> None:
    running(views(pipeline).filter("dep_delay > 0").select("dep_delay")).write("totals", mode="upsert")


def made(build: Build) -> Pipeline:
    pipeline = Pipeline("p", source="s3://landing/topics")
    build(pipeline)
    return pipeline


def planned(
    build: Build,
    records: int,
    batch: int = 0,
    published: Plan | None = None,
    plans: Sequence[Plan] = (),
    ends: Ends | None = None,
    firsts: Mapping[str, int] = {},
    engine: Engine | None = None,
    rows: Mapping[str, int] | None = None,
    **more: Any,
) -> Plan:
    pipeline = made(build)
    found = [arrived(each.name, [records] * each.partitions, firsts.get(each.name, 0)) for each in pipeline.streams]
    return plan_of(
        pipeline,
        found,
        batch=batch,
        published=published,
        settings=Settings(**more),
        ends=ends,
        earlier=lambda number: plans[number - 1] if plans and number else None,
        engine=engine,
        rows=rows,
    )


def next_batch(build: Build, before: Build = plain, **more: Any) -> Plan:
    return planned(build, 20, 1, planned(before, 10), **more)


def told(build: Build, before: Build = plain, **more: Any) -> list[str]:
    with pytest.raises(Refused) as refused:
        next_batch(build, before, **more)
    return [str(finding) for finding in refused.value.findings]


def write(pipeline: Pipeline, flow: Flow) -> None:
    flow.to_stream().write("totals", mode="upsert")


# What changes records before the step, and what is said of it.
CHANGED: dict[str, tuple[Build, str]] = {
    "a condition": (
        lambda p: write(p, running(views(p).filter("dep_delay > 9").select("dep_delay"))),
        "filter dep_delay > 0 to filter dep_delay > 9",
    ),
    "a filter left out": (
        lambda p: write(p, running(views(p).select("dep_delay"))),
        "filter dep_delay > 0 to views by tailnum (string)",
    ),
    "a column's expression": (
        lambda p: write(p, running(views(p).filter("dep_delay > 0").select("dep_delay * 60 AS dep_delay"))),
        "to select: dep_delay * 60 AS dep_delay",
    ),
    "the stream's key": (
        lambda p: write(p, running(views(p, key="other").rekey("tailnum").filter("dep_delay > 0").select("dep_delay"))),
        "views by tailnum (string) to rekey",
    ),
    "records without a key": (
        lambda p: write(p, running(views(p, null_keys="own task").filter("dep_delay > 0").select("dep_delay"))),
        "views by tailnum (string) to views by tailnum (string), also records without a key",
    ),
    "another aggregate": (
        lambda p: write(p, running(views(p).filter("dep_delay > 0").select("dep_delay"), "max(dep_delay) AS n")),
        "count(*) AS n to aggregate by tailnum (string): max(dep_delay) AS n",
    ),
}


@pytest.mark.parametrize("case", CHANGED)
def test_a_change_before_a_step_is_seen_as_one_of_the_step(case: str) -> None:
    build, says = CHANGED[case]
    (finding,) = told(build)
    assert re.match(r"step \w+(\.\w+)* changed from ", finding)
    assert says in finding
    assert "state of totals, left by batch 0" in finding
    assert "if what it kept is still right, ask for that by name: `coset plan p --go-on totals`" in finding
    outcome = "table 'totals' has rows and would have only those of keys that come from now on"
    assert finding.endswith(f"for a new beginning ask for it by name: `coset plan p --begin-anew totals`: {outcome}")


def test_a_step_that_comes_between_others_is_told_as_new() -> None:
    def between(p: Pipeline) -> None:
        few = views(p).filter("dep_delay > 0", name="late").filter("dep_delay < 9", name="few")
        write(p, running(few.select("dep_delay", name="delays")))

    def before(p: Pipeline) -> None:
        late = views(p).filter("dep_delay > 0", name="late")
        write(p, running(late.select("dep_delay", name="delays")))

    (finding,) = told(between, before)
    assert finding.startswith("step few is new, after late: filter dep_delay < 9\n  where: state of totals, left by")
    assert "next:  leave it out; if what it kept is still right" in finding
    # One that stands in the place of another is that one, changed.
    (finding,) = told(before, between)
    assert finding.startswith("step late changed from filter dep_delay < 9 to filter dep_delay > 0")


def test_a_name_that_is_made_where_it_is_grouped_by_may_be_taken_by_a_column() -> None:
    pipeline = Pipeline("p", source="s3://landing/topics")
    by_day = views(pipeline).aggregate("any_value(day) AS some", by="seen::DATE AS day", name="days")
    was, now = (
        Origins(replace(pipeline.graph, columns={"views": columns})).of(by_day.step)
        for columns in (("tailnum", "seen"), ("tailnum", "seen", "day"))
    )
    (change,) = told_changes(was, now)
    assert said(change) == "the names in step days changed from day, its own, to day, its input"


def several(condition: str) -> Build:
    """Totals by three keys and two other tables of what a filter leaves."""

    def build(pipeline: Pipeline) -> None:
        some = views(pipeline).filter(condition, name="some")
        for key in ("tailnum", "carrier", "origin"):
            running(some.rekey(key, name=f"by_{key}").select("dep_delay"), name=f"of_{key}").write(key, mode="upsert")
        some.select("dep_delay").write("each")
        some.filter("dep_delay > 20").select("dep_delay").write("late")

    return build


def test_a_change_that_reaches_several_steps_and_tables_is_told_once_and_answered_by_one_name() -> None:
    before, now = several("dep_delay > 0"), several("dep_delay > 9")
    with pytest.raises(Refused) as refused:
        next_batch(now, before)
    (finding,) = refused.value.findings
    tables = "tables 'tailnum' and 'carrier' and 'origin' and 'each' and 'late'"
    assert finding.what == (
        f"step some changed from filter dep_delay > 0 to filter dep_delay > 9, which reaches {tables}"
    )
    assert finding.where == "state of of_tailnum, left by batch 0, and 4 more steps and tables"
    assert [each.kind for each in finding.each] == [Kind.STATE_CHANGED] * 3 + [Kind.TABLE_QUERY] * 2
    assert "`coset plan p --go-on of_tailnum`" in finding.then
    for name in ("of_tailnum", "of_origin", "late"):
        plan = next_batch(now, before, go_on=(name,))
        assert plan.on == ("of_tailnum", "of_carrier", "of_origin")
        assert {*plan.accepted} == {"tailnum", "carrier", "origin", "each", "late"}
    # Another change is asked about for itself.
    other = several("dep_delay > 9")

    def and_more(pipeline: Pipeline) -> None:
        other(pipeline)
        pipeline.flow("some").select("dep_delay + 1 AS dep_delay", name="more").write("more")

    def less(pipeline: Pipeline) -> None:
        before(pipeline)
        pipeline.flow("some").select("dep_delay", name="more").write("more")

    with pytest.raises(Refused) as refused:
        next_batch(and_more, less, go_on=("of_tailnum",))
    (finding,) = refused.value.findings
    assert finding.what.startswith("step more changed from select: dep_delay to select: dep_delay + 1")


@pytest.mark.parametrize("case", CHANGED)
def test_a_change_before_a_step_can_be_gone_on_with_or_begun_anew_with_by_name(case: str) -> None:
    build, _ = CHANGED[case]
    first = planned(plain, 10)
    on = next_batch(build, go_on=("totals",))
    assert on.on == ("totals",)
    anew = next_batch(build, begin_anew=("totals",))
    assert anew.anew == ("totals",)
    assert [write.anew for write in anew.writes()] == [True]
    (change,) = diff(first, anew).states
    assert (change.step, change.outcome, change.tables) == ("totals", "begins with nothing", ("totals",))
    assert explain(anew, first)[0].title == "State that does not simply go on"
    # It is asked for once: the batch after it goes on, without a word.
    after = planned(build, 30, 2, anew)
    assert b'"anew":[' not in encode(after)
    assert decode(Plan, encode(anew), "plan") == anew
    assert explain(after, anew)[0].title == "Streams"


def once(p: Pipeline, days: int) -> None:
    write(p, running(views(p).distinct("dep_delay", time="at", within=timedelta(days=days), keep=timedelta(days=9))))


def near(p: Pipeline, days: int) -> None:
    others = p.stream("others", key="tailnum", partitions=4)
    within, keep = timedelta(days=days), timedelta(days=9)
    write(p, running(views(p).join_within(others, "others.dep_delay", times=("at", "at"), within=within, keep=keep)))


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (once, "distinct dep_delay, at within 1 day, 0:00:00 by tailnum (string)"),
        (near, "join within 1 day, 0:00:00 by tailnum (string): others.dep_delay"),
    ],
)
def test_how_close_in_time_is_seen_before_a_step(build: Callable[[Pipeline, int], None], says: str) -> None:
    (finding,) = told(lambda p: build(p, 2), before=lambda p: build(p, 1))
    assert f"changed from {says} to {says.replace('1 day', '2 days')}" in finding
    assert "`coset plan p --go-on totals`" in finding
    assert not next_batch(lambda p: build(p, 1), before=lambda p: build(p, 1)).on


def test_a_join_in_time_is_the_same_however_an_earlier_version_looked_for_partners() -> None:
    now = planned(lambda p: near(p, 1), 10)

    def as_it_was(step: Step) -> Step:
        sql = re.sub(r"\(SELECT \*, .+?\) AS (\"others\")", r'"x" AS \1', step.sql)
        return replace(step, sql=re.sub(r'"views"."@time" // [0-9]+ = "others"."@near" AND ', "", sql))

    stages = (replace(stage, steps=tuple(map(as_it_was, stage.steps))) for stage in now.stages)
    earlier = replace(now, stages=tuple(stages))
    assert earlier != now
    assert b"@near" not in encode(earlier)
    assert not planned(lambda p: near(p, 1), 20, 1, earlier).on


def other_branch(p: Pipeline) -> None:
    plain(p)
    p.flow("views").select("dep_delay").aggregate("max(dep_delay) AS most", name="most").write("most")


def through_a_merge(p: Pipeline) -> None:
    flow = views(p).filter("dep_delay > 0").select("dep_delay")
    other = p.stream("others", key="tailnum", partitions=2).select("dep_delay")
    write(p, running(flow.merge(other)))


def through_nested_merges(p: Pipeline) -> None:
    other = p.stream("others", key="tailnum", partitions=3).select("dep_delay")
    flow = views(p).filter("dep_delay > 0", name="late").select("dep_delay")
    write(p, running(other.merge(flow)))


def moved(p: Pipeline, *, also: bool = False) -> None:
    flow = views(p).rekey("dep_delay", name="by_delay")
    running(flow).write("totals", mode="upsert")
    if also:
        flow.filter("tailnum <> ''", name="there").write("there")


def kept_planes(p: Pipeline, *, kept: bool) -> None:
    planes = p.table("planes", key="tailnum", partitions=2, deletes="dep_delay IS NULL", kept=kept)
    write(p, running(views(p).join(planes, "planes.dep_delay")))


# What changes nothing that the step has to do with.
SAME: dict[str, tuple[Build, Build]] = {
    "another branch": (plain, other_branch),
    "partition counts": (
        plain,
        lambda p: write(p, running(views(p, partitions=8).filter("dep_delay > 0").select("dep_delay"))),
    ),
    "names of steps": (
        plain,
        lambda p: write(p, running(views(p).filter("dep_delay > 0", name="late").select("dep_delay", name="only"))),
    ),
    "a further column": (
        plain,
        lambda p: write(p, running(views(p).filter("dep_delay > 0").select("dep_delay, upper(tailnum) AS up"))),
    ),
    "records that had to have keys": (
        plain,
        lambda p: write(p, running(views(p, null_keys="drop").filter("dep_delay > 0").select("dep_delay"))),
    ),
    "a repartition": (
        plain,
        lambda p: write(p, running(views(p).filter("dep_delay > 0").select("dep_delay").repartition(6))),
    ),
    "how merges are nested": (through_a_merge, through_nested_merges),
    "another reader of what moves": (moved, lambda p: moved(p, also=True)),
    "a table that is kept": (lambda p: kept_planes(p, kept=False), lambda p: kept_planes(p, kept=True)),
    "a table that is not kept": (lambda p: kept_planes(p, kept=True), lambda p: kept_planes(p, kept=False)),
}


@pytest.mark.parametrize("case", SAME)
def test_what_changes_no_record_before_a_step_is_no_change_of_it(case: str) -> None:
    before, now = SAME[case]
    new = {write.table for write in made(now).writes} - {write.table for write in made(before).writes}
    plan = next_batch(now, before, begin_anew=tuple(new))
    assert (plan.anew, plan.on) == (next_batch(before, before).anew, next_batch(before, before).on)


def renamed(p: Pipeline) -> None:
    running(views(p).filter("dep_delay > 0").select("dep_delay"), name="sums").write("totals", mode="upsert")


def test_a_step_that_is_renamed_below_a_table_that_has_rows_is_refused_until_asked_for() -> None:
    (finding,) = told(renamed)
    outcome = "table 'totals' has rows and would have only those of keys that come from now on"
    assert finding == (
        f"the step has no state yet and would begin with nothing; {outcome}\n"
        "  where: step 'sums', which batch 0 did not have\n"
        "  next:  name it 'totals' again, as it does the same, or say in the pipeline that it is that one: "
        'pipeline.changed("sums", was="totals"); or make what it would have kept by a backfill of all '
        "batches: `coset backfill p --from 0 --cascade`; or for a new beginning ask for it by name: "
        "`coset plan p --begin-anew sums`"
    )
    plan = next_batch(renamed, begin_anew=("sums",))
    (change,) = diff(planned(plain, 10), plan).states
    assert change.why == ("it does what totals did", "as asked for by its name")


def test_a_new_step_over_a_table_that_appends_is_refused_too() -> None:
    def first(p: Pipeline) -> None:
        views(p).select("dep_delay").write("raw")

    def now(p: Pipeline) -> None:
        views(p).select("dep_delay").latest("dep_delay", name="newest").to_stream().write("raw")

    (finding,) = told(now, first)
    assert "table 'raw' has rows, and those to come would know nothing of earlier batches" in finding


def test_a_new_step_over_a_new_table_is_asked_about_with_the_table() -> None:
    def now(p: Pipeline) -> None:
        plain(p)
        p.flow("views").latest("dep_delay", name="newest").to_stream().write("newest")

    (finding,) = told(now)
    assert finding == (
        "the table is new, and would have only what comes from this batch on, and nothing of the records of earlier "
        "batches; newest would begin with nothing, too\n"
        "  where: table 'newest', which batch 0 did not write\n"
        "  next:  to have it whole, make it by a backfill of all batches: `coset backfill p --from 0 --cascade`; "
        "or take it as it would be, by its name: `coset plan p --begin-anew newest`"
    )
    assert next_batch(now, begin_anew=("newest",)).anew == ()


def test_a_step_that_is_changed_itself_cannot_go_on() -> None:
    def now(p: Pipeline) -> None:
        flow = views(p).filter("dep_delay > 0").select("dep_delay").aggregate("count(*) AS n")
        flow.combine("max(n)::BIGINT AS n", running=True, name="totals").write("totals", mode="upsert")

    (finding,) = told(now, go_on=("totals",))
    assert finding.startswith("its columns changed from sum(n)::BIGINT AS n to max(n)::BIGINT AS n")
    assert "go-on" not in finding
    assert next_batch(now, begin_anew=("totals",)).anew == ("totals",)


def test_no_backfill_is_named_where_it_would_have_to_read_a_stream_that_no_batch_has() -> None:
    def merged(p: Pipeline) -> None:
        more = p.stream("more", key="tailnum", partitions=4).filter("dep_delay > 0").select("dep_delay")
        old = views(p).filter("dep_delay > 0").select("dep_delay")
        running(old.merge(more, name="both")).write("totals", mode="upsert")

    (finding,) = told(merged)
    assert (
        "if what it kept is still right, ask for that by name: `coset plan p --go-on totals`; or for a new" in finding
    )
    assert "coset backfill" not in finding

    def other(p: Pipeline) -> None:
        flow = p.stream("moved", key="tailnum", partitions=4).filter("dep_delay > 0").select("dep_delay")
        running(flow, name="sums").write("totals", mode="upsert")

    (finding,) = told(other)
    assert "next:  ask for it by name: `coset plan p --begin-anew sums`" in finding
    assert "coset backfill" not in finding


def with_users(p: Pipeline) -> None:
    plain(p)
    p.stream("users", key="tailnum", partitions=2).latest("at", name="newest").write("users", mode="upsert")


def with_users_appended(p: Pipeline) -> None:
    with_users(p)
    p.flow("users").select("at").write("all_users")


@pytest.mark.parametrize(
    ("build", "first", "whole"),
    [(with_users, 0, True), (with_users_appended, 0, False), (with_users, 3, False)],
    ids=["whole", "appended", "gone"],
)
def test_a_step_that_left_with_its_stream_says_how_its_rows_stay(build: Build, first: int, whole: bool) -> None:
    before = planned(build, 10)
    away = planned(plain, 20, 1, before)
    firsts, held = {"users": first}, {"users": 7, "all_users": 0}
    finding = finding_of(planned, build, 30, 2, away, [before, away], firsts=firsts, rows=held)
    anew = "ask for it by name: `coset plan p --begin-anew newest`"
    again = "let the stream be read again from its start, `coset forget p users --why '…'`, and "
    elsewhere = "to keep its rows as they are, write to a table of another name; or "
    assert finding.then == (f"to have its rows whole, {again}{anew}" if whole else f"{elsewhere}{anew}")


def test_names_of_no_such_step_are_refused() -> None:
    assert told(plain, begin_anew=("total",), go_on=("views",)) == [
        f"there is no table {name!r}, and no step of that name that keeps state\n  where: {setting}\n"
        "  next:  name a table, or a step that does: totals"
        for name, setting in (("total", "begin_anew"), ("views", "go_on"))
    ]


def test_a_table_that_is_not_kept_any_more_is_refused_if_its_first_records_are_in_no_file() -> None:
    def seats(*, kept: bool) -> Pipeline:
        pipeline = Pipeline("p", source="s3://landing/topics")
        planes = pipeline.table("planes", key="tailnum", partitions=2, kept=kept)
        views(pipeline).join(planes, "planes.dep_delay", name="flown").write("flown")
        return pipeline

    flown = arrived("views", [10] * 4)
    first = plan_of(seats(kept=True), [flown, arrived("planes", [200, 200])])
    then = [arrived("views", [20] * 4), arrived("planes", [300, 300], beginning=100)]
    with pytest.raises(Refused, match="declare it with kept=True again") as no:
        plan_of(seats(kept=False), then, batch=1, published=first)
    (finding,) = no.value.findings
    assert [place.where for place in finding.places] == ["planes-0", "planes-1"]
    assert finding.then.endswith("for what the files have: `coset plan p --begin-anew planes.kept`")
    asked = Settings(begin_anew=("planes.kept",))
    assert plan_of(seats(kept=False), then, batch=1, published=first, settings=asked)
    whole = [arrived("views", [20] * 4), arrived("planes", [300, 300])]
    assert plan_of(seats(kept=False), whole, batch=1, published=first)


def windowed(every: int, late: int = 0, gap: int = 0) -> Build:
    def build(pipeline: Pipeline) -> None:
        seen = pipeline.stream("views", key="tailnum", partitions=4, time="at", late=timedelta(minutes=1))
        minutes = {"keep": timedelta(minutes=late)} if late else {}
        sessions = {"gap": timedelta(minutes=gap)} if gap else {}
        seen.windows(
            "count(*) AS n",
            time="at",
            every=timedelta(minutes=every),
            late="correct" if late else "drop",
            name="hours",
            **minutes,
            **sessions,
        ).write("hours")

    return build


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (windowed(30), "0:30:00 of at"),
        (windowed(60, late=5), "1:00:00 of at, corrected for 0:05:00"),
        (windowed(60, gap=10), "1:00:00 of at, in sessions with a gap of 0:10:00"),
    ],
)
def test_changed_windows_are_said_as_they_were_written(now: Build, said: str) -> None:
    (finding,) = told(now, windowed(60))
    assert finding.startswith(f"its windows changed from 1:00:00 of at to {said}\n  where: state of hours.views")


def merged(*names: str, where: str = "dep_delay > 0", over: Callable[[Flow], Flow] = running) -> Build:
    """A running total over these streams."""

    def build(pipeline: Pipeline) -> None:
        streams = [pipeline.stream(name, key="tailnum", partitions=4, time="at") for name in names]
        first, *others = (stream.filter(where) for stream in streams)
        write(pipeline, over(first.merge(*others) if others else first))
        # What another step does with a stream is no matter.
        streams[-1].select("dep_delay").to_stream().write("plain", mode="replace")

    return build


def with_versions(*names: str) -> Build:
    """Of b the latest records, which it keeps."""

    def build(pipeline: Pipeline) -> None:
        streams = {name: pipeline.stream(name, key="tailnum", partitions=4) for name in names}
        flows = [stream.latest(by="dep_delay") if name == "b" else stream for name, stream in streams.items()]
        write(pipeline, running(flows[0].merge(*flows[1:]) if flows[1:] else flows[0]))

    return build


def timed(flow: Flow) -> Flow:
    return running(flow.distinct("dep_delay", time="at", within=timedelta(days=1), keep=timedelta(days=1)))


def elsewhere(pipeline: Pipeline) -> None:
    """b is read, and not for the totals."""
    A(pipeline)
    pipeline.stream("b", key="tailnum", partitions=4).select("dep_delay").write("b")


AB, A, B, ABC = merged("a", "b"), merged("a"), merged("b"), merged("a", "b", "c")


@pytest.mark.parametrize(
    ("history", "goes_on"),
    [
        ([AB, A, AB], True),
        ([AB, A, A, A, AB], True),
        ([AB, A, merged("b", "a")], True),
        ([AB, A, AB, A, AB], True),
        ([ABC, A, ABC], True),
        ([ABC, AB, A, ABC], True),
        ([ABC, AB, A, AB, ABC], True),
        ([AB, merged("a", "c"), ABC], True),
        # One that leaves, one that was never there, and both at once.
        ([AB, A], False),
        ([A, AB], False),
        ([AB, B, A], False),
        ([AB, A, ABC], False),
        # What was done meanwhile, or before, was something else.
        ([AB, merged("a", where="dep_delay > 9"), AB], False),
        ([AB, A, merged("a", "b", where="dep_delay > 9")], False),
        ([merged("a", "b", where="dep_delay > 9"), A, AB], False),
        ([AB, merged("a", over=lambda flow: running(flow, name="other")), AB], False),
        # The stream was read meanwhile, and not for this step.
        ([AB, elsewhere, AB], False),
        # Its time may have passed, or what another step kept of it.
        ([merged("a", "b", over=timed), merged("a", over=timed), merged("a", "b", over=timed)], False),
        ([with_versions("a", "b"), with_versions("a"), with_versions("a", "b")], False),
    ],
)
def test_a_step_goes_on_by_itself_once_streams_are_back_of_which_nothing_is_lost(
    history: list[Build], goes_on: bool
) -> None:
    plans = list[Plan]()
    for number, build in enumerate(history[:-1]):
        keeping = tuple(step.name for step in made(build).steps if step.state) if number else ()
        keeping += tuple(write.table for write in made(build).writes) if number else ()
        before = plans[-1] if plans else None
        plans.append(planned(build, 10 + number, number, before, go_on=keeping, begin_anew=keeping))

    def last() -> Plan:
        return planned(history[-1], 90, len(plans), plans[-1], plans)

    if goes_on:
        assert not last().on
    else:
        with pytest.raises(Refused) as refused:
            last()
        assert {finding.kind for finding in refused.value.findings} <= {Kind.STATE_CHANGED, Kind.STATE_BEGINS}


def test_a_stream_of_which_something_was_forgotten_or_lost_is_asked_about_when_it_is_back() -> None:
    first = planned(AB, 10)
    second = planned(A, 20, 1, first, go_on=("totals",))
    plans = [first, second]
    assert planned(AB, 30, 2, second, plans)
    # Its state began anew meanwhile, or the records are read once more, or some have gone.
    anew = planned(A, 20, 1, first, begin_anew=("totals",))
    with pytest.raises(Refused, match="--go-on totals"):
        planned(AB, 30, 2, anew, [first, anew])
    partition = OffsetRange(StreamPartition("b", 1), 0, 10)
    forgotten = second.ends.without([Forgotten(partition, What.POSITION)])
    with pytest.raises(Refused, match="--go-on totals"):
        planned(AB, 30, 2, second, plans, forgotten)
    assert planned(AB, 30, 2, second, plans, second.ends.without([Forgotten(partition, What.SOURCE)]))
    lost = tuple(OffsetRange(StreamPartition("b", number), 10, 12) for number in range(4))
    with pytest.raises(Refused, match="--go-on totals"):
        planned(AB, 30, 2, second, plans, firsts={"b": 12}, accept_loss=lost)


def in_another(*used_by: str, how: Differs = Differs.VALUE) -> Engine:
    """DuckDB 2.0.1 after 1.5.5, where a function that these use answers otherwise."""
    return Engine("2.0.1", "1.5.5", (OtherAnswer("bar", how, used_by, "bar('é')", "2", "1"),))


@pytest.mark.parametrize("used_by", ["views", "views.filter.select.aggregate", "totals"])
def test_a_step_does_not_go_on_unasked_from_rows_that_another_engine_made_otherwise(used_by: str) -> None:
    """Whether it uses what differs itself, or what it is given by: a step, or the time of a stream."""
    engine = in_another(used_by)
    (finding,) = told(plain, engine=engine)
    assert finding.startswith("its engine changed from DuckDB 1.5.5 to DuckDB 2.0.1, where bar('é') was 2, is 1")
    assert "state of totals, left by batch 0" in finding
    assert "install DuckDB 1.5.5 again; if what it kept is still right, ask for that by name: " in finding
    assert "`coset plan p --go-on totals`; if not, make it anew by a backfill of all batches: " in finding
    assert "`coset backfill p --from 0 --cascade`; or for a new beginning" in finding
    on, anew = (
        next_batch(plain, engine=engine, go_on=("totals",)),
        next_batch(plain, engine=engine, begin_anew=("totals",)),
    )
    assert (on.on, anew.anew) == (("totals",), ("totals",))
    (state,) = diff(planned(plain, 10), on).states
    assert (state.outcome, state.why[-1]) == ("goes on from what it kept", "as asked for by its name")
    assert "engine changed from DuckDB 1.5.5" in state.why[0]
    changed = [(each.what, each.before, each.now) for each in diff(planned(plain, 10), on).changes]
    assert changed[-2:] == [("engine", "DuckDB 1.5.5", "DuckDB 2.0.1"), ("engine: bar('é')", "2", "1")]
    # The batch after it has only one engine behind it.
    assert planned(plain, 30, 2, on, engine=Engine("2.0.1")).on == ()


def test_another_engine_is_told_where_it_mixes_nothing() -> None:
    """Nothing is kept after what differs, or one of both versions gives no value; and where it differs nowhere, it
    goes on."""
    for used_by, how in (("elsewhere", Differs.VALUE), ("totals", Differs.REFUSED)):
        plan = next_batch(plain, engine=in_another(used_by, how=how))
        assert plan.on == ()
        (row,) = (
            row for part in explain(plan) if part.title == "What may surprise" for row in part.rows if "é" in row[1]
        )
        assert row[0] == used_by
        assert row[2] == "see which rows it changes: `coset backfill p --from 0 --cascade`"
    assert "é" not in str(explain(next_batch(plain, engine=in_another("totals", how=Differs.ACCEPTED))))
    uncompared, same = (next_batch(plain, engine=Engine("2.0.1", "1.5.5", answers)) for answers in (None, ()))
    assert "nobody has compared its answers with those of 1.5.5" in str(explain(uncompared))
    assert "DuckDB" not in str(explain(same))
    found = diff(planned(plain, 10), same)
    assert ("engine", "DuckDB 1.5.5", "DuckDB 2.0.1") in [(each.what, each.before, each.now) for each in found.changes]
    assert "provided that DuckDB 2.0.1 answers as 1.5.5 did" in str(found.results)


def test_a_plan_names_its_engine_when_it_is_stored() -> None:
    plan = next_batch(plain, engine=in_another("elsewhere"))
    assert decode(Plan, encode(plan), "plan").planned_for == plan.engine
    assert planned(plain, 10).planned_for == Engine("1.5.5")
