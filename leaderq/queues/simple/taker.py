"""Taking from a simple queue: what is there, whose it is, and whom it is given to.

Who is authoritative: the znodes; whoever deletes one has the item. Deletions go through a writer,
so that "I did it" and "somebody else did" are told apart although an answer was lost.

States of an item, as seen from here: *listed*, *read*, *claimed* (its deletion is on its way),
*taken*; or *spare*: claimed ahead, or for a caller whose time was up, and kept for the next who
asks. A caller's wait ends with an item, with nothing to be had, or with an error; never with an
item that nobody gets.

Names read in one *life* of the queue's znode say nothing about the next: when it is deleted, or the
connection is away so that its deletion might go unseen, all is forgotten and read again.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from functools import partial
from typing import Any

from leaderq.clock import now_s
from leaderq.errors import (
    BadVersion,
    ConnectionLost,
    LeaderqError,
    NoNode,
    NotConnected,
    QueueClosed,
    SessionClosed,
    SessionExpired,
)
from leaderq.queues.connected import explaining_refusals
from leaderq.queues.reading import SizedReader
from leaderq.queues.simple.buffer import ItemBuffer, ReadItem
from leaderq.queues.wire.znodes import QueuePaths
from leaderq.queues.writing import SequencedWriter
from leaderq.zookeeper import Delete, Session, SessionState, WatchEvent
from leaderq.zookeeper.paths import join

LOOK_AGAIN_S = 1.0
"""How long those without a watch, or a connection, wait before they try again unasked."""


class ChangeSignal:
    """A counter of what happened, to be waited for. Thread-safe; ``lock`` guards the counter, and
    what its owner wants guarded with it.
    """

    def __init__(self, session: Session, path: str) -> None:
        self._session = session
        self._path = path
        self.lock = threading.Lock()
        self._changed = threading.Condition(self.lock)
        self._count = 0
        self._is_closed = False

    @property
    def count(self) -> int:
        """How often something has stirred; read it before looking, and hand it to :meth:`wait`."""
        return self._count

    def notify(self) -> None:
        """Something happened. Under the lock."""
        self._count += 1
        self._changed.notify_all()

    def wait(self, seen: int, limit_s: float) -> None:
        """Until something has happened since the count was ``seen``, ``limit_s`` at most."""
        with self.lock:
            self._changed.wait_for(lambda: self._count != seen, max(0.0, limit_s))

    def wait_for_connection(self, deadline: float) -> None:
        """Until the session is connected, as far as is known: what is sent without a connection is
        in doubt for no good reason.

        :raises NotConnected: it is not, by ``deadline``.
        """
        while True:
            seen = self._count
            self.guard()
            if self._session.state is SessionState.CONNECTED:
                return
            left_s = deadline - now_s()
            if left_s <= 0:
                raise NotConnected(
                    f"there was no connection in the time given; nothing was sent to {self._path}", path=self._path
                )
            self.wait(seen, min(left_s, LOOK_AGAIN_S))

    def close(self) -> bool:
        """Nobody shall wait any more; whether this was the first time."""
        with self.lock:
            is_first = not self._is_closed
            self._is_closed = True
            self.notify()
        return is_first

    def guard(self) -> None:
        """Raise if it is over.

        :raises QueueClosed: so it was said.
        :raises SessionClosed: the session's owner said so.
        """
        if self._is_closed:
            raise QueueClosed(f"queue {self._path} was closed")
        if self._session.state is SessionState.CLOSED:
            raise SessionClosed("the session was closed by its owner", path=self._path)


class LazyWriter:
    """A writer that is opened when it is first needed, through any outage."""

    def __init__(self, writer: SequencedWriter, signal: ChangeSignal, paths: QueuePaths) -> None:
        self.writer = writer
        self._signal = signal
        self._paths = paths
        self._lock = threading.Lock()
        self._is_open = False

    def open(self, deadline: float) -> None:
        """Return when it is open.

        :raises NotConnected: it could not be opened by ``deadline``, so nothing was sent.
        """
        while not self._is_open:
            self._signal.guard()
            seen = self._signal.count
            problem = self.try_to_open()
            if problem is None:
                return
            if now_s() >= deadline:
                raise NotConnected(f"{self.writer.path} could not be made: {problem}", path=self.writer.path) from problem
            self._signal.wait(seen, min(LOOK_AGAIN_S, deadline - now_s()))

    def try_to_open(self) -> LeaderqError | None:
        """Why it could not be opened now, if so."""
        with self._lock:
            try:
                if not self._is_open:
                    with explaining_refusals(self._paths):
                        self.writer.open()
                    self._is_open = True
            except (ConnectionLost, SessionExpired, NoNode) as exc:  # NoNode: its parent was taken away that very moment
                return exc
        return None


log = logging.getLogger(__name__)

_GRACE_S = 1.0
"""What a request that was begun in time is given beyond the caller's time."""
_LONGEST_S = 60.0


