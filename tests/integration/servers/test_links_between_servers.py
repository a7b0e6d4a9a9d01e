"""What can be done to the ways between servers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from leaderq import connect
from leaderq.errors import ConnectionLost, ServerFailed
from leaderq.testing import ZooKeeperEnsemble, eventually


@pytest.fixture(scope="module")
def ensemble() -> Iterator[ZooKeeperEnsemble]:
    with ZooKeeperEnsemble(linked=True, settings={"syncLimit": "60"}) as made:
        yield made


def test_what_is_stalled_arrives_late_and_what_is_lost_never(ensemble, znode_root) -> None:
    head, follower = ensemble.leader, ensemble.followers[0]
    way = ensemble.link(head, follower)
    with connect(follower.address, timeout_s=30) as session:
        session.create(znode_root, b"")
        way.stall()
        held = session.set_async(znode_root, b"held")
        with connect(head.address) as beside:
            eventually(lambda: beside.get(znode_root)[0] == b"held")
        assert not held.done()
        way.release()
        held.result(5)
        ensemble.link(follower, head).lose()
        lost = session.set_async(znode_root, b"lost")
        with connect(head.address) as beside:
            way.heal()
            with pytest.raises(ConnectionLost):
                lost.result(5)
            assert beside.get(znode_root)[0] == b"held"
        eventually(lambda: follower.mode == "follower")


def test_an_isolated_server_serves_its_clients_and_a_killed_leader_is_replaced(ensemble) -> None:
    head, isolated = ensemble.leader, ensemble.followers[0]
    with connect(isolated.address, timeout_s=30) as session:
        ensemble.isolate(isolated)
        assert session.exists("/") is not None
        assert isolated.mode == "follower"
    ensemble.heal()
    head.kill()
    assert ensemble.leader is not head
    ensemble.heal()
    eventually(lambda: len(ensemble.followers) == 2)


def test_servers_without_links_have_none() -> None:
    plain = ZooKeeperEnsemble()
    with pytest.raises(ServerFailed, match="linked=True"):
        plain.link(*plain.members[:2])
