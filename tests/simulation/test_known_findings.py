"""What a review of the whole program found about order and time, and what stands until the named
issue mends it: as it is today, so that whoever mends it finds the scenario here and turns it round.

Of elections: ``test_election_promises`` (issue 28). Of a queue's values:
``test_queues.test_known_a_late_acknowledgement_of_a_value_that_is_not_the_last_is_not_refused``.
"""

from __future__ import annotations

import pytest

from leaderq.dyno import Message, StaleLease, Worker
from simulation.scenarios import Scene, scene
from simulation.test_dyno_defects import sides, texts

# -- messages: issue 31 ----------------------------------------------------------------------------


@scene(5)
def test_known_issue_31_pop_keeps_what_it_has_until_its_lease_is_nearly_over(s: Scene) -> None:
    """queues.md 1: ``pop(10, 6)`` waits for ten, with the lease of the first one running."""
    a, b = sides(s, "ab", lease_s=6.0)
    b.push(Message(payload=b"x"))
    (one,) = a.pop(10, 6.0)
    assert one.until_ms / 1000 - a.who.process.calendar_s() < 0.2
    (again,) = b.pop(1, 5.0)
    assert again.failures == 1
    with pytest.raises(StaleLease):
        a.who.do(one.ack)


@scene(5)
def test_known_issue_31_a_calendar_that_is_ahead_takes_the_leases_of_others(s: Scene) -> None:
    """queues.md 2: leases are compared with this host's calendar."""
    a, b = sides(s, "ab", lease_s=30.0)
    b.who.process.skew_s = 40.0
    a.push(Message(payload=b"x"))
    (one,) = a.pop(1, 5.0)
    (robbed,) = b.pop(1, 5.0)
    assert robbed.failures == 1
    with pytest.raises(StaleLease):
        a.who.do(one.ack)


@scene(5)
def test_known_issue_31_a_shard_that_a_consumer_was_not_told_of_is_never_served(s: Scene) -> None:
    """queues.md 3: the shards are each process's own keyword."""
    (a,) = sides(s, "a")
    assert a.pop(1) == []
    (b,) = sides(s, "b", shards=("a", "b"))
    b.push([Message(payload=b"x") for _ in range(4)])
    assert a.pop(1, 10.0) == []


@scene(5)
def test_known_issue_31_a_redeemed_delivery_is_still_its_former_owners(s: Scene) -> None:
    """queues.md 6: ``redeem`` only reads."""
    a, b = sides(s, "ab")
    a.push(Message(payload=b"x"))
    (one,) = a.pop(1, 5.0)
    redeemed = b.redeem(str(one.receipt))
    a.who.do(one.ack)
    with pytest.raises(StaleLease):
        b.who.do(redeemed.ack)


@scene(5)
def test_known_issue_31_pop_where_goes_by_due_time_and_pop_by_push(s: Scene) -> None:
    """queues.md 7"""
    (a,) = sides(s, "a")
    for how, first in (("pop_where", "second"), ("pop", "first")):
        a.push(Message(payload=b"first", timeout_s=1.0))
        a.push(Message(payload=b"second"))
        s.run(2.0)
        popped = [a.pop_where(lambda _: True)] if how == "pop_where" else a.pop(1, 5.0)
        assert texts(popped) == [first]
        a.ack([*popped, *a.pop(1, 5.0)])


@scene(5)
def test_known_issue_31_an_urgent_message_waits_behind_the_head_of_its_group(s: Scene) -> None:
    """queues.md 10: a group goes by its first member's priority."""
    (a,) = sides(s, "a")
    a.push(Message(payload=b"head", group="g", priority=50))
    a.push(Message(payload=b"urgent", group="g", priority=0))
    for number in range(100):
        a.push(Message(payload=b"%d" % number, priority=10))
        a.ack([one for one in a.pop(1, 5.0) if one.payload not in (b"head", b"urgent")])
    assert {one.payload for one in a.peek(2)} == {b"head"}


@scene(3)
def test_known_issue_31_a_handler_that_hangs_keeps_its_message_for_ever(s: Scene) -> None:
    """queues.md 11: by default a worker extends without end."""
    a, b = sides(s, "ab", lease_s=1.0)
    a.push(Message(payload=b"x"))
    worker = Worker(a.queue, lambda _delivery: s.world.park(10_000.0), threads=1)
    a.who.do(worker.start)
    s.run(2.0)
    assert b.pop(1, 120.0) == []
