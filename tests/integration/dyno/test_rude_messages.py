"""Dyno queues under rude users, and operators with a shell."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from forks import in_child
from mute import raising

from leaderq.dyno import Delivery, DynoQueue, Kill, Message, Postpone, StaleLease, Worker
from leaderq.errors import (
    BadVersion,
    ConfigurationError,
    LeaderqError,
    NodeExists,
    NoNode,
    QueueClosed,
)
from leaderq.queues import Retry
from leaderq.testing import eventually
from leaderq.zookeeper import Check, Create, Operation, SetData

D = "/d"
NOTHING = {"0": {"messages": 0, "resting": 0, "leased": 0, "dead": 0}}
QUICK = Retry(attempts=3, first_s=0.01)


def popped(queue: DynoQueue) -> Delivery:
    (one,) = queue.pop(1, 30)
    return one


@pytest.mark.parametrize("how", ["ack", "kill", "remove", "clear"])
def test_a_message_whose_id_was_deleted_by_hand_can_be_settled(session, how):
    with DynoQueue(session, D) as queue:
        queue.push([Message(id="a"), Message(id="b")])
        session.delete(f"{D}/ids/a")
        one = popped(queue)
        if how == "clear":
            assert queue.clear() == 2
        elif how == "remove":
            assert queue.remove(f"0/{one.name}")
        else:
            getattr(one, how)()
        for rest in queue.pop(1):
            assert queue.ack([rest]) == [None]
        sizes = queue.shard_sizes()["0"]
        assert (sizes["messages"], sizes["leased"], sizes["dead"]) == (0, 0, int(how == "kill"))


ROOTS = ["/", "/zookeeper", "/zookeeper/quota/q", "d", "/d/"]


def test_times_and_texts_that_cannot_be_are_refused_where_they_are_given(session):
    wrong: dict[str, list[Any]] = {"lease_s": [-1, float("nan"), "1"], "ageing_s": ["x", -1]}
    wrong |= {"retry": [3], "body_store": [5], "shards": [()], "root": ROOTS}
    for name, values in wrong.items():
        for value in values:
            with pytest.raises(ConfigurationError):
                DynoQueue(session, **{"root": D, name: value})
    with DynoQueue(session, D, shards="one") as queue:
        assert queue.push(Message(payload=b"1"))[0].startswith("one/")
        one = popped(queue)
        wrong_calls: list[Callable[[], object]] = [
            lambda: queue.push("abc"),
            lambda: queue.pop(1.5),
            lambda: queue.pop(1, least="1"),
            lambda: queue.ack([None]),
            lambda: queue.keep(["a"]),
            lambda: queue.keep([], ending=never),
            lambda: queue.keep([], extended=never),
            lambda: queue.keep([], ending=5),
            lambda: Worker(queue, print, ending=never),
            lambda: Worker(queue, print, ending=5),
            lambda: queue.let_go([5]),
            lambda: queue.redeem("0/x/1"),
            lambda: one.postpone(-1),
            lambda: one.extend(float("inf")),
            lambda: one.nack(delay_s=float("nan")),
        ]
        for call in wrong_calls:
            with pytest.raises(ConfigurationError):
                call()
        assert queue.get("\ud800") is None
        one.ack()


def test_a_result_is_written_with_the_acknowledgement_or_neither(session):
    session.ensure_path("/own/ids")
    session.create("/own/term", b"7")
    with DynoQueue(session, D) as queue:
        queue.push(Message(id="a"))
        one = popped(queue)
        refused: list[tuple[Operation, type[LeaderqError]]] = [
            (Check("/own/term", 3), BadVersion),
            (Create("/own/term"), NodeExists),
            (SetData("/own/ids/gone", b""), NoNode),
        ]
        for operation, error in refused:
            with pytest.raises(error) as caught:
                one.ack([Create("/own/result"), operation])
            assert caught.value.index == 1  # among these
            assert session.exists("/own/result") is None
            assert queue.shard_sizes()["0"]["leased"] == 1
        one.ack([Create("/own/result", b"done"), Check("/own/term", 0)])
        assert session.get("/own/result")[0] == b"done"
        assert queue.shard_sizes() == NOTHING
        with pytest.raises(StaleLease):
            one.ack([Create("/own/other")])
        assert session.exists("/own/other") is None


async def never(_: Delivery) -> None:
    raise AssertionError


def ack_and_raise(one: Delivery) -> None:
    one.ack()
    raise ValueError("late")


class Untold(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


ENDS: dict[str, tuple[Callable[[Delivery], object], int, str | None]] = {
    "it returns": (lambda _: None, 1, None),
    "interrupt": (raising(KeyboardInterrupt()), 3, "attempts"),
    "coroutine": (never, 3, "attempts"),
    "acknowledged, then raised": (ack_and_raise, 1, None),
    "released": (Delivery.release, 2, None),
    "postponed to never": (lambda _: raising(Postpone(float("nan"))), 2, None),
    "killed": (raising(Kill("no good")), 1, "no good"),
    "untold": (raising(Untold()), 3, "attempts"),
    "not text": (raising(ValueError("\ud800")), 3, "attempts"),
    "never again": (raising(KeyError("bad")), 1, "KeyError: 'bad'"),
    "once more": (raising(TimeoutError()), 2, "attempts"),
}
"""What a handler does, how often it is called, and why the message is dead then."""


def test_a_worker_survives_every_way_in_which_a_handler_can_end(session, caplog):
    # pytest-xdist cannot pass on a log that is not text
    caplog.set_level(logging.CRITICAL, "leaderq.dyno.worker")
    calls: Counter[str] = Counter()

    def handle(one: Delivery) -> object:
        act, most, reason = ENDS[one.payload.decode()]
        calls[one.payload.decode()] += 1
        return None if reason is None and one.deliveries == most > 1 else act(one)

    with DynoQueue(session, D, retry=QUICK) as queue:
        queue.push([Message(payload=how.encode()) for how in ENDS])
        retry = {LookupError: None, OSError: Retry(attempts=2, first_s=0)}
        with Worker(queue, handle, threads=2, retry=retry):
            eventually(lambda: queue.shard_sizes()["0"]["messages"] == 0)
        dead = {
            letter.frame.payload.decode(): letter.reason for letter in queue.dead_letters.browse()
        }
        assert dead == {how: reason for how, (_, _, reason) in ENDS.items() if reason is not None}
        assert calls == {how: most for how, (_, most, _) in ENDS.items()}


def test_a_queue_is_of_no_use_in_a_fork_and_does_not_hang_there(session):
    with DynoQueue(session, D) as queue:
        queue.pop(1)

        def refused() -> None:
            with pytest.raises(QueueClosed):
                queue.pop(1, None)

        in_child(refused)
