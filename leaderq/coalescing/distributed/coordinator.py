"""One works on a key, at most one waits, the rest are declined: across all processes that use one root in ZooKeeper.

Who is authoritative: the two slots of a key in ZooKeeper (see :mod:`.places`). The slot taken first, by ``czxid``, is the
head's; the other one is the waiter's; whoever finds both taken is declined. There are no more slots, so there are never
two that wait.

States of a key: the table of :mod:`leaderq.coalescing.automaton`, with one waiter.

=====================  ==================  ===================================  ===============================================
state                  slots taken         event                                next
=====================  ==================  ===================================  ===============================================
Init                   none                enqueue                              Process; ACCEPT
Process                one                 enqueue                              Block; BLOCK
Block                  two                 enqueue                              Block; DECLINE
Block                  two                 the older vanishes                   Process: the other is the head at once
Block                  two                 the younger vanishes                 Process
Process                one                 it vanishes                          Init: nothing is left of the key in ZooKeeper
=====================  ==================  ===================================  ===============================================

A slot vanishes when its owner dequeues it, gives up waiting, dies (with its session, T after it was last heard of at
most), or is evicted. Each slot goes with a *token*, a znode of a name never used twice, made and deleted with it in one
multi: the fence. A multi that begins with a check of it is refused from the moment at which another may be the head.

What happens on each failure:

* **head killed**: its slots vanish with its session; the waiter is the head;
* **head frozen, and back**: ``is_current`` is false at the first look (its own clock says so), and its fenced write is
  refused by the servers; what it does beside that is not prevented, as nowhere;
* **waiter killed, or tired of waiting**: its slot vanishes. Who was declined for its sake is not told: see *Not guaranteed*;
* **an answer is lost, wherever**: asked again in a way that cannot do it twice (see :mod:`.turn`, :mod:`.leaving`); no
  slot is left behind that belongs to nobody;
* **ZooKeeper is away**: heads go on, in doubt after 2T/3; enqueue fails when its time is up, what it may have taken is
  given back later;
* **own session over**: tokens are over at once, waiters are told; the next enqueue is in the new session;
* **the root is deleted**: made again at the next enqueue.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from leaderq.clock import now_s
from leaderq.coalescing.automaton import EnqueueOutcome
from leaderq.coalescing.distributed.attendant import Attendant, Attended
from leaderq.coalescing.distributed.leaving import Leaving, Leavings
from leaderq.coalescing.distributed.places import Place, validated_root
from leaderq.coalescing.distributed.token import DistributedToken, Ending
from leaderq.coalescing.distributed.trust import Trust
from leaderq.coalescing.distributed.turn import Turn
from leaderq.coalescing.distributed.view import Holder, KeyView, Standing, holder, view
from leaderq.errors import ConfigurationError, CoordinatorClosed, NoNode
from leaderq.zookeeper import AnyClient, Delete, GetData, Session, SessionState, as_session

DEFAULT_TIMEOUT_S = 30.0


class DistributedQueueCoordinator:
    """Lets one process at a time work on a key, and one wait; on ``client``, a session or a started ``KazooClient`` that
    it does not own.

    All who use the same ``root`` (a znode, made when needed) on the same ensemble are coordinated, whatever process or
    thread they are. ``timeout_s`` bounds each :meth:`enqueue` and :meth:`dequeue` that is not told otherwise.

    *Guarantees:* of a key, at most one token is the head's and at most one request waits, for every key and at every
    moment of the servers' time. A declined request is covered: when it was made somebody was waiting who had not begun.
    The one that waits is told of its turn by one event and nobody else is woken. An uncontended enqueue and dequeue are a
    round trip each.
    *Not guaranteed:* that a waiter lives: if it dies or its time is up before it has begun, those
    declined for its sake are covered by nobody. Where that matters, let whoever is told
    :class:`~leaderq.errors.WaitTimedOut` enqueue again. Fairness between three: a request that comes when the head leaves
    may wait while one that came earlier was declined.

    :raises ConfigurationError: the root, the time-out or the client cannot be used.
    """

    def __init__(self, client: AnyClient, root: str, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self._timeout_s = _bound(timeout_s)
        self.root = validated_root(root)
        self._session: Session = as_session(client)
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._turns: set[Turn] = set()
        self._waiting: dict[str, Turn] = {}
        self._held: dict[str, DistributedToken] = {}
        self._is_closed = False
        self._trust = Trust(self._session)
        self._leavings = Leavings(self._session)
        self._attendant = Attendant(self._session, self._trust, self._leavings, self._attended)
        self._session.add_listener(self._heard)

    def __enter__(self) -> DistributedQueueCoordinator:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<DistributedQueueCoordinator {self.root!r}, head of {len(self._held)} keys>"

    # -- the two events -------------------------------------------------------------------------------------------------

    def enqueue(self, key: str | bytes, timeout_s: float | None = None) -> DistributedToken:
        """Ask to work on ``key``: at once, or after waiting for the head, or not at all.

        The token is true (``if token:``) when it is this request's turn, and false if it was declined, since another
        waits already; ``token.outcome`` is ACCEPT, BLOCK or DECLINE. A true one must be given to :meth:`dequeue`, or used
        as a context manager. One thread that enqueues a key twice waits for itself.

        :param key: text or bytes of any length; text and bytes are never the same key.
        :param timeout_s: bounds all of it, seconds; 0 asks and does not wait. ZooKeeper's answer is given 5 s, if that is
        more.
        :raises WaitTimedOut: the head was still there; this request waits no more.
        :raises ConnectionLost: ZooKeeper did not answer in time. What may have been taken is given back, however late
        that is known.
        :raises SessionExpired: the session ended while this request waited; it may be repeated.
        :raises TokenOver: the waiting request was evicted.
        :raises CoordinatorClosed: this coordinator is closed. :raises ConfigurationError: the key cannot be used.
        """
        place = Place.of(self.root, key)
        limit_s = self._timeout_s if timeout_s is None else _bound(timeout_s)
        turn = Turn(
            self._session,
            place,
            self._trust,
            key=key,
            timeout_s=limit_s,
            is_closed=lambda: self._is_closed,
        )
        with self._lock:
            self._check_open()
            # Whoever waits here returns to its caller only after leaving this set under this lock: it begins after this request.
            is_covered = place.name in self._waiting
            if not is_covered:
                self._turns.add(turn)
        if is_covered:
            return self._token(place, key, None, EnqueueOutcome.DECLINE)
        try:
            return self._admitted(turn, place, key)
        except BaseException:
            self._give_up(turn)
            raise
        finally:
            with self._lock:
                self._turns.discard(turn)

    def dequeue(self, token: DistributedToken, timeout_s: float | None = None) -> bool:
        """The work is done: give the key to whoever waits. Gives whether the token certainly stood until then.

        May be called again, and with a token that is over, or was declined. Raises nothing for want of a connection: the
        slot is given back when there is one, and ``False`` is returned after ``timeout_s``.
        """
        leaving = self._let_go(token, Ending.DEQUEUED)
        if leaving is None:
            return False
        done = self._leavings.begin(leaving)
        if self._leavings:
            self._attendant.wake()
        try:
            return done.result(self._timeout_s if timeout_s is None else _bound(timeout_s))
        except FutureTimeout:
            self._attendant.wake()
            return False

    @contextmanager
    def hold(self, key: str | bytes, timeout_s: float | None = None) -> Iterator[DistributedToken]:
        """``with coordinator.hold(key) as token: if token: ...``: an :meth:`enqueue` whose token is dequeued at the end."""
        with self.enqueue(key, timeout_s) as token:
            yield token

    # -- for operators --------------------------------------------------------------------------------------------------

    def look(self, key: str | bytes) -> KeyView:
        """Who is the head of a key, and who waits; as of a moment ago.

        :raises ZooKeeperError: it could not be read.
        """
        place = Place.of(self.root, key)
        read: list[Any] = self._session.multi_read([GetData(place.slot(0)), GetData(place.slot(1))])
        return view([holder(number, one) for number, one in enumerate(read)])

    def evict(self, key: str | bytes) -> Holder | None:
        """Take the key from its head, in whatever process, and give it to whoever waits; gives who it was, ``None`` if
        nobody, or if it left meanwhile.

        From then on the token's writes are refused; its owner hears of it by the next of them, or T/6 later. For a head
        that hangs in a process that lives: what it does without the fence is not stopped.

        :raises ZooKeeperError: ZooKeeper could not be asked, or did not answer: then it may have been done.
        """
        place = Place.of(self.root, key)
        head = self.look(key).head
        if head is None or not place.owns(head.token):
            return None
        try:
            self._session.multi([Delete(place.token(head.token)), Delete(place.slot(head.slot))])
        except NoNode:
            return None
        return head

    # -- its end --------------------------------------------------------------------------------------------------------

    def close(self, timeout_s: float = 5.0) -> bool:
        """Take no more requests, tell those who wait, and wait until the tokens given out are dequeued; gives whether
        they were in time.

        Those that are not are over then, and their keys are given to whoever waits. The session stays open. May be called
        again.
        """
        end_s = now_s() + _bound(timeout_s)
        with self._idle:
            self._is_closed = True
            for turn in self._turns:
                turn.stir()
            is_clean = self._idle.wait_for(lambda: not self._held, max(0.0, end_s - now_s()))
            left = list(self._held.values())
        for leaving in [self._let_go(token, Ending.CLOSED) for token in left]:
            if leaving is not None:
                self._leavings.begin(leaving)
        while self._leavings and now_s() < end_s and self._session.state is not SessionState.CLOSED:
            self._leavings.again()
            threading.Event().wait(min(0.05, max(0.0, end_s - now_s())))
        self._session.remove_listener(self._heard)
        self._attendant.stop(max(0.1, end_s - now_s()))
        return is_clean

    # -- inside ---------------------------------------------------------------------------------------------------------

    def _admitted(self, turn: Turn, place: Place, key: str | bytes) -> DistributedToken:
        standing = turn.seek()
        if standing is Standing.DECLINED:
            return self._token(place, key, None, EnqueueOutcome.DECLINE)
        if standing is Standing.HEAD:
            return self._begun(self._token(place, key, turn.holder, EnqueueOutcome.ACCEPT))
        with self._lock:
            self._waiting[place.name] = turn
        self._attendant.wake()
        try:
            turn.wait()
        finally:
            with self._lock:
                if self._waiting.get(place.name) is turn:  # a second one may wait here before the first has noticed its turn
                    del self._waiting[place.name]
        return self._begun(self._token(place, key, turn.holder, EnqueueOutcome.BLOCK))

    def _token(self, place: Place, key: str | bytes, holder: Holder | None, outcome: EnqueueOutcome) -> DistributedToken:
        return DistributedToken(
            self._session,
            place,
            holder,
            key=key,
            outcome=outcome,
            trust=self._trust,
            dequeue=self.dequeue,
        )

    def _begun(self, token: DistributedToken) -> DistributedToken:
        """Look after it from now on."""
        assert token.holder is not None  # it was not declined
        with self._lock:
            self._check_open()
            self._held[token.holder.token] = token
        self._attendant.wake()
        if self._session.id != token.holder.session:  # it ended before the listener knew of this token
            token.end(Ending.SESSION)
        return token

    def _let_go(self, token: DistributedToken, ending: Ending) -> Leaving | None:
        """The token is over; ``None`` if it was let go before."""
        held = token.holder
        with self._idle:
            known = None if held is None else self._held.pop(held.token, None)
            if not self._held:
                self._idle.notify_all()
        if known is None or held is None:
            return None
        token.end(ending)
        place = token.place
        return Leaving(place.token(held.token), place.slot(held.slot), held.token, held.session)

    def _give_up(self, turn: Turn) -> None:
        leaving = turn.leaving()
        if leaving is not None:
            with self._lock:
                self._held.pop(leaving.name, None)  # an interrupt just before the caller had it
            self._leavings.begin(leaving)
            self._attendant.wake()

    def _attended(self) -> list[Attended]:
        with self._lock:
            return [
                *(token for token in self._held.values() if not token.is_over),
                *self._waiting.values(),
            ]

    def _check_open(self) -> None:
        if self._is_closed:
            raise CoordinatorClosed("the coordinator was closed by its owner")

    def _heard(self, state: SessionState) -> None:
        """On the connection thread."""
        with self._lock:
            turns, tokens = list(self._turns), list(self._held.values())
        if state in (SessionState.LOST, SessionState.CLOSED):
            for token in tokens:
                token.end(Ending.SESSION)
        for turn in turns:
            turn.stir()
        self._attendant.stir()


def _bound(timeout_s: float) -> float:
    try:
        seconds = float(timeout_s)
    except (TypeError, ValueError):
        seconds = -1.0
    if not 0 <= seconds <= 1e6:
        raise ConfigurationError(f"timeout_s={timeout_s!r}: give seconds from 0 to 1,000,000; no wait is without a bound")
    return seconds
