"""What a coordinator does in the background: it releases slots, even if answers are lost; it checks
that its tokens stand; and it covers requests that were declined in this process. Nobody waits for
this.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from leaderq.base import clock
from leaderq.coalescing.distributed.slots import KeyZnodes, SlotHolder, has_begun
from leaderq.errors import (
    ConnectionLost,
    CoordinatorClosed,
    LeaderqError,
    NoNode,
    SessionClosed,
    SessionExpired,
)
from leaderq.threads import Backoff, Inbox, Retry, Service, primitives
from leaderq.threads.inbox import STOP
from leaderq.zookeeper import Check, Delete, Session, SessionState, WatchEvent, WatchKind

log = logging.getLogger(__name__)

_AT_ONCE = 200
_LEAST_S = 0.05
_AGAIN = Retry(first_s=0.1, most_s=5.0)


@dataclass(eq=False, slots=True)
class Release:
    """A slot that must be released. The result of ``done`` says whether the token stood
    until then.
    """

    znodes: KeyZnodes
    holder: SlotHolder
    done: primitives.Future[bool] = field(default_factory=lambda: primitives.Future())
    is_doubtful: bool = False

    @property
    def token(self) -> str:
        return self.znodes.token(self.holder.token)

    @property
    def slot(self) -> str:
        return self.znodes.slot(self.holder.slot)

    def settle(self, stood: bool) -> None:
        try:
            self.done.set_result(stood)
        except primitives.InvalidStateError:
            return


Renewed = tuple[Check, Callable[[], object]]
"""The check of a token, of a head or a waiter, and the function to call if it does not stand."""


class SlotKeeper:
    """Releases slots, and checks those that are held. Any thread may use it; it never blocks. Its
    own thread starts with the first head or waiter, and sleeps while there is nothing to do. Every
    T/7 it checks, in one multi, all tokens that ``held`` returns; so it learns which were evicted.

    On a release the token's znode is authoritative. Its name is never used twice, and a token and
    its slot are made and deleted in one multi; so ``Delete(token), Delete(slot)`` deletes nobody
    else's slot and may be repeated. If it is sent in the session that took the slot, it is carried
    out after the slot was taken, or the slot is never taken: ZooKeeper keeps the order of a
    session's requests, and refuses those left over from a connection that the session has given up.

    On each failure: without an answer, the release is sent again when connected. If the token is
    gone, the slot is released: by a former try, by the end of the session or by an eviction. If the
    session is closed, the slot vanishes with it.
    """

    def __init__(self, session: Session, held: Callable[[], Sequence[Renewed]]) -> None:
        self._session, self._held = session, held
        self._unanswered: deque[Release] = deque()
        self._service = Service.repeating("leaderq-coalescing", self._step)
        self._is_ticking = False  # it will look by itself, so it need not be woken for each token

    @property
    def is_clear(self) -> bool:
        return not self._unanswered

    def release(self, release: Release) -> primitives.Future[bool]:
        """Release the slot, at once if possible; return the future ``release.done``."""
        self._send(release)
        if self._unanswered:
            self.wake()
        return release.done

    def send_again(self) -> None:
        with suppress(IndexError):  # another thread sends them, too
            for _ in range(len(self._unanswered)):
                self._send(self._unanswered.popleft())

    def wake(self, *, is_urgent: bool = False) -> None:
        """Wake the thread, because there is something to do; ``is_urgent``: the connection came or
        went.
        """
        if is_urgent:
            self._service.wake()
        elif not self._is_ticking:
            self._service.start()
            self._service.wake()

    def stop(self, timeout_s: float | None) -> None:
        """Stop, and wait at most ``timeout_s`` seconds for the thread, which never blocks."""
        self._service.stop(timeout_s)

    def _step(self) -> float | None:
        self._is_ticking = False  # before looking: later news wakes us
        held = self._held()
        if not held and not self._unanswered:
            return None
        self._is_ticking = True
        self.send_again()
        self._renew(held)
        return max(_LEAST_S, self._session.shares.beat_s)

    def _renew(self, held: Sequence[Renewed]) -> None:
        for begin in range(0, len(held), _AT_ONCE):
            part = held[begin : begin + _AT_ONCE]
            answer = self._session.multi_async([check for check, _ in part])
            answer.add_done_callback(partial(self._renewed, part, self._session.id))

    def _renewed(
        self,
        part: Sequence[Renewed],
        session: int | None,
        answer: primitives.Future[list[Any]],
    ) -> None:
        error = answer.exception()
        if session is None or session != self._session.id:
            return
        if isinstance(error, NoNode) and error.index is not None:
            part[error.index][1]()
            self._renew([*part[: error.index], *part[error.index + 1 :]])

    def _send(self, release: Release) -> None:
        session = self._session
        if session.state is SessionState.LOST or session.id not in (None, release.holder.session):
            # deleted all the same: a session that was given up may stand for a while
            release.settle(False)
        answer = session.multi_async([Delete(release.token), Delete(release.slot)])
        answer.add_done_callback(partial(self._answered, release))

    def _answered(self, release: Release, answer: primitives.Future[list[Any]]) -> None:
        error = answer.exception()
        if error is None:
            release.settle(True)
        elif isinstance(error, (SessionExpired, SessionClosed)):
            release.settle(False)
        elif isinstance(error, ConnectionLost):
            release.is_doubtful = True
            self._unanswered.append(release)
        elif isinstance(error, NoNode) and error.index == 0:  # the token is gone: see the class
            release.settle(release.is_doubtful)
        else:
            log.error("slot not released token=%s error=%s", release.token, error)
            release.settle(False)


class Coverage:
    """Covers requests that were declined in this process, if the waiter that they rely on never
    begins. ``run(key)`` asks for a key, and does its work unless it is declined.

    The waiter's token in ZooKeeper is authoritative. A waiter writes to it when its run begins, and
    it vanishes with the waiter. So each declined request sets one watch on that token. If the token
    *changes* first, a run has begun after the request came. If it is *deleted* first, the waiter
    gave up or died, and this process asks for the key itself.

    States of a key: watched -> covered, or owed -> covered (by ``run``, or by relying on another
    waiter: watched again).

    On each failure: if the connection breaks, the token is read again, and the key is owed if the
    token is gone. Without an answer, or a turn in time, it tries again, each time after a longer
    wait. If the work raises, that is only logged, because the run began. If this process dies, its
    declined requests are gone.
    """

    def __init__(self, session: Session, run: Callable[[str | bytes], object]) -> None:
        self._session = session
        self._run = run
        self._watched: dict[str, str | bytes] = {}
        self._service = Service("leaderq-coalescing-cover", self._serve)
        self._news: Inbox[tuple[str, bool]] = Inbox(self._service.name, start=self._service.start)
        """Each item is a token, and whether it is gone; if not, it must be looked at again."""
        # The thread's own:
        self._owed: dict[str | bytes, None] = {}
        self._unknown: dict[str, None] = {}
        self._next_look_s = 0.0
        self._backoff = Backoff(_AGAIN)

    @property
    def is_idle(self) -> bool:
        """Whether all requests declined so far are covered."""
        return not (self._watched or self._owed)

    def rely_on(self, key: str | bytes, token: str) -> None:
        """Take note that a request for ``key`` was declined because the request with ``token``
        waits.
        """
        if token not in self._watched:
            self._watched[token] = key
            self._look(token)

    def stop(self, timeout_s: float | None) -> None:
        self._news.close(lambda: CoordinatorClosed("the coordinator was closed by its owner"))
        self._service.stop(timeout_s)
        if keys := [*{*self._watched.values(), *self._owed}]:
            log.warning(
                "closed, declined requests may not be covered keys=%d key=%r", len(keys), keys[0]
            )
        self._watched, self._owed = {}, {}

    def _look(self, token: str) -> None:
        answer = self._session.get_async(token, watch=partial(self._on_watch, token))
        answer.add_done_callback(partial(self._looked, token))

    def _looked(self, token: str, answer: primitives.Future[tuple[bytes, Any]]) -> None:
        error = answer.exception()
        if isinstance(error, SessionClosed) or (not error and has_begun(answer.result()[0])):
            self._forget(token)
        elif error is not None:
            self._tell(token, is_gone=isinstance(error, NoNode))
        else:
            self._backoff.reset()

    def _on_watch(self, token: str, event: WatchEvent) -> None:
        if event.kind is WatchKind.CHANGED:
            self._forget(token)
        else:
            self._tell(token, is_gone=event.kind is WatchKind.DELETED)

    def _forget(self, token: str) -> None:
        self._watched.pop(token, None)

    def _tell(self, token: str, *, is_gone: bool) -> None:
        with suppress(CoordinatorClosed):
            self._news.put((token, is_gone), None)

    def _serve(self, _: Service) -> None:
        wait_s: float | None = None
        while True:
            news: list[Any] = []
            self._news.take_all(news, math.inf, wait_s)
            for one in news:
                if one is STOP:
                    return
                self._hear(*one)
            waits = [one for one in (self._look_again(), self._cover()) if one is not None]
            wait_s = min(waits, default=None)

    def _hear(self, token: str, is_gone: bool) -> None:
        if not is_gone:
            self._unknown[token] = None
        elif (key := self._watched.get(token)) is not None:
            self._owed[key] = None
            self._forget(token)

    def _look_again(self) -> float | None:
        """Read the tokens again for which there was no answer; return in how many seconds to do so
        next.
        """
        now_s = clock.now_s()
        if self._unknown and now_s >= self._next_look_s:
            self._next_look_s = now_s + self._backoff.next_s()
            unknown, self._unknown = self._unknown, {}
            for token in unknown:
                if token in self._watched:
                    self._look(token)
        return max(0.0, self._next_look_s - now_s) if self._unknown else None

    def _cover(self) -> float | None:
        """Cover one key that is owed; return the seconds until the next one is due, ``None`` if
        none is owed.
        """
        key = next(iter(self._owed), None)
        if key is None:
            return None
        try:
            self._run(key)
        except (CoordinatorClosed, SessionClosed):
            pass
        except LeaderqError as exc:
            log.info("key not covered yet, trying again key=%r error=%s", key, exc)
            return self._backoff.next_s()
        self._backoff.reset()
        self._owed.pop(key, None)
        return 0.0 if self._owed else None
