"""The two sides of ``queues.py``: leaderq in this process, Java Curator in a JVM of its own. Every method gives seconds.

A consumption lasts from the start of the consumer until it has seen every item and, with ours, the queue's path is empty too; Curator's
last acknowledgements are left out.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests" / "interop" / "queues"))

from java_peer import JavaPeer  # noqa: E402  (found by the line above)

from leaderq import Session, connect  # noqa: E402
from leaderq.errors import ConnectionLost  # noqa: E402
from leaderq.queues import DistributedQueue, SimpleDistributedQueue  # noqa: E402

LIMIT_S = 900.0
LENT_MB = 600


class Ground:
    """The server as both sides need it: fresh paths, filled and emptied outside the time measured."""

    def __init__(self, address: str, folder: Path) -> None:
        self.address = address
        self._file = folder / "lent"
        self.session: Session = connect(address)
        self._count = 0

    def settle(self) -> None:
        """Have the host give this machine as much memory as the server's log will need.

        A virtual machine gets its memory when it first touches it, and pays for that: 200 MB of a file took 0.1 s to write into memory
        that it had, and 0.8 s into memory that it had not, which fell on either side by chance.
        """
        block = b"x" * 1_000_000
        with self._file.open("wb", buffering=0) as file:
            for _ in range(LENT_MB):
                file.write(block)
        self._file.unlink()

    def path(self) -> str:
        """A path never used before."""
        self._count += 1
        return f"/bench/{self._count}"

    def filled(self, items: int, size: int) -> str:
        """The path of a queue that holds so many items."""
        path = self.path()
        with DistributedQueue(self.session, path) as queue:
            queue.put_many([b"x" * size] * items)
        return path

    def filled_simple(self, items: int, size: int) -> str:
        """The path of a simple queue that holds so many items."""
        path = self.path()
        queue = SimpleDistributedQueue(self.session, path)
        queue.offer_many([b"x" * size] * items)
        queue.close()
        return path

    def empty(self, path: str) -> None:
        """Delete what lies there."""
        with DistributedQueue(self.session, path) as queue:
            queue.purge()

    def await_empty(self, path: str) -> None:
        """Until nothing lies there."""
        deadline = time.monotonic() + LIMIT_S
        while not self._is_empty(path):
            if time.monotonic() > deadline:
                raise TimeoutError(f"items are left in {path} after {LIMIT_S:g} s")
            time.sleep(0.002)

    def _is_empty(self, path: str) -> bool:
        try:
            stat = self.session.exists(path)
        except ConnectionLost:  # the machine stood still, which is no reason to give up an hour's figures
            return False
        return stat is None or not stat.num_children

    def close(self) -> None:
        """End the session."""
        self.session.close()


class Ours:
    """leaderq."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._session = connect(ground.address)

    def put_many(self, items: int, size: int) -> float:
        """One znode an item, as one call."""
        return self._putting(lambda queue, values: queue.put_many(values), [b"x" * size] * items)

    def put_background(self, items: int, size: int) -> float:
        """One znode an item, each by a call that does not wait."""

        def put_each(queue: Any, values: Sequence[bytes]) -> None:
            for value in values:
                queue.put(value)

        return self._putting(put_each, [b"x" * size] * items, put_in_background=True)

    def put_multi(self, items: int, size: int, *, each: int = 100) -> float:
        """``each`` items a znode, each by a call that does not wait."""
        several = [b"x" * size] * each

        def put_each(queue: Any, znodes: Sequence[int]) -> None:
            for _ in znodes:
                queue.put_multi(several)

        return self._putting(put_each, range(items // each), put_in_background=True)

    def consume(self, path: str, items: int, *, locks: bool, batch: bool = False) -> float:
        """By one consumer with one thread; ``batch``: given as many as there are, up to 100, at a time."""
        seen, all_seen = 0, threading.Event()

        def consume_one(value: bytes) -> None:
            nonlocal seen
            seen += 1
            if seen == items:
                all_seen.set()

        def consume_many(values: Sequence[bytes]) -> None:
            nonlocal seen
            seen += len(values)
            if seen == items:
                all_seen.set()

        how: dict[str, Any] = {"consume_batch": consume_many} if batch else {"consumer": consume_one}
        queue = DistributedQueue(self._session, path, lock_path=f"{path}-locks" if locks else None, **how)
        began_s = time.monotonic()
        with queue:
            if not all_seen.wait(LIMIT_S):
                raise TimeoutError(f"{seen} of {items} items were seen within {LIMIT_S:g} s")
            self._ground.await_empty(path)
            return time.monotonic() - began_s

    def consume_in_processes(self, path: str, count: int, *, locks: bool) -> float:
        """By as many consumers, each in a process of its own."""
        command = [
            sys.executable,
            str(HERE / "queue_consumer.py"),
            self._ground.address,
            path,
            f"{path}-locks" if locks else "",
        ]
        consumers = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(count)
        ]
        try:
            for consumer in consumers:
                assert consumer.stdout is not None
                consumer.stdout.readline()
            began_s = time.monotonic()
            for consumer in consumers:
                assert consumer.stdin is not None
                consumer.stdin.write("go\n")
                consumer.stdin.flush()
            self._ground.await_empty(path)
            return time.monotonic() - began_s
        finally:
            for consumer in consumers:
                consumer.communicate(timeout=60)

    def offer(self, items: int, size: int) -> float:
        """A simple queue, one after the other."""
        queue = SimpleDistributedQueue(self._session, self._ground.path())
        began_s = time.monotonic()
        for _ in range(items):
            queue.offer(b"x" * size)
        took_s = time.monotonic() - began_s
        queue.close()
        return took_s

    def poll(self, path: str, items: int) -> float:
        """A simple queue, one after the other."""
        return self._polling(path, items, lambda queue: [queue.poll()])

    def poll_many(self, path: str, items: int) -> float:
        """A simple queue, up to 100 at a time."""
        return self._polling(path, items, lambda queue: queue.poll_many(100))

    def close(self) -> None:
        """End the session."""
        self._session.close()

    def _putting(self, put: Callable[[Any, Any], object], values: Any, **options: Any) -> float:
        path = self._ground.path()
        with DistributedQueue(self._session, path, **options) as queue:
            began_s = time.monotonic()
            put(queue, values)
            if not queue.flush_puts(LIMIT_S):
                raise TimeoutError(f"not all was put within {LIMIT_S:g} s")
            took_s = time.monotonic() - began_s
        self._ground.empty(path)
        return took_s

    def _polling(self, path: str, items: int, poll: Callable[[SimpleDistributedQueue], Sequence[bytes | None]]) -> float:
        queue = SimpleDistributedQueue(self._session, path)
        began_s = time.monotonic()
        seen = 0
        while seen < items:
            got = poll(queue)
            assert got, "the queue ended too early"
            assert got[0] is not None, "the queue ended too early"
            seen += len(got)
        took_s = time.monotonic() - began_s
        queue.close()
        return took_s


class Curator:
    """Java Curator 5.9.0, its JIT warm after the first round, with as much memory as it likes."""

    def __init__(self, ground: Ground, log: Path) -> None:
        self._ground = ground
        self._peer = JavaPeer(
            log, sources=[HERE / "curator"], main="Bench", jvm=("-Xshare:auto", "-XX:+UseParallelGC")
        ).start()
        self._clients = [self._peer.connect(ground.address, timeout=30_000).handle for _ in range(4)]

    def put_background(self, items: int, size: int) -> float:
        """One znode an item."""
        return self._putting("bench-put", items, size)

    def put_multi(self, items: int, size: int, *, each: int = 100) -> float:
        """``each`` items a znode, in the background."""
        return self._putting("bench-put-multi", items // each, each, size)

    def consume(self, path: str, items: int, *, locks: bool, threads: int, consumers: int = 1) -> float:
        """By consumers with as many threads."""
        clients = ",".join(self._clients[:consumers])
        took_s = self._ask("bench-consume", clients, path, f"{path}-locks" if locks else "", threads, items)
        self._ground.await_empty(path)
        return took_s

    def offer(self, items: int, size: int) -> float:
        """A simple queue, one after the other."""
        return self._ask("bench-offer", self._clients[0], self._ground.path(), items, size)

    def poll(self, path: str, items: int) -> float:
        """A simple queue, one after the other."""
        return self._ask("bench-poll", self._clients[0], path, items)

    def close(self) -> None:
        """End the JVM."""
        self._peer.stop()

    def _putting(self, verb: str, *numbers: int) -> float:
        path = self._ground.path()
        took_s = self._ask(verb, self._clients[0], path, *numbers)
        self._ground.empty(path)
        return took_s

    def _ask(self, verb: str, *arguments: object) -> float:
        return int(self._peer.do(verb, *arguments, timeout_s=LIMIT_S)[0]) / 1e9
