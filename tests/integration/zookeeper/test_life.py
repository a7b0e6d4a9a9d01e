"""Beginnings, breaks and ends of a session; servers that come back without their data; connections
that lie: frozen servers, black holes, lost replies. kazoo alone notices none of those in use.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Iterator

import pytest
from kazoo.protocol.serialization import Sync

from leaderq.errors import ConnectionLost, LeaderqError, NotConnected, SessionClosed
from leaderq.term import Reason
from leaderq.testing import ZooKeeperServer, eventually
from leaderq.zookeeper import Session, SessionState, connect

CONNECTED, SUSPENDED, LOST, CLOSED = SessionState


def heard_by(session: Session) -> list[SessionState]:
    heard: list[SessionState] = []
    session.add_listener(heard.append)
    return heard


def test_without_a_connection_requests_fail_at_once_and_are_never_sent_later(proxy, behind):
    session = behind(timeout_s=30.0)
    proxy.refuse()
    eventually(lambda: session.state is SUSPENDED)
    futures = [session.create_async(f"/n{number}") for number in range(100)]
    assert all(isinstance(future.exception(0), NotConnected) for future in futures)
    with pytest.raises(NotConnected):
        session.get("/")
    proxy.heal()
    eventually(lambda: session.state is CONNECTED)
    assert session.children("/") == []


def test_a_request_never_outlives_the_connection_it_was_made_on(session):
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
        eventually(lambda: session.state is CONNECTED and len(made) > before + 50)  # noqa: B023
    stop.set()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    there = set(session.children("/"))
    assert [name for name, _ in failed if name[1:] in there] == []
    assert [name for name, error in made if error is None and name[1:] not in there] == []
    assert all(error is None or isinstance(error, ConnectionLost) for _, error in made)


def test_a_connection_thread_that_dies_is_replaced(session, caplog, monkeypatch):
    # a busy server may need long to end the old one
    monkeypatch.setattr("leaderq.zookeeper.session.REPLACE_TIMEOUT_S", 20.0)
    heard, first = heard_by(session), session.id

    class Poison(Sync):
        @property
        def watcher(self) -> None:
            raise SystemError("kazoo stumbles over this")

    session.create("/e", ephemeral=True)
    answer = session._send(Poison("/"), bool, None)
    eventually(lambda: heard[-2:] == [LOST, CONNECTED])
    eventually(answer.done)
    assert session.id != first
    assert session.exists("/e") is None
    assert "connection thread failed" in caplog.text


@pytest.mark.parametrize("where", ["listener", "answer"])
def test_a_connection_thread_that_is_stuck_is_replaced_after_a_drop(session, monkeypatch, where):
    monkeypatch.setattr("leaderq.zookeeper.client.STUCK_S", 0.5)
    monkeypatch.setattr(session._client.connection, "timeout_s", 0.2)
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


def test_closing_ends_the_session_at_once_and_it_refuses_everything(
    zookeeper_server, znode_root, session, opened
):
    other = opened()
    heard = heard_by(session)
    session.create("/e", ephemeral=True)
    assert session.close(timeout_s=30.0)
    assert other.exists("/e") is None
    assert session.close()
    assert heard == [CLOSED]
    assert (session.state, session.id, session.credentials) == (CLOSED, None, None)
    assert isinstance(session.get_async("/").exception(0), SessionClosed)
    for refused in (
        lambda: session.set("/", b""),
        lambda: session.watch_tree("/", print),
        lambda: session.replace("no reason"),
    ):
        with pytest.raises(SessionClosed):
            refused()


@pytest.mark.parametrize("where", ["listener", "watch", "answer"])
def test_a_session_may_be_closed_from_its_own_threads(session, where):
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


def test_who_led_before_the_servers_were_emptied_leads_again_under_a_higher_number(caplog):
    led: list[tuple[int, bool]] = []
    reasons: list[Reason | None] = []
    is_over = threading.Event()

    def lead() -> None:
        for term in session.terms("c", cool_off_s=0.1):
            led.append((term.number, term.unclean))
            if len(led) == 2:
                term.finish()
            while term.wait(0.05):
                pass
            reasons.append(term.reason)
        is_over.set()

    thread = threading.Thread(target=lead)
    with ZooKeeperServer() as server, connect(server.address, timeout_s=2.0) as session:
        for number in range(20):  # seen by this session, and not by the server that follows
            session.ensure_path(f"/seen/{number}")
        thread.start()
        try:
            eventually(lambda: led == [(1, False)])
            server.kill()
            shutil.rmtree(server.folder / "data")
            server.start()
            eventually(is_over.is_set)
        finally:
            session.close()
            thread.join()
    assert led == [(1, False), (2, True)]
    assert reasons[0] in (Reason.LEASE, Reason.SESSION)
    assert "term record was lost" in caplog.text


@contextlib.contextmanager
def in_use(session: Session) -> Iterator[None]:
    """A request every few milliseconds, as of a busy leader, of which nobody awaits the answer."""
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(0.005):
            with contextlib.suppress(LeaderqError):
                session.exists_async("/")

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("use", [in_use, contextlib.nullcontext])
def test_a_black_hole_is_noticed_in_use_or_idle(proxy, behind, use):
    session = behind(timeout_s=2.0)
    first = session.id
    with use(session):
        proxy.black_hole()
        eventually(lambda: session.state is SUSPENDED, timeout_s=20)
        assert session.id == first
        proxy.heal()
        eventually(lambda: session.exists("/"), timeout_s=20)


def test_a_full_socket_holds_up_nobody(proxy, behind):
    session = behind(timeout_s=4.0)
    proxy.freeze_direction("to_server")
    futures = [session.set_async("/", b"x" * 500_000) for _ in range(60)]
    errors = [type(future.exception(30)) for future in futures]
    # sent perhaps, and certainly not
    assert (errors[0], errors[-1]) == (ConnectionLost, NotConnected)
    assert set(errors) == {ConnectionLost, NotConnected}
    proxy.heal()
    eventually(lambda: session.set("/", b""), timeout_s=20)


def test_a_request_without_an_answer_is_given_up_in_time(proxy, behind):
    session = behind(timeout_s=30.0)
    proxy.black_hole()
    with pytest.raises(ConnectionLost, match=r"within 0\.2 s"):
        session.create("/a", timeout_s=0.2)
    # nobody knows better yet; whoever does, drops the connection
    assert session.state is CONNECTED
    session.drop_connection()
    eventually(lambda: session.state is SUSPENDED)
