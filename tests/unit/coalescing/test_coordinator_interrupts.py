"""Ctrl-C at any line of the coordinator: the request may be lost, the key never is."""

from __future__ import annotations

import ast
import linecache
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import leaderq.coalescing
from leaderq.coalescing import Debounce, Overflow, QueueCoordinator, Stage, State, Token
from leaderq.coalescing.bells import CallBell
from leaderq.testing import eventually

AT_THE_CALL = "self._call(token)"
"""An interrupt here counts as raised by what is called: nobody can tell the difference, and the token may be in use."""
FOLDER = str(Path(leaderq.coalescing.__file__).parent)


def test_a_thread_interrupted_while_it_waits_leaves_the_line():
    coordinator: QueueCoordinator[str] = QueueCoordinator()
    head = coordinator.enqueue("k", owner=None)

    def interrupt() -> None:
        eventually(lambda: coordinator.state("k") is State.BLOCK)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    helper = threading.Thread(target=interrupt)
    helper.start()
    with pytest.raises(KeyboardInterrupt):
        coordinator.enqueue("k")
    helper.join()
    assert coordinator.state("k") is State.PROCESS and head
    assert coordinator.dequeue(head) and coordinator.state("k") is State.INIT


class Storm:
    """Interrupts of the main thread, at points that nobody chose while it is armed, once each time; meanwhile others work."""

    def __init__(self, *others: Callable[[], object]) -> None:
        self.is_over = self.is_armed = False
        self.strikes = 0
        self._threads = [threading.Thread(target=self._again_and_again, args=(other,)) for other in (*others, self._strike)]
        self._main = threading.main_thread().ident or 0
        self._before = signal.signal(signal.SIGALRM, self._interrupt)
        for each in self._threads:
            each.start()

    def _again_and_again(self, action: Callable[[], object]) -> None:
        while not self.is_over:
            action()

    def _strike(self) -> None:
        time.sleep(0.002)
        signal.pthread_kill(self._main, signal.SIGALRM)

    def _interrupt(self, *_: object) -> None:
        if self.is_armed:
            self.is_armed = False
            self.strikes += 1
            raise KeyboardInterrupt

    def end(self) -> None:
        self.is_armed = False
        self.is_over = True
        for each in self._threads:
            each.join(60)
            assert not each.is_alive()
        signal.signal(signal.SIGALRM, self._before)


@pytest.mark.parametrize("waiters", [0, 1, 2])
def test_a_storm_of_interrupts_wedges_no_key(waiters):
    coordinator: QueueCoordinator[str] = QueueCoordinator(waiters=waiters)

    def compete() -> None:
        with coordinator.hold("k", wait_s=50):
            pass

    storm = Storm(compete, compete)
    runs = 0
    while storm.strikes < 200 or not runs:
        try:
            storm.is_armed = True
            with coordinator.hold("k") as token:
                runs += bool(token)
            storm.is_armed = False
        except KeyboardInterrupt:
            continue
    storm.end()
    assert coordinator.drain(30) == ()


@cache
def safe_lines(path: str) -> frozenset[int]:
    """Where no signal can strike although a tracer can: at a bare ``try``, and between the last bytecode of a ``with`` and its exit."""
    nodes = list(ast.walk(ast.parse(Path(path).read_text())))
    withs = [
        line
        for node in nodes
        if isinstance(node, ast.With)
        for line in range(node.lineno, max(item.context_expr.end_lineno or 0 for item in node.items) + 1)
    ]
    return frozenset([*withs, *(node.lineno for node in nodes if isinstance(node, ast.Try))])


class Interrupter:
    """Raises ``KeyboardInterrupt`` before the ``at``-th line of the coordinator's code."""

    def __init__(self, at: int) -> None:
        self.left = at
        self.where = ""

    def __call__(self, frame: FrameType, event: str, arg: object) -> Any:
        if not frame.f_code.co_filename.startswith(FOLDER):
            return None
        source = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        if event == "line" and source != AT_THE_CALL and frame.f_lineno not in safe_lines(frame.f_code.co_filename):
            self.left -= 1
            if self.left == 0:
                self.where = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
                raise KeyboardInterrupt
        return self


def interrupted(action: Callable[[], object], at: int) -> str:
    """Where the action was interrupted; empty if it was over before."""
    interrupter = Interrupter(at)
    before = sys.gettrace()
    sys.settrace(interrupter)
    try:
        action()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return interrupter.where


