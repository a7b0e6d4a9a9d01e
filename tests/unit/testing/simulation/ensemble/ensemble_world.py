"""A clock, timers and clients for tests of the simulated ensemble alone."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import Any

from kazoo.protocol import serialization as kazoo_wire
from kazoo.security import OPEN_ACL_UNSAFE

from leaderq.testing.simulation.ensemble import (
    Connected,
    Ensemble,
    Hello,
    Hungup,
    ServerAnswer,
    ServerEvent,
)


class Timer:
    def __init__(self) -> None:
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class World:
    """Time passes only in ``run``."""

    def __init__(self, seed: int = 1) -> None:
        self.now_s = 0.0
        self._random = random.Random(seed)
        self._timers: list[tuple[float, int, Timer, Callable[[], None]]] = []
        self._started = 0

    def now(self) -> float:
        return self.now_s

    def at(self, delay_s: float, act: Callable[[], None]) -> Timer:
        timer = Timer()
        self._started += 1
        heapq.heappush(self._timers, (self.now_s + delay_s, self._started, timer, act))
        return timer

    def delay(self, what: str) -> float:
        if what == "election":
            return self._random.uniform(0.1, 0.4)
        return self._random.uniform(0.0005, 0.002)

    def run(self, seconds: float = 0.05) -> None:
        until_s = self.now_s + seconds
        while self._timers and self._timers[0][0] <= until_s:
            due_s, _, timer, act = heapq.heappop(self._timers)
            self.now_s = max(self.now_s, due_s)
            if not timer.is_cancelled:
                act()
        self.now_s = until_s

    def ensemble(self, servers: int = 1, **options: Any) -> Ensemble:
        return Ensemble(now=self.now, at=self.at, delay=self.delay, servers=servers, **options)


class Client:
    """A client of one server; ``heard`` is all that it was told."""

    def __init__(
        self, world: World, ensemble: Ensemble, server: int = 0, hello: Hello | None = None
    ) -> None:
        self._world = world
        self.heard: list[object] = []
        self._xid = 0
        self.end = ensemble.connect(server, hello or Hello(0, b"", 4.0), self.heard.append)
        world.run()

    @property
    def granted(self) -> Connected:
        assert isinstance(self.heard[0], Connected)
        return self.heard[0]

    def again(self, timeout_s: float = 4.0) -> Hello:
        """What takes the session up through another connection."""
        return Hello(self.granted.session_id, self.granted.password, timeout_s)

    def send(self, request: Any) -> None:
        assert self.end is not None
        self._xid += 1
        self.end.send(self._xid, request)

    def do(self, request: Any, seconds: float = 0.05) -> ServerAnswer:
        """The answer to this request, which must come in this time."""
        self.send(request)
        self._world.run(seconds)
        answers = [one for one in self.heard if isinstance(one, ServerAnswer)]
        assert answers, self.heard
        assert answers[-1].xid == self._xid, self.heard
        return answers[-1]

    def create(self, path: str, data: bytes = b"", flags: int = 0) -> ServerAnswer:
        return self.do(kazoo_wire.Create(path, data, OPEN_ACL_UNSAFE, flags))

    def exists(self, path: str) -> bool:
        return self.do(kazoo_wire.Exists(path, None)).error_code == 0

    @property
    def events(self) -> list[tuple[int, str]]:
        return [(one.kind, one.path) for one in self.heard if isinstance(one, ServerEvent)]

    @property
    def is_hung_up(self) -> bool:
        return Hungup() in self.heard
