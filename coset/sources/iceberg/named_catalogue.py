"""Catalogues of Iceberg tables, by their names in PyIceberg's configuration."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from threading import get_ident
from typing import TYPE_CHECKING, cast

from coset.sources.s3 import iceberg_options, is_denied
from partitioning.commands import Command
from partitioning.errors import Refused, Unreachable
from partitioning.kinds import Kind

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

# PyIceberg has no base of its errors, and each catalogue raises those of its client.
_CLIENTS = {"botocore", "hive_metastore", "pydantic_core", "pyiceberg", "requests", "sqlalchemy", "thrift"}
# What it is no use to ask again. PyIceberg has NotImplementedError for what a catalogue does not do.
_REFUSED = {
    "AuthorizationExpiredError",
    "BadRequestError",
    "ForbiddenError",
    "InvalidObjectException",
    "InvalidOperationException",
    "NoRegionError",
    "NotImplementedError",
    "OAuthError",
    "UnauthorizedError",
}
# What AWS says where it knows neither who asks, nor what for.
_DENIED = re.compile("AccessDenied|ExpiredToken|UnrecognizedClient")

_FILES = {"py-io-impl": "coset.sources.iceberg.lake_files.LakeFiles"}
# Of the snapshots of a table a REST catalogue gives those that are current.
ONLY_CURRENT = {"snapshot-loading-mode": "refs"}


def catalogue(name: str, **options: str) -> Catalog:
    """The catalogue of that name, with these options beside those of its configuration. Raises Refused if nothing
    configures it."""
    from pyiceberg.catalog import load_catalog  # noqa: PLC0415  an extra
    from pyiceberg.exceptions import NotInstalledError  # noqa: PLC0415
    from pyiceberg.utils.config import Config  # noqa: PLC0415

    configured = cast(dict[str, str], Config().get_catalog_config(name) or {})
    said = _FILES | iceberg_options() | configured | options
    uri = "" if "py-catalog-impl" in said else said.get("uri", "")
    try:
        if said.get("type", "rest").lower() == "rest" and uri.startswith("http"):
            return _rest(os.getpid(), get_ident(), name, tuple(sorted(said.items())))
        if said.get("type", "sql").lower() == "sql" and uri.startswith(("sqlite", "postgresql")):
            from coset.sources.iceberg.sql_catalogue import SqlTogether  # noqa: PLC0415  an extra

            return SqlTogether(name, **said)
        if said.get("type", "hive").lower() == "hive" and uri.startswith("thrift"):
            from coset.sources.iceberg.hive_catalogue import HiveWithin  # noqa: PLC0415  an extra

            return HiveWithin(name, **said)
        return load_catalog(name, **said)
    except (KeyError, NotInstalledError, TypeError, ValueError) as error:
        # Of one that nothing configures, PyIceberg names a variable that may be none.
        why = text_of(error) if configured else "nothing configures it"
        what, then = f"PyIceberg cannot load the catalogue {name}: {why}", f"configure it {place_of(name, 'URI')}"
        raise Refused.of(Kind.SETTING, what, "environment", then, catalogue=name) from error


def place_of(name: str, setting: str) -> str:
    """Where a catalogue is given a setting. PyIceberg takes underscores of variables for hyphens, and two for a dot.

    >>> place_of("my-lake", "URI")
    'in .pyiceberg.yaml, or with PYICEBERG_CATALOG__MY_LAKE__URI'
    >>> place_of("my_lake", "URI")
    'in .pyiceberg.yaml; or call it my-lake, as PyIceberg knows no variable of a name with underscores'
    """
    if (other := re.sub("[_-]+", "-", name)) != name:
        return f"in .pyiceberg.yaml; or call it {other}, as PyIceberg knows no variable of a name with underscores"
    return f"in .pyiceberg.yaml, or with PYICEBERG_CATALOG__{name.upper().replace('-', '_')}__{setting}"


@lru_cache(4)
def _rest(process: int, thread: int, name: str, said: tuple[tuple[str, str], ...]) -> Catalog:
    """A REST catalogue. A thread asks it once how it is configured, and again after an error."""
    from coset.sources.iceberg.rest_catalogue import RestWithin  # noqa: PLC0415  an extra

    return RestWithin(name, **dict(said))


@contextmanager
def catalogue_errors(where: str, then: Command) -> Iterator[None]:
    """Turns errors of a catalogue and its client into Coset's, but for those that the caller catches."""
    try:
        yield
    except Exception as error:
        _rest.cache_clear()
        if is_refused(error):
            allowed = ("let the catalogue allow it, or correct PyIceberg's configuration of it, then ", then)
            what = f"the catalogue refuses what it is asked: {text_of(error)}"
            raise Refused.of(Kind.ICEBERG_DENIED, what, where, allowed, asked=where) from error
        if not is_clients(error):
            raise
        what = f"the catalogue does not answer: {text_of(error)}"
        raise Unreachable.of(Kind.ICEBERG_UNREACHABLE, what, where, then, asked=where) from error


def is_clients(error: Exception) -> bool:
    """Whether an error comes from a catalogue, its client, or the network between them."""
    return isinstance(error, OSError) or type(error).__module__.partition(".")[0] in _CLIENTS


def is_refused(error: Exception) -> bool:
    """Whether a catalogue understood what it was asked, and does not do it."""
    if type(error).__name__ in _REFUSED:
        return True
    return is_clients(error) and (is_denied(error) or _DENIED.search(str(error)) is not None)


def text_of(error: Exception) -> str:
    """What an error says, in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:500]


class Unsure(Exception):
    """The catalogue lost a race, or its answer was lost. Whoever wrote looks again."""


@contextmanager
def changing() -> Iterator[None]:
    """Raises Unsure for errors of the catalogue, but those of a request that it refused."""
    try:
        yield
    except Exception as error:
        # PyIceberg has ValueError for a change that is none any more, as of a number that a branch took.
        if is_refused(error) or not (is_clients(error) or isinstance(error, ValueError)):
            raise
        raise Unsure(text_of(error)) from error
