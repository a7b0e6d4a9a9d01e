"""Beginnings, breaks and ends of a session."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic

import pytest
from hearing import without_resumptions
from kazoo.protocol.serialization import Sync

from leaderq.errors import ConnectionLost, NotConnected, SessionClosed
from leaderq.testing import FaultProxy, ZooKeeperServer, eventually
from leaderq.zookeeper import Session, SessionState, connect, end_session
from leaderq.zookeeper.client import TimeWithoutAttempt
from leaderq.zookeeper.connection import ServerConnection
from leaderq.zookeeper.private_api import server_socket

CONNECTED, SUSPENDED, LOST, CLOSED = (
    SessionState.CONNECTED,
    SessionState.SUSPENDED,
    SessionState.LOST,
    SessionState.CLOSED,
)
Connect = Callable[..., Session]


def heard_by(session: Session) -> list[SessionState]:
    heard: list[SessionState] = []
    session.add_listener(heard.append)
    return heard


def our_threads() -> list[str]:
    return sorted(
        thread.name for thread in threading.enumerate() if thread.name.startswith("leaderq-")
    )


def test_a_session_knows_what_was_granted(
    zookeeper_server: ZooKeeperServer, opened: Connect
) -> None:
    assert opened(zookeeper_server.address, timeout_s=4.0).timeout_s == 4.0
    assert opened(zookeeper_server.address, timeout_s=1000.0).timeout_s == 60.0
    session = opened(zookeeper_server.address)
    assert session.address == zookeeper_server.address
    assert session.credentials is not None
    assert session.credentials.session_id == session.id


def test_the_time_out_granted_at_a_reconnection_is_known_before_the_reconnection_is_told(
    opened: Connect,
) -> None:
    with ZooKeeperServer() as server:
        session, seen = opened(server.address, timeout_s=30.0), []
        session.add_listener(lambda state: seen.append((state, session.timeout_s, session.id)))
        for longest_ms in (20_000, 3_000, 6_000):
            server.settings["maxSessionTimeout"] = str(longest_ms)
            server.restart()
            wanted = (CONNECTED, longest_ms / 1000)
            eventually(lambda: seen[-1:] and seen[-1][:2] == wanted, timeout_s=60)  # noqa: B023
        told = [one[1] for one in seen if one[0] is CONNECTED]
        assert told == [20.0, 3.0, 6.0]
        assert session.resolved_servers == [("127.0.0.1", server.port)]


def test_an_ended_session_is_lost_and_the_next_one_has_a_new_id(
    zookeeper_server: ZooKeeperServer, session: Session
) -> None:
    heard, first = heard_by(session), session.id
    session.create("/e", ephemeral=True)
    assert session.credentials is not None
    assert end_session(zookeeper_server.address, session.credentials, timeout_s=30)
    eventually(lambda: LOST in heard and heard[-1] is CONNECTED)
    assert without_resumptions(heard) == [SUSPENDED, LOST, CONNECTED]
    assert session.id not in (None, first)
    assert session.exists("/e") is None


def test_a_session_survives_a_slow_name_lookup_however_long_it_was_connected_before(
    zookeeper_server: ZooKeeperServer,
    opened: Connect,
    fault_proxy: Callable[[str], FaultProxy],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The supervisor sleeps while all is well. What passed then is no time without an attempt to
    connect.
    """
    may_go_on, seen_so_far, slept_s = threading.Event(), [], [0.0]
    monkeypatch.setattr("leaderq.clock.awake_s", lambda: monotonic() + slept_s[0])
    look_up, look = ServerConnection._expand_client_hosts, TimeWithoutAttempt.look

    def look_up_slowly(connection: ServerConnection) -> list[tuple[str, str, int]]:
        may_go_on.wait(10)
        return look_up(connection)

    def look_and_tell(
        idle: TimeWithoutAttempt, now_s: float, *about: object, is_connected: bool
    ) -> float:
        seen_so_far.append(is_connected)
        return look(idle, now_s, *about, is_connected=is_connected)  # type: ignore[arg-type]

    monkeypatch.setattr(TimeWithoutAttempt, "look", look_and_tell)

    proxy = fault_proxy(zookeeper_server.address)
    session = opened(proxy.address, timeout_s=30.0)
    heard, first = heard_by(session), session.id
    eventually(lambda: True in seen_so_far)
    # on the supervisor's clock only: far more than a client may go without an attempt
    slept_s[0] = 24 * 3600.0
    monkeypatch.setattr(ServerConnection, "_expand_client_hosts", look_up_slowly)
    proxy.cut()
    eventually(lambda: False in seen_so_far)
    may_go_on.set()
    eventually(lambda: heard[-1:] == [CONNECTED])
    assert (heard, session.id) == ([SUSPENDED, CONNECTED], first)


