"""Collects clicks over HTTP: ``python -m collector.collect``.

``POST /clicks`` with lines of an access log as the body is answered

* 202 when all of them are on this host's disk: they will reach Kafka, whatever happens to this
  process or to Kafka;
* 400 if one of them is not a line of an access log: none was taken;
* 503 if the disk is full or fails: send them again later (some may have been taken, and are then
  there twice).

``GET /stats`` returns the account. The key of a record is its client, so that a client's clicks
stay in order. Its header ``id`` is unique, so that a reader can recognise a click that was sent
twice, which can happen after a crash.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import signal
import sys
import threading
import uuid
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

from ad_billing.clicks import parse

from leaderq.errors import BufferFull, JournalFailed, JournalFull, JournalSlow, LeaderqError
from leaderq.producing import EVERY_ITEM, Block, BufferedProducer, Journal, KafkaSink

MOST_BYTES = 1 << 20
DURABLE_WITHIN_S = 10.0


class Receipt:
    """Waits until all clicks of one request are on the disk."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._over = threading.Event()
        self._error: BaseException | None = None

    def note(self, error: BaseException | None) -> None:
        """The journal's thread calls this once for each click."""
        self._error = self._error or error
        self._left -= 1
        if not self._left:
            self._over.set()

    def wait(self) -> None:
        """Return when all are on the disk; raise the error of the disk."""
        if not self._over.wait(DURABLE_WITHIN_S):
            raise JournalSlow(f"the disk did not answer within {DURABLE_WITHIN_S:g} s")
        if self._error is not None:
            raise self._error


class Clicks(BaseHTTPRequestHandler):
    """One connection; it stays open for further requests."""

    producer: ClassVar[BufferedProducer]
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Take clicks."""
        if self.path != "/clicks":
            self._answer(404, f"{self.path} does not exist; POST to /clicks, or GET /stats")
            return
        size = int(self.headers.get("Content-Length") or 0)
        if not 0 < size <= MOST_BYTES:
            self.close_connection = True  # its body is not read
            self._answer(413, f"a body of 1 to {MOST_BYTES} bytes is taken at a time")
            return
        lines = [line for line in self.rfile.read(size).splitlines() if line.strip()]
        wrong = next((line for line in lines if parse(line.decode(errors="replace")) is None), None)
        if wrong is not None or not lines:
            shown = (wrong or b"").decode(errors="replace")[:200]
            self._answer(400, f"not a line of an access log: {shown!r}")
            return
        try:
            self._take(lines)
        except (BufferFull, JournalFailed, JournalFull, JournalSlow) as exc:
            self._answer(503, str(exc), {"Retry-After": "1"})
            return
        self._answer(202, f"{len(lines)} taken")

    def _take(self, lines: list[bytes]) -> None:
        receipt = Receipt(len(lines))
        for line in lines:
            client = line.split(b" ", 1)[0]
            self.producer.send(
                (client, line, [("id", uuid.uuid4().hex.encode())]), on_durable=receipt.note
            )
        receipt.wait()

    def do_GET(self) -> None:
        """The account."""
        if self.path != "/stats":
            self._answer(404, f"{self.path} does not exist; GET /stats, or POST to /clicks")
            return
        self._answer(200, json.dumps(stats(self.producer), indent=2))

    def _answer(self, status: int, text: str, headers: dict[str, str] | None = None) -> None:
        body = text.encode() + b"\n"
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing of each request."""


def client_of(record: Any) -> bytes:
    """The client of a click: its key."""
    key: bytes = record[0]
    return key


def stats(producer: BufferedProducer) -> dict[str, Any]:
    """The snapshot of the producer as plain values."""
    snapshot = dataclasses.asdict(producer.snapshot())
    return {
        name: value.value if isinstance(value, Enum) else value for name, value in snapshot.items()
    }


class Server(ThreadingHTTPServer):
    """Threads of open connections do not keep it from ending."""

    daemon_threads = True
    request_queue_size = 128


def main() -> int:
    """Serve until Ctrl-C or SIGTERM; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m collector.collect", description="Collect clicks over HTTP into Kafka."
    )
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--topic", default="clicks")
    parser.add_argument(
        "--journal",
        type=Path,
        default=Path("clicks-journal"),
        help="folder for clicks that Kafka does not have yet",
    )
    parser.add_argument("--most-mb", type=int, default=1024, help="most megabytes on the disk")
    parser.add_argument(
        "--kafka",
        default=os.environ.get("LEADERQ_KAFKA", "127.0.0.1:9092"),
        help="[env var: LEADERQ_KAFKA]",
    )
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with (
            Journal(given.journal, sync=EVERY_ITEM, max_bytes=given.most_mb << 20) as journal,
            BufferedProducer(
                KafkaSink(given.kafka, given.topic),
                key=client_of,
                journal=journal,
                persistence=EVERY_ITEM,
                when_full=Block(1.0),
                sink_timeout_s=2.0,
                close_timeout_s=5.0,
                name="collector",
            ) as producer,
            Server(("127.0.0.1", given.port), Clicks) as server,
        ):
            Clicks.producer = producer
            recovered = producer.snapshot().balance.recovered
            print(
                f"collecting on port {server.server_port}; {recovered} clicks found in"
                f" {given.journal}",
                flush=True,
            )
            serve(server)
        print(f"stopped; {producer.snapshot().balance.pending} clicks are left in {given.journal}")
    except (OSError, LeaderqError) as exc:
        print(f"collect: error: {exc}", file=sys.stderr)
        return 2
    return 0


def serve(server: Server) -> None:
    """Until Ctrl-C."""
    try:
        server.serve_forever(poll_interval=0.1)
    except KeyboardInterrupt:
        print("stopping", flush=True)


if __name__ == "__main__":
    sys.exit(main())
