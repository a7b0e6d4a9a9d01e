"""What users of other queues expect: a pause, a time to live, pushes in a multi of one's own, and
room for others.
"""

from __future__ import annotations

import math
from types import NoneType
from typing import Any

import pytest

from leaderq.dyno import Message, StaleLease
from leaderq.engine.dead_letters import Moved
from leaderq.errors import NodeExists, QueueFull
from leaderq.queues import DistributedQueue
from leaderq.zookeeper import Create
from leaderq.zookeeper.writing.groups import MULTI_BYTES
from leaderq.zookeeper.writing.in_flight import LEAST_BYTES
from simulation.scenarios import Guest, Scene, is_multi, scene
from simulation.test_dyno_defects import D, Side, is_about_claims, left, sides, texts


@scene(5)
def test_while_a_queue_is_paused_nobody_begins_a_message(s):
    a, b = sides(s, "ab")
    b.push([Message(id=name, payload=b"x") for name in "xy"])
    (one,) = a.pop(1, 5.0)
    assert b.pause()
    assert not b.pause()
    s.run(0.5)
    steps = s.world.steps
    assert b.pop(1, 5.0) == a.pop(1, 5.0) == []
    assert s.world.steps - steps < 3000, "it waits, and does not look again and again"
    assert b.pop_id("y") is None
    a.who.do(one.ack)
    waiting = a.who.begin(lambda: a.queue.pop(2, 60.0))
    s.run(1.0)
    assert b.resume()
    assert not b.resume()
    assert texts(waiting.result(1.0)) == ["x"]


@scene(5)
def test_a_message_that_nobody_has_begun_in_time_becomes_a_dead_letter(s):
    (a,) = sides(s, "a")
    a.push([Message(id="late", payload=b"1", expires_s=5), Message(payload=b"2", expires_s=60)])
    (shown,) = [one for one in a.peek(2) if one.id == "late"]
    assert shown.expires_s == 5.0
    s.run(6.0)
    assert texts(a.pop(2, 2.0)) == ["2"]
    (letter,) = a.who.do(lambda: list(a.queue.dead_letters.browse()))
    assert (letter.reason, letter.deliveries, letter.frame.id) == ("expired", 0, "late")
    assert a.get("late") is None
    assert a.who.do(a.queue.dead_letters.requeue) == Moved(1)
    s.run(10.0)
    assert texts(a.pop(1, 5.0)) == ["1"]


@scene(3)
def test_a_queue_with_a_limit_takes_no_more(s):
    a, b = sides(s, "ab", shards=("x", "y"))
    assert a.configure(max_messages=5).max_messages == 5
    s.run(0.1)
    found = b.push_each([Message(payload=b"1") for _ in range(8)])
    assert [type(one) for one in found] == [str] * 5 + [QueueFull] * 3
    s.run(0.5)
    for push in (lambda: a.push(Message()), lambda: a.push_unique(Message(id="a"))):
        with pytest.raises(QueueFull, match="'/d' is full"):
            push()
    a.ack(a.pop(2, 5.0, least=2))
    s.run(0.5)
    assert len(a.push([Message(), Message()])) == 2
    assert a.configure(max_messages=0).max_messages == 0
    assert len(a.push([Message() for _ in range(9)])) == 9


@scene(3)
def test_a_message_is_pushed_with_znodes_of_ones_own_or_not_at_all(s):
    (a,) = sides(s, "a")

    def write(*operations: Any) -> None:
        a.who.do(lambda: a.who.session.multi(operations))

    for name in "xy":
        write(Create(f"/{name}"), *a.push_operations(Message(id=name, payload=b"order")))
    with pytest.raises(NodeExists):
        write(*a.push_operations(Message()), Create("/x"))
    with pytest.raises(NodeExists):
        write(*a.push_operations(Message(id="x")))
    assert a.get("x").payload == b"order"
    found = a.pop(9, 5.0, least=2)
    assert len(found) == 2
    a.ack(found)
    assert left(s) == []


@scene(5)
def test_of_many_that_are_acknowledged_one_that_was_removed_spoils_no_other(s):
    a, b = sides(s, "ab")
    b.push([Message(id=name, payload=b"x") for name in "vwxyz"])
    found = a.pop(5, 5.0)
    assert b.remove("x")
    assert {one.id: type(error) for one, error in zip(found, a.ack(found), strict=True)} == {
        name: StaleLease if name == "x" else NoneType for name in "vwxyz"
    }
    assert left(s) == []


@scene(3)
def test_what_will_be_popped_next_is_asked_for_before_the_claims_are_sent(s):
    (a,) = sides(s, "a")
    a.push([Message()] * 20)
    (eleventh,) = (one for one in left(s) if one.endswith("0000000010"))
    asked = s.at(a.who, lambda one: getattr(one, "path", "") == eleventh, lambda: None)
    claimed = s.at(a.who, is_about_claims, lambda: known.extend(asked))
    known: list[Any] = []
    assert len(a.pop(10, 5.0)) == 10
    assert claimed
    assert known


def most_under_way(s: Scene, who: Guest, writer: Any, work: Any) -> tuple[float, int]:
    """By how many bytes this writer is most beyond its limit, and the most under way."""
    over, most = -math.inf, 0
    job = who.begin(work)
    while not job.is_done:
        if writer() is not None:
            queue = writer()._queue
            size = sum(one.size for one in list(queue.flight))
            over, most = max(over, size - queue.limit.size), max(most, size)
        s.run(0.0005)
    job.result()
    return over, most


@scene(1)
def test_bulk_work_keeps_to_its_limit_which_grows_where_the_servers_are_far(s):
    """Below the limit one multi more may begin."""
    one, other = s.guests("ab")
    side, many = Side(one), [Message(payload=bytes(1000)) for _ in range(2000)]
    queue = other.do(lambda: DistributedQueue(other.session, "/q"))
    other.do(queue.start)
    s.network.least_s = s.network.most_s = 0.05
    for over, most in (
        most_under_way(s, one, lambda: side.queue._nodes._writer, lambda: side.queue.push(many)),
        most_under_way(
            s, other, lambda: queue._putter.writer, lambda: queue.put_many([bytes(1000)] * 2000)
        ),
    ):
        assert 0 <= over < MULTI_BYTES
        assert most > 8 * LEAST_BYTES
    other.do(queue.close)


@scene(5)
def test_an_entry_whose_answer_is_lost_leaves_no_member_that_nobody_owns(s):
    (a,) = sides(s, "a")
    lost = s.lose(a.who, lambda one: is_multi(one) and f"{D}/members/".encode() in one.serialize())
    a.push(Message(payload=b"1"))
    assert texts(a.pop(1, 30.0)) == ["1"]
    assert lost
    assert len([one for one in s.cluster.znodes() if one.startswith(f"{D}/members/")]) == 1
