"""One automaton a key, for the threads of a process (and, with :mod:`leaderq.coalescing.asynchronous`, its tasks)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from threading import get_ident
from types import TracebackType
from typing import Any, Final, Generic, ParamSpec, TypeVar

from leaderq.clock import now_s
from leaderq.coalescing.automaton import State, TrafficAutomaton
from leaderq.coalescing.bells import CallBell, ThreadBell
from leaderq.coalescing.counters import Counters, Counts, KeyCounters
from leaderq.coalescing.results import Result
from leaderq.coalescing.rules import Debounce, KeepIdle, Merging, Overflow, Rules
from leaderq.coalescing.scopes import Hold, coalesced
from leaderq.coalescing.stripe import Stripe
from leaderq.coalescing.timekeeper import Timekeeper
from leaderq.coalescing.token import Key, Stage, Token
from leaderq.coalescing.traffic import BellMaker, Hooks
from leaderq.coalescing.waiting import Deadline, await_turn, refuse_if_abandoned
from leaderq.errors import CoordinatorClosed

P = ParamSpec("P")
R = TypeVar("R")
D = TypeVar("D")

_RUNNING = Stage.RUNNING
THIS_THREAD: Final = object()
"""The owner of a request that names none."""
AS_SET: Final = -1.0
"""``wait_s`` as given to the coordinator."""


class QueueCoordinator(Generic[Key]):
    """Of all who want to work on a key, one runs, ``waiters`` wait, the rest are declined: what waits will begin after they
    came.

    Use it where work *reads the current state when it begins* (refresh a cache, rebuild an index, send the newest position):
    then one run does what any number of requests before its begin wanted done. Forms, all of which may be mixed on one key:

    * ``with coordinator.hold(key) as token: if token: ...``, or ``@coordinator.coalesced(key=...)``;
    * ``token = enqueue(key)`` ... ``dequeue(token)``: may be different threads;
    * ``try_enqueue`` never waits; ``offer`` calls back when the turn comes; ``reserve`` gives a future;
    * ``run(key, function)`` gives those declined the result, or the exception, of the run that covers them;
    * :class:`~leaderq.coalescing.asynchronous.AsyncQueueCoordinator` for tasks.

    *Guarantees:* at most one token of a key is current (``bool(token)``); at most ``waiters`` requests wait; they run in the
    order in which they came; a request is declined as FULL only if somebody waits who begins after it came (with
    ``waiters=0``: if somebody runs); ``token.number`` rises from run to run of a key.
    *Not guaranteed:* that an evicted owner stops (it is told; whatever it writes should carry ``token.number``); that a
    waiting request which gives up (``WaitTimedOut``, an interrupt, a cancellation) is replaced by those it covered:
    ``token.covers`` tells how many they were, and only ``run`` lets them ask again.

    *Asking for a key that one holds*: the owner of a request is its thread (or task). If the owner of the head asks again in
    a way that would wait, it would wait for itself: ``WouldDeadlock`` at once. Where another request waits already it is
    declined like anybody's. ``offer`` and ``try_enqueue`` never wait, so they may be used inside; ``owner=None`` says that
    somebody else will dequeue.

    Not to be called from signal handlers or finalizers. Fork before use, not after.

    :param waiters: how many requests may wait for a key: 0, 1 or more.
    :param overflow: who is declined when all places are taken: an :class:`Overflow`, or a function that merges the
        newcomer's value into the newest waiting one's.
    :param wait_s: how long ``enqueue``, ``hold`` and ``run`` wait unless told otherwise; ``None``: for ever.
    :param safe_timeout_s: a head that has not dequeued after so long is evicted when somebody waits or comes, or at a
        ``sweep``. Off by default.
    :param on_evicted: called with the token of an evicted head, by whichever thread noticed; ``token.on_evicted`` is for its
        owner.
    :param debounce: let a key be quiet before its work begins. Then nobody is accepted at once.
    :param idle: keep automata and counters of idle keys, up to a cap; by default a key is forgotten as soon as nobody works
        on it.
    :param clock: seconds, never going back; for safe time-out, debounce and idle keys. Waits are timed by the machine's own.
    :param background: whether a thread may evict and end quiets by itself; if not, ``sweep`` does it (in tests with a clock
        of their own).
    :raises ConfigurationError: these do not fit together.

    After the ``QueueCoordinator`` of D. Liu (2016).
    """

    def __init__(
        self,
        *,
        waiters: int = 1,
        overflow: Overflow | Merging = Overflow.DECLINE_NEW,
        wait_s: float | None = 60.0,
        safe_timeout_s: float | None = None,
        on_evicted: Callable[[Token[Key]], object] | None = None,
        debounce: Debounce | None = None,
        idle: KeepIdle | None = None,
        clock: Callable[[], float] = now_s,
        background: bool = True,
        stripes: int = 64,
    ) -> None:
        self._rules = Rules(waiters, overflow, wait_s, safe_timeout_s, debounce, idle, stripes)
        self._timekeeper = Timekeeper(clock, self._tend)
        self._emptied = threading.Event()
        watch = self._timekeeper.watch if background else _nobody_watches
        hooks = Hooks(clock, watch, self._check_emptied, on_evicted)
        self._stripes: list[Stripe[Key]] = [Stripe(self._rules, hooks) for _ in range(stripes)]
        self._mask = stripes - 1

    # --- asking, and being done ---------------------------------------------------------------------------------------------------

    def enqueue(
        self, key: Key, value: Any = None, *, wait_s: float | None = AS_SET, owner: object = THIS_THREAD
    ) -> Token[Key]:
        """Ask to work on ``key``; waits for its turn if it is to wait. True if it may run now, and then ``dequeue`` must
        follow.

        ``token.outcome`` says ACCEPT, BLOCK (it has waited, and runs), or DECLINE, with ``token.refusal`` saying why.

        :raises WaitTimedOut: its turn did not come within ``wait_s``; it does not wait any more.
        :raises WouldDeadlock: the caller works on the key itself.
        :raises CoordinatorClosed: nothing runs any more.
        """
        stripe = self._stripes[hash(key) & self._mask]
        token = Token(key, value, get_ident() if owner is THIS_THREAD else owner, stripe)
        try:
            stripe.enter(token, ThreadBell)
            if token.stage is not _RUNNING:
                self._merge(token, ThreadBell)
                await_turn(token, self.deadline(wait_s))
            return token
        except BaseException:
            stripe.leave(token)
            raise

    def dequeue(self, token: Token[Key] | Key) -> bool:
        """The work is done, or given up: the next one runs. Whether the token was current: if not (evicted, dequeued
        before), nothing happens.

        Given a key instead of its token, what is meant is the request of this thread that runs.
        """
        if not isinstance(token, Token):
            head = self._head(token)
            if head is None or head.owner != get_ident():
                return False
            token = head
        try:
            return token.stripe.leave(token)
        except BaseException:
            token.stripe.leave(token)
            raise

    def try_enqueue(self, key: Key, value: Any = None, *, owner: object = THIS_THREAD) -> Token[Key]:
        """Ask without waiting: the token is true, or declined as BUSY.

        :raises CoordinatorClosed: nothing runs any more.
        """
        token = self.token_for(key, value, owner=owner)
        try:
            token.stripe.enter(token)
            return token
        except BaseException:
            token.stripe.leave(token)
            raise

    def offer(self, key: Key, on_turn: Callable[[Token[Key]], object], value: Any = None) -> Token[Key]:
        """Ask without waiting here: ACCEPT (runs now), DECLINE, or BLOCK: then ``on_turn(token)`` is called once, when its
        turn has come (the token is true), or will never come (false: replaced, or the coordinator was closed).

        It is called by the thread that made it so, mostly the one that dequeued before, and should be short. If it raises,
        that is logged, and the token is dequeued. ``dequeue(token)`` withdraws a token that waits.

        :raises CoordinatorClosed: nothing runs any more.
        """
        token = self.token_for(key, value, owner=None)
        try:
            self.admit(token, partial(CallBell, on_turn))
            return token
        except BaseException:
            token.stripe.leave(token)
            raise

    def reserve(self, key: Key, value: Any = None) -> Future[Token[Key]]:
        """Ask without waiting here: a future of the token, done when it is current or declined. Cancelling it withdraws the
        request.

        :raises CoordinatorClosed: nothing runs any more; if that happens later, the future raises it.
        """
        future: Future[Token[Key]] = Future()
        turn = partial(_fulfil, future)
        token = self.offer(key, turn, value)
        if token.bell is None:
            turn(token)
        future.add_done_callback(lambda done: token.stripe.withdraw(token) if done.cancelled() else None)
        return future

    def hold(self, key: Key, value: Any = None, *, wait_s: float | None = AS_SET) -> Hold[Key]:
        """``with coordinator.hold(key) as token: if token: ...``: asks at the beginning as ``enqueue`` does, and dequeues at
        the end."""
        return Hold(self, key, value, wait_s)

    def coalesced(
        self,
        key: Callable[P, Key],
        *,
        share: bool = False,
        declined: D = None,  # type: ignore[assignment]
    ) -> Callable[[Callable[P, R]], Callable[P, R | D]]:
        """A decorator: calls whose arguments give the same ``key(*args, **kwargs)`` are coalesced.

        A declined call gives ``declined``; with ``share`` it gives, or raises, what the run gave that covers it.
        """
        return coalesced(self, key, share, declined)

    def run(self, key: Key, function: Callable[[], R], *, wait_s: float | None = AS_SET) -> R:
        """Run ``function``, or give what the run gave that covers this request: one that began after it came (with
        ``waiters=0``: the one that runs, as Go's singleflight does). An exception is shared too: the same object is raised
        to all.

        If the covering run ends without a result (evicted, interrupted, dequeued by hand), the request asks again.

        :raises WaitTimedOut: neither its turn nor a result came within ``wait_s``.
        :raises WouldDeadlock: the caller works on the key itself.
        :raises CoordinatorClosed: nothing runs any more.
        """
        deadline = self.deadline(wait_s)
        while True:
            token = self.token_for(key)
            token.follows = True
            try:
                self.admit(token, ThreadBell)
                await_turn(token, deadline)
                if token.stage is _RUNNING:
                    token.result = Result.of(function)
                    token.stripe.leave(token, token.result)
            except BaseException:
                token.stripe.leave(token)
                raise
            if token.result is not None:
                given: R = token.result.give()
                return given

    # --- for other ways of waiting (see leaderq.coalescing.asynchronous) ----------------------------------------------------------

    def token_for(self, key: Key, value: Any = None, *, owner: object = THIS_THREAD) -> Token[Key]:
        """A token to ask with."""
        return Token(key, value, get_ident() if owner is THIS_THREAD else owner, self._stripes[hash(key) & self._mask])

    def admit(self, token: Token[Key], bell: BellMaker) -> None:
        """Ask with this token; if it is to wait, ``bell()`` makes what is rung when it waits no more. Whatever this raises,
        the caller leaves."""
        token.stripe.enter(token, bell)
        self._merge(token, bell)

    def admit_and_wait(self, token: Token[Key], wait_s: float | None) -> None:
        """Ask with this token, and let this thread wait for it. Whatever this raises, the caller leaves."""
        self.admit(token, ThreadBell)
        if token.stage is not _RUNNING:
            await_turn(token, self.deadline(wait_s))

    def deadline(self, wait_s: float | None) -> Deadline:
        """The end of a wait that begins now."""
        return Deadline(self._rules.wait_s if wait_s is AS_SET else wait_s)

    def _merge(self, token: Token[Key], bell: BellMaker) -> None:
        overflow = self._rules.overflow
        while token.stage is Stage.ASKING and not isinstance(overflow, Overflow):
            token.stripe.merge(token, overflow, bell)
            if token.stage is Stage.ASKING:  # whoever waited runs by now, or another newcomer was faster
                token.stripe.enter(token, bell)

    # --- how it stands ------------------------------------------------------------------------------------------------------------

    def is_current(self, token: Token[Key]) -> bool:
        """Whether this token's request may work on its key now: the same as ``bool(token)``."""
        return token.is_current

    def state(self, key: Key) -> State:
        """Init, Process or Block."""
        line = self._stripes[hash(key) & self._mask].line(key)
        return TrafficAutomaton(max(len(line) - 1, 0), line=line).state

    def counters(self) -> Counters:
        """What was done so far, and what is in hand."""
        counts, running, waiting, idle = Counts(), 0, 0, 0
        for stripe in self._stripes:
            reading = stripe.reading()
            counts, running = counts + reading[0], running + reading[1]
            waiting, idle = waiting + reading[2], idle + reading[3]
        return Counters(counts, running, waiting, idle)

    def counters_of(self, key: Key) -> KeyCounters | None:
        """Of one key; ``None`` if it is not known (any more)."""
        return self._stripes[hash(key) & self._mask].counters_of(key)

    def sweep(self) -> None:
        """Evict overdue heads, end quiets that are over, forget keys idle for too long. A loop over all keys."""
        for stripe in self._stripes:
            stripe.sweep()

    # --- the end ------------------------------------------------------------------------------------------------------------------

    def drain(self, timeout_s: float = 30.0) -> tuple[Token[Key], ...]:
        """Take no further request, let all who run and wait finish, and give the tokens that still run after ``timeout_s``:
        mostly none.

        Those who still wait then are told (``CoordinatorClosed``) and do not run. The quiet of a debounced key is cut short.
        May be called again, to wait for longer. A caller that holds a key itself waits for itself until the time is over.
        """
        for stripe in self._stripes:
            stripe.close()
        self._check_emptied()
        self._emptied.wait(timeout_s)
        left = tuple(token for stripe in self._stripes for token in stripe.abandon_all())
        self._timekeeper.stop()
        return left

    def __enter__(self) -> QueueCoordinator[Key]:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.drain()

    def _check_emptied(self) -> None:
        if all(stripe.is_closed and not stripe.lanes for stripe in self._stripes):
            self._emptied.set()

    def _tend(self, key: Key) -> float | None:
        return self._stripes[hash(key) & self._mask].tend(key)

    def _head(self, key: Key) -> Token[Key] | None:
        line = self._stripes[hash(key) & self._mask].line(key)
        return line[0] if line else None


def _nobody_watches(due_s: float, key: object) -> None:
    """Without a background thread: ``sweep`` does it."""


def _fulfil(future: Future[Token[Key]], token: Token[Key]) -> None:
    if not future.set_running_or_notify_cancel():
        token.stripe.leave(token)
        return
    try:
        refuse_if_abandoned(token)
    except CoordinatorClosed as exc:
        future.set_exception(exc)
    else:
        future.set_result(token)
