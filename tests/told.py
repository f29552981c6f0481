"""A server on loopback that records the messages it is sent, and a process that is killed before it sends one."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from coset.batches.watch import IncidentLog, milliseconds, this_process
from partitioning.documents.stores import store_at
from partitioning.model.incident import Stopped, Trouble

SECRET = "0a1b2c3d-secret"


@dataclass
class Recorder:
    """The server's address for Apprise, and the messages that came, the oldest first; `answer` is its answer."""

    port: int
    messages: list[dict[str, str]] = field(default_factory=list)
    answer: int = 200

    @property
    def address(self) -> str:
        return f"json://ana:{SECRET}@127.0.0.1:{self.port}/{SECRET}/"

    @property
    def titles(self) -> list[str]:
        return [message["title"] for message in self.messages]


@contextmanager
def recording() -> Iterator[Recorder]:
    """Start it, and end it."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if recorder.answer == 200:
                recorder.messages.append(json.loads(body))
            self.send_response(recorder.answer)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        recorder = Recorder(server.server_address[1])
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield recorder
        finally:
            server.shutdown()
            thread.join()


@dataclass(frozen=True)
class Failing:
    """Records failures of one cause, `count` of them, and tells what it is to tell; how many messages that were."""

    root: str
    count: int

    def __call__(self) -> int:
        log, told = IncidentLog(store_at(self.root), "late"), 0
        for _ in range(self.count):
            trouble = Trouble(("proof",), "a key lies elsewhere", "batch 0", "see the report")
            if messages := log.record(Stopped(trouble, milliseconds()), this_process()):
                log.told(messages)
                told += len(messages)
        return told


def failing(root: str, count: int, number: int) -> Failing:
    """For the process of that number."""
    return Failing(root, count)


def die_before_telling() -> None:
    """Make this process die when an incident is written and somebody is about to be told."""
    from coset.batches.watch import Address

    Address.tell = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign]
