"""Consuming on the real server: order, acknowledgement, what becomes of what fails, several consumers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from consumption import LOCKS, PATH, Flaky, Held, Seen, consuming, fill, is_empty

from leaderq.errors import BadVersion, ClaimLost, ConfigurationError, QueueClosed
from leaderq.queues.consumer import ConsumePlan, QueueConsumer
from leaderq.queues.consuming import Consuming, Warden
from leaderq.queues.places import Places
from leaderq.queues.retrying import ErrorMode, RetryPolicy
from leaderq.queues.serializers import JSON
from leaderq.queues.wire.kinds import Kind
from leaderq.queues.wire.names import id_of, prefix_for, prefix_of, priority_of
from leaderq.queues.wire.payload import decode, encode
from leaderq.testing import eventually
from leaderq.zookeeper import Create, Session, SessionState, SetData, end_session

QUICK = RetryPolicy(attempts=3, backoff_s=0.01, jitter=0)
LOCKING = pytest.mark.parametrize("lock", [True, False], ids=["with-locks", "without"])


# ---- order ----------------------------------------------------------------------------------------------------------------------


@LOCKING
def test_items_come_in_the_order_in_which_they_were_put_and_leave_nothing_behind(session: Session, lock: bool) -> None:
    values = [b"%04d" % number for number in range(700)]
    fill(session, values)
    seen = Seen()
    with consuming(session, seen, lock=lock):
        assert seen.wait_for(700) == values
        late = fill(session, [b"late"])
        assert seen.wait_for(701)[-1] == b"late", late
        eventually(lambda: is_empty(session))
    assert session.children(f"{PATH}-meta/members") == []
    if lock:
        assert session.children(LOCKS) == []
    else:
        assert session.children(f"{PATH}-meta/tallies") == []


def test_the_more_urgent_goes_first_whatever_the_order_of_the_puts(session: Session) -> None:
    priorities = [5, -(2**31), 0, 2**31 - 1, -5, 5, 1]
    for number, priority in enumerate(priorities):
        fill(session, [b"%d" % number], Kind.PRIORITY, priority=priority)
    seen = Seen()
    with consuming(session, seen, kind=Kind.PRIORITY):
        assert seen.wait_for(7) == [b"1", b"4", b"2", b"6", b"0", b"5", b"3"]


def test_an_urgent_item_overtakes_what_is_claimed_already(session: Session) -> None:
    fill(session, [b"%d" % number for number in range(50)], Kind.PRIORITY, priority=10)
    held = Held()
    with consuming(session, held, kind=Kind.PRIORITY) as one:
        assert held.entered.wait(10)
        fill(session, [b"urgent"], Kind.PRIORITY, priority=1)
        eventually(
            lambda: (
                one._engine.ready.is_overtaken or b"urgent" in [c.payload.items[0] for _, _, c in one._engine.ready._heap]
            )
        )
        held.released.set()
        assert held.seen.wait_for(51)[1] == b"urgent"


def test_with_slack_so_many_may_go_before_an_urgent_item(session: Session) -> None:
    fill(session, [b"%02d" % number for number in range(40)], Kind.PRIORITY, priority=10)
    held = Held()
    with consuming(session, held, kind=Kind.PRIORITY, min_items_before_refresh=3):
        assert held.entered.wait(10)
        fill(session, [b"urgent"], Kind.PRIORITY, priority=1)
        held.released.set()
        seen = held.seen.wait_for(41)
    assert sorted(seen) == [*[b"%02d" % number for number in range(40)], b"urgent"]


def test_nothing_is_delivered_before_it_is_due_and_equal_times_keep_the_order_of_the_puts(session: Session) -> None:
    now_ms = time.time_ns() // 1_000_000
    fill(session, [b"never"], Kind.DELAY, due_ms=now_ms + 3_600_000)
    fill(session, [b"%03d" % number for number in range(200)], Kind.DELAY, due_ms=now_ms + 800)
    began: list[int] = []
    seen = Seen()

    def note(value: bytes) -> None:
        began.append(time.time_ns() // 1_000_000)
        seen(value)

    with consuming(session, note, kind=Kind.DELAY):
        fill(session, [b"first"], Kind.DELAY, due_ms=now_ms - 5)
        assert seen.wait_for(201) == [b"first", *[b"%03d" % number for number in range(200)]]
        assert min(began[1:]) >= now_ms + 800
        assert len(session.children(PATH)) == 1 or eventually(lambda: len(session.children(PATH)) == 1)


def test_what_java_requeued_without_its_priority_goes_first(session: Session) -> None:
    fill(session, [b"urgent"], Kind.PRIORITY, priority=-100)
    fill(session, [b"requeued"])
    seen = Seen()
    with consuming(session, seen, kind=Kind.PRIORITY):
        assert seen.wait_for(2) == [b"requeued", b"urgent"]


# ---- taking ---------------------------------------------------------------------------------------------------------------------


@LOCKING
def test_an_item_taken_is_acknowledged_at_the_end_of_its_block(session: Session, lock: bool) -> None:
    (name,) = fill(session, [b"a"])
    with consuming(session, lock=lock) as queue:
        with queue.take(10) as item:
            assert (item.value, item.name, item.attempt) == (b"a", name, 1)
            assert abs(item.enqueued.timestamp() - time.time()) < 3600
            assert is_empty(session) is not lock
        assert is_empty(session)
        assert queue.take(0.05) is None


@LOCKING
def test_an_item_comes_again_when_its_block_fails_and_counts_its_attempts(session: Session, lock: bool) -> None:
    fill(session, [b"a"])
    with consuming(session, lock=lock, retry=QUICK) as queue:
        for attempt in (1, 2):
            with pytest.raises(ZeroDivisionError), queue.take(10) as item:
                assert item.attempt == attempt
                1 / 0  # noqa: B018
        item = queue.take(10)
        assert item is not None
        assert item.attempt == 3
        item.ack()
        assert is_empty(session)


def test_a_taker_is_woken_by_a_put(session: Session) -> None:
    session.ensure_path(PATH)
    with consuming(session) as queue, ThreadPoolExecutor(1) as pool:
        taken = pool.submit(queue.take, 20)
        eventually(lambda: queue._engine.ready.takers == 1)
        fill(session, [b"a"])
        item = taken.result(10)
        assert item.value == b"a"
        item.ack()


def test_the_users_own_writes_go_with_the_acknowledgement_or_not_at_all(session: Session) -> None:
    session.create("/total", b"0")
    fill(session, [b"a"])
    with consuming(session) as queue:
        item = queue.take(10)
        with pytest.raises(BadVersion) as failure:
            item.ack([SetData("/total", b"1", version=0), SetData("/total", b"2", version=9)])
        assert failure.value.index == 1
        assert session.get("/total")[0] == b"0"
        assert not is_empty(session)
        assert item.ack([SetData("/total", b"1", version=0), Create("/receipt")])[1] == "/receipt"
        assert session.get("/total")[0] == b"1"
        assert is_empty(session)
        with pytest.raises(QueueClosed):
            item.ack()


def test_an_acknowledgement_after_the_session_is_over_writes_nothing(opened: Callable[[], Session], address: str) -> None:
    mine, other = opened(timeout_s=4.0), opened(timeout_s=4.0)
    mine_credentials = mine.credentials
    assert mine_credentials is not None
    fill(other, [b"a"])
    with consuming(mine) as queue, consuming(other) as next_one:
        item = queue.take(10)
        states: list[SessionState] = []
        mine.add_listener(states.append)
        end_session(address, mine_credentials)
        again = next_one.take(10)
        assert again.value == b"a"
        eventually(lambda: SessionState.LOST in states)
        with pytest.raises(ClaimLost):
            item.ack([Create("/receipt")])
        assert other.exists("/receipt") is None
        again.ack()
        assert is_empty(other)


def test_without_locks_the_users_writes_are_fenced_by_the_session_all_the_same(
    opened: Callable[[], Session], address: str
) -> None:
    mine, other = opened(timeout_s=4.0), opened(timeout_s=4.0)
    fill(other, [b"a"])
    with consuming(mine, lock=False) as queue:
        item = queue.take(10)
        credentials = mine.credentials
        assert credentials is not None
        end_session(address, credentials)
        eventually(lambda: other.children(f"{PATH}-meta/members") == [] or mine.id != credentials.session_id)
        with pytest.raises(ClaimLost):
            item.ack([Create("/receipt")])
        assert other.exists("/receipt") is None


def test_requeue_puts_an_item_to_the_tail_with_its_id(session: Session) -> None:
    fill(session, [b"a"], Kind.ID, id="x")
    fill(session, [b"b"], Kind.ID, id="y")
    with consuming(session, kind=Kind.ID) as queue:
        queue.take(10).requeue()
        with queue.take(10) as item:
            assert (item.value, id_of(item.name)) == (b"b", "y")
        with queue.take(10) as item:
            assert (item.value, id_of(item.name), item.attempt) == (b"a", "x", 2)


def test_a_queue_with_a_consumer_gives_nothing_on_request(session: Session) -> None:
    with consuming(session, Seen()) as queue, pytest.raises(QueueClosed, match="has a consumer"):
        queue.take(0.1)
    with pytest.raises(QueueClosed, match="closed"):
        queue.start()


# ---- what fails -----------------------------------------------------------------------------------------------------------------


@LOCKING
def test_a_failed_item_goes_to_the_tail_and_keeps_its_priority(session: Session, lock: bool) -> None:
    fill(session, [b"bad"], Kind.PRIORITY, priority=3)
    fill(session, [b"good"], Kind.PRIORITY, priority=4)
    flaky = Flaky(1)
    names: list[str] = []
    policy = RetryPolicy(backoff_s=0.3)
    with (
        session.watch_tree(PATH, lambda event: names.append(event.path.rpartition("/")[2])),
        consuming(session, flaky, lock=lock, kind=Kind.PRIORITY, retry=policy),
    ):
        assert flaky.seen.wait_for(3) == [b"bad", b"good", b"bad"]
        eventually(lambda: is_empty(session))
    assert {priority_of(name) for name in names} == {3, 4}
    assert len({len(name) for name in names}) == 1


@LOCKING
def test_what_fails_too_often_goes_to_the_dead_letters_with_the_reason(session: Session, lock: bool) -> None:
    (name,) = fill(session, [b"bad"], Kind.ID, id="job")
    flaky = Flaky(99)
    with consuming(session, flaky, lock=lock, kind=Kind.ID, retry=QUICK):
        assert len(flaky.seen.wait_for(3)) == 3
        eventually(lambda: session.exists(f"{PATH}-dead") is not None and session.children(f"{PATH}-dead"))
        (dead,) = session.children(f"{PATH}-dead")
        payload = decode(session.get(f"{PATH}-dead/{dead}")[0])
        assert list(payload.items) == [b"bad"]
        assert payload.note is not None
        assert (payload.note.attempt, payload.note.reason, payload.note.error) == (3, "attempts", "ValueError: not this one")
        assert id_of(dead) == "job"
        assert prefix_of(payload.note.origin or "") == prefix_of(name)
        eventually(lambda: is_empty(session))


@LOCKING
def test_of_several_put_as_one_only_what_is_left_is_tried_again(session: Session, lock: bool) -> None:
    session.ensure_path(PATH)
    session.create(f"{PATH}/queue-", encode([b"1", b"2", b"bad", b"4"]), sequential=True)
    flaky = Flaky(1)
    with consuming(session, flaky, lock=lock, retry=QUICK):
        assert flaky.seen.wait_for(5) == [b"1", b"2", b"bad", b"bad", b"4"]
        eventually(lambda: is_empty(session))


@LOCKING
def test_in_keep_mode_nothing_overtakes_what_is_tried_again(session: Session, lock: bool) -> None:
    fill(session, [b"1", b"bad", b"3", b"4"])
    flaky = Flaky(2)
    with consuming(session, flaky, lock=lock, retry=QUICK, error_mode=ErrorMode.KEEP):
        assert flaky.seen.wait_for(6) == [b"1", b"bad", b"bad", b"bad", b"3", b"4"]
        eventually(lambda: is_empty(session))


def test_in_keep_mode_attempts_are_counted_across_consumers(opened: Callable[[], Session]) -> None:
    first, second = opened(timeout_s=4.0), opened(timeout_s=4.0)
    fill(second, [b"bad"])
    flaky = Flaky(99)
    with consuming(first, flaky, retry=RetryPolicy(attempts=10, backoff_s=30), error_mode=ErrorMode.KEEP):
        flaky.seen.wait_for(1)
    with consuming(second, retry=QUICK) as queue:
        eventually(lambda: not second.children(LOCKS))
        assert decode(second.get(f"{PATH}/{second.children(PATH)[0]}")[0]).note.attempt == 1
        assert queue.is_paused is False


@LOCKING
def test_in_delete_mode_a_failed_item_is_done_with_and_the_rest_of_its_znode_is_not(session: Session, lock: bool) -> None:
    session.ensure_path(PATH)
    session.create(f"{PATH}/queue-", encode([b"1", b"bad", b"3"]), sequential=True)
    flaky = Flaky(99)
    with consuming(session, flaky, lock=lock, error_mode=ErrorMode.DELETE):
        assert flaky.seen.wait_for(3) == [b"1", b"bad", b"3"]
        eventually(lambda: is_empty(session))
    assert session.exists(f"{PATH}-dead") is None


@LOCKING
def test_corrupt_items_are_set_aside_with_their_bytes(session: Session, lock: bool) -> None:
    session.ensure_path(PATH)
    session.create(f"{PATH}/queue-", b"garbage", sequential=True)
    session.create(f"{PATH}/queue-", encode([b"{not json"]), sequential=True)
    session.create(f"{PATH}/queue-", encode([b"7"]), sequential=True)
    session.create(f"{PATH}/queue-", encode([]), sequential=True)
    seen = Seen()
    with consuming(session, seen, lock=lock, serializer=JSON):
        assert seen.wait_for(1) == [7]
        eventually(lambda: is_empty(session) and len(session.children(f"{PATH}-dead")) == 2)
        first, second = [decode(session.get(f"{PATH}-dead/{name}")[0]) for name in sorted(session.children(f"{PATH}-dead"))]
    assert (list(first.items), first.note.raw, first.note.reason) == ([b"garbage"], True, "corrupt")
    assert (list(second.items), second.note.raw, second.note.reason) == ([b"{not json"], False, "corrupt")


def test_foreign_children_are_left_alone(session: Session) -> None:
    session.ensure_path(f"{PATH}/stranger")
    fill(session, [b"a"])
    seen = Seen()
    with consuming(session, seen):
        seen.wait_for(1)
        eventually(lambda: session.children(PATH) == ["stranger"])


def test_an_executor_that_refuses_work_loses_nothing(session: Session) -> None:
    fill(session, [b"a", b"b"])
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    seen = Seen()
    with consuming(session, seen, executor=pool):
        eventually(lambda: session.exists(f"{PATH}-meta/members") is not None)
    assert seen.values == []
    with consuming(session, seen):
        assert seen.wait_for(2) == [b"a", b"b"]


# ---- many at once ---------------------------------------------------------------------------------------------------------------


def test_a_slow_item_does_not_hold_up_others(session: Session) -> None:
    fill(session, [b"slow", *[b"%d" % number for number in range(30)]])
    seen, released = Seen(), threading.Event()

    def work(value: bytes) -> None:
        if value == b"slow":
            released.wait(30)
        seen(value)

    with consuming(session, work, concurrency=3):
        assert b"slow" not in seen.wait_for(30)
        released.set()
        assert seen.wait_for(31)[-1] == b"slow"


def test_what_a_stuck_consumer_has_claimed_ahead_goes_to_others(opened: Callable[[], Session]) -> None:
    mine, other = opened(timeout_s=4.0), opened(timeout_s=4.0)
    fill(other, [b"%03d" % number for number in range(300)])
    seen, stuck, released = Seen(), threading.Event(), threading.Event()

    def get_stuck(value: bytes) -> None:
        seen(value)
        if len(seen.values) == 100:
            stuck.set()
            released.wait(60)

    with consuming(mine, get_stuck):
        assert stuck.wait(20)
        with consuming(other, seen):
            assert len(set(seen.wait_for(300, timeout_s=20))) == 300
            released.set()


def test_a_batch_consumer_gets_many_and_what_failed_comes_alone(session: Session) -> None:
    fill(session, [b"%02d" % number for number in range(20)])
    batches: list[list[bytes]] = []

    def consume(values: list[bytes]) -> None:
        batches.append(list(values))
        if b"07" in values and len(batches) < 20:
            raise ValueError("one of them is bad")

    with consuming(session, None, consume_batch=consume, batch_items=6, retry=RetryPolicy(backoff_s=0.01)):
        eventually(lambda: is_empty(session))
    assert all(len(batch) <= 6 for batch in batches)
    assert {value for batch in batches for value in batch} == {b"%02d" % number for number in range(20)}
    failed = next(batch for batch in batches if b"07" in batch)
    assert all([value] in batches for value in failed if len(failed) > 1)


@LOCKING
def test_several_consumers_share_a_queue_and_no_item_is_given_twice(opened: Callable[[], Session], lock: bool) -> None:
    values = [b"%04d" % number for number in range(2000)]
    sessions = [opened(timeout_s=4.0) for _ in range(4)]
    seen = Seen()
    running = [
        Consuming(one, Places(PATH, LOCKS if lock else None), Kind.PLAIN, ConsumePlan(consumer=seen)) for one in sessions
    ]
    for begin in range(0, 2000, 500):
        fill(sessions[0], values[begin : begin + 500])
    for one in running:
        one.start()
    assert sorted(seen.wait_for(2000, timeout_s=30)) == values
    eventually(lambda: is_empty(sessions[0]))
    assert all(one.close(5.0) for one in running)
    assert len(seen.values) == 2000


def test_what_a_dead_consumer_held_goes_to_an_idle_one(opened: Callable[[], Session], address: str) -> None:
    dying, living = opened(timeout_s=4.0), opened(timeout_s=4.0)
    fill(living, [b"a"])
    held, seen = Held(), Seen()
    with consuming(dying, held):
        assert held.entered.wait(10)
        with consuming(living, seen):
            eventually(lambda: len(living.children(f"{PATH}-meta/members")) == 2)
            assert seen.values == []
            credentials = dying.credentials
            assert credentials is not None
            end_session(address, credentials)
            assert seen.wait_for(1) == [b"a"]
            eventually(lambda: is_empty(living))
            held.released.set()


# ---- the life of a consumer -------------------------------------------------------------------------------------------------------


def test_a_queue_whose_path_is_deleted_and_made_again_is_heard_again(session: Session) -> None:
    seen = Seen()
    with consuming(session, seen):
        fill(session, [b"a"])
        seen.wait_for(1)
        eventually(lambda: is_empty(session))
        session.delete(PATH)
        fill(session, [b"b"])
        assert seen.wait_for(2) == [b"a", b"b"]


def test_the_lock_path_may_vanish(session: Session) -> None:
    seen = Seen()
    with consuming(session, seen):
        session.delete(LOCKS)
        fill(session, [b"a"])
        assert seen.wait_for(1) == [b"a"]


def test_pausing_stops_what_is_not_begun_and_an_operator_can_do_it_too(session: Session) -> None:
    fill(session, [b"%d" % number for number in range(10)])
    held = Held()
    with consuming(session, held) as queue:
        assert held.entered.wait(10)
        queue.pause()
        held.released.set()
        eventually(lambda: queue._engine.ready.takers == 1)
        assert held.seen.values == [b"0"]
        session.ensure_path(f"{PATH}-meta/control")
        session.set(f"{PATH}-meta/control", b'{"paused": true}')
        eventually(lambda: queue._engine.pausing._by_operator)
        queue.resume()
        assert queue.is_paused
        assert held.seen.values == [b"0"]
        session.set(f"{PATH}-meta/control", b"{}")
        assert len(held.seen.wait_for(10)) == 10


def test_closing_gives_back_what_was_claimed_ahead(session: Session) -> None:
    fill(session, [b"%03d" % number for number in range(300)])
    seen = Seen()

    def work(value: bytes) -> None:
        seen(value)
        time.sleep(0.002)

    with consuming(session, work):
        seen.wait_for(50)
    begun = len(seen.values)
    assert begun < 300
    assert session.children(LOCKS) == []
    assert len(session.children(PATH)) == 300 - begun
    with consuming(session, seen):
        assert sorted(seen.wait_for(300)) == [b"%03d" % number for number in range(300)]


def test_closing_without_locks_loses_nothing_that_was_not_begun(session: Session) -> None:
    fill(session, [b"%03d" % number for number in range(300)])
    seen = Seen()

    def work(value: bytes) -> None:
        seen(value)
        time.sleep(0.002)

    queue: Consuming[bytes] = Consuming(session, Places(PATH), Kind.PLAIN, ConsumePlan(consumer=work))
    queue.start()
    seen.wait_for(50)
    queue.close(0.01)
    with consuming(session, seen, lock=False):
        assert sorted(seen.wait_for(300)) == [b"%03d" % number for number in range(300)]
        eventually(lambda: is_empty(session))
    assert len(seen.values) == 300


def test_closing_does_not_wait_for_a_consumer_that_hangs_and_what_it_does_is_acknowledged_later(session: Session) -> None:
    fill(session, [b"a"])
    held = Held()
    queue: Consuming[bytes] = Consuming(session, Places(PATH, LOCKS), Kind.PLAIN, ConsumePlan(consumer=held))
    queue.start()
    assert held.entered.wait(10)
    assert queue.close(0.1) is False
    assert not is_empty(session)
    held.released.set()
    eventually(lambda: is_empty(session) and session.children(LOCKS) == [])
    eventually(lambda: session.children(f"{PATH}-meta/members") == [])


def test_a_queue_consumer_hears_of_the_connection(session: Session) -> None:
    class Hearing(QueueConsumer[bytes]):
        def __init__(self) -> None:
            self.states: list[SessionState] = []
            self.seen = Seen()

        def consume(self, value: bytes) -> None:
            self.seen(value)

        def state_changed(self, state: SessionState) -> None:
            self.states.append(state)
            raise RuntimeError("harmless")

    hearing = Hearing()
    with consuming(session, hearing):
        session.drop_connection()
        eventually(lambda: SessionState.SUSPENDED in hearing.states and hearing.states[-1] is SessionState.CONNECTED)
        fill(session, [b"a"])
        assert hearing.seen.wait_for(1) == [b"a"]


def test_a_session_that_expires_is_followed_by_another_and_consuming_goes_on(
    opened: Callable[[], Session], address: str
) -> None:
    mine, other = opened(timeout_s=4.0), opened(timeout_s=4.0)
    seen = Seen()
    with consuming(mine, seen):
        fill(other, [b"a"])
        seen.wait_for(1)
        credentials = mine.credentials
        assert credentials is not None
        end_session(address, credentials)
        fill(other, [b"b"])
        assert seen.wait_for(2)[:2] == [b"a", b"b"]
        eventually(lambda: is_empty(other))


def test_the_warden_pokes_when_a_member_vanishes_and_items_lie_free(opened: Callable[[], Session], address: str) -> None:
    dying, watching = opened(timeout_s=4.0), opened(timeout_s=4.0)
    fill(watching, [b"a"])
    warden = Warden(watching, Places(PATH, LOCKS), Kind.PLAIN)
    warden.start()
    held = Held()
    with consuming(dying, held):
        assert held.entered.wait(10)
        eventually(lambda: bool(warden._members))
        fired = threading.Event()
        watching.children(PATH, lambda _event: fired.set())
        credentials = dying.credentials
        assert credentials is not None
        end_session(address, credentials)
        eventually(lambda: not watching.children(LOCKS) or warden.poked)
        held.released.set()
        assert fired.wait(10)
    warden.close()
    assert "poke" not in watching.children(PATH)


def test_a_plan_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="not both"):
        ConsumePlan(consumer=print, consume_batch=print)
    with pytest.raises(ConfigurationError, match="neither a callable"):
        ConsumePlan(consumer=3)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="attempts=0"):
        RetryPolicy(attempts=0)
    assert prefix_for(Kind.PLAIN) == "queue-"


def test_an_item_deleted_behind_the_consumers_back_leaves_no_lock(session: Session) -> None:
    (first, *_) = fill(session, [b"a", b"b", b"c"])
    held = Held()
    with consuming(session, held):
        assert held.entered.wait(10)
        session.delete(f"{PATH}/{first}")
        held.released.set()
        assert held.seen.wait_for(3) == [b"a", b"b", b"c"]
        eventually(lambda: is_empty(session) and session.children(LOCKS) == [])
