"""From an address to a session, or to one clear error."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from leaderq.errors import ConfigurationError, ServersUnreachable
from leaderq.testing import FaultProxy, ZooKeeperServer, eventually
from leaderq.zookeeper import Session, connect

Connect = Callable[..., Session]


def our_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("leaderq-")]


def test_a_missing_chroot_is_made(zookeeper_server: ZooKeeperServer, znode_root: str, opened: Connect) -> None:
    session = opened(f"{zookeeper_server.address}{znode_root}/a/b")
    assert session.children("/") == []
    assert opened(zookeeper_server.address + znode_root).children("/") == ["a"]


def test_a_closed_port_is_unreachable_and_the_reason_is_told(closed_port: str) -> None:
    with pytest.raises(ServersUnreachable, match="refused") as caught:
        connect(closed_port, connect_timeout_s=0.5)
    assert closed_port in str(caught.value)
    eventually(lambda: our_threads() == [])


def test_a_name_nobody_knows_is_unreachable_and_the_reason_is_told() -> None:
    with pytest.raises(ServersUnreachable, match="Cannot resolve"):
        connect("no-such-host.invalid", connect_timeout_s=1.0)
    eventually(lambda: our_threads() == [])


@pytest.mark.parametrize("fault", ["black_hole", "refuse"])
def test_a_server_that_does_not_answer_is_unreachable(
    zookeeper_server: ZooKeeperServer, fault_proxy: Callable[[str], FaultProxy], fault: str
) -> None:
    proxy = fault_proxy(zookeeper_server.address)
    getattr(proxy, fault)()
    with pytest.raises(ServersUnreachable):
        connect(proxy.address, timeout_s=4.0, connect_timeout_s=0.5)
    eventually(lambda: our_threads() == [])


def test_a_server_that_comes_up_meanwhile_is_found(
    zookeeper_server: ZooKeeperServer, fault_proxy: Callable[[str], FaultProxy]
) -> None:
    proxy = fault_proxy(zookeeper_server.address)
    proxy.refuse()
    found: list[Session] = []
    thread = threading.Thread(target=lambda: found.append(connect(proxy.address, connect_timeout_s=30)))
    thread.start()
    proxy.heal()
    thread.join(60)
    assert found[0].exists("/") is not None
    found[0].close()


@pytest.mark.parametrize("address", ["", "a,,b", "a:x", "a:0", "a b", "a:1/x//y"])
def test_a_malformed_address_is_refused_before_anything_is_tried(address: str) -> None:
    with pytest.raises(ConfigurationError):
        connect(address)
    assert our_threads() == []


@pytest.mark.parametrize("options", [{"timeout_s": 0}, {"timeout_s": -1}, {"timeout_s": 1e10}, {"connect_timeout_s": 0}])
def test_times_out_of_range_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError, match="time-out"):
        connect("localhost", **options)  # type: ignore[arg-type]
