"""One request for a key: it takes a slot, or is declined; then it waits until its slot is the
head's. And how slots are released, however often the answer is lost.

Each try is two requests sent together, answered in one round trip::

    multi:      Create(slot, data=token), Create(token)       both ephemeral
    multiRead:  slot 0, slot 1, slot 0 again

The multiRead is authoritative, because ZooKeeper serves it after the multi, whether that was
applied or refused; see :func:`.slots.judge`. If another try is needed, it is for the slot that was
free.

States: *seeking*; *waiting*, with a watch on the other slot; *head*. A waiter that is told that the
other slot was deleted asks nothing more while the lease on its session holds: whoever takes that
slot now is younger. On each failure:

* **an answer is lost**: the same try again, once connected; one request never has two slots;
* **the session ends while seeking**: a new token in the new session. **While waiting**:
  ``SessionExpired``, because the requests that relied on this place have lost it;
* **somebody deletes its znode**: ``TokenOver``, when it is looked at;
* **the time is up**: ``WaitTimedOut``; the slot, if any, is released in the background.
"""

from __future__ import annotations

import logging
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from leaderq.base import clock, host
from leaderq.base.timeouts import Deadline
from leaderq.coalescing.distributed.slots import (
    KeyZnodes,
    SlotHolder,
    SlotStanding,
    described,
    find,
    holder,
    judge,
)
from leaderq.errors import (
    ConnectionLost,
    CoordinatorClosed,
    LeaderqError,
    NodeExists,
    NoNode,
    SessionClosed,
    SessionExpired,
    TokenOver,
    WaitTimedOut,
)
from leaderq.threads import primitives
from leaderq.zookeeper import (
    Check,
    Create,
    Delete,
    GetData,
    Session,
    SessionState,
    WatchEvent,
    WatchKind,
)

log = logging.getLogger(__name__)
T = TypeVar("T")


ASKING_S = 5.0
"""The least time to take a slot; so ``timeout_s=0`` asks, and does not wait."""
_LOOK_S = 0.5
_REST_S = 0.02
_ROOT_S = 60.0
_EVICTED = "its znode was deleted while it waited"


@dataclass(eq=False, slots=True)
class Release:
    """A slot to be released. ``done``: whether the token stood until now."""

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


