"""The sides of ``queues.py``: leaderq and kazoo in this process, Java Curator in a JVM of its own.

Every method returns seconds. Consuming is timed from the start of the consumer until it has seen
every item and the queue's path is empty; Curator's last acknowledgements are left out.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from itertools import pairwise
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError, NoNodeError
from kazoo.recipe.queue import LockingQueue, Queue

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests" / "interop" / "queues"))

from java_peer import JavaPeer  # noqa: E402  (found by the line above)

from leaderq import Session, connect  # noqa: E402
from leaderq.errors import ConnectionLost  # noqa: E402
from leaderq.queues import (  # noqa: E402
    DistributedDelayQueue,
    DistributedIdQueue,
    DistributedPriorityQueue,
    DistributedQueue,
    PutListener,
    SimpleDistributedQueue,
)
from leaderq.queues.wire.payload import decode  # noqa: E402

LIMIT_S = 900.0
LENT_MB = 300
FIELDS: dict[str, Any] = {
    "plain": DistributedQueue,
    "id": DistributedIdQueue,
    "priority": DistributedPriorityQueue,
    "delay": DistributedDelayQueue,
}


def values(count: int, size: int) -> list[bytes]:
    """So many values of half to one and a half times ``size`` bytes."""
    lengths = random.Random(1)
    return [b"x" * (size // 2 + lengths.randint(0, size)) for _ in range(count)]


class Ground:
    """The servers as all sides need them: fresh paths, filled and emptied outside the time
    measured.
    """

    def __init__(self, address: str, folder: Path) -> None:
        self.address = address
        self._file = folder / "lent"
        self.session: Session = connect(address)
        self._count = 0

    def settle(self) -> None:
        """Have the host give this machine as much memory as the server's log will need.

        A virtual machine gets its memory when it first touches it, and pays for that: 200 MB of a
        file took 0.1 s to write into memory that it had, and 0.8 s into memory that it had not,
        which fell on either side by chance.
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

    def filled(self, items: int, size: int, *, kind: str = "plain", each: int = 1) -> str:
        """The path of a queue that holds so many items, ``each`` of them in a znode."""
        path = self.path()
        with FIELDS[kind](self.session, path, put_in_background=True) as queue:
            put_all(queue, kind, values(items, size), each)
            assert queue.flush_puts(LIMIT_S)
        return path

    def filled_simple(self, items: int, size: int) -> str:
        """The path of a simple queue that holds so many items."""
        path = self.path()
        with SimpleDistributedQueue(self.session, path) as queue:
            queue.offer_many(values(items, size))
        return path

    def empty(self, path: str) -> None:
        """Delete what lies there."""
        with DistributedQueue(self.session, path) as queue:
            queue.delete(force=True)

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
        except ConnectionLost:
            # the machine stood still, which is no reason to give up an hour's figures
            return False
        return stat is None or not stat.num_children

    def close(self) -> None:
        """End the session."""
        self.session.close()


