"""A machine's identity: an S3 server that is reached by credentials which expire, and who gives the next ones.

They come from an address that AWS_CONTAINER_CREDENTIALS_FULL_URI names, as on EKS and ECS. Each second has others,
which are refused some seconds after they were given. It is a process of its own, as `tests/faults.py` is.
"""

from __future__ import annotations

import json
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

from demo.s3_server import start_server
from tests.faults import _Handler

# They are said to expire in so many seconds, and do.
SHORT = 2.0
_REFUSED_AFTER = 2.5
_PAIRS = 5
_KEY = re.compile(r"Credential=([^/]+)/")
_EXPIRED = b"<?xml version='1.0'?><Error><Code>ExpiredToken</Code><Message>expired</Message></Error>"
IDENTITY = "AWS_CONTAINER_CREDENTIALS_FULL_URI"
STATIC = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


class _Giver(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, endpoint: str, pairs: Sequence[tuple[str, str]]) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.upstream = urlsplit(endpoint).netloc
        self.pairs = pairs
        self.expires = dict[str, float]()

    def given(self) -> Mapping[str, str]:
        """The credentials of now."""
        now = time.time()
        key, secret = self.pairs[int(now) % len(self.pairs)]
        self.expires[key] = now + _REFUSED_AFTER
        until = (datetime.now(UTC) + timedelta(seconds=SHORT)).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {"AccessKeyId": key, "SecretAccessKey": secret, "Token": "", "Expiration": until}

    def counts(self, key: str) -> bool:
        """Whether a request with this key is let through."""
        return time.time() < self.expires.get(key, 0)

    def handle_error(self, *_: object) -> None:
        """A client that hangs up is no news."""


class _Answers(_Handler):
    def _pass_on(self) -> None:
        assert isinstance(self.server, _Giver)
        if self.path == "/identity":
            self._answer(200, [("Content-Type", "application/json")], json.dumps(self.server.given()).encode())
            return
        body, key = self._body(), _KEY.search(self.headers.get("Authorization", ""))
        if key is None or not self.server.counts(key[1]):
            self._answer(403, [], b"" if self.command == "HEAD" else _EXPIRED)
            return
        self._answer(*self._ask(body))

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass_on  # noqa: N815


@contextmanager
def identity(folder: Path, buckets: tuple[str, ...]) -> Iterator[Mapping[str, str]]:
    """The variables of a machine with an identity, and without a key. There are more keys than anybody has heard of."""
    pairs = [(secrets.token_hex(8), secrets.token_hex(16)) for _ in range(_PAIRS)]
    named = [{"accessKey": key, "secretKey": secret} for key, secret in pairs]
    actions = ["Admin", "Read", "Write", "List", "Tagging"]
    folder.mkdir(parents=True)
    (folder / "s3.json").write_text(
        json.dumps({"identities": [{"name": "coset", "credentials": named, "actions": actions}]})
    )
    server = start_server(folder, buckets)
    giver = subprocess.Popen(
        [sys.executable, "-m", "tests.identity", server.environment["AWS_ENDPOINT_URL"]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[1],
    )
    try:
        assert giver.stdin is not None
        assert giver.stdout is not None
        print(json.dumps(pairs), file=giver.stdin, flush=True)
        url = giver.stdout.readline().strip()
        yield {"AWS_ENDPOINT_URL": url, IDENTITY: f"{url}/identity", "AWS_REGION": "us-east-1"}
    finally:
        giver.communicate("")
        server.stop()


if __name__ == "__main__":
    started = _Giver(sys.argv[1], json.loads(sys.stdin.readline()))
    Thread(target=started.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{started.server_address[1]}", flush=True)
    sys.stdin.read()
