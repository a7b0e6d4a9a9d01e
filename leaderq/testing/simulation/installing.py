"""Lets the real program run on a simulated world: its seams are replaced, and put back afterwards.

The seams are the attributes of :mod:`leaderq.base.clock`, :mod:`leaderq.threads.primitives`,
:mod:`leaderq.base.chance`, :mod:`leaderq.base.host` and :mod:`leaderq.zookeeper.transport`; and the
threading inside the standard library's futures. Code on other real threads of this Python process
keeps the real ones. Only one life is led at a time.
"""

from __future__ import annotations

import gc
import logging
import re
import sysconfig
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import _base as futures
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

from leaderq.base import chance, clock, host
from leaderq.errors import WouldDeadlock
from leaderq.testing.simulation import primitives as simulated
from leaderq.testing.simulation.client import SimulatedClient, SimulatedEnder
from leaderq.testing.simulation.network import Network
from leaderq.testing.simulation.scheduler import MOST_READS_AT_ONCE, World
from leaderq.threads import primitives
from leaderq.zookeeper import transport

_leading = threading.Lock()
_lives_in_row: int | None = None


def _new_event_loop(_selector: object) -> Any:
    """Make a loop whose time is the life's; asyncio is imported only if a loop is made."""
    from leaderq.testing.simulation.event_loop import SimulatedLoop

    return SimulatedLoop()


_THREADS: dict[str, Callable[..., Any]] = {
    "Lock": simulated.SimulatedLock,
    "RLock": simulated.SimulatedRLock,
    "Condition": simulated.condition,
    "Event": simulated.SimulatedEvent,
    "Thread": simulated.SimulatedThread,
    "local": simulated.SimulatedLocal,
    "Queue": simulated.SimulatedQueue,
    "SimpleQueue": simulated.SimulatedQueue,
    "ThreadPoolExecutor": simulated.SimulatedExecutor,
    "current_thread": simulated.current_thread,
    "main_thread": simulated.main_thread,
    "get_ident": simulated.get_ident,
    "raise_in": simulated.raise_in,
    "take_raised": simulated.take_raised,
    "frame_of": simulated.frame_of,
    "new_event_loop": _new_event_loop,
}


def _futures_threading(only_here: Callable[[Any, Any], Any]) -> SimpleNamespace:
    """The module ``threading``, as the standard library's futures see it in a life."""
    made = {**_THREADS, "Condition": simulated.FutureCondition}
    names = ("Lock", "RLock", "Condition", "Event")
    ours = {name: only_here(made[name], getattr(threading, name)) for name in names}
    return SimpleNamespace(**(vars(threading) | ours))


