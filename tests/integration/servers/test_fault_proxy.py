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


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)
