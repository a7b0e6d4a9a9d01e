"""One works on a key, at most one waits, the rest are declined: across all processes that use one
root in ZooKeeper.

The two slots of a key in ZooKeeper are authoritative (see :mod:`.slots`), and each has a *token*: a
multi that begins with a check of the token is refused as soon as another request may be the head.
``docs/design/coalescing.md`` has the reasons. On each failure:

* **head frozen, and back**: ``is_current`` is false at once, and its fenced writes are refused; its
  other effects are not prevented;
* **waiter killed, or tired of waiting**: its slot vanishes. The processes of the requests that
  relied on it cover them (see :mod:`.background`);
* **an answer is lost**: the request is sent again, in a way that it cannot act twice; no slot is
  left behind without an owner;
* **ZooKeeper is unreachable**: heads go on, and are in doubt once the proof of the session has run
  out; ``enqueue`` fails when its time is up, and a slot that it may have taken is released later;
* **own session over**: tokens are over at once, waiters are told.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from functools import partial
from typing import Any

from leaderq.base.arguments import plain_function, require, timeout
from leaderq.base.timeouts import AS_SET, Deadline
from leaderq.coalescing.automaton import EnqueueOutcome
from leaderq.coalescing.distributed.background import Coverage, Release, Renewed, SlotKeeper
from leaderq.coalescing.distributed.request import SlotRequest
from leaderq.coalescing.distributed.slots import (
    DistributedToken,
    KeyView,
    KeyZnodes,
    SlotHolder,
    SlotStanding,
    TokenEnding,
    holder,
    validated_root,
    view,
)
from leaderq.errors import CoordinatorClosed, NoNode, WouldDeadlock
from leaderq.observability.figures import FigureSource, offer_figures
from leaderq.threads import primitives
from leaderq.zookeeper import AnyClient, Delete, GetData, Session, SessionState, as_session

log = logging.getLogger(__name__)

_PROOF_S = 0.5
"""How long a token is held back for the proof that its session lives; then it is in doubt."""
DEFAULT_TIMEOUT_S = 30.0


class DistributedQueueCoordinator:
    """Lets one process at a time work on a key, and one wait. ``client`` is a session or a started
    ``KazooClient``, which the caller must close.

    All processes and threads that use the same ``root`` (a znode, made when needed) on the same
    ensemble are coordinated. ``timeout_s`` is the default of :meth:`enqueue` and :meth:`dequeue`,
    in seconds; ``None``: without end.

    *Guarantees:* of a key, at most one token is the head's and at most one request waits, for every
    key and at every moment of the servers' time. When a request was declined, somebody was waiting
    who had not begun. The one that waits is told of its turn by one event, asks nothing more, and
    nobody else is woken. An uncontended enqueue and dequeue are a round trip each. **A declined
    request is covered**, with ``cover``: a run begins after it came. If the request that waited
    dies or gives up before it has begun, a process in which a request was declined because of it
    asks for the key; when its turn comes, it calls ``cover(key)`` on a thread of its own. (Two such
    processes may cover the same change.) *Not guaranteed:* that a declined request is covered soon,
    without ``cover`` or if every process with such a request has died: then only the next request
    for the key covers it. If that matters use a queue. That a run which began succeeds. Fairness: a
    request that comes when the head leaves may wait, although an earlier one was declined.

    :raises ConfigurationError: the root, the time-out, ``cover`` or the client cannot be used.
    """

    def __init__(
        self,
        client: AnyClient,
        root: str,
        *,
        timeout_s: float | None = DEFAULT_TIMEOUT_S,
        cover: Callable[[str | bytes], object] | None = None,
    ) -> None:
        self._timeout_s = _bound(timeout_s)
        require(plain_function("cover", cover, or_none=True))
        self.root = validated_root(root)
        self._session: Session = as_session(client)
        self._lock = primitives.Lock()
        self._idle = primitives.Condition(self._lock)
        self._requests: dict[SlotRequest, None] = {}
        self._waiting: dict[str, SlotRequest] = {}
        self._held: dict[str, DistributedToken] = {}
        self._is_closed = False
        self._token = partial(DistributedToken, self._session, dequeue=self.dequeue)
        self._let_go: Callable[[], None] | None = None  # of the session's pulse
        self._coverage = Coverage(self._session, partial(self._cover, cover)) if cover else None
        self._keeper = SlotKeeper(self._session, self._renewed)
        self._session.add_listener(self._heard)
        offer_figures(FigureSource.COALESCING, root, self, _figures)

    def __enter__(self) -> DistributedQueueCoordinator:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<DistributedQueueCoordinator {self.root!r}, head of {len(self._held)} keys>"

    def enqueue(self, key: str | bytes, timeout_s: float | None = AS_SET) -> DistributedToken:
        """Ask to work on ``key``. Returns a token when it is this request's turn, at once or after
        a wait for the head: it is true (``if token:``), and must be given to :meth:`dequeue` or
        used as a context manager. If another request waits, this one is declined: its token is
        false.

        :param key: text or bytes of any length; text and bytes are never the same key.
        :param timeout_s: seconds for the whole call; 0 asks and does not wait, ``None`` waits for
            ever. ZooKeeper has at least 5 s to answer.
        :raises WaitTimedOut: the head did not leave in time; this request does not wait any more.
        :raises ConnectionLost: ZooKeeper did not answer in time. If a slot was taken, it is
            released, however late that is known.
        :raises SessionExpired: the session ended while this request waited; ask again.
        :raises TokenOver: the waiting request was evicted.
        :raises WouldDeadlock: this thread has a current token of the key from this coordinator, and
            would wait for itself.
        :raises CoordinatorClosed: this coordinator is closed.
        :raises ConfigurationError: the key or the time-out cannot be used.
        """
        znodes = KeyZnodes.of(self.root, key)
        request = SlotRequest(self._session, znodes, self._limit_s(timeout_s))
        with self._lock:
            self._check_open()
            # Whoever waits here returns to its caller only after leaving this set, under
            # this lock: it begins after this request.
            waiter = self._waiting.get(znodes.name)
            if waiter is None:
                self._requests[request] = None
                # A token is worth what is proven of its session; the first proof is on its way
                # before the slot is asked for.
                self._let_go = self._let_go or self._session.pulse.hold(lambda _proof: None)
        if waiter is not None:
            return self._declined(znodes, waiter.fence.path)
        try:
            return self._admitted(request, znodes)
        except BaseException:
            self._give_up(request)
            raise
        finally:
            with self._lock:
                self._requests.pop(request, None)

    def dequeue(self, token: DistributedToken, timeout_s: float | None = AS_SET) -> bool:
        """End the work, and pass the key to the waiter. Return whether the token certainly stood
        until then.

        May be called again, and with a token that is over or was declined. Without a connection it
        raises nothing: it returns ``False`` after ``timeout_s`` seconds, and the slot is released
        when there is a connection.
        """
        release = self._release(token, TokenEnding.DEQUEUED)
        if release is None:
            return False
        done = self._keeper.release(release)
        try:
            return done.result(self._limit_s(timeout_s))
        except primitives.FutureTimeout:
            self._keeper.wake()
            return False

    def look(self, key: str | bytes) -> KeyView:
        """Return the head and the waiter of a key, as they were a moment ago.

        :raises ZooKeeperError: they could not be read.
        """
        znodes = KeyZnodes.of(self.root, key)
        read: list[Any] = self._session.multi_read(
            [GetData(znodes.slot(0)), GetData(znodes.slot(1))]
        )
        return view([holder(number, one) for number, one in enumerate(read)])

    def evict(self, key: str | bytes) -> SlotHolder | None:
        """Take the key from its head, in any process, and give it to the waiter. Return the former
        head; ``None`` if there was none, or if it left meanwhile.

        From then on the writes of the head's token are refused; its owner learns of that at its
        next write, or T/7 later. Unfenced effects of the owner are not stopped.

        :raises ZooKeeperError: ZooKeeper could not be asked, or did not answer; then the head may
            have been evicted.
        """
        znodes = KeyZnodes.of(self.root, key)
        head = self.look(key).head
        if head is None or not znodes.owns(head.token):
            return None
        try:
            self._session.multi([Delete(znodes.token(head.token)), Delete(znodes.slot(head.slot))])
        except NoNode:
            return None
        return head

    def close(self, timeout_s: float | None = 5.0) -> bool:
        """Take no more requests, end those that wait, and wait at most ``timeout_s`` seconds until
        all tokens are dequeued; return whether they were.

        Tokens that are not dequeued in time are over, and their keys pass to the waiters. The
        session stays open. May be called again.
        """
        deadline = Deadline(_bound(timeout_s))
        with self._idle:
            self._is_closed = True
            for request in self._requests:
                request.is_closed = True
                request.wake()
            is_clean = self._idle.wait_for(lambda: not self._held, deadline.remaining_s)
            left = list(self._held.values())
        for token in left:
            if (release := self._release(token, TokenEnding.CLOSED)) is not None:
                self._keeper.release(release)
        is_closed = self._session.state is SessionState.CLOSED
        while not (self._keeper.is_clear or deadline.is_over or is_closed):
            self._keeper.send_again()
            primitives.Event().wait(0.05)
            is_closed = self._session.state is SessionState.CLOSED
        if self._coverage is not None:
            self._coverage.stop(deadline.remaining_s or 0.1)
        self._session.remove_listener(self._heard)
        if self._let_go is not None:
            self._let_go()
        self._keeper.stop(deadline.remaining_s or 0.1)
        return is_clean

    def _admitted(self, request: SlotRequest, znodes: KeyZnodes) -> DistributedToken:
        standing = request.seek()
        if standing is SlotStanding.DECLINED:
            return self._declined(znodes, request.relied_on)
        if standing is SlotStanding.HEAD:
            return self._begun(self._token(znodes, request.holder, EnqueueOutcome.ACCEPT))
        with self._lock:
            mine = [one for one in self._held.values() if one.owner == primitives.get_ident()]
            if any(one.znodes == znodes for one in mine):
                raise WouldDeadlock(
                    f"key {znodes.key!r}: this thread works on it, and would wait for itself"
                )
            self._waiting[znodes.name] = request
        self._keeper.wake()
        try:
            request.wait()
        finally:
            with self._lock:
                if self._waiting.get(znodes.name) is request:
                    del self._waiting[znodes.name]
        token = self._begun(self._token(znodes, request.holder, EnqueueOutcome.BLOCK))
        request.note_begun()
        return token

    def _declined(self, znodes: KeyZnodes, relied_on: str | None) -> DistributedToken:
        if self._coverage is not None and relied_on is not None:
            self._coverage.rely_on(znodes.key, relied_on)
        return self._token(znodes, None, EnqueueOutcome.DECLINE)

    def _cover(self, function: Callable[[str | bytes], object], key: str | bytes) -> None:
        with self.enqueue(key) as token:
            if token.outcome is EnqueueOutcome.DECLINE:
                return
            try:
                function(key)
            except BaseException:  # on a thread of ours, which is to cover other keys too
                log.exception("covering a key failed key=%r", key)

    def _begun(self, token: DistributedToken) -> DistributedToken:
        assert token.holder is not None  # it was not declined
        self._session.pulse.ensure(token.holder.session, _PROOF_S)
        with self._lock:
            self._check_open()
            self._held[token.holder.token] = token
        self._keeper.wake()
        # it ended before the listener knew of this token
        if self._session.id != token.holder.session:
            token.end(TokenEnding.SESSION)
        return token

    def _release(self, token: DistributedToken, ending: TokenEnding) -> Release | None:
        """End the token, and return the release of its slot; ``None`` if it was released before."""
        held = token.holder
        with self._idle:
            known = None if held is None else self._held.pop(held.token, None)
            if not self._held:
                self._idle.notify_all()
        if known is None or held is None:
            return None
        token.end(ending)
        return Release(token.znodes, held)

    def _give_up(self, request: SlotRequest) -> None:
        release = request.release()
        if release is not None:
            with self._lock:
                # an interrupt just before the caller had it
                self._held.pop(release.holder.token, None)
            self._keeper.release(release)
            self._keeper.wake()

    def _renewed(self) -> list[Renewed]:
        with self._lock:
            return [
                *(
                    (token.fence, partial(token.end, TokenEnding.EVICTED))
                    for token in self._held.values()
                    if not token.is_over
                ),
                *((request.fence, request.wake) for request in self._waiting.values()),
            ]

    def _limit_s(self, timeout_s: float | None) -> float | None:
        return self._timeout_s if timeout_s is AS_SET else _bound(timeout_s)

    def _check_open(self) -> None:
        if self._is_closed:
            raise CoordinatorClosed("the coordinator was closed by its owner")

    def _heard(self, state: SessionState) -> None:
        """On the connection thread."""
        with self._lock:
            turns, tokens = list(self._requests), list(self._held.values())
        if state in (SessionState.LOST, SessionState.CLOSED):
            for token in tokens:
                token.end(TokenEnding.SESSION)
        for request in turns:
            request.wake()
        self._keeper.wake(is_urgent=True)


def _figures(coordinator: DistributedQueueCoordinator) -> dict[str, float]:
    return {"running": len(coordinator._held), "waiting": len(coordinator._waiting)}


def _bound(timeout_s: float | None) -> float | None:
    require(timeout("timeout_s", timeout_s))
    return None if timeout_s is None or math.isinf(timeout_s) else float(timeout_s)
