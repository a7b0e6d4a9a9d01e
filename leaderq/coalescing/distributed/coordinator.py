"""One works on a key, at most one waits, the rest are declined: across all processes that use one
root in ZooKeeper.

The two slots of a key in ZooKeeper are authoritative (see :mod:`.slots`), and each has a *token*: a
multi that begins with a check of the token is refused as soon as another request may be the head.
``docs/design/coalescing.md`` has the reasons. On each failure:

* **head frozen, and back**: ``is_current`` is false at the first look, and its fenced writes are
  refused; its other effects are not prevented;
* **waiter killed, or tired of waiting**: its slot vanishes. The requests it covered cover
  themselves (see :class:`Coverage`);
* **an answer is lost**: the request is sent again so that it cannot act twice; no slot is left
  that belongs to nobody;
* **ZooKeeper is unreachable**: heads go on, in doubt after 2T/3; enqueue fails when its time is
  up, and what it may have taken is released later;
* **own session over**: tokens are over at once, waiters are told.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from leaderq.base import clock
from leaderq.base.arguments import plain_function, require, timeout
from leaderq.base.timeouts import AS_SET, Deadline
from leaderq.coalescing.automaton import EnqueueOutcome
from leaderq.coalescing.distributed.request import Release, SlotReleases, SlotRequest
from leaderq.coalescing.distributed.slots import (
    DistributedToken,
    KeyZnodes,
    SlotStanding,
    TokenEnding,
    has_begun,
    validated_root,
)
from leaderq.coalescing.token import require_done
from leaderq.errors import CoordinatorClosed, LeaderqError, NoNode, SessionClosed, WouldDeadlock
from leaderq.observability.figures import FigureSource, offer_figures
from leaderq.threads import Backoff, Retry, Service, primitives
from leaderq.zookeeper import AnyClient, Session, SessionState, WatchEvent, WatchKind, as_session

log = logging.getLogger(__name__)

_PROOF_S = 0.5
"""How long a token is held back for the proof that its session lives; then it is in doubt."""
DEFAULT_TIMEOUT_S = 30.0
_AGAIN = Retry(first_s=0.1, most_s=5.0)


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
        require(timeout("timeout_s", timeout_s), plain_function("cover", cover, or_none=True))
        self._timeout_s = timeout_s
        self.root = validated_root(root)
        self._session: Session = as_session(client)
        self._lock = primitives.Condition()  # notified when no token is held
        self._requests: dict[SlotRequest, None] = {}
        self._waiting: dict[str, SlotRequest] = {}
        self._held: dict[str, DistributedToken] = {}
        self._is_closed = False
        self._token = partial(DistributedToken, self._session, dequeue=self.dequeue)
        self._let_go: Callable[[], None] | None = None  # of the session's pulse
        self._coverage = Coverage(self._session, partial(self._cover, cover)) if cover else None
        self._releases = SlotReleases(self._session)
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
        :param timeout_s: bounds all of it, seconds; 0 asks and does not wait, ``None`` waits for
            ever. ZooKeeper's answer is given 5 s, if that is more.
        :raises WaitTimedOut: the head was still there; this request waits no more.
        :raises ConnectionLost: ZooKeeper did not answer in time. What may have been taken is given
            back, however late that is known.
        :raises SessionExpired: the session ended while this request waited; it may be repeated.
        :raises TokenOver: somebody deleted the waiting request's znode.
        :raises WouldDeadlock: this thread has a current token of the key from this coordinator, and
            would wait for itself.
        :raises CoordinatorClosed: this coordinator is closed.
        :raises ConfigurationError: the key or the time-out cannot be used.
        """
        znodes = KeyZnodes.of(self.root, key)
        request = SlotRequest(self._session, znodes, Deadline.asked(timeout_s, self._timeout_s))
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
            if (release := request.release()) is not None:
                with self._lock:  # perhaps it was interrupted just before the caller had it
                    self._held.pop(release.holder.token, None)
                self._releases.release(release)
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
        deadline = Deadline.asked(timeout_s, self._timeout_s)
        release = self._release(token, TokenEnding.DEQUEUED)
        if release is None:
            return False
        try:
            return self._releases.release(release).result(deadline.remaining_s)
        except primitives.FutureTimeout:
            return False

    def close(self, timeout_s: float | None = 5.0) -> bool:
        """Take no more requests, end those that wait, and wait at most ``timeout_s`` seconds until
        all tokens are dequeued; return whether they were.

        Tokens that are not dequeued in time are over, and their keys pass to the waiters. The
        session stays open. May be called again.
        """
        deadline = Deadline.asked(timeout_s, None)
        with self._lock:
            self._is_closed = True
            for request in self._requests:
                request.is_closed = True
                request.wake()
            is_clean = self._lock.wait_for(lambda: not self._held, deadline.remaining_s)
            left = list(self._held.values())
        for token in left:
            if (release := self._release(token, TokenEnding.CLOSED)) is not None:
                self._releases.release(release)
        while self._releases.unanswered and not deadline.is_over:
            if self._session.state is SessionState.CLOSED:
                break
            primitives.Event().wait(0.05)
        if self._coverage is not None:
            self._coverage.stop(deadline.remaining_s or 0.1)
        self._session.remove_listener(self._heard)
        if self._let_go is not None:
            self._let_go()
        return is_clean

    def _admitted(self, request: SlotRequest, znodes: KeyZnodes) -> DistributedToken:
        standing = request.seek()
        if standing is SlotStanding.DECLINED:
            return self._declined(znodes, request.relied_on)
        if standing is SlotStanding.HEAD:
            return self._begun(self._token(znodes, request.holder, EnqueueOutcome.ACCEPT))
        with self._lock:
            mine = [one for one in self._held.values() if one.owner == primitives.get_ident()]
            # The slot of another session is gone, or will be.
            sessions = {one.holder.session for one in mine if one.holder and one.znodes == znodes}
            if request.holder is not None and request.holder.session in sessions:
                raise WouldDeadlock(
                    f"key {znodes.key!r}: this thread works on it, and would wait for itself"
                )
            self._waiting[znodes.name] = request
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
                require_done(function(key), "cover")
            except BaseException:  # on a thread of ours, which is to cover other keys too
                log.exception("covering a key failed key=%r", key)

    def _begun(self, token: DistributedToken) -> DistributedToken:
        assert token.holder is not None  # it was not declined
        self._session.pulse.ensure(token.holder.session, _PROOF_S)
        with self._lock:
            self._check_open()
            self._held[token.holder.token] = token
        # it ended before the listener knew of this token
        if self._session.id != token.holder.session:
            token.end(TokenEnding.SESSION)
        return token

    def _release(self, token: DistributedToken, ending: TokenEnding) -> Release | None:
        """End the token, and return the release of its slot; ``None`` if it was released before."""
        held = token.holder
        with self._lock:
            known = None if held is None else self._held.pop(held.token, None)
            if not self._held:
                self._lock.notify_all()
        if known is None or held is None:
            return None
        token.end(ending)
        return Release(token.znodes, held)

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
        if state is SessionState.CONNECTED:
            self._releases.connected()


