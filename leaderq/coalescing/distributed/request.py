"""One request for a key: it takes a slot, or is declined; then it waits until its slot is the
head's.

Each try is two requests sent together, answered in one round trip::

    multi:      Create(slot, data=token), Create(token)       both ephemeral
    multiRead:  slot 0, slot 1, slot 0 again

The multiRead is authoritative, because ZooKeeper serves it after the multi, whether that was
applied or refused; see :func:`.slots.judge`. If another try is needed, it is for the slot that was
free.

States: *seeking*; *waiting*, with a watch on the other slot and on its own token; *head*. A waiter
that hears that the other slot was deleted need not ask while its session is proven to live: a
request that takes that slot now is younger. On each failure:

* **an answer is lost**: the same try again, once connected; one request never has two slots;
* **the session ends while seeking**: a new token in the new session. **While waiting**:
  ``SessionExpired``, because the requests that relied on this place have lost it;
* **evicted while waiting**: ``TokenOver``;
* **the time is up**: ``WaitTimedOut``; the slot, if any, is released in the background.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TypeVar

from leaderq.base import clock, host
from leaderq.coalescing.distributed.background import Release
from leaderq.coalescing.distributed.slots import (
    KeyZnodes,
    SlotHolder,
    SlotStanding,
    described,
    find,
    holder,
    judge,
    view,
)
from leaderq.errors import (
    ConnectionLost,
    CoordinatorClosed,
    LeaderqError,
    NodeExists,
    NoNode,
    SessionExpired,
    TokenOver,
    WaitTimedOut,
)
from leaderq.threads import primitives
from leaderq.zookeeper import Check, Create, GetData, Session, SessionState, WatchEvent, WatchKind

T = TypeVar("T")


ASKING_S = 5.0
"""The least time to take a slot; so ``timeout_s=0`` asks, and does not wait."""
_LOOK_S = 0.5
_REST_S = 0.02
_ROOT_S = 60.0
_EVICTED = "it was evicted while it waited"


class SlotRequest:
    """One request for a key; see the module. Only one thread uses it, except for :meth:`wake`.

    It may last ``timeout_s`` seconds from now on (but see :data:`ASKING_S`); ``None``: for ever.
    """

    def __init__(self, session: Session, znodes: KeyZnodes, timeout_s: float | None) -> None:
        self._session = session
        self._znodes = znodes
        self.is_closed = False
        """Whether its coordinator is."""
        self._began_s = clock.now_s()
        self._turn_end_s = math.inf if timeout_s is None else self._began_s + timeout_s
        self._end_s = max(self._turn_end_s, self._began_s + ASKING_S)
        self._changed = primitives.Event()
        self._token = znodes.new_token()
        self._who = partial(described, host=host.name(), pid=host.pid(), since=clock.calendar_s())
        self._session_id: int | None = None
        self._slot: int | None = None  # that we have, or may have
        self._is_vacant = False  # the other slot was deleted while we waited
        self._is_evicted = False  # our token was
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
            self._keep_to_session()
            made, slots = self._try(slot)
            if isinstance(made, NoNode):
                self._slot = None
                self._ensure_root()
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
                waiter = view(slots[1:]).waiter
                assert waiter is not None  # both slots were taken
                self.relied_on = self._znodes.token(waiter.token)
                return standing

    def _try(self, slot: int) -> tuple[LeaderqError | None, list[SlotHolder | None] | None]:
        """Try to take ``slot``. Return the error of the multi, or ``None``, and the three readings;
        ``None`` instead of them if the request must be tried again.
        """
        znodes, session = self._znodes, self._session
        token = self._token
        who = self._who()
        self._slot = slot
        taking = session.multi_async(
            [
                Create(znodes.slot(slot), token.encode(), ephemeral=True),
                Create(znodes.token(token), who, ephemeral=True),
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

    def _keep_to_session(self) -> None:
        """Choose a new token if there is a new session, because a token of the old session may
        vanish, or stand, without our doing.
        """
        current = self._session.id
        if current is not None and current != self._session_id:
            self._session_id = current
            self._token = self._znodes.new_token()
            self._slot = None

    def _ensure_root(self) -> None:
        try:
            self._session.ensure_path(self._znodes.root, timeout_s=min(self._left_s(), _ROOT_S))
        except (ConnectionLost, SessionExpired):
            self._await_connection()

    def wait(self) -> None:
        """Wait until this request is the head: its slot is the older one."""
        mine = self.holder
        assert mine is not None  # seek() has found it
        self._end_s = self._turn_end_s
        while not self._is_told(mine) and not self._is_head(mine):
            is_connected = self._session.state is SessionState.CONNECTED
            self._changed.wait(min(60.0 if is_connected else _LOOK_S, self._left_s()))
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

    def _is_told(self, mine: SlotHolder) -> bool:
        """Whether this request is certainly the head, by its watches alone. Events come in the
        order in which things happened, so if it had been evicted before the other slot was deleted,
        it would know.
        """
        if self._is_evicted:
            raise TokenOver(self._znodes.key, number=mine.number, reason=_EVICTED)
        return self._is_vacant and self._session.pulse.holds(mine.session)

    def _is_head(self, mine: SlotHolder) -> bool:
        """Read the slots once, set the watches, and return whether this request is the head. A
        check in the same round trip proves that its token stands.
        """
        self._changed.clear()
        own, other = self._znodes.token(mine.token), self._znodes.slot(1 - mine.slot)
        checking = self._session.multi_async([self.fence])
        # not exists: that would leave a watch on a znode that is not there
        self._session.get_async(own, watch=self._on_own_watch)
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

    def _on_own_watch(self, event: WatchEvent) -> None:
        self._is_evicted = self._is_evicted or event.kind is WatchKind.DELETED
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

    def _left_s(self) -> float:
        return max(0.0, self._end_s - clock.now_s())

    def _check_time(self) -> None:
        if self.is_closed:
            raise CoordinatorClosed("the coordinator was closed by its owner")
        if self._left_s() > 0:
            return
        if self.holder is None:
            raise ConnectionLost(
                "no answer in time: whether a place was taken is unknown; it will be released",
                path=self._znodes.slot(0),
            )
        raise WaitTimedOut(self._znodes.key, waited_s=clock.now_s() - self._began_s)

    def _answer(self, future: primitives.Future[T]) -> T | LeaderqError:
        """Return the result, or its error; if there is no answer in time, ``ConnectionLost``."""
        try:
            return future.result(min(max(_REST_S, self._left_s()), primitives.TIMEOUT_MAX))
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
        self._changed.wait(min(_REST_S, self._left_s()))
        while (
            self._session.state is not SessionState.CONNECTED
            and self._left_s() > 0
            and not self.is_closed
        ):
            self._session.check_open(self._znodes.root)
            self._changed.wait(min(_LOOK_S, self._left_s()))
            self._changed.clear()
