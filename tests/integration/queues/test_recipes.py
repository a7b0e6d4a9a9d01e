"""The recipes on the real server: equivalents of Curator's own tests, and what each recipe promises beyond them."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from producing import PATH, at_every_point, numbered, stored

from leaderq.errors import ConfigurationError, QueueClosed
from leaderq.queues import (
    JSON,
    TEXT,
    BlockingQueueConsumer,
    DistributedDelayQueue,
    DistributedIdQueue,
    DistributedPriorityQueue,
    DistributedQueue,
    ErrorMode,
    PutListener,
    QueueBuilder,
    QueueConsumer,
    RetryPolicy,
)
from leaderq.queues.wire.names import MAX_PRIORITY, MIN_PRIORITY, due_ms_of, id_of, priority_of
from leaderq.testing import FaultProxy, ZooKeeperServer, eventually
from leaderq.zookeeper import Session, SessionState, end_session

Open = Callable[..., Session]
LOCKS = "/q-locks"
QUICK = RetryPolicy(backoff_s=0.01)


class Seen:
    """A consumer that notes what it is given."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._lock = threading.Lock()

    def __call__(self, value: Any) -> None:
        with self._lock:
            self.values.append(value)

    def wait_for(self, count: int) -> list[Any]:
        eventually(lambda: len(self.values) >= count, timeout_s=30)
        return list(self.values)


