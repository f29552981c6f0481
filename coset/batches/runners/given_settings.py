"""Spark settings that users give: by `--conf`, by an environment of coset.toml, by a connection of Airflow, or in
Spark's own file.

They become arguments of Spark, which everybody on a machine can read. So none may hold a secret.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from partitioning.errors import Finding, Refused, refuse
from partitioning.kinds import Kind

# The settings of an environment, as words `name=value` for a shell.
GIVEN = "COSET_SPARK"

Settings = Mapping[str, str]

# A password in an address, a key of Amazon's, and the options of addresses that hold secrets.
CREDENTIAL = re.compile(r"://[^/@\s]*:[^/@\s]+@|\bA(?:KIA|SIA)[0-9A-Z]{16}\b|[;?&](?:token|password|secret)=", re.I)
# What Spark itself hides.
_SECRET = re.compile(r"secret|password|token|access[._-]?key", re.IGNORECASE)
# What only says where a secret is.
_REFERENCE = re.compile(r"secretKeyRef|\.secrets\.|file(name)?$|(?<!access[._-])(enabled|provider)$", re.IGNORECASE)
# Who starts Spark decides these.
_NOT_GIVEN = {"spark.master": "`--master`, SPARK_MASTER or the connection's host", "spark.app.name": "nothing"}
# A line of Java's properties: the name ends at a blank, a colon or an equals sign.
_LINE = re.compile(r"(?P<name>[^\s:=#!][^\s:=]*)\s*[:=\s]\s*(?P<value>.*)")


def is_secret(name: str, value: str = "") -> bool:
    """Whether a setting of Spark holds a secret, and does not only say where one is.

    >>> is_secret("spark.authenticate.secret"), is_secret("spark.authenticate.secret.file")
    (True, False)
    """
    return bool((_SECRET.search(name) and not _REFERENCE.search(name)) or CREDENTIAL.search(value))


def parsed(texts: Iterable[str], where: str) -> dict[str, str]:
    """Settings from texts `name=value`. Raises Refused with all findings."""
    return checked(dict(text.partition("=")[::2] for text in texts), where)


def checked(settings: Mapping[str, object], where: str) -> dict[str, str]:
    """The settings with their values as text. Raises Refused, with all findings, if one is none of Spark's or has no
    value, if it is not for users, or if it holds a secret."""
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in settings.items()}
    findings = [finding for name, value in texts.items() for finding in _wrong(name, value, where)]
    refuse(findings)
    return texts


def of_environment() -> dict[str, str]:
    """The settings that the variable COSET_SPARK gives. Raises Refused as `parsed`."""
    try:
        words = shlex.split(os.environ.get(GIVEN, ""))
    except ValueError as error:
        then = "write it as words for a shell: COSET_SPARK='spark.executor.memory=4g spark.cores.max=8'"
        raise Refused.of(Kind.SETTING, f"{GIVEN} cannot be read: {error}", GIVEN, then, error=error) from None
    return parsed(words, GIVEN)


def as_variable(settings: Settings) -> str:
    """Settings as the value of COSET_SPARK."""
    return shlex.join(f"{name}={value}" for name, value in settings.items())


def of_file(spark_home: str) -> dict[str, str]:
    """The settings of spark-defaults.conf, which Spark reads itself. They may hold secrets: they go no further."""
    folder = os.environ.get("SPARK_CONF_DIR") or Path(os.environ.get("SPARK_HOME") or spark_home) / "conf"
    try:
        lines = (Path(folder) / "spark-defaults.conf").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    found = (_LINE.fullmatch(line.strip()) for line in lines)
    return {match["name"]: match["value"] for match in found if match}


def _wrong(name: str, value: str, where: str) -> Iterable[Finding]:
    if is_secret(name, value):
        what = f"{name} holds a secret, and everybody on a machine can read the arguments of Spark"
        then = (
            "put it into spark-defaults.conf, which only its user can read; Coset itself hands on the AWS_… variables"
        )
        yield Finding.of(Kind.SECRET, what, where, then, name=name)
    elif not name.startswith("spark.") or not value:
        then = "write it as name=value: spark.executor.memory=4g"
        yield Finding.of(Kind.SETTING, f"{name!r} is no setting of Spark with a value", where, then, name=name)
    elif name in _NOT_GIVEN:
        yield Finding.of(Kind.SETTING, f"{name} is not set in this way", where, f"use {_NOT_GIVEN[name]}", name=name)
