"""Pushing, popping and settling on a real server."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leaderq.dyno import DynoQueue, Message, StaleLease
from leaderq.queues import Retry
from leaderq.testing import eventually
from leaderq.zookeeper import Session

Open = Callable[..., Session]


def texts(deliveries: list) -> list[str]:
    return [one.payload.decode() for one in deliveries]


def test_what_is_due_comes_by_priority_and_then_in_order(session: Session) -> None:
    with DynoQueue(session, "/d") as queue:
        for number, priority in enumerate([5, 0, 5, 3, 0]):
            queue.push(Message(payload=b"%d-%d" % (priority, number), priority=priority))
        popped = queue.pop(5, 5)
        assert texts(popped) == ["0-1", "0-4", "3-3", "5-0", "5-2"]
        assert queue.ack(popped) == [None] * 5
        assert queue.pop(1) == []
        assert queue.shard_sizes() == {"0": {"messages": 0, "resting": 0, "leased": 0, "dead": 0}}


def test_a_delayed_message_comes_when_it_is_due(session: Session) -> None:
    with DynoQueue(session, "/d") as queue:
        queue.push([Message(payload=b"later", timeout_s=1.0), Message(payload=b"now", priority=9)])
        assert texts(queue.pop(1, 5)) == ["now"]
        assert queue.pop(1) == []
        assert texts(queue.pop(1, 30)) == ["later"]


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


def test_a_released_or_postponed_message_has_not_failed(session: Session) -> None:
    with DynoQueue(session, "/d") as queue:
        queue.push(Message(payload=b"one"))
        (one,) = queue.pop(1, 5)
        one.release()
        (one,) = queue.pop(1, 5)
        one.postpone(0.3)
        assert queue.pop(1) == []
        (one,) = queue.pop(1, 30)
        assert (one.failures, one.deliveries) == (0, 3)


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


def test_of_two_that_ensure_one_id_one_pushes(session: Session) -> None:
    with DynoQueue(session, "/d") as queue:
        assert queue.ensure(Message(id="a", payload=b"1"))
        assert not queue.ensure(Message(id="a", payload=b"2"))
        found = queue.get("a")
        assert found is not None
        assert found.payload == b"1"
        (one,) = queue.pop(1, 5)
        one.ack()
        assert queue.get("a") is None
        assert queue.ensure(Message(id="a", payload=b"3"))


def test_a_rescheduled_message_keeps_its_priority(session: Session) -> None:
    with DynoQueue(session, "/d") as queue:
        queue.push(Message(id="late", payload=b"late", priority=1, timeout_s=3600))
        queue.push(Message(id="other", payload=b"other", priority=5))
        assert queue.set_timeout("late", 0)
        eventually(lambda: queue.peek(1)[0].id == "late")
        assert texts(queue.pop(2, 30)) == ["late", "other"]


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


def test_a_removed_message_is_gone_in_every_state(session: Session) -> None:
    with DynoQueue(session, "/d") as queue:
        waiting, leased, resting = queue.push(
            [Message(payload=b"w", priority=9), Message(payload=b"l"), Message(payload=b"r")]
        )
        one, two = queue.pop(2, 5)
        two.postpone(3600)
        for id in (waiting, leased, resting):
            assert queue.remove(id)
            assert not queue.remove(id)
        with pytest.raises(StaleLease):
            one.ack()
        assert queue.shard_sizes() == {"0": {"messages": 0, "resting": 0, "leased": 0, "dead": 0}}
