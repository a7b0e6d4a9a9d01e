"""What a review of the whole program found about the order and time of messages.

Of elections: ``test_election_promises``. Of a queue's values:
``test_queues.test_known_a_late_acknowledgement_of_a_value_that_is_not_the_last_is_not_refused``.
"""

from __future__ import annotations

from leaderq.dyno import Message, Worker
from simulation.scenarios import Scene, scene
from simulation.test_dyno_defects import sides, texts


@scene(5)
def test_pop_where_and_pop_go_by_the_order_of_pushing(s: Scene) -> None:
    (a,) = sides(s, "a")
    for how in ("pop_where", "pop"):
        a.push(Message(payload=b"first", timeout_s=1.0))
        a.push(Message(payload=b"second"))
        s.run(2.0)
        popped = [a.pop_where(lambda _: True)] if how == "pop_where" else a.pop(1, 5.0)
        assert texts(popped) == ["first"]
        a.ack([*popped, *a.pop(1, 5.0)])


@scene(5)
def test_a_group_goes_by_its_best_waiting_member(s: Scene) -> None:
    """Its head comes first, and before what is less urgent than the one that waits behind it."""
    (a,) = sides(s, "a")
    a.push(Message(payload=b"head", group="g", priority=50))
    a.push(Message(payload=b"urgent", group="g", priority=0))
    for number in range(100):
        a.push(Message(payload=b"%d" % number, priority=10))
    heads = a.pop(1, 5.0)
    a.ack(heads)
    assert texts([*heads, *a.pop(1, 5.0)]) == ["head", "urgent"]


@scene(3)
def test_a_handler_that_hangs_keeps_its_message_for_a_quarter_of_an_hour(s: Scene) -> None:
    a, b = sides(s, "ab", lease_s=1.0)
    a.push(Message(payload=b"x"))
    worker = Worker(a.queue, lambda _delivery: s.world.park(10_000.0), threads=1)
    a.who.do(worker.start)
    s.run(2.0)
    assert b.pop(1, 120.0) == []
    s.run(700.0)
    assert b.pop(1, 60.0) == []
    assert texts(b.pop(1, 60.0)) == ["x"]
