"""The sensor that lets a backfill begin its batches in a window of hours only."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator

from coset.airflow.shown import say
from coset.batches.backfills.pacing.hours import Hours

if TYPE_CHECKING:
    from airflow.sdk import Context

_A_DAY_AND_A_BIT = timedelta(hours=25)


class HoursSensor(BaseSensorOperator):
    """Waits until the window opens. It takes no slot meanwhile."""

    def __init__(self, *, hours: Hours, **kwargs: Any) -> None:
        super().__init__(mode="reschedule", poke_interval=60, timeout=_A_DAY_AND_A_BIT.total_seconds(), **kwargs)
        self.hours = hours

    def poke(self, context: Context) -> bool:
        opens = self.hours.opens(datetime.now(UTC))
        if opens:
            say(f"Outside of {self.hours}: it continues at {opens:%Y-%m-%d %H:%M} {opens.tzname()}")
        return opens is None
