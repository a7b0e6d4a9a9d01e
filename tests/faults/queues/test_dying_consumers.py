"""Consumers of a queue that are frozen, or die, as processes. The same in every order and at every
place: ``tests/simulation``.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

from leaderq.queues import TEXT, DistributedQueue
from leaderq.testing import eventually
from leaderq.testing.freezing import freeze
from leaderq.testing.waiting import patience
from leaderq.zookeeper import Create, connect


def python(program: str, *words: str, **streams: Any) -> subprocess.Popen[str]:
    path = os.pathsep.join(filter(None, sys.path))
    command = [sys.executable, "-c", program, *words]
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, text=True, **streams)


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
        python(FROZEN, address, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as frozen,
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


DYING = """
import os, sys, threading
from pathlib import Path
from leaderq.queues import TEXT, DistributedQueue, Retry
from leaderq.zookeeper import connect

address, log, attempts = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
timeout_s = float(sys.argv[4])  # who loses its session is taken for dead as well

def consume(value):
    with log.open("a") as file:
        file.write(f"{value}\\n")
    if value == "poison":
        os._exit(9)
    if value == "last":
        is_over.set()

is_over = threading.Event()
with connect(address, timeout_s=timeout_s) as session:
    retry = Retry(attempts=attempts, first_s=0.0)
    with DistributedQueue(
        session, "/q", consumer=consume, serializer=TEXT, lock_path="/locks", retry=retry
    ) as queue:
        while not is_over.wait(0.05) and not (queue.dead_letters.count() and not queue.depth()):
            pass
"""


def test_an_item_over_which_consumers_die_is_set_aside_and_no_other(
    zookeeper_server, znode_root, tmp_path
):
    """After as many deaths as the retry policy says."""
    log, address = tmp_path / "begun", f"{zookeeper_server.address}{znode_root}"

    def dies() -> bool:
        words = [address, str(log), "2", str(patience())]
        code = python(DYING, *words).wait(60 * patience())
        assert code in (0, 9)
        return code == 9

    with connect(address) as session:
        queue = DistributedQueue(session, "/q", serializer=TEXT, lock_path="/locks")
        with queue:
            queue.put_many([f"before {number}" for number in range(20)])
            queue.put("poison")
            queue.put_many([f"after {number}" for number in range(20)])
            deaths = 0
            while dies():
                deaths += 1
                assert deaths <= 3
                eventually(lambda: not session.children("/locks"))
            assert deaths >= 2
            (letter,) = queue.dead_letters.browse()
            assert (letter.found.items, letter.note.reason) == ([b"poison"], "died")
            assert "consumers died while they worked on it" in (letter.note.error or "")
            assert queue.depth() == 0
            begun = log.read_text().splitlines()
            assert begun.count("poison") == deaths
            assert len({value for value in begun if value != "poison"}) == 40
            assert session.children("/q-meta/claims") == []
