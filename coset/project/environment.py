"""Environments: where the pipelines of a project run, each with its own store, sources, runner and people.

An environment stands for the variables that Coset read before there was a coset.toml. One that is set goes on to count.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import field

from coset.batches.runners.choice import RunnerKind
from coset.batches.runners.given_settings import GIVEN, as_variable
from partitioning.authoring.pipeline import Pipeline
from partitioning.model.sources import address_of
from partitioning.model.stream_rules import checked
from partitioning.model.streams import Stream
from partitioning.values import Value, replace


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
