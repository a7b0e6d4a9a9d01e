"""What becomes of items that fail, on the real server: tried again, set aside, never lost; also
where strangers put znodes and permissions where nobody expects them. One item may suffer; its
neighbours may not.
"""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest
from consumption import LOCKING, LOCKS, PATH, Seen, consuming, fill, is_empty, taken
from kazoo.security import make_acl

from leaderq.base.clock import now_s
from leaderq.engine.serializers import JSON
from leaderq.errors import TooLarge
from leaderq.queues import TEXT, DistributedIdQueue, DistributedQueue, ErrorMode, Retry
from leaderq.queues.consuming import items
from leaderq.queues.wire.names import QueueKind, id_of, prefix_of
from leaderq.queues.wire.payload import decode, encode
from leaderq.testing import eventually


@LOCKING
@pytest.mark.parametrize("is_pushed", [False, True])
def test_what_cannot_be_read_is_set_aside_with_its_bytes_and_without_its_neighbours(
    session, lock, is_pushed
):
    session.ensure_path(PATH)
    several = encode([b"1", b"{", b"3"])
    for data in (b"garbage", encode([b"{not json"]), encode([b"7"]), encode([]), several):
        session.create(f"{PATH}/queue-", data, sequential=True)
    seen = Seen()
    with consuming(session, seen if is_pushed else None, lock=lock, serializer=JSON) as queue:
        for _ in range(0 if is_pushed else 3):
            with taken(queue) as item:
                seen(item.value)
        assert seen.wait_for(3) == [7, 1, 3]
        eventually(lambda: is_empty(session) and len(session.children(f"{PATH}-dead")) == 3)
        dead = [
            decode(session.get(f"{PATH}-dead/{name}")[0])
            for name in session.children(f"{PATH}-dead")
        ]
    assert {(*one.items, one.note.raw, one.note.reason) for one in dead} == {
        (b"garbage", True, "corrupt"),
        (b"{not json", False, "corrupt"),
        (b"{", False, "corrupt"),
    }


def test_an_unexpected_error_of_any_kind_does_not_end_the_consumer(session, monkeypatch):
    seen = Seen()
    failures = 2
    children = session.children

    def failing(path: str, *rest: Any, **more: Any) -> Any:
        nonlocal failures
        if path == PATH and failures:
            failures -= 1
            raise ZeroDivisionError("nobody thought of this")
        return children(path, *rest, **more)

    monkeypatch.setattr(session, "children", failing)
    with consuming(session, seen):
        fill(session, [b"a", b"b"])
        assert seen.wait_for(2) == [b"a", b"b"]
    assert failures == 0


@pytest.mark.parametrize(
    "count", [60_000, 300_000] if "LEADERQ_TEST_SOAK" in os.environ else [60_000]
)
def test_a_queue_of_more_items_than_java_can_list_is_listed_and_taken(session, count):
    """F14: to a Java client the answer is larger than it accepts."""
    with DistributedQueue(session, PATH) as queue:
        queue.put_many([b"item"] * count)
        assert queue.depth() == count
        with queue.take() as first:
            assert first.name == "queue-0000000000"
        assert sum(1 for _ in queue.browse(1000)) == 1000
        queue.delete(force=True)
    assert session.exists(PATH) is None


@LOCKING
@pytest.mark.parametrize("mode", [ErrorMode.REQUEUE, ErrorMode.KEEP])
def test_a_value_that_failed_comes_again_without_those_that_are_done_and_is_set_aside(
    session, lock, mode
):
    options = {"lock_path": LOCKS if lock else None, "error_mode": mode}
    retry = Retry(attempts=3, first_s=0.0)
    with DistributedIdQueue(session, PATH, serializer=TEXT, retry=retry, **options) as queue:
        name = queue.put_multi(["one", "two", "three"], "job")
        one, two, three = (queue.take(60) for _ in range(3))
        two.fail(ValueError("not this one"))
        three.ack()
        one.ack()
        again = queue.take(60)
        assert (again.value, again.attempt) == ("two", 2)
        again.requeue()
        again = queue.take(60)
        assert (again.value, again.attempt) == ("two", 3)
        again.fail(ValueError("nor now"))
        eventually(lambda: queue.dead_letters.count() == 1)
        (letter,) = queue.dead_letters.browse()
        assert (letter.found.items, id_of(letter.name)) == ([b"two"], "job")
        note = letter.note
        assert (note.attempt, note.reason, note.error) == (3, "attempts", "ValueError: nor now")
        assert prefix_of(note.origin) == prefix_of(name)
        assert queue.take(0.2) is None


