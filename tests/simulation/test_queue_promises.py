"""What queues promise, held against users, servers and data at their rudest, in simulated time."""

from __future__ import annotations

import asyncio
import itertools
import math
from types import SimpleNamespace
from typing import Any

import pytest

from leaderq import errors, queues
from leaderq.base import clock
from leaderq.dyno import DynoQueue
from leaderq.zookeeper import Create, Session, SessionState
from simulation import test_queue_windows as windows
from simulation.scenarios import Guest, nth, scene
from simulation.test_queue_windows import LOCKING, Work, consuming, made, opened, put, stored


@LOCKING
@scene(1)
def test_what_is_released_unbegun_keeps_its_place_and_the_time_of_its_put(s, lock):
    a, b = s.guests("ab")
    names = put(s, *"wxyz")
    put_ms = a.do(clock.now_ms)
    s.run(10.0)
    queue = opened(a, lock)
    first = a.do(lambda: queue.take(10.0))
    a.do(first.give_back)
    a.do(queue.close)
    s.until(lambda: len(stored(s)) == 4)
    again = opened(b, lock)
    taken = [b.do(lambda: again.take(10.0)) for _ in names]
    assert [one.value for one in taken] == list("wxyz")
    assert all(abs(one.enqueued.timestamp() * 1000 - put_ms) < 1000 for one in taken)


@pytest.mark.parametrize("point", range(2, 7))
@scene(1)
def test_a_start_that_failed_can_be_repeated_until_the_queue_consumes(s, point):
    (a,) = s.guests("a")
    work = Work()
    queue = a.do(lambda: made(a, consumer=work))
    s.at(a, nth(point), lambda: s.cut(a))
    with pytest.raises(errors.LeaderqError):
        a.do(queue.start, within_s=100.0)
    s.heal(a)
    put(s, "x")
    a.do(queue.start, within_s=100.0)
    s.until(lambda: work.done == ["x"])


@scene(1)
def test_one_bad_id_spoils_no_other_put(s):
    (a,) = s.guests("a")
    queue: Any = opened(a, kind=queues.DistributedIdQueue)
    with pytest.raises(errors.PutsFailed) as failed:
        a.do(lambda: queue.put_many([("x", "1"), ("y", ""), ("z", "2")]))
    assert (failed.value.stored, failed.value.failed) == (2, 1)
    ((_, error),) = failed.value.failures
    assert isinstance(error, errors.ConfigurationError)
    assert stored(s) == ["x", "z"]


@pytest.mark.parametrize("one", ["text", b"bytes", {"a": 1}, None, 5], ids=repr)
@scene(1)
def test_one_value_in_place_of_several_is_refused_and_nothing_of_it_is_put(s, one):
    (a,) = s.guests("a")
    plain: Any = opened(a)
    ranked: Any = opened(a, kind=queues.DistributedPriorityQueue)
    simple: Any = a.do(lambda: queues.SimpleDistributedQueue(a.session, "/simple"))
    messages: Any = a.do(lambda: DynoQueue(a.session, "/messages"))
    for put_these in (
        plain.put_many,
        plain.put_multi,
        plain.dead_letters.requeue if one is not None else plain.put_many,
        lambda many: ranked.put_multi(many, 1),
        simple.offer_many,
        messages.push,
        messages.push_each,
    ):
        with pytest.raises(errors.ConfigurationError, match=r"items=|messages=|letters="):
            a.do(lambda put_these=put_these: put_these(one))
    assert stored(s) == [] == a.do(lambda: messages.pop(1, 0.0))


@scene(1)
def test_what_is_no_message_is_refused_with_what_to_give(s):
    (a,) = s.guests("a")
    queue: Any = a.do(lambda: DynoQueue(a.session, "/messages"))
    with pytest.raises(errors.ConfigurationError, match="give a Message, as message"):
        a.do(lambda: queue.push([b"x"]))


@scene(1)
def test_a_first_take_waits_no_longer_than_it_was_told_to(s):
    (a,) = s.guests("a")
    queue = opened(a)
    s.cut(a)
    s.reset(a)
    s.run(0.5)
    began_s = s.now_s
    assert a.do(lambda: queue.take(0.5)) is None
    assert s.now_s - began_s < 2.0
    waiting = a.begin(queue.take)
    s.run(30.0)
    assert not waiting.is_done
    s.heal(a)
    put(s, "x")
    assert waiting.result(30.0).value == "x"


@LOCKING
@scene(1)
def test_a_consumer_that_closes_its_queue_has_the_item_in_hand_acknowledged(s, lock):
    a, b = s.guests("ab")
    queue: list[Any] = []
    done: list[str] = []

    def work(value: str) -> None:
        queue[0].close()
        clock.sleep(0.5)
        done.append(value)

    queue.append(a.do(lambda: made(a, lock, consumer=work)))
    a.do(queue[0].start)
    put(s, "x")
    s.until(lambda: done)
    s.run(1.0)
    second = Work()
    consuming(b, second, lock)
    s.run(3.0)
    assert (done, second.begun, windows.is_clean(s)) == (["x"], [], True)


