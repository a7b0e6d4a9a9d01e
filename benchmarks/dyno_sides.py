"""The sides of ``dyno.py``: leaderq and bare ZooKeeper multis here, Dyno-queues in a JVM.

Every method makes a queue that was never used before. ``push``, ``drain`` and ``deep`` return
seconds; ``wake`` and ``beside`` return seconds for each message; ``order`` returns the numbers of
the messages as they were popped. What a side lacks it does not have as a method.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count as counting
from itertools import islice
from pathlib import Path
from typing import Any

from leaderq import connect
from leaderq.dyno import DynoQueue, Message
from leaderq.testing.jars import cache_folder
from leaderq.testing.java import find_java
from leaderq.testing.ports import lease_port
from leaderq.zookeeper import Check, Create, Delete, GetData, WatchEvent, WatchKind

HERE = Path(__file__).parent
LIMIT_S = 600.0
WAIT_S = 2.0
"""How long each pop waits at most."""
UNDER_WAY = 8
"""Bare multis under way at a time, as leaderq's writer has them."""
_numbers = counting(1)


def in_lists(items: Sequence[Any], size: int) -> Iterator[list[Any]]:
    """So many at a time."""
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some


def paced(rate: int, count: int, push: Callable[[int], object]) -> None:
    """``push(number)`` at that rate; one that is late is not skipped."""
    began_s = time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, began_s + number / rate - time.monotonic()))
        push(number)


class Leaderq:
    """``leaderq.dyno`` at its defaults. Producer and consumers have sessions of their own."""

    name = "leaderq"

    def __init__(self, address: str) -> None:
        self._sessions = [connect(address) for _ in range(3)]

    def close(self) -> None:
        """End the sessions."""
        for session in self._sessions:
            session.close()

    def _path(self) -> str:
        return f"/bench/dyno/{next(_numbers)}"

    def push(self, count: int, each: int, size: int) -> float:
        return self._pushed(self._path(), count, each, size)

    def _pushed(self, path: str, count: int, each: int, size: int) -> float:
        messages = [Message(payload=b"x" * size)] * count
        with DynoQueue(self._sessions[0], path) as queue:
            queue.push(messages[:0])
            began_s = time.monotonic()
            for some in in_lists(messages, each):
                queue.push(some)
            return time.monotonic() - began_s

    def drain(self, count: int, each: int, size: int) -> float:
        path = self._path()
        self._pushed(path, count, 1000, size)
        with DynoQueue(self._sessions[1], path) as queue:
            return self._drained(queue, count, each)

    def _drained(self, queue: DynoQueue, count: int, each: int) -> float:
        began_s = time.monotonic()
        left = count
        while left:
            popped = queue.pop(min(each, left), 1.0)
            assert popped, f"{left} were not delivered"
            if each == 1:
                popped[0].ack()
            else:
                assert not any(queue.ack(popped))
            left -= len(popped)
        return time.monotonic() - began_s

    def deep(self, waiting: int, count: int, size: int) -> tuple[float, float]:
        """The first pop among so many, which has to list them; and the next, with their acks."""
        path = self._path()
        self._pushed(path, waiting + count, 1000, size)
        with DynoQueue(self._sessions[1], path) as queue:
            began_s = time.monotonic()
            queue.ack(queue.pop(1, LIMIT_S))
            first_s = time.monotonic() - began_s
            rest_s = self._drained(queue, count - 1, 100)
            queue.clear()  # or a server of 512 MB would hold those of all rounds
            return first_s, rest_s

    def wake(self, count: int, pause_s: float) -> list[float]:
        path, took_s = self._path(), []
        with (
            DynoQueue(self._sessions[0], path) as producer,
            DynoQueue(self._sessions[1], path) as consumer,
        ):
            producer.push([])
            for number in range(count):
                popped_s: list[float] = []
                waiting = threading.Thread(target=self._await_one, args=(consumer, popped_s))
                waiting.start()
                time.sleep(pause_s + number % 10 / 1000)
                pushed_s = time.monotonic()
                producer.push(Message(payload=b"x" * 100))
                waiting.join()
                took_s.append(popped_s[0] - pushed_s)
        return took_s

    @staticmethod
    def _await_one(consumer: DynoQueue, popped_s: list[float]) -> None:
        while not (found := consumer.pop(1, WAIT_S)):
            pass
        popped_s.append(time.monotonic())
        found[0].ack()

    def order(self, priorities: Sequence[int]) -> list[int]:
        numbers: list[int] = []
        with DynoQueue(self._sessions[0], self._path()) as queue:
            for number, priority in enumerate(priorities):
                queue.push(Message(payload=b"%d" % number, priority=priority))
            time.sleep(0.05)
            while len(numbers) < len(priorities):
                for one in queue.pop(1, 1.0):
                    numbers.append(int(one.payload))
                    one.ack()
        return numbers

    def beside(
        self, rate: int, count: int, takes: int, slow_s: float, lease_s: float
    ) -> list[float]:
        path, took_s = self._path(), list[float]()
        with ExitStack() as stack:
            producer, bad, free = (
                stack.enter_context(DynoQueue(session, path, lease_s=lease_s))
                for session in self._sessions
            )
            threads = [threading.Thread(target=self._work, args=(free, 0.0, took_s, count))]
            if slow_s:
                threads.append(
                    threading.Thread(target=self._work, args=(bad, slow_s, took_s, count))
                )
                for thread in threads:
                    thread.start()

            def push(number: int) -> None:
                producer.push(Message(payload=b"%d" % time.monotonic_ns()))
                if not slow_s and number == takes - 1:
                    bad.pop(takes, WAIT_S)
                    threads[0].start()

            paced(rate, count, push)
            for thread in threads:
                thread.join(120)
            assert len(took_s) == count, f"{count - len(took_s)} were not done in time"
        return took_s

    @staticmethod
    def _work(queue: DynoQueue, pause_s: float, took_s: list[float], count: int) -> None:
        while len(took_s) < count:
            for one in queue.pop(1, WAIT_S):
                time.sleep(pause_s)
                one.ack()
                took_s.append((time.monotonic_ns() - int(one.payload)) / 1e9)


