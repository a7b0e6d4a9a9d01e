"""What becomes of items that fail, on the real server: tried again, set aside, never lost."""

from __future__ import annotations

import os
from typing import Any

import pytest
from consumption import LOCKING, PATH, Flaky, Seen, consuming, fill, is_empty

from leaderq.queues import DistributedQueue
from leaderq.queues.serializers import JSON
from leaderq.queues.wire.names import QueueKind, id_of, prefix_of
from leaderq.queues.wire.payload import decode, encode
from leaderq.testing import eventually
from leaderq.threads import Retry
from leaderq.zookeeper import Session

QUICK = Retry(attempts=3, first_s=0.01, jitter=0)


@LOCKING
def test_what_fails_too_often_goes_to_the_dead_letters_with_the_reason(
    session: Session, lock: bool
) -> None:
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
        dead = [
            decode(session.get(f"{PATH}-dead/{name}")[0])
            for name in session.children(f"{PATH}-dead")
        ]
    assert {(*one.items, one.note.raw, one.note.reason) for one in dead} == {
        (b"garbage", True, "corrupt"),
        (b"{not json", False, "corrupt"),
    }


def test_an_unexpected_error_of_any_kind_does_not_end_the_consumer(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
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
def test_a_queue_of_more_items_than_java_can_list_is_listed_and_taken(
    session: Session, count: int
) -> None:
    """F14: to a Java client the answer is larger than it accepts."""
    with DistributedQueue(session, PATH) as queue:
        queue.put_many([b"item"] * count)
        assert queue.depth() == count
        with queue.take() as first:
            assert first.name == "queue-0000000000"
        assert sum(1 for _ in queue.browse(1000)) == 1000
        queue.delete(force=True)
    assert session.exists(PATH) is None
