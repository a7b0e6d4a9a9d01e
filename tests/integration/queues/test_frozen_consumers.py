"""A consumer is frozen until its session is over and another has done its work; then it goes on,
before the servers can tell it so. It begins nothing of what it had claimed.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from frozen_consumer import PLACES

from leaderq.dyno import DynoQueue, Message
from leaderq.queues import TEXT, DistributedQueue
from leaderq.testing import FaultProxy
from leaderq.testing.freezing import freeze
from leaderq.zookeeper import Session

SCRIPT = Path(__file__).parent / "frozen_consumer.py"
VALUES = ["a", "b"]
PATIENCE_S = 60.0


def do_the_work(session: Session, *, is_dyno: bool) -> None:
    """What the frozen one has; it can be had as soon as that one's session is over."""
    if is_dyno:
        with DynoQueue(session, "/d") as queue:
            (message,) = queue.pop(1, PATIENCE_S)
            message.ack()
        return
    with DistributedQueue(session, "/q", serializer=TEXT, lock_path="/q-locks") as queue:
        for value in VALUES:
            with queue.take(PATIENCE_S) as item:
                assert item.value == value


@pytest.mark.parametrize("place", PLACES)
def test_who_was_frozen_begins_nothing_that_another_may_have(
    session: Session, proxy: FaultProxy, znode_root: str, place: str
) -> None:
    is_dyno = place.startswith("pop")
    if is_dyno:
        with DynoQueue(session, "/d") as messages:
            messages.push(Message("a", b"a"))
    else:
        with DistributedQueue(session, "/q", serializer=TEXT, lock_path="/q-locks") as queue:
            queue.put_multi(VALUES)
    command = [sys.executable, str(SCRIPT), place, proxy.address + znode_root]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, bufsize=1, **pipes) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stdout.readline() == "here\n"
            freeze(process.pid)
            proxy.black_hole()
            do_the_work(session, is_dyno=is_dyno)
            process.stdin.write("\n")
            process.send_signal(signal.SIGCONT)
            assert process.stdout.read() == "end\n"
        finally:
            process.kill()
