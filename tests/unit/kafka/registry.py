"""A stand-in for Confluent's schema registry: subjects, versions and ids, over its HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Registry(ThreadingHTTPServer):
    """``schemas``: what was registered, by id from 1."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.schemas: list[dict[str, Any]] = []
        self.subjects: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        parts = path.partition("?")[0].strip("/").split("/")
        if method == "POST" and parts[0] == "subjects" and parts[2:] == ["versions"]:
            schema = json.loads(body)
            if schema not in self.schemas:
                self.schemas.append(schema)
            self.subjects.append(parts[1])
            return 200, {"id": self.schemas.index(schema) + 1, **schema}
        if method == "GET" and parts[:2] == ["schemas", "ids"]:
            return 200, self.schemas[int(parts[2]) - 1]
        return 404, {"error_code": 404, "message": f"{method} {path} is not known here"}


class _Answers(BaseHTTPRequestHandler):
    server: Registry

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        status, found = self.server.answer(self.command, self.path, body)
        data = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = _answer  # noqa: N815

    def log_message(self, *_: Any) -> None:
        """Nothing: the tests say what was wrong."""


@contextmanager
def registry() -> Iterator[Registry]:
    with Registry() as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        try:
            yield server
        finally:
            server.shutdown()
