"""Pushing, popping and settling on a real server."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from leaderq.dyno import DynoQueue, Message, StaleLease
from leaderq.queues import Retry
from leaderq.zookeeper import Session

Open = Callable[..., Session]


def texts(deliveries: list) -> list[str]:
    return [one.payload.decode() for one in deliveries]


def test_what_is_due_comes_by_priority_and_then_in_order(session: Session) -> None:
    before = set(threading.enumerate())
    with DynoQueue(session, "/d") as queue:
        for number, priority in enumerate([5, 0, 5, 3, 0]):
            queue.push(Message(payload=b"%d-%d" % (priority, number), priority=priority))
        popped = queue.pop(5, 5)
        assert texts(popped) == ["0-1", "0-4", "3-3", "5-0", "5-2"]
        assert all(thread.daemon for thread in set(threading.enumerate()) - before)
        assert queue.ack(popped) == [None] * 5
        assert queue.pop(1) == []
        assert queue.shard_sizes() == {"0": {"messages": 0, "resting": 0, "leased": 0, "dead": 0}}


def test_a_failed_message_comes_again_and_is_dead_after_as_many_failures_as_the_policy_says(
    session: Session,
) -> None:
    with DynoQueue(session, "/d", retry=Retry(attempts=3, first_s=0.01)) as queue:
        queue.push(Message(id="mine", payload=b"bad"))
        for failures in range(3):
            (one,) = queue.pop(1, 30)
            assert (one.failures, one.deliveries) == (failures, failures + 1)
            one.nack("no" if failures < 2 else None)
        assert queue.shard_sizes()["0"] == {"messages": 0, "resting": 0, "leased": 0, "dead": 1}
        (letter,) = queue.dead_letters.browse()
        assert (letter.failures, letter.error) == (3, "no"), (
            "the last failure counts, with or without an error"
        )


def test_a_lease_that_is_over_passes_to_another_and_the_former_owner_changes_nothing(
    opened: Open,
) -> None:
    with DynoQueue(opened(), "/d", lease_s=0.2) as first, DynoQueue(opened(), "/d") as second:
        first.push(Message(payload=b"one"))
        (mine,) = first.pop(1, 5)
        (theirs,) = second.pop(1, 30)
        assert (theirs.deliveries, theirs.failures) == (2, 1)
        for settle in (mine.ack, mine.release, mine.extend):
            with pytest.raises(StaleLease):
                settle()
        theirs.ack()
        with pytest.raises(StaleLease):
            theirs.ack()


def test_what_a_dead_consumer_had_passes_to_another_before_its_deadline(opened: Open) -> None:
    with DynoQueue(opened(), "/d", lease_s=600) as first, DynoQueue(opened(), "/d") as second:
        first.push(Message(payload=b"one"))
        assert first.pop(1, 5)
        assert second.pop(1) == []
        first._session.close()
        assert texts(second.pop(1, 30)) == ["one"]


def test_one_message_of_a_group_is_in_flight_and_in_order(opened: Open) -> None:
    with (
        DynoQueue(opened(), "/d", shards=("a", "b")) as first,
        DynoQueue(opened(), "/d", shards=("a", "b")) as second,
    ):
        first.push(
            [Message(payload=b"%d" % number, group="g", priority=9 - number) for number in range(3)]
        )
        for number in range(3):
            (one,) = (first if number % 2 else second).pop(1, 30)
            assert one.payload == b"%d" % number
            assert first.pop(2, 0.2) == second.pop(2, 0.2) == []
            one.ack()
