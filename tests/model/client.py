"""A client of the model's server in place of boto3's: the real S3 store of Coset asks it, and it asks the scheduler."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import ClientError, ConnectionClosedError

from tests.faults import CODES, DELETE, GET, HEAD, LIST, PUT, PUT_NEW, Fault
from tests.model.server import Request, etag_of

Ask = Callable[[Request], Any]
_STORED = datetime(2026, 1, 1, tzinfo=UTC)


class Client:
    """What `S3Store` uses of boto3. `ask` gives the server's answer to each request, or the fault that it meets."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def put_object(self, *, Key: str, Body: bytes, IfNoneMatch: str = "", **_: Any) -> dict[str, str]:  # noqa: N803
        if self._answer(PUT_NEW if IfNoneMatch else PUT, Key, bytes(Body)) is False:
            raise _error("PreconditionFailed", 412)
        return {"ETag": etag_of(bytes(Body))}

    def get_object(self, *, Key: str, Range: str = "", **_: Any) -> dict[str, Any]:  # noqa: N803
        if (data := self._answer(GET, Key)) is None:
            raise _error("NoSuchKey", 404)
        etag = etag_of(data)
        if Range:
            first, last = Range.removeprefix("bytes=").split("-")
            data = data[int(first) : int(last) + 1]
        return {"Body": io.BytesIO(data), "ETag": etag}

    def head_object(self, *, Key: str, **_: Any) -> dict[str, Any]:  # noqa: N803
        if (found := self._answer(HEAD, Key)) is None:
            raise _error("404", 404)
        return {"ContentLength": found[0], "ETag": found[1]}

    def delete_object(self, *, Key: str, **_: Any) -> None:  # noqa: N803
        self._answer(DELETE, Key)

    def list_objects_v2(self, *, Prefix: str, MaxKeys: int, StartAfter: str = "", **_: Any) -> dict[str, Any]:  # noqa: N803
        found, more = self._answer(LIST, Prefix, (StartAfter, MaxKeys))
        contents = [{"Key": key, "Size": size, "ETag": etag, "LastModified": _STORED} for key, size, etag in found]
        return {"Contents": contents, "IsTruncated": more}

    def get_paginator(self, _: str) -> Client:
        return self

    def paginate(self, *, Prefix: str, PaginationConfig: dict[str, Any], **_: Any) -> Iterator[dict[str, Any]]:  # noqa: N803
        """No listing of the model has more than a page."""
        most = min(PaginationConfig["MaxItems"] or 1000, 1000)
        page = self.list_objects_v2(Prefix=Prefix, MaxKeys=most)
        assert PaginationConfig["MaxItems"] or not page["IsTruncated"]
        yield page

    def _answer(self, verb: str, key: str, data: Any = b"") -> Any:
        answer = self._ask(Request(verb, key, data))
        if not isinstance(answer, Fault):
            return answer
        if answer.told in CODES:
            raise _error(CODES[answer.told], int(answer.told))
        raise ConnectionClosedError(endpoint_url="model")


def _error(code: str, status: int) -> ClientError:
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "model")
