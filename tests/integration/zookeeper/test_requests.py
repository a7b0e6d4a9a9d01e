from __future__ import annotations

import threading

import pytest

from leaderq.errors import ServersUnreachable, TooLarge, ZooKeeperError
from leaderq.testing import eventually
from leaderq.zookeeper import Create, SessionState, SetData, WatchEvent, WatchKind, connect
from leaderq.zookeeper.wire import HEADER_BYTES, MAX_REQUEST_BYTES, Multi, MultiRead


def test_the_largest_request_passes_and_one_byte_more_is_refused_unsent(session):
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
    session,
):
    seen: list[object] = []
    done = threading.Event()

    def look(future: object) -> None:
        seen.append((threading.current_thread().name, session.exists("/")))
        done.set()

    session.exists_async("/").add_done_callback(look)
    assert done.wait(60)
    ((name, stat),) = seen
    assert "answers" in name
    assert stat is not None


def our_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("leaderq-")}


def test_a_missing_chroot_is_made(zookeeper_server, znode_root, opened):
    session = opened(f"{zookeeper_server.address}{znode_root}/a/b")
    assert session.children("/") == []
    assert opened().children("/") == ["a"]


def test_a_server_that_is_too_old_is_refused_and_the_version_needed_is_told(
    zookeeper_server, monkeypatch
):
    monkeypatch.setattr(MultiRead, "type", 99)  # which is to this server what 22 is to one of 3.5
    before = our_threads()
    with pytest.raises(ZooKeeperError, match=r"must be 3\.6 or newer"):
        connect(zookeeper_server.address)
    assert our_threads() <= before


@pytest.mark.parametrize("fault", ["black_hole", "refuse"])
def test_a_server_that_does_not_answer_is_unreachable(zookeeper_server, fault_proxy, fault):
    proxy = fault_proxy(zookeeper_server.address)
    getattr(proxy, fault)()
    before = our_threads()
    with pytest.raises(ServersUnreachable):
        connect(proxy.address, timeout_s=4.0, connect_timeout_s=0.5)
    eventually(lambda: our_threads() <= before)


def test_a_tree_watch_stands_again_after_a_reconnection_and_says_that_it_was_away(session):
    heard: list[WatchEvent] = []
    session.create("/t")
    with session.watch_tree("/t", heard.append), session.watch_node("/t", heard.append):
        for number in range(3):
            session.drop_connection()
            eventually(lambda: heard.count(WatchEvent(WatchKind.SESSION, "/t")) == 2)
            session.create(f"/t/{number}")
            made = WatchEvent(WatchKind.CREATED, f"/t/{number}")
            wanted = {made, WatchEvent(WatchKind.CHILDREN, "/t")}
            eventually(lambda: wanted <= set(heard))  # noqa: B023
            heard.clear()