class Scene:
    """A coordinator with somebody running, or also somebody waiting, and what is done to it."""

    def __init__(self, *, waiting: bool = True, **rules: Any) -> None:
        self.now = 0.0
        self.coordinator: QueueCoordinator[str] = QueueCoordinator(
            clock=lambda: self.now, background=False, stripes=1, **rules
        )
        self.called: list[Token[str]] = []
        self.head = self.coordinator.offer("k", self.called.append)
        self.tail = self.coordinator.offer("k", self.called.append) if waiting else None

    def dequeue(self) -> None:
        self.coordinator.dequeue(self.head)

    def come_and_go(self) -> None:
        with self.coordinator.hold("other"):
            pass

    def ask(self, key: str = "k") -> None:
        self.coordinator.dequeue(self.coordinator.enqueue(key))

    def try_it(self) -> None:
        self.coordinator.dequeue(self.coordinator.try_enqueue("k"))

    def offer(self) -> None:
        self.coordinator.offer("k", self.called.append)

    def follow(self) -> None:
        token = self.coordinator.token_for("k", owner=None)
        token.follows = True
        try:
            self.coordinator.admit(token, partial(CallBell, self.called.append))
        except BaseException:
            token.stripe.leave(token)
            raise

    def share(self) -> None:
        self.coordinator.run("other", lambda: 1)

    def evict(self) -> None:
        self.now += 100
        self.coordinator.sweep()

    def must_still_work(self) -> None:
        """Whoever may run is current, was told, and all of them can leave; then anybody may come."""
        assert all(not stripe._lock.locked() for stripe in self.coordinator._stripes)
        self.now += 100
        for _ in range(10):
            self.coordinator.sweep()  # somebody passes by
            current = [token for token in {self.head, self.tail, *self.called} if token]
            assert len(current) <= 1
            if not current:
                break
            assert current[0] is self.head or current[0] in self.called
            assert self.coordinator.dequeue(current[0])
        assert self.tail is None or not self.tail.stage.is_pending
        newcomer = self.coordinator.offer("k", self.called.append)
        if not newcomer:  # the key is debounced
            self.now += 100
            self.coordinator.sweep()
        assert newcomer, f"the key is wedged: {self.coordinator._stripes[0].lanes}"


SCENES: dict[str, tuple[Callable[[], Scene], Callable[[Scene], object]]] = {
    "enqueue and dequeue": (lambda: Scene(waiting=False), lambda scene: scene.ask("other")),
    "a scope": (lambda: Scene(waiting=False), Scene.come_and_go),
    "sharing": (lambda: Scene(waiting=False), Scene.share),
    "dequeue with one waiting": (Scene, Scene.dequeue),
    "decline": (Scene, Scene.ask),
    "try": (Scene, Scene.try_it),
    "offer": (lambda: Scene(waiting=False), Scene.offer),
    "replace": (lambda: Scene(overflow=Overflow.REPLACE_OLDEST), Scene.offer),
    "merge": (lambda: Scene(overflow=lambda waiting, new: None), Scene.offer),
    "follow": (Scene, Scene.follow),
    "evict": (lambda: Scene(safe_timeout_s=5), Scene.evict),
    "offer after the safe time-out": (
        lambda: Scene(safe_timeout_s=5),
        lambda scene: (setattr(scene, "now", 9.0), scene.offer()),
    ),
    "end of a quiet": (lambda: Scene(waiting=False, debounce=Debounce(1, 2)), Scene.evict),
    "offer in a quiet": (lambda: Scene(waiting=False, debounce=Debounce(1, 2)), Scene.offer),
}


@pytest.mark.parametrize("name", SCENES)
def test_an_interrupt_at_any_line_wedges_no_key(name):
    make, action = SCENES[name]
    for at in range(1, 600):
        scene = make()
        where = interrupted(lambda scene=scene: action(scene), at)
        try:
            scene.must_still_work()
        except BaseException as exc:
            raise AssertionError(f"interrupted at {where} (line {at} of the action)") from exc
        if not where:
            assert at > 5
            break
    else:
        pytest.fail("the action never ended")


def test_an_evicted_head_stays_evicted_whatever_is_interrupted():
    scene = Scene(safe_timeout_s=5)
    scene.evict()
    assert scene.head.stage is Stage.EVICTED and scene.tail
    interrupted(scene.dequeue, 3)
    assert scene.head.stage is Stage.EVICTED and scene.tail
