"""One thread reads snapshots for everybody who looks.

A viewer asks for a snapshot newer than the one it has, and waits. The thread reads only while
somebody waits, at most every ``every_s``: without viewers it costs nothing, and a hundred viewers
cost as much as one. When somebody opens a queue, its contents are read a tenth of a second after
the last reading, because this viewer has seen nothing of them yet. If a reading fails, the viewers
get a snapshot that says so; the next reading comes as usual.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from leaderq.admin.snapshot import PageSnapshot, ReadAgain, read_again
from leaderq.base import clock
from leaderq.errors import SessionClosed
from leaderq.threads import Service, primitives

_SOON_S: Final = 0.1


@dataclass(frozen=True, eq=False)
class _Waiting:
    """A viewer that waits: it has seen the snapshot of this number, and wants the contents of a
    queue.
    """

    answer: primitives.Future[PageSnapshot]
    seen: int
    wants: str | None

    def is_served_by(self, snapshot: PageSnapshot) -> bool:
        return snapshot.number > self.seen and self.finds_contents(snapshot)

    def finds_contents(self, snapshot: PageSnapshot) -> bool:
        has_contents = self.wants is None or self.wants in snapshot.contents
        return has_contents or snapshot.problem is not None


class Refresher:
    """Calls ``read`` with the newest snapshot and the queues whose contents are wanted.

    *Guarantees:* ``read`` is called by one thread only, and only while somebody waits; a waiter
    that has cancelled does not count. After ``stop`` every waiter gets :class:`SessionClosed`.
    """

    def __init__(self, read: ReadAgain, every_s: float) -> None:
        self._read, self._every_s = read, every_s
        self._newest, self._read_at_s = PageSnapshot(), float("-inf")
        self._lock = primitives.Lock()
        self._waiting: list[_Waiting] = []
        self._service = Service.repeating("leaderq-dashboard", self._read_if_due)

    def start(self) -> None:
        self._service.start()

    def stop(self) -> None:
        """Stop reading, and refuse everybody who waits."""
        self._service.stop(timeout_s=0.0)
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for one in waiting:
            _refuse(one.answer)

    def after(self, seen: int = 0, wants: str | None = None) -> primitives.Future[PageSnapshot]:
        """The first snapshot that is newer than ``seen`` and at most ``every_s`` old. It has the
        contents of the queue ``wants``, if there is such a queue.
        """
        waiting = _Waiting(primitives.Future(), seen, wants)
        with self._lock:
            fresh = clock.now_s() - self._read_at_s < self._every_s
            if fresh and waiting.is_served_by(self._newest):
                waiting.answer.set_result(self._newest)
            elif self._service.is_stopping:
                _refuse(waiting.answer)
            else:
                self._waiting.append(waiting)
                self._service.wake()
        return waiting.answer

    def _read_if_due(self) -> float | None:
        """Read, if somebody waits and it is time. Return in how many seconds to look again;
        ``None``: when somebody asks.
        """
        with self._lock:
            self._waiting = [one for one in self._waiting if not one.answer.cancelled()]
            if not self._waiting:
                return None
            is_new = any(not one.finds_contents(self._newest) for one in self._waiting)
            pace_s = min(_SOON_S, self._every_s) if is_new else self._every_s
            if (left_s := self._read_at_s + pace_s - clock.now_s()) > 0:
                return left_s
            looking, self._waiting = self._waiting, []
        self._refresh(looking)
        return 0.0

    def _refresh(self, looking: list[_Waiting]) -> None:
        wanted = frozenset(one.wants for one in looking if one.wants is not None)
        snapshot = read_again(self._read, self._newest, wanted)
        with self._lock:
            self._newest, self._read_at_s = snapshot, clock.now_s()
            later = [one for one in self._waiting if not one.is_served_by(snapshot)]
            served = [*looking, *(one for one in self._waiting if one not in later)]
            self._waiting = later
        for one in served:
            if one.answer.set_running_or_notify_cancel():
                one.answer.set_result(snapshot)


def _refuse(answer: primitives.Future[PageSnapshot]) -> None:
    if answer.set_running_or_notify_cancel():
        answer.set_exception(SessionClosed("the page is closed"))