class Coverage:
    """Covers requests that were declined in this process, if the waiter they relied on never
    begins. ``run(key)`` asks for a key, and does its work unless it is declined.

    The waiter's token in ZooKeeper is authoritative. A waiter writes to it when its run begins, and
    it vanishes with the waiter. So each declined request sets one watch on it: if the token
    *changes* first, a run has begun after the request came; if it is *deleted* first, the waiter
    gave up or died, and this process asks for the key itself.

    States of a key: watched -> covered, or owed -> covered (by ``run``, or by relying on another
    waiter: watched again).

    On each failure: the connection breaks: the token is looked at again, and the key is owed if it
    is gone; no answer, no turn in time: tried again, later each time; the work raises: logged,
    because the run began; this process dies: its declined requests are gone.
    """

    def __init__(self, session: Session, run: Callable[[str | bytes], object]) -> None:
        self._session, self._run = session, run
        self._watched: dict[str, str | bytes] = {}
        self._owed: dict[str | bytes, None] = {}
        self._unknown: dict[str, None] = {}  # tokens that are to be looked at again
        self._next_look_s = 0.0
        self._backoff = Backoff(_AGAIN)
        self._service = Service.repeating("leaderq-coalescing-cover", self._step)

    def rely_on(self, key: str | bytes, token: str) -> None:
        """A request for ``key`` was declined because the one with this token waits."""
        if token not in self._watched:
            self._watched[token] = key
            self._look(token)

    def stop(self, timeout_s: float | None) -> None:
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
            self._watched.pop(token, None)
        elif error is not None:
            self._tell(token, is_gone=isinstance(error, NoNode))
        else:
            self._backoff.reset()

    def _on_watch(self, token: str, event: WatchEvent) -> None:
        if event.kind is WatchKind.CHANGED:
            self._watched.pop(token, None)
        else:
            self._tell(token, is_gone=event.kind is WatchKind.DELETED)

    def _tell(self, token: str, *, is_gone: bool) -> None:
        """A token is gone, or it is not known whether it is. Each change is one of a dictionary."""
        if (key := self._watched.get(token)) is None:
            return
        if is_gone:
            self._owed[key] = None
            self._watched.pop(token, None)
        else:
            self._unknown[token] = None
        self._service.start()
        self._service.wake()

    def _step(self) -> float | None:
        """Look at tokens of which there was no answer, and cover a key; return the seconds until
        something is due, ``None`` if nothing is.
        """
        waits = (self._look_again(), self._cover_one())
        return min((one for one in waits if one is not None), default=None)

    def _look_again(self) -> float | None:
        """Look at the tokens of which nothing is known, with pauses between; return the seconds
        until the next look, ``None`` if all are looked at.
        """
        now_s = clock.now_s()
        if self._unknown and now_s >= self._next_look_s:
            self._next_look_s = now_s + self._backoff.next_s()
            for token in list(self._unknown):
                del self._unknown[token]
                if token in self._watched:
                    self._look(token)
        return max(0.0, self._next_look_s - now_s) if self._unknown else None

    def _cover_one(self) -> float | None:
        """Run for one key that is owed a run; return the seconds until the next such run, ``None``
        if no key is owed one.
        """
        if not (owed := list(self._owed)):
            return None
        del self._owed[key := owed[0]]  # before: it may be owed again meanwhile
        try:
            self._run(key)
        except (CoordinatorClosed, SessionClosed):
            pass
        except LeaderqError as exc:
            log.info("key not covered yet, trying again key=%r error=%s", key, exc)
            self._owed[key] = None
            return self._backoff.next_s()
        self._backoff.reset()
        return 0.0 if self._owed else None


def _figures(coordinator: DistributedQueueCoordinator) -> dict[str, float]:
    return {"running": len(coordinator._held), "waiting": len(coordinator._waiting)}
