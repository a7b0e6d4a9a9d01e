from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from leaderq.errors import ConfigurationError, NodeExists, NoNode, NotConnected, TooLarge
from leaderq.testing import FaultProxy, ZooKeeperServer, eventually
from leaderq.zookeeper import Check, Create, Delete, MultiBatcher, Session, SessionState


def test_groups_keep_their_order_and_each_hears_its_results(session: Session) -> None:
    groups = [[Create("/q-", str(number).encode(), sequential=True), Check("/")] for number in range(2000)]
    outcomes = session.multi_batches(groups, max_ops=64, timeout_s=30)
    assert outcomes == [[f"/q-{number:010}", None] for number in range(2000)]


@pytest.mark.parametrize("every", [1, 2, 7, 400])
def test_a_bad_group_fails_alone_with_its_own_error(session: Session, every: int) -> None:
    groups = [[Create(f"/{number}"), Check("/no" if number % every == 0 else "/")] for number in range(400)]
    outcomes = session.multi_batches(groups, max_ops=100, window=3, timeout_s=30)
    for number, outcome in enumerate(outcomes):
        if number % every == 0:
            assert isinstance(outcome, NoNode)
            assert (outcome.path, outcome.index) == ("/no", 1)
        else:
            assert outcome == [f"/{number}", None]
    assert len(session.children("/")) == sum(isinstance(one, list) for one in outcomes)


def test_the_second_of_two_equal_groups_fails_wherever_they_are_packed(session: Session) -> None:
    outcomes = session.multi_batches([[Create("/same")], [Create("/other")], [Create("/same")]], timeout_s=30)
    assert outcomes[:2] == [["/same"], ["/other"]]
    assert isinstance(outcomes[2], NodeExists)


def test_batches_stay_below_the_limit_in_bytes(session: Session) -> None:
    groups = [[Create(f"/{number}", b"x" * 300_000)] for number in range(12)]
    outcomes = session.multi_batches(groups, max_bytes=10_000_000, timeout_s=30)
    assert all(isinstance(one, list) for one in outcomes)


def test_an_oversized_group_fails_alone_and_an_empty_one_succeeds(session: Session) -> None:
    big, empty, good = session.multi_batches([[Create("/big", b"x" * 2_000_000)], [], [Create("/good")]])
    assert isinstance(big, TooLarge)
    assert (empty, good) == ([], ["/good"])


def test_a_bad_path_is_refused_at_the_call_and_harms_no_other_group(session: Session) -> None:
    batcher = MultiBatcher(session)
    with pytest.raises(ConfigurationError):
        batcher.submit([Create("nope")])
    assert batcher.submit([Create("/a")]).result(10) == ["/a"]
    assert batcher.flush(10)  # the account is settled after the futures


def test_many_threads_may_submit(session: Session) -> None:
    batcher = MultiBatcher(session, max_ops=50, window=2)
    outcomes: list[object] = []

    def submit() -> None:
        futures = [batcher.submit([Create("/t-", sequential=True)]) for _ in range(200)]
        outcomes.extend(future.result(30)[0] for future in futures)

    threads = [threading.Thread(target=submit) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(set(outcomes)) == 1000
    eventually(lambda: batcher.unsettled == 0)


def test_without_a_connection_every_group_fails_at_once_and_none_is_sent_later(
    zookeeper_server: ZooKeeperServer,
    znode_root: str,
    opened: Callable[..., Session],
    fault_proxy: Callable[[str], FaultProxy],
) -> None:
    proxy = fault_proxy(zookeeper_server.address)
    session = opened(proxy.address + znode_root, timeout_s=30.0)
    proxy.refuse()
    eventually(lambda: session.state is SessionState.SUSPENDED)
    outcomes = session.multi_batches([[Create(f"/{number}")] for number in range(5000)], max_ops=1, window=1)
    assert all(isinstance(one, NotConnected) for one in outcomes)
    proxy.heal()
    eventually(lambda: session.state is SessionState.CONNECTED, timeout_s=30)
    assert session.children("/") == []


def test_deletes_and_creates_may_depend_on_earlier_groups(session: Session) -> None:
    outcomes = session.multi_batches([[Create("/a")], [Create("/a/b")], [Delete("/a/b")], [Delete("/a")]])
    assert outcomes == [["/a"], ["/a/b"], [None], [None]]
