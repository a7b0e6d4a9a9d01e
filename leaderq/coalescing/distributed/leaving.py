"""Slots to be given back, however often the answer is lost; nobody has to wait for it.

Who is authoritative: the token's znode. Its name is never used twice, and a token and its slot are made and deleted in
one multi; so ``Delete(token), Delete(slot)`` deletes nobody else's slot and may be repeated. Sent in the session that
took the slot, it is carried out after the taking, or the taking never is: ZooKeeper keeps the order of a session's
requests, and refuses those left over from a connection that the session has given up.

What happens on each failure: no answer: sent again when connected. The token is gone: done, by a former try, by the end
of the session or by an eviction; if it was deleted by hand and its slot still names it, the slot is deleted too. Closed:
left to the end of the session.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from leaderq.errors import ConnectionLost, NoNode, SessionClosed, SessionExpired
from leaderq.zookeeper import Delete, Session, SessionState

log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class Leaving:
    """A slot to be given back: the paths of token and slot, the token's name, and the session that took it.

    ``done`` gives whether the token stood until now: ``False`` if it was gone already, or was never there.
    """

    token: str
    slot: str
    name: str
    session: int | None
    done: Future[bool] = field(default_factory=Future)
    is_doubtful: bool = False

    def settle(self, stood: bool) -> None:
        """Say what came of it, once."""
        try:
            self.done.set_result(stood)
        except InvalidStateError:
            return


class Leavings:
    """All that is to be given back by one coordinator. May be used from any thread; blocks nowhere."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._waiting: list[Leaving] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, leaving: Leaving) -> Future[bool]:
        """Give it back, now if possible; see :class:`Leaving`."""
        self._send(leaving)
        return leaving.done

    def again(self) -> None:
        """Send again what had no answer. For whoever hears of the connection, or looks now and then."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for one in waiting:
            self._send(one)

    def _send(self, leaving: Leaving) -> None:
        session = self._session
        if session.state is SessionState.LOST or session.id not in (None, leaving.session):
            leaving.settle(False)  # and deleted all the same: a session that was given up may stand for a while
        answer = session.multi_async([Delete(leaving.token), Delete(leaving.slot)])
        answer.add_done_callback(partial(self._answered, leaving))

    def _answered(self, leaving: Leaving, answer: Future[list[Any]]) -> None:
        error = answer.exception()
        if error is None:
            leaving.settle(True)
        elif isinstance(error, (SessionExpired, SessionClosed)):
            leaving.settle(False)
        elif isinstance(error, ConnectionLost):
            leaving.is_doubtful = True
            with self._lock:
                self._waiting.append(leaving)
        elif isinstance(error, NoNode) and error.index == 0:
            self._session.get_async(leaving.slot).add_done_callback(partial(self._looked, leaving))
            leaving.settle(leaving.is_doubtful)
        elif isinstance(error, NoNode):  # the slot was deleted by hand
            self._session.delete_async(leaving.token).add_done_callback(_deleted)
            leaving.settle(False)
        else:
            log.error("%s cannot be given back: %s", leaving.token, error)
            leaving.settle(False)

    def _looked(self, leaving: Leaving, answer: Future[Any]) -> None:
        """The token is gone; its slot must be too."""
        if answer.exception() is None and answer.result()[0] == leaving.name.encode():
            self._session.delete_async(leaving.slot).add_done_callback(_deleted)


def _deleted(answer: Future[None]) -> None:
    error = answer.exception()
    if error is not None and not isinstance(error, (NoNode, ConnectionLost)):
        log.error("what is left of a token that was deleted by hand cannot be deleted: %s", error)
