"""The schedule of a DAG: when its next run is, by its own timetable."""

from __future__ import annotations

from typing import Any

import pendulum
from airflow.serialization.encoders import coerce_to_core_timetable
from airflow.timetables.base import DataInterval, TimeRestriction
from airflow.timetables.simple import ContinuousTimetable

from coset.airflow.shown import say
from coset.reports.timeliness import ScheduledRun


def scheduled_run(dag: Any, ran: Any) -> ScheduledRun:
    """A run of this DAG, which was to run then, and the next by its timetable.

    Runs of assets, of no schedule, and of a timetable that fails here have no next run. Nor have those of
    `@continuous`, alone or with assets: each begins when the one before it has ended, and Airflow answers with the
    clock.
    """
    after = pendulum.instance(ran)
    try:
        timetable = coerce_to_core_timetable(dag.timetable)
        if isinstance(getattr(timetable, "timetable", timetable), ContinuousTimetable):
            return ScheduledRun.of(after, None)
        restriction = TimeRestriction(earliest=None, latest=None, catchup=True)
        info = timetable.next_dagrun_info(
            last_automated_data_interval=DataInterval.exact(after), restriction=restriction
        )
    except Exception as error:
        # It may be anybody's class. What it says decides nothing.
        say(f"Its schedule does not say when the next run is: {type(error).__name__}")
        info = None
    found = info.run_after if info else None
    return ScheduledRun.of(after, found if found is not None and found > after else None)
