"""Where the result tables of a store lie: below its root, or at an address that its environment names."""

from __future__ import annotations

from typing import ClassVar

from partitioning.values import Document

# What the keys of a store's result tables begin with, wherever they lie.
TABLES = "tables/"
# The keys of the documents that say where they lie, by number.
AT = "tables-at-{}.json"


class TablesAt(Document, frozen=True):
    """The address of a store's result tables, from when on, and who said so and why. The last of a store counts."""

    FORMAT: ClassVar[str] = "coset.tables/1"

    number: int
    address: str
    who: str
    why: str
    at: str


def key_of(number: int) -> str:
    """The key of the document with this number in a store."""
    return AT.format(number)


def usual(root: str) -> str:
    """Where the tables of a store lie if nobody has named another address."""
    return f"{root}/{TABLES.rstrip('/')}"


def uri_of(root: str, tables: str, key: str) -> str:
    """The address of an object of the store at `root`, whose tables lie at `tables`.

    >>> uri_of("s3://lake/coset", "s3://lake/prod", "tables/spent/data/0.parquet")
    's3://lake/prod/spent/data/0.parquet'
    >>> uri_of("s3://lake/coset", "s3://lake/prod", "spent/plans/0.json.gz")
    's3://lake/coset/spent/plans/0.json.gz'
    """
    return f"{tables}/{key.removeprefix(TABLES)}" if key.startswith(TABLES) else f"{root}/{key}"
