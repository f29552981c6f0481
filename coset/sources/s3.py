"""Objects in S3 for the libraries that read and write data: PyArrow and delta-rs.

Both get the endpoint, credentials and region of boto3, from the usual AWS environment variables.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem

from partitioning.commands import Repeat, Then
from partitioning.errors import CosetError, Refused, Unreachable
from partitioning.kinds import Kind

AGAIN = Repeat()

CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_STORE = ("AWS_ENDPOINT_URL", *CREDENTIALS)
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")

# What the operating system says of a disk, or a user's share of it, that is full.
_FULL = {errno.ENOSPC, errno.EDQUOT}
# As many tries as boto3 makes.
_TRIES = 4
# What PyArrow and delta-rs say if the network or the store fails, rather than the object.
_PASSING = re.compile(
    r"AWS Error (?:NETWORK_CONNECTION|INTERNAL_FAILURE|SERVICE_UNAVAILABLE|SLOW_DOWN|THROTTLING|REQUEST_TIMEOUT"
    r"|UNKNOWN \(HTTP status (?:5\d\d|429)\))"
    r"|Generic S3 error.*(?:HTTP error|status code (?:5\d\d|429)\b)",
    re.DOTALL,
)
_DENIED = re.compile(r"AWS Error (?:ACCESS_DENIED|UNKNOWN \(HTTP status 403\))|403 Forbidden|necessary privileges")


def s3_filesystem() -> S3FileSystem:
    """PyArrow's S3 file system. Paths are `bucket/key`, the parts of `split` joined by a slash.

    Without AWS_ENDPOINT_URL it is AWS. Without AWS_ACCESS_KEY_ID it uses the machine's role.
    """
    options: dict[str, object] = {
        "region": _region(),
        "connect_timeout": 5,
        "request_timeout": 60,
        "retry_strategy": AwsStandardS3RetryStrategy(max_attempts=_TRIES),
        # A small file then takes one request instead of three.
        "allow_delayed_open": True,
    }
    if endpoint := os.environ.get("AWS_ENDPOINT_URL"):
        parts = urlsplit(endpoint)
        options |= {"scheme": parts.scheme, "endpoint_override": parts.netloc}
    if key := os.environ.get("AWS_ACCESS_KEY_ID"):
        options |= {
            "access_key": key,
            "secret_key": os.environ.get("AWS_SECRET_ACCESS_KEY"),
            "session_token": os.environ.get("AWS_SESSION_TOKEN"),
        }
    return S3FileSystem(**options)


def split(uri: str) -> tuple[str, str]:
    """Bucket and key of an S3 URI. Raises Refused for anything else.

    >>> split("s3://landing/topics/flights")
    ('landing', 'topics/flights')
    """
    parts = urlsplit(uri)
    if parts.scheme != "s3" or not parts.netloc:
        raise Refused.of(Kind.STORE_ADDRESS, f"{uri!r} is no S3 URI", "store", "write it as s3://bucket/key", uri=uri)
    return parts.netloc, uri.removeprefix(f"s3://{parts.netloc}").lstrip("/")


def may_pass(error: Exception) -> bool:
    """Whether an error of PyArrow or delta-rs may pass: the network's, or the store's for now.

    >>> may_pass(OSError("AWS Error UNKNOWN (HTTP status 503) during HeadObject operation: No response body."))
    True
    >>> may_pass(OSError("Couldn't deserialize thrift: No more data to read."))
    False
    """
    return _PASSING.search(_text(error)) is not None


def is_denied(error: Exception) -> bool:
    """Whether an error of PyArrow or delta-rs says that the store denies access."""
    return _DENIED.search(_text(error)) is not None


def store_error(error: Exception, what: str, where: str, then: Then) -> CosetError:
    """An error of PyArrow or delta-rs as Coset's: Unreachable if it may pass. `then` is the next step if it stays."""
    said = f"{what}: {_text(error)[:500]}"
    if may_pass(error):
        return Unreachable.of(Kind.STORE_UNREACHABLE, said, where, AGAIN, asked=what, at=where)
    if isinstance(error, OSError) and error.errno in _FULL:
        then = "free its disk, then run the same command again"
        return Unreachable.of(Kind.STORE_UNREACHABLE, said, where, then, asked=what, at=where)
    if is_denied(error):
        then = "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and the bucket's policy"
        return Refused.of(Kind.STORE_DENIED, said, where, then, asked=what, at=where)
    return Refused.of(Kind.FILE_UNREADABLE, said, where, then, asked=what, at=where)


def _text(error: Exception) -> str:
    """An error on one line, without the decoration of delta-rs."""
    plain = re.sub(r"\x1b\[[0-9;]*m|↳", "", str(error)).partition("\n   0: ")[0]
    return " ".join(plain.split())


@contextmanager
def reaching(what: str, where: str, then: Then) -> Iterator[None]:
    """Turns PyArrow's errors into those of `store_error`, except that a file is not found."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise store_error(error, what, where, then) from error


def environment() -> dict[str, str]:
    """The variables of this process that locate the store and grant access; tasks elsewhere need them too."""
    return {name: os.environ[name] for name in (*_STORE, *_REGIONS) if os.environ.get(name)}


def storage_options() -> dict[str, str]:
    """The options by which delta-rs reaches the store."""
    options = {name: os.environ[name] for name in _STORE if os.environ.get(name)} | {"AWS_REGION": _region()}
    if options.get("AWS_ENDPOINT_URL", "").startswith("http://"):
        options["AWS_ALLOW_HTTP"] = "true"
    if "AWS_ACCESS_KEY_ID" not in options:
        # At an endpoint of one's own delta-rs would otherwise ask for no identity but that of an EC2 machine.
        options["AWS_FORCE_CREDENTIAL_LOAD"] = "true"
    return options


def in_python(table: str, call: str) -> str:
    """A call of a Delta table as a line of Python, for people to run where this process has its environment: what that
    says, and so each secret, delta-rs takes from there."""
    options = {} if table.startswith("file:") else storage_options()
    said = {name: value for name, value in options.items() if name not in os.environ}
    opened = f'DeltaTable("{table.rstrip("/")}"{f", storage_options={said}" if said else ""})'
    return f"from deltalake import DeltaTable; {opened}.{call}"


def iceberg_options() -> dict[str, str]:
    """The options by which PyIceberg reaches the store, and AWS, where its configuration says nothing else."""
    names = zip(("s3.endpoint", "s3.access-key-id", "s3.secret-access-key", "s3.session-token"), _STORE, strict=True)
    options = {option: os.environ[name] for option, name in names if os.environ.get(name)} | {"s3.region": _region()}
    # boto3 knows only one of the two variables, and a file.
    return options | ({"client.region": _region()} if any(map(os.environ.get, _REGIONS)) else {})


def _region() -> str:
    return next(filter(None, map(os.environ.get, _REGIONS)), "us-east-1")
