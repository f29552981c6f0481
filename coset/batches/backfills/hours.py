"""Hours: when a backfill may start task groups, as a time of day in a time zone."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.values import Value

_HOURS = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])-([01][0-9]|2[0-3]):([0-5][0-9])(?: (\S+))?")


class Hours(Value, frozen=True):
    """From the minute `start` of a day to the minute `end`, which is of the next day if it is smaller."""

    start: int
    end: int
    zone: str = "UTC"

    @classmethod
    def parse(cls, text: str) -> Hours:
        """
        >>> str(Hours.parse("22:00-06:00 Europe/Berlin")), str(Hours.parse("01:30-05:00"))
        ('22:00-06:00 Europe/Berlin', '01:30-05:00 UTC')

        Raises Refused for anything else, and for an unknown time zone.
        """
        match = _HOURS.fullmatch(text)
        if match is None or match.group(1, 2) == match.group(3, 4):
            then = "write it as 22:00-06:00, or 22:00-06:00 Europe/Berlin; without a time zone it is UTC"
            what = f"{text!r} is not a window of hours"
            raise Refused.of(Kind.ARGUMENT, what, "window", then, text=text)
        start, end = (60 * int(match[number]) + int(match[number + 1]) for number in (1, 3))
        hours = cls(start, end, match[5] or "UTC")
        try:
            ZoneInfo(hours.zone)
        except (KeyError, OSError, ValueError) as error:
            what = f"there is no time zone {hours.zone!r}"
            raise Refused.of(Kind.ARGUMENT, what, "window", "use one such as Europe/Berlin", zone=hours.zone) from error
        return hours

    def opens(self, now: datetime) -> datetime | None:
        """When the hours begin next. None if it is within them now."""
        local = now.astimezone(ZoneInfo(self.zone))
        minute = 60 * local.hour + local.minute
        if self.start <= minute < self.end if self.start < self.end else minute >= self.start or minute < self.end:
            return None
        begins = local.replace(hour=self.start // 60, minute=self.start % 60, second=0, microsecond=0, fold=0)
        return begins if begins > local else begins + timedelta(days=1)

    def __str__(self) -> str:
        start, end = (f"{minute // 60:02}:{minute % 60:02}" for minute in (self.start, self.end))
        return f"{start}-{end} {self.zone}"
