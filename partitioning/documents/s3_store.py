"""The store in S3: objects under `s3://bucket/prefix`.

S3 needs If-None-Match on PUT (AWS, MinIO, SeaweedFS ≥ 4.48, versitygw). Endpoint and credentials come from
the usual AWS environment variables and are never written anywhere.
"""

from __future__ import annotations

import mimetypes
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any

import boto3
import botocore.session
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    IncompleteReadError,
    NoCredentialsError,
    ReadTimeoutError,
    ResponseStreamingError,
)
from botocore.utils import parse_timestamp
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from partitioning.commands import Repeat
from partitioning.documents.store import AT_ONCE, PAGE_KEYS, Entry, Found, KeyPage
from partitioning.errors import CosetError, Finding, OutcomeUnknown, Refused, Unreachable
from partitioning.kinds import Kind
from partitioning.version import VERSION

_LOST_RACE = {"PreconditionFailed", "412"}
_BUSY = {"ConditionalRequestConflict", "409"}
_ABSENT = {"NoSuchKey", "404", "NotFound"}
_NO_RANGE = {"InvalidRange", "416"}
_DENIED = {"AccessDenied", "403", "Forbidden", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken"}
_TRIES_WHILE_BUSY = 10
# boto3 tries again until an answer begins. An answer that ends too early is tried again here.
_UNCUT = Retrying(
    retry=retry_if_exception_type((IncompleteReadError, ReadTimeoutError, ResponseStreamingError)),
    stop=stop_after_attempt(4),
    wait=wait_random_exponential(0.2, 5),
    reraise=True,
)


class S3Store:
    """A store under `s3://bucket/prefix`.

    Raises Refused if the store denies access, Unreachable if it does not answer, and OutcomeUnknown if a write was sent
    and nothing says whether it arrived.
    """

    def __init__(self, root: str) -> None:
        self.root = root.rstrip("/")
        self._bucket, _, prefix = self.root.removeprefix("s3://").partition("/")
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        with self._errors(""):
            self._client = _client()

    def get(self, key: str) -> bytes | None:
        with self._errors(key):
            try:
                return bytes(_UNCUT(self._read, key))
            except ClientError as error:
                if _code(error) in _ABSENT:
                    return None
                raise

    def get_part(self, key: str, start: int, end: int, etag: str | None) -> bytes | None:
        with self._errors(key):
            try:
                data, found = _UNCUT(self._read_part, key, start, end)
            except ClientError as error:
                if _code(error) in _ABSENT | _NO_RANGE:
                    return None
                raise
        return data if etag in (None, found) and len(data) == end - start else None

    def put_new(self, key: str, data: bytes) -> bytes:
        # A retry by boto3 after a lost answer is told 412 about its own object, so whatever goes wrong,
        # what is stored decides.
        for _ in range(_TRIES_WHILE_BUSY):
            try:
                self._client.put_object(Bucket=self._bucket, Key=self._prefix + key, Body=data, IfNoneMatch="*")
                return data
            except ClientError as error:
                if _code(error) in _BUSY:
                    time.sleep(random.uniform(0.05, 0.5))
                    continue
                if _code(error) not in _LOST_RACE and not _is_server_fault(error):
                    with self._errors(key):
                        raise
                cause: Exception = error
            except BotoCoreError as error:
                if isinstance(error, NoCredentialsError | EndpointConnectionError | ConnectTimeoutError):
                    with self._errors(key):
                        raise
                cause = error
            stored = self.get(key)
            if stored is not None:
                return stored
            what = f"the write was not answered: {cause}"
            raise OutcomeUnknown.of(Kind.STORE_UNKNOWN, what, self.uri(key), Repeat(), key=key) from cause
        what = f"the store answered {_TRIES_WHILE_BUSY} times that others write this object"
        raise OutcomeUnknown.of(Kind.STORE_UNREACHABLE, what, self.uri(key), Repeat(), key=key)

    def put(self, key: str, data: bytes) -> Entry:
        # Browsers show a report only if they are told what it is.
        kind = mimetypes.guess_type(key)[0] or "application/octet-stream"
        with self._errors(key):
            answer = self._client.put_object(Bucket=self._bucket, Key=self._prefix + key, Body=data, ContentType=kind)
        return Entry(key, len(data), answer["ETag"].strip('"'))

    def delete(self, key: str) -> None:
        with self._errors(key):
            self._client.delete_object(Bucket=self._bucket, Key=self._prefix + key)

    def head(self, key: str) -> Entry | None:
        with self._errors(key):
            try:
                answer = self._client.head_object(Bucket=self._bucket, Key=self._prefix + key)
            except ClientError as error:
                if _code(error) in _ABSENT:
                    return None
                raise
        return Entry(key, int(answer["ContentLength"]), answer["ETag"].strip('"'))

    def list(self, prefix: str, limit: int | None = None) -> Iterator[Entry]:
        of_each = None if limit is None else min(limit, PAGE_KEYS)
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=self._prefix + prefix, PaginationConfig={"MaxItems": limit, "PageSize": of_each}
        )
        with self._errors(prefix):
            for page in pages:
                for item in page.get("Contents", []):
                    key = item["Key"].removeprefix(self._prefix)
                    yield Entry(key, int(item["Size"]), item["ETag"].strip('"'))

    def page(self, prefix: str, after: str, limit: int | None = None) -> KeyPage:
        """One request's objects whose keys start with `prefix` and are greater than `after`.

        A `limit` above `PAGE_KEYS` has no effect.
        """
        most = PAGE_KEYS if limit is None else min(limit, PAGE_KEYS)
        wanted = {"Bucket": self._bucket, "Prefix": self._prefix + prefix, "MaxKeys": most}
        with self._errors(prefix):
            answer = self._client.list_objects_v2(**wanted, **({"StartAfter": self._prefix + after} if after else {}))
        objects = tuple(
            Found(
                Entry(item["Key"].removeprefix(self._prefix), int(item["Size"]), item["ETag"].strip('"')),
                item["LastModified"],
            )
            for item in answer.get("Contents", [])
        )
        return KeyPage(objects, bool(answer["IsTruncated"]) and bool(objects))

    def _read(self, key: str) -> bytes:
        answer = self._client.get_object(Bucket=self._bucket, Key=self._prefix + key)
        return bytes(answer["Body"].read())

    def _read_part(self, key: str, start: int, end: int) -> tuple[bytes, str]:
        bytes_asked = f"bytes={start}-{end - 1}"
        answer = self._client.get_object(Bucket=self._bucket, Key=self._prefix + key, Range=bytes_asked)
        return bytes(answer["Body"].read()), answer["ETag"].strip('"')

    def uri(self, key: str) -> str:
        return f"{self.root}/{key}"

    @contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        """Turn botocore's errors into ours: what, where, and what to do next."""
        try:
            yield
        except CosetError:
            raise
        except ClientError as error:
            raise self._refused_by_store(error, key) from error
        except NoCredentialsError as error:
            then = (
                "give this machine or pod a role, name a file with AWS_SHARED_CREDENTIALS_FILE, or set "
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; executors on Kubernetes get them by "
                "`spark.kubernetes.executor.secretKeyRef.…`: docs/how-to/cluster.md#keys"
            )
            raise Refused.of(Kind.STORE_DENIED, "there are no S3 credentials", self.uri(key), then, key=key) from error
        except (BotoCoreError, ValueError) as error:
            endpoint = os.environ.get("AWS_ENDPOINT_URL", "AWS")
            what = f"the store at {endpoint} cannot be reached: {error}"
            then = "check that it runs and that AWS_ENDPOINT_URL names it"
            raise Unreachable.of(Kind.STORE_UNREACHABLE, what, self.uri(key), then, endpoint=endpoint) from error

    def _refused_by_store(self, error: ClientError, key: str) -> CosetError:
        code = _code(error)
        if code == "NoSuchBucket":
            what, then = f"there is no bucket {self._bucket!r}", "create it, or correct the URI"
            return Refused.of(Kind.STORE_ADDRESS, what, self.uri(key), then, bucket=self._bucket)
        if code in _DENIED:
            then = "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and the bucket's policy"
            return Refused.of(Kind.STORE_DENIED, f"the store denies access ({code})", self.uri(key), then, code=code)
        if code == "RequestTimeTooSkewed":
            what = f"the store answered {code}"
            return Refused.of(Kind.STORE_DENIED, what, self.uri(key), "set this machine's clock", code=code)
        kind = Unreachable if _is_server_fault(error) else Refused
        return kind(
            Finding.of(
                Kind.STORE_UNREACHABLE, f"the store answered {code}: {error}", self.uri(key), Repeat(), code=code
            )
        )