def test_an_expired_session_is_lost_and_begun_again(
    zookeeper_server: ZooKeeperServer,
    znode_root: str,
    opened: Connect,
    fault_proxy: Callable[[str], FaultProxy],
) -> None:
    other = opened(zookeeper_server.address + znode_root)
    proxy = fault_proxy(zookeeper_server.address)
    session = opened(proxy.address + znode_root, timeout_s=8.0)
    heard, first = heard_by(session), session.id
    session.create("/e", ephemeral=True)
    proxy.refuse()
    eventually(lambda: other.exists("/e") is None, timeout_s=60)
    assert LOST not in heard  # nobody could tell us
    assert session.id == first
    proxy.heal()
    eventually(lambda: heard[-1:] == [CONNECTED], timeout_s=30)
    assert heard == [SUSPENDED, LOST, CONNECTED]
    assert session.id != first


def test_a_dropped_connection_is_resumed_with_the_same_session(session: Session) -> None:
    heard, first = heard_by(session), session.id
    session.create("/e", ephemeral=True)
    session.drop_connection()
    eventually(lambda: heard == [SUSPENDED, CONNECTED])
    assert session.id == first
    assert session.exists("/e") is not None


def test_without_a_connection_requests_fail_at_once_and_are_never_sent_later(
    zookeeper_server: ZooKeeperServer,
    znode_root: str,
    opened: Connect,
    fault_proxy: Callable[[str], FaultProxy],
) -> None:
    proxy = fault_proxy(zookeeper_server.address)
    session = opened(proxy.address + znode_root, timeout_s=30.0)
    proxy.refuse()
    eventually(lambda: session.state is SUSPENDED)
    futures = [session.create_async(f"/n{number}") for number in range(100)]
    assert all(isinstance(future.exception(0), NotConnected) for future in futures)
    with pytest.raises(NotConnected):
        session.get("/")
    proxy.heal()
    eventually(lambda: session.state is CONNECTED)
    assert session.children("/") == []


