"""Datasets: the names of streams and result tables in catalogues, by OpenLineage's naming conventions."""

from __future__ import annotations

from typing import NamedTuple, assert_never

from partitioning.model.sources import FOLDER, KafkaSource, LandedSource
from partitioning.model.streams import Stream


class DatasetName(NamedTuple):
    """A dataset, by its namespace and its name."""

    namespace: str
    name: str


def of_stream(stream: Stream) -> DatasetName:
    """A stream's topic in the first broker of its source, or the folder with its files.

    >>> tuple(of_stream(Stream("flights", "kafka://a:9092,b:9092", "tail", 4)))
    ('kafka://a:9092', 'flights')
    """
    match stream.origin:
        case LandedSource(uri):
            return _below(uri, stream.name)
        case KafkaSource(brokers):
            return DatasetName(f"kafka://{brokers[0].rpartition('@')[2]}", stream.name)
        case _:
            assert_never(stream.origin)


def of_table(tables: str, table: str) -> DatasetName:
    """A result table, by its folder at the address of its store's tables.

    >>> tuple(of_table("s3://lake/coset/tables", "totals")), tuple(of_table("file:///lake/tables", "totals"))
    (('s3://lake', 'coset/tables/totals'), ('file', '/lake/tables/totals'))
    """
    return _below(tables, table)


def _below(root: str, path: str) -> DatasetName:
    """A folder below an address."""
    address = root.rstrip("/")
    if address.startswith(FOLDER):
        return DatasetName("file", f"{address.removeprefix(FOLDER)}/{path}")
    scheme, _, rest = address.partition("://")
    bucket, _, prefix = rest.partition("/")
    return DatasetName(f"{scheme}://{bucket}", "/".join(part for part in (prefix, path) if part))
