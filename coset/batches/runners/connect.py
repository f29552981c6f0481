"""Runs task groups as jobs on a resident Spark server (Spark Connect), so that no group waits for Spark to start.

A job outlasts its client: whoever asks for the same job again gets the one that was left. A server keeps an execution
and its answers for a while after the client has gone, and a client that knows its id reads them. The id follows from
what the job does, so that a retry, on any machine, knows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from hashlib import sha256
from itertools import count
from threading import Lock
from types import MappingProxyType, TracebackType
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import grpc
import msgspec
from pyspark.errors import PySparkException
from pyspark.sql.connect.client.retries import RetryPolicy
from pyspark.sql.connect.proto import GetStatusResponse, ReleaseExecuteRequest, UserContext
from pyspark.sql.connect.session import SparkSession

from coset.batches.ref import BatchRef
from coset.batches.runners.connection import USER, Gone, check_address, connected, connected_alone, end_session, is_gone
from coset.batches.runners.given_settings import Settings
from coset.batches.runners.jobs import Jobs
from coset.batches.runners.runner import TellOf, nobody
from coset.batches.runners.spark_server import LOG_SETTING
from coset.batches.runners.spark_settings import check_reach
from coset.batches.runners.spark_submit import SparkSubmit
from partitioning.commands import Repeat
from partitioning.errors import CosetError
from partitioning.kinds import Kind
from partitioning.model.task_engine import MEMORY
from spark_jobs.engine.location import ENVIRONMENT, LocationIdProvider, NamedLocation
from spark_jobs.group import Work, answer, group_name, pieces, run_group
from spark_jobs.on_connect import cores_of, run_orders
from spark_jobs.on_spark import job_failed
from spark_jobs.waiting_for_workers import Tell
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


_EXISTS = "INVALID_HANDLE.OPERATION_ALREADY_EXISTS"
# The server has ended a job with this id, and has none with it ever again.
_USED = "INVALID_HANDLE.OPERATION_ABANDONED"
_OTHER_CLIENT = "INVALID_CURSOR.DISCONNECTED"
_STATES = GetStatusResponse.OperationStatus
# The last is that of a job that has ended, whose answers were not given back.
_LEFT = {_STATES.OPERATION_STATE_RUNNING, _STATES.OPERATION_STATE_TERMINATING}
_RELEASED_WITHIN_SECONDS = 5


class TakenOver(Exception):
    """Raised if another client has asked for the same job and reads its answers now."""


@contextmanager
def lasting_job(
    spark: SparkSession, tag: str, content: bytes, run: Callable[[], Sequence[bytes]], tell: Tell, *, retried: bool
) -> Iterator[Sequence[bytes]]:
    """The answers of the one job that `run` requests in this session; `content` is what it does.

    If a client has left a job of this content, its answers are read instead; one that failed is run anew. Others with
    this tag are ended first. `tell` is told so. The server keeps the answers until the context is left, so that a
    client that is killed before loses nothing. Raises TakenOver, and Spark's own errors.
    """
    spark.addTag(tag)
    stub = spark.client._stub = _Keeping(spark.client._stub)  # type: ignore[assignment]
    spark.client.set_retry_policies([_Reattach()])
    for stub.operation, left in _operations(spark, f"{tag}#{sha256(content).hexdigest()}"):
        if left:
            tell("reconnects to the job that was left on the Spark server")
        elif spark.interruptTag(tag):
            tell("ends the job that was left on the Spark server, which does something else, and begins anew")
        elif retried:
            tell("begins anew, as no job was left on the Spark server")
        try:
            answers = run()
        except PySparkException as error:
            if _OTHER_CLIENT in str(error):
                raise TakenOver from error
            stub.release(spark)
            if left:
                tell(f"begins anew, as the job that was left has failed: {str(error).splitlines()[0]}")
                retried = False
            elif _USED not in str(error):
                raise
        else:
            break
    try:
        yield answers
    finally:
        stub.release(spark)


class _Reattach(RetryPolicy):
    """Has Spark's client try again if its job is there already. It then reads the answers of that."""

    def __init__(self) -> None:
        super().__init__(max_retries=1, initial_backoff=0)

    def can_retry(self, exception: BaseException) -> bool:
        return isinstance(exception, grpc.RpcError) and _EXISTS in str(exception)


class _Keeping:
    """The stub of a server, which executes under the id `operation` and gives no answer back before `release`.

    Spark's client gives back what it has read, and ends a job that it has lost; then no other could go on.
    """

    def __init__(self, stub: Any) -> None:
        self._stub = stub
        self.operation = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stub, name)

    def ExecutePlan(self, request: Any, **more: Any) -> Any:  # noqa: N802 - Spark's client calls it
        request.operation_id = self.operation
        return self._stub.ExecutePlan(request, **more)

    def ReleaseExecute(self, request: Any, **more: Any) -> None:  # noqa: N802 - Spark's client calls it
        """Nothing is given back."""

    def release(self, spark: SparkSession) -> None:
        """Let the server forget the job. It ends if it runs."""
        request = ReleaseExecuteRequest(
            session_id=spark.session_id,
            user_context=UserContext(user_id=USER),
            operation_id=self.operation,
            release_all=ReleaseExecuteRequest.ReleaseAll(),
        )
        with suppress(grpc.RpcError):
            metadata = spark.client._builder.metadata()
            self._stub.ReleaseExecute(request, metadata=metadata, timeout=_RELEASED_WITHIN_SECONDS)


def _operations(spark: SparkSession, job: str) -> Iterator[tuple[str, bool]]:
    """The ids by which a job can be asked for, and of each whether a client has left it. One that has ended, and whose
    answers were given back, is none of them."""
    for number in count():
        operation = str(uuid5(NAMESPACE_URL, f"{job}#{number}"))
        (known,) = spark.client._get_operation_statuses([operation]).operation_statuses
        if known.state in _LEFT or known.state == _STATES.OPERATION_STATE_UNKNOWN:
            yield operation, known.state in _LEFT
