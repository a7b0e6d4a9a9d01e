"""Java Curator in a process of its own, driven over its stdin and stdout; see ``java/Peer.java``
for the lines.

A :class:`JavaPeer` ends with this process, whatever ends it: its stdin is closed then. All waits
are bounded.
"""

from __future__ import annotations

import itertools
import subprocess
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from curator_jars import SOURCES, compiled

from leaderq.testing.java import find_java
from leaderq.testing.java_server import QUICK_START
from leaderq.testing.waiting import eventually, patience

_ANSWER_TIMEOUT_S = 60.0
_LOGGING = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
)


class JavaFailed(AssertionError):
    """Java answered with an exception, or not at all."""


@dataclass(frozen=True)
class Event:
    """What Java told unasked: ``at_s`` on ``CLOCK_MONOTONIC``."""

    kind: str
    at_s: float
    value: str

    @property
    def item(self) -> bytes:
        return bytes.fromhex(self.value)


class JavaPeer:
    """One JVM, which answers by then. ``log`` gets its stderr; ``sources`` are further folders of
    Java sources and ``main`` the class that is run.
    """

    def __init__(
        self,
        log: Path,
        *,
        sources: Iterable[Path] = (),
        main: str = "Peer",
        jvm: Sequence[str] = QUICK_START,
    ) -> None:
        command = [str(find_java().program), "-Xmx1g", *jvm, *_LOGGING]
        command += ["-cp", compiled([SOURCES, *sources]), main]
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._answers: dict[str, Future[list[str]]] = {}
        self._events: dict[str, list[Event]] = {}
        with log.open("a") as errors:
            self.process: Any = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                encoding="utf-8",
                bufsize=1,
            )
        threading.Thread(target=self._read, name="java-peer", daemon=True).start()
        eventually(
            lambda: self.events("peer", "ready"), timeout_s=120, message=f"Java answers (see {log})"
        )

    def ask(self, verb: str, *arguments: object) -> Future[list[str]]:
        """Have something done; the values of the answer come with the future."""
        number = str(next(self._numbers))
        answer: Future[list[str]] = Future()
        with self._lock:
            self._answers[number] = answer
            self.process.stdin.write("\t".join((number, verb, *map(str, arguments))) + "\n")
            self.process.stdin.flush()
        return answer

    def do(self, verb: str, *arguments: object, timeout_s: float = _ANSWER_TIMEOUT_S) -> list[str]:
        """Have something done, and wait for it.

        :raises JavaFailed: an exception came of it.
        """
        return self.ask(verb, *arguments).result(timeout_s * patience())

    def events(self, handle: str, *kinds: str) -> list[Event]:
        """What was told of a handle so far, in order."""
        with self._lock:
            told = list(self._events.get(handle, ()))
        return [event for event in told if not kinds or event.kind in kinds]

    def connect(self, address: str, **options: object) -> JavaClient:
        return self.made(JavaClient, "connect", address, *_options(options))

    def made(self, kind: type[Made], verb: str, *arguments: object) -> Made:
        """What Java makes of a verb, with a handle of its own."""
        handle = f"{verb}-{next(self._numbers)}"
        self.do(verb, handle, *arguments)
        return kind(self, handle)

    def kill(self) -> None:
        """SIGKILL, as a host that fails."""
        self.process.kill()
        self.stop()

    def stop(self) -> None:
        """Let it end; may be called again."""
        with self._lock, suppress(BrokenPipeError):  # nobody read what was still buffered
            self.process.stdin.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(60)

    def _read(self) -> None:
        with self.process.stdout as lines:
            for line in lines:
                first, second, *rest = line.rstrip("\n").split("\t")
                if first == "-":
                    told = Event(rest[0], int(rest[1]) / 1e9, rest[2] if len(rest) > 2 else "")
                    with self._lock:
                        self._events.setdefault(second, []).append(told)
                    continue
                with self._lock:
                    answer = self._answers.pop(first)
                if second == "ok":
                    answer.set_result(rest)
                else:
                    answer.set_exception(JavaFailed(" ".join(rest)))
        with self._lock:
            left, self._answers = self._answers, {}
        for answer in left.values():
            answer.set_exception(JavaFailed("the JVM ended before it answered"))


