"""A loopback proxy in front of an S3 server that spoils chosen requests, as a network or a busy store does.

It is a process of its own (`python tests/faults.py ENDPOINT`), because delta-rs keeps Python from running
any other thread while it waits for some of its answers.
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
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

# What becomes of a request: whether the server gets it, and the answer that the client gets, if any.
FAULTS: dict[str, tuple[bool, int | None, str]] = {
    "answer lost": (True, None, ""),
    "500 after storing": (True, 500, "InternalError"),
    "503 before storing": (False, 503, "SlowDown"),
    "409 before storing": (False, 409, "ConditionalRequestConflict"),
    "403 before storing": (False, 403, "AccessDenied"),
}
# What else may happen to an answer: it ends in the middle, or comes late, or is to the request that came a second time.
CUT, LATE, REPEATED = "answer cut", "answer late", "request repeated"
_LATE_SECONDS = 1.0


class FaultProxy:
    """A running proxy; clients are given its `url` instead of the server's."""

    def __init__(self, endpoint: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, endpoint], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.url: str = self._line()

    def spoil(self, what: str, method: str, key: str, times: int | None = 1) -> None:
        """Spoil the next `times` requests (None: all) whose method and path match these expressions."""
        self._say({"what": what, "method": method, "key": key, "times": times})

    def disturb(self, what: str, share: float, seed: int) -> None:
        """Spoil so much of all requests from now on, by chance."""
        self._say({"what": what, "method": ".*", "key": "", "times": None, "share": share, "seed": seed})

    def heal(self) -> int:
        """Pass everything on again; how many requests matched since `spoil`."""
        return int(self._say(None))

    def asked(self) -> list[tuple[str, str]]:
        """The requests that came since this was asked last: method, and path with query."""
        return [(method, path) for method, path in json.loads(self._say({"asked": True}))]

    def stop(self) -> None:
        self._process.communicate("")

    def _say(self, fault: dict[str, object] | None) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(fault) + "\n")
        self._process.stdin.flush()
        return self._line()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, endpoint: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = urlsplit(endpoint).netloc
        self.lock = threading.Lock()
        self.asked: list[tuple[str, str]] = []
        self.set(None)

    def set(self, fault: dict[str, object] | None) -> int:
        with self.lock:
            before, self.fault, self.seen = getattr(self, "seen", 0), fault, 0
            self.chance = random.Random(str(fault["seed"])) if fault and "seed" in fault else None
        return before

    def all_asked(self) -> list[tuple[str, str]]:
        with self.lock:
            before, self.asked = self.asked, []
        return before

    def strikes(self, method: str, path: str) -> str | None:
        """What this request meets, if anything."""
        with self.lock:
            self.asked.append((method, path))
            fault = self.fault
            if fault is None:
                return None
            if not re.fullmatch(str(fault["method"]), method) or not re.search(str(fault["key"]), unquote(path)):
                return None
            if self.chance is not None and self.chance.random() >= float(str(fault["share"])):
                return None
            self.seen += 1
            struck = fault["times"] is None or self.seen <= int(str(fault["times"]))
            return str(fault["what"]) if struck else None

    def handle_error(self, *_: object) -> None:
        """A client that hangs up is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Headers and body are two writes: else each answer waits 40 ms for an acknowledgement.
    disable_nagle_algorithm = True
    server: _Server

    def _pass_on(self) -> None:
        body = self._body()
        what = self.server.strikes(self.command, self.path)
        if what == REPEATED:
            self._ask(body)
        if what in (None, REPEATED):
            self._answer(*self._ask(body))
            return
        if what == LATE:
            time.sleep(_LATE_SECONDS)
            self._answer(*self._ask(body))
            return
        if what == CUT:
            self._answer(*self._ask(body), cut=True)
            return
        stored, status, code = FAULTS[what]
        if stored:
            self._ask(body)
        if status is None:
            self._hang_up()
        else:
            xml = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>injected</Message></Error>".encode()
            self._answer(status, [("Content-Type", "application/xml")], xml)

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
                length = value  # of a HEAD, which has no body
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
        said = json.loads(line)
        print(json.dumps(server.all_asked()) if said and "asked" in said else server.set(said), flush=True)
