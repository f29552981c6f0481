"""`pytest --processes 5` runs tests in so many processes, forked from the one that has collected them.

To collect is to import everything, which takes longer than most files of tests: it is done once. What shares a server
(`tests/durations.py`) is a chain that one process runs, in its order; which chain is next it asks when it is free.
A process that ends in the midst of a test fails this test, and another goes on behind it.
"""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Iterator
from itertools import groupby
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import pytest

from tests.durations import AIRFLOW, chain, together

# Seconds that a process has to end its servers.
_ENDS_WITHIN = 60
_FORKED = multiprocessing.get_context("fork")
# The temporary folder of the whole run.
FOLDER = pytest.StashKey[Path]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--processes", type=int, default=1, metavar="N", help="run the tests in N processes")


@pytest.fixture(scope="session")
def folder_of_run(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The temporary folder that all processes of a run share."""
    return pytestconfig.stash.get(FOLDER, tmp_path_factory.getbasetemp())


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    option = session.config.option
    if option.processes < 2 or option.collectonly or len(session.items) < 2 or session.testsfailed:
        return None
    session.config.stash[FOLDER] = session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    chains = groupby(range(len(session.items)), lambda number: chain(together(session.items[number].nodeid)))
    _Run(session, [list(numbers) for _, numbers in chains]).go()
    return True


class _Worker:
    """A process that runs tests, what is left of its chain, and the test that runs in it."""

    def __init__(self, session: pytest.Session, number: int, left: list[int]) -> None:
        self.number, self.left, self.running = number, left, False
        self.is_spent = False
        self.connection, other = _FORKED.Pipe()
        self.process = _FORKED.Process(target=_work, args=(session, number, other, self.connection))
        self.process.start()
        other.close()


class _Run:
    """All tests of a session, in several processes."""

    def __init__(self, session: pytest.Session, chains: list[list[int]]) -> None:
        self._session, self._hook, self._chains = session, session.config.hook, iter(chains)
        self._workers = dict[Connection, _Worker]()

    def go(self) -> None:
        for number in range(self._session.config.option.processes):
            self._begin(number, [])
        try:
            while self._workers:
                for connection in wait(list(self._workers)):
                    assert isinstance(connection, Connection)
                    self._hear(self._workers[connection])
                    if self._session.shouldfail:
                        raise self._session.Failed(self._session.shouldfail)
                    if self._session.shouldstop:
                        raise self._session.Interrupted(self._session.shouldstop)
        finally:
            self._end()

    def _begin(self, number: int, left: list[int]) -> None:
        worker = _Worker(self._session, number, left)
        self._workers[worker.connection] = worker

    def _hear(self, worker: _Worker) -> None:
        try:
            what, *said = worker.connection.recv()
        except (EOFError, ConnectionResetError):
            self._has_ended(worker)
            return
        match what:
            case "free":
                worker.left = worker.left or ([] if worker.is_spent else next(self._chains, []))
                worker.is_spent = worker.is_spent or any(map(self._needs_airflow, worker.left[:1]))
                worker.connection.send(worker.left)
            case "logstart":
                worker.running = True
                self._hook.pytest_runtest_logstart(nodeid=said[0], location=said[1])
            case "logfinish":
                worker.running = False
                worker.left = worker.left[1:]
                self._hook.pytest_runtest_logfinish(nodeid=said[0], location=said[1])
            case "report":
                report = self._hook.pytest_report_from_serializable(config=self._session.config, data=said[0])
                self._hook.pytest_runtest_logreport(report=report)
            case "broken":
                self._fail(said[0], ("", None, ""), said[1])

    def _has_ended(self, worker: _Worker) -> None:
        """By itself, as no tests are left, or in the midst of one."""
        del self._workers[worker.connection]
        worker.process.join()
        if worker.running:
            item = self._session.items[worker.left[0]]
            what = f"Its process ended with code {worker.process.exitcode}"
            self._fail(item.nodeid, item.location, what)
            self._hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
            self._begin(worker.number, worker.left[1:])
        elif worker.left or worker.process.exitcode:
            self._fail(f"process {worker.number}", ("", None, ""), f"It ended with code {worker.process.exitcode}")
        elif worker.is_spent:
            self._begin(worker.number, [])

    def _needs_airflow(self, number: int) -> bool:
        """Whether a process that has run this test is to run no others: Airflow's variables stay as long as it does."""
        return chain(together(self._session.items[number].nodeid)) == AIRFLOW

    def _fail(self, nodeid: str, location: tuple[str, int | None, str], what: str) -> None:
        for when, outcome in (("call", "failed"), ("teardown", "passed")):
            report = pytest.TestReport(nodeid, location, {}, outcome, what, when)  # type: ignore[arg-type]
            self._hook.pytest_runtest_logreport(report=report)

    def _end(self) -> None:
        for worker in self._workers.values():
            worker.process.terminate()
        for worker in self._workers.values():
            worker.process.join(_ENDS_WITHIN)
            worker.process.kill()


def _work(session: pytest.Session, number: int, connection: Connection, parents: Connection) -> None:
    """What a process does: chains as long as there are, and the end of what they shared."""
    parents.close()
    # Of semaphores that killed processes leave it would be told at the end of the run.
    tracker: Any = resource_tracker._resource_tracker
    tracker._fd = tracker._pid = None
    config = session.config
    capture = config.pluginmanager.getplugin("capturemanager")
    # As it was, the output of all processes would be in one file.
    capture.stop_global_capturing()
    capture.start_global_capturing()
    factory = config._tmp_path_factory  # type: ignore[attr-defined]
    factory._basetemp = config.stash[FOLDER] / f"process-{number}-{multiprocessing.current_process().pid}"
    factory._basetemp.mkdir()
    config.pluginmanager.unregister(name="terminalreporter")
    config.pluginmanager.register(_Teller(config, connection))
    # What comes after the last test of a chain is another chain: what the session has stays.
    for item, following in _following(session, connection):
        config.hook.pytest_runtest_protocol(item=item, nextitem=following or session)
    try:
        session._setupstate.teardown_exact(None)
    except Exception:
        connection.send(("broken", f"the end of process {number}", traceback.format_exc()))


def _following(session: pytest.Session, connection: Connection) -> Iterator[tuple[pytest.Item, pytest.Item | None]]:
    while True:
        connection.send(("free",))
        if not (numbers := connection.recv()):
            return
        items = [session.items[number] for number in numbers]
        yield from zip(items, [*items[1:], None], strict=True)


class _Teller:
    """Tells the process that began the run what became of tests."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config, self._connection = config, connection

    def pytest_runtest_logstart(self, nodeid: str, location: Any) -> None:
        self._connection.send(("logstart", nodeid, location))

    def pytest_runtest_logfinish(self, nodeid: str, location: Any) -> None:
        self._connection.send(("logfinish", nodeid, location))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._connection.send(("report", data))
