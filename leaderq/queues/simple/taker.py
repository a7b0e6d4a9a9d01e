"""Taking from a simple queue: what is there, whose it is, and whom it is given to.

Who is authoritative: the znodes; whoever deletes one has the item. Deletions go through a tally, so that "I did it" and "somebody
else did" are told apart although an answer was lost.

States of an item, as seen from here: *listed*, *read*, *claimed* (its deletion is on its way), *taken*; or *spare*: claimed ahead, or for
a caller whose time was up, and kept for the next who asks. A caller's wait ends with an item, with nothing to be
had, or with an error; never with an item that nobody gets.

Names read in one *life* of the queue's znode say nothing about the next: when it is deleted, or the connection is away so that its
deletion might go unseen, all is forgotten and read again.
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
from leaderq.errors import BadVersion, ConnectionLost, LeaderqError, NoNode, SessionExpired
from leaderq.queues.simple.stirring import LOOK_AGAIN_S, OpenedAtUse, Stirring
from leaderq.queues.simple.stock import Held, Stock
from leaderq.queues.tallying import Tally
from leaderq.zookeeper import Delete, GetData, Session, SessionState, WatchEvent
from leaderq.zookeeper.paths import join

log = logging.getLogger(__name__)

_GRACE_S = 1.0
"""What a request that was begun in time is given beyond the caller's time."""
_LONGEST_S = 60.0


class Taker:
    """One object's taking end. Thread-safe."""

    def __init__(self, session: Session, path: str, tally: Tally, stirring: Stirring, *, claim_ahead: int = 0) -> None:
        self._session = session
        self._path = path
        self._tally = tally
        self._opened = OpenedAtUse(tally, stirring)
        self._stirring = stirring
        self._lock = stirring.lock
        self._looking = threading.Lock()  # one thread at a time asks the server what there is
        self._stock = Stock()
        self._claim_ahead = claim_ahead
        self._spare: deque[Held] = deque()
        self._life = 0
        self._is_watched = False
        session.add_listener(self._heard)

    def take(self, wanted: int, deadline: float, grace_s: float = _GRACE_S) -> list[bytes]:
        """Up to ``wanted`` items, as soon as there is one; none if there is none by ``deadline``.

        :raises ConnectionLost: no answer by then, and ``grace_s`` more if a claim was under way.
        """
        is_watching = False
        while True:
            self._stirring.guard()
            seen = self._stirring.count
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
                self._stirring.wait(seen, min(left_s, _LONGEST_S if problem is None else LOOK_AGAIN_S))
            is_watching = problem is None

    def peek(self) -> bytes | None:
        """What the item at the head holds."""
        with self._looking:
            while True:
                with self._lock:
                    if self._spare:
                        return self._spare[0].data
                    name = self._stock.first()
                if name is None:
                    if not self._list(is_watching=False, deadline=now_s()):
                        return None
                    continue
                try:
                    return self._session.get(join(self._path, name))[0]
                except NoNode:
                    with self._lock:
                        self._stock.drop(name)

    def close(self, timeout_s: float) -> tuple[bool, list[Held]]:
        """Whether all claims were settled in ``timeout_s``; and the items that were claimed and given to nobody."""
        self._session.remove_listener(self._heard)
        is_clean = self._tally.close(timeout_s)
        with self._lock:
            left = list(self._spare)
            self._spare.clear()
        return is_clean, left

    # -- what there is --------------------------------------------------------------------------------------------------

    def _pick(self, wanted: int, is_watching: bool, deadline: float) -> list[Held]:
        """Reserve items to claim, reading what must be read for that; none if there are none."""
        while True:
            with self._lock:
                picked = self._stock.pick(wanted)
            if picked:
                return picked
            with self._looking:
                with self._lock:
                    names = self._stock.next_unread(wanted)
                    is_read = not names and len(self._stock) > 0  # by another thread, while this one waited for its turn
                if names:
                    self._read(names, deadline)
                elif not is_read and not self._list(is_watching=is_watching, deadline=deadline):
                    return []

    def _list(self, *, is_watching: bool, deadline: float) -> bool:
        """List the queue; whether there is any item. ``is_watching``: and stir when there will be more."""
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
                self._stock.listed(names)
            return self._life != life or len(self._stock) > 0

    def _read(self, names: list[str], deadline: float) -> None:
        with self._lock:
            life = self._life
        reads = [GetData(join(self._path, name)) for name in names]
        answers = self._session.multi_read(reads, timeout_s=self._patience_s(deadline))
        found = [_held(name, answer) for name, answer in zip(names, answers, strict=True)]
        with self._lock:
            if self._life == life:
                self._stock.learned(names, found)

    def _patience_s(self, deadline: float) -> float | None:
        left_s = deadline - now_s()
        return None if left_s > _LONGEST_S else max(_GRACE_S, left_s)

    # -- whose it is ----------------------------------------------------------------------------------------------------

    def _take_spare(self, wanted: int) -> list[bytes]:
        with self._lock:
            return [self._spare.popleft().data for _ in range(min(wanted, len(self._spare)))]

    def _share(self, got: list[Held], wanted: int) -> list[bytes]:
        """The caller's share; the rest is spare."""
        with self._lock:
            if len(got) > wanted:
                self._spare.extend(got[wanted:])
                self._stirring.stir()
        return [held.data for held in got[:wanted]]

    def _claim(self, picked: list[Held], deadline: float) -> list[Held]:
        """Those of these that we got.

        :raises ConnectionLost: none so far, and there are some of which nothing is known by ``deadline``.
        """
        deletions = [(Delete(join(self._path, held.name), held.version),) for held in picked]
        left = deque(zip(picked, self._tally.submit_all(deletions), strict=True))
        got: list[Held] = []
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

    def _settled(self, held: Held, future: Future[Any]) -> None:
        error = future.exception()
        with self._lock:
            if error is None:
                self._stock.taken(held)
            elif isinstance(error, NoNode):
                self._stock.missed(held)
            elif isinstance(error, BadVersion):
                self._stock.give_back(held, is_changed=True)
            else:
                self._stock.let_go(held)
        if isinstance(error, ConnectionLost):
            log.error("whether item %s of %s was taken is unknown; if so, it is lost: %s", held.name, self._path, error)

    def _put_by(self, held: Held, future: Future[Any]) -> None:
        if future.cancel():
            with self._lock:
                self._stock.give_back(held)
        else:
            future.add_done_callback(partial(self._came_late, held))

    def _came_late(self, held: Held, future: Future[Any]) -> None:
        self._settled(held, future)
        if future.exception() is None:
            with self._lock:
                self._spare.append(held)
                self._stirring.stir()

    # -- what happened --------------------------------------------------------------------------------------------------

    def _on_child(self, _event: WatchEvent) -> None:
        with self._lock:
            self._stirring.stir()

    def _on_life(self, _event: WatchEvent | None = None) -> None:
        """The queue's znode was made, deleted or changed, or nobody watches it any more: old names may name other items now."""
        with self._lock:
            self._is_watched = False
            self._life += 1
            self._stock.forget()
            self._stirring.stir()

    def _heard(self, _state: SessionState) -> None:
        """On the session's thread."""
        self._on_life()


def _held(name: str, answer: Any) -> Held | None:
    if isinstance(answer, NoNode):
        return None
    if isinstance(answer, LeaderqError):
        raise answer
    data, stat = answer
    return Held(name, data, stat.version)
