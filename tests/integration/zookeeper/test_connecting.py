"""From an address to a session, or to one clear error."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from leaderq.errors import ServersUnreachable, ZooKeeperError
from leaderq.testing import FaultProxy, ZooKeeperServer, eventually
from leaderq.zookeeper import Session, connect
from leaderq.zookeeper.wire import MultiRead

Connect = Callable[..., Session]


def our_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("leaderq-")}


def test_a_missing_chroot_is_made(
    zookeeper_server: ZooKeeperServer, znode_root: str, opened: Connect
) -> None:
    session = opened(f"{zookeeper_server.address}{znode_root}/a/b")
    assert session.children("/") == []
    assert opened(zookeeper_server.address + znode_root).children("/") == ["a"]


def test_a_server_that_is_too_old_is_refused_and_the_version_needed_is_told(
    zookeeper_server: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MultiRead, "type", 99)  # which is to this server what 22 is to one of 3.5
    before = our_threads()
    with pytest.raises(ZooKeeperError, match=r"must be 3\.6 or newer"):
        connect(zookeeper_server.address)
    assert our_threads() <= before


@pytest.mark.parametrize("fault", ["black_hole", "refuse"])
def test_a_server_that_does_not_answer_is_unreachable(
    zookeeper_server: ZooKeeperServer, fault_proxy: Callable[[str], FaultProxy], fault: str
) -> None:
    proxy = fault_proxy(zookeeper_server.address)
    getattr(proxy, fault)()
    before = our_threads()
    with pytest.raises(ServersUnreachable):
        connect(proxy.address, timeout_s=4.0, connect_timeout_s=0.5)
    eventually(lambda: our_threads() <= before)