class _Chance:
    """The program's source of chance, which draws from the life's own source."""

    def __init__(self, world: World) -> None:
        self._draw = world.chance

    def random(self) -> float:
        return self._draw()

    def randrange(self, start: int, stop: int | None = None) -> int:
        low, high = (0, start) if stop is None else (start, stop)
        return low + int(self._draw() * (high - low))

    def choice(self, among: Any) -> Any:
        return among[int(self._draw() * len(among))]

    def sample(self, population: Any, k: int) -> list[Any]:
        items = list(population)
        for index in range(len(items) - 1, 0, -1):
            other = int(self._draw() * (index + 1))
            items[index], items[other] = items[other], items[index]
        return items[:k]

    def token_bytes(self, count: int = 32) -> bytes:
        return bytes(int(self._draw() * 256) for _ in range(count))

    def token_bits(self, count: int) -> int:
        return int.from_bytes(self.token_bytes(count // 8 + 1), "big") >> (8 - count % 8)

    def uuid4(self) -> uuid.UUID:
        high, low = int(self._draw() * 2**53), int(self._draw() * 2**53)
        return uuid.UUID(int=(high << 75) ^ (low << 22) ^ high, version=4)


_FRAME = re.compile(r'File "(.+)", line \d+, in ([^<\s]+)').findall
_PYTHONS_OWN = sysconfig.get_path("stdlib")
NOTED_FROM = logging.ERROR
"""The least level of the program's log lines that are lines of the history."""


def _without_files(text: str) -> str:
    """Return ``text`` with a stack in it told by its functions. Its files and lines, and what of it
    is Python's own, are not the seed's.
    """
    said, _, stack = text.partition("\n")
    names = [name for file, name in _FRAME(stack) if not file.startswith(_PYTHONS_OWN)]
    return " ".join([said, *(f"in {name}" for name in names)])


class _Complaints(logging.Handler):
    """Puts what the program logs as an error into the history."""

    def __init__(self, world: World) -> None:
        super().__init__(NOTED_FROM)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        said = _without_files(record.getMessage())
        said += "" if error is None else f": {error!r}"
        self._world.note("logged", level=record.levelname, line=said)


class _Seams:
    """The replaced attributes, which are put back at the end."""

    def __init__(self) -> None:
        self._here = threading.get_ident()
        self._undo: list[tuple[object, str, Any]] = []

    def only_here(self, made: Callable[..., Any], real: Callable[..., Any]) -> Callable[..., Any]:
        """A function that calls ``made`` on this real thread, and ``real`` on all others."""
        here, ident = self._here, threading.get_ident

        def either(*args: Any, **kwargs: Any) -> Any:
            return (made if ident() == here else real)(*args, **kwargs)

        return either

    def put(self, owner: object, name: str, made: Callable[..., Any]) -> None:
        """Replace ``owner.name`` by ``made`` on this thread, if there is such a name."""
        real = getattr(owner, name, None)
        if real is not None:
            self._undo.append((owner, name, real))
            setattr(owner, name, self.only_here(made, real))

    def put_all(self, owner: object, made: Mapping[str, Callable[..., Any]]) -> None:
        for name, one in made.items():
            self.put(owner, name, one)

    def put_object(self, owner: object, name: str, value: Any) -> None:
        self._undo.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    def take_back(self) -> None:
        for owner, name, value in reversed(self._undo):
            setattr(owner, name, value)


@contextmanager
def _complaints_noted(world: World) -> Iterator[None]:
    """Within this block, errors that the program logs are lines of the history, and are logged
    nowhere else.
    """
    logger = logging.getLogger("leaderq")
    before = logger.level, logger.propagate, logger.handlers[:]
    logger.handlers[:], logger.propagate = [_Complaints(world)], False
    logger.setLevel(NOTED_FROM)
    try:
        yield
    finally:
        logger.handlers[:], logger.propagate = before[2], before[1]
        logger.setLevel(before[0])


@contextmanager
def lives_in_a_row() -> Iterator[None]:
    """Within the block Python's collector of garbage looks, before each life, through what the
    former one has made, and never through what stands already: a tenth of a life's time. What
    stood when a block within it began is left alone until the outermost ends.
    """
    global _lives_in_row
    is_outermost, was_on = _lives_in_row is None, gc.isenabled()
    gc.disable()
    _lives_in_row = 0
    try:
        yield
    finally:
        if is_outermost:
            _lives_in_row = None
            gc.unfreeze()
        if was_on:
            gc.enable()


@contextmanager
def _garbage_collected_between_lives() -> Iterator[None]:
    """When garbage is collected depends on what ran before; in a life it must not matter."""
    global _lives_in_row
    was_on = gc.isenabled()
    gc.disable()
    if _lives_in_row is not None:  # else there is too much to look through
        gc.collect()
        if _lives_in_row < 2:  # what a first life imports stands as well
            gc.freeze()
        _lives_in_row += 1
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextmanager
def installed(world: World, network: Network | None = None) -> Iterator[World]:
    """Within the block the program runs in ``world``, and reaches ZooKeeper through ``network``.

    The life is over, and all its tasks have ended, when the block is left.

    :raises WouldDeadlock: another life is being led.
    """
    if not _leading.acquire(blocking=False):
        raise WouldDeadlock("one simulated life is led at a time; end the other first")
    seams = _Seams()
    try:
        with _garbage_collected_between_lives(), _complaints_noted(world):
            _put_in(seams, world, network)
            try:
                yield world
            finally:
                logging.disable(logging.CRITICAL)  # what ends with its life has nothing to say
                world.bury()
                logging.disable(logging.NOTSET)
    finally:
        seams.take_back()
        simulated.set_world(None)
        _leading.release()


def _put_in(seams: _Seams, world: World, network: Network | None) -> None:
    simulated.set_world(world)
    seams.put_all(primitives, _THREADS)
    _put_clock(seams, world)
    drawn = _Chance(world)
    seams.put_all(chance, {name: getattr(drawn, name) for name in dir(drawn) if name[0] != "_"})
    seams.put(host, "name", lambda: _process(world, "host", "host"))
    seams.put(host, "pid", lambda: _process(world, "pid", 1))
    seams.put_object(host, "has_forked_from", _forks_nowhere(host.has_forked_from))
    seams.put_object(futures, "threading", _futures_threading(seams.only_here))
    if network is not None:
        seams.put(transport, "new_client", partial(SimulatedClient, network))
        seams.put(transport, "new_ender", lambda *_, **__: SimulatedEnder(network))


def _forks_nowhere(real: Callable[[int], bool]) -> Callable[[int], bool]:
    """On this real thread nothing has forked: simulated processes do not."""
    here, ident = threading.get_ident(), threading.get_ident
    return lambda owner: ident() != here and real(owner)


def _process(world: World, what: str, otherwise: Any) -> Any:
    task = world.current
    return otherwise if task is None else getattr(task.process, what)


def _put_clock(seams: _Seams, world: World) -> None:
    here, ident, real_now_s = threading.get_ident(), threading.get_ident, clock.now_s

    def now_s() -> float:
        if ident() != here:
            return real_now_s()
        task = world.current
        if task is None:
            return world.now_s
        world.reads += 1
        if world.reads > MOST_READS_AT_ONCE:
            world.spin()
        process = task.process
        at_s: float = process.clock_at + (world.now_s - process.clock_at_s) * process._pace
        return at_s

    def calendar_s() -> float:
        at_s, task = now_s(), world.current
        return at_s if task is None else task.process.calendar_s()

    seams.put_object(clock, "now_s", now_s)  # asks itself which thread it is, as it is called most
    seams.put(clock, "awake_s", now_s)
    seams.put(clock, "calendar_s", calendar_s)
    seams.put(clock, "now_ms", lambda: int(calendar_s() * 1000))
    seams.put(clock, "sleep", world.park)
