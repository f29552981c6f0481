"""Readers of tables that have a process, and packages, of their own: Spark and DuckDB, each of Delta tables by their
folder, and of Iceberg tables by their metadata; and Trino, in `trino.py`. Each answers SQL about one table, of now or
of a version."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

Rows = list[list[Any]]
# Answers SQL, in which `TABLE` stands for the table in a folder, as it was in a version if one is named.
Ask = Callable[[str, int | None, str], Rows]
JARS = "COSET_TEST_JARS"


def reader(name: str, python: str = sys.executable, jars: str = "") -> AbstractContextManager[Ask]:
    return reading([python, __file__, name], jars)


@contextmanager
def reading(command: Sequence[str], jars: str = "") -> Iterator[Ask]:
    """A process that reads until the block ends. An answer that is an error is raised as RuntimeError."""
    # Its Python has a Spark of its own: not the one that runners of these tests have named.
    variables = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
    with subprocess.Popen(
        command,
        env=variables | {JARS: jars},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        told, said = process.stdin, process.stdout

        def ask(folder: str, version: int | None, sql: str) -> Rows:
            print(json.dumps([folder, version, sql]), file=told, flush=True)
            answer = json.loads(said.readline() or '"it has ended"')
            if isinstance(answer, str):
                raise RuntimeError(answer)
            rows: Rows = answer
            return rows

        yield ask


def _delta_spark() -> Ask:
    session = _session(
        {
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.databricks.delta.snapshotPartitions": "1",
            "spark.sql.shuffle.partitions": "1",
        }
    )

    def ask(folder: str, version: int | None, sql: str) -> Rows:
        table = f"delta.`{folder}`" + (f" VERSION AS OF {version}" if version is not None else "")
        return [list(row) for row in session.sql(sql.replace("TABLE", table)).collect()]

    return ask


def _iceberg_spark() -> Ask:
    """With the REST catalogue that the environment names: SQL about no table is SQL of that."""
    lake = "spark.sql.catalog.lake"
    session = _session(
        {
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            lake: "org.apache.iceberg.spark.SparkCatalog",
            f"{lake}.type": "rest",
            f"{lake}.uri": os.environ["PYICEBERG_CATALOG__LAKE__URI"],
            f"{lake}.cache-enabled": "false",
        }
    )

    def ask(metadata: str, version: int | None, sql: str) -> Rows:
        if not metadata:
            return [list(row) for row in session.sql(sql).collect()]
        read = session.read.format("iceberg")
        (read if version is None else read.option("versionAsOf", version)).load(metadata).createOrReplaceTempView("it")
        return [list(row) for row in session.sql(sql.replace("TABLE", "it")).collect()]

    return ask


def _session(settings: Mapping[str, str]) -> Any:
    """Spark with the jars of the reader."""
    from pyspark.sql import SparkSession

    usual: dict[str, Any] = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraClassPath": f"{os.environ[JARS]}/*",
        "spark.ui.enabled": "false",
    }
    return SparkSession.builder.master("local[1]").config(map=usual | {**settings}).getOrCreate()


def _delta_duckdb() -> Ask:
    def table(folder: str, version: int | None) -> str:
        at = "" if version is None else f", version={version}"
        return f"delta_scan('file://{folder}'{at})"

    return _scanning(("delta",), table)


def _iceberg_duckdb() -> Ask:
    def table(metadata: str, version: int | None) -> str:
        snapshot = "" if version is None else f", snapshot_from_id={version}"
        return f"iceberg_scan('{metadata.removeprefix('file://')}'{snapshot})"

    return _scanning(("avro", "iceberg"), table)


def _scanning(extensions: Sequence[str], table: Callable[[str, int | None], str]) -> Ask:
    """DuckDB with these extensions, which has a table by this SQL."""
    import duckdb
    from duckdb_extensions import import_extension  # type: ignore[import-not-found]

    connection = duckdb.connect()
    for name in extensions:
        import_extension(name)
        connection.execute(f"LOAD {name}")

    def ask(where: str, version: int | None, sql: str) -> Rows:
        return [list(row) for row in connection.execute(sql.replace("TABLE", table(where, version))).fetchall()]

    return ask


def _serve(ask: Ask) -> None:
    for line in sys.stdin:
        try:
            answer: Rows | str = ask(*json.loads(line))
        except Exception as error:  # each reader has errors of its own
            answer = f"{type(error).__name__}: {error}"
        print(json.dumps(answer, default=str), flush=True)


if __name__ == "__main__":
    _serve(
        {
            "spark": _delta_spark,
            "duckdb": _delta_duckdb,
            "iceberg-spark": _iceberg_spark,
            "iceberg-duckdb": _iceberg_duckdb,
        }[sys.argv[1]]()
    )