class Multis:
    """What ZooKeeper itself can do: the same znodes by bare multis of ``each`` messages."""

    name = "bare multis"

    def __init__(self, address: str) -> None:
        self._sessions = [connect(address) for _ in range(2)]
        self._session = self._sessions[0]

    def close(self) -> None:
        """End the sessions."""
        for session in self._sessions:
            session.close()

    def _path(self) -> str:
        path = f"/bench/multis/{next(_numbers)}"
        for parent in ("messages", "claims"):
            self._session.ensure_path(f"{path}/{parent}")
        return path

    def push(self, count: int, each: int, size: int) -> float:
        return self._pushed(self._path(), count, each, size)

    def _pushed(self, path: str, count: int, each: int, size: int) -> float:
        create = Create(f"{path}/messages/00-", b"x" * size, sequential=True)
        began_s = time.monotonic()
        for some in in_lists(
            [[create] * len(some) for some in in_lists([0] * count, each)], self._window(each)
        ):
            for answer in [self._session.multi_async(one) for one in some]:
                answer.result(LIMIT_S)
        return time.monotonic() - began_s

    def _window(self, each: int) -> int:
        return 1 if each == 1 else UNDER_WAY

    def drain(self, count: int, each: int, size: int) -> float:
        path = self._path()
        self._pushed(path, count, 100, size)
        session, claim = self._session, b"x" * 100
        names = sorted(session.children(f"{path}/messages"))
        began_s = time.monotonic()
        for batches in in_lists(list(in_lists(names, each)), self._window(each)):
            reads = [
                session.multi_read_async([GetData(f"{path}/messages/{name}") for name in some])
                for some in batches
            ]
            claims = [
                [
                    op
                    for name in some
                    for op in (
                        Check(f"{path}/messages/{name}"),
                        Create(f"{path}/claims/{name}", claim),
                    )
                ]
                for some in batches
            ]
            acks = [
                [
                    op
                    for name in some
                    for op in (
                        Delete(f"{path}/claims/{name}", 0),
                        Delete(f"{path}/messages/{name}"),
                    )
                ]
                for some in batches
            ]
            for answer in reads:
                answer.result(LIMIT_S)
            for step in (claims, acks):
                for written in [session.multi_async(one) for one in step]:
                    written.result(LIMIT_S)
        return time.monotonic() - began_s

    def wake(self, count: int, pause_s: float) -> list[float]:
        """From a create until a watch of another session tells of it."""
        path, told, took_s = self._path(), threading.Event(), []

        def heard(event: WatchEvent) -> None:
            if event.kind is WatchKind.CREATED:
                told.set()

        watch = self._sessions[1].watch_tree(f"{path}/messages", heard)
        for number in range(count):
            told.clear()
            time.sleep(pause_s + number % 10 / 1000)
            began_s = time.monotonic()
            self._session.create(f"{path}/messages/00-", b"x" * 100, sequential=True)
            assert told.wait(LIMIT_S)
            took_s.append(time.monotonic() - began_s)
        watch.close()
        return took_s


