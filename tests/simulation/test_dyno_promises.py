"""What is promised of Dyno queues, in simulated time on simulated servers: when a message comes
again, to whom it belongs, and in which order.
"""

from __future__ import annotations

from contextlib import suppress

import pytest

from leaderq.base import clock
from leaderq.dyno import DynoQueue, Message, OnConflict, StaleLease, Worker, consumer
from leaderq.dyno.shard_view import ShardView
from leaderq.engine.dead_letters import Moved
from leaderq.errors import ConnectionLost, QueueClosed, SessionClosed
from leaderq.threads import Retry
from simulation.scenarios import every_point, nth, scene
from simulation.test_dyno_defects import left, sides, texts

OFTEN = Retry(attempts=None, first_s=0.0)


@scene(3)
def test_a_letter_that_is_sent_back_keeps_its_priority(s):
    (a,) = sides(s, "a")
    a.push(Message(payload=b"late", priority=7))
    a.who.do(a.pop(1, 5.0)[0].kill)
    a.push(Message(payload=b"early", priority=3))
    assert a.who.do(lambda: a.queue.dead_letters.requeue()) == Moved(1)
    assert texts(a.pop(2, 5.0, least=2)) == ["early", "late"]


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
def test_a_pop_returns_what_there_is_as_soon_as_there_is_one(s):
    a, b = sides(s, "ab", lease_s=6.0)
    b.push(Message(payload=b"x"))
    began_s = s.now_s
    (one,) = a.pop(10, 6.0)
    assert s.now_s - began_s < 0.5
    assert b.pop(1, 4.0) == []
    a.who.do(one.ack)


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


@scene(5)
def test_a_delivery_is_counted_when_it_leaves_pop(s):
    a, b = sides(s, "ab")
    b.push(Message(payload=b"x"))
    popping = a.who.begin(lambda: a.queue.pop(2, None, least=2))
    s.run(1.0)
    a.who.do(a.queue.close)
    with pytest.raises(QueueClosed):
        popping.result()
    (one,) = b.pop(1, 5.0)
    assert (one.deliveries, one.failures) == (1, 0)
    b.who.do(one.release)
    (again,) = b.pop(1, 5.0)
    assert again.deliveries == 2


@pytest.mark.parametrize("skew_s", [-61.0, 40.0, 61.0])
@scene(3)
def test_no_calendar_takes_the_leases_of_others_and_none_keeps_them(s, skew_s):
    a, b = sides(s, "ab", lease_s=12.0, retry=OFTEN)
    b.pop(1, 0.0)
    a.push([Message(payload=b"x"), Message(payload=b"y")])
    b.who.process.skew_s = skew_s
    first = a.pop(2, 5.0, least=2)
    began_s = s.now_s
    s.run(5.0)
    a.who.process.skew_s -= 2 * skew_s  # both are set while the lease runs
    b.who.process.skew_s = 0.0
    assert b.pop(1, 6.0) == []
    a.who.do(first[0].ack)
    (again,) = b.pop(1, 60.0)
    assert again.failures == 1
    assert 12.0 <= s.now_s - began_s < 15.0
    with pytest.raises(StaleLease):
        a.who.do(first[1].ack)


@scene(5)
def test_a_slow_clock_does_not_take_a_lease_too_soon_and_a_fast_one_neither(s):
    a, b = sides(s, "ab", lease_s=48.0)
    b.pop(1, 0.0)
    a.push(Message(payload=b"x"))
    a.who.process.run_clock(0.98)
    b.who.process.run_clock(1.02)
    (one,) = a.pop(1, 5.0)
    popping = b.who.begin(lambda: b.queue.pop(1, 60.0))
    s.until(lambda: one.until_s <= a.who.process.clock_s() + 0.05, within_s=60.0)
    a.who.do(one.ack)
    assert popping.result(60.0) == []


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


@scene(5)
def test_a_delivery_that_was_redeemed_is_not_its_former_owners_any_more(s):
    a, b = sides(s, "ab")
    a.push(Message(payload=b"x"))
    (one,) = a.pop(1, 5.0)
    redeemed = b.redeem(str(one.receipt))
    for settle in (one.ack, one.extend, one.release):
        with pytest.raises(StaleLease):
            a.who.do(settle)
    assert redeemed.deliveries == 1
    b.who.do(redeemed.ack)


@scene(3)
def test_a_message_that_was_redeemed_does_not_end_with_the_session_of_its_former_owner(s):
    a, b, c = sides(s, "abc")
    a.push(Message(payload=b"x"))
    (one,) = a.pop(1, 5.0)
    redeemed = b.redeem(str(one.receipt))
    s.expire(a.who)
    assert c.pop(1, 20.0) == []
    b.who.do(redeemed.ack)
    assert left(s) == []


@every_point(5)
def test_a_lease_that_ended_while_its_consumer_was_cut_off_is_not_handed_out(s, point):
    (a,) = sides(s, "a", lease_s=0.1, retry=OFTEN)
    a.push(Message(payload=b"x"))
    cut = s.at(a.who, nth(point), lambda: s.cut(a.who))
    popping = a.who.begin(lambda: [one.left_s for one in a.queue.pop(1, 5.0)])
    s.run(1.0)
    s.heal(a.who)
    assert all(left_s > 0 for left_s in popping.result())
    return cut


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
        with suppress(ConnectionLost):  # a read that breaks tells its caller so
            job.result()
    assert every[0].size() == 1
    every[1].ack(every[1].pop(1, 10))
    assert left(s) == []
    return lost


@scene(10)
def test_a_pop_outlasts_an_outage_and_what_was_held_is_settled_after_it(s):
    a, b = sides(s, "ab", lease_s=60.0)
    b.push([Message(payload=b"1"), Message(payload=b"2")])
    held = a.pop(1, 5.0)
    s.cut(a.who)
    s.reset(a.who)
    popping = a.who.begin(lambda: a.queue.pop(1, 60.0))
    s.run(4.0)
    s.heal(a.who)
    assert texts(popping.result(5.0)) == ["2"]
    assert a.ack(held) == [None]


@pytest.mark.parametrize("end", ["queue", "session"])
@scene(10)
def test_a_pop_that_waits_ends_with_its_queue_or_its_session(s, end):
    (a,) = sides(s, "a")
    popping = a.who.begin(lambda: a.queue.pop(1, None))
    s.run(s.world.faults())
    a.who.do(a.queue.close if end == "queue" else a.who.session.close)
    with pytest.raises((QueueClosed, SessionClosed)):
        popping.result(1.0)
    with pytest.raises((QueueClosed, SessionClosed)):
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
def test_what_is_kept_stays_ours_and_its_end_is_told_before(s):
    a, b = sides(s, "ab", lease_s=1.0)
    a.push(Message(payload=b"1"))
    (one,) = a.pop(1, 5.0)
    told: list[float] = []
    a.who.do(
        lambda: a.queue.keep([one], most_s=5.0, ending=lambda _: told.append(s.now_s), ending_s=0.5)
    )
    (again,) = b.pop(1, 10.0)
    assert again.failures == 1
    assert 0.4 < s.now_s - told[0] < 2.0
