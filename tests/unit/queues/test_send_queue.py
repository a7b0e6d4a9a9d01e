"""What a tally sends next, and what becomes of what failed: all of it without a server."""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leaderq.errors import (
    AccessRefused,
    BadVersion,
    ConnectionLost,
    LeaderqError,
    NodeExists,
    NoNode,
    NotConnected,
    SessionClosed,
    SessionExpired,
)
from leaderq.writing.groups import (
    MultiStatus,
    OperationGroup,
    PackedMulti,
    SendQueue,
    status_of,
)
from leaderq.zookeeper import Create


class Heard(OperationGroup):
    """Notes what it hears."""

    def __init__(self, name: str, count: int = 1) -> None:
        super().__init__([Create(f"/{name}{number}", b"x") for number in range(count)], 100 * count)
        self.name = name
        self.news: list[Any] = []

    def on_outcome(self, results: list[Any] | None, error: LeaderqError | None) -> None:
        self.news.append(error or results)


def line(*names: str, max_ops: int = 2, window: int = 8, max_bytes: int = 100_000) -> SendQueue:
    made = SendQueue(max_ops=max_ops, max_bytes=max_bytes, window=window)
    made.is_halted = False
    made.waiting.extend(Heard(name) for name in names)
    return made


def answer(batch: PackedMulti, error: LeaderqError | None = None) -> None:
    future: Future[list[Any]] = Future()
    if error is None:
        future.set_result(
            ["guard", *(op.path for group in batch.groups for op in group.operations)]
        )
    else:
        future.set_exception(error)
    batch.note_answer(future)


def test_a_large_multi_is_followed_by_small_ones_that_push_it_out_of_the_servers_memory():
    one = SendQueue(max_ops=100, max_bytes=1000, window=2)
    one.is_halted = False
    one.waiting.extend([Heard("L", 35), Heard("M", 11), Heard("s")])
    batches = [one.next_batch() for _ in range(6)]
    assert [[group.name for group in batch.groups] for batch in batches if batch] == [
        ["L"],
        [],
        [],
        [],
        ["M"],
        [],
    ]
    assert [batch.number for batch in batches if batch] == list(range(6))
    assert not one.may_send  # small ones take no place in the window, those with groups do
    answer(batches[0])
    one.take_applied()
    assert [group.name for group in one.next_batch().groups] == ["s"]


@pytest.mark.parametrize(
    "error, fate",
    [
        (SessionClosed("x"), MultiStatus.OVER),
        (NotConnected("x"), MultiStatus.NOT_NOW),
        (ConnectionLost("x"), MultiStatus.UNKNOWN),
        (SessionExpired("x"), MultiStatus.UNKNOWN),
        (BadVersion("x", index=0), MultiStatus.NOT_NOW),
        (NoNode("x", index=0), MultiStatus.NOT_NOW),
        (NoNode("x", index=1), MultiStatus.REFUSED),
        (BadVersion("x", index=3), MultiStatus.REFUSED),
        (AccessRefused("x"), MultiStatus.REFUSED),
    ],
)
def test_an_error_says_what_became_of_the_multi(error, fate):
    assert status_of(error) is fate


def test_what_hears_may_fail_and_others_hear_all_the_same(caplog):
    class Bad(Heard):
        def on_outcome(self, results: Any, error: Any) -> None:
            raise ValueError("boom")

    good = Heard("b")
    batch = PackedMulti(0, [Bad("a"), good])
    answer(batch)
    batch.settle()
    assert good.news == [["/b0"]]
    assert "boom" in caplog.text


class Server:
    """Applies multis as ZooKeeper does; after a fault it is out of reach until ``is_cut`` is taken
    back.
    """

    def __init__(self, bad: set[str]) -> None:
        self.bad = bad
        self.version = 0
        self.applied: list[str] = []
        self.is_cut = False

    def serve(self, batch: PackedMulti, fault: str) -> LeaderqError | None:
        if self.is_cut:
            return NotConnected("gone")
        self.is_cut = bool(fault)
        answer = self._apply(batch) if fault in ("", "reply") else None
        if fault:
            return NotConnected("gone") if fault == "unsent" else ConnectionLost("cut")
        return answer

    def _apply(self, batch: PackedMulti) -> LeaderqError | None:
        if batch.number != self.version:
            return BadVersion("behind", index=0)
        for at, group in enumerate(batch.groups, 1):
            if group.name in self.bad:
                return NodeExists("there", index=at)
        self.version += 1
        self.applied += [group.name for group in batch.groups]
        return None


def after_trouble(one: SendQueue, server: Server, failed: list[PackedMulti]) -> list[PackedMulti]:
    """What a tally does once all is answered; gives the batches that turned out to be applied."""
    blamed = one.blame(failed)
    if blamed is not None:
        culprit, _ = blamed.culprit()
        assert culprit.name in server.bad
        one.drop(culprit)
        return []
    one.set_aside(failed)
    return one.reconcile(server.version, is_new=False)[0]


def one_round(one: SendQueue, server: Server, fault: Any) -> list[PackedMulti]:
    batches = []
    while (batch := one.next_batch()) is not None:
        batches.append(batch)
    for batch in batches:
        outcome = server.serve(batch, fault())
        answer(batch, outcome)
        one.is_halted = one.is_halted or outcome is not None
    done = one.take_applied()
    failed = one.take_failed()
    if failed:
        done += after_trouble(one, server, failed)
    one.is_halted = server.is_cut = False
    return done


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_whatever_answers_are_lost_each_group_is_applied_once_and_in_order(data):
    names = [f"{number}" for number in range(data.draw(st.integers(1, 12)))]
    one = line(
        *names,
        max_ops=data.draw(st.integers(2, 5)),
        window=data.draw(st.integers(1, 4)),
        max_bytes=data.draw(st.sampled_from([40, 100_000])),  # 40: small multis behind each
    )
    server = Server(set(data.draw(st.lists(st.sampled_from(names), max_size=2))))
    told: list[str] = []
    for turn in range(100):
        faults = ["", "", "reply", "request", "unsent"] if turn < 40 else [""]
        done = one_round(one, server, partial(data.draw, st.sampled_from(faults)))
        told += [group.name for batch in done for group in batch.groups]
    assert server.applied == told == [name for name in names if name not in server.bad]
