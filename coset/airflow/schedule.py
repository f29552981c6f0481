"""The schedule of a DAG: when its next run is, by its own timetable."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pendulum
from airflow.serialization.encoders import coerce_to_core_timetable
from airflow.timetables.base import DataInterval, TimeRestriction

from coset.airflow.shown import say
from coset.reports.timeliness import ScheduledRun

# Runs of a DAG that always runs follow each other at once.
_AT_ONCE = timedelta(seconds=1)


def scheduled_run(dag: Any, ran: Any) -> ScheduledRun:
    """A run of this DAG, which was to run then, and the next by its timetable. Those of assets, of no schedule, and of
    one that the DAG's own class makes in ways that are not known here have none."""
    after = pendulum.instance(ran)
    try:
        timetable = coerce_to_core_timetable(dag.timetable)
        restriction = TimeRestriction(earliest=None, latest=None, catchup=True)
        info = timetable.next_dagrun_info(
            last_automated_data_interval=DataInterval.exact(after), restriction=restriction
        )
    except Exception as error:
        # It may be anybody's class. What it says decides nothing.
        say(f"Its schedule does not say when the next run is: {type(error).__name__}")
        info = None
    found = info.run_after if info else None
    known = found is not None and found - after > _AT_ONCE
    return ScheduledRun(_milliseconds(after), _milliseconds(found) if known else None)


def _milliseconds(at: Any) -> int:
    return int(at.timestamp() * 1000)
