"""What one coordinator does in the background: give slots back, however often the answer is lost,
and renew the lease on its session. Nobody has to wait for either.

Who is authoritative on a release: the token's znode. Its name is never used twice, and a token and
its slot are made and deleted in one multi; so ``Delete(token), Delete(slot)`` deletes nobody else's
slot and may be repeated. Sent in the session that took the slot, it is carried out after the
taking, or the taking never is: ZooKeeper keeps the order of a session's requests, and refuses those
left over from a connection that the session has given up.

What happens on each failure: no answer: sent again when connected. The token is gone: done, by a
former try, by the end of the session or by an eviction; if it was deleted by hand and its slot
still names it, the slot is deleted too. Closed: left to the end of the session.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from leaderq.clock import now_s
from leaderq.coalescing.distributed.slots import KeyZnodes, SlotHolder
from leaderq.coalescing.distributed.token import SessionLease
from leaderq.errors import ConnectionLost, NoNode, SessionClosed, SessionExpired
from leaderq.threads import Service
from leaderq.zookeeper import Check, Delete, Session, SessionState

log = logging.getLogger(__name__)

_AT_ONCE = 200
_LOOK_S = 0.5


@dataclass(eq=False, slots=True)
class Release:
    """A slot to be given back. ``done``: whether the token stood until now; ``False`` if it was
    gone already.
    """

    znodes: KeyZnodes
    holder: SlotHolder
    done: Future[bool] = field(default_factory=Future)
    is_doubtful: bool = False

    @property
    def token(self) -> str:
        """The path of the token."""
        return self.znodes.token(self.holder.token)

    @property
    def slot(self) -> str:
        """The path of the slot."""
        return self.znodes.slot(self.holder.slot)

    def settle(self, stood: bool) -> None:
        """Say what came of it, once."""
        try:
            self.done.set_result(stood)
        except InvalidStateError:
            return


class PendingReleases:
    """All that is to be given back by one coordinator. May be used from any thread; blocks
    nowhere.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._waiting: list[Release] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, release: Release) -> Future[bool]:
        """Give it back, now if possible; see :class:`Release`."""
        self._send(release)
        return release.done

    def again(self) -> None:
        """Send again what had no answer. For whoever hears of the connection, or looks now and
        then.
        """
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for one in waiting:
            self._send(one)

    def _send(self, release: Release) -> None:
        session = self._session
        if session.state is SessionState.LOST or session.id not in (None, release.holder.session):
            # and deleted all the same: a session that was given up may stand for a while
            release.settle(False)
        answer = session.multi_async([Delete(release.token), Delete(release.slot)])
        answer.add_done_callback(partial(self._answered, release))

    def _answered(self, release: Release, answer: Future[list[Any]]) -> None:
        error = answer.exception()
        if error is None:
            release.settle(True)
        elif isinstance(error, (SessionExpired, SessionClosed)):
            release.settle(False)
        elif isinstance(error, ConnectionLost):
            release.is_doubtful = True
            with self._lock:
                self._waiting.append(release)
        elif isinstance(error, NoNode) and error.index == 0:
            self._session.get_async(release.slot).add_done_callback(partial(self._looked, release))
            release.settle(release.is_doubtful)
        elif isinstance(error, NoNode):  # the slot was deleted by hand
            self._session.delete_async(release.token).add_done_callback(_deleted)
            release.settle(False)
        else:
            log.error("slot not given back token=%s error=%s", release.token, error)
            release.settle(False)

    def _looked(self, release: Release, answer: Future[Any]) -> None:
        """The token is gone; its slot must be too."""
        if answer.exception() is None and answer.result()[0] == release.holder.token.encode():
            self._session.delete_async(release.slot).add_done_callback(_deleted)


def _deleted(answer: Future[None]) -> None:
    error = answer.exception()
    if error is not None and not isinstance(error, (NoNode, ConnectionLost)):
        log.error("slot of a deleted token not deleted error=%s", error)


Renewed = tuple[Check, Callable[[], object]]
"""The check of a token, of a head or a waiter, and what to call if it does not stand."""


class LeaseRenewer:
    """One thread, started with the first head or waiter, asleep while there is nothing to do; it
    never waits for an answer. ``held`` returns those whose tokens are to be checked.

    Every T/6 it checks all of them in one multi: an acknowledged write that proves the session, and
    tells which tokens were evicted.
    """

    def __init__(
        self,
        session: Session,
        lease: SessionLease,
        releases: PendingReleases,
        held: Callable[[], Sequence[Renewed]],
    ) -> None:
        self._session = session
        self._lease = lease
        self._releases = releases
        self._held = held
        self._service = Service.repeating("leaderq-coalescing", self._step)
        self._due_s = 0.0
        self._is_ticking = False  # it will look by itself, so it need not be woken for each token

    def wake(self) -> None:
        """There is something to do, which is not urgent; from any thread, returns at once."""
        if not self._is_ticking:
            self._service.start()
            self._service.wake()

    def look_now(self) -> None:
        """The connection came or went: look, if there is anything to look after."""
        self._service.wake()

    def stop(self, timeout_s: float | None) -> None:
        """Do no more; waits for the thread, which blocks nowhere."""
        self._service.stop(timeout_s)

    def _step(self) -> float | None:
        self._is_ticking = False  # before looking: who has something new after that wakes us
        if not self._held() and not self._releases:
            self._due_s = 0.0
            return None
        self._is_ticking = True
        if self._releases:
            self._releases.again()
        now = now_s()
        self._due_s = self._due_s or now + self._lease.renewal_s
        if now >= self._due_s:
            self._due_s = now + self._lease.renewal_s
            self._renew(self._held())
        left_s = max(0.0, self._due_s - now_s())
        return min(_LOOK_S, left_s) if self._releases else left_s

    def _renew(self, held: Sequence[Renewed]) -> None:
        for begin in range(0, len(held), _AT_ONCE):
            part = held[begin : begin + _AT_ONCE]
            session, sent_s = self._session.id, now_s()  # before: the lease counts from the sending
            answer = self._session.multi_async([check for check, _ in part])
            answer.add_done_callback(partial(self._renewed, part, session, sent_s))

    def _renewed(
        self,
        part: Sequence[Renewed],
        session: int | None,
        sent_s: float,
        answer: Future[list[Any]],
    ) -> None:
        error = answer.exception()
        if session is None or session != self._session.id:
            return
        if not (error is None or isinstance(error, NoNode)):
            return
        self._lease.heard(session, sent_s)
        if isinstance(error, NoNode) and error.index is not None:
            part[error.index][1]()
            self._renew([*part[: error.index], *part[error.index + 1 :]])
