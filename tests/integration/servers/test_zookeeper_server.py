"""Servers as leaderq.testing runs them: their life, their data, their end."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from leaderq.errors import ServerFailed
from leaderq.testing import KafkaBroker, ZooKeeperServer, eventually


@contextlib.contextmanager
def client(address: str, **options: object) -> Iterator[KazooClient]:
    kazoo = KazooClient(address, **options)
    kazoo.start(timeout=30)
    try:
        yield kazoo
    finally:
        kazoo.stop()
        kazoo.close()


@pytest.fixture
def server() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer() as started:
        yield started


def test_a_restart_keeps_data_and_port_and_a_stop_removes_them() -> None:
    server = ZooKeeperServer().start()
    address, folder = server.address, server.folder
    with client(address) as kazoo:
        kazoo.create("/kept")
    server.restart()
    assert server.address == address
    with client(address) as kazoo:
        assert kazoo.exists("/kept")
    server.stop()
    server.stop()
    assert not folder.exists()
    with server, client(server.address) as kazoo:
        assert not kazoo.exists("/kept")


@pytest.mark.parametrize(
    ("server", "why"),
    [
        (ZooKeeperServer(settings={"tickTime": "soon"}), r"exit code \d+(.|\n)*soon"),
        (KafkaBroker(properties={"num.io.threads": "many"}), r"num\.io\.threads"),
    ],
    ids=["ZooKeeper", "Kafka"],
)
def test_a_server_that_cannot_start_says_why_with_its_log_and_leaves_nothing(server, why) -> None:
    with pytest.raises(ServerFailed, match=why):
        server.start()
    assert not server.alive
    assert server.log_paths == []


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_servers_die_with_their_starter(end: signal.Signals, tmp_path: Path) -> None:
    script = """
import sys, threading, time
from leaderq.testing import ZooKeeperServer
server = ZooKeeperServer()
starter = threading.Thread(target=server.start)  # a thread that ends must not end the server
starter.start(); starter.join()
print(server.pid, server.folder, flush=True)
time.sleep(600)
"""
    starter = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    with starter:
        assert starter.stdout is not None
        pid, folder = starter.stdout.readline().split()
        assert is_running(int(pid))
        starter.send_signal(end)
        starter.wait(30)
    eventually(lambda: not is_running(int(pid)), timeout_s=30, message="the server is gone")
    with ZooKeeperServer():
        assert not Path(folder).exists(), "the next server sweeps what the killed one left"


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