class SlotReleases:
    """Releases slots. May be used from any thread; blocks nowhere.

    Who is authoritative: the token's znode. Its name is never used twice, and a token and its slot
    are made and deleted in one multi; so ``Delete(token), Delete(slot)`` deletes nobody else's slot
    and may be repeated. Sent in the session that took the slot, it is carried out after the taking,
    or the taking never is: ZooKeeper keeps the order of a session's requests, and refuses those
    left over from a connection that the session has given up.

    What happens on each failure: no answer: sent again when connected. The token is gone: done, by
    a former try, or by the end of the session. Closed: left to the end of the session.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self.unanswered: deque[Release] = deque()
        self._connections = 0

    def release(self, release: Release) -> primitives.Future[bool]:
        """Release it, now if possible; return its ``done``."""
        session = self._session
        if session.state is SessionState.LOST or session.id not in (None, release.holder.session):
            # deleted all the same: a session that was given up may stand for a while
            release.settle(False)
        answer = session.multi_async([Delete(release.token), Delete(release.slot)])
        answer.add_done_callback(partial(self._answered, release, self._connections))
        return release.done

    def connected(self) -> None:
        """There is a connection again: send those that had no answer."""
        self._connections += 1
        self._send_again()

    def _send_again(self) -> None:
        with suppress(IndexError):  # another thread sends them, too
            for _ in range(len(self.unanswered)):
                self.release(self.unanswered.popleft())

    def _answered(
        self, release: Release, connection: int, answer: primitives.Future[list[Any]]
    ) -> None:
        error = answer.exception()
        if error is None:
            release.settle(True)
        elif isinstance(error, (SessionExpired, SessionClosed)):
            release.settle(False)
        elif isinstance(error, ConnectionLost):
            release.is_doubtful = True
            self.unanswered.append(release)
            if self._connections != connection:  # the next one was told of before this
                self._send_again()
        elif isinstance(error, NoNode) and error.index == 0:  # the token is gone: see the class
            release.settle(release.is_doubtful)
        else:
            log.error("slot not released token=%s error=%s", release.token, error)
            release.settle(False)


class SlotRequest:
    """One request for a key; see the module. Only one thread uses it, except for :meth:`wake`.

    It may last until ``turn`` (but see :data:`ASKING_S`).
    """

    def __init__(self, session: Session, znodes: KeyZnodes, turn: Deadline) -> None:
        self._session = session
        self._znodes = znodes
        self.is_closed = False
        """Whether its coordinator is."""
        self._turn, self._asking = turn, Deadline(ASKING_S)
        self._has_asked = False
        self._changed = primitives.Event()
        self._token = znodes.new_token()
        self._who = partial(described, host=host.name(), pid=host.pid(), since=clock.calendar_s())
        self._session_id: int | None = None
        self._slot: int | None = None  # that we have, or may have
        self._is_vacant = False  # the other slot was deleted while we waited
        self.holder: SlotHolder | None = None
        self.relied_on: str | None = None
        """The path of the waiter's token, if this request was declined because of it."""

    @property
    def fence(self) -> Check:
        return Check(self._znodes.token(self._token))

    def wake(self) -> None:
        self._changed.set()

    def release(self) -> Release | None:
        """The slot to release, if this request has taken one or may have; else ``None``."""
        if self._slot is None:
            return None
        return Release(self._znodes, SlotHolder(self._slot, self._token, 0, self._session_id or 0))

    def seek(self) -> SlotStanding:
        """Take a slot; return HEAD, WAITS or DECLINED."""
        slot = 0
        while True:
            self._check_time()
            current = self._session.id
            if current is not None and current != self._session_id:
                # A token belongs to one session: another's may vanish, or stand, without us.
                self._session_id, self._slot = current, None
                self._token = self._znodes.new_token()
            made, slots = self._try(slot)
            if isinstance(made, NoNode):
                self._slot = None
                try:
                    limit_s = self._left_s(_ROOT_S)
                    self._session.ensure_path(self._znodes.root, timeout_s=limit_s)
                except (ConnectionLost, SessionExpired):
                    self._await_connection()
                continue
            if slots is None:
                self._await_connection()
                continue
            standing, slot = judge(self._token, *slots)
            mine = find(self._token, slots)
            if mine is not None and mine.session == self._session.id:
                self.holder, self._session_id = mine, mine.session
                return standing
            self._slot = None
            if standing is SlotStanding.DECLINED:
                both = (one for one in slots[1:] if one is not None)
                waiter = max(both, key=lambda one: one.number)
                self.relied_on = self._znodes.token(waiter.token)
                return standing

    def _try(self, slot: int) -> tuple[LeaderqError | None, list[SlotHolder | None] | None]:
        """Try to take ``slot``. Return the error of the multi, or ``None``, and the three readings;
        ``None`` instead of them if the request must be tried again.
        """
        znodes, session = self._znodes, self._session
        self._slot = slot
        taking = session.multi_async(
            [
                Create(znodes.slot(slot), self._token.encode(), ephemeral=True),
                Create(znodes.token(self._token), self._who(), ephemeral=True),
            ]
        )
        reading = session.multi_read_async(
            [GetData(znodes.slot(0)), GetData(znodes.slot(1)), GetData(znodes.slot(0))]
        )
        made = self._answer(taking)
        if isinstance(made, LeaderqError) and not isinstance(made, NodeExists):
            if isinstance(made, (ConnectionLost, SessionExpired, NoNode)):
                return made, None
            raise made
        read = self._answer(reading)
        if isinstance(read, LeaderqError):
            if isinstance(read, (ConnectionLost, SessionExpired)):
                return None, None
            raise read
        return None, [holder(number, one) for number, one in zip((0, 1, 0), read, strict=True)]

    def wait(self) -> None:
        """Wait until this request is the head: its slot is the older one."""
        mine = self.holder
        assert mine is not None  # seek() has found it
        self._has_asked = True
        # Told that the other slot was deleted, it is certainly the head, without a look.
        while not (self._is_vacant and self._session.pulse.holds(mine.session)):
            if self._is_head(mine):
                return
            is_connected = self._session.state is SessionState.CONNECTED
            self._changed.wait(self._left_s(60.0 if is_connected else _LOOK_S))
            self._check_time()
            is_lost = self._session.state is SessionState.LOST
            if is_lost or self._session.id not in (None, mine.session):
                raise SessionExpired(
                    "the place in the line is lost: its session is over",
                    path=self._znodes.token(mine.token),
                )

    def note_begun(self) -> None:
        """Tell the requests that rely on this one that its run begins. Does not wait for the
        answer.
        """
        self._session.set_async(self.fence.path, self._who(begun=clock.calendar_s()))

    def _is_head(self, mine: SlotHolder) -> bool:
        """Look once, and set the watch; a write in the same round trip proves that our token
        stands.
        """
        self._changed.clear()
        other = self._znodes.slot(1 - mine.slot)
        checking = self._session.multi_async([self.fence])
        # not exists: that would leave a watch on a znode that is not there
        looking = self._session.get_async(other, watch=self._on_watch)
        checked, seen = self._answer(checking), self._answer(looking)
        if isinstance(checked, NoNode):
            raise TokenOver(self._znodes.key, number=mine.number, reason=_EVICTED)
        if isinstance(checked, LeaderqError):
            return self._is_unknown(checked)
        if isinstance(seen, LeaderqError):
            return isinstance(seen, NoNode) or self._is_unknown(seen)
        _, stat = seen
        return stat.czxid > mine.number

    def _on_watch(self, event: WatchEvent) -> None:
        self._is_vacant = self._is_vacant or event.kind is WatchKind.DELETED
        self._changed.set()

    def _is_unknown(self, error: LeaderqError) -> bool:
        """Wait for the connection after an answer was lost; return ``False``: it is not known to be
        the head.
        """
        if not isinstance(error, (ConnectionLost, SessionExpired)):
            raise error
        self._await_connection()
        self._changed.set()
        return False

    def _left_s(self, most_s: float) -> float:
        left_s = self._turn.left_s(most_s)
        return left_s if self._has_asked else max(left_s, self._asking.left_s(most_s))

    def _check_time(self) -> None:
        if self.is_closed:
            raise CoordinatorClosed("the coordinator was closed by its owner")
        if self._left_s(_LOOK_S) > 0:
            return
        if self.holder is None:
            raise ConnectionLost(
                "no answer in time: whether a place was taken is unknown; it will be released",
                path=self._znodes.slot(0),
            )
        raise WaitTimedOut(self._znodes.key, waited_s=self._turn.timeout_s or 0.0)

    def _answer(self, future: primitives.Future[T]) -> T | LeaderqError:
        """Return the result, or its error; if there is no answer in time, ``ConnectionLost``."""
        try:
            return future.result(max(_REST_S, self._left_s(primitives.TIMEOUT_MAX)))
        except primitives.FutureTimeout:
            future.cancel()
            return ConnectionLost("no answer in time")
        except LeaderqError as exc:
            return exc

    def _await_connection(self) -> None:
        """Wait for a connection until the time is up; at least a moment, because a break is told
        late.
        """
        self._changed.clear()
        self._changed.wait(self._left_s(_REST_S))
        while (
            self._session.state is not SessionState.CONNECTED
            and self._left_s(_LOOK_S) > 0
            and not self.is_closed
        ):
            self._session.check_open(self._znodes.root)
            self._changed.wait(self._left_s(_LOOK_S))
            self._changed.clear()
