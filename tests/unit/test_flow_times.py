"""How far flows have come in time: what is late, and how partners in time are found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import duckdb
import pytest

from partitioning.authoring.flow import Flow
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.state_sql import beside, is_beside
from partitioning.authoring.words import How, LateRecord
from partitioning.model.stage_inputs import ExchangeInput
from partitioning.model.watermarks import Watermark
from partitioning.planning.flow_times import FlowTime, FlowTimes, Why, needed
from tests.plans import arrived, plan_of
from tests.refused import finding_of

HOUR = timedelta(hours=1)
DAY = 24 * HOUR
_MICROSECONDS = 3600 * 10**6
# Midnight of a Thursday, in hours after 1970.
_MIDNIGHT = 20_454 * 24
# Clicks have come to 21:00 and prices to 15:00, unless a case says otherwise.
CLICKS, PRICES = 21, 15
Made = Callable[[Flow, Flow], Flow]


def _of(made: Made, clicks: int = CLICKS, prices: Watermark | int = PRICES) -> tuple[FlowTimes, Flow]:
    pipeline = Pipeline("shown", source="s3://landing/topics")
    flows = [pipeline.stream(name, key="k", partitions=1, time="seen") for name in ("clicks", "prices")]
    marks = [prices if isinstance(prices, Watermark) else _mark("prices", prices), _mark("clicks", clicks)]
    flow = made(*flows)
    return FlowTimes(pipeline.graph, marks), flow


def _mark(stream: str, hour: int | None, **more: Any) -> Watermark:
    time = None if hour is None else (_MIDNIGHT + hour) * _MICROSECONDS
    return Watermark(stream, time, (time,), (None,), **more)


def _hour(flow: FlowTime | None) -> int | None:
    assert flow is not None
    return None if flow.time is None else flow.time // _MICROSECONDS - _MIDNIGHT


def _windows(flow: Flow, time: str = "seen", every: timedelta = 6 * HOUR, **more: Any) -> Flow:
    return flow.windows("count(*) AS n", time=time, every=every, **more)


def _sessions(clicks: Flow) -> Flow:
    return _windows(clicks, every=DAY, gap=HOUR, name="sessions")


def _within(clicks: Flow, prices: Flow, how: How = "left") -> Flow:
    times = ("clicks.seen", "prices.seen")
    return clicks.join_within(prices, "clicks.seen AS t", times=times, within=2 * HOUR, how=how, name="pairs")


def _as_of(one: Flow, prices: Flow, time: str = "seen", wait: timedelta = timedelta()) -> Flow:
    times, columns = (f"{one.alias}.{time}", "prices.seen"), f"{one.alias}.{time}, prices.cents"
    return one.join_as_of(prices, columns, times=times, wait=wait, keep=DAY, name="priced")


def _expired(flow: Flow, time: str = "seen") -> Flow:
    return flow.combine(f"max({time}) AS seen", running=True, time=time, keep=3 * HOUR, name="total").expired(name="x")


@pytest.mark.parametrize(
    ("made", "hour", "less"),
    [
        (lambda clicks, _: clicks.filter("n > 1").select("seen"), 21, []),
        (lambda clicks, prices: clicks.select("k").merge(prices.select("k")), 15, []),
        # The window from 18:00 on is open, and a session of the day may have begun at midnight.
        (lambda clicks, _: _windows(clicks), 18, [(Why.EVERY, 3)]),
        (lambda clicks, _: _sessions(clicks), 0, [(Why.EVERY, 21)]),
        (lambda clicks, _: _windows(clicks, late="correct", keep=4 * HOUR), 12, [(Why.KEEP, 4), (Why.EVERY, 5)]),
        # A pair comes with the later one of its records.
        (lambda clicks, prices: _within(clicks, prices), 13, [(Why.WITHIN, 2)]),
        (lambda clicks, prices: _within(clicks, prices, "inner"), 13, [(Why.WITHIN, 2)]),
        (lambda clicks, prices: _as_of(clicks, prices), 15, []),
        (lambda clicks, prices: _as_of(clicks, prices, wait=2 * HOUR), 13, [(Why.WAIT, 2)]),
        (lambda clicks, _: _expired(clicks), 18, [(Why.KEEP, 3)]),
        # Windows behind windows add nothing where one length is a multiple of the other.
        (lambda clicks, _: _windows(_windows(clicks), "window_start", DAY), 0, [(Why.EVERY, 3), (Why.EVERY, 18)]),
        # Windows behind windows behind a join.
        (
            lambda clicks, prices: _windows(_windows(_within(clicks, prices), "t"), "window_start", 12 * HOUR),
            12,
            [(Why.WITHIN, 2), (Why.EVERY, 1)],
        ),
        # What goes by the end of windows waits for none that is open.
        (lambda clicks, _: _windows(_sessions(clicks), "window_end", HOUR), 21, []),
        (lambda clicks, _: _windows(_sessions(clicks), "sessions.window_end", HOUR), 21, []),
        (lambda clicks, _: _windows(_sessions(clicks).select("n, window_end AS t"), "t", HOUR), 21, []),
        (lambda clicks, _: _windows(_sessions(clicks).select("n AS window_end"), "window_end", HOUR), 0, None),
        (lambda clicks, _: _expired(_sessions(clicks), "window_end"), 18, [(Why.KEEP, 3)]),
    ],
)
def test_what_follows_a_flow_goes_by_when_all_its_rows_have_come(
    made: Made, hour: int, less: Sequence[tuple[Why, int]] | None
) -> None:
    times, flow = _of(made)
    found = times.of(flow.step)
    assert found is not None
    assert _hour(found) == hour
    assert less is None or [(each.why, each.microseconds // _MICROSECONDS) for each in found.less] == less


_CHAINS: Sequence[tuple[Made, Sequence[str]]] = [
    (lambda clicks, _: _windows(_sessions(clicks), "window_start", 5 * HOUR), ["clicks"]),
    (lambda clicks, prices: _windows(_within(clicks, prices), "t", late="correct", keep=HOUR), ["clicks", "prices"]),
    (lambda clicks, prices: _as_of(_sessions(clicks), prices, "window_start", wait=HOUR), ["clicks", "prices"]),
    (lambda clicks, _: _expired(_windows(clicks), "window_end"), ["clicks"]),
]


@pytest.mark.parametrize(("made", "streams"), _CHAINS)
@pytest.mark.parametrize("asked", [7, 24, 31])
def test_what_is_said_to_be_needed_is_enough_and_no_less_is(made: Made, streams: Sequence[str], asked: int) -> None:
    time, far = (_MIDNIGHT + asked) * _MICROSECONDS, (_MIDNIGHT + 1000) * _MICROSECONDS
    graph, flow = _of(made)[1].pipeline.graph, _of(made)[1]
    need = needed(graph, flow.step, time, [_mark("clicks", 0), _mark("prices", 0)])
    assert sorted(need) == streams

    def come(reached: Mapping[str, int]) -> bool:
        marks = [Watermark(name, reached.get(name, far), (0,), (None,)) for name in ("clicks", "prices")]
        found = FlowTimes(graph, marks).of(flow.step)
        return found is not None and found.time is not None and found.time >= time

    assert come(need)
    assert not any(come({**need, name: need[name] - 1}) for name in streams)


def test_a_stream_that_is_idle_is_not_needed() -> None:
    _, flow = _of(_as_of)
    marks = [_mark("clicks", 0), _mark("prices", 0, idle=(0,))]
    assert list(needed(flow.pipeline.graph, flow.step, _MIDNIGHT * _MICROSECONDS, marks)) == ["clicks"]


@pytest.mark.parametrize(
    ("made", "side", "hour", "prices"),
    [
        # A record waits for versions only: that a session of its day may still come changes nothing about it.
        (lambda clicks, prices: _as_of(_sessions(clicks), prices, "window_start"), "priced.sessions", 15, PRICES),
        (lambda clicks, prices: _as_of(clicks, prices), "priced.clicks", 23, 23),
        # Versions are there for records that are still to come.
        (lambda clicks, prices: _as_of(_sessions(clicks), prices, "window_start"), "priced.prices", 0, PRICES),
        (lambda clicks, prices: _within(clicks, prices), "pairs.clicks", 15, PRICES),
        # Who has no new records is not waited for, or only so far.
        (lambda clicks, prices: _as_of(clicks, prices), "priced.clicks", 21, _mark("prices", 3, idle=(0,))),
        (lambda clicks, prices: _as_of(clicks, prices), "priced.clicks", 21, _mark("prices", None, idle=(0,))),
        (
            lambda clicks, prices: _within(clicks, prices),
            "pairs.prices",
            19,
            _mark("prices", 3, silent=(0,), behind=2 * _MICROSECONDS),
        ),
        (
            lambda clicks, prices: _within(clicks, prices),
            "pairs.prices",
            20,
            _mark("prices", 20, silent=(0,), behind=2 * _MICROSECONDS),
        ),
        (lambda clicks, prices: _within(clicks, prices), "pairs.prices", 3, _mark("prices", 3)),
    ],
)
def test_a_record_waits_for_the_flow_that_may_still_have_something_for_it(
    made: Made, side: str, hour: int, prices: Watermark | int
) -> None:
    times, flow = _of(made, prices=prices)
    (step,) = (step for step in flow.pipeline.steps if step.name == side)
    assert _hour(times.before(step)) == hour


# ---- late records


FOUND = [arrived("clicks", [10] * 4), arrived("views", [10] * 4)]


def _counted(late: LateRecord, hash_of_views: str) -> Pipeline:
    pipeline = Pipeline("late", source="s3://landing/topics")
    said: dict[str, Any] = {"key": "k", "partitions": 4, "time": "seen", "bad_records": "set aside"}
    clicks, views = pipeline.stream("clicks", **said), pipeline.stream("views", hash=hash_of_views, **said)
    both = clicks.select("seen").merge(views.select("seen"), name="both")
    both.windows("count(*) AS n", time="seen", every=HOUR, late=late, name="counted").write("counted")
    return pipeline


def test_windows_set_late_records_aside_where_flows_lie_alike_and_else_have_to_drop_them() -> None:
    plan = plan_of(_counted("set aside", "murmur2"), FOUND)
    assert not plan.exchanges
    finding = finding_of(plan_of, _counted("set aside", "java"), FOUND)
    assert finding.where == "step 'counted.counted'"
    assert "records of 'views" in finding.what
    assert 'use late="drop" or "correct"' in finding.then
    plan = plan_of(_counted("drop", "java"), FOUND)
    assert any(isinstance(read, ExchangeInput) for stage in plan.stages for read in stage.inputs)


# ---- partners in time


@pytest.mark.parametrize("within", [1, 2, 7])
def test_two_times_meet_once_if_they_are_near_and_else_never(within: int) -> None:
    times = [*range(-20 * within, 20 * within + 1), None]
    mine, theirs = ('mine."@time"', 'theirs."@time"')
    near = f"{is_beside(mine, 'theirs', within)} AND abs({mine} - {theirs}) <= {within}"
    with duckdb.connect() as connection:
        for name in ("one", "other"):
            connection.execute(f'CREATE TABLE {name} AS SELECT unnest(?::BIGINT[]) AS "@time"', [times])
        sql = f"SELECT {mine}, {theirs} FROM one AS mine JOIN {beside('other', 'theirs', within)} ON {near}"
        found = connection.execute(sql).fetchall()
    known = [time for time in times if time is not None]
    assert sorted(found) == [(one, other) for one in known for other in known if abs(one - other) <= within]


def test_a_key_with_many_records_costs_no_comparison_of_each_with_each() -> None:
    records, within = 20_000, 5
    with duckdb.connect() as connection:
        connection.execute(f'CREATE TABLE side AS SELECT range * {within} AS "@time" FROM range({records})')
        on = is_beside('mine."@time"', "theirs", within)
        sql = f"SELECT count(*) FROM side AS mine JOIN {beside('side', 'theirs', within)} ON {on}"
        assert connection.execute(sql).fetchall()[0][0] < 20 * records
