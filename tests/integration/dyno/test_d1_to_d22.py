"""The defects of Dyno-queues, D1 to D22 of docs/design/facts.md: one test each, that it would
fail.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest

from leaderq.dyno import DynoQueue, Message, StaleLease
from leaderq.errors import NodeExists
from leaderq.queues import Retry
from leaderq.testing import eventually
from leaderq.zookeeper import Session

Open = Callable[..., Session]
D = "/d"
QUICK = Retry(attempts=3, first_s=0.01)


def texts(deliveries: list) -> list[str]:
    return [one.payload.decode() for one in deliveries]


def pushed_later(queue: DynoQueue, after_s: float, *messages: Message) -> threading.Timer:
    timer = threading.Timer(after_s, queue.push, [messages])
    timer.start()
    return timer


def empty(queue: DynoQueue) -> bool:
    return all(not any(sizes.values()) for sizes in queue.shard_sizes().values())


def test_d1_a_pop_that_finds_nothing_returns_what_comes_while_it_waits(session: Session) -> None:
    with DynoQueue(session, D) as queue:
        queue.pop(1)
        timer = pushed_later(queue, 0.3, Message(payload=b"late"))
        began = time.monotonic()
        assert texts(queue.pop(1, 60)) == ["late"]
        # far from the whole wait; speeds are in the benchmarks
        assert time.monotonic() - began < 30
        timer.join()


def test_d2_a_pop_of_more_than_there_are_waits_for_the_rest(session: Session) -> None:
    with DynoQueue(session, D) as queue:
        queue.push([Message(payload=b"%d" % number) for number in range(4)])
        timer = pushed_later(
            queue, 0.3, *(Message(payload=b"%d" % number) for number in range(4, 10))
        )
        assert texts(queue.pop(10, 60)) == [str(number) for number in range(10)]
        timer.join()


def test_d3_a_lower_number_goes_first_whenever_it_became_due(session: Session) -> None:
    with DynoQueue(session, D) as queue:
        queue.push(Message(payload=b"9", priority=9))
        time.sleep(0.01)
        queue.push(Message(payload=b"0", priority=0, timeout_s=0.01))
        time.sleep(0.05)
        assert texts(queue.pop(2, 5)) == ["0", "9"]


def test_d4_a_message_that_is_rescheduled_keeps_its_priority(session: Session) -> None:
    with DynoQueue(session, D) as queue:
        queue.push(
            [
                Message(id="a", payload=b"a", priority=1, timeout_s=600),
                Message(payload=b"b", priority=2),
            ]
        )
        assert queue.set_timeout("a", 0)
        eventually(lambda: len(queue.peek(2)) == 2)
        assert texts(queue.pop(2, 5)) == ["a", "b"]


def test_d5_a_message_in_flight_is_not_popped_by_its_id_either(opened: Open) -> None:
    with DynoQueue(opened(), D) as one, DynoQueue(opened(), D) as other:
        one.push(Message(id="a", payload=b"a"))
        assert texts(one.pop(1, 5)) == ["a"]
        assert one.pop_id("a") is None
        assert other.pop_id("a") is None


def test_d6_a_bulk_pop_in_which_one_is_missing_returns_the_others(opened: Open) -> None:
    with DynoQueue(opened(), D) as one, DynoQueue(opened(), D) as other:
        one.push([Message(id=f"{number}", payload=b"%d" % number) for number in range(10)])
        assert len(one.peek(10)) == 10
        other.remove("4")
        assert texts(one.pop(10, 5, least=9)) == [
            str(number) for number in range(10) if number != 4
        ]


def test_d7_due_times_of_any_length_are_compared_as_numbers(session: Session) -> None:
    clock = [999_999_999_990]  # twelve digits, just before there are thirteen
    with DynoQueue(session, D, now_ms=lambda: clock[0]) as queue:
        queue.push([Message(payload=b"later", timeout_s=0.02), Message(payload=b"now")])
        assert texts(queue.pop(2, 0)) == ["now"]
        clock[0] += 20
        assert texts(queue.pop(1, 5)) == ["later"]


def test_d8_a_consumer_that_dies_as_it_pops_does_not_block_the_head(opened: Open) -> None:
    with DynoQueue(opened(), D, lease_s=600) as dying, DynoQueue(opened(), D) as other:
        dying.push([Message(payload=b"head"), Message(payload=b"next")])
        assert texts(dying.pop(1, 5)) == ["head"]
        assert texts(other.pop(1, 5)) == ["next"]
        dying._session.close()
        assert texts(other.pop(1, 60)) == ["head"]


def test_d9_a_message_removed_in_flight_leaves_nothing_behind(session: Session) -> None:
    with DynoQueue(session, D) as queue:
        queue.push(Message(id="a", payload=b"a"))
        (mine,) = queue.pop(1, 5)
        assert queue.remove("a")
        assert empty(queue)
        assert session.children(f"{D}/ids") == []
        with pytest.raises(StaleLease):
            mine.ack()


def test_d10_one_id_is_in_one_shard_only(session: Session) -> None:
    with DynoQueue(session, D, shards=("a", "b")) as queue:
        queue.push(Message(id="x", payload=b"x", shard="a"))
        with pytest.raises(NodeExists):
            queue.push(Message(id="x", payload=b"x", shard="b"))
        (one,) = queue.pop(1, 5)
        one.ack()
        assert empty(queue)


def test_d11_of_many_that_ensure_one_id_at_once_one_pushes(opened: Open) -> None:
    queues = [DynoQueue(opened(), D) for _ in range(4)]
    new: list[bool] = []
    threads = [
        threading.Thread(target=lambda q=queue: new.append(q.ensure(Message(id="x", payload=b"x"))))
        for queue in queues
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(new) == [False, False, False, True]
    assert queues[0].size() == 1
    for queue in queues:
        queue.close()


def test_d12_single_pushes_are_spread_over_all_shards(session: Session) -> None:
    with DynoQueue(session, D, shards=("a", "b", "c")) as queue:
        for number in range(30):
            queue.push(Message(payload=b"%d" % number))
        assert [sizes["messages"] for sizes in queue.shard_sizes().values()] == [10, 10, 10]


def test_d13_every_shard_is_served_while_one_consumer_lives(session: Session) -> None:
    with DynoQueue(session, D, shards=("a", "b", "c")) as queue:
        queue.push([Message(payload=shard.encode(), shard=shard) for shard in "abc"])
        assert sorted(texts(queue.pop(3, 30))) == ["a", "b", "c"]


def test_d14_a_message_that_fails_for_ever_is_set_aside_with_its_reason(session: Session) -> None:
    with DynoQueue(session, D, retry=QUICK) as queue:
        queue.push(Message(id="p", payload=b"poison"))
        for _ in range(3):
            queue.pop(1, 30)[0].nack(ValueError("cannot be read"))
        (letter,) = queue.dead_letters.browse()
        assert (letter.reason, letter.deliveries, letter.failures) == ("attempts", 3, 3)
        assert letter.error == "ValueError: cannot be read"
        assert queue.dead_letters.redrive() == 1
        (again,) = queue.pop(1, 30)
        assert (again.id, again.payload, again.failures) == ("p", b"poison", 0)


def test_d15_who_has_lost_its_lease_cannot_acknowledge(opened: Open) -> None:
    with DynoQueue(opened(), D, lease_s=0.1) as late, DynoQueue(opened(), D) as other:
        late.push(Message(payload=b"a"))
        (lost,) = late.pop(1, 5)
        (taken,) = other.pop(1, 60)
        with pytest.raises(StaleLease):
            lost.ack()
        assert other.size() == 0
        taken.ack()


def test_d16_leases_of_every_shard_are_looked_after_by_any_consumer(opened: Open) -> None:
    shards = ("a", "b")
    with DynoQueue(opened(), D, shards=shards, lease_s=0.1) as dying:
        dying.push(
            [Message(payload=shard.encode(), shard=shard) for shard in shards for _ in range(20)]
        )
        assert len(dying.pop(40, 30)) == 40
    with DynoQueue(opened(), D, shards=shards) as other:
        assert len(other.pop(40, 60)) == 40


def test_d17_a_lease_lasts_a_minute_unless_told_otherwise_and_threads_are_daemons(
    session: Session,
) -> None:
    before = set(threading.enumerate())
    with DynoQueue(session, D) as queue:
        queue.push(Message(payload=b"a"))
        (one,) = queue.pop(1, 5)
        assert 55 < (one.until_ms - time.time() * 1000) / 1000 < 61
        assert all(thread.daemon for thread in set(threading.enumerate()) - before)


def test_d18_peek_survives_a_head_that_is_gone_or_spoilt(session: Session) -> None:
    with DynoQueue(session, D) as queue:
        names = [
            id.rpartition("/")[2]
            for id in queue.push([Message(payload=b"%d" % number) for number in range(3)])
        ]
        assert len(queue.peek(3)) == 3
        session.set(f"{D}/shards/0/messages/{names[0]}", b"spoilt")
        session.delete(f"{D}/shards/0/messages/{names[1]}")
        assert [message.payload for message in queue.peek(3)] == [b"2"]
        assert texts(queue.pop(1, 5)) == ["2"]
        assert [letter.reason for letter in queue.dead_letters.browse()] == ["corrupt"]


def test_d19_what_comes_again_keeps_its_priority_and_its_place(opened: Open) -> None:
    with DynoQueue(opened(), D, lease_s=0.1) as first, DynoQueue(opened(), D) as other:
        first.push(Message(payload=b"old", priority=5))
        assert texts(first.pop(1, 5)) == ["old"]
        first.push([Message(payload=b"new", priority=5), Message(payload=b"low", priority=6)])
        eventually(lambda: other.process_unacks() >= 0 and other.peek(1)[0].payload == b"old")
        assert texts(other.pop(3, 5)) == ["old", "new", "low"]


def test_d20_a_predicate_sees_the_message_and_returns_its_payload(session: Session) -> None:
    with DynoQueue(session, D) as queue:
        queue.push(
            [Message(payload=b"priority"), Message(payload=b"wanted", headers={"kind": "x"})]
        )
        assert not queue.contains(lambda message: message.payload == b"headers")
        found = queue.pop_where(lambda message: message.headers.get("kind") == "x")
        assert found is not None
        assert found.payload == b"wanted"


def test_d21_a_lease_is_not_extended_once_the_message_is_acknowledged(session: Session) -> None:
    with DynoQueue(session, D) as queue:
        queue.push(Message(payload=b"a"))
        (one,) = queue.pop(1, 5)
        one.ack()
        with pytest.raises(StaleLease):
            one.extend(60)
        assert empty(queue)


def test_d22_figures_tell_the_due_from_the_delayed_and_how_old_the_oldest_is(
    session: Session,
) -> None:
    with DynoQueue(session, D) as queue:
        queue.push(
            [
                Message(payload=b"due"),
                Message(payload=b"delayed", timeout_s=600),
                Message(payload=b"due"),
            ]
        )
        (one,) = queue.pop(1, 5)
        figures = queue.figures()["0"]
        assert (figures.due, figures.delayed, figures.leased, figures.dead) == (1, 1, 1, 0)
        assert figures.oldest_due_s is not None
        assert 0 <= figures.oldest_due_s < 60
        one.ack()


def test_no_message_is_popped_twice_by_many_that_pop_at_once(opened: Open) -> None:
    queues = [DynoQueue(opened(), D) for _ in range(4)]
    queues[0].push([Message(payload=b"%d" % number, priority=number % 10) for number in range(400)])
    seen: Counter[bytes] = Counter()
    lock = threading.Lock()

    def consume(queue: DynoQueue) -> None:
        while popped := queue.pop(10, 1.0, least=1):
            with lock:
                seen.update(one.payload for one in popped)
            assert queue.ack(popped) == [None] * len(popped)

    threads = [threading.Thread(target=consume, args=[queue]) for queue in queues]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 400
    assert set(seen.values()) == {1}
    for queue in queues:
        queue.close()
