"""Jobs on a Spark server that outlast their client: whoever asks for the same job again gets the one that was left.

A server keeps an execution and its answers for a while after the client has gone, and a client that knows its id reads
them. The id follows from what the job does, so that a retry, on any machine, knows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from itertools import count
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import grpc
from pyspark.errors import PySparkException
from pyspark.sql.connect.client.retries import RetryPolicy
from pyspark.sql.connect.proto import GetStatusResponse, ReleaseExecuteRequest, UserContext
from pyspark.sql.connect.session import SparkSession

from coset.batches.runners.connection import USER
from spark_jobs.waiting_for_workers import Tell

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
