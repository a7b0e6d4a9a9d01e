"""What queues promise, held against users, servers and data at their rudest, in simulated time."""

from __future__ import annotations

import asyncio
import itertools
import math
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from leaderq import errors, queues, testing
from leaderq.async_term import AsyncTerm
from leaderq.base import clock
from leaderq.dyno import DynoQueue
from leaderq.queues.wire.payload import encode
from leaderq.zookeeper import Check, Create, Session, SessionState, SetData
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


@pytest.mark.parametrize("error", [errors.NoPermission, SystemExit, ValueError])
@scene(1)
def test_a_shard_that_cannot_be_used_keeps_no_other_from_being_used(s, error):
    (a,) = s.guests("a")
    bad, good = (f"/jobs/queue-{one}0000000-0000-4000-8000-000000000000" for one in "0f")

    def queue(session: Session, path: str) -> queues.SimpleDistributedQueue:
        if path == bad:
            raise error("not this one")
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


class Leaving(queues.QueueConsumer[str]):
    """Leaves its process, as far as a thread can, when it hears of its connection."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def consume(self, value: str) -> None:
        self.done.append(value)

    def state_changed(self, state: SessionState) -> None:
        raise SystemExit(state)


@scene(1)
def test_a_consumer_that_leaves_when_the_state_changes_goes_on_consuming(s):
    (a,) = s.guests("a")
    consumer = Leaving()
    consuming(a, consumer)
    s.run(1.0)
    s.reset(a)
    s.run(5.0)
    put(s, "x")
    s.until(lambda: consumer.done == ["x"])


@scene(1)
def test_operations_that_cannot_be_written_spoil_nothing_and_leave_the_item(s):
    (a,) = s.guests("a")
    put(s, "x", "y")
    s.ask(lambda beside: beside.create("/own"))
    queue = opened(a)
    first, second = (a.do(lambda: queue.take(10.0)) for _ in "xy")
    wrong: list[Any] = [
        SetData("/own", "done"),  # type: ignore[arg-type]
        Create("/own/x", None),  # type: ignore[arg-type]
        SetData("/own", b"", "1"),  # type: ignore[arg-type]
        Check("own"),
        "/own",
    ]
    for ops in (*([one] for one in wrong), Create("/own/x"), "/own", None, 5):
        with pytest.raises(errors.ConfigurationError):
            a.do(lambda ops=ops: first.ack(ops))
    assert not first.is_settled
    a.do(lambda: first.ack([Create("/own/x")]))
    a.do(second.ack)
    assert windows.is_clean(s)


@scene(1)
def test_operations_that_cannot_be_written_fail_no_acknowledgement_that_waits_with_them(s):
    (a,) = s.guests("a")
    put(s, "x", "y", "z")
    s.ask(lambda beside: beside.create("/own"))
    queue = opened(a)
    first, second, third = (a.do(lambda: queue.take(10.0)) for _ in "xyz")
    s.cut(a)
    unanswered = a.begin(first.ack)  # what comes after it is sent in one request
    s.run(0.1)
    s.reset(a)
    s.run(0.2)
    wrong = a.begin(lambda: second.ack([SetData("/own", "done")]))  # type: ignore[arg-type]
    right = a.begin(third.ack)
    s.run(0.2)
    s.heal(a)
    with pytest.raises(errors.ConfigurationError):
        wrong.result()
    for one in (unanswered, right):
        one.result()
    assert stored(s) == ["y"]


@scene(1)
def test_what_is_no_error_does_not_send_an_item_round_and_round(s):
    (a,) = s.guests("a")
    put(s, "x")
    queue = opened(a)
    item = a.do(lambda: queue.take(10.0))
    for error in (None, "disk full", ValueError):
        with pytest.raises(errors.ConfigurationError, match="error="):
            a.do(lambda error=error: item.fail(error))
    assert not item.is_settled
    a.do(lambda: item.fail(ValueError("it")))
    s.until(lambda: a.do(lambda: queue.take(10.0)).attempt == 2)


class Beyond(datetime):
    """In a time zone where the last day of the calendar is over already."""

    def timestamp(self) -> float:
        raise ValueError("year 10000 is out of range")


@scene(1)
def test_what_is_no_name_id_time_or_letter_is_refused_and_nothing_is_touched(s):
    (a,) = s.guests("a")
    s.ask(lambda beside: beside.ensure_path(f"{windows.Q}/foreign"))
    named: Any = opened(a, kind=queues.DistributedIdQueue)
    delayed: Any = a.do(lambda: queues.DistributedDelayQueue(a.session, "/delayed"))
    a.do(delayed.start)
    calls: list[Any] = [
        *(lambda id=id: named.put("x", id) for id in (5, b"i", True, ["i"])),
        *(lambda id=id: named.remove(id) for id in (5, b"i")),
        *(lambda it=it: named.cancel(it) for it in (True, None, "", "foreign", "../q", "queue-/x")),
        *(lambda due=due: delayed.put(b"x", due=due) for due in (datetime.min, Beyond(9999, 1, 1))),
        *(lambda it=it: delayed.put(b"x", delay_s=it) for it in (False, "", [])),
        *(lambda it=it: named.dead_letters.requeue(it) for it in (["queue-0000000001"], "queue-1")),
        *(lambda it=it: list(named.browse(it)) for it in (-1, 2.5, "3")),
    ]
    for call in calls:
        with pytest.raises(errors.ConfigurationError):
            a.do(call)
    assert s.cluster.znodes()[f"{windows.Q}/foreign"] == b""
    assert (a.do(named.depth), a.do(delayed.depth)) == (1, 0)


@pytest.mark.parametrize(
    "option",
    [
        *({"serializer": it} for it in (None, str, queues.QueueSerializer, object())),
        *({"error_mode": it} for it in ("delete", None)),
        *({"executor": it} for it in (5, "threads")),
        {"retry": 5},
        {"name": 5},
    ],
)
@scene(1)
def test_what_a_queue_cannot_work_with_is_refused_when_it_is_made(s, option):
    (a,) = s.guests("a")
    with pytest.raises(errors.ConfigurationError, match=f"{next(iter(option))}"):
        a.do(lambda: made(a, consumer=print, **option))


@scene(1)
def test_a_blocking_consumer_that_was_closed_with_another_queue_releases_items_in_peace(s):
    (a,) = s.guests("a")
    both: Any = queues.BlockingQueueConsumer()
    first = a.do(lambda: queues.DistributedQueue(a.session, "/other", consumer=both))
    a.do(first.start)
    consuming(a, both)
    a.do(first.close)
    put(s, "x")
    s.run(1.0)
    claims: list[Any] = []
    s.rules.append((a.process.host, lambda asked: claims.append(asked)))
    s.run(10.0)
    assert len(claims) < 200
    assert stored(s) == ["x"]


@pytest.mark.parametrize("is_cut", [False, True])
@scene(3)
def test_what_was_taken_when_its_queue_is_closed_goes_to_others_though_the_session_lasts(s, is_cut):
    a, b = s.guests("ab")
    put(s, "x", "y")
    queue, other = opened(a, final_flush_s=1.0), opened(b)
    first, second = (a.do(lambda: queue.take(10.0)) for _ in "xy")
    a.do(first.ack)
    if is_cut:
        s.cut(a)
        s.reset(a)
    a.do(queue.close)
    s.heal(a)
    again = b.do(lambda: other.take(5.0))
    assert (again.value, again.attempt) == ("y", 1)
    b.do(again.ack)
    with pytest.raises((errors.QueueClosed, errors.ClaimLost)):
        a.do(lambda: second.ack([Create("/own")]))
    assert a.session.state is SessionState.CONNECTED


@scene(1)
def test_a_listener_may_close_its_queue_and_is_not_waited_for(s):
    (a,) = s.guests("a")
    queue = a.do(lambda: made(a, put_in_background=True))
    took_s: list[float] = []

    class Closing(queues.PutListener):
        def put_completed(self, _: Any) -> None:
            since_s = clock.now_s()
            queue.close()
            took_s.append(clock.now_s() - since_s)

    def begin() -> None:
        queue.add_put_listener(Closing())
        queue.start()
        for value in "xyz":
            queue.put(value)

    a.do(begin)
    s.until(lambda: took_s)
    assert took_s[0] < 1.0
    assert stored(s) == ["x", "y", "z"]


@pytest.mark.parametrize("record", [b'["../x"]', b'[""]', b'["\\u0000"]', b"[5]", b"{", b""])
@scene(1)
def test_a_record_of_claims_that_nobody_of_ours_wrote_holds_up_nobody(s, record):
    (a,) = s.guests("a")
    s.ask(lambda beside: beside.ensure_path(f"{windows.Q}-meta/claims"))
    s.ask(lambda beside: beside.create(f"{windows.Q}-meta/claims/nobody", record))
    work = Work()
    consuming(a, work)
    put(s, "x")
    s.until(lambda: work.done == ["x"], within_s=5.0)


@pytest.mark.parametrize("field", ["enqueued_ms", "not_before_ms", "attempt", "died_ms"])
@pytest.mark.parametrize("number", ["1" + "0" * 400, "-1", "9" * 17])
@scene(1)
def test_a_note_with_a_number_that_is_no_time_is_as_good_as_none(s, field, number):
    (a,) = s.guests("a")
    note = f'leaderq:{{"{field}":{number}}}'.encode()
    s.ask(lambda beside: beside.ensure_path(windows.Q))
    data = encode([b"x"]) + note
    s.ask(lambda beside: beside.create(windows.ITEM, data))
    queue = opened(a)
    item = a.do(lambda: queue.take(5.0))
    assert (item.value, item.attempt) == ("x", 1)
    assert abs(item.enqueued.timestamp() - a.do(clock.calendar_s)) < 60.0
    a.do(item.ack)


class Coroutines(queues.QueueConsumer[str], queues.PutListener):
    """Whose coroutines nobody would run."""

    def consume(self, value: str) -> None: ...

    async def state_changed(self, state: SessionState) -> None: ...

    async def put_failed(self, *_: Any) -> None: ...

    async def serialize(self, value: str) -> bytes:
        return value.encode()

    def deserialize(self, data: bytes) -> str:
        return data.decode()

    async def start(self) -> None: ...

    def close(self) -> None: ...


@scene(1)
def test_coroutines_that_nobody_would_run_are_refused(s):
    (a,) = s.guests("a")
    rude: Any = Coroutines()
    queue = opened(a)
    calls: list[tuple[str, Any]] = [
        ("consumer.state_changed is", lambda: made(a, consumer=rude)),
        ("serializer.serialize is", lambda: made(a, serializer=rude)),
        ("listener.put_failed is", lambda: queue.add_put_listener(rude)),
        ("listener.put_completed is", lambda: queue.add_put_listener(print)),  # type: ignore[arg-type]
    ]
    for returned in (rude, None):
        sharder: Any = queues.QueueSharder(
            a.session, lambda *_, it=returned: it, f"/jobs-{returned is None}", "/jobs-leader"
        )
        calls.append(("what the allocator returned.start is", sharder.start))
    for says, call in calls:
        with pytest.raises(errors.ConfigurationError, match=says):
            a.do(call)


@scene(1)
def test_a_term_that_is_none_acknowledges_nothing(s):
    (a,) = s.guests("a")
    put(s, "x")
    queue = opened(a)
    item: Any = a.do(lambda: queue.take(10.0))
    for term in (5, True, AsyncTerm(testing.term())):
        with pytest.raises(errors.ConfigurationError, match="term="):
            a.do(lambda term=term: item.ack(term=term))
    assert not item.is_settled


def test_an_item_of_asyncio_is_acknowledged_under_a_term_of_asyncio():
    term, asked = testing.term(), Mock(is_settled=False)
    pool = ThreadPoolExecutor(1)

    async def work() -> None:
        await queues.AsyncItem(asked, pool.submit).ack([Create("/own")], term=AsyncTerm(term))

    asyncio.run(work())
    pool.shutdown()
    asked.ack.assert_called_once_with([Create("/own")], term=term)
