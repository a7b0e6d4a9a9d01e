"""Sessions on a KazooClient that the user made."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hearing import without_resumptions
from kazoo.client import KazooClient

from leaderq.errors import ConfigurationError, NoNode, NotConnected, SessionClosed
from leaderq.testing import ZooKeeperServer, eventually
from leaderq.zookeeper import Create, GetData, Session, SessionState, WatchEvent, WatchKind, as_session, end_session


@pytest.fixture
def client(zookeeper_server: ZooKeeperServer, znode_root: str) -> Iterator[KazooClient]:
    maker = KazooClient(zookeeper_server.address)
    maker.start()
    maker.ensure_path(znode_root)
    maker.stop()
    maker.close()
    client = KazooClient(zookeeper_server.address + znode_root, timeout=100.0)
    client.start()
    yield client
    client.stop()
    client.close()


def test_a_session_is_a_session_already(session: Session) -> None:
    assert as_session(session) is session


def test_an_adopted_client_does_what_a_session_does(client: KazooClient) -> None:
    session = as_session(client)
    assert session.state is SessionState.CONNECTED
    assert session.id == client.client_id[0]
    assert session.create("/a", b"1") == "/a"
    assert session.multi([Create("/b-", sequential=True)]) == ["/b-0000000001"]
    assert session.multi_read([GetData("/a")])[0] == session.get("/a")
    with pytest.raises(NoNode):
        session.delete("/x")
    assert sorted(session.children("/")) == ["a", "b-0000000001"]


def test_the_time_out_is_the_granted_one_and_not_the_one_asked_for(client: KazooClient) -> None:
    assert as_session(client).timeout_s == pytest.approx(60.0)


def test_persistent_watches_work_on_an_adopted_client_and_leave_its_own_watches_alone(client: KazooClient) -> None:
    session, heard, theirs = as_session(client), [], []
    client.exists("/t/a", watch=theirs.append)
    with session.watch_tree("/t", heard.append):
        session.create("/t")
        session.create("/t/a")
        eventually(
            lambda: (
                heard == [WatchEvent(WatchKind.CREATED, "/t"), WatchEvent(WatchKind.CREATED, "/t/a")] and len(theirs) == 1
            )
        )
        session.drop_connection()
        eventually(lambda: heard[2:] == [WatchEvent(WatchKind.SESSION, "/t")])
        session.set("/t", b"x")
        eventually(lambda: heard[3:] == [WatchEvent(WatchKind.CHANGED, "/t")])


def test_closing_leaves_the_client_to_its_owner(client: KazooClient) -> None:
    session, heard = as_session(client), []
    session.create("/e", ephemeral=True)
    session.add_listener(heard.append)
    session.watch_tree("/", heard.append)
    session.close()
    assert heard == [SessionState.CLOSED]
    assert client.exists("/e") is not None
    client.create("/later")
    assert "_read_watch_event" not in client._connection.__dict__
    with pytest.raises(SessionClosed):
        session.get("/e")
    assert as_session(client).exists("/later") is not None
    assert heard == [SessionState.CLOSED]


def test_changes_of_state_are_heard(client: KazooClient, zookeeper_server: ZooKeeperServer) -> None:
    session, heard = as_session(client), []
    session.add_listener(heard.append)
    first = session.id
    assert session.credentials is not None
    assert end_session(zookeeper_server.address, session.credentials, timeout_s=30)
    eventually(lambda: SessionState.LOST in heard and heard[-1] is SessionState.CONNECTED)
    assert without_resumptions(heard) == [SessionState.SUSPENDED, SessionState.LOST, SessionState.CONNECTED]
    assert session.id not in (None, first)


def test_a_stopped_client_refuses_at_once(client: KazooClient) -> None:
    session = as_session(client)
    client.stop()
    assert session.state is SessionState.LOST
    assert isinstance(session.get_async("/").exception(0), NotConnected)
    session.close()


def test_only_a_started_threaded_client_can_be_adopted(zookeeper_server: ZooKeeperServer) -> None:
    with pytest.raises(ConfigurationError, match=r"start\(\)"):
        as_session(KazooClient(zookeeper_server.address))
    with pytest.raises(ConfigurationError, match="neither"):
        as_session("localhost:2181")  # type: ignore[arg-type]


def test_an_adopted_client_is_never_replaced(client: KazooClient) -> None:
    with pytest.raises(ConfigurationError, match=r"leaderq\.connect"):
        as_session(client).replace("no")
