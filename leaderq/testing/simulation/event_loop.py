"""An event loop of asyncio that is a task of a simulated life: its time is the life's, it waits as
tasks wait, and its calls in threads are tasks.

All tasks of a life share one real thread, on which asyncio knows one running loop and one current
task. So both are put in place when the loop's task goes on, and taken away when it waits.
"""

from __future__ import annotations

import asyncio
from asyncio import events, tasks
from typing import Any

from leaderq.base import clock
from leaderq.testing.simulation.primitives import SimulatedEvent, running
from leaderq.testing.simulation.scheduler import Task

_Base: Any = asyncio.BaseEventLoop  # whose parts are not all public


class SimulatedLoop(_Base):  # type: ignore[misc]
    """As the loop of :func:`leaderq.threads.primitives.new_event_loop`; without sockets."""

    _stopping: bool
    _thread_id: int | None

    def __init__(self) -> None:
        super().__init__()
        self._clock_resolution = 1e-6
        self._selector = self
        self._woken = SimulatedEvent()
        self._made: list[asyncio.Task[Any]] = []

    def time(self) -> float:
        return clock.now_s()

    def select(self, timeout: float | None) -> list[Any]:
        """Wait, as a selector does, until :meth:`_write_to_self`."""
        self._woken.wait(timeout)
        self._woken.clear()
        return []

    def _process_events(self, _events: list[Any]) -> None:
        return

    def _write_to_self(self) -> None:
        self._woken.set()

    def run_forever(self) -> None:
        task = running()
        real = task.greenlet
        task.greenlet = _Entering(task, self)  # type: ignore[assignment]
        clock.sleep(1e-6)  # whoever goes on now has entered by that, and leaves by it
        events._set_running_loop(self)
        self._thread_id = task.number
        try:
            while not self._stopping:
                self._run_once()
        finally:
            self._stopping = False
            self._thread_id = None
            task.greenlet = real
            events._set_running_loop(None)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Say nothing: what ends with its life has nothing to say."""

    def __del__(self, **_: Any) -> None:
        return


class _Entering:
    """The greenlet of the task that runs a loop, as the scheduler sees it."""

    def __init__(self, task: Task, loop: SimulatedLoop) -> None:
        self._greenlet = task.greenlet
        self._loop = loop
        self._current: asyncio.Task[Any] | None = None

    def switch(self) -> None:
        self._enter()
        try:
            self._greenlet.switch()
        finally:
            self._leave()

    def throw(self, *error: Any) -> None:
        self._enter()
        try:
            self._greenlet.throw(*error)
        finally:
            self._leave()

    def _enter(self) -> None:
        events._set_running_loop(self._loop)
        if self._current is not None:
            tasks._enter_task(self._loop, self._current)

    def _leave(self) -> None:
        self._current = tasks.current_task(self._loop)
        if self._current is not None:
            tasks._leave_task(self._loop, self._current)
        events._set_running_loop(None)

    def __bool__(self) -> bool:
        return bool(self._greenlet)

    @property
    def dead(self) -> bool:
        return self._greenlet.dead

    @property
    def gr_frame(self) -> Any:
        return self._greenlet.gr_frame