class JavaThing:
    """What a handle stands for."""

    def __init__(self, peer: JavaPeer, handle: str) -> None:
        self.peer = peer
        self.handle = handle

    def do(self, verb: str, *arguments: object) -> list[str]:
        return self.peer.do(verb, self.handle, *arguments)

    def events(self, *kinds: str) -> list[Event]:
        return self.peer.events(self.handle, *kinds)

    def close(self) -> None:
        self.do("close")

    @property
    def consumed(self) -> list[bytes]:
        """The items that its consumer was given and did not fail with, in order."""
        return [event.item for event in self.events("item")]

    def await_items(self, count: int) -> list[bytes]:
        """The items consumed, once there are ``count``."""
        told = f"Java consumes {count} items"
        eventually(lambda: len(self.events("item")) >= count, timeout_s=60, message=told)
        return self.consumed


class JavaClient(JavaThing):
    """A session of Java's, and what is built on it; options as the files in ``java`` list them."""

    def queue(self, kind: str, path: str, **options: object) -> JavaQueue:
        return self.peer.made(JavaQueue, "queue", self.handle, kind, path, *_options(options))

    def simple(self, path: str) -> JavaSimple:
        return self.peer.made(JavaSimple, "simple", self.handle, path)

    def sharder(self, path: str, leader_path: str, **options: object) -> JavaSharder:
        return self.peer.made(
            JavaSharder, "sharder", self.handle, path, leader_path, *_options(options)
        )

    def latch(self, path: str, id: str) -> JavaLatch:
        return self.peer.made(JavaLatch, "latch", self.handle, path, id)


class JavaQueue(JavaThing):
    """Any DistributedQueue, started; ``how`` is the id, priority or due time. What is put is
    waited for.
    """

    def put(self, item: bytes, how: object = "") -> None:
        self._put("put", item.hex(), how)

    def put_multi(self, items: Sequence[bytes], how: object = "") -> None:
        self._put("put-multi", ",".join(item.hex() for item in items) if items else "-", how)

    def _put(self, verb: str, *arguments: object) -> None:
        self.do(verb, *arguments)
        assert self.do("flush") == ["true"]

    def remove(self, id: str) -> int:
        """How many items of that id Curator removed."""
        return int(self.do("remove", id)[0])


class JavaSimple(JavaThing):
    def offer(self, item: bytes) -> None:
        assert self.do("offer", item.hex()) == ["true"]

    def first(self, verb: str) -> bytes | None:
        """What ``peek`` or ``poll`` returns; ``None`` if there is none."""
        values = self.do(verb)
        return bytes.fromhex(values[0]) if values else None


class JavaSharder(JavaThing):
    def put(self, item: bytes) -> None:
        self.do("shard-put", item.hex())

    @property
    def shards(self) -> set[str]:
        """The paths of the shards that it knows."""
        return set(self.do("shards"))


class JavaLatch(JavaThing):
    @property
    def has_led(self) -> bool:
        """Whether it was ever told that it leads."""
        return bool(self.events("isLeader"))

    @property
    def participants(self) -> set[str]:
        """The ids of all that stand in line, as Java sees it."""
        return set(self.do("participants"))

    @property
    def leader(self) -> str:
        """The id of who leads, as Java sees it."""
        return self.do("leader")[0]

    def reign(self, until_s: float) -> tuple[float, float]:
        """When it led: from ``isLeader`` to whatever told its owner next that this is over, at
        the latest ``until_s``.
        """
        (begun,) = self.events("isLeader")
        ends = [event.at_s for event in self.events("closing", "notLeader")]
        return begun.at_s, min([*ends, until_s])


Made = TypeVar("Made", bound=JavaThing)


def _options(options: dict[str, object]) -> list[str]:
    return [
        f"{name}={str(value).lower() if isinstance(value, bool) else value}"
        for name, value in options.items()
    ]
