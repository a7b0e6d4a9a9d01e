"""What becomes of items that fail, on the real server: tried again, set aside, never lost."""

from __future__ import annotations

import os
from typing import Any

import pytest
from consumption import LOCKING, PATH, Flaky, Seen, consuming, fill, is_empty

from leaderq.engine.serializers import JSON
from leaderq.queues import TEXT, DistributedQueue, ErrorMode, Retry
from leaderq.queues.wire.names import QueueKind, id_of, prefix_of
from leaderq.queues.wire.payload import decode, encode
from leaderq.testing import eventually
from leaderq.zookeeper import Session

QUICK = Retry(attempts=3, first_s=0.01, jitter=0)


@LOCKING
def test_what_fails_too_often_goes_to_the_dead_letters_with_the_reason(session, lock):
    (name,) = fill(session, [b"bad"], QueueKind.ID, id="job")
    flaky = Flaky(99)
    with consuming(session, flaky, lock=lock, kind=QueueKind.ID, retry=QUICK):
        assert len(flaky.seen.wait_for(3)) == 3
        eventually(
            lambda: session.exists(f"{PATH}-dead") is not None and session.children(f"{PATH}-dead")
        )
        (dead,) = session.children(f"{PATH}-dead")
        payload = decode(session.get(f"{PATH}-dead/{dead}")[0])
        assert list(payload.items) == [b"bad"]
        assert payload.note is not None
        assert (payload.note.attempt, payload.note.reason, payload.note.error) == (
            3,
            "attempts",
            "ValueError: not this one",
        )
        assert id_of(dead) == "job"
        assert prefix_of(payload.note.origin or "") == prefix_of(name)
        eventually(lambda: is_empty(session))


@LOCKING
def test_corrupt_items_are_set_aside_with_their_bytes(session, lock):
    session.ensure_path(PATH)
    session.create(f"{PATH}/queue-", b"garbage", sequential=True)
    session.create(f"{PATH}/queue-", encode([b"{not json"]), sequential=True)
    session.create(f"{PATH}/queue-", encode([b"7"]), sequential=True)
    session.create(f"{PATH}/queue-", encode([]), sequential=True)
    seen = Seen()
    with consuming(session, seen, lock=lock, serializer=JSON):
        assert seen.wait_for(1) == [7]
        eventually(lambda: is_empty(session) and len(session.children(f"{PATH}-dead")) == 2)
        dead = [
            decode(session.get(f"{PATH}-dead/{name}")[0])
            for name in session.children(f"{PATH}-dead")
        ]
    assert {(*one.items, one.note.raw, one.note.reason) for one in dead} == {
        (b"garbage", True, "corrupt"),
        (b"{not json", False, "corrupt"),
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


AT_ONCE = Retry(attempts=3, first_s=0.0)
BOTH = pytest.mark.parametrize("lock_path", [None, "/locks"])


def queue_of(
    session: Session, lock_path: str | None = "/locks", **options: Any
) -> DistributedQueue[str]:
    return DistributedQueue(
        session, "/q", serializer=TEXT, lock_path=lock_path, retry=AT_ONCE, **options
    )


def taken(queue: DistributedQueue[str], count: int) -> list[Any]:
    items = [queue.take(60) for _ in range(count)]
    assert None not in items
    return items


@BOTH
@pytest.mark.parametrize("mode", [ErrorMode.REQUEUE, ErrorMode.KEEP])
def test_a_value_that_failed_comes_again_without_those_that_are_done(session, lock_path, mode):
    with queue_of(session, lock_path, error_mode=mode) as queue:
        queue.put_multi(["one", "two", "three"])
        one, two, three = taken(queue, 3)
        two.fail(ValueError("not this one"))
        three.ack()
        one.ack()
        (again,) = taken(queue, 1)
        assert (again.value, again.attempt) == ("two", 2)
        again.requeue()
        (again,) = taken(queue, 1)
        assert (again.value, again.attempt) == ("two", 3)
        again.fail(ValueError("nor now"))
        eventually(lambda: queue.dead_letters.count() == 1)
        assert [letter.found.items for letter in queue.dead_letters.browse()] == [[b"two"]]
        assert queue.take(0.2) is None


@BOTH
@pytest.mark.parametrize("is_pushed", [False, True])
def test_a_value_that_cannot_be_read_is_set_aside_without_its_neighbours(
    session, lock_path, is_pushed
):
    seen: list[str] = []
    with DistributedQueue(session, "/q") as raw:
        raw.put_multi([b"one", b"\xff", b"three"])
    with queue_of(session, lock_path, consumer=seen.append if is_pushed else None) as queue:
        if not is_pushed:
            for item in taken(queue, 2):
                with item:
                    seen.append(item.value)
        eventually(lambda: len(seen) == 2 and queue.depth() == 0)
        eventually(lambda: queue.dead_letters.count() == 1)
        (letter,) = queue.dead_letters.browse()
        assert (seen, letter.found.items, letter.note.reason) == (
            ["one", "three"],
            [b"\xff"],
            "corrupt",
        )
