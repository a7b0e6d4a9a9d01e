"""ZooKeeper servers as leaderq.testing runs them: their life, their data, their end."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from certificates import secure_zookeeper, self_signed
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoAuthError

from leaderq.errors import ServerFailed
from leaderq.testing import ZooKeeperEnsemble, ZooKeeperServer, eventually
from leaderq.testing.waiting import patience
from leaderq.zookeeper import connect


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


def test_what_was_written_before_a_kill_is_there_after_the_start(server: ZooKeeperServer) -> None:
    address = server.address
    with client(address) as kazoo:
        kazoo.create("/kept", b"content")
    server.kill()
    assert not server.alive
    server.start()
    assert server.address == address
    with client(address) as kazoo:
        assert kazoo.get("/kept")[0] == b"content"


def test_a_server_that_is_stopped_while_it_starts_is_not_waited_for(tmp_path: Path) -> None:
    """As when Ctrl-C strikes ``leaderq servers up``, whose servers start on threads."""
    paused = tmp_path / "paused"
    pause = ("-XX:+UnlockDiagnosticVMOptions", "-XX:+PauseAtStartup")
    server = ZooKeeperServer(jvm_options=(*pause, f"-XX:PauseAtStartupFile={paused}"))
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(server.start)
        eventually(paused.exists)
        server.stop()
        with pytest.raises(ServerFailed):
            starting.result(30 * patience())


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


def test_a_frozen_server_is_silent_and_a_thawed_one_goes_on(server: ZooKeeperServer) -> None:
    with client(server.address, timeout=60.0) as kazoo:
        server.freeze()
        asked = kazoo.get_async("/zookeeper")
        with pytest.raises(ServerFailed):
            server.ask("ruok")
        assert server.alive
        assert not asked.ready()
        server.thaw()
        assert asked.get(timeout=30)


def test_a_frozen_server_can_be_stopped_and_healed(server: ZooKeeperServer) -> None:
    server.freeze()
    server.heal()
    assert eventually(lambda: server.ask("ruok")) == "imok"
    server.kill()
    server.heal()
    assert eventually(lambda: server.ask("ruok")) == "imok"
    server.freeze()
    server.stop()
    assert not server.alive


def test_sessions_between_one_second_and_a_minute_can_be_had(server: ZooKeeperServer) -> None:
    for asked_s, granted_s in ((0.5, 1.0), (1.0, 1.0), (60.0, 60.0), (61.0, 60.0)):
        with connect(server.address, timeout_s=asked_s) as session:
            assert session.timeout_s == granted_s


def test_a_data_folder_of_the_user_is_kept(tmp_path: Path) -> None:
    with ZooKeeperServer(data_dir=tmp_path) as server, client(server.address) as kazoo:
        kazoo.create("/kept")
    assert (tmp_path / "zookeeper.log").exists()
    with ZooKeeperServer(data_dir=tmp_path) as server, client(server.address) as kazoo:
        assert kazoo.exists("/kept")


def test_a_taken_port_is_a_clear_error() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        with pytest.raises(ServerFailed, match="is taken"):
            ZooKeeperServer(port=holder.getsockname()[1]).start()


def test_another_port_is_chosen_when_one_is_taken_while_the_server_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket() as thief:

        class Late(ZooKeeperServer):
            def _command(self) -> list[str]:
                if thief.fileno() >= 0 and not getattr(self, "stolen", 0):
                    self.stolen = self.port
                    thief.bind(("127.0.0.1", self.stolen))
                    thief.listen()
                return super()._command()

        with Late() as server:
            assert server.port != server.stolen
            assert eventually(lambda: server.ask("ruok")) == "imok"


def test_a_server_that_cannot_start_says_why_with_its_log_and_leaves_nothing() -> None:
    server = ZooKeeperServer(settings={"tickTime": "soon"})
    with pytest.raises(ServerFailed, match=r"exit code \d+(.|\n)*soon"):
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


def test_a_forked_child_neither_stops_a_server_nor_keeps_it(server: ZooKeeperServer) -> None:
    child = os.fork()
    if child == 0:
        server.kill()
        server.stop()
        os._exit(0)
    os.waitpid(child, 0)
    assert server.alive
    assert eventually(lambda: server.ask("ruok")) == "imok"


def test_several_servers_run_side_by_side() -> None:
    with ZooKeeperServer() as one, ZooKeeperServer() as two:
        assert one.address != two.address
        with client(one.address) as kazoo:
            kazoo.create("/only-here")
        with client(two.address) as kazoo:
            assert not kazoo.exists("/only-here")


def test_an_ensemble_survives_its_leader(
    zookeeper_ensemble: ZooKeeperEnsemble, znode_root: str
) -> None:
    with client(zookeeper_ensemble.address) as kazoo:
        kazoo.create(znode_root, b"1")
        first = zookeeper_ensemble.leader
        first.kill()
        second = zookeeper_ensemble.leader
        assert second is not first
        eventually(
            lambda: _written(kazoo, znode_root), timeout_s=30, message="the ensemble serves again"
        )
        first.start()
        eventually(
            lambda: len(zookeeper_ensemble.followers) == 2,
            timeout_s=30,
            message="the killed one follows",
        )


def _written(kazoo: KazooClient, path: str) -> bool:
    with contextlib.suppress(KazooException):
        kazoo.set(path, b"2")
        return True
    return False


def test_a_server_that_wants_a_password_can_be_had() -> None:
    pytest.importorskip("puresasl")
    jaas = """
Server {
    org.apache.zookeeper.server.auth.DigestLoginModule required
    user_alice="wonderland";
};
"""
    login = {"mechanism": "DIGEST-MD5", "username": "alice", "password": "wonderland"}
    with ZooKeeperServer(jaas=jaas) as server, client(server.address, sasl_options=login) as kazoo:
        kazoo.create("/hers", acl=[_sasl_acl("alice")])
        with client(server.address) as stranger, pytest.raises(NoAuthError):
            stranger.get("/hers")


def _sasl_acl(user: str) -> object:
    from kazoo.security import make_acl

    return make_acl("sasl", user, all=True)


def test_a_server_with_a_secure_port_can_be_had(tmp_path: Path) -> None:
    pem = self_signed(tmp_path, "server", "DNS:localhost,IP:127.0.0.1")
    trusting = {"use_ssl": True, "verify_certs": True, "ca": str(pem.certificate)}
    with secure_zookeeper(pem) as address, client(address, **trusting) as kazoo:
        assert kazoo.exists("/zookeeper")


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
