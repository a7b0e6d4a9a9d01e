"""The windows of Curator's queues, F1 to F16 of ``docs/design/facts.md``, in simulated time: each
is cut at the very request that it names, and none is open here.

F14 is about a limit, not about order: its 60,000 items are in
tests/integration/queues/test_failed_items.py.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from leaderq import queues
from leaderq.base import clock
from leaderq.errors import ClaimLost, ConnectionLost, LeaderqError, PutsFailed, QueueClosed
from leaderq.queues import DistributedDelayQueue, DistributedQueue, QueueRecipe
from leaderq.queues.wire.names import sequence_of
from leaderq.queues.wire.payload import decode
from leaderq.threads import Retry, primitives
from leaderq.zookeeper import Create, Delete
from simulation.scenarios import Guest, Scene, every_point, nth, scene

Q, LOCKS = "/q", "/q-locks"
FIRST = "queue-0000000000"
ITEM, LOCK = f"{Q}/{FIRST}", f"{LOCKS}/{FIRST}"
LOCKING = pytest.mark.parametrize("lock", [True, False], ids=["with-locks", "without"])
LOST = pytest.mark.parametrize("what", ["request", "answer"])
QUICK = Retry(attempts=10, first_s=0.01)


class Work:
    """A consumer that notes what it is given and what it has done; each value takes so long."""

    def __init__(self, needs_s: float = 0.0, fails: int = 0) -> None:
        self.needs_s, self.fails = needs_s, fails
        self.begun: list[str] = []
        self.done: list[str] = []

    def __call__(self, value: str) -> None:
        self.begun.append(value)
        clock.sleep(self.needs_s)
        if self.fails:
            self.fails -= 1
            raise ValueError("not this one")
        self.done.append(value)


def made(
    who: Guest, lock: bool = True, kind: type[QueueRecipe[str]] = DistributedQueue, **more: Any
) -> QueueRecipe[str]:
    """A queue of its process, not started; to be called there."""
    more = {"serializer": queues.TEXT, "retry": QUICK, **more}
    return kind(who.session, Q, lock_path=LOCKS if lock else None, **more)


def opened(who: Guest, *given: Any, **more: Any) -> QueueRecipe[str]:
    def start() -> QueueRecipe[str]:
        queue = made(who, *given, **more)
        queue.start()
        return queue

    return who.do(start)


def consuming(who: Guest, work: Callable[[str], object], *given: Any, **more: Any) -> None:
    """Let its process begin to consume; it may die of that."""
    who.begin(lambda: made(who, *given, consumer=work, **more).start())


def put(s: Scene, *values: str, **more: Any) -> list[str]:
    """Put these through a queue of its own, beside all; gives their names."""
    with_locks = opened(s.beside)
    return [s.ask(lambda _, value=value: with_locks.put(value, **more)) for value in values]


def stored(s: Scene) -> list[str]:
    znodes = s.cluster.znodes()
    names = [one for one in znodes if one.startswith(f"{Q}/")]
    names.sort(key=lambda one: sequence_of(one.rpartition("/")[2]))
    return [item.decode() for name in names for item in decode(znodes[name]).items]


def locks(s: Scene) -> list[str]:
    return [one for one in s.cluster.znodes() if one.startswith(f"{LOCKS}/")]


def is_clean(s: Scene) -> bool:
    return not stored(s) and not locks(s)


@LOCKING
@pytest.mark.parametrize("what", ["request", "answer", "death"])
@every_point(8)
def test_f1_f2_f6_f10_f11_whatever_is_lost_at_whichever_request_nothing_is_lost_or_done_twice(
    s, point, what, lock
):
    a, b = s.guests("ab")
    values = [str(number) for number in range(4)]
    put(s, *values)
    is_death = what == "death"
    struck = s.at(a, nth(point), a.process.kill) if is_death else s.lose(a, nth(point), what)
    first, second = Work(0.001, fails=1), Work()
    consuming(a, first, lock)
    s.run(1.0)
    consuming(b, second, lock)
    s.until(lambda: is_clean(s))
    s.run(2.0)
    done = first.done + second.done
    if what != "death":
        assert sorted(done) == values
    elif lock:
        assert sorted(set(done)) == values
        assert len(done) <= 4 + 4  # what was done and not acknowledged yet comes again
    else:
        assert len(set(done)) == len(done)  # claimed is gone; what is done is done once
    return struck


@LOCKING
@scene(10)
def test_f3_nothing_is_begun_while_not_connected(s, lock):
    a, b = s.guests("ab")
    values = [*map(str, range(30))]
    put(s, *values)
    first, second = Work(0.01), Work()
    consuming(a, first, lock)
    s.until(lambda: len(first.begun) == 5)
    first.needs_s = 2.5  # of what it begins next; others are claimed by then
    s.until(lambda: len(first.begun) == 6)
    s.cut(a)
    s.reset(a)
    first.needs_s = 0.01
    s.run(3.5)
    assert len(first.begun) == 6
    consuming(b, second, lock)
    s.until(lambda: len(second.done) > 10)
    s.heal(a)
    s.until(lambda: is_clean(s) and len(first.done + second.done) >= 30)
    s.run(10.0)
    assert (sorted(first.begun + second.begun, key=int), is_clean(s)) == (values, True)


@LOST
@pytest.mark.parametrize("how", ["awaited", "background", "bounded"])
@every_point(6)
def test_f4_a_put_is_stored_once_and_in_order_whichever_request_is_lost(s, point, how, what):
    (a,) = s.guests("a")
    struck = s.lose(a, nth(point), what)

    def main() -> None:
        more = {"background": {"put_in_background": True}, "bounded": {"max_items": 10}}
        with made(a, **more.get(how, {})) as queue:
            for number in range(3):
                assert queue.put(str(number))
            assert queue.put_multi(["3", "4"])
            assert queue.put_many(["5", "6", "7"]) == 3
            assert queue.flush_puts(60)

    a.do(main)
    assert stored(s) == [str(number) for number in range(8)]
    s.until(lambda: not _tallies(s))
    return struck


def _tallies(s: Scene) -> list[str]:
    return [one for one in s.cluster.znodes() if one.startswith(f"{Q}-meta/tallies/")]


@LOST
@every_point(13)
def test_f4_f6_of_simple_queues_each_item_is_offered_and_taken_once(s, point, what):
    (a,) = s.guests("a")
    struck = s.lose(a, nth(point), what)

    def ask(what: Callable[[], Any]) -> Any:
        while True:  # a read that breaks tells its caller so
            with suppress(LeaderqError):
                return what()
            clock.sleep(0.01)

    def main() -> list[Any]:
        got = []
        with queues.SimpleDistributedQueue(a.session, Q) as queue:
            queue.offer(b"0")
            queue.offer_many([b"1", b"2", b"3"])
            assert ask(queue.peek) == b"0"
            got.append(queue.take())
            while len(got) < 3:
                got += ask(partial(queue.poll_many, 3 - len(got), 60))
            queue.offer(b"4")
            got += [ask(lambda: queue.poll(60)), queue.take(60)]
            assert ask(lambda: queue.poll(0.01)) is None
        return got

    assert a.do(main) == [b"%d" % number for number in range(5)]
    assert is_clean(s)
    return struck


@pytest.mark.parametrize("told", ["listener", "flush", "close"])
@scene(10)
def test_f5_somebody_is_told_of_a_put_in_the_background_that_failed_for_good(s, told):
    class Ledger(queues.PutListener):
        def put_failed(self, items: Any, error: LeaderqError) -> None:
            failed.extend(items)

    (a,), failed = s.guests("a"), list[str]()
    queue = opened(a, put_in_background=True, final_flush_s=1.0)
    if told == "listener":
        a.do(lambda: queue.add_put_listener(Ledger()))
    s.cut(a)
    assert a.do(lambda: queue.put("x"))
    a.do(lambda: a.session.close(1.0))
    if told == "listener":
        a.do(queue.close)
        assert failed == ["x"]
    else:
        with pytest.raises(PutsFailed) as caught:
            a.do((lambda: queue.flush_puts(10.0)) if told == "flush" else queue.close)
        assert caught.value.failed == 1


@pytest.mark.parametrize("end", ["killed", "host lost", "expired"])
@scene(10, timeout_s=6.0)
def test_f7_what_a_dead_consumer_held_goes_to_an_idle_one_although_the_queue_does_not_change(
    s, end
):
    a, b = s.guests("ab")
    put(s, "x")
    first, second = Work(1000.0), Work()
    consuming(a, first)
    s.until(lambda: first.begun)
    consuming(b, second)
    s.run(3.0)
    assert second.begun == []
    if end == "expired":
        s.expire(a)
    elif end == "killed":
        a.process.kill()
    else:
        s.network.lose_host(a.process.host)
    s.until(lambda: second.done, within_s=6.0 + 2.5)


@pytest.mark.parametrize("late", ["ack", "ack with writes", "requeue", "fail"])
@pytest.mark.parametrize("how", ["expired", "frozen"])
@scene(10)
def test_f8_f9_who_was_late_takes_neither_the_item_nor_the_lock_nor_gives_it_a_third_time(
    s, how, late
):
    a, b = s.guests("ab")
    put(s, "x")
    queue, work = opened(a), Work(3.0)
    item = a.do(lambda: queue.take(10))
    if how == "expired":
        s.expire(a)
    else:
        a.process.freeze()
    consuming(b, work)
    s.until(lambda: work.begun, within_s=20.0)
    a.process.thaw()
    if late == "fail":
        a.do(lambda: item.fail(ValueError("late")))
    else:
        act = item.requeue if late == "requeue" else item.ack
        writes = [[Create("/receipt")]] if late == "ack with writes" else []
        # It may be sent over the old connection, which does not answer any more.
        with pytest.raises((ClaimLost, ConnectionLost) if how == "frozen" else ClaimLost):
            a.do(lambda: act(*writes))
    assert (stored(s), locks(s)) == (["x"], [LOCK])
    assert "/receipt" not in s.cluster.znodes()
    s.until(lambda: is_clean(s))
    s.run(10.0)
    assert (work.done, is_clean(s)) == (["x"], True)


@scene(10)
def test_f12_an_executor_that_refuses_ends_no_loop(s):
    (a,) = s.guests("a")
    work = Work()

    class Reluctant:
        left = 3
        _max_workers = 1

        def submit(self, *given: Any, **more: Any) -> Any:
            if self.left:
                self.left -= 1
                raise RuntimeError("no work now")
            return pool.submit(*given, **more)

    pool = a.do(lambda: primitives.ThreadPoolExecutor(1))
    consuming(a, work, executor=Reluctant())
    put(s, "x", "y")
    s.until(lambda: work.done == ["x", "y"])


@pytest.mark.parametrize("kind", [DistributedQueue, DistributedDelayQueue])
@pytest.mark.parametrize("is_cut_off", [False, True])
@scene(10)
def test_f13_a_queue_that_was_deleted_and_made_again_is_heard(s, is_cut_off, kind):
    (a,) = s.guests("a")
    work = Work()
    consuming(a, work, kind=kind)
    putting = put if kind is DistributedQueue else partial(put_delayed, delay_s=0.0)
    putting(s, "x")
    s.until(lambda: work.done and is_clean(s))
    s.run(s.world.faults())
    if is_cut_off:
        s.cut(a)
        s.reset(a)
    s.ask(lambda beside: beside.multi([Delete(Q), Create(Q)]))
    s.heal(a)
    putting(s, "y")
    s.until(lambda: work.done == ["x", "y"], within_s=11.0)


@pytest.mark.parametrize("why", ["locked", "failed", "later"])
@scene(10)
def test_f15_a_delay_queue_that_got_nothing_looks_again(s, why):
    a, b = s.guests("ab")
    first = Work(1000.0)
    put_delayed(s, "x", 3.0 if why == "later" else 0.0)
    if why == "locked":
        consuming(a, first, kind=DistributedDelayQueue)
        s.until(lambda: first.begun)
        s.world.at(2.0, a.process.kill)
    work = Work(fails=2 if why == "failed" else 0)
    began_s = s.now_s
    consuming(b, work, kind=DistributedDelayQueue)
    s.until(lambda: work.done == ["x"], within_s=12.0)
    assert why != "later" or 2.5 < s.now_s - began_s < 3.1


def put_delayed(s: Scene, value: str, delay_s: float) -> None:
    queue: Any = opened(s.beside, kind=DistributedDelayQueue)
    s.ask(lambda _: queue.put(value, delay_s=delay_s))


@scene(10)
def test_f16_closing_wakes_a_put_that_waits_for_room(s):
    (a,) = s.guests("a")
    queue = opened(a, max_items=1, final_flush_s=60.0)
    assert a.do(lambda: queue.put("x"))
    waiting = [a.begin(lambda: queue.put("y")), a.begin(lambda: queue.put_multi(["z"]))]
    s.run(s.world.faults())
    a.do(queue.close)
    for one in waiting:
        with pytest.raises(QueueClosed):
            one.result(1.0)
    assert stored(s) == ["x"]
