"""Objects in S3 for the libraries that read and write data: PyArrow and delta-rs.

Both are told the same endpoint, credentials and region as boto3, from the usual AWS environment variables.
"""

from __future__ import annotations

import os
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow.fs import S3FileSystem

from partitioning.errors import Finding, Refused


def filesystem() -> S3FileSystem:
    """PyArrow's view of the store; paths are `bucket/key`, as `split` gives them, joined by a slash.

    Without AWS_ENDPOINT_URL it is AWS itself, and without AWS_ACCESS_KEY_ID the machine's own role.
    """
    options: dict[str, object] = {"region": _region(), "connect_timeout": 5, "request_timeout": 60}
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
    """Bucket and key of an S3 URI. Raises Refused if it is none.

    >>> split("s3://landing/topics/flights")
    ('landing', 'topics/flights')
    """
    parts = urlsplit(uri)
    if parts.scheme != "s3" or not parts.netloc:
        raise Refused(Finding(f"{uri!r} is no S3 URI", "store", "write it as s3://bucket/key"))
    return parts.netloc, uri.removeprefix(f"s3://{parts.netloc}").lstrip("/")


def version(file: pa.NativeFile) -> tuple[int, str]:
    """Size and etag of an open file, as the store's HEAD gave them when it was opened."""
    return file.size(), file.metadata().get("ETag", b"").decode().strip('"')


def storage_options() -> dict[str, str]:
    """What delta-rs needs to reach the store."""
    names = ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
    options = {name: os.environ[name] for name in names if os.environ.get(name)} | {"AWS_REGION": _region()}
    if options.get("AWS_ENDPOINT_URL", "").startswith("http://"):
        options["AWS_ALLOW_HTTP"] = "true"
    return options


def _region() -> str:
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
