"""Coalescing for the threads of one process, with an automaton for each key;
:mod:`leaderq.coalescing.asynchronous` is for its tasks.
"""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial, wraps
from typing import Any, Final, Generic, ParamSpec, TypeVar, cast

from leaderq.base.arguments import instance, plain_function, require, timeout
from leaderq.base.timeouts import AS_SET, Deadline
from leaderq.coalescing.automaton import TrafficState
from leaderq.coalescing.key_table import KeyTable
from leaderq.coalescing.rules import CoordinatorStats, Debounce, Rules
from leaderq.coalescing.token import Key, RunResult, Token
from leaderq.observability.figures import FigureSource, offer_figures
from leaderq.threads import Waker, primitives
from leaderq.threads.waker import bounded_s

log = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")

THIS_THREAD: Final = object()
"""The owner of a request that names none."""


class QueueCoordinator(Generic[Key]):
    """Of all requests for a key, one runs, one waits, and the rest are declined, because the one
    that waits will begin after they came, and do their work.

    Use it where work *reads the current state when it begins* (refresh a cache, rebuild an index,
    send the newest position): then one run does the work of all requests that came before it began.
    If a request has data of its own, store them where the work reads when it begins. All forms may
    be mixed on one key:

    * ``@coordinator.coalesced(key=...)`` on the function that does the work;
    * ``run(key, function)``: declined requests get the result, or the exception, of the run that
      covers them;
    * ``with coordinator.hold(key) as token: if token: ...``;
    * ``token = enqueue(key)`` ... ``dequeue(token)``: may be different threads;
    * ``offer`` does not wait, but calls back when the turn comes;
    * :class:`~leaderq.coalescing.asynchronous.AsyncQueueCoordinator` for tasks.

    *Guarantees:* at most one token of a key is current (``bool(token)``); at most one request
    waits; ``token.number`` rises from run to run of a key. **A declined request is covered**: a run
    begins after it came (with ``waiters=0``: somebody ran when it came). If the request that
    waited, and was to cover it, gives up (a time-out, an interrupt, a cancellation), the next
    request that comes covers both. If none comes before the head is done, the thread that dequeues
    does the work: it calls ``cover(key)``, else repeats the function that ran by ``run`` or
    ``coalesced``, else runs that of the request that gave up. Without any of these, the declined
    request is logged, counted as ``stats().owed``, and covered by the next request. *Not
    guaranteed:* that an evicted owner stops: its token is false; what it writes should carry
    ``token.number``. That a run which began succeeds; but one that an interrupt or a cancellation
    ended does not count.

    If the owner of the head (its thread, or task) asks again in a way that would wait, it gets
    ``WouldDeadlock`` at once. ``owner=None`` says that somebody else will dequeue.

    Do not call it from signal handlers or finalizers; but a scope that the garbage collector closes
    releases its key. A key must not change while it is asked for. A forked child has no keys: the
    requests run and wait in the parent.

    :param waiters: how many requests may wait for a key: 1, or 0 (Go's singleflight).
    :param timeout_s: how many seconds ``enqueue``, ``hold`` and ``run`` wait by default; ``None``:
        for ever; 0: not at all.
    :param cover: does the work of a key; called with the key held, by the thread that dequeued it,
        for requests whose waiter gave up. What it raises is logged.
    :param safe_timeout_s: a head that has not dequeued after so many seconds is evicted when
        another request waits or comes. Off by default.
    :param on_evicted: called with the token of an evicted head, by whichever thread noticed.
    :param debounce: begin the work on a key only when requests for it have stopped coming. Then no
        request is accepted at once.
    :param name: the name of its figures in Prometheus.
    :raises ConfigurationError: these do not fit together, or a function is not a plain function.

    After the ``QueueCoordinator`` of D. Liu (2016).
    """

    def __init__(
        self,
        *,
        waiters: int = 1,
        timeout_s: float | None = 60.0,
        cover: Callable[[Key], object] | None = None,
        safe_timeout_s: float | None = None,
        on_evicted: Callable[[Token[Key]], object] | None = None,
        debounce: Debounce | None = None,
        name: str = "coordinator",
    ) -> None:
        rules = Rules(waiters, timeout_s, cover, safe_timeout_s, on_evicted, debounce, name)
        self._keys: KeyTable[Key] = KeyTable(rules)
        if cover is not None:
            self._keys.cover = lambda token: self._repeat(partial(cover, token.key), token)
        _all.add(self)
        offer_figures(FigureSource.COALESCING, name, self, lambda its: asdict(its.stats()))

    def enqueue(
        self, key: Key, *, timeout_s: float | None = AS_SET, owner: object = THIS_THREAD
    ) -> Token[Key]:
        """Ask to work on ``key``; if the answer is to wait, wait for the turn. If the token is
        true, the caller may work now, and must call ``dequeue`` after that.

        ``token.outcome`` says ACCEPT, BLOCK (it has waited, and runs), or DECLINE.

        :raises WaitTimedOut: the turn did not come within ``timeout_s`` seconds; the request does
            not wait any more.
        :raises WouldDeadlock: the caller works on the key itself.
        :raises CoordinatorClosed: nothing runs any more.
        """
        token = Token(key, primitives.get_ident() if owner is THIS_THREAD else owner)
        self._ask_and_wait(token, Deadline.asked(timeout_s, self._keys.rules.timeout_s))
        return token

    def dequeue(self, token: Token[Key]) -> bool:
        """End the work on the key, whether it is done or given up; then the next request runs.
        Return whether the token was current; if not (it was evicted, or dequeued before), nothing
        happens.
        """
        return self._keys.leave(token)

    def offer(self, key: Key, on_turn: Callable[[Token[Key]], object]) -> Token[Key]:
        """Ask to work on ``key`` without waiting. ``token.outcome`` is ACCEPT (work now), DECLINE,
        or BLOCK: then ``on_turn(token)`` is called once, when the turn has come (the token is true)
        or will never come (false: the coordinator was closed).

        The thread that causes this calls it, mostly the one that dequeued before; so it should be
        short. If it raises, that is logged, and the token is dequeued. ``dequeue(token)`` withdraws
        a token that waits.

        :raises CoordinatorClosed: nothing runs any more.
        :raises ConfigurationError: ``on_turn`` is not a plain function.
        """
        require(plain_function("on_turn", on_turn))
        token = Token(key, None)
        self._keys.ask(token, on_turn)
        return token

    @contextmanager
    def hold(self, key: Key, *, timeout_s: float | None = AS_SET) -> Iterator[Token[Key]]:
        """``with coordinator.hold(key) as token: if token: ...``: ``enqueue``, and ``dequeue`` at
        the end."""
        with self._keys.ended(self.enqueue(key, timeout_s=timeout_s)) as token:
            yield token

    def coalesced(
        self, key: Callable[P, Key], *, share: bool = False
    ) -> Callable[[Callable[P, R]], Callable[P, R | None]]:
        """A decorator: calls whose arguments have the same ``key(*args, **kwargs)`` are coalesced.

        A declined call returns ``None``; with ``share`` it returns, or raises, what the run
        does that covers it. A call runs again, for the same arguments, if it has to do so for
        declined calls whose waiter gave up; it returns what the first run returned.

        :raises ConfigurationError: ``key``, or what is decorated, is not a plain function.
        """
        require(plain_function("key", key), instance("share", share, bool))

        def decorate(function: Callable[P, R]) -> Callable[P, R | None]:
            require(plain_function("the coalesced function", function))

            @wraps(function)
            def call(*args: P.args, **kwargs: P.kwargs) -> R | None:
                work = partial(function, *args, **kwargs)
                result = self._result_of(key(*args, **kwargs), work, AS_SET, follows=share)
                return None if result is None else cast(R, result.get())

            return call

        return decorate

    def run(self, key: Key, function: Callable[[], R], *, timeout_s: float | None = AS_SET) -> R:
        """Run ``function``, or return the result of the run that covers this request: a run that
        began after the request came (with ``waiters=0``: the current run, as in Go's singleflight).
        An exception is shared, too: the same object is raised to all.

        If the covering run ends without a result (evicted, interrupted, dequeued by hand), the
        request asks again. ``function`` may run twice: the second time for declined requests whose
        waiter gave up. The result of the first run is returned.

        :raises WaitTimedOut: neither its turn nor a result came within ``timeout_s``.
        :raises WouldDeadlock: the caller works on the key itself.
        :raises CoordinatorClosed: nothing runs any more.
        :raises ConfigurationError: ``function`` is not a plain function.
        """
        require(plain_function("function", function))
        result = self._result_of(key, function, timeout_s, follows=True)
        assert result is not None  # it is not declined without one
        return cast(R, result.get())

    def state(self, key: Key) -> TrafficState:
        """The state of the key: Init, Open (in a debounce window), Process or Block."""
        return self._keys.state(key)

    def stats(self) -> CoordinatorStats:
        """The counts since the beginning, and the work in hand now."""
        return self._keys.stats()

    def drain(self, timeout_s: float | None = 30.0) -> tuple[Token[Key], ...]:
        """Take no further request, let the requests that run or wait finish, and return the tokens
        that still run after ``timeout_s`` seconds: mostly none. Requests that still wait then get
        ``CoordinatorClosed`` and do not run. Debounce windows are cut short. Call it again to wait
        longer.
        """
        require(timeout("timeout_s", timeout_s))
        self._keys.close()
        self._keys.emptied.wait(None if timeout_s is None else bounded_s(timeout_s))
        return self._keys.abandon_all()

    def __enter__(self) -> QueueCoordinator[Key]:
        return self

    def __exit__(self, *error: object) -> None:
        self.drain()

    def _result_of(
        self, key: Key, function: Callable[[], Any], timeout_s: float | None, *, follows: bool
    ) -> RunResult | None:
        """Run, or be declined. Return the result of this run; if the request ``follows``, that of
        the run that covers it; ``None`` if it was declined and does not follow.
        """
        deadline = Deadline.asked(timeout_s, self._keys.rules.timeout_s)
        while True:
            token = Token(key, primitives.get_ident())
            token.follows = follows
            token.repeat = partial(self._repeat, function)
            self._ask_and_wait(token, deadline)
            if token.is_declined and not follows:
                return None
            if (result := token.result or self._run_as(token, function)) is not None:
                return result

    def _ask_and_wait(self, token: Token[Key], deadline: Deadline) -> None:
        keys = self._keys
        try:
            if keys.start(token):
                return
            waker = Waker()
            keys.ask(token, lambda _: waker.wake())
            while (wait_s := keys.wait_s(token, deadline)) is not None:
                waker.wait(wait_s)
        except BaseException:
            keys.drop(token)
            raise

    def _run_as(self, token: Token[Key], function: Callable[[], Any]) -> RunResult | None:
        """Do the work of a current token, and leave. Return the result; ``None`` if the token was
        evicted before its work began.
        """
        if token:
            try:  # not "with": a run of nothing would take a twelfth longer
                token.result = RunResult.of(function)
            except BaseException:
                self._keys.drop(token)
                raise
            self._keys.leave(token)
        return token.result

    def _repeat(self, function: Callable[[], object], token: Token[Key]) -> None:
        """Do the work of a request that gave up, for the requests that it was to cover."""
        token.owner = primitives.get_ident()
        result = self._run_as(token, function)
        if result is not None and result.error is not None:
            log.error("covering a key failed key=%r", token.key, exc_info=result.error)


_all: weakref.WeakSet[QueueCoordinator[Any]] = weakref.WeakSet()


def _begin_all_again() -> None:
    for coordinator in list(_all):
        coordinator._keys.begin_again()


os.register_at_fork(after_in_child=_begin_all_again)