@contextmanager
def redis(folder: Path, fsync: str) -> Iterator[int]:
    """A Redis of the system's packages, which writes all down; its port."""
    leased = lease_port()
    try:
        options = {
            "--port": leased.number,
            "--bind": "127.0.0.1",
            "--dir": folder,
            "--save": "",
            "--appendonly": "yes",
        }
        words = [
            str(word) for option in (options | {"--appendfsync": fsync}).items() for word in option
        ]
        with (folder / "redis.log").open("w") as log:
            process = subprocess.Popen(["redis-server", *words], stdout=log, stderr=log)
        try:
            yield leased.number
        finally:
            process.terminate()
            process.wait(30)
    finally:
        leased.release()


class Jvm:
    """Dyno-queues, both recipes; see ``dyno_queues/DynoBench.java``."""

    def __init__(self, port: int, log: Path) -> None:
        place = cache_folder() / "dyno-queues"
        subprocess.run(
            [
                "mvn",
                "-q",
                "-B",
                "-f",
                str(HERE / "dyno_queues" / "pom.xml"),
                "compile",
                f"-Dplace={place}",
            ],
            check=True,
        )
        options = [
            "-Xmx1g",
            f"-Dlog4j.configuration=file:{HERE / 'dyno_queues' / 'log4j.properties'}",
        ]
        command = [
            *options,
            "-cp",
            f"{place}/classes:{place}/jars/*",
            "DynoBench",
            "127.0.0.1",
            str(port),
        ]
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                [str(find_java().program), *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._log = log
        self._answer("ready")

    def close(self) -> None:
        """It ends with its stdin."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)

    def ask(self, verb: str, *arguments: object) -> str:
        """Have it done."""
        assert self._process.stdin is not None
        self._process.stdin.write("\t".join((verb, *map(str, arguments))) + "\n")
        self._process.stdin.flush()
        return self._answer("ok")

    def _answer(self, wanted: str) -> str:
        assert self._process.stdout is not None
        kind, _, told = self._process.stdout.readline().rstrip("\n").partition("\t")
        if kind != wanted:
            raise RuntimeError(
                f"Dyno-queues: {told} (see {self._log})\n{self._log.read_text()[-2000:]}"
            )
        return told


class Dyno:
    """One recipe of Dyno-queues: ``v1`` or ``v2``."""

    def __init__(self, jvm: Jvm, recipe: str) -> None:
        self.name = f"Dyno {recipe.upper()}"
        self._jvm = jvm
        self._recipe = recipe

    def push(self, count: int, each: int, size: int) -> float:
        return int(self._ask("push", self._queue(), count, each, size)) / 1e9

    def drain(self, count: int, each: int, size: int) -> float:
        queue = self._queue()
        self._ask("fill", queue, count, size)
        return int(self._ask("drain", queue, count, each)) / 1e9

    def deep(self, waiting: int, count: int, size: int) -> tuple[float, float]:
        queue = self._queue()
        self._ask("fill", queue, waiting + count, size)
        first_s = int(self._ask("drain", queue, 1, 1)) / 1e9
        return first_s, int(self._ask("drain", queue, count - 1, 100)) / 1e9

    def wake(self, count: int, pause_s: float) -> list[float]:
        return self._seconds("wake", self._queue(), count, int(pause_s * 1000), int(WAIT_S * 1000))

    def order(self, priorities: Sequence[int]) -> list[int]:
        told = self._ask("order", self._queue(), ",".join(map(str, priorities)))
        return [int(number) for number in told.split(",")]

    def beside(
        self, rate: int, count: int, takes: int, slow_s: float, lease_s: float
    ) -> list[float]:
        times = [int(seconds * 1000) for seconds in (slow_s, lease_s, WAIT_S)]
        return self._seconds("beside", self._queue(), rate, count, takes, *times)

    def _queue(self) -> str:
        return f"queue-{next(_numbers)}"

    def _ask(self, verb: str, *arguments: object) -> str:
        return self._jvm.ask(verb, self._recipe, *arguments)

    def _seconds(self, verb: str, *arguments: object) -> list[float]:
        return [int(nanos) / 1e9 for nanos in self._ask(verb, *arguments).split(",")]
