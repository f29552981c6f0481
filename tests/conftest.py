"""Fixtures that every kind of test may use: a real S3 server, a store in it."""

from __future__ import annotations

import gc
import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from coset.batches.runners.spark_server import SparkServer, start_spark
from demo.kafka_server import KafkaServer, start_kafka
from demo.s3_server import S3Server, start_server
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import CosetError, Finding
from partitioning.model import failure
from tests import forked
from tests.faults import FaultProxy

CHECKOUT = Path(__file__).parents[1]
# The packages whose functions the pipelines of tests name.
os.environ["COSET_IMPORTS"] = "builtins,math,nowhere,partitioning.errors,shop,tests,zlib"

# The same examples in every run, however busy the machine is: a failure comes from the change that was made.
settings.register_profile("repeatable", deadline=None, derandomize=True)
# Others in every run, for `make explore`; what fails is kept in .hypothesis, and told in a line that repeats it.
settings.register_profile("exploring", deadline=None, derandomize=False, print_blob=True)
settings.load_profile("repeatable")

forked.preload()

# To collect tests is to import everything, most of which stays: there is little garbage to look for in it.
gc.set_threshold(100_000, 50, 100)

# Pipelines that tests run; they hold no tests.
collect_ignore = ["pipelines"]


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A real S3 server with the bucket `test`, and those of the demo; how to reach it is in the environment."""
    server = start_server(tmp_path_factory.mktemp("s3"), ("test", "landing", "coset"))
    before = {name: os.environ.get(name) for name in server.environment}
    os.environ.update(server.environment)
    yield server
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value
    server.stop()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """A real Kafka broker without topics."""
    server = start_kafka(tmp_path_factory.mktemp("kafka"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def spark_server(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkServer]:
    """A Spark server with two cores, whose tasks reach the S3 server. Nothing of it is in the environment.

    The functions that tests name are installed nowhere: it finds them in the checkout.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(CHECKOUT))
        server = start_spark("local[2]", tmp_path_factory.mktemp("spark") / "spark.log")
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def told_apart(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, str]]]:
    """Findings that are told together, and are one by their kind, place and values, say the same.

    Otherwise one of them is lost where those of several tasks are put together. A test that means it empties the list.
    """
    merged = list[tuple[str, str]]()

    def made(error: CosetError, *findings: Finding) -> None:
        as_it_is(error, *findings)
        set(findings)

    def alike(one: Finding, other: object) -> bool:
        is_one = as_ever(one, other)
        # Attempts may tell the same in other words, as libraries have them.
        if sys._getframe(1).f_globals["__name__"] in (__name__, failure.__name__) and is_one is True:
            assert isinstance(other, Finding)
            merged.extend([(one.what, other.what)] * (one.what != other.what))
        return is_one

    as_it_is, as_ever = CosetError.__init__, Finding.__eq__
    monkeypatch.setattr(CosetError, "__init__", made)
    monkeypatch.setattr(Finding, "__eq__", alike)
    yield merged
    assert merged == []


@pytest.fixture
def store(s3: S3Server) -> Store:
    """A store of its own in the S3 server."""
    return store_at(f"s3://test/{uuid.uuid4().hex}")


@pytest.fixture
def proxy(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """A proxy that every client made from now on goes through."""
    started = FaultProxy(s3.environment["AWS_ENDPOINT_URL"])
    monkeypatch.setenv("AWS_ENDPOINT_URL", started.url)
    yield started
    started.stop()


# Files that take half a minute or more, the longest first: whoever runs files side by side begins with them. What
# mostly waits is between those that compute.
LONGEST = (
    "test_passing_faults, plan",
    "test_year",
    "test_demo",
    "test_kafka_demo",
    "test_kafka_logs",
    "test_kafka_leaders",
    "test_kafka_secured",
    "test_kills_between_waves",
    "test_output_modes",
    "test_state",
    "test_backfills",
    "test_random_pipelines",
    "test_waves",
    "test_kills_between_levels",
    "test_passing_faults, run",
    "test_runners",
    "test_kills",
    "test_readme",
    "test_serve",
    "test_faults",
    "test_right_batches",
    "test_passing_faults, check",
    "test_passing_faults",
    "test_planned_lines",
    "test_moved_records",
    "test_cli",
    "test_kafka_values",
    "test_kafka_proof",
    "test_proof",
    "test_connect",
    "test_step_kinds",
    "test_shipped",
    "test_frames",
    "test_dag_runs",
    "test_passing_faults, publish",
    "test_kernel",
    "test_task_group",
    "test_steps_run",
    "test_class_archive",
    "test_group",
    "test_changed_inputs",
    "test_grouping",
    "test_wrong_continuity",
    "test_standalone",
    "test_by_block",
    "test_pipelines",
    "test_planning",
    "test_publication",
    "test_wrong_coverage",
)
# Files whose tests share nothing, and would wait for too long one after the other: each last parameter is as a file.
DEALT = ("test_passing_faults",)


def pytest_collection_finish() -> None:
    """What was imported stays: the collector of garbage need not look at it, again and again, nor as often."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(_together(item.nodeid), len(order)))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling:
    return _ByFileOrPart(config, log)


class _ByFileOrPart(LoadFileScheduling):
    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return f"{file}, {_together(nodeid)}"


def _together(nodeid: str) -> str:
    """The name of the file of a test, with its part if it is dealt."""
    file, _, test = nodeid.partition("::")
    name, part = Path(file).stem, test.rpartition("-")[2].removesuffix("]")
    return f"{name}, {part}" if name in DEALT and test.count("-") else name
