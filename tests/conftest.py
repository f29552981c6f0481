"""Fixtures that every kind of test may use: a real S3 server, a store in it."""

from __future__ import annotations

import faulthandler
import fcntl
import gc
import os
import sys
import uuid
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from pytest_timeout import Settings
from typer.main import get_command

from coset.batches.runners.spark_server import SparkServer, start_spark
from coset.sources.kafka.properties import PROPERTIES
from demo.kafka_server import KafkaServer, start_kafka
from demo.s3_server import S3Server, start_server
from partitioning.documents.store import Store
from partitioning.documents.stores import store_at
from partitioning.errors import CosetError, Finding
from partitioning.model import failure
from tests import forked
from tests.begun import Begun
from tests.examples import ALL, FIFTH
from tests.faults import FaultProxy
from tests.registry import USER, Registry, running

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHECKOUT = Path(__file__).parents[1]
STDERR = pytest.StashKey[int]()
# The packages whose functions the pipelines of tests name.
os.environ["COSET_IMPORTS"] = "builtins,math,nowhere,partitioning.errors,shop,tests,zlib"

# The same examples in every run, however busy the machine is: a failure comes from the change that was made.
settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=FIFTH)
settings.register_profile("thorough", deadline=None, derandomize=True, max_examples=ALL)
# Others in every run, for `make explore`; what fails is kept in .hypothesis, and told in a line that repeats it.
settings.register_profile("exploring", deadline=None, derandomize=False, print_blob=True, max_examples=ALL)
settings.load_profile("repeatable")

forked.preload()
# Else Typer makes all commands anew for each that runs, and that takes longer than most of them.
commands_of = cache(get_command)
for known_as in ("typer.main.get_command", "typer.testing._get_command"):
    pytest.MonkeyPatch().setattr(known_as, commands_of)

# What a process has written outlives its end: only a machine that loses power needs more, and no test is one.
pytest.MonkeyPatch().setattr(os, "fsync", lambda _: None)

# To collect tests is to import everything, most of which stays: there is little garbage to look for in it.
gc.set_threshold(100_000, 50, 100)

# Pipelines that tests run; they hold no tests.
collect_ignore = ["pipelines"]


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of commands are not wrapped, but for the tests of that."""
    monkeypatch.setenv("COLUMNS", "10000")


@pytest.fixture(autouse=True)
def same_variables() -> Iterator[None]:
    """A test leaves Coset's variables as they were: what comes after it in the process reads them."""
    before = _variables()
    yield
    assert _variables() == before


def _variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("COSET_")}


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


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """A registry that answers, which the file of client properties names."""
    with running() as registry:
        named = tmp_path / "kafka.properties"
        named.write_text(
            f"# of this test\nschema.registry.url={registry.url}\nschema.registry.basic.auth.user.info={USER}\n"
        )
        monkeypatch.setenv(PROPERTIES, str(named))
        yield registry


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A real browser, Debian's Chromium; how to open pages in it says `tests/browser.py`."""
    from tests.browser import chromium

    with chromium() as started:
        yield started


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


@pytest.fixture(scope="session")
def wheel(folder_of_run: Path) -> Path:
    """The wheel of the clone, made once for all processes of a run."""
    from tests.wheels import made_in

    folder = folder_of_run / "wheel"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return next(folder.glob("made/*.whl"), None) or made_in(folder)


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
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store of the test's own: in the S3 server if the test, or a fixture of it, uses `s3`, else in a folder."""
    if "s3" in request.fixturenames:
        return store_at(f"s3://test/{uuid.uuid4().hex}")
    return store_at(str(tmp_path_factory.mktemp("store") / "store"))


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Begun:
    """Stores in folders that several tests of a file go on from."""
    return Begun(tmp_path_factory.mktemp("begun"))


@pytest.fixture
def proxy(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """A proxy that every client made from now on goes through."""
    started = FaultProxy(s3.environment["AWS_ENDPOINT_URL"])
    monkeypatch.setenv("AWS_ENDPOINT_URL", started.url)
    yield started
    started.stop()


def pytest_configure(config: pytest.Config) -> None:
    # As it is before tests capture what they print.
    config.stash[STDERR] = os.dup(2)


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Settings) -> None:
    """Code in C that hangs hears no signal: its process ends a minute later, and prints where it was."""
    faulthandler.dump_traceback_later(settings.timeout + 60, exit=True, file=item.config.stash[STDERR])


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_cancel_timer() -> None:
    faulthandler.cancel_dump_traceback_later()


def pytest_collection_finish(session: pytest.Session) -> None:
    """What was imported stays: the collector of garbage need not look at it, again and again, nor as often."""
    if session.config.option.processes > 1:
        # Batches are checked in the processes of tests, and commands are forked from one process for all of them.
        import_module("tests.preloaded")
        forked.serve()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
