from __future__ import annotations

import socket
import subprocess
import sys
import threading
from contextlib import suppress

import pytest

from leaderq.base.clock import now_s
from leaderq.testing.waiting import patience
from leaderq.zookeeper import Credentials, SessionEnder, end_session

OWNER = """
import sys, time
from leaderq.zookeeper import connect
session = connect(sys.argv[1], timeout_s=30.0)
session.create("/owned", ephemeral=True)
print(session.credentials.session_id, session.credentials.password.hex(), flush=True)
time.sleep(600)
"""


def test_a_killed_process_leaves_its_session_to_whoever_knows_the_password(
    zookeeper_server, znode_root, opened
):
    watcher = opened()
    command = [sys.executable, "-c", OWNER, zookeeper_server.address + znode_root]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        session_id, password = owner.stdout.readline().split()
        owner.kill()
    assert watcher.exists("/owned") is not None
    credentials = Credentials(int(session_id), bytes.fromhex(password))
    for _ in range(2):  # gone already is over as well
        assert end_session(zookeeper_server.address, credentials, timeout_s=30)
        assert watcher.exists("/owned") is None


STRANGERS = {
    "lengths below zero": b"\xff" * 64,
    "less than a reply": b"\0\0\0\3abc" + b"\0\0\0\3abc" * 8,
    "another protocol": b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
}


@pytest.mark.parametrize("said", STRANGERS.values(), ids=STRANGERS)
@pytest.mark.parametrize("stays", [True, False])
def test_a_stranger_at_the_port_of_a_server_has_ended_no_session_and_holds_nobody_up(said, stays):
    def answer() -> None:
        for _ in range(100):
            with suppress(OSError):
                peer = listener.accept()[0]
                peer.recv(4096)
                peer.sendall(said)
                peers.append(peer) if stays else peer.close()

    peers: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=answer, daemon=True).start()
        began_s = now_s()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        assert not end_session(address, Credentials(7, bytes(16)), timeout_s=0.5)
        assert now_s() - began_s < 0.5 + 2 * patience()
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
    for peer in peers:
        peer.close()


def test_a_dead_server_and_a_silent_one_do_not_keep_the_living_from_being_asked(
    zookeeper_server, session, znode_root, fault_proxy, opened, closed_port
):
    watcher = opened()
    session.create("/e", ephemeral=True)
    silent = fault_proxy(zookeeper_server.address)
    silent.black_hole()
    ender = SessionEnder(f"{closed_port},{silent.address},{zookeeper_server.address}/some/chroot")
    assert ender.end(session.credentials, timeout_s=30)
    assert watcher.exists("/e") is None


PLAIN_ENDER = """
import sys
from leaderq.zookeeper import Credentials, Security, SessionEnder
host, _, port = sys.argv[1].rpartition(":")
ender = SessionEnder("a-name-nobody-knows.invalid:1", security=Security())
ender.know([(host, int(port))])
before = set(sys.modules)
assert ender.end(Credentials(int(sys.argv[2]), bytes.fromhex(sys.argv[3])), timeout_s=30)
print(*sys.modules, *("later:" + name for name in set(sys.modules) - before))
"""


def test_ending_needs_neither_kazoo_nor_ssl_nor_a_name_server(zookeeper_server, session):
    id_, password = session.credentials.session_id, session.credentials.password.hex()
    command = [sys.executable, "-c", PLAIN_ENDER, zookeeper_server.address, str(id_), password]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    loaded = set(done.stdout.split())
    assert "leaderq.zookeeper.ending" in loaded
    assert {"kazoo", "ssl", "leaderq.zookeeper.session"} & loaded == set()
    assert [name for name in loaded if name.startswith("later:")] == []
