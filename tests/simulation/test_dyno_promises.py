"""What is promised of Dyno queues, in simulated time on simulated servers: when a message comes
again, to whom it belongs, in which order, and which one is meant; and what users of other queues
expect.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from leaderq import dyno, errors
from leaderq.base import clock
from leaderq.dyno import DynoQueue, Message, OnConflict, StaleLease, Unique, Worker, consumer
from leaderq.dyno.shard_view import ShardView
from leaderq.engine.dead_letters import Moved
from leaderq.threads import Retry
from leaderq.zookeeper import Check, Create
from simulation.scenarios import every_point, is_multi, nth, scene
from simulation.test_dyno_defects import D, Side, left, sides, texts


def dead(a: Side, *messages: Message) -> dyno.DynoDeadLetters:
    a.push(list(messages))
    for one in a.pop(len(messages), 5.0, least=len(messages)):
        a.who.do(one.kill)
    letters: dyno.DynoDeadLetters = a.who.do(lambda: a.queue.dead_letters)
    return letters


@scene(3)
def test_a_letter_that_is_sent_back_keeps_its_priority(s):
    (a,) = sides(s, "a", shards=("s" * 170,))
    letters = dead(a, Message(payload=b"late", priority=7))
    a.push(Message(payload=b"early", priority=3))
    assert a.who.do(letters.requeue) == Moved(1)
    early, late = a.pop(2, 5.0, least=2)
    assert texts([early, late]) == ["early", "late"]
    assert a.get(late.place).id == late.id == late.place


@scene(3)
def test_a_letter_tells_of_the_first_delivery_and_of_the_last_error(s):
    (a,) = sides(s, "a", retry=Retry(attempts=3, first_s=0.0))
    a.push(Message(payload=b"x"))
    (one,) = a.pop(1, 5.0)
    first_ms = a.who.do(clock.now_ms)
    for error in ("no", None, None):
        s.run(5.0)
        a.who.do(lambda one=one, error=error: one.nack(error))
        one = next(iter(a.pop(1, 5.0)), one)
    (letter,) = a.who.do(lambda: [*a.queue.dead_letters.browse()])
    assert abs(first_ms - letter.first_ms) < 1000
    assert letter.error == "no"


@scene(3)
def test_each_of_four_consumers_serves_a_shard_of_its_own_first(s):
    shards = ["a", "b", "c", "d"]
    every = sides(s, "wxyz", shards=shards)
    for one in every:
        assert one.pop(1, 0.0) == []
    s.run(8.0)
    every[0].push([Message(payload=b"x", shard=shard) for shard in shards * 2])
    s.run(1.0)
    assert sorted(one.pop(1, 5.0)[0].shard for one in every) == shards


@scene(5)
def test_who_waits_for_more_gets_what_there_is_before_a_third_of_the_first_lease_is_over(s):
    a, b = sides(s, "ab", lease_s=6.0)
    b.push(Message(payload=b"x"))
    began_s = s.now_s
    popping = a.who.begin(lambda: a.queue.pop(10, 30.0, least=10))
    s.run(1.0)
    b.push(Message(payload=b"y"))
    assert texts(popping.result()) == ["x", "y"]
    assert 1.9 < s.now_s - began_s < 2.1


@scene(3)
def test_a_lease_is_not_extended_while_its_message_is_being_acknowledged(s):
    (a,) = sides(s, "a", lease_s=3.0)
    a.push(Message(payload=b"x"))
    (one,) = a.pop(1, 5.0)
    a.keep([one])
    hand, receipt = a.queue._hand, one.receipt

    def acknowledge_slowly() -> None:
        with hand.writing([one]):
            clock.sleep(2.5)  # its lease is due to be extended meanwhile
            assert one.receipt == receipt
            assert one.left_s > 0
        one.ack()

    a.who.do(acknowledge_slowly)
    assert left(s) == []


@scene(5)
def test_a_delivery_is_counted_when_it_leaves_pop(s):
    a, b = sides(s, "ab")
    b.push(Message(payload=b"x"))
    popping = a.who.begin(lambda: a.queue.pop(2, None, least=2))
    s.run(1.0)
    a.who.do(a.queue.close)
    with pytest.raises(errors.QueueClosed):
        popping.result()
    (one,) = b.pop(1, 5.0)
    assert (one.deliveries, one.failures) == (1, 0)
    b.who.do(one.release)
    (again,) = b.pop(1, 5.0)
    assert again.deliveries == 2


@scene(2)
def test_consumers_that_meet_step_aside(s, monkeypatch):
    refused, done, real = [], [], ShardView.not_claimed

    def not_claimed(view, name, error=None):
        refused.append(name)
        return real(view, name, error)

    def work(queue):
        while len(done) < 60:
            for one in queue.pop(1, 0.2):
                one.ack()
                done.append(one.id)

    monkeypatch.setattr(ShardView, "not_claimed", not_claimed)
    every = sides(s, "abcdef")
    every[0].push([Message(payload=b"%d" % number) for number in range(60)])
    jobs = [one.who.begin(lambda one=one: work(one.queue)) for one in every]
    for job in jobs:
        job.result()
    assert len(set(done)) == 60
    assert len(refused) < 200


@pytest.mark.parametrize("what", ["request", "answer"])
@every_point(5)
def test_of_many_that_replace_one_message_at_once_one_survives(s, point, what):
    every = sides(s, "abc")
    every[0].push(Message(id="a", payload=b"first"))
    lost = s.lose(every[1].who, nth(point), what)

    def many(queue: DynoQueue) -> None:
        for _ in range(3):
            queue.push_unique(Message(id="a", payload=b"x"), OnConflict.REPLACE)

    jobs = [one.who.begin(lambda one=one: many(one.queue)) for one in every]
    for job in jobs:
        with suppress(errors.ConnectionLost):  # a read that breaks tells its caller so
            job.result()
    assert every[0].size() == 1
    every[1].ack(every[1].pop(1, 10))
    assert left(s) == []
    return lost


@pytest.mark.parametrize("end", ["queue", "session"])
@scene(10)
def test_a_pop_that_waits_ends_with_its_queue_or_its_session(s, end):
    (a,) = sides(s, "a")
    popping = a.who.begin(lambda: a.queue.pop(1, None))
    s.run(s.world.faults())
    a.who.do(a.queue.close if end == "queue" else a.who.session.close)
    with pytest.raises((errors.QueueClosed, errors.SessionClosed)):
        popping.result(1.0)
    with pytest.raises((errors.QueueClosed, errors.SessionClosed)):
        a.pop(1)


@scene(5)
def test_a_message_of_a_handler_that_hangs_passes_to_another_when_its_time_is_over(s):
    a, b = sides(s, "ab", lease_s=1.0)
    a.push(Message(payload=b"1"))
    worker = Worker(a.queue, lambda _: s.world.park(60.0), threads=1, most_s=5.0)
    a.who.do(worker.start)
    s.run(3.0)
    assert b.pop(1, 1.0) == []
    (one,) = b.pop(1, 6.0)
    assert one.failures == 1
    assert not a.who.do(lambda: worker.stop(0.1))


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
    s.run(6.0)
    assert texts(a.pop(2, 2.0)) == ["2"]
    (letter,) = a.who.do(lambda: list(a.queue.dead_letters.browse()))
    assert (letter.reason, letter.deliveries, letter.frame.id) == ("expired", 0, "late")
    assert a.who.do(a.queue.dead_letters.requeue) == Moved(1)
    s.run(10.0)
    assert texts(a.pop(1, 5.0)) == ["1"]


@scene(3)
def test_a_queue_with_a_limit_takes_no_more(s):
    a, b = sides(s, "ab", shards=("x", "y"))
    assert a.configure(max_messages=5).max_messages == 5
    s.run(0.1)
    found = b.push_each([Message(payload=b"1") for _ in range(8)])
    assert [type(one) for one in found] == [str] * 5 + [errors.QueueFull] * 3
    s.run(0.5)
    for push in (lambda: a.push(Message()), lambda: a.push_unique(Message(id="a"))):
        with pytest.raises(errors.QueueFull, match="'/d' is full"):
            push()
    a.ack(a.pop(2, 5.0, least=2))
    s.run(0.5)
    assert len(a.push([Message(), Message()])) == 2
    a.configure(max_messages=0)
    assert len(a.push([Message() for _ in range(9)])) == 9


@scene(3)
def test_a_message_is_pushed_with_znodes_of_ones_own_or_not_at_all(s):
    (a,) = sides(s, "a")

    def write(*operations: Any) -> None:
        a.who.do(lambda: a.who.session.multi(operations))

    for name in "xy":
        write(Create(f"/{name}"), *a.push_operations(Message(id=name, payload=b"order")))
    with pytest.raises(errors.NodeExists):
        write(*a.push_operations(Message()), Create("/x"))
    with pytest.raises(errors.NodeExists):
        write(*a.push_operations(Message(id="x")))
    assert a.get("x").payload == b"order"
    a.ack(a.pop(9, 5.0, least=2))
    assert left(s) == []


@scene(5)
def test_of_many_that_are_acknowledged_one_that_was_removed_spoils_no_other(s):
    a, b = sides(s, "ab")
    b.push([Message(id=name, payload=b"x") for name in "vwxyz"])
    found = a.pop(5, 5.0)
    assert b.remove("x")
    refused = {one.id: type(error) for one, error in zip(found, a.ack(found), strict=True) if error}
    assert refused == {"x": StaleLease}
    assert left(s) == []


@scene(5)
def test_an_entry_whose_answer_is_lost_leaves_no_member_that_nobody_owns(s):
    (a,) = sides(s, "a")
    lost = s.lose(a.who, lambda one: is_multi(one) and f"{D}/members/".encode() in one.serialize())
    a.push(Message(payload=b"1"))
    assert texts(a.pop(1, 30.0)) == ["1"]
    assert lost
    assert len([one for one in s.cluster.znodes() if one.startswith(f"{D}/members/")]) == 1


@scene(5)
def test_a_message_whose_id_is_another_s_by_now_is_reached_by_its_place(s):
    (a,) = sides(s, "a")
    a.push(Message(id="x", payload=b"1", headers={"is": "first"}, unique=Unique.STARTED))
    (first,) = a.pop(1, 5.0)
    a.push(Message(id="x", payload=b"2"))

    def is_first(one: Message) -> bool:
        return one.headers.get("is") == "first"

    assert a.pop_where(is_first) is None
    a.who.do(first.release)
    s.run(0.1)
    assert [a.get(one).payload for one in (first.place, "x")] == [b"1", b"2"]
    assert a.set_timeout(first.place, 0)
    a.who.do(a.pop_where(is_first).release)
    assert a.finish(first.place)
    assert not a.remove(first.place)
    assert texts(a.pop(2, 2.0, least=2)) == ["2"]


@scene(5)
def test_what_is_wanted_comes_in_the_order_of_pop(s):
    (a,) = sides(s, "a", shards=("x", "y"))
    a.push(Message(payload=b"delayed, first", timeout_s=1.0, shard="x"))
    a.push(Message(payload=b"later", shard="x"))
    a.push(Message(payload=b"worse", priority=5, shard="x"))
    a.push(Message(payload=b"far", timeout_s=100.0, shard="y"))
    a.push(Message(payload=b"better", priority=4, shard="y", headers={"to": "me"}))
    s.run(1.5)
    found = [a.pop_where(lambda one: True) for _ in range(5)]
    said = [None if one is None else one.payload for one in found]
    assert said == [b"delayed, first", b"later", b"better", b"worse", None]
    a.who.do(found[2].release)
    assert a.pop_where(lambda one: one.headers.get("to") == "you") is None
    assert a.pop_where(lambda one: one.headers.get("to") == "me").payload == b"better"


@scene(2)
def test_one_bad_message_of_many_is_told_in_its_place(s):
    (a,) = sides(s, "a")
    found = a.push_each([Message(), "no message", Message(shard="nowhere"), Message()])
    assert [type(one) for one in found] == [str, *[errors.ConfigurationError] * 2, str]
    assert a.size() == 2


@scene(2)
def test_a_letter_whose_id_is_taken_stays(s):
    (a,) = sides(s, "a")
    letters = dead(a, Message(id="x", payload=b"old"), Message(payload=b"nameless"))
    a.push(Message(id="x", payload=b"new"))
    assert a.who.do(letters.requeue) == Moved(1, left=1)
    assert sorted(texts(a.pop(2, 5.0, least=2))) == ["nameless", "new"]
    assert a.who.do(letters.requeue) == Moved(0, left=1)
    assert a.who.do(letters.drop) == Moved(1)


@pytest.mark.parametrize("skew_s", [-2.5, 0.0, 2.5])
def test_a_calendar_that_is_wrong_is_told_when_a_consumer_enters(skew_s, monkeypatch):
    told: list[str] = []
    monkeypatch.setattr(consumer.log, "warning", lambda said, *values: told.append(said % values))

    @scene(1)
    def test_calendar(s):
        (a,) = sides(s, "a")
        a.who.process.skew_s = skew_s
        a.pop(1)

    test_calendar()
    assert len(told) == (skew_s != 0.0)
    assert all(f"queue=/d s={skew_s:.1f}" in one for one in told)


@pytest.mark.parametrize("end", ["ack", "kill", "remove"])
@scene(3)
def test_an_id_that_was_freed_by_a_claim_stays_that_of_the_next_message(s, end):
    a, b = sides(s, "ab")
    a.push(Message(id="x", payload=b"1", unique=Unique.STARTED))
    assert not a.ensure(Message(id="x", payload=b"2"))
    popping = b.who.begin(lambda: b.queue.pop(2, None, least=2))
    s.run(1.0)
    a.push(Message(id="x", payload=b"2", timeout_s=600.0))
    b.who.do(b.queue.close)  # before anybody has seen the first one
    with suppress(errors.QueueClosed):
        popping.result()
    (one,) = a.pop(1, 5.0)
    assert (one.payload, one.deliveries) == (b"1", 1)
    act = (lambda: a.queue.remove(one.place)) if end == "remove" else getattr(one, end)
    for each in ([one.release] if end == "remove" else []) + [act]:
        a.who.do(each)
        assert a.get("x").payload == b"2"
        assert not a.ensure(Message(id="x", payload=b"3"))


@scene(3)
def test_what_was_only_looked_at_keeps_its_id(s):
    a, b = sides(s, "ab")
    a.push(Message(id="x", timeout_s=600.0, unique=Unique.STARTED))
    place = a.get("x").place
    for end, is_free in ((b.put_back, False), (b.ack, True)):
        found = b.take_out([place, "nowhere/00-0000000000000-00000000-0000000000"])
        assert not a.ensure(Message(id="x"))
        end(found)
        s.run(0.5)
        assert a.ensure(Message(id="x", timeout_s=600.0)) is is_free
    assert list(a.shard_sizes()) == ["0"]
    a.remove("x")
    assert left(s) == []


@pytest.mark.parametrize("note", ["late", "lost"])
@scene(3)
def test_a_note_of_a_place_does_not_lead_to_a_message_that_was_started(s, note):
    a, b, c = sides(s, "abc")
    c.pop(1, 0.0)
    about_x = [nth(at, lambda one: is_multi(one) and b"/ids/x" in one.serialize()) for at in (1, 2)]
    if note == "late":
        s.lose(a.who, about_x[1], "held")
    a.push(Message(id="x", payload=b"1", unique=Unique.STARTED))
    (one,) = c.pop(1, 5.0)
    if note == "lost":
        s.lose(b.who, about_x[0])
    b.push(Message(id="x", payload=b"2"))
    s.heal(a.who)
    s.run(1.0)
    assert a.get("x").payload == b"2"
    c.who.do(one.ack)
    assert a.get("x").payload == b"2"


@every_point(3)
def test_an_id_whose_message_was_done_meanwhile_is_not_taken_for_stale(s, point):
    a, b = sides(s, "ab")
    b.push(Message(id="x"))
    (one,) = b.pop(1, 5.0)
    a.size()
    held = s.lose(a.who, nth(point), "held")
    looking = a.who.begin(lambda: a.queue.find_stale(repair=True))
    s.run(0.5)
    b.who.do(one.ack)
    b.push(Message(id="x"))
    s.run(0.5)
    s.heal(a.who)
    looking.result()
    assert not b.ensure(Message(id="x"))
    return held


@scene(2)
def test_a_fence_that_does_not_hold_is_told_as_it_is(s):
    (a,) = sides(s, "a")
    s.ask(lambda beside: beside.create("/own", b"7"))
    for push in (a.push, a.push_unique):
        with pytest.raises(errors.BadVersion) as refused:
            push(Message(id="x"), fence=[Check("/own", 3)])
        assert refused.value.path == "/own"
    found = a.push_each([Message(), Message()], fence=(one for one in [Check("/own", 3)]))
    assert [type(one) for one in found] == [errors.BadVersion] * 2
    assert a.get("x") is None


@scene(2)
def test_a_predicate_that_only_makes_a_coroutine_chooses_nothing(s):
    async def wanted(_: object) -> bool:
        return False

    (a,) = sides(s, "a")
    dead(a, Message())
    a.push(Message(payload=b"1"))
    letters = a.queue.dead_letters
    for choose in (a.queue.pop_where, a.queue.find, lambda one: next(letters.browse(one))):
        with pytest.raises(errors.ConfigurationError, match="what is wanted returned <coroutine"):
            a.who.do(lambda choose=choose: choose(wanted))
    assert texts(a.pop(1, 1.0)) == ["1"]


@scene(2)
def test_whatever_is_done_when_a_lease_was_extended_the_others_are_kept(s):
    a, b = sides(s, "ab", lease_s=3.0)
    a.push([Message(payload=b"%d" % number) for number in range(3)])
    first, second, third = a.pop(3, 5.0)
    told: list[str] = []

    def leaves(one: Any) -> None:
        told.append(one.id)
        raise SystemExit

    a.keep([first], extended=lambda one: one.ack())
    a.keep([second], extended=leaves)
    a.keep([third], ending=told.append, ending_s=1.0, most_s=20.0)
    s.run(18.0)
    assert b.pop(1, 1.0) == []
    assert first.is_settled
    assert len(told) > 5
    s.run(6.0)
    assert third in told
    (mine,), others = b.pop(1, 5.0), a.pop(1, 0.0)
    for wrong, given in ((b.keep, [second]), (b.ack, [mine, second]), (b.let_go, [third])):
        with pytest.raises(errors.ConfigurationError, match="the queue that popped it only"):
            wrong(given)
    assert others == []


class LaterOn(dyno.Postpone):
    def __init__(self) -> None:
        """Without a time."""


@scene(2)
def test_a_worker_goes_on_after_an_error_that_is_not_what_it_should_be(s):
    (a,) = sides(s, "a", lease_s=2.0)
    a.push([Message(payload=b"bad"), Message(payload=b"good")])
    seen: list[bytes] = []

    def handle(one: Any) -> None:
        seen.append(one.payload)
        if one.payload == b"bad" and one.failures == 0:
            raise LaterOn

    worker = Worker(a.queue, handle)
    a.who.do(worker.start)
    s.run(20.0)
    assert seen == [b"bad", b"good", b"bad"]
    assert left(s) == []
    assert a.who.do(worker.stop)


@scene(2)
def test_a_queue_closes_in_time_whatever_the_servers_do(s):
    a, b = sides(s, "ab")
    a.pop(1)
    a.push(Message())
    a.pop(1, 1.0)
    for side in (a, b):
        s.network.cut(side.who.process.host)
        waiting = side.who.begin(lambda side=side: side.queue.pop(1, None))
        pushing = side.who.begin(lambda side=side: side.queue.push(Message()))
        s.run(1.0)
        since_s = s.now_s
        closing = side.who.begin(lambda side=side: side.queue.close(timedelta(seconds=3)))
        is_clean = closing.result(30.0)
        assert s.now_s - since_s < 4.0
        assert is_clean == (side is b), "a has a push under way, b could not begin one"
        for job in (waiting, pushing):
            with pytest.raises(errors.LeaderqError):
                job.result(40.0)


class Loose:
    """A store that returns no bytes, but something like them."""

    def __init__(self) -> None:
        self.bodies: dict[str, bytes] = {}

    def put(self, body: bytes) -> str:
        self.bodies[str(len(self.bodies))] = body
        return str(len(self.bodies) - 1)

    def get(self, reference: str) -> Any:
        return bytearray(self.bodies[reference])

    def delete(self, reference: str) -> None:
        self.bodies.pop(reference, None)

    def ages(self) -> Any:
        return ()


class Later(Loose):
    """A store that returns coroutines, which nobody would run."""

    async def delete(self, reference: str) -> None:  # type: ignore[override]
        await super().delete(reference)  # type: ignore[func-returns-value]


@pytest.mark.parametrize("name", ["", "x" * 201, "ä" * 40])
@scene(1)
def test_a_shard_that_cannot_be_is_refused_before_the_others_hear_of_it(s, name):
    (who,) = s.guests("a")
    with pytest.raises(errors.ConfigurationError, match="cannot name a message or shard"):
        who.do(lambda: DynoQueue(who.session, D, shards=["good", name]))
    a, b = sides(s, "bc")
    a.push(Message(payload=b"1"))
    with pytest.raises(errors.ConfigurationError):
        a.configure(shards=[name])
    assert b.configure(lease_s=5.0).lease_s == 5.0
    assert texts(b.pop(1, 1.0)) == ["1"]


@scene(1)
def test_a_calendar_of_floats_names_messages_that_are_found(s):
    (a,) = sides(s, "a", now_ms=lambda: clock.now_ms() + 0.25)
    a.push([Message(payload=b"1"), Message("x", b"2", timeout_s=0.5)])
    assert sorted(texts(a.pop(2, 5.0, least=2))) == ["1", "2"]
    for wrong in (-1, float("nan"), "1", None, 1e30):
        (b,) = sides(s, "b", now_ms=lambda wrong=wrong: wrong)
        with pytest.raises(errors.ConfigurationError, match=r"now_ms\(\)="):
            b.push(Message(payload=b"3"))


@scene(1)
def test_what_a_queue_of_messages_cannot_work_with_is_refused_when_it_is_made(s):
    (a,) = sides(s, "a")
    wrong: dict[str, list[Any]] = {
        "serializer": [None, str, object()],
        "strategy": [5, "by_id"],
        "now_ms": [5],
        "name": [5, None],
        "body_store": [5, Later()],
        "body_bytes": [-1, None, "1", True, 0.5, float("nan")],
        "shards": [5, 0, [5], [None], [b"a"], [["a"]], ["a", "a"], "\ud800"],
    }
    for name, values in wrong.items():
        for value in values:
            with pytest.raises(errors.ConfigurationError, match=name):
                a.who.do(
                    lambda name=name, value=value: DynoQueue(a.who.session, D, **{name: value})
                )
    calls: list[Any] = [
        lambda: a.queue.push_unique("x"),
        lambda: a.queue.ensure(b"x"),
        lambda: a.queue.push_unique(Message("x"), "drop"),
        lambda: a.queue.push(Message("x"), fence=Check("/own")),
        lambda: a.queue.push(Message("x"), fence=[5]),
        lambda: a.queue.push_unique(Message("x"), fence=5),
        lambda: a.queue.peek(-1),
        lambda: a.queue.peek("1"),
        lambda: a.queue.dead_letters.requeue(["0/x"]),
        lambda: a.queue.dead_letters.drop("0/x"),
        lambda: dyno.by_key("priority"),
        lambda: DynoQueue(a.who.session, D, strategy=dyno.by_key(lambda _: 5)).push(Message()),
        lambda: Worker(dyno.AsyncDynoQueue(a.queue), print),
        lambda: Worker(a.queue, print, retry=5),
        lambda: Worker(a.queue, print).stop("1"),
        lambda: dyno.AsyncDynoQueue(a.who.session),
    ]
    for call in calls:
        with pytest.raises(errors.ConfigurationError):
            a.who.do(call)
    assert left(s) == []


@scene(1)
def test_what_cannot_be_said_of_a_delivery_leaves_its_lease(s):
    (a,) = sides(s, "a")
    a.push(Message("x", b"1"))
    (one,) = a.pop(1, 1.0)
    for call in (
        *(lambda it=it: one.kill(it) for it in (None, 5, ValueError("no"))),
        *(lambda it=it: one.nack(retry=it) for it in (5, "never")),
        *(lambda it=it: one.ack(it) for it in (None, 5, "/own", Create("/own"), ["/own"])),
        *(lambda it=it: one.ack([it]) for it in (Create("own"), Create("/own", "text"))),
    ):
        with pytest.raises(errors.ConfigurationError):
            a.who.do(call)
    assert not one.is_settled
    a.who.do(one.ack)
    assert left(s) == []


@scene(1)
def test_a_back_off_without_a_bound_is_a_long_rest_and_no_error(s):
    (a,) = sides(s, "a", retry=Retry(first_s=float("inf"), most_s=float("inf")))
    a.push(Message("x", b"1"))
    (one,) = a.pop(1, 1.0)
    a.who.do(lambda: one.nack(ValueError("it")))
    assert a.pop(1, 100.0) == []
    assert a.set_timeout("x", 0.0)
    assert [again.failures for again in a.pop(1, 1.0)] == [1]


@scene(1)
def test_an_operation_of_ones_own_below_the_root_is_told_as_it_is(s):
    (a,) = sides(s, "a")
    s.ask(lambda beside: beside.ensure_path(f"{D}/results/x"))
    a.push(Message("x", b"1"))
    (one,) = a.pop(1, 1.0)
    with pytest.raises(errors.NodeExists) as refused:
        a.who.do(lambda: one.ack([Create(f"{D}/results/x")]))
    assert refused.value.index == 0
    assert not one.is_settled
    a.who.do(lambda: one.ack([Create(f"{D}/results/x/again")]))
    assert left(s) == []


@pytest.mark.parametrize("how", ["lost", "closed"])
@scene(1)
def test_a_block_whose_message_was_lost_meanwhile_does_not_end_as_if_it_was_acknowledged(s, how):
    a, b = sides(s, "ab", lease_s=3.0)
    a.push(Message("x", b"1"))
    (one,) = a.pop(1, 1.0)
    a.keep([one])

    def work() -> None:
        with one:
            clock.sleep(60.0)

    working = a.who.begin(work)
    s.run(1.0)
    if how == "closed":
        a.close()
    else:
        assert b.remove("x")
    with pytest.raises(StaleLease, match="was not acknowledged"):
        working.result(100.0)


@scene(1)
def test_what_is_taken_out_twice_is_taken_out_once(s):
    (a,) = sides(s, "a")
    a.push([Message(), Message()])
    found = a.take_out([one.place for one in a.peek(2)] * 2)
    assert len(found) == 2
    a.put_back(found)
    assert len(a.pop(2, 5.0, least=2)) == 2


@scene(1)
def test_a_message_whose_place_cannot_be_an_id_is_refused_alone(s):
    a, b = sides(s, "ab", shards=["x" * 190])
    a.push(Message(payload=b"1"))
    (read,) = a.peek()
    told = b.push_each([Message(payload=b"2"), read, Message(payload=b"3")])
    assert [isinstance(one, str) for one in told] == [True, False, True]
    assert isinstance(told[1], errors.ConfigurationError)


@scene(1)
def test_a_body_is_bytes_whatever_a_store_returns(s):
    (a,) = sides(s, "a", body_store=Loose(), body_bytes=0)
    a.push(Message("x", b"1"))
    assert [one.payload for one in a.peek()] == [b"1"]
    assert a.get("x").payload == b"1"
    (one,) = a.pop(1, 1.0)
    assert type(one.payload) is bytes


@scene(1)
def test_whatever_others_have_written_beside_messages_they_are_delivered_and_shown(s):
    (a,) = sides(s, "a", lease_s=1.0)
    huge = b"1" + b"0" * 400
    a.push([Message("x", b"1"), Message("y", b"2", unique_s=1.0), Message(payload=b"3")])
    first, second, _ = a.pop(3, 1.0, least=3)
    a.ack([second])
    claim = f"{D}/shards/0/claims/{first.name}"
    s.ask(lambda beside: beside.set(claim, b'{"n":1,"m":"gone","l":%s}' % huge))
    for name in ("1000000000000", "1000000000000-.", "1000000000000-%", "1000000000000x"):
        s.ask(lambda beside, name=name: beside.create(f"{D}/windows/{name}"))
    s.ask(lambda beside: beside.create(f"{D}/ids/z", b"z" * 300))
    rude = [b'"at":%s' % huge, b'"id":"%s"' % (b"x" * 300), b'"headers":{"a":"\\ud800"}']
    for number, inner in enumerate([*rude, b'"unique":"started","unique_s":5']):
        header = b"{%s}" % inner
        frame = b"DQ1\n" + len(header).to_bytes(4, "big") + header + b"rude"
        name = f"{D}/shards/0/messages/00-0000000000000-00000000-000000009{number}"
        s.ask(lambda beside, name=name, frame=frame: beside.create(name, frame))
    assert a.get("z") is None
    assert a.ensure(Message("z", b"5", priority=9))
    assert len(list(a.who.do(lambda: list(a.queue.all_messages())))) == 3
    s.run(2.0)
    again = a.pop(9, 5.0, least=5)
    assert sorted(texts(again)) == ["1", "3", "5", "rude", "rude"]
    assert a.ack(again) == [None] * 5
    assert a.who.do(lambda: sorted(one.reason for one in a.queue.dead_letters.browse())) == [
        "corrupt",
        "corrupt",
    ]
    s.run(70.0)
    assert a.ensure(Message("y"))
    kept = [one for one in s.cluster.znodes() if one.startswith(f"{D}/windows/")]
    assert len(kept) == 4


@scene(1)
def test_a_dead_message_that_fits_into_no_letter_keeps_no_other_from_being_delivered(s):
    (a,) = sides(s, "a")
    a.push(Message("x", b"1"))
    name = f"{D}/shards/0/messages/00-0000000000000-00000000-0000000099"
    s.ask(lambda beside: beside.create(name, b"r" * 1_044_300))
    assert texts(a.pop(5, 1.0)) == ["1"]
    a.push(Message(payload=b"2"))
    assert texts(a.pop(5, 1.0)) == ["2"]
    s.run(20.0)
    assert a.pop(5, 1.0) == []
    assert name in s.cluster.znodes()
    assert a.remove("0/00-0000000000000-00000000-0000000099")
