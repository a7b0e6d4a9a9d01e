"""Priority and delay queues on the real server: equivalents of Curator's own tests, and the order
each promises.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from consumption import PATH

from leaderq.errors import ConfigurationError
from leaderq.queues import (
    DistributedDelayQueue,
)
from leaderq.queues.wire.names import due_ms_of
from leaderq.zookeeper import Session


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
