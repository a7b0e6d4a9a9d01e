"""Priority and delay queues on the real server: equivalents of Curator's own tests, and the order
each promises.
"""

from __future__ import annotations

import random
import time
from datetime import datetime, timedelta, timezone

import pytest
from consumption import PATH, Held, Seen, hear_all

from leaderq.errors import ConfigurationError
from leaderq.queues import (
    JSON,
    DistributedDelayQueue,
    DistributedPriorityQueue,
)
from leaderq.queues.wire.names import MAX_PRIORITY, MIN_PRIORITY, due_ms_of
from leaderq.zookeeper import Session

# -- TestDistributedPriorityQueue


def test_a_hundred_and_one_random_priorities_come_in_order(session: Session) -> None:
    gate = Held()
    priorities = [MIN_PRIORITY, *(random.randint(MIN_PRIORITY, MAX_PRIORITY) for _ in range(100))]
    with DistributedPriorityQueue(session, PATH, serializer=JSON, consumer=gate) as queue:
        queue.put("first", MIN_PRIORITY)
        assert gate.entered.wait(60)
        for priority in priorities:
            queue.put(priority, priority)
        hear_all(session)  # nobody promises an order among items that were not heard of yet
        gate.released.set()
        assert gate.seen.wait_for(102)[1:] == sorted(priorities)


def test_a_priority_that_java_cannot_hold_is_refused(session: Session) -> None:
    with DistributedPriorityQueue(session, PATH) as queue:
        for bad in (2**31, -(2**31) - 1, 1.5, True):
            with pytest.raises(ConfigurationError):
                queue.put(b"a", bad)  # type: ignore[arg-type]
        assert queue.put_multi([b"a", b"b"], -1)
        for value in (b"a", b"b"):
            with queue.take(60) as item:
                assert item.value == value


# -- TestDistributedDelayQueue


def test_three_hundred_shuffled_times_come_exactly_in_order_and_equal_ones_in_order_of_put(
    session: Session,
) -> None:
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
