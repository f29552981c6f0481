"""Functions of packages that Spark's workers do not have: refused, or shipped by the process that runs groups."""

from __future__ import annotations

import importlib
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from coset.batches.ref import BatchRef
from coset.batches.runners.connect import Connect
from coset.batches.runners.connection import connected
from coset.batches.runners.runner import Runner
from coset.batches.runners.shipped import Shipped
from coset.batches.runners.spark import Spark
from coset.batches.runners.spark_server import SparkServer
from coset.batches.runners.spark_submit import SparkSubmit
from partitioning.authoring.pipeline import Pipeline
from partitioning.authoring.settings import Settings
from partitioning.documents.store import Store
from partitioning.errors import Refused
from tests.logs import log_of
from tests.running import next_batch, run_and_publish
from tests.small import land

RUNNERS: Mapping[str, Callable[[SparkServer], Runner]] = {
    "connect": lambda server: Connect(server.address, token=server.token, master="nowhere"),
    "spark": lambda _: Spark("local[2]"),
    "spark-submit": lambda _: SparkSubmit("local[2]"),
}
SCORES = """
import pyarrow.compute as pc
from pyspark.sql import functions as f
from shop.rates import RATE

def scored(table):
    return table.append_column("score", pc.multiply(table["v"], RATE))

def _score(v):
    return v * RATE

def scored_in_spark(views):
    return views.withColumn("score", f.udf(_score, "bigint")("v"))
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package that this process can import, and no worker of Spark's."""
    package = tmp_path / "deployed" / "shop"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "scores.py").write_text(SCORES)
    (package / "rates.py").write_text("RATE = 3\n")
    monkeypatch.syspath_prepend(package.parent)
    yield package
    for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
        del sys.modules[name]


def planned(store: Store) -> BatchRef:
    pipeline = Pipeline("scores", source=land())
    views, columns = pipeline.stream("views", key="k", partitions=4), {"k": "VARCHAR", "score": "BIGINT"}
    views.process("shop.scores:scored", columns, name="by_arrow").write("by_arrow")
    views.spark("shop.scores:scored_in_spark", columns, name="by_spark").write("by_spark")
    return next_batch(pipeline, store.root, Settings(groups=1))


def sums(store: Store) -> list[int]:
    tables = (log_of(store, name) for name in TABLES)
    return [sum(table.to_pyarrow_table()["score"].to_pylist()) for table in tables]


TABLES = ("by_arrow", "by_spark")


def test_a_worker_without_the_package_says_so(shop: Path, spark_server: SparkServer, store: Store) -> None:
    with pytest.raises(Refused) as refused, RUNNERS["connect"](spark_server) as runner:
        runner.group(planned(store), 0)
    assert refused.value.findings[0].what == "'shop.scores:scored' cannot be imported: No module named 'shop'"
    assert refused.value.findings[0].where.endswith(", in the process that runs its tasks")


@pytest.mark.long
@pytest.mark.parametrize("kind", RUNNERS)
def test_what_is_shipped_runs_on_workers_that_do_not_have_it(
    kind: str, shop: Path, spark_server: SparkServer, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSET_SHIP", "shop")
    run_and_publish(planned(store), tmp_path, RUNNERS[kind](spark_server))
    assert sums(store) == [3 * sum(range(500))] * 2


def test_clients_send_what_a_session_does_not_have(
    shop: Path, spark_server: SparkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSET_SHIP", "shop")
    (shop / "rates.py").write_text("RATE = 7\n")

    def archives(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rate = importlib.import_module("shop.rates").RATE
        for _ in batches:
            there = sum(place.endswith(".zip") and "coset-shipped-" in place for place in sys.path)
            yield pa.RecordBatch.from_pylist([{"rate": rate, "archives": there}])

    def asked(_: int) -> tuple[int, int]:
        with connected(spark_server.address, spark_server.token) as spark:
            ((rate, there),) = spark.range(1).mapInArrow(archives, "rate bigint, archives bigint").collect()
            return rate, there

    with ThreadPoolExecutor(4) as pool:
        at_once = list(pool.map(asked, range(4)))
    assert {rate for rate, _ in at_once} == {7}
    most = max(there for _, there in at_once)
    assert 1 <= most <= 4
    assert asked(4) == (7, most)


@pytest.mark.long
def test_a_server_that_stays_runs_code_that_was_changed(
    shop: Path, spark_server: SparkServer, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSET_SHIP", "shop")
    (shop / "rates.py").write_text("RATE = 5  # of today\n")
    importlib.invalidate_caches()
    run_and_publish(planned(store), tmp_path, RUNNERS["connect"](spark_server))
    assert sums(store) == [5 * sum(range(500))] * 2


def test_the_same_code_is_the_same_archive(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSET_SHIP", "shop.scores")
    one, other = Shipped(), Shipped()
    assert (one.digest, one.archive()) == (other.digest, other.archive())
    with zipfile.ZipFile(str(one.archive())) as archive:
        assert archive.namelist() == ["shop/", "shop/__init__.py", "shop/scores.py"]
    (shop / "scores.py").write_text("changed = True")
    assert Shipped().digest != one.digest


def test_packages_without_init_are_found_in_the_archive(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (shop / "lab" / "models").mkdir(parents=True)
    (shop / "lab" / "models" / "linear.py").write_text("SLOPE = 3\n")
    (shop / "__init__.py").unlink()
    monkeypatch.setenv("COSET_SHIP", "shop")
    importlib.invalidate_caches()
    command = "import shop.lab.models.linear as linear; print(linear.SLOPE, linear.__file__)"
    archive = str(Shipped().archive())
    said = subprocess.check_output([sys.executable, "-c", command], env={"PYTHONPATH": archive}, cwd="/", text=True)
    assert said == f"3 {archive}/shop/lab/models/linear.py\n"


def test_nothing_is_shipped_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COSET_SHIP", raising=False)
    assert Shipped().archive() is None


@pytest.mark.parametrize(
    ("names", "what"),
    [
        ("os", "'os' is to be shipped, but may not be called"),
        ("shop.nowhere", "'shop.nowhere' is to be shipped, but cannot be found"),
        ("math", "'math' is to be shipped, but .* is not source code"),
    ],
)
def test_what_cannot_be_shipped_is_refused(names: str, what: str, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSET_SHIP", names)
    with pytest.raises(Refused, match=what):
        Shipped()
