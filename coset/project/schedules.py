"""Schedules: when a pipeline runs, as coset.toml says it by a cron expression, in UTC."""

from __future__ import annotations

from datetime import UTC, datetime

from coset.reports.timeliness import ScheduledBy, ScheduledRun


def is_schedule(text: str) -> bool:
    """Whether this is a cron expression of five fields, or a name of one that both cron and Airflow know, by which
    there is a next time.

    >>> [is_schedule(text) for text in ("30 6 * * 1-5", "@daily", "* * * * * *", "0 0 31 2 *", "@reboot", "hourly")]
    [True, True, False, False, False, False]
    """
    from croniter import croniter  # noqa: PLC0415  most commands need none

    try:
        fields = croniter(text, _EPOCH)
        fields.get_next()
    except ValueError:
        return False
    return len(fields.expanded) == _FIELDS


def scheduled_run(schedule: str, now: datetime) -> ScheduledRun:
    """The run that began last by this schedule, and the next one.

    >>> run = scheduled_run("30 6 * * *", datetime(2026, 11, 25, 6, 30, 2, tzinfo=UTC))
    >>> [datetime.fromtimestamp(at / 1000, UTC).isoformat() for at in (run.ran, run.next)]
    ['2026-11-25T06:30:00+00:00', '2026-11-26T06:30:00+00:00']
    """
    from croniter import croniter  # noqa: PLC0415

    next = croniter(schedule, now.astimezone(UTC)).get_next(datetime)
    ran = croniter(schedule, next).get_prev(datetime)
    return ScheduledRun(_milliseconds(ran), _milliseconds(next), ScheduledBy.PROJECT)


def _milliseconds(at: datetime) -> int:
    return int(at.timestamp() * 1000)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIELDS = 5
