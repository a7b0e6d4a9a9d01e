"""What users of fault proxies, ports and servers give wrongly; no server is started."""

from __future__ import annotations

import re
import socket
import tempfile
from math import nan
from typing import Any

import pytest
from mute import raising

from leaderq.errors import ConfigurationError, ServerFailed
from leaderq.testing import FaultProxy, ZooKeeperEnsemble, ZooKeeperServer, plugin, ports, provision
from leaderq.testing.candidate_process import CandidateProcess
from leaderq.testing.fault_proxy import Rule

FRAME = b"\0\0\0\5hello"
LONG_S = 60.0


class Silent(Rule):
    def reply(self, connection: object, body: bytes) -> Any:
        return None


@pytest.mark.parametrize(
    ("order", "said"),
    [
        (
            lambda proxy: proxy.drop_replies(raising(KeyError("of the user"))),
            "KeyError: 'of the user'",
        ),
        (lambda proxy: proxy.add_rule(Silent()), "decision=None: give"),
        (lambda proxy: proxy.drop_replies(lambda _: proxy.cut()), "cannot order its own"),
    ],
)
def test_a_rule_that_fails_is_logged_and_the_proxy_serves_on(order, said, caplog):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(LONG_S)
        with FaultProxy(f"127.0.0.1:{server.getsockname()[1]}") as proxy:
            order(proxy)
            host, _, port = proxy.address.partition(":")
            with socket.create_connection((host, int(port)), LONG_S) as client:
                served, _ = server.accept()
                with served:
                    served.sendall(FRAME)
                    assert client.recv(100) == FRAME
                    assert proxy.connections == 1
    assert said in caplog.text


def test_a_name_that_no_host_can_have_ends_only_the_connection() -> None:
    with FaultProxy(f"{'a' * 70}:2181") as proxy:
        host, _, port = proxy.address.partition(":")
        with pytest.raises(ConnectionResetError), socket.socket() as client:
            client.connect((host, int(port)))  # this is reset, or what follows
            client.recv(100)
        assert proxy.connections == 0


def proxy() -> FaultProxy:
    return FaultProxy("127.0.0.1:2181")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: FaultProxy("host:\N{SUPERSCRIPT TWO}"), "give the address of one server"),
        (lambda: FaultProxy("host:65536"), "upstream='host:65536': give the address"),
        (lambda: FaultProxy(2181), "upstream=2181: give the address"),  # type: ignore[arg-type]
        (lambda: proxy().delay(nan), "seconds=nan: give 0 or more"),
        (lambda: proxy().freeze_direction("to_sever"), "give 'to_server' or 'to_client'"),  # type: ignore[arg-type]
        (lambda: proxy().drop_replies(0), "which=0: give 1 or more"),
        (lambda: proxy().add_rule(pytest.fail), "give Rule"),  # type: ignore[arg-type]
        (lambda: proxy().drop_reply_to(None), "request is None"),  # type: ignore[arg-type]
        (lambda: ports.lease_port(0), "port=0: give 1 to 65535"),
        (lambda: ports.lease_port(1 << 16), "port=65536: give 1 to 65535"),
        (lambda: ZooKeeperServer(prot=2181), "option='prot': give one of data_dir, heap_mb"),  # type: ignore[call-arg]
        (lambda: ZooKeeperEnsemble(0), "size=0: give 1 or more"),
    ],
)
def test_what_cannot_be_done_is_refused(call, said):
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        call()


def test_of_a_given_server_only_the_address_is_known(monkeypatch):
    monkeypatch.setenv("LEADERQ_ZOOKEEPER", "zk:2181")
    given: Any = provision.provided("ZooKeeperEnsemble").start()
    assert (given.address, hasattr(given, "__wrapped__")) == ("zk:2181", False)
    with pytest.raises(ConfigurationError, match=r"LEADERQ_ZOOKEEPER; .* has no 'members'"):
        given.members  # noqa: B018  (it asks)
    given.on_fault = pytest.skip  # as the plugin does
    with pytest.raises(pytest.skip.Exception):
        given.leader  # noqa: B018


def test_a_candidate_that_runs_is_not_started_again() -> None:
    under = ("sh", "-c", "exec sleep 60", "sh")
    candidate = CandidateProcess("a:B", id="a", zookeeper="zk:2181", under=under).start()
    pid = candidate.pid
    with candidate:
        assert candidate.pid == pid
    assert not candidate.alive


def test_folders_that_cannot_be_written_are_told(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.touch()
    keeper = plugin._LogKeeper(file / "logs")
    keeper._held = {"zookeeper.log": b""}
    keeper.settle(has_failed=True)
    assert "not kept: " in keeper.folders[0]
    monkeypatch.setattr(tempfile, "tempdir", str(file))
    with pytest.raises(ServerFailed, match="cannot be used: "):
        ports.lease_port()
