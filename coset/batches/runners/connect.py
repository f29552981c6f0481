"""Runs task groups as jobs on a resident Spark server (Spark Connect), so that no group waits for Spark to start."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from itertools import count
from threading import Lock
from types import MappingProxyType, TracebackType
from uuid import NAMESPACE_URL, uuid5

from pyspark.errors import PySparkException
from pyspark.sql.connect.session import SparkSession

from coset.batches.ref import BatchRef
from coset.batches.runners.connection import Gone, check_address, connected, connected_to, is_gone
from coset.batches.runners.given_settings import Settings
from coset.batches.runners.jobs import Jobs
from coset.batches.runners.reach import check_reach
from coset.batches.runners.spark_server import LOG_SETTING
from coset.batches.runners.spark_submit import SparkSubmit
from partitioning.errors import CosetError
from spark_jobs.engine.location import ENVIRONMENT, LocationIdProvider, NamedLocation
from spark_jobs.group import MEMORY, Work, answer, group_name, pieces, run_group
from spark_jobs.on_connect import cores_of, run_orders
from spark_jobs.on_spark import job_failed
from spark_jobs.worker_code import Wanted


class Connect:
    """Runs each group as a job of the server at `address`. If the server is gone, submits the group to `master`, with
    `settings`.

    `token` is the server's token; the default is SPARK_CONNECT_AUTHENTICATE_TOKEN of the environment. `location` is the
    server's location, if it is elsewhere. Jobs are ended by their `tag`, which another client may know too.
    """

    has_spark = True
    # A group may have fewer tasks than there are cores.
    at_once = 4

    def __init__(
        self,
        address: str,
        memory: str = MEMORY,
        token: str | None = None,
        master: str = "local[*]",
        location: str | None = None,
        settings: Settings = MappingProxyType({}),
        tag: str | None = None,
    ) -> None:
        check_address(address)
        self._address = address
        self._memory = memory
        self._answer = partial(answer, memory=memory)
        self._token = token
        self._where: LocationIdProvider = NamedLocation(location) if location else ENVIRONMENT
        self._submit = SparkSubmit(master, memory, settings)
        self._submitting = Lock()
        self._tag = tag or f"coset-{secrets.token_hex(8)}"
        self._jobs = Jobs()
        # The sessions of groups with steps on DataFrames.
        self._sessions: set[str] = set()
        self._opened = count()

    def __enter__(self) -> Connect:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is left open between groups."""

    def group(self, batch: BatchRef, number: int) -> str:
        check_reach(batch, self._address)
        ledger, plan = batch.load()
        name = group_name(plan, number)
        try:
            return run_group(
                ledger,
                plan,
                number,
                lambda work, wanted: self._run(work, wanted, name),
                lambda: self._dataframes(name),
                self._memory,
                self._where,
            )
        except Gone as gone:
            with self._submitting:
                return f"{gone}; submitted instead: {self._submit.group(batch, number)}"

    def cancel(self) -> None:
        self._submit.cancel()
        self._jobs.end(self._interrupt)

    def end_left(self) -> None:
        """End the job that a client with this tag has left running when it was killed in its first group."""
        self._sessions.add(self._session(0))
        self._interrupt()

    def _session(self, number: int) -> str:
        return str(uuid5(NAMESPACE_URL, f"{self._tag}#{number}"))

    def _interrupt(self) -> None:
        # This needs a new connection: a signal may have interrupted a thread that was using another.
        with suppress(Gone, CosetError, PySparkException), connected(self._address, self._token) as spark:
            spark.interruptTag(self._tag)
        for session in tuple(self._sessions):
            opened = connected_to(session, self._address, self._token)
            with suppress(Gone, CosetError, PySparkException), opened as spark:
                spark.interruptAll()

    def _run(self, work: Work, wanted: Wanted, name: str) -> Sequence[bytes]:
        with self._job(connected(self._address, self._token), name) as spark:
            spark.addTag(self._tag)
            return run_orders(spark, pieces(work, cores_of(spark)), partial(self._answer, wanted=wanted))

    @contextmanager
    def _dataframes(self, name: str) -> Iterator[SparkSession]:
        session = self._session(next(self._opened))
        with self._job(connected_to(session, self._address, self._token), name) as spark:
            self._sessions.add(session)
            # Spark's functions look for the active session of this thread.
            SparkSession._active_session.session = spark
            try:
                yield spark
            finally:
                self._sessions.discard(session)

    @contextmanager
    def _job(self, opened: AbstractContextManager[SparkSession], name: str) -> Iterator[SparkSession]:
        """A session for the job of a group. Raises Gone if the server goes away."""
        with self._jobs.waiting_for(name), opened as spark:
            log: str | None = f"on the host of {self._address}"
            try:
                log = spark.conf.get(LOG_SETTING, log)
                self._jobs.check(name)
                yield spark
            except PySparkException as error:
                if is_gone(error):
                    raise Gone(f"the Spark server {self._address} went away") from None
                raise job_failed(error, name, f"the Spark server's log, {log}") from None