def test_a_request_never_outlives_the_connection_it_was_made_on(session: Session) -> None:
    """Threads write on while the connection breaks again and again; what was "not sent" must never
    be applied.
    """
    stop, failed, made = threading.Event(), [], []

    def write(label: int) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            name = f"/{label}-{number}"
            error = session.create_async(name).exception(30)
            (failed if isinstance(error, NotConnected) else made).append((name, error))

    threads = [threading.Thread(target=write, args=(label,)) for label in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        before = len(made)
        session.drop_connection()
        eventually(lambda: session.state is CONNECTED and len(made) > before + 50, timeout_s=30)  # noqa: B023
    stop.set()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    there = set(session.children("/"))
    assert [name for name, _ in failed if name[1:] in there] == []
    assert [name for name, error in made if error is None and name[1:] not in there] == []
    assert all(error is None or isinstance(error, ConnectionLost) for _, error in made)


def test_a_server_that_restarts_finds_the_session_back(
    zookeeper_server: ZooKeeperServer, znode_root: str, opened: Connect
) -> None:
    session = opened(zookeeper_server.address + znode_root, timeout_s=30.0)
    heard, first = heard_by(session), session.id
    session.create("/e", ephemeral=True)
    zookeeper_server.kill()
    eventually(lambda: session.state is SUSPENDED)
    zookeeper_server.restart()
    eventually(lambda: session.state is CONNECTED, timeout_s=30)
    assert heard == [SUSPENDED, CONNECTED]
    assert session.id == first
    assert session.exists("/e") is not None


def test_a_replaced_session_is_lost_its_znodes_go_and_a_new_one_begins(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "leaderq.zookeeper.session.REPLACE_TIMEOUT_S", 20.0
    )  # a busy server may need long to end the old one
    heard, first = heard_by(session), session.id
    session.create("/e", ephemeral=True)
    session.replace("the test wants it")
    eventually(lambda: heard == [LOST, CONNECTED])
    assert session.id not in (None, first)
    assert session.exists("/e") is None


def test_a_connection_thread_that_dies_is_replaced(
    session: Session, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "leaderq.zookeeper.session.REPLACE_TIMEOUT_S", 20.0
    )  # a busy server may need long to end the old one
    heard, first = heard_by(session), session.id

    class Poison(Sync):
        @property
        def watcher(self) -> None:
            raise SystemError("kazoo stumbles over this")

    session.create("/e", ephemeral=True)
    answer = session._send(Poison("/"), bool, None)
    eventually(lambda: heard[-2:] == [LOST, CONNECTED], timeout_s=60)
    eventually(answer.done)
    assert session.id != first
    assert session.exists("/e") is None
    assert "connection thread failed" in caplog.text


@pytest.mark.parametrize("where", ["listener", "answer"])
def test_a_connection_thread_that_is_stuck_is_replaced_after_a_drop(
    session: Session, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setattr("leaderq.zookeeper.client.STUCK_S", 0.5)
    monkeypatch.setattr(type(session._client), "timeout_s", 0.2)
    heard, first, go_on = heard_by(session), session.id, threading.Event()
    if where == "listener":
        session._client.add_listener(lambda state: go_on.wait(60) and None)
    else:  # where it cannot even say that the connection is gone
        stuck = threading.Event()
        session._send(Sync("/"), lambda _: stuck.set() or go_on.wait(60), None)
        assert stuck.wait(60)
    session.drop_connection()
    eventually(lambda: heard[-1:] == [CONNECTED] and session.id != first, timeout_s=20)
    assert LOST in heard
    # The new one too is taken for stuck as soon as it gets no processor for half a second.
    assert eventually(lambda: session.exists("/", timeout_s=10))
    go_on.set()


def test_closing_ends_the_session_at_once(
    zookeeper_server: ZooKeeperServer, znode_root: str, session: Session, opened: Connect
) -> None:
    other = opened(zookeeper_server.address + znode_root)
    heard = heard_by(session)
    session.create("/e", ephemeral=True)
    assert session.close(timeout_s=30.0)
    assert other.exists("/e") is None
    assert session.close()
    assert heard == [CLOSED]
    assert (session.state, session.id, session.credentials) == (CLOSED, None, None)


def test_closing_without_a_connection_ends_the_session_through_another_one(
    zookeeper_server: ZooKeeperServer,
    znode_root: str,
    opened: Connect,
    fault_proxy: Callable[[str], FaultProxy],
) -> None:
    other = opened(zookeeper_server.address + znode_root)
    proxy = fault_proxy(zookeeper_server.address)
    session = opened(f"{proxy.address},{zookeeper_server.address}{znode_root}", timeout_s=30.0)
    while server_socket(session._client.connection).getpeername()[1] != int(
        proxy.address.rpartition(":")[2]
    ):
        session.replace("it must be on the proxy")
        eventually(lambda: session.state is CONNECTED)
    session.create("/e", ephemeral=True)
    proxy.black_hole()
    assert session.close(timeout_s=10.0)
    assert other.exists("/e") is None


def test_closing_while_suspended_and_nobody_answers_returns(
    zookeeper_server: ZooKeeperServer, opened: Connect, fault_proxy: Callable[[str], FaultProxy]
) -> None:
    proxy = fault_proxy(zookeeper_server.address)
    session = opened(proxy.address, timeout_s=4.0)
    proxy.refuse()
    eventually(lambda: session.state is SUSPENDED)
    assert not session.close(timeout_s=1.0)
    assert not session.close()  # it may live on: asking again does not change that
    assert session.state is CLOSED
    assert isinstance(session.get_async("/").exception(0), SessionClosed)


def test_closing_a_black_holed_session_returns(
    zookeeper_server: ZooKeeperServer, opened: Connect, fault_proxy: Callable[[str], FaultProxy]
) -> None:
    proxy = fault_proxy(zookeeper_server.address)
    session = opened(proxy.address, timeout_s=20.0)
    pending = session.get_async("/")
    pending.result(10)
    proxy.black_hole()
    pending = session.get_async("/")
    assert not session.close(timeout_s=1.0)
    assert isinstance(pending.exception(5), ConnectionLost)


def test_closing_a_session_that_has_expired_is_no_failure_although_nobody_answers(
    zookeeper_server: ZooKeeperServer, opened: Connect, fault_proxy: Callable[[str], FaultProxy]
) -> None:
    proxy = fault_proxy(zookeeper_server.address)
    session, lost = opened(proxy.address, timeout_s=30.0), threading.Event()

    def on_state(state: SessionState) -> None:
        if state is LOST:
            proxy.refuse()
            lost.set()

    session.add_listener(on_state)
    assert session.credentials is not None
    assert end_session(zookeeper_server.address, session.credentials, timeout_s=30)
    assert lost.wait(60)
    assert session.close(timeout_s=1.0)


def test_a_replaced_session_that_nobody_could_end_then_is_ended_when_a_server_answers_again(
    zookeeper_server: ZooKeeperServer,
    znode_root: str,
    opened: Connect,
    fault_proxy: Callable[[str], FaultProxy],
) -> None:
    other = opened(zookeeper_server.address + znode_root)
    proxy = fault_proxy(zookeeper_server.address)
    session, at_loss = opened(proxy.address + znode_root, timeout_s=100.0), []
    session.create("/e", ephemeral=True)
    session.add_listener(lambda _: at_loss.append((session.timeout_s, session.resolved_servers)))
    proxy.refuse()
    session.replace("the test wants it")
    host, _, port = proxy.address.rpartition(":")
    assert set(map(repr, at_loss)) == {repr((60.0, [(host, int(port))]))}  # as last heard of
    proxy.heal()
    eventually(lambda: other.exists("/e") is None)


def test_closing_after_a_replacement_that_reached_nobody_does_not_claim_the_old_session_over(
    zookeeper_server: ZooKeeperServer, opened: Connect, fault_proxy: Callable[[str], FaultProxy]
) -> None:
    proxy = fault_proxy(zookeeper_server.address)
    session = opened(proxy.address, timeout_s=30.0)
    proxy.refuse()
    session.replace("the test wants it")
    assert not session.close(timeout_s=1.0)


@pytest.mark.parametrize("where", ["listener", "watch", "answer"])
def test_a_session_may_be_closed_from_its_own_threads(session: Session, where: str) -> None:
    def close(_: object) -> None:
        session.close()

    if where == "listener":
        session.add_listener(lambda state: session.close() if state is SUSPENDED else None)
        session.drop_connection()
    elif where == "watch":
        session.exists("/a", close)
        session.create("/a")
    else:
        session.exists_async("/").add_done_callback(close)
    eventually(lambda: session.state is CLOSED)
    eventually(lambda: session._closed.is_set())


def test_a_fork_must_not_use_its_parents_session(session: Session) -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            session.get("/")
        except SessionClosed as exc:
            os.write(writing, f"{exc}, over: {session.close()}".encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as said:
        told = said.read()
    assert b"after the fork" in told
    assert b"over: False" in told
    assert session.exists("/") is not None
    assert session.state is CONNECTED


def test_fifty_sessions_leave_no_thread_and_no_descriptor(
    zookeeper_server: ZooKeeperServer,
) -> None:
    def open_descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    for number in range(52):
        with connect(zookeeper_server.address, timeout_s=10.0) as session:
            if number % 3 == 1:
                session.drop_connection()
            if number % 3 == 2:
                session.replace("the test wants it")
        if number == 1:
            gc.collect()
            eventually(lambda: our_threads() == [])
            before = open_descriptors()
    eventually(lambda: our_threads() == [])
    gc.collect()
    eventually(lambda: open_descriptors() <= before)
