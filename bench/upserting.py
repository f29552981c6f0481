"""`python -m bench.upserting`: one system upserts batches, or reads a table, in a process of its own. It prints what
each took as JSON: a line for each.

PyIceberg, and DuckDB with its extension for Delta, have an environment of their own, without Coset.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.measure import measured

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from partitioning.authoring.pipeline import Pipeline
    from partitioning.authoring.words import UpdateWay

# Of one reading more, which is not counted, all that is loaded once is there.
READINGS = 3
_PARTITIONS = 8


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.upserting", description=__doc__)
    parser.add_argument("what", choices=DOES)
    parser.add_argument("folder", type=Path, help="the folder of the system's own")
    parser.add_argument("files", type=Path, nargs="*", help="a file for each batch")
    asked = parser.parse_args()
    for told in DOES[asked.what](asked.folder, asked.files):
        print(json.dumps(told), flush=True)


def table_of(what: str, folder: Path) -> Path:
    """The folder of the Delta table that a system writes."""
    return folder / "store" / "tables" / "users" if what.startswith("coset") else folder / "users"


def _coset(updates: UpdateWay) -> Callable[[Path, list[Path]], Iterator[dict[str, Any]]]:
    def batches(folder: Path, files: list[Path]) -> Iterator[dict[str, Any]]:
        from coset.batches.interpreter import run_batch, silently  # noqa: PLC0415  other systems have not got it
        from coset.batches.runners.local import Local  # noqa: PLC0415
        from coset.batches.steps import plan  # noqa: PLC0415
        from coset.sources.landing import land_rows  # noqa: PLC0415

        pipeline = _pipeline(folder, updates)
        with Local(processes=1, memory="4GB") as runner:
            for file in files:
                land_rows(pipeline.streams[0], pq.read_table(file), "rows")
                with _told(folder / "store", table_of("coset", folder)) as told:
                    ref, said = plan(pipeline, f"file://{folder}/store")
                    assert ref is not None, said
                    run_batch(ref, runner, None, silently)
                yield told

    return batches


def _compacted(folder: Path, _: list[Path]) -> Iterator[dict[str, Any]]:
    from coset.batches.tables.compaction import compact  # noqa: PLC0415
    from partitioning.documents.stores import store_at  # noqa: PLC0415

    table = table_of("coset", folder)
    with _told(table, table) as told:
        compact(_pipeline(folder, "rewrite"), store_at(f"file://{folder}/store"), timedelta(days=7))
    yield told


def _pipeline(folder: Path, updates: UpdateWay) -> Pipeline:
    from partitioning.authoring.pipeline import Pipeline  # noqa: PLC0415

    pipeline = Pipeline("upserts", source=folder / "topics")
    users = pipeline.stream("users", key="user", partitions=_PARTITIONS)
    users.latest("seen", name="newest").write("users", mode="upsert", updates=updates)
    return pipeline


def _merged(folder: Path, files: list[Path]) -> Iterator[dict[str, Any]]:
    """MERGE INTO, with deletion vectors."""
    table, kept = table_of("delta", folder), "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    with _spark() as spark:
        for number, file in enumerate(files):
            spark.read.parquet(str(file)).createOrReplaceTempView("come")
            with _told(table, table) as told:
                if number == 0:
                    spark.sql(f"CREATE TABLE delta.`{table}` USING delta {kept} AS SELECT * FROM come")
                else:
                    spark.sql(
                        f"MERGE INTO delta.`{table}` AS there USING come ON there.user = come.user "
                        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
                    )
            yield told


def _optimized(folder: Path, _: list[Path]) -> Iterator[dict[str, Any]]:
    table = table_of("delta", folder)
    with _spark() as spark, _told(table, table) as told:
        spark.sql(f"OPTIMIZE delta.`{table}`")
    yield told


@contextmanager
def _spark() -> Iterator[SparkSession]:
    import os  # noqa: PLC0415

    from pyspark.sql import SparkSession  # noqa: PLC0415

    from bench.on_spark import SETTINGS  # noqa: PLC0415
    from bench.party import JARS, MASTER  # noqa: PLC0415

    jars = sorted(map(str, Path(os.environ[JARS]).glob("*.jar")))
    settings: dict[str, Any] = {
        **SETTINGS,
        # By default 50 tasks read a log, and 200 merge.
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.shuffle.partitions": "8",
        "spark.driver.extraClassPath": ":".join(jars),
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    }
    with SparkSession.builder.master(MASTER).config(map=settings).getOrCreate() as spark:
        yield spark


def _iceberg(folder: Path, files: list[Path]) -> Iterator[dict[str, Any]]:
    """PyIceberg's `upsert`, which writes files anew."""
    from pyiceberg.catalog.sql import SqlCatalog  # noqa: PLC0415

    catalog = SqlCatalog("bench", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/lake")
    catalog.create_namespace("bench")
    table = None
    for file in files:
        rows = pq.read_table(file)
        with _told(folder / "lake", folder / "lake") as told:
            if table is None:
                table = catalog.create_table("bench.users", rows.schema)
                table.append(rows)
            else:
                table.upsert(rows, join_cols=["user"])
        yield told
    for _ in range(1 + READINGS):
        assert table is not None
        with _told(folder, folder) as told:
            rows = table.scan().to_arrow()
            told["rows"] = [len(rows), pc.sum(rows["amount"]).as_py()]
        yield {**told, "reads": True}


def _read_by_duckdb(table: Path, _: list[Path]) -> Iterator[dict[str, Any]]:
    import duckdb  # noqa: PLC0415
    from duckdb_extensions import import_extension  # type: ignore[import-not-found]  # noqa: PLC0415

    import_extension("delta")
    with duckdb.connect() as connection:
        connection.execute("LOAD delta; SET threads = 2")
        asked = f"SELECT count(*), sum(amount)::BIGINT FROM delta_scan('file://{table}')"
        yield from _read(lambda: list(connection.execute(asked).fetchall()[0]))


def _read_by_spark(table: Path, _: list[Path]) -> Iterator[dict[str, Any]]:
    with _spark() as spark:
        yield from _read(lambda: list(spark.sql(f"SELECT count(*), sum(amount) FROM delta.`{table}`").collect()[0]))


def _read(read: Callable[[], list[int]]) -> Iterator[dict[str, Any]]:
    for _ in range(1 + READINGS):
        with measured() as cost:
            rows = read()
        yield {"cpu": cost.cpu, "wall": cost.wall, "rows": rows, "reads": True}


@contextmanager
def _told(all_of: Path, table: Path) -> Iterator[dict[str, Any]]:
    """What something costs, and how many bytes it writes: in all, and to the table."""
    before, told = _files(all_of), dict[str, Any]()
    with measured() as cost:
        yield told
    new = {path: size for path, size in _files(all_of).items() if path not in before}
    of_table = sum(size for path, size in new.items() if path.is_relative_to(table))
    told |= {"cpu": cost.cpu, "wall": cost.wall, "written": sum(new.values()), "table": of_table}


def _files(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_size for path in folder.rglob("*") if path.is_file() and path.suffix != ".crc"}


DOES: dict[str, Callable[[Path, list[Path]], Iterator[dict[str, Any]]]] = {
    "coset-rewrite": _coset("rewrite"),
    "coset-beside": _coset("beside"),
    "delta": _merged,
    "iceberg": _iceberg,
    "coset-compacted": _compacted,
    "delta-optimized": _optimized,
    "duckdb-reads": _read_by_duckdb,
    "spark-reads": _read_by_spark,
}

if __name__ == "__main__":
    main()
