"""Connections to a Spark server, with its token."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from itertools import count
from pathlib import Path
from uuid import NAMESPACE_URL, uuid4, uuid5

import grpc
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.connect import SparkConnectGrpcException
from pyspark.sql.connect.client import DefaultChannelBuilder
from pyspark.sql.connect.session import SparkSession

from coset.batches.runners.children import is_loopback
from coset.batches.runners.shipped import Shipped
from partitioning.errors import Refused
from partitioning.kinds import Kind

# Clients of other users do not see their jobs and sessions.
USER = "coset"
_CLOSED = "INVALID_HANDLE.SESSION_CLOSED"
# The setting by which a session of a job's own says that it was used.
_USED = "spark.coset.used"
# How Spark's client says that it does not get through to a server by TLS, and what is next. Waiting cures none of them.
_NO_TLS = {
    re.compile("CERTIFICATE_VERIFY_FAILED: (?P<why>[^:\n]+)"): (
        "the certificate of the Spark server is not trusted: {why}",
        "let GRPC_DEFAULT_SSL_ROOTS_FILE_PATH name a file with the certificates of those whom you trust",
    ),
    re.compile("Hostname Verification Check failed"): (
        "the certificate of the Spark server is for another host",
        "use the host's name or address that the certificate has",
    ),
    re.compile("WRONG_VERSION_NUMBER"): (
        "the Spark server has no TLS at this port",
        "use the port that has: Spark's own has none, a proxy in front of it has",
    ),
}


class Gone(Exception):
    """Raised if the server cannot be reached, or goes away during a job."""


def check_address(address: str) -> None:
    """Raise Refused if this is not the address of a Spark server."""
    _channel(address, None)


@contextmanager
def connected(address: str, token: str | None = None) -> Iterator[SparkSession]:
    """The session that Coset's clients of a server share, over a new connection.

    The session outlives its clients, because the server's Python processes belong to it and have imported what tasks
    need. Clients that ship other code share another session, since processes keep what they imported. Raises Gone if
    the server cannot be reached, and Refused if it does not accept the token, or cannot be trusted.
    """
    shipped = Shipped()
    for number in count():
        # The server closes an idle session for ever. All clients then move on to the next number.
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
def connected_alone(name: str, address: str, token: str | None = None) -> Iterator[SparkSession]:
    """A new session for the job of this name. It ends with the connection, or when the next one for this name begins.
    Raises as `connected`."""
    for number in count():
        spark = _session(address, token, str(uuid5(NAMESPACE_URL, f"{name}#{number}")))
        try:
            if _is_open(spark, address) and spark.conf.get(_USED, None) is None:
                spark.conf.set(_USED, "true")
                _ship(spark, Shipped())
                yield spark
                return
        finally:
            spark.stop()


def end_session(session: str, address: str, token: str | None = None) -> None:
    """End the session with this id, and all its jobs, if the server can be reached."""
    _session(address, token, session).stop()


def is_gone(error: PySparkException) -> bool:
    """Whether the error means that the server is not there, or no longer there."""
    return isinstance(error, SparkConnectGrpcException) and error.getGrpcStatusCode() == grpc.StatusCode.UNAVAILABLE


class _Channel(DefaultChannelBuilder):
    """The channel to a server. On loopback nobody else can listen, so a token needs no TLS.

    Spark's client does the same only for the host name localhost.
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
    # If the server is away the group is submitted instead of waiting for the server.
    spark.client.set_retry_policies([])
    return spark


def _ship(spark: SparkSession, shipped: Shipped) -> None:
    """Send the archive of shipped code, if there is one and the session does not have it.

    Spark's server takes an archive for sent once its file is there, before tasks can import it. Clients that come at
    the same time therefore send files of different names, and each marks the session after its own.
    """
    if (archive := shipped.archive()) and not spark.client._artifact_manager.is_cached_artifact(_mark(shipped)):
        own = Path(archive).with_suffix(f".{uuid4().hex}.zip")
        own.hardlink_to(archive)
        spark.addArtifacts(str(own), pyfile=True)
        spark.client.cache_artifact(shipped.digest.encode())


def _mark(shipped: Shipped) -> str:
    """The name by which Spark's client caches the digest of shipped code in a session."""
    return sha256(shipped.digest.encode()).hexdigest()


def _channel(address: str, token: str | None) -> _Channel:
    try:
        channel = _Channel(address)
    except (PySparkException, ValueError) as error:
        what, then = f"this is not the address of a Spark server: {error}", "give one such as sc://127.0.0.1:15002"
        raise Refused.of(Kind.ARGUMENT, what, address, then, address=address) from None
    channel.set("user_id", USER)
    if token:
        channel.set("token", token)
    return channel


def _is_open(spark: SparkSession, address: str) -> bool:
    """Whether the session can be used. This is the first request to the server."""
    try:
        return bool(spark.version)
    except SparkConnectGrpcException as error:
        if error.getCondition() == _CLOSED:
            return False
        if is_gone(error):
            raise _no_tls(str(error), address) or Gone(f"the Spark server {address} cannot be reached") from None
        if error.getGrpcStatusCode() == grpc.StatusCode.UNAUTHENTICATED:
            needed = "set SPARK_CONNECT_AUTHENTICATE_TOKEN to the one that the server was started with"
            what = "the Spark server does not accept the token"
            raise Refused.of(Kind.SPARK, what, address, needed, address=address) from None
        raise


def _no_tls(said: str, address: str) -> Refused | None:
    """The refusal if TLS with the server fails for good."""
    for pattern, (what, then) in _NO_TLS.items():
        if match := pattern.search(said):
            return Refused.of(Kind.SPARK, what.format_map(match.groupdict()), address, then, address=address)
    return None
