"""The project: what coset.toml says of where pipelines are, of the environments in which they run, and when they do.

An environment stands for the variables that Coset read before there was a coset.toml. One that is set goes on to count.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from msgspec import field

from coset.batches.runners.given_settings import GIVEN, as_variable
from coset.batches.runners.runner import RunnerKind
from coset.reports.timeliness import ScheduledBy, ScheduledRun
from partitioning.authoring.pipeline import Pipeline
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.sources import address_of
from partitioning.model.stream_rules import checked
from partitioning.model.streams import Stream
from partitioning.values import Value, replace

FILE = "coset.toml"
# Where pipelines are in a folder without a coset.toml, and in one that does not say it.
USUAL = "dags/pipelines"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIELDS = 5


class Environment(Value, frozen=True, kw_only=True):
    """An environment as coset.toml describes it; paths are relative to that file.

    `tables` is where result tables lie, if not in the store, and `iceberg` names the catalogue and namespace of Iceberg
    tables that follow them. `source` takes the place of the pipelines' own `source=`,
    and `sources` that of a stream, by `stream` or `pipeline.stream`. `spark` has Spark's settings. `schedule` is a cron
    expression that says when pipelines run; `schedules` has those of single ones, and is empty for one without any.
    `notify` names the variable that holds the addresses of those who are told: they are secret. In `production` Coset
    asks before it does what cannot be undone.
    """

    store: str = ""
    tables: str = ""
    iceberg: str = ""
    source: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)
    imports: tuple[str, ...] = ()
    runner: RunnerKind | None = None
    master: str = ""
    spark: Mapping[str, str] = field(default_factory=dict)
    settings: str = ""
    docs: str = ""
    docs_url: str = ""
    owner: str = ""
    owners: Mapping[str, str] = field(default_factory=dict)
    schedule: str = ""
    schedules: Mapping[str, str] = field(default_factory=dict)
    notify: str = ""
    production: bool = False

    def variables(self, folder: Path) -> dict[str, str]:
        """The variables that it stands for, in a project that lies in this folder."""
        said = {
            "COSET_STORE": _absolute(self.store, folder),
            "COSET_TABLES": _absolute(self.tables, folder),
            "COSET_ICEBERG": self.iceberg,
            "COSET_IMPORTS": ",".join(self.imports),
            "COSET_RUNNER": self.runner or "",
            "SPARK_MASTER": self.master,
            GIVEN: as_variable(self.spark),
            "COSET_SETTINGS": _absolute(self.settings, folder),
            "COSET_DOCS": _absolute(self.docs, folder),
            "COSET_DOCS_URL": self.docs_url,
            "COSET_NOTIFY": os.environ.get(self.notify, ""),
        }
        return {name: value for name, value in said.items() if value}

    def schedule_of(self, pipeline: str) -> str:
        """When a pipeline runs here, as a cron expression in UTC; empty if nothing says it."""
        return self.schedules.get(pipeline, self.schedule)

    def applied(self, pipeline: Pipeline, folder: Path) -> Pipeline:
        """The pipeline with the sources and owner that it has here. Raises Refused if a stream cannot be read so."""

        def at_home(stream: Stream) -> Stream:
            named = self.sources.get(f"{pipeline.name}.{stream.name}") or self.sources.get(stream.name)
            source = named or (self.source if stream.source == pipeline.source else "")
            return checked(replace(stream, source=address_of(_absolute(source, folder)))) if source else stream

        applied = pipeline.with_streams(at_home)
        applied.owner = self.owners.get(pipeline.name) or pipeline.owner or self.owner
        return applied


def _absolute(address: str, folder: Path) -> str:
    """An address as it is, a path below the folder."""
    return address if not address or ":" in address.partition("/")[0] else str(folder / address)


class Project(Value, frozen=True, kw_only=True):
    """What coset.toml says: where `pipelines` are (folders, or import paths of modules and packages), in which folders
    modules are found (`python_path`), its `environments`, and which of them is the `default`.
    """

    folder: Path
    pipelines: tuple[str, ...] = (USUAL,)
    python_path: tuple[str, ...] = ()
    default: str = ""
    environments: Mapping[str, Environment] = field(default_factory=dict)

    @property
    def python_folders(self) -> tuple[Path, ...]:
        """The folders in which its modules are found."""
        return tuple((self.folder / each).resolve() for each in self.python_path)

    def chosen(self, named: str | None) -> str:
        """The name of the environment that is meant: the one `named`, else the default, else the only one; empty if the
        project has none. Raises Refused if it is none of the project's, or if it is not said which."""
        name = named or self.default or (next(iter(self.environments)) if len(self.environments) == 1 else "")
        if name in self.environments or not (name or self.environments):
            return name
        what = f"there is no environment {name!r}" if name else "it is not said which environment is meant"
        known = ", ".join(self.environments)
        then = f"name one of {known}, by `--env` or COSET_ENV" if known else f"write it into {FILE}"
        raise Refused.of(Kind.ARGUMENT, what, str(self.folder / FILE), then, environment=name)


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
    return ScheduledRun.of(ran, next, ScheduledBy.PROJECT)
