from __future__ import annotations

import threading

import pytest

from leaderq.errors import (
    NoNode,
    SessionClosed,
    TooLarge,
)
from leaderq.zookeeper import (
    Create,
    GetChildren,
    GetData,
    Session,
    SessionState,
    SetData,
)
from leaderq.zookeeper.wire import HEADER_BYTES, MAX_REQUEST_BYTES, Multi


def test_a_multi_read_gives_each_read_its_own_outcome(session: Session) -> None:
    session.create("/a", b"1")
    session.create("/a/b")
    data, children, missing, empty, none = session.multi_read(
        [GetData("/a"), GetChildren("/a"), GetData("/x"), GetData("/a/b"), GetChildren("/x")]
    )
    assert data == session.get("/a")
    assert children == ["b"]
    assert isinstance(missing, NoNode)
    assert missing.path == "/x"
    assert empty == session.get("/a/b")
    assert isinstance(none, NoNode)
    assert session.multi_read([]) == []


def test_the_largest_request_passes_and_one_byte_more_is_refused_unsent(session: Session) -> None:
    overhead = (
        len(Multi([Create("/big")], session._server_path, session._acl()).serialize())
        + HEADER_BYTES
    )
    room = MAX_REQUEST_BYTES - overhead
    session.multi([Create("/big", b"x" * room)])
    for refused in (
        session.multi_async([SetData("/big", b""), Create("/big2", b"x" * room)]),
        session.create_async("/big2", b"x" * MAX_REQUEST_BYTES),
        session.set_async("/big", b"x" * MAX_REQUEST_BYTES),
    ):
        error = refused.exception(0)
        assert isinstance(error, TooLarge)
        assert error.size > error.limit == MAX_REQUEST_BYTES
        assert str(error.size) in str(error)
    assert session.state is SessionState.CONNECTED
    assert session.children("/") == ["big"]


def test_callbacks_of_futures_do_not_run_on_the_connection_thread_and_may_wait_for_requests(
    session: Session,
) -> None:
    seen: list[object] = []
    done = threading.Event()

    def look(future: object) -> None:
        seen.append((threading.current_thread().name, session.exists("/")))
        done.set()

    session.exists_async("/").add_done_callback(look)
    assert done.wait(10)
    ((name, stat),) = seen
    assert "answers" in name
    assert stat is not None


def test_a_closed_session_refuses_everything_at_once(session: Session) -> None:
    session.close()
    assert isinstance(session.get_async("/").exception(0), SessionClosed)
    with pytest.raises(SessionClosed):
        session.set("/", b"")
    with pytest.raises(SessionClosed):
        session.watch_tree("/", print)
    with pytest.raises(SessionClosed):
        session.replace("no reason")
