"""Connections that lie: frozen servers, black holes, lost replies. kazoo alone notices none of them
while it is in use.
"""

from __future__ import annotations

import contextlib
import struct
import threading
from collections.abc import Iterator

import pytest

from leaderq.errors import ConnectionLost, LeaderqError, NotConnected
from leaderq.testing import eventually
from leaderq.zookeeper import Create, Session, SessionState

CREATE, MULTI = 1, 14


def opcode(request: bytes) -> int:
    return int(struct.unpack_from("!i", request, 4)[0]) if len(request) >= 8 else 0


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
        eventually(lambda: session.state is SessionState.SUSPENDED, timeout_s=20)
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
    assert session.state is SessionState.CONNECTED
    session.drop_connection()
    eventually(lambda: session.state is SessionState.SUSPENDED)


@pytest.mark.parametrize("how", ["create", "multi"])
def test_a_lost_reply_leaves_the_outcome_unknown_and_says_so(proxy, behind, how):
    session = behind(timeout_s=30.0)
    wanted = CREATE if how == "create" else MULTI
    proxy.drop_reply_to(lambda request: opcode(request) == wanted)
    with pytest.raises(ConnectionLost) as caught:
        if how == "create":
            session.create("/a")
        else:
            session.multi([Create("/a")])
    assert type(caught.value) is ConnectionLost  # not NotConnected: it was sent
    eventually(lambda: session.exists("/a"))