def put_all(queue: Any, kind: str, items: Sequence[bytes], each: int = 1) -> None:
    """One call a znode; ids, priorities and due times as Curator's side has them."""
    one = queue.put if each == 1 else queue.put_multi
    for number in range(len(items) // each):
        value = items[number] if each == 1 else items[number * each : (number + 1) * each]
        if kind == "delay":
            one(value, due=0.001)
        else:
            one(value, *{"id": (f"id{number % 100}",), "priority": (number % 10,)}.get(kind, ()))


def neighbour(address: str, seconds: float) -> list[float]:
    """Seconds that each write of an unrelated client takes, one every 5 ms."""
    took_s: list[float] = []
    with connect(address) as session:
        session.ensure_path("/bench/neighbour")
        began_s = time.monotonic()
        while (asked_s := time.monotonic()) < began_s + seconds:
            session.set("/bench/neighbour", b"x" * 100)
            took_s.append(time.monotonic() - asked_s)
            time.sleep(0.005)
    return took_s


def consume_flow(
    address: str, path: str, lock_path: str | None, pause_s: float, line: Connection
) -> None:
    """Consume in a process of its own until told to end; tell when each item was put, and begun."""
    begun: list[tuple[float, float]] = []

    def consume(value: bytes) -> None:
        begun.append((float(value), time.monotonic()))
        time.sleep(pause_s)

    with (
        connect(address) as session,
        DistributedQueue(session, path, consumer=consume, lock_path=lock_path),
    ):
        line.send(None)
        line.recv()
    line.send(begun)


def consume_bare_flow(
    address: str, path: str, lock_path: str | None, pause_s: float, line: Connection
) -> None:
    """As :func:`consume_flow`, by a loop over kazoo with nothing else: it watches the children and,
    for each, locks it (if there is a lock path), reads it, deletes it (if there is none) and begins
    it, as Curator does. What Python and kazoo's client take at least.
    """
    begun: list[tuple[float, float]] = []
    client, news, is_over = KazooClient(address), threading.Event(), threading.Event()

    def consume(name: str) -> None:
        item, lock = f"{path}/{name}", f"{lock_path}/{name}"
        if lock_path:
            client.create(lock, ephemeral=True)
        value, stat = client.get(item)
        if not lock_path:
            client.delete(item, stat.version)
        begun.append((float(decode(value).items[0]), time.monotonic()))
        time.sleep(pause_s)
        if lock_path:
            client.delete(item)
            client.delete(lock)

    def work() -> None:
        while not is_over.is_set():
            news.clear()
            for name in sorted(client.get_children(path, watch=lambda _: news.set())):
                with suppress(NoNodeError, NodeExistsError):  # another consumer has it
                    consume(name)
            news.wait(1.0)

    client.start()
    for one in (path, lock_path):
        client.ensure_path(one or path)
    worker = threading.Thread(target=work)
    worker.start()
    line.send(None)
    line.recv()
    is_over.set()
    worker.join()
    client.stop()
    line.send(begun)


class Seen:
    """Counts what a consumer is given."""

    def __init__(self, items: int) -> None:
        self._left = items
        self.all = threading.Event()

    def one(self, _value: bytes) -> None:
        self.many((b"",))

    def many(self, batch: Sequence[bytes]) -> None:
        self._left -= len(batch)
        if self._left == 0:
            self.all.set()


class Stalls:
    """When the machine stood still: a request of this session, or a sleep of 2 ms, took more than 8
    ms.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._found: list[tuple[float, float]] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Stalls:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def between(self, since_s: float, until_s: float) -> float:
        """For how long of this time."""
        return sum(
            max(0.0, min(until_s, end_s) - max(since_s, start_s)) for start_s, end_s in self._found
        )

    def _watch(self) -> None:
        while not self._is_over.is_set():
            times = [time.monotonic()]
            self._session.exists("/")
            times.append(time.monotonic())
            time.sleep(0.002)
            times.append(time.monotonic())
            self._found += [(a + 0.004, b) for a, b in pairwise(times) if b - a > 0.008]


class Ours:
    """leaderq."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._sessions = [connect(ground.address) for _ in range(3)]
        self._session = self._sessions[0]

    def create(self, items: int, size: int) -> float:
        """Bare creates, one after the other."""
        path = self._ground.path()
        self._session.ensure_path(path)
        payloads = values(items, size)
        began_s = time.monotonic()
        for payload in payloads:
            self._session.create(f"{path}/queue-", payload, sequential=True)
        took_s = time.monotonic() - began_s
        self._ground.empty(path)
        return took_s

    def put(
        self,
        items: int,
        size: int,
        *,
        kind: str = "plain",
        each: int = 1,
        listener: bool = False,
        **options: Any,
    ) -> float:
        """``each`` items a znode and call; by default every call waits until it is stored."""
        return self._putting(
            partial(put_all, kind=kind, each=each), items, size, kind, listener, options
        )

    def put_many(self, items: int, size: int, *, listener: bool = False) -> float:
        """One znode an item, as one call."""
        return self._putting(
            lambda queue, items: queue.put_many(items), items, size, "plain", listener, {}
        )

    def _putting(
        self,
        put: Callable[..., object],
        items: int,
        size: int,
        kind: str,
        listener: bool,
        options: dict[str, Any],
    ) -> float:
        path, payloads = self._ground.path(), values(items, size)
        with FIELDS[kind](self._session, path, **options) as queue:
            if listener:
                queue.add_put_listener(PutListener())
            began_s = time.monotonic()
            put(queue, items=payloads)
            if not queue.flush_puts(LIMIT_S):
                raise TimeoutError(f"not all was put within {LIMIT_S:g} s")
            took_s = time.monotonic() - began_s
        self._ground.empty(path)
        return took_s

    def beside(self, load: str, seconds: float, size: int) -> list[float]:
        """What a neighbour's writes take, in a process of its own: ``idle``, or beside ``bulk``
        puts and a consumer at the defaults, or beside puts and a purge as the ``command line``
        does them; ``computing``: beside a process that asks the servers for nothing, but takes as
        much of the processors as that work.
        """
        path, payloads = self._ground.path(), values(2000, size)
        options: dict[str, Any] = {"consumer": len} if load == "bulk" else {}
        with (
            DistributedQueue(self._session, path, **options) as queue,
            ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool,
        ):
            writes = pool.submit(neighbour, self._ground.address, seconds)
            while not writes.done():
                if load == "idle":
                    time.sleep(0.05)
                    continue
                if load == "computing":
                    sum(map(len, payloads))
                    continue
                queue.put_many(payloads)
                if load == "command line":
                    queue.purge()
        self._ground.empty(path)
        return writes.result()

    def consume(
        self, path: str, items: int, *, locks: bool, kind: str = "plain", batch: bool = False
    ) -> float:
        """By one consumer with one thread; ``batch``: given as many as there are, up to 100."""
        seen = Seen(items)
        how: dict[str, Any] = {"consume_batch": seen.many} if batch else {"consumer": seen.one}
        queue = FIELDS[kind](
            self._session, path, lock_path=f"{path}-locks" if locks else None, **how
        )
        began_s = time.monotonic()
        with queue:
            if not seen.all.wait(LIMIT_S):
                raise TimeoutError(f"not all of {items} items were seen within {LIMIT_S:g} s")
            self._ground.await_empty(path)
            return time.monotonic() - began_s

    def consume_in_processes(self, path: str, count: int, *, locks: bool) -> float:
        """By as many consumers, each in a process of its own."""
        script = str(HERE / "queue_consumer.py")
        command = [
            sys.executable,
            script,
            self._ground.address,
            path,
            f"{path}-locks" if locks else "",
        ]
        consumers = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(count)
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

    def flow(
        self,
        rate: int,
        count: int,
        *,
        consumers: int,
        locks: bool,
        slow_s: float = 0.0,
        consume: Callable[..., None] = consume_flow,
    ) -> list[float]:
        """From each put to its begin, in the order of the puts; the first of several consumers may
        be slow. Each consumer is a process of its own, as Python's are in production, and runs
        ``consume``.
        """
        path, spawn = self._ground.path(), get_context("spawn")
        lock_path = f"{path}-locks" if locks else None
        lines = []
        with ExitStack() as stack:
            for number in range(consumers):
                ours, line = spawn.Pipe()
                pause_s = slow_s if number == 0 else 0.0
                given = (self._ground.address, path, lock_path, pause_s, line)
                process = spawn.Process(target=consume, args=given)
                process.start()
                stack.callback(process.join)
                lines.append(stack.enter_context(ours))
            for line in lines:
                line.recv()
            with DistributedQueue(self._session, path, put_in_background=True) as producer:
                began_s = time.monotonic()
                for number in range(count):
                    time.sleep(max(0.0, began_s + number / rate - time.monotonic()))
                    producer.put(str(time.monotonic()).encode())
            self._ground.await_empty(path)
            for line in lines:
                line.send(None)
            begun = sorted(one for line in lines for one in line.recv())
        return [at_s - put_s for put_s, at_s in begun]

    def fair(
        self, rate: int, count: int, *, beside: str, locks: bool
    ) -> tuple[list[float], list[float]]:
        """From each put to its begin by anybody, with a free consumer beside one that is hung,
        slow, paused, idle, or was asked for an item once (``pull``): as measured, and but for what
        the machine stood still. The first second does not count.
        """
        path, released = self._ground.path(), threading.Event()
        begun: list[tuple[float, float]] = []

        def consume(value: bytes, pause_s: float = 0.0) -> None:
            begun.append((float(value), time.monotonic()))
            if pause_s:
                released.wait(pause_s)

        def put(queue: Any) -> None:
            queue.put(str(time.monotonic()).encode())

        def await_begun(items: int, limit_s: float) -> None:
            deadline = time.monotonic() + limit_s
            while len(begun) < items and time.monotonic() < deadline:
                time.sleep(0.01)

        pause_s = {"hung": LIMIT_S, "slow": 0.1}.get(beside, 0.0)
        options: dict[str, Any] = {
            "lock_path": f"{path}-locks" if locks else None,
            "final_flush_s": 2.0,
        }
        other = None if beside == "pull" else partial(consume, pause_s=pause_s)
        with ExitStack() as stack:
            one = stack.enter_context(
                DistributedQueue(self._sessions[1], path, consumer=other, **options)
            )
            producer = stack.enter_context(
                DistributedQueue(self._session, path, put_in_background=True, **options)
            )
            put(producer)
            if beside == "pull":
                with one.take():
                    begun.append((0.0, 0.0))
            await_begun(1, LIMIT_S)
            if beside == "paused":
                one.pause()
            stack.enter_context(
                DistributedQueue(self._sessions[2], path, consumer=consume, **options)
            )
            stalls = stack.enter_context(Stalls(self._ground.session))
            stack.callback(released.set)
            began_s = time.monotonic()
            for number in range(rate + count):
                time.sleep(max(0.0, began_s + number / rate - time.monotonic()))
                put(producer)
            await_begun(1 + rate + count, 10.0)
        counted = [(put_s, at_s) for put_s, at_s in begun if put_s >= began_s + 1.0]
        raw = [at_s - put_s for put_s, at_s in counted]
        return raw, [at_s - put_s - stalls.between(put_s, at_s) for put_s, at_s in counted]

    def offer(self, items: int, size: int) -> float:
        """A simple queue, one after the other."""
        payloads = values(items, size)
        with SimpleDistributedQueue(self._session, self._ground.path()) as queue:
            began_s = time.monotonic()
            for payload in payloads:
                queue.offer(payload)
            return time.monotonic() - began_s

    def poll(self, path: str, items: int, *, at_once: int = 1) -> float:
        """A simple queue, one after the other, or up to ``at_once`` at a time."""
        with SimpleDistributedQueue(self._session, path) as queue:
            began_s = time.monotonic()
            seen = 0
            while seen < items:
                got = queue.poll_many(at_once)
                assert got, "the queue ended too early"
                seen += len(got)
            return time.monotonic() - began_s

    def close(self) -> None:
        """End the sessions."""
        for session in self._sessions:
            session.close()


class Kazoo:
    """kazoo's own recipes."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._client = KazooClient(ground.address)
        self._client.start()

    def put(self, items: int, size: int) -> float:
        """``Queue.put``."""
        queue = Queue(self._client, self._ground.path())
        payloads = values(items, size)
        return _timed(lambda: [queue.put(payload) for payload in payloads])

    def put_all(self, items: int, size: int) -> float:
        """``LockingQueue.put_all``, 100 at a time."""
        queue = LockingQueue(self._client, self._ground.path())
        payloads = values(items, size)
        return _timed(
            lambda: [queue.put_all(payloads[at : at + 100]) for at in range(0, items, 100)]
        )

    def get(self, items: int, size: int) -> float:
        """``Queue.get``, all of them."""
        queue = Queue(self._client, self._ground.path())
        self._fill(queue.path, items, size)
        return _timed(lambda: [queue.get() for _ in range(items)])

    def consume(self, items: int, size: int) -> float:
        """``LockingQueue.get`` and ``consume``, all of them."""
        queue = LockingQueue(self._client, self._ground.path())
        self._fill(queue.path + "/entries", items, size)

        def work() -> None:
            for _ in range(items):
                queue.get()
                queue.consume()

        return _timed(work)

    def _fill(self, path: str, items: int, size: int) -> None:
        self._client.ensure_path(path)
        waiting = [
            self._client.create_async(f"{path}/entry-100-", one, sequence=True)
            for one in values(items, size)
        ]
        for one in waiting:
            one.get()

    def close(self) -> None:
        """End the session."""
        self._client.stop()
        self._client.close()


def _timed(work: Callable[[], object]) -> float:
    began_s = time.monotonic()
    work()
    return time.monotonic() - began_s


class Curator:
    """Java Curator 5.9.0, its JIT warm after the first rounds, with a heap of 1 GB."""

    def __init__(self, ground: Ground, log: Path) -> None:
        self._ground = ground
        options = ("-Xshare:auto", "-XX:+UseParallelGC")
        self._peer = JavaPeer(log, sources=[HERE / "curator"], main="Bench", jvm=options)
        self._clients = [
            self._peer.connect(ground.address, timeout=30_000).handle for _ in range(4)
        ]

    def put(
        self,
        items: int,
        size: int,
        *,
        kind: str = "plain",
        each: int = 1,
        listener: bool = False,
        background: bool = True,
    ) -> float:
        """``each`` items a znode, in the background unless it is said otherwise."""
        path = self._ground.path()
        options = [
            f"{name}={str(is_so).lower()}"
            for name, is_so in (("listener", listener), ("background", background))
        ]
        took_s = self._ask(
            "bench-put", self._clients[0], kind, path, items // each, each, size, *options
        )
        self._ground.empty(path)
        return took_s

    def consume(
        self,
        path: str,
        items: int,
        *,
        locks: bool,
        threads: int = 1,
        consumers: int = 1,
        kind: str = "plain",
    ) -> float:
        """By consumers with as many threads."""
        clients = ",".join(self._clients[:consumers])
        took_s = self._ask(
            "bench-consume", clients, kind, path, f"{path}-locks" if locks else "", threads, items
        )
        self._ground.await_empty(path)
        return took_s

    def flow(
        self, rate: int, count: int, *, consumers: int, locks: bool, slow_s: float = 0.0
    ) -> list[float]:
        """From each put to its begin; the first of several consumers may be slow."""
        path, clients = self._ground.path(), ",".join(self._clients[1 : 1 + consumers])
        lock_path, slow_ms = f"{path}-locks" if locks else "", int(slow_s * 1000)
        told = self._answer(
            "bench-flow", self._clients[0], clients, path, lock_path, rate, count, slow_ms
        )
        return [int(nanos) / 1e9 for nanos in told.split(",")]

    def offer(self, items: int, size: int) -> float:
        """A simple queue, one after the other."""
        return self._ask("bench-offer", self._clients[0], self._ground.path(), items, size)

    def poll(self, path: str, items: int) -> float:
        """A simple queue, one after the other."""
        return self._ask("bench-poll", self._clients[0], path, items)

    def close(self) -> None:
        """End the JVM."""
        self._peer.stop()

    def _ask(self, verb: str, *arguments: object) -> float:
        return int(self._answer(verb, *arguments)) / 1e9

    def _answer(self, verb: str, *arguments: object) -> str:
        return self._peer.do(verb, *arguments, timeout_s=LIMIT_S)[0]
