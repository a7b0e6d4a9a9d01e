from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from leaderq.errors import ServerFailed
from leaderq.running.descendants import stat_of
from leaderq.testing import KafkaBroker, ZooKeeperServer, eventually
from leaderq.testing.waiting import patience
from leaderq.zookeeper import connect


def test_a_restart_keeps_data_and_port_and_a_stop_removes_them():
    server = ZooKeeperServer().start()
    address, folder = server.address, server.folder
    with connect(address) as session:
        session.create("/kept")
    server.restart()
    assert server.address == address
    with connect(address) as session:
        assert session.exists("/kept")
    server.stop()
    server.stop()
    assert not folder.exists()
    with server, connect(server.address) as session:
        assert not session.exists("/kept")


@pytest.mark.parametrize(
    ("server", "why"),
    [
        (ZooKeeperServer(settings={"tickTime": "soon"}), r"exit code \d+(.|\n)*soon"),
        (KafkaBroker(properties={"num.io.threads": "many"}), r"num\.io\.threads"),
    ],
    ids=["ZooKeeper", "Kafka"],
)
def test_a_server_that_cannot_start_says_why_with_its_log_and_leaves_nothing(server, why):
    with pytest.raises(ServerFailed, match=why):
        server.start()
    assert not server.alive
    assert server.log_paths == []


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_servers_die_with_their_starter(end, tmp_path):
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
        pid, folder = starter.stdout.readline().split()
        assert stat_of(pid)
        starter.send_signal(end)
        starter.wait(60)
    eventually(lambda: stat_of(pid)[:1] in ([], ["Z"]), message="the server is gone")
    with ZooKeeperServer():
        assert not Path(folder).exists(), "the next server sweeps what the killed one left"


def test_a_cut_is_a_reset_and_not_an_end(proxy):
    host, _, port = proxy.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as plain:
        eventually(lambda: proxy.connections == 1)
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            plain.recv(1)


SETTINGS = "[pytest]\nfilterwarnings = error\naddopts = -p no:leaderq\n"
OPTED_IN = 'pytest_plugins = ["leaderq.testing.plugin"]\n'


def run_pytest(folder: Path, tests: str) -> subprocess.CompletedProcess[str]:
    (folder / "pytest.ini").write_text(SETTINGS)
    (folder / "conftest.py").write_text(OPTED_IN)
    (folder / "test_it.py").write_text(tests)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=150 * patience()
    )


def test_a_user_gets_names_of_their_own_and_a_server_that_serves_whatever_was_done_to_it(tmp_path):
    done = run_pytest(
        tmp_path,
        """
import pytest
from leaderq.testing import eventually
@pytest.mark.parametrize("deed", ["kill", "freeze"])
def test_one(zookeeper_server, deed):
    assert eventually(lambda: zookeeper_server.ask("ruok")) == "imok"
    getattr(zookeeper_server, deed)()
def test_two(zookeeper_server, znode_root, topic_name):
    assert eventually(lambda: zookeeper_server.ask("ruok")) == "imok"
    assert znode_root.startswith("/t-") and topic_name.startswith("t-")
""",
    )
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout
    assert not (tmp_path / "logs").exists()


def test_the_logs_of_all_servers_are_kept_when_a_test_fails(tmp_path):
    done = run_pytest(
        tmp_path,
        """
from leaderq.testing import ZooKeeperServer
def test_one(zookeeper_server):
    with ZooKeeperServer(name="own"):
        raise RuntimeError("in the block")
""",
    )
    assert done.returncode == 1
    (folder,) = (tmp_path / "logs").iterdir()
    assert {path.name for path in folder.iterdir()} == {"zookeeper.log", "own.log", ".gitignore"}
    assert "binding to port" in (folder / "own.log").read_text()
    assert f"server logs of failed tests: {folder}" in done.stdout