class Gate(Seen):
    """A consumer that notes, and lets nothing pass before it is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.opened = threading.Event(), threading.Event()

    def __call__(self, value: Any) -> None:
        super().__call__(value)
        self.entered.set()
        assert self.opened.wait(30)


# -- TestDistributedQueue -----------------------------------------------------------------------------------------------------


def test_ten_items_arrive_in_order(session: Session) -> None:
    seen = Seen()
    with DistributedQueue(session, PATH, consumer=seen) as queue:
        for item in numbered(10):
            queue.put(item)
        assert seen.wait_for(10) == numbered(10)
    assert session.children(PATH) == []


def test_a_hundred_items_of_one_znode_arrive_in_order(session: Session) -> None:
    seen = Seen()
    with DistributedQueue(session, PATH, consumer=seen) as queue:
        queue.put_multi(numbered(100))
        assert seen.wait_for(100) == numbered(100)


def test_a_failed_item_is_delivered_again_and_its_name_does_not_grow(session: Session) -> None:
    names: list[str] = []
    calls: list[bytes] = []

    def consume(value: bytes) -> None:
        names.extend(session.children(PATH))
        calls.append(value)
        if len(calls) == 1:
            raise ValueError("once")

    with DistributedQueue(session, PATH, consumer=consume, lock_path=LOCKS, retry=QUICK) as queue:
        queue.put(b"test")
        eventually(lambda: len(calls) == 2 and not session.children(PATH))
    assert calls == [b"test", b"test"]
    assert len({len(name) for name in names}) == 1
    assert session.children(LOCKS) == []


def test_a_thousand_items_on_an_executor_are_consumed_once_each(session: Session) -> None:
    seen = Seen()
    with (
        ThreadPoolExecutor(8) as pool,
        DistributedQueue(session, PATH, consumer=seen, lock_path=LOCKS, executor=pool, concurrency=8) as queue,
    ):
        queue.put_many(numbered(1000))
        assert sorted(seen.wait_for(1000), key=int) == numbered(1000)
        eventually(lambda: queue.depth() == 0)
    assert len(seen.values) == 1000


def test_a_put_listener_is_called_once_for_each_of_ten_puts(session: Session) -> None:
    heard: list[Any] = []

    class Listener(PutListener):
        def put_completed(self, item: Any) -> None:
            heard.append(item)

    seen = Seen()
    with DistributedQueue(session, PATH, consumer=seen) as queue:
        queue.add_put_listener(Listener())
        for item in numbered(10):
            queue.put(item)
        assert queue.flush_puts(10)
        assert seen.wait_for(10) == numbered(10)
    assert heard == numbered(10)


@pytest.mark.parametrize("mode, calls", [(ErrorMode.REQUEUE, 2), (ErrorMode.KEEP, 2), (ErrorMode.DELETE, 1)])
def test_the_error_mode_says_whether_a_failed_item_comes_again(session: Session, mode: ErrorMode, calls: int) -> None:
    seen = Seen()

    def consume(value: bytes) -> None:
        seen(value)
        if seen.values.count(b"bad") == 1 and value == b"bad":
            raise ValueError("once")

    queue = DistributedQueue(session, PATH, consumer=consume, lock_path=LOCKS, retry=QUICK)
    queue.set_error_mode(mode)
    with queue:
        queue.put(b"bad")
        queue.put(b"good")
        eventually(lambda: b"good" in seen.values and not session.children(PATH))
        with pytest.raises(ConfigurationError):
            queue.set_error_mode(ErrorMode.KEEP)
    assert seen.values.count(b"bad") == calls


def test_four_clients_process_a_thousand_items_without_a_duplicate(opened: Open, session: Session) -> None:
    seen = Seen()
    with DistributedQueue(session, PATH) as queue:
        queue.put_many(numbered(1000))
    queues = [DistributedQueue(opened(), PATH, consumer=seen, lock_path=LOCKS) for _ in range(4)]
    for one in queues:
        one.start()
    eventually(lambda: len(seen.values) >= 1000 and not session.children(PATH), timeout_s=40)
    for one in queues:
        one.close()
    assert sorted(seen.values, key=int) == numbered(1000)


def test_what_a_crashed_consumer_was_at_goes_to_the_other_and_everything_is_seen(
    zookeeper_server: ZooKeeperServer, opened: Open, session: Session
) -> None:
    doomed_session = opened(timeout_s=4.0)
    doomed, other = Gate(), Seen()
    first = DistributedQueue(doomed_session, PATH, consumer=doomed, lock_path=LOCKS)
    first.start()
    first.put_many(numbered(100))
    assert doomed.entered.wait(20)
    with DistributedQueue(session, PATH, consumer=other, lock_path=LOCKS):
        credentials = doomed_session.credentials
        assert credentials is not None
        end_session(zookeeper_server.address, credentials)
        doomed_session.close()
        eventually(lambda: set(doomed.values[:1]) <= set(other.values), timeout_s=30)
        doomed.opened.set()
        eventually(lambda: len(other.values) == 100 and not session.children(PATH), timeout_s=30)
    first.close()
    assert sorted(other.values, key=int) == numbered(100)
    assert doomed.values == [b"0"]


def test_two_producers_and_one_getter_see_a_hundred_items_once_each(opened: Open, session: Session) -> None:
    seen = Seen()
    with DistributedQueue(session, PATH, consumer=seen):
        producers = [DistributedQueue(opened(), PATH) for _ in range(2)]
        with ThreadPoolExecutor(2) as pool:
            for me, one in enumerate(producers):
                one.start()
                pool.submit(one.put_many, numbered(50, 50 * me))
        assert sorted(seen.wait_for(100), key=int) == numbered(100)
        for one in producers:
            one.close()
    assert len(seen.values) == 100


def test_a_flush_says_whether_all_is_stored(opened: Open, session: Session, proxy: FaultProxy) -> None:
    held = opened(proxy.address)
    with DistributedQueue(held, PATH, put_in_background=True) as queue:
        proxy.freeze_direction("to_server")
        queue.put(b"a")
        assert not queue.flush_puts(0.1)
        proxy.heal()
        assert queue.flush_puts(20)
    assert stored(session) == [b"a"]


# -- TestDistributedIdQueue ------------------------------------------------------------------------------------------------------


def test_items_of_an_id_queue_go_by_their_put_and_not_by_their_id(session: Session) -> None:
    seen = Seen()
    with DistributedIdQueue(session, PATH) as queue:
        items = numbered(100)
        assert queue.put_many([(item, str(random.randrange(10**6))) for item in items]) == 100
    with DistributedIdQueue(session, PATH, consumer=seen):
        assert seen.wait_for(100) == items


def test_an_item_in_process_is_not_removed_and_others_are(session: Session) -> None:
    gate = Gate()
    with DistributedIdQueue(session, PATH, consumer=gate, lock_path=LOCKS) as queue:
        queue.put(b"a", "same")
        assert gate.entered.wait(20)
        assert queue.remove("same") == 0
        gate.opened.set()
        eventually(lambda: queue.depth() == 0)
        assert queue.remove("same") == 0
    assert session.children(LOCKS) == []


def test_an_item_that_always_fails_stays_queued_under_its_id(session: Session) -> None:
    calls = Seen()

    def consume(value: bytes) -> None:
        calls(value)
        raise ValueError("always")

    with DistributedIdQueue(
        session, PATH, consumer=consume, lock_path=LOCKS, retry=RetryPolicy(attempts=None, backoff_s=0.01)
    ) as queue:
        queue.put(b"a", "x/y")
        calls.wait_for(3)
    (name,) = session.children(PATH)
    assert id_of(name) == "x_y"
    with DistributedIdQueue(session, PATH, lock_path=LOCKS) as queue:
        assert queue.remove("x/y") == 1


@pytest.mark.parametrize("locks", [None, LOCKS], ids=["without", "with-locks"])
def test_removing_fixes_the_id_as_putting_does_counts_exactly_and_removes_rewritten_items_too(
    session: Session, locks: str | None
) -> None:
    with DistributedIdQueue(session, PATH, lock_path=locks) as queue:
        for item, id in ((b"1", "a/b|c"), (b"2", "a_b_c"), (b"3", "other"), (b"4", "a|b|c")):
            queue.put(item, id)
        first = min(session.children(PATH), key=lambda name: name[-10:])
        session.set(f"{PATH}/{first}", session.get(f"{PATH}/{first}")[0])
        assert queue.remove("a/b|c") == 3
        assert queue.remove("a/b|c") == 0
        assert stored(session) == [b"3"]
        for bad in ("", "\x00"):
            with pytest.raises(ConfigurationError):
                queue.remove(bad)
        assert queue.put_multi([b"5", b"6"], "multi")
        session.create(f"{PATH}/foreign-|other|")
        assert queue.remove("other") == 1
        assert queue.remove("multi") == 1
    with pytest.raises(QueueClosed):
        queue.remove("a")


@pytest.mark.parametrize("locks", [None, LOCKS], ids=["without", "with-locks"])
def test_whichever_reply_is_lost_removing_counts_what_it_removed(
    session: Session, proxy: FaultProxy, znode_root: str, opened: Open, locks: str | None
) -> None:
    doubtful = opened(proxy.address, timeout_s=8.0)
    with DistributedIdQueue(doubtful, PATH, lock_path=locks) as queue:

        def scenario(point: int) -> None:
            eventually(lambda: doubtful.state is SessionState.CONNECTED)
            queue.put_many([(item, "x") for item in numbered(3)] + [(b"keep", "y")])
            assert queue.remove("x") == 3
            assert queue.remove("y") == 1
            assert session.children(PATH) == []

        assert at_every_point(proxy, scenario, doubtful) >= 4


# -- TestDistributedPriorityQueue ---------------------------------------------------------------------------------------------------


def test_a_hundred_and_one_random_priorities_come_in_order(session: Session) -> None:
    gate = Gate()
    priorities = [MIN_PRIORITY, *(random.randint(MIN_PRIORITY, MAX_PRIORITY) for _ in range(100))]
    with DistributedPriorityQueue(session, PATH, serializer=JSON, consumer=gate) as queue:
        queue.put("first", MIN_PRIORITY)
        assert gate.entered.wait(20)
        for priority in priorities:
            queue.put(priority, priority)
        gate.opened.set()
        assert gate.wait_for(102)[1:] == sorted(priorities)


def test_an_urgent_item_comes_right_after_the_one_being_worked_on(session: Session) -> None:
    gate = Gate()
    with DistributedPriorityQueue(session, PATH, serializer=TEXT, consumer=gate) as queue:
        queue.put_many([f"slow {number}" for number in range(20)], 10)
        assert gate.entered.wait(20)
        queue.put("urgent", -10)
        gate.opened.set()
        assert "urgent" in gate.wait_for(21)[:3]
    assert [priority_of(name) for name in session.children(PATH)] == []


def test_a_failed_item_keeps_its_priority(session: Session) -> None:
    priorities: list[Any] = []

    def consume(value: bytes) -> None:
        priorities.extend(map(priority_of, session.children(PATH)))
        if len(priorities) == 1:
            raise ValueError("once")

    with DistributedPriorityQueue(session, PATH, consumer=consume, lock_path=LOCKS, retry=QUICK) as queue:
        queue.put(b"a", 1000)
        eventually(lambda: len(priorities) == 2)
    assert priorities == [1000, 1000]


def test_a_priority_that_java_cannot_hold_is_refused(session: Session) -> None:
    with DistributedPriorityQueue(session, PATH) as queue:
        for bad in (2**31, -(2**31) - 1, 1.5, True):
            with pytest.raises(ConfigurationError):
                queue.put(b"a", bad)  # type: ignore[arg-type]
        assert queue.put_multi([b"a", b"b"], -1)
        with queue.take(10) as item:
            assert item.values == [b"a", b"b"]


# -- TestDistributedDelayQueue ------------------------------------------------------------------------------------------------------


def test_a_due_item_overtakes_one_of_the_far_future_which_stays(session: Session) -> None:
    seen = Seen()
    with DistributedDelayQueue(session, PATH, serializer=TEXT, consumer=seen) as queue:
        queue.put("far", delay_s=3600)
        queue.put("late addition", delay_s=0.05)
        assert seen.wait_for(1) == ["late addition"]
        assert queue.depth() == 1


def test_nothing_is_given_out_before_it_is_due(session: Session) -> None:
    given: list[float] = []
    with DistributedDelayQueue(session, PATH, consumer=lambda _: given.append(time.time())) as queue:
        begun = time.time()
        queue.put(b"a", delay_s=0.5)
        eventually(lambda: given)
    assert given[0] - begun >= 0.499


def test_ten_random_delays_come_in_the_order_of_time(session: Session) -> None:
    seen = Seen()
    dues = [time.time() + 0.5 + random.random() / 10 for _ in range(10)]
    with DistributedDelayQueue(session, PATH, serializer=JSON, consumer=seen) as queue:
        for due in dues:
            queue.put(due, due=due)
        assert seen.wait_for(10) == sorted(dues, key=lambda due: round(due * 1000))


def test_three_hundred_shuffled_times_come_exactly_in_order_and_equal_ones_in_order_of_put(session: Session) -> None:
    seen = Seen()
    begun = round(time.time() * 1000) - 10_000
    values = [(begun + turn // 3, turn) for turn in range(300)]
    shuffled = sorted(values, key=lambda value: (random.Random(value[0]).random(), value[1]))
    with DistributedDelayQueue(session, PATH, serializer=JSON, put_in_background=True) as queue:
        for value in shuffled:
            queue.put(list(value), due=value[0] / 1000)
    with DistributedDelayQueue(session, PATH, serializer=JSON, consumer=seen):
        assert seen.wait_for(300) == [list(value) for value in values]


def test_times_are_given_as_a_delay_a_datetime_or_seconds(session: Session) -> None:
    with DistributedDelayQueue(session, PATH) as queue:
        aware = datetime(2030, 1, 1, tzinfo=timezone.utc)
        queue.put(b"a", due=aware)
        queue.put(b"b", due=aware.astimezone().replace(tzinfo=None))
        queue.put(b"c", due=1700000000.0)
        queue.put_many([b"d", b"e"], delay_s=60)
        queue.put_multi([b"f", b"g"], due=aware + timedelta(milliseconds=1))
        names = sorted(session.children(PATH), key=lambda name: name[-10:])
        dues = [due_ms_of(name) for name in names]
        assert dues[:3] == [1893456000000, 1893456000000, 1700000000000]
        assert names[2] == "queue-|18BCFE56800|0000000002"
        assert dues[3] == dues[4]
        assert dues[5] == 1893456000001
        for bad in ({"delay_s": 1, "due": aware}, {"delay_s": -1}, {"due": -1.0}, {"due": 0}, {"delay_s": float("nan")}):
            with pytest.raises(ConfigurationError):
                queue.put(b"x", **bad)
        with queue.take(10) as item:
            assert item.value == b"c"
        assert queue.take(0.1) is None


# -- BlockingQueueConsumer, QueueConsumer, QueueBuilder --------------------------------------------------------------------------------


def test_a_blocking_consumer_acknowledges_when_the_work_is_done_and_not_before(session: Session) -> None:
    blocking: BlockingQueueConsumer[bytes] = BlockingQueueConsumer()
    with DistributedQueue(session, PATH, consumer=blocking, lock_path=LOCKS) as queue:
        for item in numbered(10):
            queue.put(item)
        for item in numbered(10):
            assert blocking.take(20) == item
            assert any(data == item for data in stored(session))
            blocking.task_done()
        eventually(lambda: queue.depth() == 0)
        assert blocking.take(0.05) is None


def test_a_blocking_consumer_holds_as_many_as_the_queue_works_on_and_loses_none_when_full(session: Session) -> None:
    blocking: BlockingQueueConsumer[bytes] = BlockingQueueConsumer(capacity=2)
    with DistributedQueue(session, PATH, consumer=blocking, lock_path=LOCKS, concurrency=4) as queue:
        queue.put_many(numbered(6))
        eventually(lambda: blocking.size() == 2)
        assert len(blocking.items()) == 2
        drained: list[bytes] = []
        while len(drained) < 6:
            for _ in range(blocking.drain_to(drained, max_items=1)):
                blocking.task_done()
        assert sorted(drained) == numbered(6)
        eventually(lambda: queue.depth() == 0)
        with pytest.raises(ValueError, match="more often"):
            blocking.task_done()


def test_a_task_that_failed_is_tried_again_and_closing_gives_back_what_is_not_done(session: Session) -> None:
    blocking: BlockingQueueConsumer[bytes] = BlockingQueueConsumer()
    with (
        DistributedQueue(session, PATH, consumer=blocking, lock_path=LOCKS, retry=QUICK) as queue,
        ThreadPoolExecutor(1) as pool,
    ):
        queue.put(b"a")
        assert blocking.take(20) == b"a"
        blocking.task_failed(ValueError("not this time"))
        assert blocking.take(20) == b"a"
        waiting = pool.submit(blocking.take)
        queue.close()
        assert isinstance(waiting.exception(20), QueueClosed)
        with pytest.raises(QueueClosed):
            blocking.task_done()
    assert stored(session) == [b"a"]
    eventually(lambda: session.children(LOCKS) == [])


def test_a_queue_consumer_hears_of_the_connection(
    proxy: FaultProxy, znode_root: str, opened: Open, session: Session
) -> None:
    states: list[SessionState] = []

    class Consumer(QueueConsumer[bytes]):
        def consume(self, value: bytes) -> None: ...

        def state_changed(self, state: SessionState) -> None:
            states.append(state)

    with DistributedQueue(opened(proxy.address), PATH, consumer=Consumer()):
        proxy.cut()
        eventually(lambda: states[-2:] == [SessionState.SUSPENDED, SessionState.CONNECTED])


def test_the_builder_builds_all_four_with_the_same_settings(session: Session) -> None:
    seen = Seen()
    builder = (
        QueueBuilder.builder(session, seen, TEXT, PATH)
        .lock_path(LOCKS)
        .max_items(100)
        .put_in_background()
        .final_flush_s(20.0)
        .concurrency(2)
        .error_mode(ErrorMode.KEEP)
        .retry(QUICK)
        .compress(False)
        .linger_s(0.0)
        .name("built")
    )
    with ThreadPoolExecutor(2) as pool:
        builder.executor(pool)
        with builder.build_queue() as queue:
            queue.put("plain")
            seen.wait_for(1)
        with builder.build_id_queue() as ids:
            ids.put("id", "x")
            seen.wait_for(2)
        with builder.build_priority_queue(3) as priorities:
            priorities.put("priority", 1)
            seen.wait_for(3)
        with builder.build_delay_queue() as delays:
            delays.put("delay")
            assert seen.wait_for(4) == ["plain", "id", "priority", "delay"]
    batches: list[Any] = []
    with QueueBuilder.builder(session, None, TEXT, PATH).consume_batch(batches.append, 10).build_queue() as queue:
        queue.put_many(["a", "b", "c"])
        eventually(lambda: sum(map(len, batches)) == 3)


# -- taking, pausing, looking ------------------------------------------------------------------------------------------------------------


def test_a_queue_without_a_consumer_gives_items_on_request_and_back_on_an_error(session: Session) -> None:
    with DistributedQueue(session, PATH, lock_path=LOCKS, retry=QUICK) as queue:
        assert queue.take(0.05) is None
        queue.put(b"a")
        with pytest.raises(ValueError, match="work"), queue.take(20):
            raise ValueError("the work failed")
        item = queue.take(20)
        assert item is not None
        assert (item.value, item.attempt) == (b"a", 2)
        item.ack()
        assert queue.take(0.05) is None
    with pytest.raises(QueueClosed):
        queue.take(0)


def test_a_paused_queue_begins_nothing_until_it_is_resumed(session: Session) -> None:
    seen = Seen()
    with DistributedQueue(session, PATH) as queue:
        queue.pause()
        assert queue.is_paused
        queue.put(b"a")
        assert queue.take(0.2) is None
        queue.resume()
        assert not queue.is_paused
        with queue.take(20) as item:
            assert item.value == b"a"
    queue = DistributedQueue(session, PATH, consumer=seen)
    queue.pause()
    with queue:
        queue.put(b"b")
        assert queue.is_paused
        queue.resume()
        assert seen.wait_for(1) == [b"b"]


def test_depth_browse_purge_and_dead_letters(session: Session) -> None:
    with DistributedQueue(session, PATH, lock_path=LOCKS, retry=RetryPolicy(attempts=1)) as queue:
        queue.put_many(numbered(5))
        assert queue.depth() == 5
        assert [item.items for item in queue.browse(2)] == [[b"0"], [b"1"]]
        with pytest.raises(ValueError, match="poison"), queue.take(20):
            raise ValueError("poison")
        eventually(lambda: queue.dead_letters.count() == 1)
        assert queue.purge().deleted == 4
        assert queue.depth() == 0
        assert "closed" not in repr(queue)
    assert "closed" in repr(queue)


def test_closing_finishes_what_is_begun_and_an_error_inside_wins(session: Session) -> None:
    gate = Gate()
    gate.opened.set()
    with pytest.raises(RuntimeError, match="mine"), DistributedQueue(session, PATH, consumer=gate) as queue:
        queue.put(b"a")
        gate.wait_for(1)
        raise RuntimeError("mine")
    assert gate.values == [b"a"]
    queue.close()