def test_iterating_over_a_queue_that_hands_out_nothing_says_so():
    async def main() -> None:
        queue: Any = SimpleNamespace(_is_closed=False, put=None, put_many=None, take=refuse)
        with pytest.raises(errors.QueueClosed, match="has a consumer"):
            async for _ in queues.AsyncQueue(queue):
                pass

    def refuse(_timeout_s: float) -> None:
        raise errors.QueueClosed("the queue has a consumer")

    asyncio.run(main())


@scene(1)
def test_the_end_of_the_session_by_its_owner_ends_a_take_and_a_put_that_waits_for_room(s):
    (a,) = s.guests("a")
    queue = opened(a, max_items=1)
    assert a.do(lambda: queue.put("x"))
    assert a.do(lambda: queue.take(10.0)).value == "x"
    waits = (lambda: queue.put("y"), queue.take, queue.__iter__().__next__)
    waiting = [a.begin(one) for one in waits]
    s.run(2.0)
    a.do(a.session.close)
    for one in waiting:
        with pytest.raises(errors.SessionClosed):
            one.result(5.0)
    with pytest.raises(errors.SessionClosed):
        a.do(lambda: queue.take(0.0))


@scene(1)
def test_what_is_no_time_is_refused_by_its_name_and_leaves_items_as_they_were(s):
    (a,) = s.guests("a")
    put(s, "x")
    queue: Any = opened(a)
    delayed: Any = a.do(lambda: queues.DistributedDelayQueue(a.session, "/delayed"))
    a.do(delayed.start)
    simple = a.do(lambda: queues.SimpleDistributedQueue(a.session, "/simple"))
    item = a.do(lambda: queue.take(10.0))
    timed = [queue.take, queue.flush_puts, simple.take, simple.poll, simple.take_item]
    for name, calls, wrong in (
        ("timeout_s", [*timed, lambda one: queue.put("y", timeout_s=one)], [math.nan, "1"]),
        ("delay_s", [item.requeue], [math.nan, math.inf, -1.0, "1"]),
        ("delay_s", [lambda one: delayed.put(b"y", delay_s=one)], [math.inf]),
        ("due", [lambda one: delayed.put(b"y", due=one)], [math.nan, "later"]),
    ):
        for call, one in itertools.product(calls, wrong):
            with pytest.raises(errors.ConfigurationError, match=f"{name}="):
                a.do(lambda call=call, one=one: call(one))
    assert not item.is_settled
    assert (stored(s), a.do(delayed.depth)) == (["x"], 0)
    a.do(item.ack)
    assert windows.is_clean(s)


@scene(3)
def test_a_sharder_that_is_closed_while_cut_off_stands_in_nobodys_way(s):
    a, b = s.guests("ab")
    policies = queues.QueueSharderPolicies(threshold_check_s=0.5)

    def sharder(who: Guest) -> Any:
        kind = queues.SimpleDistributedQueue
        one = queues.QueueSharder(who.session, kind, "/jobs", "/jobs-leader", policies)
        who.do(one.start)
        return one

    first, second = sharder(a), sharder(b)
    s.until(lambda: first.is_leader and not second.is_leader)
    s.cut(a)
    s.reset(a)
    s.run(0.5)
    a.do(lambda: first.close(1.0))
    s.heal(a)
    s.run(3.0)
    assert a.session.state is SessionState.CONNECTED
    s.until(lambda: second.is_leader, within_s=3.0)


@scene(1)
def test_a_shard_that_may_not_be_used_keeps_no_other_from_being_used(s):
    (a,) = s.guests("a")
    bad, good = (f"/jobs/queue-{one}0000000-0000-4000-8000-000000000000" for one in "0f")

    def queue(session: Session, path: str) -> queues.SimpleDistributedQueue:
        if path == bad:
            raise errors.NoPermission("not this one", path=path)
        return queues.SimpleDistributedQueue(session, path)

    policies = queues.QueueSharderPolicies(threshold_check_s=0.5)
    sharder = queues.QueueSharder(a.session, queue, "/jobs", "/jobs-leader", policies)
    a.do(sharder.start)
    s.ask(lambda beside: beside.multi([Create(bad), Create(good)]))
    s.until(lambda: good in sharder.queue_paths, within_s=5.0)
    assert bad not in sharder.queue_paths


@LOCKING
@scene(3)
def test_what_a_consumer_had_claimed_is_free_although_it_was_closed_while_cut_off(s, lock):
    a, b = s.guests("ab")
    values = [*map(str, range(20))]
    put(s, *values)
    first, second = Work(0.01), Work()
    queue = a.do(lambda: made(a, lock, consumer=first, final_flush_s=1.0))
    a.do(queue.start)
    s.until(lambda: len(first.begun) == 5)
    s.cut(a)
    s.reset(a)
    a.do(queue.close)
    s.heal(a)
    s.run(3.0)
    assert (a.session.state, windows.locks(s)) == (SessionState.CONNECTED, [])
    assert len(stored(s)) + len(first.done) == len(values)
    members = [one for one in s.cluster.znodes() if one.startswith(f"{windows.Q}-meta/members/")]
    assert members == []
    consuming(b, second, lock)
    s.until(lambda: windows.is_clean(s) and {*first.done, *second.done} == {*values})
