from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial

import pytest
from mute import raising

from leaderq import errors, testing
from leaderq.observability import http
from leaderq.testing.waiting import patience

BIG = b"x" * 3_000_000


@pytest.fixture
def endpoint(monkeypatch) -> Iterator[http.HttpEndpoint]:
    """One that closes no connection because of its age."""
    monkeypatch.setattr(http, "WITHIN_S", 600.0)
    with http.HttpEndpoint("127.0.0.1:0") as made:
        fine, big = (partial(http.HttpReply, 200, body) for body in ("fine\n", BIG))
        leaves = http.InBackground(sys.exit)
        made.start(
            {"/ok": fine, "/broken": raising(RuntimeError("boom")), "/big": big, "/leaving": leaves}
        )
        yield made


def connected(endpoint: http.HttpEndpoint) -> socket.socket:
    host, _, port = endpoint.address.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), timeout=30 * patience())


def sent(endpoint: http.HttpEndpoint, request: bytes) -> bytes:
    """All that is answered until the endpoint closes."""
    with connected(endpoint) as client:
        client.sendall(request)
        return b"".join(iter(lambda: client.recv(65536), b""))


def asked(endpoint: http.HttpEndpoint, path: str = "/ok") -> tuple[int, bytes]:
    head, _, body = sent(endpoint, f"GET {path} HTTP/1.1\r\n\r\n".encode()).partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def test_it_answers_what_the_route_says_and_one_that_raises_is_answered_and_logged(
    endpoint, caplog
):
    assert asked(endpoint, "/ok?verbose") == (200, b"fine\n")
    assert asked(endpoint, "/big") == (200, BIG)
    status, body = asked(endpoint, "/broken")
    assert status == 500
    assert b"boom" not in body
    assert "http route failed path=/broken" in caplog.text
    assert [asked(endpoint, "/leaving")[0] for _ in range(2)] == [500, 500]
    assert asked(endpoint) == (200, b"fine\n")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /ok HTTP/1.1\r\nHost: a\r\n\r\n", b"200"),
        (b"GET /ok HTTP/1.0\n\n", b"200"),
        (b"GET /ok HTTP/1.1\r\nConnection: keep-alive\r\n\r\nGET /ok HTTP/1.1\r\n\r\n", b"200"),
        (b"POST /ok HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", b"405"),
        (b"BREW /ok HTTP/1.1\r\n\r\n", b"501"),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", b"400"),
        (b"GET /" + b"a" * http.MOST_BYTES, b"431"),
        (b"GET / HTTP/1.0\r\nX: " + b"a" * 20 * http.MOST_BYTES, b"431"),
    ],
)
def test_garbage_and_giants_are_refused_with_a_status(endpoint, request_bytes, status):
    answer = sent(endpoint, request_bytes)
    assert status in answer.partition(b"\r\n")[0]
    assert answer.count(b"HTTP/1.0") <= 1
    assert (b"\r\nAllow: GET, HEAD\r\n" in answer) == (status == b"405")
    assert asked(endpoint) == (200, b"fine\n")


def test_idle_connections_do_not_shut_a_probe_out_and_cost_no_threads(endpoint):
    threads = set(threading.enumerate())
    with ExitStack() as idle:
        clients = [
            idle.enter_context(connected(endpoint)) for _ in range(3 * http.MOST_CONNECTIONS)
        ]
        with suppress(ConnectionError):  # those that were closed
            for client in reversed(clients):
                client.sendall(b"GET /ok HTTP/1.1\r\nX-Slow: ")
        assert asked(endpoint) == (200, b"fine\n")
        for client in clients[: http.MOST_CONNECTIONS]:
            with suppress(ConnectionResetError):
                assert client.recv(1) == b""
        assert len(endpoint._clients) <= http.MOST_CONNECTIONS
        assert threads.issuperset(threading.enumerate())


def test_a_client_that_never_ends_its_request_is_closed_in_time(monkeypatch):
    monkeypatch.setattr(http, "WITHIN_S", 0.2)
    with http.HttpEndpoint("127.0.0.1:0") as endpoint:
        endpoint.start({})
        with connected(endpoint) as slow:
            slow.sendall(b"GET / HTTP/1.1\r\n")
            assert slow.recv(1) == b""


@pytest.mark.parametrize("host", ["ü" * 70, "a..b", "127.0.0.999"])
def test_a_host_that_cannot_be_is_refused_with_a_remedy(host):
    with pytest.raises(errors.ConfigurationError, match=r"listened on: .*; choose a free port"):
        http.HttpEndpoint(f"{host}:0")


def test_stop_frees_the_port_and_ends_the_threads_and_may_be_called_in_any_order():
    before = threading.active_count()
    endpoint = http.HttpEndpoint("127.0.0.1:0")
    endpoint.start({"/slow": http.InBackground(lambda: http.HttpReply(200, ""))})
    client = connected(endpoint)
    testing.eventually(lambda: endpoint._clients)
    endpoint.stop()
    endpoint.stop()
    with client:
        assert client.recv(1) == b""
    testing.eventually(lambda: threading.active_count() == before)
