"""A cut of the fault proxy; its other faults: ``tests/integration/zookeeper/test_faults.py``."""

from __future__ import annotations

import socket

import pytest

from leaderq.testing import FaultProxy, eventually


def test_a_cut_is_a_reset_and_not_an_end(proxy: FaultProxy) -> None:
    with socket.create_connection(tuple(_split(proxy.address)), timeout=5) as plain:
        eventually(lambda: proxy.connections == 1)
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            plain.recv(1)


def test_one_direction_is_released_and_the_other_one_stays_held() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        FaultProxy(f"127.0.0.1:{server.getsockname()[1]}", framed=False) as proxy,
        socket.create_connection(_split(proxy.address), timeout=10) as client,
    ):
        upstream, _ = server.accept()
        with upstream:
            proxy.freeze_direction("to_server")
            proxy.freeze_direction("to_client")
            client.sendall(b"there")
            upstream.sendall(b"back")
            proxy.release_direction("to_server")
            assert upstream.recv(5) == b"there"
            client.settimeout(0.1)
            with pytest.raises(TimeoutError):
                client.recv(1)
            proxy.heal()
            client.settimeout(10)
            assert client.recv(4) == b"back"


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)
