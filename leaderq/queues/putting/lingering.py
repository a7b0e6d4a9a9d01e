"""Lets puts gather for a while before they are sent, so that fewer requests carry them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from leaderq.queues.putting.ways import Way
from leaderq.queues.tallying.group import Group


class Lingering:
    """A :class:`~leaderq.queues.putting.ways.Way` before another: a put waits ``linger_s`` at most, or until ``enough`` have gathered."""

    def __init__(self, way: Way, linger_s: float, *, enough: int, name: str) -> None:
        self._way = way
        self._linger_s = linger_s
        self._enough = enough
        self._changed = threading.Condition()
        self._gathered: list[Group] = []
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name=f"leaderq-{name}-linger", daemon=True)
        self._thread.start()

    def send(self, groups: Sequence[Group]) -> None:
        with self._changed:
            if not self._is_closed:
                before = len(self._gathered)
                self._gathered += groups
                if before == 0 or len(self._gathered) >= self._enough:
                    self._changed.notify_all()
                return
        self._way.send(groups)

    def withdraw(self, group: Group) -> bool:
        with self._changed:
            if group in self._gathered:
                self._gathered.remove(group)
                group.is_withdrawn = True
                return True
        return self._way.withdraw(group)

    def withdraw_those(self, wanted: Callable[[Group], bool]) -> list[Group]:
        with self._changed:
            found = [group for group in self._gathered if wanted(group)]
            self._gathered = [group for group in self._gathered if not wanted(group)]
        return found + self._way.withdraw_those(wanted)

    def hurry(self) -> None:
        self._pass_on()
        self._way.hurry()

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._pass_on()
        self._thread.join(1.0)
        self._way.close()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_closed or self._gathered)
                if self._is_closed:
                    return
                self._changed.wait_for(lambda: self._is_closed or len(self._gathered) >= self._enough, self._linger_s)
            self._pass_on()

    def _pass_on(self) -> None:
        with self._changed:  # while it is held, so that two threads cannot pass on in the wrong order
            gathered, self._gathered = self._gathered, []
            if gathered:
                self._way.send(gathered)
