"""One queue, consumed by Java and by us at the same time; and what becomes of the items of whoever
dies.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from curator_ours import Seen, recipe

from leaderq.queues.wire.names import QueueKind
from leaderq.testing import eventually

HOLDER = """
import sys, threading
from leaderq import connect
from leaderq.queues import DistributedQueue

def hold(value):
    print(value.decode(), flush=True)
    threading.Event().wait()

address, path, lock_path = sys.argv[1:]
session = connect(address, timeout_s=8.0)
DistributedQueue(session, path, lock_path=lock_path, consumer=hold).start()
threading.Event().wait()
"""
ITEMS = 10_000


class Sharing(Seen):
    """A consumer that keeps what it was given, and at its hundredth item waits until all others
    have had as many.
    """

    def __init__(self, all_have: threading.Event) -> None:
        super().__init__()
        self._all_have = all_have

    def __call__(self, value: bytes) -> None:
        super().__call__(value)
        if len(self.values) >= 100:
            assert self._all_have.wait(120)


def test_ten_thousand_items_go_to_java_and_to_us_and_each_goes_once(java, opened, znode_root):
    path, lock_path = f"{znode_root}/q", f"{znode_root}/locks"
    with recipe(QueueKind.PLAIN, opened(), path, lock_path=lock_path) as ours:
        ours.put_many(b"%d" % number for number in range(ITEMS))
        assert ours.depth() == ITEMS
        javas = java.queue("plain", path, lock=lock_path, consume=True, threads=8, held=True)
        all_have = threading.Event()
        pythons = [Sharing(all_have) for _ in range(3)]
        with ExitStack() as stack:
            for seen in pythons:
                options = {"lock_path": lock_path, "consumer": seen, "concurrency": 2}
                stack.enter_context(recipe(QueueKind.PLAIN, opened(), path, **options))
            for seen in pythons:
                seen.await_items(100)
            javas.do("release")
            javas.await_items(100)
            all_have.set()
            eventually(lambda: ours.depth() == 0, timeout_s=120, interval_s=0.2)
            eventually(lambda: not ours._session.children(lock_path), timeout_s=60)
        javas.close()
    got = [javas.consumed, *(seen.values for seen in pythons)]
    assert all(len(values) >= 100 for values in got), "each had its share"
    assert sorted(int(item) for values in got for item in values) == list(range(ITEMS))


@pytest.fixture
def holder(zookeeper_server) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a consumer of ours that never finishes; gives the process once it holds an item."""
    started: list[subprocess.Popen[str]] = []

    def begin(path: str, lock_path: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", HOLDER, zookeeper_server.address, path, lock_path]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        assert started[-1].stdout.readline()
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.wait(10)
        process.stdout.close()


def test_java_on_an_idle_queue_is_woken_after_a_consumer_of_ours_was_killed(
    java, session, znode_root, holder
):
    path, lock_path = f"{znode_root}/q", f"{znode_root}/locks"
    # The bystander puts only; and is the one who wakes Java.
    with recipe(QueueKind.PLAIN, session, path, lock_path=lock_path) as bystander:
        bystander.put(b"precious")
        dying = holder(path, lock_path)
        javas = java.queue("plain", path, lock=lock_path, consume=True)
        # Java has looked at the queue after this, and found the other item locked
        bystander.put(b"seen")
        eventually(lambda: len(session.children(lock_path)) == bystander.depth())
        dying.kill()
        assert sorted(javas.await_items(2)) == [b"precious", b"seen"]
        eventually(lambda: bystander.depth() == 0)
        javas.close()


def test_we_are_given_what_a_killed_java_consumer_held(
    mortal_peer, session, zookeeper_server, znode_root
):
    path, lock_path = f"{znode_root}/q", f"{znode_root}/locks"
    theirs = mortal_peer.connect(zookeeper_server.address, timeout=8000).queue(
        "plain", path, lock=lock_path, consume=True, held=True, threads=2
    )
    seen = Seen()
    with recipe(QueueKind.PLAIN, session, path, lock_path=lock_path) as producer:
        producer.put_many([b"1", b"2"])
        eventually(lambda: len(theirs.events("held")) == 2)
        with recipe(QueueKind.PLAIN, session, path, lock_path=lock_path, consumer=seen):
            producer.put(b"3")
            assert seen.await_items(1) == [b"3"]
            mortal_peer.kill()
            assert sorted(seen.await_items(3)) == [b"1", b"2", b"3"]
            eventually(lambda: producer.depth() == 0)
