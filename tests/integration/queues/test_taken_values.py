"""Values put as one znode and taken on request: each is an item of its own, and none is lost."""

from __future__ import annotations

from typing import Any

import pytest

from leaderq.queues import TEXT, DistributedQueue, ErrorMode, Retry
from leaderq.testing import eventually
from leaderq.zookeeper import Session

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
def test_a_loop_over_take_sees_every_value_and_the_znode_goes_with_the_last(
    session: Session, lock_path: str | None
) -> None:
    with queue_of(session, lock_path) as queue:
        queue.put_multi(["one", "two", "three"])
        queue.put("four")
        seen = []
        while (item := queue.take(0.5)) is not None:
            with item:
                seen.append(item.value)
                assert queue.depth() >= (0 if lock_path is None else 1 if len(seen) == 4 else 2)
        assert seen == ["one", "two", "three", "four"]
        assert (queue.depth(), queue.dead_letters.count()) == (0, 0)


@BOTH
@pytest.mark.parametrize("mode", [ErrorMode.REQUEUE, ErrorMode.KEEP])
def test_a_value_that_failed_comes_again_without_those_that_are_done(
    session: Session, lock_path: str | None, mode: ErrorMode
) -> None:
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
    session: Session, lock_path: str | None, is_pushed: bool
) -> None:
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
