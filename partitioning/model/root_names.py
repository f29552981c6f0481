"""Root names: what a store has at its root or among its tables, so that no pipeline or table can be named so.

Who writes something there takes its name from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import ClassVar

from partitioning.errors import Finding
from partitioning.kinds import Kind
from partitioning.model.backfill import pipeline_of
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


def tables_at_key(number: int) -> str:
    """The key of the document with this number in a store."""
    return AT.format(number)


def usual_tables(root: str) -> str:
    """Where the tables of a store lie if nobody has named another address."""
    return f"{root}/{TABLES.rstrip('/')}"


def uri_of_key(root: str, tables: str, key: str) -> str:
    """The address of an object of the store at `root`, whose tables lie at `tables`.

    >>> uri_of_key("s3://lake/coset", "s3://lake/prod", "tables/spent/data/0.parquet")
    's3://lake/prod/spent/data/0.parquet'
    >>> uri_of_key("s3://lake/coset", "s3://lake/prod", "spent/plans/0.json.gz")
    's3://lake/coset/spent/plans/0.json.gz'
    """
    return f"{tables}/{key.removeprefix(TABLES)}" if key.startswith(TABLES) else f"{root}/{key}"


# The id of the store, also where its tables lie if that is an address of their own.
STORE_ID = "store-id"
# The pages about all pipelines, and the page in the folder of the Data Docs.
DOCS, INDEX = "docs/", "index.html"
# What the name of a file begins with while it is written: no listing of a folder shows it.
UNFINISHED = ".unfinished-"
# The folder of a table's log: one of this name among the tables would be read as the log of a table around them.
LOG = "_delta_log/"

# What lies under these names.
_OF_BOTH = {STORE_ID: "the store's id lies there", f"{UNFINISHED}*": "files are named so while they are written"}
_OF_TABLES = {
    **_OF_BOTH,
    LOG.rstrip("/"): "Delta names the folder of a table's log so, and reads no table of that name",
    "_change_data": "Delta names the folder of a table's changes so",
}
_OF_PIPELINES = {
    **_OF_BOTH,
    TABLES.rstrip("/"): "result tables lie there",
    AT.format("*"): "a document there says where the tables lie",
    DOCS.rstrip("/"): "the pages about all pipelines lie there",
    INDEX: "the page about all pipelines lies there in the folder of the Data Docs",
}


def is_others(name: str) -> Finding | None:
    """The finding that what a pipeline of this name did would be done to result tables or to a backfill."""
    if again := pipeline_of(name):
        return _finding(name, "pipeline", f"a backfill of {again} lies there")
    return _finding(name, "pipeline", _OF_PIPELINES[name]) if name == TABLES.rstrip("/") else None


def taken_from_pipelines(name: str) -> Finding | None:
    """The finding that a new pipeline would lie where the store has something of its own. One that has begun under an
    earlier version of Coset goes on."""
    return _taken(name, "pipeline", _OF_PIPELINES)


def taken_from_tables(name: str) -> Finding | None:
    """The finding that a new table would lie where the store has something of its own."""
    return _taken(name, "table", _OF_TABLES)


def _taken(name: str, noun: str, names: Mapping[str, str]) -> Finding | None:
    # Some file systems do not tell capitals from small letters.
    lies = next((lies for pattern, lies in names.items() if fnmatchcase(name.lower(), pattern)), None)
    return _finding(name, noun, lies) if lies else None


def _finding(name: str, noun: str, lies: str) -> Finding:
    what = f"a {noun} cannot be named {name!r}"
    return Finding.of(Kind.NAME, what, f"{noun} {name!r}", f"{lies}; rename it", name=name)
