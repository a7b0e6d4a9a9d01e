from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
from forks import in_child
from kazoo.client import KazooClient

from leaderq import Candidate
from leaderq.errors import ConfigurationError, NoNode
from leaderq.term import Reason
from leaderq.testing import eventually
from leaderq.zookeeper import Create, GetData, SessionState, as_session

MakeClient = Callable[..., KazooClient]


@pytest.fixture
def started() -> Iterator[MakeClient]:
    """Makes clients that are started, and stopped after the test."""
    made: list[KazooClient] = []

    def make(hosts: str, timeout: float = 30.0, **options: object) -> KazooClient:
        client = KazooClient(hosts, timeout=timeout, **options)
        client.start(timeout=60)
        made.append(client)
        return client

    yield make
    while made:
        client = made.pop()
        client.stop()
        client.close()


@pytest.fixture
def client(zookeeper_server, session, started) -> KazooClient:
    return started(zookeeper_server.address + session.chroot, timeout=100.0)


def test_a_client_gets_a_session_of_its_own_that_does_what_all_do(client):
    session = as_session(client)
    assert session.state is SessionState.CONNECTED
    assert session.id not in (None, client.client_id[0])
    assert session.create("/a", b"1") == "/a"
    assert session.multi([Create("/b-", sequential=True)]) == ["/b-0000000001"]
    assert session.multi_read([GetData("/a")])[0] == session.get("/a")
    with pytest.raises(NoNode):
        session.delete("/x")
    assert sorted(client.get_children("/")) == ["a", "b-0000000001"]
    session.replace("a session of its own can be replaced")
    eventually(lambda: session.state is SessionState.CONNECTED)


def test_a_client_with_tls_gets_a_session_with_tls(tls_address, certificates, started):
    ca = str(certificates["server"])
    session = as_session(started(tls_address, use_ssl=True, ca=ca, check_hostname=True))
    assert session.exists("/") is not None
    trusting = as_session(started(tls_address, use_ssl=True, verify_certs=False))
    assert trusting.exists("/") is not None


def test_a_client_that_is_started_again_gets_a_new_session(client):
    first = as_session(client)
    client.restart()
    second = as_session(client)
    assert second is not first
    assert (first.state, second.state) == (SessionState.CLOSED, SessionState.CONNECTED)
    assert len(client.state_listeners) == 1


def test_only_a_started_threaded_client_will_do(closed_port, client):
    with pytest.raises(ConfigurationError, match=r"start\(\)"):
        as_session(KazooClient(closed_port))  # no connection is tried
    client.stop()
    with pytest.raises(ConfigurationError, match=r"start\(\)"):
        as_session(client)
    with pytest.raises(ConfigurationError, match="neither"):
        as_session("localhost:2181")
    client.handler = SimpleNamespace(name="sequential_gevent_handler", stop=client.handler.stop)
    with pytest.raises(ConfigurationError, match="threading handler"):
        as_session(client)


def test_a_fork_gets_a_session_of_its_own(client):
    session = as_session(client)

    def use() -> None:
        own = as_session(client)
        assert own is not session
        assert own.exists("/") is not None

    in_child(use)
    assert session.exists("/") is not None


def test_the_lease_follows_the_time_out_of_our_own_session(zookeeper_server, znode_root, started):
    client = started(zookeeper_server.address, timeout=0.01)  # less than the servers grant
    session = as_session(client)
    assert session.timeout_s == 1.0
    with Candidate(client, "c", id="a", root=znode_root) as candidate:
        candidate.stand()
        term = candidate.await_term(60)
        assert term.remaining_s() <= session.shares.trusted_s
        candidate.conclude(term, Reason.WITHDRAWN)
