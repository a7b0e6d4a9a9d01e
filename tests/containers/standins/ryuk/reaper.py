"""Removes what a test session left behind, as testcontainers' reaper does.

A client says on port 8080 which labels its containers, networks and volumes bear, one line of
``label=...&label=...`` for each set, is answered ``ACK``, and stays connected while it lives. When
no client has been connected for RYUK_RECONNECTION_TIMEOUT, everything with those labels is removed
and the reaper ends; it also ends when no client came within RYUK_CONNECTION_TIMEOUT. Whoever is
killed closes its connection, so nothing stays behind.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import socketserver
import sys
import threading
import time
from urllib.parse import parse_qsl, quote

ENGINE = "/var/run/docker.sock"
# kind, the list's address, the key of its entries, what the removal wants
KINDS = (
    ("containers", "/containers/json?all=1&", "Id", "?force=1&v=1"),
    ("networks", "/networks?", "Id", ""),
    ("volumes", "/volumes?", "Name", "?force=1"),
)


def seconds(variable: str, default: str) -> float:
    """A duration such as ``10s``, ``1m30s`` or ``500ms``."""
    units = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
    return sum(
        float(n) * units[unit]
        for n, unit in re.findall(r"([\d.]+)(ms|s|m|h)", os.environ.get(variable) or default)
    )


class Clients:
    """Who is connected, and what bears their labels."""

    def __init__(self) -> None:
        self.labels: set[tuple[str, ...]] = set()
        self._lock = threading.Lock()
        self._connected = 0
        self._alone_since = time.monotonic()
        self._has_seen_any = False

    def joined(self) -> None:
        with self._lock:
            self._connected += 1
            self._has_seen_any = True

    def left(self) -> None:
        with self._lock:
            self._connected -= 1
            self._alone_since = time.monotonic()

    def are_gone(self, patience_s: float, first_patience_s: float) -> bool:
        """Whether nobody came back in time."""
        with self._lock:
            patience = patience_s if self._has_seen_any else first_patience_s
            return self._connected == 0 and time.monotonic() - self._alone_since > patience


CLIENTS = Clients()


class Talk(socketserver.StreamRequestHandler):
    """One client's connection, for as long as it lives."""

    def handle(self) -> None:
        CLIENTS.joined()
        try:
            for line in self.rfile:
                labels = tuple(
                    value for key, value in parse_qsl(line.decode().strip()) if key == "label"
                )
                if labels:
                    CLIENTS.labels.add(labels)
                    self.wfile.write(b"ACK\n")
        except OSError:
            pass  # it was killed; so it is gone
        finally:
            CLIENTS.left()


class Server(socketserver.ThreadingTCPServer):
    """Listens for clients."""

    allow_reuse_address = True
    daemon_threads = True


class EngineConnection(http.client.HTTPConnection):
    """HTTP over the engine's socket."""

    def __init__(self) -> None:
        super().__init__("engine", timeout=60)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(ENGINE)


def ask(method: str, address: str) -> bytes:
    """The engine's answer; empty if it refused."""
    connection = EngineConnection()
    try:
        connection.request(method, address)
        answer = connection.getresponse()
        body = answer.read()
        if answer.status >= 400:
            print(f"{method} {address}: {answer.status} {body.decode(errors='replace').strip()}")
            return b""
        return body
    finally:
        connection.close()


def remove_all(labels: tuple[str, ...]) -> None:
    """Remove everything that bears all of ``labels``."""
    filters = "filters=" + quote(json.dumps({"label": list(labels)}))
    for kind, listing, key, options in KINDS:
        found = json.loads(ask("GET", listing + filters) or b"[]")
        entries = found.get("Volumes") or [] if isinstance(found, dict) else found
        for entry in entries:
            ask("DELETE", f"/{kind}/{entry[key]}{options}")
            print(f"removed of {kind}: {entry[key][:24]}")


def main() -> int:
    """Serve until all clients are gone, then clean up."""
    patience_s, first_patience_s = (
        seconds("RYUK_RECONNECTION_TIMEOUT", "10s"),
        seconds("RYUK_CONNECTION_TIMEOUT", "60s"),
    )
    with Server(("", 8080), Talk) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        # which some releases of testcontainers wait for
        print(time.strftime("%Y/%m/%d %H:%M:%S Started!"))
        while not CLIENTS.are_gone(patience_s, first_patience_s):
            time.sleep(0.2)
        server.shutdown()
    for labels in sorted(CLIENTS.labels):
        remove_all(labels)
    return 0


if __name__ == "__main__":
    sys.exit(main())
