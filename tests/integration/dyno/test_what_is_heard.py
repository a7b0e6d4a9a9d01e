"""What a consumer hears of its shard, and of what it writes."""

from __future__ import annotations

import time

import pytest

from leaderq.dyno.layout import DynoPaths, ShardPaths, group_of, name_prefix
from leaderq.dyno.shard_view import ShardView
from leaderq.dyno.writes import outcomes
from leaderq.errors import ConnectionLost, NotConnected
from leaderq.testing import eventually
from leaderq.writing import SequencedWriter
from leaderq.writing.groups import MULTI_BYTES
from leaderq.writing.writer import WINDOW
from leaderq.zookeeper import Create, Session, connect
from leaderq.zookeeper.paths import name_of


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def pushed(session: Session, paths: ShardPaths, group: str | None = None) -> str:
    prefix = name_prefix(0, now_ms(), group_of(group))
    return name_of(session.create(paths.message(prefix), b"", sequential=True))


@pytest.mark.parametrize(("group", "expected"), [("a group", 3), (None, 2)])
def test_who_waits_hears_of_what_is_done_only_if_that_may_let_the_next_of_a_group_go(
    session: Session, group: str | None, expected: int
) -> None:
    paths = DynoPaths("/q").shard("0")
    heard: list[None] = []
    view = ShardView(session, paths, lambda: heard.append(None), None, now_ms)
    view.refresh()
    heard.clear()
    session.delete(paths.message(pushed(session, paths, group)))
    last = pushed(session, paths)

    def is_told() -> bool:
        with view.lock:
            return last in view.index.peek(100, now_ms() + 1000) and len(heard) >= expected

    eventually(is_told, timeout_s=10, message="the last is known")
    view.close()
    assert len(heard) == expected


def test_what_was_never_sent_is_told_apart_from_what_may_have_been(
    zookeeper_server, znode_root: str, session: Session, fault_proxy
) -> None:
    proxy = fault_proxy(zookeeper_server.address)
    session.ensure_path("/q/messages")
    with connect(f"{proxy.address}{znode_root}") as away:
        writer = SequencedWriter(away, "/q/guard")
        writer.open()
        proxy.freeze_direction("to_client")
        groups = [
            (Create(f"/q/messages/{number:02}", b"x" * (MULTI_BYTES * 3 // 5)),)
            for number in range(WINDOW + 4)
        ]
        found = [error for _, error in outcomes(writer, groups, "/q", 0.3)]
        assert [type(error) for error in found] == [ConnectionLost] * WINDOW + [NotConnected] * 4
        proxy.heal()
        assert writer.flush(30)
        assert [error for _, error in outcomes(writer, [(Create("/q/messages/last"),)], "/q")] == [
            None
        ]
        writer.close(5)
    sent = [f"{number:02}" for number in range(WINDOW)]
    assert set(session.children("/q/messages")) == {*sent, "last"}
