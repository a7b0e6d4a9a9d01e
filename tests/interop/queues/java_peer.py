"""Java Curator in a process of its own, driven over its stdin and stdout; see ``java/Peer.java``
for the lines.

A :class:`JavaPeer` ends with this process, whatever ends it: its stdin is closed then. All waits
are bounded.
"""

from __future__ import annotations

import itertools
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    """One JVM. ``log`` gets its stderr; ``sources`` are further folders of Java sources and
    ``main`` the class that is run.
    """

    def __init__(
        self,
        log: Path,
        *,
        sources: Iterable[Path] = (),
        main: str = "Peer",
        jvm: Sequence[str] = QUICK_START,
    ) -> None:
        self._log = log
        self._command = [
            str(find_java().program),
            "-Xmx1g",
            *jvm,
            *_LOGGING,
            "-cp",
            compiled([SOURCES, *sources]),
            main,
        ]
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._answers: dict[str, Future[list[str]]] = {}
        self._events: dict[str, list[Event]] = {}
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> JavaPeer:
        """Start it; returns when it answers."""
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                encoding="utf-8",
                bufsize=1,
            )
        threading.Thread(
            target=self._read, args=(self._process,), name="java-peer", daemon=True
        ).start()
        eventually(
            lambda: self.events("peer", "ready"),
            timeout_s=120,
            message=f"Java answers (see {self._log})",
        )
        return self

    @property
    def process(self) -> subprocess.Popen[str]:
        assert self._process is not None, "start() it first"
        return self._process

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
        handle = f"client-{next(self._numbers)}"
        self.do("connect", handle, address, *_options(options))
        return JavaClient(self, handle)

    def kill(self) -> None:
        """SIGKILL, as a host that fails."""
        self.process.kill()
        self._reap()

    def stop(self) -> None:
        """Let it end; may be called again, and after :meth:`kill`."""
        if self._process is None:
            return
        with self._lock:
            if not self._process.stdin.closed:
                _close_quietly(self._process.stdin)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._reap()

    def _reap(self) -> None:
        self.process.wait(60)
        with self._lock:
            _close_quietly(self.process.stdin)

    def _read(self, process: subprocess.Popen[str]) -> None:
        with process.stdout:
            for line in process.stdout:
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


class JavaClient:
    """A session of Java's, and what is built on it."""

    def __init__(self, peer: JavaPeer, handle: str) -> None:
        self.peer = peer
        self.handle = handle

    def queue(self, kind: str, path: str, **options: object) -> JavaQueue:
        """A started queue; options as ``java/Queues.java`` lists them."""
        return self._made(JavaQueue, "queue", kind, path, *_options(options))

    def simple(self, path: str) -> JavaSimple:
        return self._made(JavaSimple, "simple", path)

    def sharder(self, path: str, leader_path: str, **options: object) -> JavaSharder:
        return self._made(JavaSharder, "sharder", path, leader_path, *_options(options))

    def latch(self, path: str, id: str) -> JavaLatch:
        return self._made(JavaLatch, "latch", path, id)

    def close(self) -> None:
        self.peer.do("disconnect", self.handle)

    def _made(self, made: Callable[[JavaPeer, str], Any], verb: str, *arguments: object) -> Any:
        handle = f"{verb}-{next(self.peer._numbers)}"
        self.peer.do(verb, handle, self.handle, *arguments)
        return made(self.peer, handle)


class _Thing:
    def __init__(self, peer: JavaPeer, handle: str) -> None:
        self.peer = peer
        self.handle = handle

    def do(self, verb: str, *arguments: object) -> list[str]:
        return self.peer.do(verb, self.handle, *arguments)

    def events(self, *kinds: str) -> list[Event]:
        return self.peer.events(self.handle, *kinds)


class _Consumes(_Thing):
    @property
    def consumed(self) -> list[bytes]:
        """The items that Java's consumer was given and did not fail with, in order."""
        return [event.item for event in self.events("item")]

    def await_items(self, count: int) -> list[bytes]:
        """The items consumed, once there are ``count``."""
        told = f"Java consumes {count} items"
        eventually(lambda: len(self.events("item")) >= count, timeout_s=60, message=told)
        return self.consumed


class JavaQueue(_Consumes):
    """Any DistributedQueue; ``how`` is the id, priority or due time."""

    def put(self, item: bytes, how: object = "") -> None:
        """Put one, and wait until all is put."""
        self.do("put", item.hex(), how)
        self.flush()

    def put_multi(self, items: Sequence[bytes], how: object = "") -> None:
        self.do("put-multi", ",".join(item.hex() for item in items) if items else "-", how)
        self.flush()

    def put_numbers(self, first: int, count: int) -> None:
        """Put ``count`` items, each a number as text."""
        self.do("put-numbers", first, count)
        self.flush()

    def flush(self) -> None:
        assert self.do("flush") == ["true"]

    def remove(self, id: str) -> int:
        """How many items of that id Curator removed."""
        return int(self.do("remove", id)[0])

    def fail(self, times: int) -> None:
        self.do("fail", times)

    def hold(self) -> None:
        """Let the consumer wait with the next items in hand (event ``held``)."""
        self.do("hold")

    def step(self) -> None:
        """Let it go on with what it holds, and hold what comes next."""
        self.do("step")

    def release(self) -> None:
        self.do("release")

    def close(self) -> None:
        self.do("close")


class JavaSimple(_Thing):
    def offer(self, item: bytes) -> None:
        assert self.do("offer", item.hex()) == ["true"]

    def poll(self) -> bytes | None:
        """The head, taken; ``None`` if there is none."""
        return self._maybe("poll")

    def peek(self) -> bytes | None:
        return self._maybe("peek")

    def taking(self) -> Future[list[str]]:
        return self.peer.ask("take", self.handle)

    def _maybe(self, verb: str) -> bytes | None:
        values = self.do(verb)
        return bytes.fromhex(values[0]) if values else None


class JavaSharder(_Consumes):
    def put(self, item: bytes) -> None:
        self.do("shard-put", item.hex())

    @property
    def shards(self) -> set[str]:
        """The paths of the shards that it knows."""
        return set(self.do("shards"))

    def close(self) -> None:
        self.do("close-sharder")


class JavaLatch(_Thing):
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

    def close(self) -> None:
        """Give the place back."""
        self.do("close-latch")

    def reigns(self) -> list[tuple[float, float]]:
        """When it led: from each ``isLeader`` to whatever told its owner that this is over; to now
        if nothing has.
        """
        reigns: list[tuple[float, float]] = []
        since: float | None = None
        for event in self.events():
            if event.kind == "isLeader":
                since = event.at_s
            elif since is not None:
                reigns.append((since, event.at_s))
                since = None
        return reigns if since is None else [*reigns, (since, time.monotonic())]


def _options(options: dict[str, object]) -> list[str]:
    return [
        f"{name}={str(value).lower() if isinstance(value, bool) else value}"
        for name, value in options.items()
    ]


def _close_quietly(stream: Any) -> None:
    try:
        stream.close()
    except BrokenPipeError:
        return  # nobody read what was still buffered
