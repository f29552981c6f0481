"""The file coset.toml: found, read and checked. No secret belongs in it: it is kept with the code."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec

from coset.batches.runners.given_settings import CREDENTIAL, checked
from coset.project.project import FILE, Environment, Project, is_schedule
from partitioning.errors import Finding, Refused
from partitioning.kinds import Kind
from partitioning.values import Value

_SECRET_KEY = re.compile(r"password|passwd|secret|token|credential|access_?key", re.I)
_VARIABLES = "the AWS_… variables, COSET_KAFKA_PROPERTIES, SPARK_MASTER, or the variable that `notify` names"
_HEADER = re.compile(r"\s*\[([^\[\]]+)\]")


def project_of(folder: Path) -> Project:
    """The project of a folder: by the coset.toml in it, or in the nearest folder above it. Without one, there is only
    the usual folder of pipelines.

    Raises Refused, with all findings.
    """
    for place in (folder, *folder.parents):
        if (place / FILE).is_file():
            return _File(place / FILE).project()
    return Project(folder=folder)


class _File:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._findings: list[Finding] = []

    def project(self) -> Project:
        try:
            self._text = self._file.read_text(encoding="utf-8")
            said = tomllib.loads(self._text)
        except (OSError, ValueError) as error:  # what is no UTF-8 or no TOML is a ValueError
            what, where = f"{FILE} cannot be read: {error}", str(self._file)
            raise Refused.of(Kind.SETTING, what, where, "correct it", error=error) from error
        self._findings += self._secrets(said, "")
        tables = said.pop("environments", {})
        if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
            self._wrong("", "environments", "the environments are no tables", "write each as [environments.dev]")
            tables = {}
        environments = {
            name: Environment(**self._fields(Environment, table, f"environments.{name}"))
            for name, table in tables.items()
        }
        for name, environment in environments.items():
            self._look_at_schedules(f"environments.{name}", environment)
        project = Project(folder=self._file.parent, **self._fields(Project, said, ""), environments=environments)
        if project.default and project.default not in environments:
            then = f"name one of {', '.join(environments) or 'the environments that you write into it'}"
            self._wrong("", "default", f"there is no environment {project.default!r}", then)
        if self._findings:
            raise Refused(*dict.fromkeys(self._findings))
        return project

    def _look_at_schedules(self, place: str, environment: Environment) -> None:
        given = [("schedule", "schedule", environment.schedule)]
        given += [("schedules", f"schedules.{name}", schedule) for name, schedule in environment.schedules.items()]
        for key, called, schedule in given:
            if schedule and not is_schedule(schedule):
                then = 'write one, such as "30 6 * * 1-5", or @hourly, @daily, @weekly, @monthly or @yearly'
                what = f"{place}.{called} cannot be {schedule!r}: it is no cron expression of five fields"
                self._wrong(place, key, what, then)

    def _fields(self, of: type[Value], table: Mapping[str, Any], place: str) -> dict[str, Any]:
        """The fields that a table gives, with the types that they must have; all else is a finding."""
        known = {each.name: each.type for each in msgspec.structs.fields(of) if each.name not in _NOT_WRITTEN}
        given = dict[str, Any]()
        for key, value in table.items():
            if key == "spark" and of is Environment and isinstance(value, dict):
                given[key] = self._of_spark(value, _named(place, key))
                continue
            if key not in known:
                if not _SECRET_KEY.search(key):
                    close = get_close_matches(key, known, 1)
                    then = f"write {close[0]!r}" if close else f"leave it out; there are {', '.join(known)}"
                    self._wrong(place, key, f"unknown key {_named(place, key)}", then)
                continue
            try:
                given[key] = msgspec.convert(value, known[key])
            except msgspec.ValidationError as error:
                self._wrong(place, key, f"{_named(place, key)} cannot be {value!r}: {error}", "correct it")
        return given

    def _of_spark(self, table: Mapping[str, Any], place: str) -> dict[str, str]:
        """Spark's settings, by their whole names, however the table is written."""
        try:
            return checked(dict(_leaves(table, ())), place)
        except Refused as refusal:
            for each in refusal.findings:
                name = str(dict(each.about).get("name"))
                what = f"{place}: {each.what}"
                self._findings.append(Finding.of(each.kind, what, self._where(place, name), each.next, name=name))
            return {}

    def _secrets(self, table: Mapping[str, Any], place: str) -> Iterator[Finding]:
        """Where credentials stand. Their values are not repeated."""
        for key, value in table.items():
            if place.startswith("environments.") and key == "spark":
                continue  # its names are Spark's, and are looked at with them
            if isinstance(value, dict):
                yield from self._secrets(value, _named(place, key))
                continue
            texts = [text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str)]
            address = key == "notify" and any("://" in text for text in texts)
            if address or _SECRET_KEY.search(key) or any(map(CREDENTIAL.search, texts)):
                what = f"{_named(place, key)} holds a secret, and {FILE} is kept with the code"
                then = f"take it out, have it changed, and let the environment give it: {_VARIABLES}"
                yield Finding.of(Kind.SECRET, what, self._where(place, key), then, key=_named(place, key))

    def _wrong(self, place: str, key: str, what: str, then: str) -> None:
        found = Finding.of(Kind.SETTING, what, self._where(place, key), then, key=_named(place, key))
        self._findings.append(found)

    def _where(self, place: str, key: str) -> str:
        """The file, and the line in which a key of a table is given a value, if it has one of its own."""
        table = ""
        for number, line in enumerate(self._text.splitlines(), 1):
            if header := _HEADER.match(line):
                table = header[1].replace('"', "").strip()
            if (table == place and re.match(rf'\s*"?{re.escape(key)}"?\s*=', line)) or table == _named(place, key):
                return f"{self._file}:{number}"
        return str(self._file)


def _leaves(table: Mapping[str, Any], above: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*above, key))
        else:
            yield ".".join((*above, key)), value


_NOT_WRITTEN = ("folder", "environments")


def _named(place: str, key: str) -> str:
    return f"{place}.{key}" if place else key
