"""What a consumer hears of its shard, and of what it writes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import nullcontext

import pytest

from leaderq.dyno import DynoQueue, Message
from leaderq.dyno.layout import DynoPaths, ShardPaths, group_of, name_prefix
from leaderq.dyno.shard_view import ShardView
from leaderq.errors import ConnectionLost, NotConnected, QueueClosed
from leaderq.testing import eventually
from leaderq.writing import SequencedWriter
from leaderq.writing.groups import MULTI_BYTES
from leaderq.writing.outcomes import outcomes
from leaderq.writing.writer import WINDOW
from leaderq.zookeeper import Create, Session, SessionState, connect
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


@pytest.fixture
def read(session: Session, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of all that this session reads in one go, as it is asked for."""
    names: list[str] = []
    send = session.child_data_async

    def noted(parent: str, children: Sequence[str]) -> object:
        names.extend(children if parent.endswith("/messages") else ())
        return send(parent, children)

    monkeypatch.setattr(session, "child_data_async", noted)
    return names


def test_the_next_message_is_read_once_and_before_it_is_asked_for(
    session: Session, read: list[str]
) -> None:
    with DynoQueue(session, "/q") as queue:
        queue.push([Message(payload=b"%d" % number) for number in range(4)])
        popped = queue.pop(1, 30)
        eventually(lambda: len(read) == 2, timeout_s=10, message="the next one is read")
        popped += queue.pop(1, 30) + queue.pop(2, 30)
        assert [one.payload for one in popped] == [b"0", b"1", b"2", b"3"]
        assert read == [one.name for one in popped]


def test_who_has_read_ahead_what_others_took_reads_no_more_than_it_pops(
    session: Session, read: list[str], opened: Callable[[], Session]
) -> None:
    with DynoQueue(session, "/q") as queue, DynoQueue(opened(), "/q") as other:
        queue.push([Message(payload=b"%d" % number) for number in range(5)])
        popped, (taken,) = queue.pop(1, 30), other.pop(1, 30)
        taken.ack()
        index = queue._consumer.views["0"].index
        eventually(lambda: len(index) == 4, timeout_s=10, message="it has heard of that")
        popped += queue.pop(1, 30) + queue.pop(1, 30)
        assert read == [one.name for one in (popped[0], taken, *popped[1:])]


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


@pytest.mark.parametrize("end", ["heal", "close"])
def test_the_first_push_outlasts_a_broken_connection_as_later_ones_do_until_the_queue_is_closed(
    zookeeper_server, znode_root: str, fault_proxy, end: str
) -> None:
    proxy = fault_proxy(zookeeper_server.address)
    with connect(f"{proxy.address}{znode_root}") as away, ThreadPoolExecutor() as pool:
        queue = DynoQueue(away, "/d")
        proxy.refuse()
        eventually(lambda: away.state is SessionState.SUSPENDED)
        pushed = pool.submit(queue.push, Message(payload=b"first"))
        eventually(pushed.running)
        with pytest.raises(FutureTimeout):
            pushed.result(0.2)
        if end == "close":
            queue.close(1)
        proxy.heal()
        with pytest.raises(QueueClosed) if end == "close" else nullcontext():
            pushed.result(30)
            assert queue.pop(1, 30)[0].payload == b"first"
        queue.close()
