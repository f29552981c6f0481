"""The S3 server of the demo and the tests: without its credentials nobody gets at what it holds, at no port."""

from __future__ import annotations

from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import grpc
import pytest

from demo.s3_server import S3Server, start_server
from partitioning.documents.stores import store_at

# What each part would do for anyone who asks: list and read a bucket, write to it, remove it with all data.
ASKED = [
    ("GET", "/buckets/test/?limit=10"), ("GET", "/buckets/test/held"), ("PUT", "/buckets/test/planted"),
    ("DELETE", "/buckets/test/held"), ("GET", "/test/?list-type=2"), ("GET", "/test/held"), ("GET", "/dir/assign"),
    ("GET", "/col/delete?collection=test"),
]  # fmt: skip


def answer(port: int, method: str, path: str) -> int:
    try:
        with urlopen(Request(f"http://127.0.0.1:{port}{path}", method=method), timeout=10) as response:
            return int(response.status)
    except HTTPError as error:
        return error.code
    except OSError:
        return 0


def test_no_port_answers_those_without_credentials(s3: S3Server) -> None:
    held = store_at("s3://test")
    held.put("held", b"as it was")
    answered = {(port, *asked): answer(port, *asked) for port in s3.ports for asked in ASKED}
    assert {asked: status for asked, status in answered.items() if 200 <= status < 400} == {}
    assert held.get("held") == b"as it was"
    assert held.head("planted") is None


def test_no_part_speaks_to_a_stranger(s3: S3Server) -> None:
    for port in s3.ports:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel, pytest.raises(grpc.FutureTimeoutError):
            grpc.channel_ready_future(channel).result(timeout=1)


def test_only_its_owner_can_read_what_a_server_keeps(tmp_path: Path) -> None:
    server = start_server(tmp_path / "s3", ("test",))
    server.stop()
    secret = ("data", "keys", "keys/key.pem", "s3.json")
    assert {name for name in secret if (tmp_path / "s3" / name).stat().st_mode & 0o077} == set()
