"""A connection to a Spark server, with the token that it asks for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from uuid import NAMESPACE_URL, uuid5

import grpc
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.connect import SparkConnectGrpcException
from pyspark.sql.connect.client import DefaultChannelBuilder
from pyspark.sql.connect.session import SparkSession

from coset.batches.runners.ports import is_loopback
from coset.batches.runners.shipped import Shipped
from partitioning.errors import Finding, Refused, about
from partitioning.kinds import Kind

_CLOSED = "INVALID_HANDLE.SESSION_CLOSED"


class Gone(Exception):
    """Raised when the server cannot be reached, or is lost in the middle."""


def check_address(address: str) -> None:
    """Raises Refused if that is no address of a Spark server."""
    _channel(address, None)


@contextmanager
def connected(address: str, token: str | None = None) -> Iterator[SparkSession]:
    """The session that all of Coset's clients of a server share, over a connection of its own.

    It is shared, and outlives its clients, because the server's Python processes belong to it and have imported what
    tasks need. Clients that ship other code have another, since what is imported stays. Raises Gone if the server
    cannot be reached, Refused if it does not accept the token.
    """
    shipped = Shipped()
    for number in count():
        # A session that was idle for long is closed for ever; then all clients come to the next.
        spark = _session(address, token, str(uuid5(NAMESPACE_URL, f"{address}#{shipped.digest}#{number}")))
        spark.release_session_on_close = False
        try:
            if _is_open(spark, address):
                _ship(spark, shipped)
                yield spark
                return
        finally:
            spark.stop()


@contextmanager
def connected_to(session: str, address: str, token: str | None = None) -> Iterator[SparkSession]:
    """The session of that id, which ends with the connection; a new one if there is none. Raises as `connected`."""
    spark = _session(address, token, session)
    try:
        _is_open(spark, address)
        _ship(spark, Shipped())
        yield spark
    finally:
        spark.stop()


def is_gone(error: PySparkException) -> bool:
    """Whether it means that the server is not there, or no longer."""
    return isinstance(error, SparkConnectGrpcException) and error.getGrpcStatusCode() == grpc.StatusCode.UNAVAILABLE


class _Channel(DefaultChannelBuilder):
    """How a server is reached. On loopback, where nobody else can listen, a token needs no TLS around it.

    Spark's client does so too, but only if the host is called localhost.
    """

    def toChannel(self) -> grpc.Channel:  # noqa: N802 - Spark calls it
        if self.use_ssl or self.token is None or not is_loopback(self.url.hostname or ""):
            return super().toChannel()
        token = grpc.access_token_call_credentials(self.token)
        credentials = grpc.composite_channel_credentials(grpc.local_channel_credentials(), token)
        return self._secure_channel(self.endpoint, credentials)


def _session(address: str, token: str | None, session: str) -> SparkSession:
    channel = _channel(address, token)
    channel.set("session_id", session)
    spark = SparkSession(channel)
    # Somebody waits: a server that is away is replaced, not waited for.
    spark.client.set_retry_policies([])
    return spark


def _ship(spark: SparkSession, shipped: Shipped) -> None:
    """Send the archive, if there is one; the server keeps it if it has it already.

    It fails if another client sends the same one at that moment, and has it when it is asked once more.
    """
    if archive := shipped.archive():
        for last in (False, False, True):
            try:
                spark.addArtifacts(archive, pyfile=True)
            except PySparkException as error:
                if last or is_gone(error):
                    raise
            else:
                return


def _channel(address: str, token: str | None) -> _Channel:
    try:
        channel = _Channel(address)
    except (PySparkException, ValueError) as error:
        raise Refused(
            Finding(
                Kind.ARGUMENT,
                f"no address of a Spark server: {error}",
                address,
                "give one such as sc://127.0.0.1:15002",
                about(address=address),
            )
        ) from None
    channel.set("user_id", "coset")
    if token:
        channel.set("token", token)
    return channel


def _is_open(spark: SparkSession, address: str) -> bool:
    """Whether the session can be used; the first thing that the server is asked."""
    try:
        return bool(spark.version)
    except SparkConnectGrpcException as error:
        if error.getCondition() == _CLOSED:
            return False
        if is_gone(error):
            raise Gone(f"the Spark server {address} cannot be reached") from None
        if error.getGrpcStatusCode() == grpc.StatusCode.UNAUTHENTICATED:
            needed = "set SPARK_CONNECT_AUTHENTICATE_TOKEN to the one that the server was started with"
            raise Refused(
                Finding(
                    Kind.SPARK, "the Spark server does not accept the token", address, needed, about(address=address)
                )
            ) from None
        raise
