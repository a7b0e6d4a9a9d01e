"""The recipes on the real server: equivalents of Curator's own tests, and what each recipe
promises beyond them.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import pytest
from consumption import LOCKS, PATH, Held, Seen, stored

from leaderq.errors import ConfigurationError, QueueClosed
from leaderq.queues import (
    DistributedDelayQueue,
    DistributedIdQueue,
    DistributedQueue,
    ErrorMode,
    Retry,
)
from leaderq.queues.wire.names import due_ms_of
from leaderq.testing import eventually
from leaderq.zookeeper import Session

Open = Callable[..., Session]
QUICK = Retry(attempts=10, first_s=0.01)


@pytest.mark.parametrize(
    "mode, calls", [(ErrorMode.REQUEUE, 2), (ErrorMode.KEEP, 2), (ErrorMode.DELETE, 1)]
)
def test_the_error_mode_says_whether_a_failed_item_comes_again(
    session: Session, mode: ErrorMode, calls: int
) -> None:
    seen = Seen()

    def consume(value: bytes) -> None:
        seen(value)
        if seen.values.count(b"bad") == 1 and value == b"bad":
            raise ValueError("once")

    with DistributedQueue(
        session, PATH, consumer=consume, lock_path=LOCKS, retry=QUICK, error_mode=mode
    ) as queue:
        queue.put(b"bad")
        queue.put(b"good")
        eventually(lambda: b"good" in seen.values and not session.children(PATH))
    assert seen.values.count(b"bad") == calls


def test_an_item_in_process_is_not_removed_and_others_are(session: Session) -> None:
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
        for bad in (
            {"delay_s": 1, "due": aware},
            {"delay_s": -1},
            {"due": -1.0},
            {"due": 0},
            {"delay_s": float("nan")},
        ):
            with pytest.raises(ConfigurationError):
                queue.put(b"x", **bad)
        with queue.take(60) as item:
            assert item.value == b"c"
        assert queue.take(0.1) is None
