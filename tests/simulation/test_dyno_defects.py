"""The defects of Dyno-queues, D1 to D22 of ``docs/design/facts.md``, in simulated time: each test
would fail with its defect. That threads are daemons (D17) is a matter of real threads:
``tests/integration/dyno/test_messages.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from leaderq.dyno import DynoQueue, Message, OnConflict, StaleLease
from leaderq.engine.dead_letters import Moved
from leaderq.errors import NodeExists
from leaderq.threads import Retry
from simulation.scenarios import Guest, Scene, every_point, is_multi, nth, scene

D = "/d"
QUICK = Retry(attempts=3, first_s=0.01)
SOON_S = 0.1
"""Far less than any wait or lease; some round trips."""


class Side:
    """A queue in a process of its own; whatever is called is called there."""

    def __init__(self, who: Guest, **options: Any) -> None:
        self.who = who
        self.queue = who.do(lambda: DynoQueue(who.session, D, **options))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.queue, name)
        return lambda *given, **more: self.who.do(lambda: method(*given, **more), 200.0)


def sides(s: Scene, names: str, **options: Any) -> list[Side]:
    return [Side(one, **options) for one in s.guests(names)]


def numbered(first: int, last: int) -> list[Message]:
    return [Message(id=str(one), payload=b"%d" % one) for one in range(first, last)]


def texts(deliveries: list[Any]) -> list[str]:
    return [one.payload.decode() for one in deliveries]


def left(s: Scene) -> list[str]:
    """What lies in ZooKeeper of messages: themselves, claims, markers, ids."""
    kinds = ("/messages/", "/claims/", "/rests/", "/dead/", f"{D}/ids/")
    return [one for one in s.cluster.znodes() if any(kind in one for kind in kinds)]


@scene()
def test_d1_a_pop_that_found_nothing_returns_what_comes_while_it_waits(s):
    a, b = sides(s, "ab")
    a.pop(1)
    popping = a.who.begin(lambda: a.queue.pop(1, 60))
    s.run(s.world.faults())
    b.push(Message(payload=b"late"))
    assert texts(popping.result(SOON_S)) == ["late"]


@scene()
def test_d2_a_pop_of_more_than_there_are_waits_for_the_rest(s):
    a, b = sides(s, "ab")
    b.push(numbered(0, 4))
    popping = a.who.begin(lambda: a.queue.pop(10, 60, least=10))
    s.run(s.world.faults())
    b.push(numbered(4, 10))
    assert texts(popping.result(SOON_S)) == [str(number) for number in range(10)]


@scene()
def test_d3_a_lower_number_goes_first_whenever_it_became_due(s):
    (a,) = sides(s, "a")
    a.push(Message(payload=b"9, first", priority=9, timeout_s=0.3))
    a.push(Message(payload=b"9", priority=9))
    a.push(Message(payload=b"0", priority=0, timeout_s=0.5))
    s.run(1.0)
    assert texts(a.pop(3, 5)) == ["0", "9, first", "9"]


@scene()
def test_d4_a_message_that_is_rescheduled_keeps_its_priority(s):
    (a,) = sides(s, "a")
    a.push(Message(id="a", payload=b"a", priority=1, timeout_s=600))
    a.push(Message(payload=b"b", priority=2))
    assert a.set_timeout("a", 300)
    assert a.set_timeout("a", 0)  # it rests by now
    s.run(SOON_S)
    assert texts(a.pop(2, 5)) == ["a", "b"]
    assert not a.set_timeout("a", 0)  # it is under way


@pytest.mark.parametrize("what", ["request", "answer"])
@every_point(3)
def test_d5_a_message_under_way_is_not_handed_out_twice_whichever_request_is_lost(s, point, what):
    a, b = sides(s, "ab", lease_s=30.0, retry=QUICK)
    a.push(numbered(0, 2))
    lost = s.lose(a.who, nth(point), what)
    mine = a.pop(1, 10)
    assert [b.pop_id(one.id) for one in mine] == [None]
    yours = b.pop(2, 1)
    assert sorted(texts([*mine, *yours])) == ["0", "1"]
    assert a.ack(mine) + b.ack(yours) == [None, None]
    assert left(s) == []
    return lost


def is_about_claims(request: Any) -> bool:
    return is_multi(request) and f"{D}/shards/0/claims".encode() in request.serialize()


@pytest.mark.parametrize("when", ["reads", "claims"])
@scene(10)
def test_d6_a_bulk_pop_in_which_one_is_missing_returns_the_others(s, when):
    a, b = sides(s, "ab")
    a.push(numbered(0, 10))
    assert len(a.peek(10)) == 10
    held = s.lose(a.who, nth(1) if when == "reads" else is_about_claims, "held")
    popping = a.who.begin(lambda: a.queue.pop(10, 5, least=9))
    s.until(lambda: held)
    b.remove("4")
    s.heal(a.who)
    mine = popping.result(2.0)
    assert texts(mine) == [str(one) for one in range(10) if one != 4]
    a.ack(mine)
    assert left(s) == []


@scene(5)
def test_d7_due_times_of_any_length_are_compared_as_numbers(s):
    now_ms = [999_999_999_990]  # twelve digits, just before there are thirteen
    (a,) = sides(s, "a", now_ms=lambda: now_ms[0])
    a.push([Message(payload=b"later", timeout_s=0.02), Message(payload=b"now")])
    assert texts(a.pop(2, 0)) == ["now"]
    now_ms[0] += 20
    assert texts(a.pop(1, 5)) == ["later"]


@every_point(2)
def test_d8_a_consumer_that_dies_at_any_request_as_it_pops_does_not_block_the_head(s, point):
    a, b = sides(s, "ab", lease_s=600.0)
    b.push([Message(payload=b"head"), Message(payload=b"next")])
    struck = s.at(a.who, nth(point), a.who.process.kill)
    a.who.begin(lambda: a.queue.pop(1, 5))
    s.run(1.0)
    if not struck:
        a.who.process.kill()
    assert sorted(texts(b.pop(2, 20, least=2))) == ["head", "next"]
    return struck


AT_REST = dict.fromkeys(("remove at rest", "replace"), lambda one: one.postpone(600.0))
PREPARED: dict[str, Callable[[Any], object]] = {**AT_REST, "redrive": lambda one: one.kill()}
ACTS: dict[str, Callable[[DynoQueue, Any], object]] = {
    "push": lambda queue, _: queue.push([*numbered(0, 2), Message(payload=b"y")]),
    "replace": lambda queue, _: queue.push_unique(Message(id="x"), OnConflict.REPLACE),
    "extend": lambda _, one: one.extend(1.0),
    "postpone": lambda _, one: one.postpone(1.0),
    "kill": lambda _, one: one.kill(),
    "redrive": lambda queue, _: queue.dead_letters.requeue(),
    "remove": lambda queue, _: queue.remove("x"),
    "remove at rest": lambda queue, _: queue.remove("x"),
    "ack": lambda _, one: one.ack(),
    "nack": lambda _, one: one.nack(),
}


@pytest.mark.parametrize("act", ACTS)
@every_point(1)
def test_d9_whoever_dies_at_whichever_request_leaves_a_message_or_nothing_of_it(s, point, act):
    a, b = sides(s, "ab", retry=Retry(attempts=9, first_s=0.0))
    b.push(Message(id="x", payload=b"x"))
    (mine,) = a.pop(1, 5)
    if act in PREPARED:
        a.who.do(lambda: PREPARED[act](mine))
    struck = s.at(a.who, nth(point), a.who.process.kill)
    a.who.begin(lambda: ACTS[act](a.queue, mine))
    s.run(15.0)
    b.ack(b.pop(9, 2.0))
    b.remove("x")
    b.who.do(b.queue.dead_letters.drop)
    assert left(s) == []
    return struck


@scene()
def test_d10_one_id_is_in_one_shard_only(s):
    a, b = sides(s, "ab", shards=("a", "b"))
    x = {one: Message(id="x", payload=b"x", shard=one.who.name) for one in (a, b)}
    pushing = [one.who.begin(lambda one=one: one.queue.push_each([x[one]])) for one in (a, b)]
    refused = [isinstance(one.result()[0], NodeExists) for one in pushing]
    assert sorted(refused) == [False, True]
    a.ack(a.pop(1, 5))
    assert left(s) == []


@scene()
def test_d11_of_many_that_ensure_one_id_at_once_one_pushes(s):
    every = sides(s, "abcd")
    x = Message(id="x", payload=b"x")
    asked = [one.who.begin(lambda one=one: one.queue.ensure(x)) for one in every]
    assert sorted(one.result() for one in asked) == [False, False, False, True]
    assert every[0].size() == 1


@scene(3)
def test_d12_single_pushes_are_spread_over_all_shards(s):
    (a,) = sides(s, "a", shards=("a", "b", "c"))
    for one in numbered(0, 30):
        a.push(one)
    assert [sizes["messages"] for sizes in a.shard_sizes().values()] == [10, 10, 10]


@scene()
def test_d13_every_shard_is_served_while_one_consumer_lives(s):
    a, b = sides(s, "ab", shards=("a", "b", "c"))
    assert b.pop(1) == []
    b.who.process.kill()
    a.push([Message(payload=shard.encode(), shard=shard) for shard in "abc"])
    assert sorted(texts(a.pop(3, 30))) == ["a", "b", "c"]


@pytest.mark.parametrize("fate", ["fails", "dies"])
@scene(5)
def test_d14_a_message_that_fails_for_ever_is_set_aside_with_its_reason(s, fate):
    last, *others = sides(s, "abcd", retry=QUICK)
    last.push(Message(id="p", payload=b"poison"))
    for one in others:
        (poison,) = one.pop(1, 30)
        if fate == "dies":
            one.who.process.kill()
        else:
            one.who.do(lambda poison=poison: poison.nack(ValueError("cannot be read")))
    assert last.pop(1, 12.0) == []
    letters = last.queue.dead_letters
    (letter,) = last.who.do(lambda: [*letters.browse()])
    assert (letter.deliveries, letter.failures) == (3, 3)
    assert letter.reason == ("attempts" if fate == "fails" else "consumer died")
    assert letter.error == ("ValueError: cannot be read" if fate == "fails" else "")
    assert last.who.do(letters.requeue) == Moved(1)
    (again,) = last.pop(1, 30)
    assert (again.id, again.payload, again.failures) == ("p", b"poison", 0)


@pytest.mark.parametrize("late", ["ack", "nack", "extend", "release", "kill"])
@scene(5)
def test_d15_who_has_lost_its_lease_changes_nothing(s, late):
    a, b = sides(s, "ab", lease_s=1.0)
    b.push(Message(payload=b"a"))
    (lost,) = a.pop(1, 5)
    a.who.process.freeze()
    (taken,) = b.pop(1, 60, lease_s=60.0)
    a.who.process.thaw()
    with pytest.raises(StaleLease):
        a.who.do(getattr(lost, late))
    assert b.size() == 0
    b.ack([taken])
    assert left(s) == []


@scene(5)
def test_d16_leases_of_every_shard_are_looked_after_by_any_consumer(s):
    a, b = sides(s, "ab", shards=("a", "b"), lease_s=600.0)
    a.push([Message(payload=b"x", shard=shard) for shard in "ab" for _ in range(20)])
    assert len(a.pop(40, 30)) == 40
    a.who.process.kill()
    assert len(b.pop(40, 10)) == 40


@scene(3)
def test_d17_a_lease_lasts_a_minute_unless_told_otherwise(s):
    (a,) = sides(s, "a")
    a.push(Message(payload=b"a"))
    (one,) = a.pop(1, 5)
    assert 59 < one.until_s - a.who.process.clock_s() < 60.1


@scene(5)
def test_d18_peek_survives_a_head_that_is_gone_or_spoilt(s):
    (a,) = sides(s, "a")
    places = a.push([Message(payload=b"%d" % one) for one in range(3)])
    names = [one.rpartition("/")[2] for one in places]
    assert len(a.peek(3)) == 3
    s.ask(lambda beside: beside.set(f"{D}/shards/0/messages/{names[0]}", b"spoilt"))
    s.ask(lambda beside: beside.delete(f"{D}/shards/0/messages/{names[1]}"))
    assert [one.payload for one in a.peek(3)] == [b"2"]
    assert texts(a.pop(1, 5)) == ["2"]
    assert [one.reason for one in a.who.do(lambda: [*a.queue.dead_letters.browse()])] == ["corrupt"]


@scene()
def test_d19_what_comes_again_keeps_its_priority_and_its_place(s):
    a, b = sides(s, "ab", lease_s=1.0)
    assert b.pop(1) == []
    a.push(Message(payload=b"old", priority=5))
    assert texts(a.pop(1, 5)) == ["old"]
    b.push([Message(payload=b"new", priority=5), Message(payload=b"low", priority=6)])
    s.run(3.0)
    assert texts(b.pop(3, 5)) == ["old", "new", "low"]


@scene(3)
def test_d20_a_predicate_sees_the_message_and_returns_its_payload(s):
    (a,) = sides(s, "a")
    a.push([Message(payload=b"priority"), Message(payload=b"wanted", headers={"kind": "x"})])
    assert a.find(lambda message: message.payload == b"headers") is None
    assert a.pop_where(lambda message: message.headers.get("kind") == "x").payload == b"wanted"


@pytest.mark.parametrize("who", ["the same consumer", "who redeemed it"])
@scene()
def test_d21_a_lease_that_is_extended_as_it_is_acknowledged_brings_nothing_back(s, who):
    a, b = sides(s, "ab")
    a.push(Message(payload=b"a"))
    (one,) = a.pop(1, 5)
    other = one if who == "the same consumer" else b.redeem(str(one.receipt))
    extender = a if other is one else b
    jobs = [a.who.begin(one.ack), extender.who.begin(lambda: other.extend(1.0))]
    errors = []
    for job in jobs:
        try:
            job.result()
        except StaleLease as error:
            errors.append(error)
    if left(s):  # the extension came first
        extender.who.do(other.ack)
    assert len(errors) <= 1
    assert left(s) == []
    s.run(5.0)
    assert b.pop(1, 0.0) == []


@scene(3)
def test_d22_figures_tell_the_due_from_the_delayed_and_how_old_the_oldest_is(s):
    (a,) = sides(s, "a")
    a.push([Message(), Message(payload=b"delayed", timeout_s=600), Message()])
    a.pop(1, 5)
    s.run(10.0)
    figures = a.figures()["0"]
    assert (figures.due, figures.delayed, figures.leased, figures.dead) == (1, 1, 1, 0)
    assert 10.0 <= figures.oldest_due_s < 10.5
