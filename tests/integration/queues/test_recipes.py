"""The recipes on the real server, and putting: who is told what. Whatever happens on the way:
``tests/simulation/test_writing.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from consumption import LOCKS, PATH, Flaky, Held, stored

from leaderq.errors import ConfigurationError, PutsFailed, QueueClosed, QueueEmpty, TooLarge
from leaderq.queues import (
    DistributedDelayQueue,
    DistributedIdQueue,
    DistributedQueue,
    ErrorMode,
    PutListener,
    Retry,
    SimpleDistributedQueue,
)
from leaderq.queues.wire.names import due_ms_of
from leaderq.testing import eventually

QUICK = Retry(attempts=10, first_s=0.01)


def test_an_item_that_failed_is_gone_where_the_mode_is_to_delete(session):
    flaky = Flaky(1)
    delete = ErrorMode.DELETE
    with DistributedQueue(
        session, PATH, consumer=flaky, lock_path=LOCKS, retry=QUICK, error_mode=delete
    ) as queue:
        queue.put(b"bad")
        queue.put(b"good")
        eventually(lambda: b"good" in flaky.seen.values and not session.children(PATH))
    assert flaky.seen.values == [b"bad", b"good"]
    assert session.exists(f"{PATH}-dead") is None


def test_an_item_in_process_is_not_removed_and_others_are(session):
    gate = Held()
    with DistributedIdQueue(session, PATH, consumer=gate, lock_path=LOCKS) as queue:
        queue.put(b"a", "same")
        assert gate.entered.wait(60)
        assert queue.remove("same") == 0
        gate.released.set()
        eventually(lambda: queue.depth() == 0)
        assert queue.remove("same") == 0
    assert session.children(LOCKS) == []


@pytest.mark.parametrize("locks", [None, LOCKS], ids=["without", "with-locks"])
def test_removing_fixes_the_id_as_putting_does_and_counts_exactly(session, locks):
    with DistributedIdQueue(session, PATH, lock_path=locks) as queue:
        for item, id in ((b"1", "a/b|c"), (b"2", "a_b_c"), (b"3", "other"), (b"4", "a|b|c")):
            queue.put(item, id)
        assert queue.remove("a/b|c") == 3
        assert queue.remove("a/b|c") == 0
        assert stored(session) == [b"3"]
        with pytest.raises(ConfigurationError):
            queue.remove("")
        assert queue.put_multi([b"5", b"6"], "multi")
        session.create(f"{PATH}/foreign-|other|")
        assert queue.remove("other") == queue.remove("multi") == 1
    with pytest.raises(QueueClosed):
        queue.remove("a")


def test_times_are_given_as_a_delay_a_datetime_or_seconds(session):
    with DistributedDelayQueue(session, PATH) as queue:
        aware = datetime(2030, 1, 1, tzinfo=timezone.utc)
        queue.put(b"a", due=aware)
        queue.put(b"b", due=aware.astimezone().replace(tzinfo=None))
        queue.put(b"c", due=1700000000.0)
        queue.put_multi([b"d", b"e"], due=aware + timedelta(milliseconds=1))
        queue.put_many([b"f", b"g"], delay_s=60)
        names = sorted(session.children(PATH), key=lambda name: name[-10:])
        dues = [due_ms_of(name) for name in names]
        assert dues[:4] == [1893456000000, 1893456000000, 1700000000000, 1893456000001]
        assert dues[4] == dues[5]
        wrong: list[dict[str, Any]] = [{"delay_s": 1, "due": aware}, {"delay_s": -1}, {"due": 0}]
        for bad in wrong:
            with pytest.raises(ConfigurationError):
                queue.put(b"x", **bad)
        with queue.take(60) as item:
            assert item.value == b"c"
        assert queue.take(0.1) is None


def picky(value: bytes) -> bytes:
    if value == b"bad":
        raise ValueError("not this one")
    return value


@pytest.mark.parametrize(
    ("kind", "path", "options", "says"),
    [
        (DistributedQueue, PATH, {"max_items": 0, "final_flush_s": -1}, "max_items=0.*flush_s=-1"),
        (DistributedQueue, PATH, {"lock_path": PATH}, "znodes of their own"),
        (DistributedIdQueue, "/a|b", {}, r"holds '\|'"),
        (DistributedQueue, "q", {}, "absolute"),
        (DistributedQueue, PATH, {"min_items_before_refresh": 3}, "only a priority queue"),
        (DistributedQueue, PATH, {"consumer": print, "consume_batch": print}, "not both"),
        (DistributedQueue, PATH, {"consumer": 3}, "cannot be called"),
        (DistributedQueue, PATH, {"meta_path": f"{PATH}/meta"}, "a place of its own"),
        (SimpleDistributedQueue, "/a//b", {}, "path"),
    ],
)
def test_what_cannot_be_used_is_refused_all_at_once(session, kind, path, options, says):
    with pytest.raises(ConfigurationError, match=says):
        kind(session, path, **options)


def test_a_serializer_that_raises_fails_its_item_only_and_leaves_no_counter_raised(session):
    serializer = SimpleNamespace(serialize=picky, deserialize=bytes)
    with DistributedQueue(session, PATH, serializer=serializer, final_flush_s=60.0) as queue:
        for put in (queue.put, lambda item: queue.put_multi([b"a", item])):
            with pytest.raises(ValueError, match="not this one"):
                put(b"bad")
        assert queue.flush_puts(0)
        with pytest.raises(PutsFailed) as caught:
            queue.put_many([b"a", b"bad", b"x" * 2_000_000, b"b"])
        assert (caught.value.stored, caught.value.failed) == (2, 2)
        kinds = {item[:3]: type(error) for item, error in caught.value.failures}
        assert kinds == {b"bad": ValueError, b"xxx": TooLarge}
        assert queue.flush_puts(0)
    assert stored(session) == [b"a", b"b"]


class Ledger(PutListener):
    def __init__(self, *, fails: bool = False) -> None:
        self.heard: list[Any] = []
        self.fails = fails

    def put_completed(self, item: Any) -> None:
        self.heard.append(item)
        if self.fails:
            raise ValueError("a listener that fails")

    def put_multi_completed(self, items: Sequence[Any]) -> None:
        self.put_completed(list(items))


def test_listeners_hear_of_each_item_whatever_another_raises(session):
    broken, ledger, deaf = Ledger(fails=True), Ledger(), Ledger()
    with DistributedQueue(session, PATH, put_in_background=True) as queue:
        for listener in (broken, ledger, deaf):
            queue.add_put_listener(listener)
        queue.remove_put_listener(deaf)
        queue.put(b"0")
        queue.put_multi([b"1", b"2"])
        queue.put_many([b"3", b"4"])
        assert queue.flush_puts(60)
    assert ledger.heard == broken.heard == [b"0", [b"1", b"2"], b"3", b"4"]
    assert deaf.heard == []


def test_a_full_queue_lets_a_put_wait_and_takes_it_when_there_is_room(session):
    with DistributedQueue(session, PATH, max_items=2) as queue, ThreadPoolExecutor(1) as pool:
        assert queue.put(b"0")
        assert queue.put(b"1")
        assert not queue.put(b"in vain", timeout_s=0.1)
        waiting = pool.submit(queue.put, b"2")
        session.delete(f"{PATH}/{min(session.children(PATH))}")
        assert waiting.result(60)
        assert stored(session) == [b"1", b"2"]
        assert queue.put_many([b"3", b"4"], timeout_s=0.1) == 0
        assert not queue.put_multi([b"3", b"4"], timeout_s=0.1)


@pytest.fixture
def simple(session) -> Iterator[SimpleDistributedQueue]:
    with SimpleDistributedQueue(session, "/queue") as one:
        yield one


def test_an_empty_queue_has_no_element_whatever_foreign_children_it_has(simple, session):
    session.ensure_path("/queue/foreign")
    session.create("/queue/queue-", sequential=True)
    simple.offer_many([b"a", b"b"])
    assert [simple.remove(), simple.poll(), simple.poll()] == [b"a", b"b", None]
    assert simple.peek() is None
    for ask in (simple.remove, simple.element):
        with pytest.raises(QueueEmpty, match="/queue"):
            ask()
    assert len(session.children("/queue")) == 2


def test_closing_wakes_who_waits_at_a_simple_queue_and_leaves_nothing(simple, session):
    simple.offer(b"a")
    assert simple.poll() == b"a"
    assert len(session.children("/queue-meta/tallies")) == 2
    with ThreadPoolExecutor(1) as pool:
        taken = pool.submit(simple.take)
        eventually(taken.running)
        assert simple.close()
        with pytest.raises(QueueClosed):
            taken.result(60)
    assert session.children("/queue-meta/tallies") == session.children("/queue") == []
    for ask in (simple.poll, simple.peek, lambda: simple.offer(b"")):
        with pytest.raises(QueueClosed):
            ask()


def test_an_item_that_is_too_large_is_refused_and_nothing_is_sent(simple):
    with pytest.raises(TooLarge) as caught:
        simple.offer_many([b"small", b"x" * 1_100_000])
    assert caught.value.size > caught.value.limit
    assert simple.poll() is None
    simple.offer(b"x" * 1_000_000)
    assert simple.poll() == b"x" * 1_000_000
    with pytest.raises(ConfigurationError):
        simple.poll_many(0)
