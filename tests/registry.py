"""A small schema registry over HTTP, as much of Confluent's as its own client asks for; it forgets all when it ends."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

USER = "reader:secret-of-the-registry"


class Registry:
    """Schemas by their ids, and the ids of the versions of each subject. Only USER is let in."""

    def __init__(self) -> None:
        self.schemas: list[str] = []
        self.subjects: dict[str, list[int]] = {}
        self.url = ""
        self.asked = 0

    def register(self, subject: str, schema: str) -> int:
        """The id of a schema, which is a subject's newest now if it was not before."""
        if schema not in self.schemas:
            self.schemas.append(schema)
        number = self.schemas.index(schema) + 1
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def answer(self, method: str, path: str, body: dict[str, Any]) -> dict[str, Any] | list[int] | None:
        """What is answered, None if it is not found."""
        self.asked += 1
        if match := re.fullmatch(r"/schemas/ids/(\d+)", path):
            number = int(match[1])
            return {"schema": self.schemas[number - 1]} if number <= len(self.schemas) else None
        match = re.fullmatch(r"/subjects/([^/]+)/versions(?:/(\d+))?", path)
        if match is None:
            return None
        subject, version = match[1], match[2]
        if method == "POST":
            return {"id": self.register(subject, body["schema"])}
        versions = self.subjects.get(subject, [])
        if version is None:
            return list(range(1, len(versions) + 1)) or None
        number = versions[int(version) - 1]
        return {"subject": subject, "id": number, "version": int(version), "schema": self.schemas[number - 1]}


@contextmanager
def running() -> Iterator[Registry]:
    """A registry that answers."""
    registry = Registry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer({})

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _answer(self, body: dict[str, Any]) -> None:
            allowed = f"Basic {base64.b64encode(USER.encode()).decode()}"
            status, said = 401, registry.answer("", "", {})
            if self.headers["Authorization"] == allowed:
                said = registry.answer(self.command, self.path.partition("?")[0], body)
                status = 404 if said is None else 200
            data = json.dumps({"error_code": status, "message": "no"} if said is None else said).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