def _client() -> Any:
    return _client_of(os.getpid(), tuple(sorted(item for item in os.environ.items() if item[0].startswith("AWS_"))))


@lru_cache(maxsize=8)
def _client_of(process: int, settings: tuple[tuple[str, str], ...]) -> Any:
    """One client for each process and each set of settings: making one takes a quarter of a second."""
    # A session of its own: the default one keeps the first credentials that the process had.
    core = botocore.session.Session()
    core.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=_timestamp)
    return boto3.Session(botocore_session=core).client(
        "s3",
        config=Config(
            # botocore would put its own together for each request, in a tenth of the request's time.
            user_agent=f"coset/{VERSION}",
            retries={"mode": "standard", "total_max_attempts": 4},
            connect_timeout=5,
            read_timeout=60,
            max_pool_connections=AT_ONCE,
            s3={"addressing_style": "path"} if os.environ.get("AWS_ENDPOINT_URL") else {},
        ),
        region_name=os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1",
    )


def _timestamp(text: str) -> datetime:
    """A time in an answer, as listings or headers write it. botocore guesses how each is written: two thirds of what it
    costs to read a listing, a tenth of what a request costs."""
    for written in (datetime.fromisoformat, parsedate_to_datetime):
        with suppress(ValueError, TypeError):
            return written(text)
    guessed: datetime = parse_timestamp(text)
    return guessed


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _is_server_fault(error: ClientError) -> bool:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)) >= 500