class Taker:
    """One object's taking end. Thread-safe."""

    def __init__(
        self,
        session: Session,
        path: str,
        writer: SequencedWriter,
        signal: ChangeSignal,
        paths: QueuePaths,
        *,
        claim_ahead: int = 0,
    ) -> None:
        self._session = session
        self._path = path
        self._reader = SizedReader(session, path)
        self._writer = writer
        self._opened = LazyWriter(writer, signal, paths)
        self._signal = signal
        self._lock = signal.lock
        self._listing = threading.Lock()  # one thread at a time asks the server what there is
        self._buffer = ItemBuffer()
        self._claim_ahead = claim_ahead
        self._spare: deque[ReadItem] = deque()
        self._life = 0
        self._is_watched = False
        session.add_listener(self._on_state)

    def take(self, wanted: int, deadline: float, grace_s: float = _GRACE_S) -> list[bytes]:
        """Up to ``wanted`` items, as soon as there is one; none if there is none by ``deadline``.

        :raises ConnectionLost: no answer by then, and ``grace_s`` more if a claim was under way.
        """
        is_watching = False
        while True:
            self._signal.guard()
            seen = self._signal.count
            problem: LeaderqError | None = None
            try:
                self._opened.open(deadline)
                taken = self._take_spare(wanted)
                picked = [] if taken else self._pick(wanted + self._claim_ahead, is_watching, deadline)
                if picked:
                    taken = self._share(self._claim(picked, max(deadline, now_s() + grace_s)), wanted)
                if taken:
                    return taken
                if picked:
                    continue  # somebody else had them all
            except (ConnectionLost, SessionExpired) as exc:
                problem = exc
            left_s = deadline - now_s()
            if left_s <= 0:
                if problem is not None:
                    raise problem
                return []
            if is_watching or problem is not None:
                self._signal.wait(seen, min(left_s, _LONGEST_S if problem is None else LOOK_AGAIN_S))
            is_watching = problem is None

    def peek(self) -> bytes | None:
        """What the item at the head holds."""
        with self._listing:
            while True:
                with self._lock:
                    if self._spare:
                        return self._spare[0].data
                    name = self._buffer.first()
                if name is None:
                    if not self._list(is_watching=False, deadline=now_s()):
                        return None
                    continue
                try:
                    return self._session.get(join(self._path, name))[0]
                except NoNode:
                    with self._lock:
                        self._buffer.drop(name)

    def close(self, timeout_s: float) -> tuple[bool, list[ReadItem]]:
        """Whether all claims were settled in ``timeout_s``; and the items that were claimed and
        given to nobody.
        """
        self._session.remove_listener(self._on_state)
        is_clean = self._writer.close(timeout_s)
        with self._lock:
            left = list(self._spare)
            self._spare.clear()
        return is_clean, left

    # -- what there is --------------------------------------------------------------------------------------------------

    def _pick(self, wanted: int, is_watching: bool, deadline: float) -> list[ReadItem]:
        """Reserve items to claim, reading what must be read for that; none if there are none."""
        while True:
            with self._lock:
                picked = self._buffer.pick(wanted)
            if picked:
                return picked
            with self._listing:
                with self._lock:
                    names = self._buffer.next_unread(wanted)
                    is_read = not names and len(self._buffer) > 0  # by another thread, while this one waited for its turn
                if names:
                    self._read(names, deadline)
                elif not is_read and not self._list(is_watching=is_watching, deadline=deadline):
                    return []

    def _list(self, *, is_watching: bool, deadline: float) -> bool:
        """List the queue; whether there is any item. ``is_watching``: and stir when there will be
        more.
        """
        patience_s = self._patience_s(deadline)
        with self._lock:
            life, is_watched, self._is_watched = self._life, self._is_watched, True
        try:
            if not is_watched:  # this watch, unlike one on the children, sleeps until the znode itself comes or goes
                self._session.exists(self._path, watch=self._on_life, timeout_s=patience_s)
            names = self._session.children(self._path, watch=self._on_child if is_watching else None, timeout_s=patience_s)
        except NoNode:
            names = []
        except LeaderqError:
            self._is_watched = False
            raise
        with self._lock:
            if self._life == life:
                self._buffer.listed(names)
            return self._life != life or len(self._buffer) > 0

    def _read(self, names: list[str], deadline: float) -> None:
        with self._lock:
            life = self._life
        patience_s = self._patience_s(deadline)  # for each of two answers: the sizes, and the items
        answers = self._reader.read_now(names, None if patience_s is None else 2 * patience_s)
        names = names[: len(answers)]
        found = [_held(name, answer) for name, answer in zip(names, answers, strict=True)]
        with self._lock:
            if self._life == life:
                self._buffer.learned(names, found)

    def _patience_s(self, deadline: float) -> float | None:
        left_s = deadline - now_s()
        return None if left_s > _LONGEST_S else max(_GRACE_S, left_s)

    # -- whose it is ----------------------------------------------------------------------------------------------------

    def _take_spare(self, wanted: int) -> list[bytes]:
        with self._lock:
            return [self._spare.popleft().data for _ in range(min(wanted, len(self._spare)))]

    def _share(self, got: list[ReadItem], wanted: int) -> list[bytes]:
        """The caller's share; the rest is spare."""
        with self._lock:
            if len(got) > wanted:
                self._spare.extend(got[wanted:])
                self._signal.notify()
        return [held.data for held in got[:wanted]]

    def _claim(self, picked: list[ReadItem], deadline: float) -> list[ReadItem]:
        """Those of these that we got.

        :raises ConnectionLost: none so far, and there are some of which nothing is known by
            ``deadline``.
        """
        deletions = [(Delete(join(self._path, held.name), held.version),) for held in picked]
        left = deque(zip(picked, self._writer.submit_all(deletions), strict=True))
        got: list[ReadItem] = []
        problem: LeaderqError | None = None
        try:
            while left and problem is None:
                held, future = left[0]
                try:
                    future.result(min(max(0.0, deadline - now_s()), threading.TIMEOUT_MAX))
                    got.append(held)
                except FutureTimeout:
                    problem = ConnectionLost(f"no answer in time; what is claimed of {self._path} goes to the next who asks")
                    break
                except (NoNode, BadVersion) as exc:
                    log.debug("item %s of %s went to somebody else, or has changed: %s", held.name, self._path, exc)
                except LeaderqError as exc:
                    problem = exc
                left.popleft()
                self._settled(held, future)
        except BaseException:  # an interruption must not take items with it
            self._share(got, 0)
            raise
        finally:
            for held, future in left:
                self._put_by(held, future)
        if problem is not None and not got:
            raise problem
        return got

    def _settled(self, held: ReadItem, future: Future[Any]) -> None:
        error = future.exception()
        with self._lock:
            if error is None:
                self._buffer.taken(held)
            elif isinstance(error, NoNode):
                self._buffer.missed(held)
            elif isinstance(error, BadVersion):
                self._buffer.give_back(held, is_changed=True)
            else:
                self._buffer.let_go(held)
        if isinstance(error, ConnectionLost):
            log.error("whether item %s of %s was taken is unknown; if so, it is lost: %s", held.name, self._path, error)

    def _put_by(self, held: ReadItem, future: Future[Any]) -> None:
        if future.cancel():
            with self._lock:
                self._buffer.give_back(held)
        else:
            future.add_done_callback(partial(self._came_late, held))

    def _came_late(self, held: ReadItem, future: Future[Any]) -> None:
        self._settled(held, future)
        if future.exception() is None:
            with self._lock:
                self._spare.append(held)
                self._signal.notify()

    # -- what happened --------------------------------------------------------------------------------------------------

    def _on_child(self, _event: WatchEvent) -> None:
        with self._lock:
            self._signal.notify()

    def _on_life(self, _event: WatchEvent | None = None) -> None:
        """The queue's znode was made, deleted or changed, or nobody watches it any more: old names
        may name other items now.
        """
        with self._lock:
            self._is_watched = False
            self._life += 1
            self._buffer.forget()
            self._signal.notify()

    def _on_state(self, _state: SessionState) -> None:
        """On the session's thread."""
        self._on_life()


def _held(name: str, answer: Any) -> ReadItem | None:
    if isinstance(answer, NoNode):
        return None
    if isinstance(answer, LeaderqError):
        raise answer
    data, _, version = answer
    return ReadItem(name, data, version)
