"""Catalogues of Iceberg tables, by their names in PyIceberg's configuration."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from coset.sources.s3 import iceberg_options
from partitioning.commands import Command
from partitioning.errors import Refused, Unreachable
from partitioning.kinds import Kind

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

# PyIceberg has no base of its errors, and each catalogue raises those of its client.
_CLIENTS = {"botocore", "pyiceberg", "requests", "sqlalchemy", "thrift"}
_DENIED = {"ForbiddenError", "UnauthorizedError", "OAuthError"}


def catalogue(name: str) -> Catalog:
    """The catalogue of that name. Raises Refused if nothing configures it."""
    from pyiceberg.catalog import load_catalog  # noqa: PLC0415  an extra
    from pyiceberg.utils.config import Config  # noqa: PLC0415

    said = Config().get_catalog_config(name) or {}
    try:
        return load_catalog(name, **iceberg_options() | cast(dict[str, str], said))
    except ValueError as error:
        then = f"configure it in .pyiceberg.yaml, or with PYICEBERG_CATALOG__{name.upper()}__URI"
        what = f"PyIceberg cannot load the catalogue {name}: {error}"
        raise Refused.of(Kind.SETTING, what, "environment", then, catalogue=name) from error


@contextmanager
def catalogue_errors(where: str, then: Command) -> Iterator[None]:
    """Turns errors of a catalogue and its client into Coset's, but for those that the caller catches."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, OSError) and type(error).__module__.partition(".")[0] not in _CLIENTS:
            raise
        said = " ".join(f"{type(error).__name__}: {error}".split())[:500]
        if type(error).__name__ in _DENIED:
            checked = ("check what PyIceberg's configuration says of the catalogue, then ", then)
            what = f"the catalogue denies access: {said}"
            raise Refused.of(Kind.ICEBERG_DENIED, what, where, checked, asked=where) from error
        what = f"the catalogue does not answer: {said}"
        raise Unreachable.of(Kind.ICEBERG_UNREACHABLE, what, where, then, asked=where) from error
