"""Runs task groups as jobs on a resident Spark server (Spark Connect), so that no group waits for Spark to start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from threading import Lock
from types import MappingProxyType, TracebackType
from uuid import NAMESPACE_URL, uuid5

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql.connect.session import SparkSession

from coset.batches.ref import BatchRef
from coset.batches.runners.connection import Gone, check_address, connected, connected_alone, end_session, is_gone
from coset.batches.runners.given_settings import Settings
from coset.batches.runners.jobs import Jobs
from coset.batches.runners.lasting_jobs import TakenOver, lasting_job
from coset.batches.runners.reach import check_reach
from coset.batches.runners.runner import TellOf, nobody
from coset.batches.runners.spark_server import LOG_SETTING
from coset.batches.runners.spark_submit import SparkSubmit
from partitioning.commands import Repeat
from partitioning.errors import CosetError
from partitioning.kinds import Kind
from partitioning.model.task_memory import MEMORY
from spark_jobs.engine.location import ENVIRONMENT, LocationIdProvider, NamedLocation
from spark_jobs.group import Work, answer, group_name, pieces, run_group
from spark_jobs.on_connect import cores_of, run_orders
from spark_jobs.on_spark import job_failed
from spark_jobs.worker_code import Wanted


class Connect:
    """Runs each group as a job of the server at `address`. If the server is gone, submits the group to `master`, with
    `settings`.

    A client that was killed leaves its jobs, and whoever runs the group next reads their answers. `tell` is told so;
    of a group that is `retried` also that none was left. `token` is the server's token; the default is
    SPARK_CONNECT_AUTHENTICATE_TOKEN of the environment. `location` is the server's location, if it is elsewhere.
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
        tell: TellOf | None = None,
        retried: bool = False,
    ) -> None:
        check_address(address)
        self._address = address
        self._memory = memory
        self._answer = partial(answer, memory=memory)
        self._token = token
        self._where: LocationIdProvider = NamedLocation(location) if location else ENVIRONMENT
        self._submit = SparkSubmit(master, memory, settings)
        self._submitting = Lock()
        self._tell = tell or nobody
        self._retried = retried
        self._jobs = Jobs()
        self._tags: set[str] = set()
        # The sessions of groups with steps on DataFrames.
        self._sessions: set[str] = set()

    def __enter__(self) -> Connect:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is left open between groups."""

    def group(self, batch: BatchRef, number: int) -> str:
        check_reach(batch, self._address)
        ledger, plan = batch.load()
        name, tag = group_name(plan, number), _tag(batch, number)
        try:
            # The answers are given back after the receipt is stored.
            with ExitStack() as read:
                return run_group(
                    ledger,
                    plan,
                    number,
                    lambda work, wanted: read.enter_context(self._answers(work, wanted, name, tag, number)),
                    lambda: self._dataframes(name, tag),
                    self._memory,
                    self._where,
                )
        except Gone as gone:
            with self._submitting:
                return f"{gone}; submitted instead: {self._submit.group(batch, number)}"

    def cancel(self) -> None:
        self._submit.cancel()
        self._jobs.end(self._interrupt)

    def _interrupt(self) -> None:
        # This needs a new connection: a signal may have interrupted a thread that was using another.
        with suppress(Gone, CosetError, PySparkException), connected(self._address, self._token) as spark:
            for tag in tuple(self._tags):
                spark.interruptTag(tag)
        for session in tuple(self._sessions):
            end_session(session, self._address, self._token)

    @contextmanager
    def _answers(self, work: Work, wanted: Wanted, name: str, tag: str, number: int) -> Iterator[Sequence[bytes]]:
        with self._job(connected(self._address, self._token), name) as spark:
            sent = pieces(work, cores_of(spark))
            content = msgspec.msgpack.encode((sent, wanted, self._memory), order="deterministic")
            run = partial(run_orders, spark, sent, partial(self._answer, wanted=wanted))

            def tell(sentence: str) -> None:
                # A job that failed because it was ended does not begin anew.
                self._jobs.check(name)
                self._tell(number, sentence)

            self._tags.add(tag)
            try:
                with lasting_job(spark, tag, content, run, tell, retried=self._retried) as answers:
                    yield answers
            except TakenOver as taken:
                what = "another run of this group has taken over its Spark job"
                raise CosetError.of(Kind.RUN_ENDED, what, name, Repeat(), job=name) from taken
            finally:
                self._tags.discard(tag)

    @contextmanager
    def _dataframes(self, name: str, tag: str) -> Iterator[SparkSession]:
        with self._job(connected_alone(tag, self._address, self._token), name) as spark:
            self._sessions.add(spark.session_id)
            # Spark's functions look for the active session of this thread.
            SparkSession._active_session.session = spark
            try:
                yield spark
            finally:
                self._sessions.discard(spark.session_id)

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


def _tag(batch: BatchRef, number: int) -> str:
    """The tag of a group's job, which follows from the group."""
    return f"coset-{uuid5(NAMESPACE_URL, f'{batch.plan_uri}#{batch.digest}#{number}')}"
