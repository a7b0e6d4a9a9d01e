"""A consumer of a queue that is frozen, as a process. The same, and deaths, in every order and at
every place: ``tests/simulation`` and ``tests/unit/queues/test_after_deaths.py``.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from leaderq.queues import TEXT, DistributedQueue
from leaderq.testing import eventually
from leaderq.testing.freezing import freeze
from leaderq.zookeeper import Create, connect

FROZEN = """
import sys
from leaderq.errors import LeaderqError
from leaderq.queues import TEXT, DistributedQueue
from leaderq.zookeeper import Create, connect

session = connect(sys.argv[1], timeout_s=2.0)
with DistributedQueue(session, "/q", serializer=TEXT, lock_path="/locks") as queue:
    item = queue.take(60.0)
    print("begun", item.value, flush=True)
    sys.stdin.readline()
    try:
        item.ack([Create("/done/by the frozen one")])
        print("acknowledged", flush=True)
    except LeaderqError as exc:
        print("refused", type(exc).__name__, flush=True)
"""


def test_who_was_frozen_over_an_item_that_another_has_done_is_refused(zookeeper_server, znode_root):
    address = f"{zookeeper_server.address}{znode_root}"
    with (
        connect(address) as session,
        DistributedQueue(session, "/q", serializer=TEXT, lock_path="/locks") as queue,
        subprocess.Popen(
            [sys.executable, "-c", FROZEN, address],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as frozen,
    ):
        try:
            session.create("/done")
            queue.put("work")
            assert frozen.stdout.readline() == "begun work\n"
            freeze(frozen.pid)
            with queue.take(60.0) as item:
                assert item.value == "work"
                item.ack([Create("/done/by the other one")])
            frozen.send_signal(signal.SIGCONT)
            frozen.stdin.write("go on\n")
            frozen.stdin.flush()
            assert frozen.stdout.readline().startswith("refused")
            eventually(lambda: session.children("/done") == ["by the other one"])
            assert queue.depth() == 0
        finally:
            frozen.kill()
