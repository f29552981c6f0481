"""Timeliness: when a pipeline should publish next, by its schedule where that is known, else by how often it usually
does."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from coset.reports.site import Row
from partitioning.values import Value

# By how much of the time between two runs a publication may be later than the last one was.
_TENTH = 10


class ScheduledBy(StrEnum):
    """What says when a pipeline runs."""

    DAG = "DAG"
    PROJECT = "coset.toml"


class ScheduledRun(NamedTuple):
    """A run of a pipeline: when it was to run, and when the next is, in milliseconds since 1970; the second is None if
    no schedule says it."""

    ran: int
    next: int | None
    by: ScheduledBy = ScheduledBy.DAG

    @classmethod
    def of(cls, ran: datetime, next: datetime | None, by: ScheduledBy = ScheduledBy.DAG) -> ScheduledRun:
        """The run that was to begin then."""
        return cls(int(ran.timestamp() * 1000), None if next is None else int(next.timestamp() * 1000), by)


def after_run(known: Row, run: ScheduledRun, up_to_date: int | None) -> dict[str, object]:
    """What is noted of a pipeline's schedule when a run has begun: since when a run is `due` that has not ended well,
    and how long such a run took. `up_to_date` is the time at which it found nothing to do, if it did.

    `known` is what was noted before.
    """
    if run.next is None or run.next <= run.ran:
        # The other may go on to say it.
        other = (known.get("schedule") or {}).get("by", ScheduledBy.DAG) != run.by
        return {} if other else {"schedule": None}
    before: Row = known.get("schedule") or {"ran": run.ran, "next": run.next, "due": run.ran, "took": 0}
    due = run.ran if _is_well(known, before) else before["due"]
    noted = {"ran": run.ran, "next": run.next, "due": due, "took": _took(known, before), "by": run.by}
    current = before.get("current") if up_to_date is None else up_to_date
    return {"schedule": noted | ({} if current is None else {"current": current})}


class Timeliness(Value, frozen=True):
    """Whether a pipeline is late, and when its next publication is due, if a schedule says it."""

    late: bool
    due: int | None = None


def timeliness(row: Row, now: int) -> Timeliness:
    """What is noted of a pipeline, at a time.

    With a schedule, the next publication is due when the first run begins that has neither published nor found nothing
    to do; it may take as long as the last, and a tenth of the time between two runs. Without one, a pipeline is late
    that has been quiet for longer than is usual.
    """
    schedule = row.get("schedule")
    if schedule is None:
        after, published = row.get("late_after"), row.get("published")
        return Timeliness(after is not None and published is not None and (now - published) / 1000 > after)
    due = schedule["next"] if _is_well(row, schedule) else schedule["due"]
    return Timeliness(now > due + _took(row, schedule) + _apart(schedule) // _TENTH, due)


def _is_well(row: Row, schedule: Row) -> bool:
    """Whether something was published, or a run found nothing to do, since the last run was to begin."""
    times = (row.get("published"), schedule.get("current"))
    return any(time is not None and time >= schedule["ran"] for time in times)


def _took(row: Row, schedule: Row) -> int:
    """How long the last run took that published. Somebody may publish by hand, much later."""
    published = row.get("published")
    if published is None or published < schedule["ran"]:
        return int(schedule["took"])
    return min(int(published) - int(schedule["ran"]), _apart(schedule))


def _apart(schedule: Row) -> int:
    return int(schedule["next"]) - int(schedule["ran"])
