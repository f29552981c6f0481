"""Windows of hours: when one is open, and when it opens next."""

from __future__ import annotations

from datetime import datetime

import pytest

from coset.batches.backfills.hours import Hours
from partitioning.errors import Refused


def opens(hours: str, now: str) -> str | None:
    found = Hours.parse(hours).opens(datetime.fromisoformat(now))
    return None if found is None else found.isoformat(timespec="minutes")


@pytest.mark.parametrize("now", ["2026-11-22T01:30:00+00:00", "2026-11-22T04:59:59+00:00"])
def test_within_the_hours_nothing_is_waited_for(now: str) -> None:
    assert opens("01:30-05:00", now) is None


@pytest.mark.parametrize(
    ("now", "opened"),
    [
        ("2026-11-22T01:29:59+00:00", "2026-11-22T01:30+00:00"),
        ("2026-11-22T05:00:00+00:00", "2026-11-23T01:30+00:00"),
        ("2026-12-31T23:00:00+00:00", "2027-01-01T01:30+00:00"),
    ],
)
def test_outside_they_open_today_or_tomorrow(now: str, opened: str) -> None:
    assert opens("01:30-05:00", now) == opened


@pytest.mark.parametrize(
    ("now", "opened"),
    [
        ("2026-11-22T21:59:00+00:00", "2026-11-22T22:00+00:00"),
        ("2026-11-22T22:00:00+00:00", None),
        ("2026-11-22T23:59:00+00:00", None),
        ("2026-11-23T00:00:00+00:00", None),
        ("2026-11-23T05:59:00+00:00", None),
        ("2026-11-23T06:00:00+00:00", "2026-11-23T22:00+00:00"),
    ],
)
def test_hours_go_on_over_midnight(now: str, opened: str | None) -> None:
    assert opens("22:00-06:00", now) == opened


def test_they_are_those_of_their_time_zone() -> None:
    assert opens("22:00-06:00 Europe/Berlin", "2026-11-22T21:30:00+00:00") is None
    assert opens("22:00-06:00 Europe/Berlin", "2026-07-01T19:30:00+00:00") == "2026-07-01T22:00+02:00"
    # The clocks are put forward on the night between.
    assert opens("22:00-06:00 Europe/Berlin", "2026-03-28T12:00:00+00:00") == "2026-03-28T22:00+01:00"
    assert opens("08:00-09:00 Europe/Berlin", "2026-03-28T12:00:00+00:00") == "2026-03-29T08:00+02:00"


@pytest.mark.parametrize(
    "text", ["22-6", "24:00-06:00", "22:00", "06:00-06:00", "22:00-06:60", "22:00-06:00 Nowhere/At"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(Refused, match=r"is not a window of hours|there is no time zone 'Nowhere/At'"):
        Hours.parse(text)