DEAD = f"{PATH}-dead"
NOBODY = [make_acl("digest", "nobody:x", read=True)]


@pytest.mark.parametrize(
    ("how", "kind", "lock"),
    [("child", QueueKind.PLAIN, True), ("unreadable", QueueKind.PRIORITY, False)],
)
def test_an_item_that_cannot_be_had_or_removed_does_not_stop_its_neighbours(
    session, kazoo, how, kind, lock
):
    options = {"priority": 3} if kind is QueueKind.PRIORITY else {}
    first, *_ = fill(session, [b"a", b"b", b"c", b"d"], kind, **options)
    if how == "child":
        session.create(f"{PATH}/{first}/child")
    else:
        kazoo.set_acls(f"{PATH}/{first}", NOBODY)
    seen, began_s = Seen(), now_s()
    with consuming(session, seen, lock=lock, kind=kind):
        eventually(lambda: {b"b", b"c", b"d"} <= set(seen.values))
        for number in range(10):
            fill(session, [b"%d" % number], kind, **options)
            eventually(lambda value=b"%d" % number: value in seen.values)
        eventually(lambda: session.children(PATH) == [first])
        if how == "child":
            session.delete(f"{PATH}/{first}/child")
            eventually(lambda: is_empty(session))
        else:
            session.delete(f"{PATH}/{first}")
    assert seen.values.count(b"a") <= 2 + (now_s() - began_s) / items.TROUBLE_S
    assert not lock or session.children(LOCKS) == []


@LOCKING
@pytest.mark.parametrize("mode", [ErrorMode.REQUEUE, ErrorMode.KEEP])
def test_the_largest_item_of_all_is_tried_again_and_set_aside_like_others(session, lock, mode):
    with DistributedQueue(session, PATH) as queue:
        with pytest.raises(TooLarge) as raised:
            queue.put(bytes(session.max_request_bytes))
        queue.put(bytes(raised.value.limit - raised.value.size + session.max_request_bytes))
    calls = []

    def work(value: bytes) -> None:
        calls.append(len(value))
        raise ValueError("because " * 1000)

    twice = Retry(attempts=2, first_s=0.01, jitter=0)
    with consuming(session, work, lock=lock, error_mode=mode, retry=twice):
        eventually(lambda: is_empty(session) and session.exists(DEAD) and session.children(DEAD))
    (letter,) = session.children(DEAD)
    payload = decode(session.get(f"{DEAD}/{letter}")[0])
    assert [len(item) for item in payload.items] == [calls[0]]
    assert (payload.note.reason, payload.note.attempt, len(calls)) == ("attempts", 2, 2)


@LOCKING
def test_ctrl_c_while_an_item_is_read_is_heard_and_costs_no_item(session, lock):
    pressed = iter([KeyboardInterrupt])

    def read(data: bytes) -> bytes:
        for error in pressed:
            raise error
        return data

    fill(session, [b"a"])
    interrupted = SimpleNamespace(serialize=bytes, deserialize=read)
    with consuming(session, lock=lock, serializer=interrupted) as queue:
        with pytest.raises(KeyboardInterrupt):
            taken(queue)
        with taken(queue) as item:
            assert item.value == b"a"
    assert is_empty(session)
    assert session.exists(DEAD) is None
