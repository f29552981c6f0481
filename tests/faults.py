"""Faults of a store, in one language, for the model and for a loopback proxy in front of a real S3 server.

The proxy is a process of its own (`python tests/faults.py ENDPOINT`), because delta-rs keeps Python from running any
other thread while it waits for some of its answers.
"""

from __future__ import annotations

import json
import random
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import cache
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple, Self
from urllib.parse import unquote, urlsplit

# What a request may be. Parts of a large file, and removing many, are posted.
GET, HEAD, LIST, PUT, PUT_NEW, POST, DELETE = "get", "head", "list", "put", "put-new", "post", "delete"
# What S3 says with these statuses.
CODES = {
    "403": "AccessDenied",
    "409": "ConditionalRequestConflict",
    "412": "PreconditionFailed",
    "500": "InternalError",
    "503": "SlowDown",
}
_TEXT = re.compile(
    r"(before:(?:[0-9]{3}|lost)|after:(?:[0-9]{3}|lost|cut|short|own|twice))(?:\+([0-9.]+)s)?"
    r"(?: (\S+) (\S+))?(?: x([0-9]+))?(?: ([0-9.]+)% of seed ([0-9]+))?"
)


class Fault(NamedTuple):
    """What becomes of requests of an operation on keys, both expressions: of so many of them, or of so much by chance.

    Its client is told so `before` the store acts, which it then never does, or `after`: a status, nothing as the
    connection is `lost`, half of the answer, which is `cut`, its `own` answer, or that to a repetition, as it came
    `twice`. With a delay the answer comes late;
    one that was told before is wrong then, as the store acts when its client has gone on.

    >>> Fault.of("before:503 put-new /plans/ x1").meets("put", "any/plans/0"), Fault.of("after:lost").told
    (False, 'lost')
    >>> Fault.of("after:own+1.5s get|list . 5% of seed 7").delay
    1.5
    """

    text: str
    what: str
    delay: float
    operation: str
    key: str
    times: int | None
    share: float
    seed: int

    @classmethod
    @cache
    def of(cls, text: str) -> Self:
        match = _TEXT.fullmatch(text)
        assert match, f"no fault: {text}"
        what, delay, operation, key, times, share, seed = match.groups()
        part = float(share or 100), int(seed or 0)
        return cls(text, what, float(delay or 0), operation or ".*", key or "", int(times) if times else None, *part)

    def __str__(self) -> str:
        return self.text

    @property
    def acts(self) -> bool:
        """Whether the store acts before its client is told."""
        return self.what.startswith("after:")

    @property
    def told(self) -> str:
        return self.what.partition(":")[2]

    def meets(self, operation: str, key: str) -> bool:
        return bool(re.fullmatch(self.operation, operation) and re.search(self.key, key))


class FaultProxy:
    """A running proxy; clients are given its `url` instead of the server's."""

    def __init__(self, endpoint: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, endpoint], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.url: str = self._line()
        self._faults = tuple[str, ...]()

    def spoil(self, *faults: str) -> None:
        """From now on these faults happen, and no others."""
        self._faults = faults
        self._say(*faults)

    def heal(self) -> dict[str, int]:
        """Pass everything on again; how many requests met each fault, also when it had no more times for them.

        One that was never met was not survived.
        """
        met = dict(zip(self._faults, json.loads(self._say()), strict=True))
        self._faults = ()
        assert [fault for fault, times in met.items() if not times] == [], "never met"
        return met

    def asked(self) -> list[tuple[str, str]]:
        """The requests that came since this was asked last: method, and path with query."""
        return [(method, path) for method, path in json.loads(self._say(_ASKED))]

    def count(self, method: str, key: str, do: Callable[[], object]) -> int:
        """How many requests of these methods for these paths, both expressions, somebody sends who does this."""
        self.asked()
        do()
        asked = self.asked()
        return sum(bool(re.fullmatch(method, each) and re.search(key, unquote(path))) for each, path in asked)

    def stop(self) -> None:
        self.heal()
        self._process.communicate("")

    def _say(self, *words: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        return self._line()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


_ASKED = "asked"


class _Happening:
    """A fault, how many requests it has met, and its chance."""

    def __init__(self, fault: str) -> None:
        self.fault, self.met = Fault.of(fault), 0
        self._chance = random.Random(self.fault.seed)

    def strikes(self, operation: str, key: str) -> bool:
        if not self.fault.meets(operation, key) or self._chance.random() * 100 >= self.fault.share:
            return False
        self.met += 1
        return self.fault.times is None or self.met <= self.fault.times


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, endpoint: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = urlsplit(endpoint).netloc
        self.lock = threading.Lock()
        self.asked: list[tuple[str, str]] = []
        self.faults: list[_Happening] = []

    def hear(self, *words: str) -> list[object]:
        """What was asked, or, as other faults begin, how many requests met each until now."""
        with self.lock:
            if words == (_ASKED,):
                asked, self.asked = self.asked, []
                return [*asked]
            before, self.faults = self.faults, [*map(_Happening, words)]
            return [each.met for each in before]

    def strikes(self, method: str, path: str, new: bool) -> Fault | None:
        """What this request meets, if anything."""
        operation = LIST if "list-type=" in path else PUT_NEW if new else method.lower()
        with self.lock:
            self.asked.append((method, path))
            return next((each.fault for each in self.faults if each.strikes(operation, unquote(path))), None)

    def handle_error(self, *_: object) -> None:
        """A client that hangs up is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Headers and body are two writes: else each answer waits 40 ms for an acknowledgement.
    disable_nagle_algorithm = True
    server: _Server

    def _pass_on(self) -> None:
        body = self._body()
        fault = self.server.strikes(self.command, self.path, "If-None-Match" in self.headers and self.command == "PUT")
        if fault is None:
            self._answer(*self._ask(body))
            return
        if fault.acts:
            answer = [self._ask(body) for _ in range(2 if fault.told == "twice" else 1)][-1]
            time.sleep(fault.delay)
        elif fault.delay:
            threading.Timer(fault.delay, self._ask, (body,)).start()
        if fault.told == "lost":
            self._hang_up()
        elif fault.told in CODES:
            code = CODES[fault.told]
            xml = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>injected</Message></Error>".encode()
            self._answer(int(fault.told), [("Content-Type", "application/xml")], xml)
        else:
            status, headers, data = answer
            data = data[: len(data) // 2] if fault.told == "short" else data
            self._answer(status, headers, data, cut=fault.told == "cut")

    def _body(self) -> bytes:
        """The request's body, as it came: PyArrow sends the parts of a file in chunks."""
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while True:
            line = self.rfile.readline()
            size = int(line, 16)
            body += line + self.rfile.read(size + 2)
            if size == 0:
                return body

    def _ask(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = HTTPConnection(self.server.upstream, timeout=60)
        connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            # Host stays as the client signed it.
            if name.lower() not in {"expect", "connection"}:
                connection.putheader(name, value)
        connection.endheaders(body)
        answer = connection.getresponse()
        try:
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def _hang_up(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes, *, cut: bool = False) -> None:
        length = str(len(body))
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() == "content-length":
                length = value if self.command == "HEAD" else length  # it has no body
            elif name.lower() not in {"connection", "transfer-encoding"}:
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        if cut:
            self.wfile.write(body[: len(body) // 2])
            self._hang_up()
        else:
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass_on  # noqa: N815


if __name__ == "__main__":
    server = _Server(sys.argv[1])
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    for line in sys.stdin:
        print(json.dumps(server.hear(*json.loads(line))), flush=True)
