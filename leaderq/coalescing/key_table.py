"""The keys of a coordinator, and all that happens to them under one lock.

The lock is held for about a microsecond, never during a wait or a call of the user's functions
(except ``__hash__`` and ``__eq__`` of keys). Calls that tell somebody are noted under the lock, and
made after it is released. ``docs/design/coalescing.md`` says what becomes of declined requests
whose waiter gives up (a *debt*), and how debouncing works.

A timer thread looks at a key when something is due there without a request: an overdue head, the
end of a debounce window. The thread exists only while something is due later, so it does not keep a
coordinator alive for long that was dropped without being closed.

On each failure: an exception in a call is logged, and its token leaves; an owner that never
dequeues is evicted after the safe time-out, if there is one; if an interrupt comes after a change
and before its calls, the next event makes the calls. If the garbage collector closes a scope in the
thread that holds the lock, the scope only leaves a note.
"""

from __future__ import annotations

import heapq
import logging
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Generic

from leaderq.base import clock
from leaderq.base.timeouts import Deadline
from leaderq.coalescing.automaton import NOBODY, EnqueueOutcome, TrafficAutomaton, TrafficState
from leaderq.coalescing.rules import CoordinatorStats, Rules
from leaderq.coalescing.token import Key, Token, TokenStage, require_done
from leaderq.errors import CoordinatorClosed, WaitTimedOut, WouldDeadlock
from leaderq.threads import PerThread, Service, primitives

log = logging.getLogger(__name__)

AnyToken = Token[Any]
runs_here: ContextVar[tuple[AnyToken, ...]] = ContextVar("runs_here", default=())
"""The runs that the current task is part of. A task inherits them from the one that made it, a
thread by ``asyncio.to_thread``."""
Wake = Callable[[AnyToken], object]
Call = tuple[Wake, AnyToken]
"""The function to call once the lock is released, and its argument."""
_WAITING, _RUNNING, _ENDED = TokenStage.WAITING, TokenStage.RUNNING, TokenStage.ENDED
_LOOK_S = 60.0


@dataclass(slots=True, eq=False)
class Debt:
    """``count`` declined requests whose waiter gave up, so that nobody covers them. ``repeat`` does
    the work of that waiter, or of the head that left, if one of them had told how. ``is_tried``: a
    run was begun for this debt and did not finish; the next request covers it.
    """

    count: int
    repeat: Wake | None
    is_tried: bool


class KeyState(TrafficAutomaton[AnyToken]):
    """The automaton of one key, with its debt and its debounce window."""

    __slots__ = ("debt", "due_s", "first_s", "look_s")

    def __init__(self, waiters: int) -> None:
        self.line = NOBODY
        self.waiters = waiters
        self.debt: Debt | None = None
        self.first_s: float | None = None
        """When the first request came since the last run began, if the key is debounced."""
        self.due_s = 0.0
        """When the one that waits may begin at the earliest."""
        self.look_s = math.inf
        """When the timer will look at it."""

    @property
    def owed(self) -> int:
        """How many declined requests nobody covers."""
        return 0 if self.debt is None else self.debt.count

    def cover_debt(self, token: AnyToken) -> None:
        """Let the run of ``token`` cover all declined requests that are still owed a run."""
        if self.debt is not None:
            token.covers, self.debt = token.covers + self.debt.count, None

    def wanted_look_s(self, safe_timeout_s: float | None) -> float:
        """When something must be done about this key although no request comes; infinite if nothing
        must.
        """
        head, waiter = self.line
        if head is None:
            return math.inf if waiter is None else self.due_s
        is_wanted = waiter is not None or head.followers or self.debt is not None
        return head.began_s + safe_timeout_s if safe_timeout_s and is_wanted else math.inf


class KeyTable(Generic[Key]):
    """The keys of one coordinator; see the module. ``cover`` is called with a token that is
    current.
    """

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.cover: Wake | None = None
        self.emptied = primitives.Event()
        """Set once it is closed and nobody works on a key."""
        self._is_debounced = rules.debounce is not None
        self._is_timed = rules.safe_timeout_s is not None or self._is_debounced
        self._is_closed = False
        self._stats = CoordinatorStats()
        self._keys: dict[Key, KeyState] = {}
        self._lock = primitives.Lock()
        self._calls: list[Call] = []
        self._dropped: deque[AnyToken] = deque()
        self._looks: list[tuple[float, int, Key]] = []
        """A heap of when to look at which key; void if the key's ``look_s`` is another."""
        self._looks_noted = 0
        self._timer: Service | None = None

    def start(self, token: Token[Key]) -> bool:
        with self._lock:
            state = self._state(token.key)
            if state.line is not NOBODY or self._is_debounced:
                return False
            state.line = (token, None)
            self._begin(state, token)
            return True

    def ask(self, token: Token[Key], wake: Wake) -> None:
        """Let the request run, wait, follow or be declined; its stage says which. ``wake(token)``
        is called when a request that waited or followed is not pending any more.
        """
        try:
            self._deliver()
            with self._lock:
                self._contend(self._state(token.key), token, wake)
                calls = self._noted()
            self._deliver(calls)
        except BaseException:
            self.drop(token)
            raise

    def wait_s(self, token: Token[Key], deadline: Deadline) -> float | None:
        """How many seconds to wait at most for ``wake``; ``None`` if the wait is over. Raises if
        the time is up or the coordinator was closed.
        """
        if token.stage.is_pending and deadline.is_over:
            with self._lock:
                if token.stage.is_pending:
                    self._leave(token)
                calls = self._noted()
            self._deliver(calls)
        if token.stage.is_pending:
            return deadline.left_s(_LOOK_S)
        if token.stage is TokenStage.WITHDRAWN:
            raise WaitTimedOut(token.key, waited_s=deadline.timeout_s or 0.0, covers=token.covers)
        if token.stage is TokenStage.ABANDONED:
            raise CoordinatorClosed(f"key {token.key!r}: closed while this request waited")
        return None

    def leave(self, token: Token[Key]) -> bool:
        """End the request, which has run or does not wait any more. Return whether it was
        current.
        """
        with self._lock:
            was_current = self._leave(token)
            calls = self._noted()
        self._deliver(calls)
        return was_current

    @contextmanager
    def ended(self, token: Token[Key]) -> Iterator[Token[Key]]:
        """Mark the block as the run of ``token``: leave at its end; if it is interrupted, drop the
        token.
        """
        try:
            yield token
        except BaseException as exc:
            (self.leave if isinstance(exc, Exception) else self.drop)(token)
            raise
        self.leave(token)

    def drop(self, token: Token[Key]) -> None:
        """End a request that was interrupted, or whose owner never knew that its turn had come: the
        requests that it was to cover must still be covered. If the garbage collector calls this in
        the thread that holds the lock, that thread or the next caller does it later.
        """
        self._dropped.append(token)
        if self._lock.acquire(timeout=0.05):
            self._lock.release()
            self._deliver()

    def tend_due(self) -> float | None:
        """Evict overdue heads, and end debounce windows. Return the seconds until something is due
        again; ``None`` if nothing will be, and then the timer ends.
        """
        wait_s = None
        with self._lock:
            now_s = clock.now_s()
            while self._looks and wait_s is None:
                look_s, _, key = look = self._looks[0]
                state = self._awaited(look)
                if state is not None and look_s > now_s:
                    wait_s = look_s - now_s
                    continue
                heapq.heappop(self._looks)
                if state is not None:
                    state.look_s = math.inf
                    is_due = state.wanted_look_s(self.rules.safe_timeout_s) <= now_s
                    (self._advance if is_due else self._watch)(state, key)
            if wait_s is None:
                self._timer = None
            calls = self._noted()
        self._deliver(calls)
        return wait_s

    def close(self) -> None:
        """Let no request in any more; end all debounce windows."""
        with self._lock:
            self._is_closed = True
            for key, state in list(self._keys.items()):
                self._advance(state, key)
            calls = self._noted()
        self._deliver(calls)

    def abandon_all(self) -> tuple[AnyToken, ...]:
        """Tell all requests that wait that they will not run, and log the declined requests that
        nobody will cover. Return the tokens that run.
        """
        with self._lock:
            for key, state in list(self._keys.items()):
                owed, (_, waiter) = state.owed, state.line
                if waiter is not None:
                    owed += waiter.covers - len(waiter.followers)
                    waiter.stage = TokenStage.ABANDONED
                    state.dequeue(waiter)
                    self._note(waiter.wake, waiter)
                for one in waiter, state.head:
                    if one is not None:
                        self._dismiss_followers(one, TokenStage.ABANDONED)
                if owed:
                    log.warning("closed, requests not covered key=%r count=%d", key, owed)
                state.debt = None
                self._advance(state, key)
            heads = tuple(state.head for state in self._keys.values() if state.head is not None)
            if self._timer is not None:
                self._timer.wake()  # it ends, mostly
            calls = self._noted()
        self._deliver(calls)
        return heads

    def begin_again(self) -> None:
        """Forget all requests, in a forked child: they run and wait in the parent, as do the
        threads.
        """
        self._lock = primitives.Lock()
        self.emptied = primitives.Event()
        self._looks, self._timer = [], None
        for state in self._keys.values():
            for token in state.line:
                if token is not None:
                    token.stage = TokenStage.ABANDONED
        self._keys, self._calls, self._dropped = {}, [], deque()

    def state(self, key: Key) -> TrafficState:
        state = self._keys.get(key)
        return TrafficState.INIT if state is None else state.state

    def stats(self) -> CoordinatorStats:
        with self._lock:
            states = self._keys.values()
            return replace(
                self._stats,
                running=sum(state.head is not None for state in states),
                waiting=sum(state.waiter is not None for state in states),
                owed=sum(state.owed for state in states),
            )

    # -- under the lock ------------------------------------------------------------------------

    def _note(self, call: Wake | None, token: AnyToken) -> None:
        if call is not None:
            self._calls.append((call, token))

    def _noted(self) -> Sequence[Call]:
        if not self._calls:
            return ()
        calls, self._calls = self._calls, []
        return calls

    def _state(self, key: Key) -> KeyState:
        if self._is_closed:
            raise CoordinatorClosed(f"key {key!r}: the coordinator was closed")
        state = self._keys.get(key)
        if state is None:
            state = self._keys[key] = KeyState(self.rules.waiters)
        return state

    def _begin(self, state: KeyState, token: AnyToken) -> None:
        """Make the token the head, from now on."""
        self._stats.runs = token.number = self._stats.runs + 1
        if self._is_timed:
            token.began_s = clock.now_s()
            state.first_s = None
        token.stage = _RUNNING
        if state.debt is not None:
            state.cover_debt(token)

    def _contend(self, state: KeyState, token: Token[Key], wake: Wake) -> None:
        """Decide on a request: each ``offer``, and those that :meth:`start` could not serve."""
        self._advance(state, token.key, retires=False)
        self._refuse_to_wait_for_oneself(state, token)
        if (debounce := self.rules.debounce) is not None:
            now_s = clock.now_s()
            state.first_s = now_s if state.first_s is None else state.first_s
            state.due_s = min(now_s + debounce.delay_s, state.first_s + debounce.max_delay_s)
        outcome = state.enqueue(token, at_once=debounce is None)
        if outcome is EnqueueOutcome.ACCEPT:
            self._begin(state, token)
            return
        token.wake = wake
        if outcome is EnqueueOutcome.BLOCK:
            token.has_waited, token.stage = True, _WAITING
            self._stats.blocked += 1
            state.cover_debt(token)
        else:
            token.is_declined, token.stage = True, TokenStage.DECLINED
            self._stats.declined += 1
            covering = state.line[state.waiters]  # a token that waits is false
            assert covering is not None
            covering.covers += bool(state.waiters)
            if token.follows:
                token.stage = TokenStage.FOLLOWING
                covering.followers = (*covering.followers, token)
        self._watch(state, token.key)

    def _refuse_to_wait_for_oneself(self, state: KeyState, token: AnyToken) -> None:
        head, waiter = state.line
        if head is None or token.owner is None:
            return
        would_wait = token.follows or (waiter is None and state.waiters)
        # A run may have begun the task that asks now, and wait for it.
        if would_wait and (token.owner == head.owner or head in runs_here.get()):
            raise WouldDeadlock(
                f"key {token.key!r}: its owner, or a task that it began, would wait for itself; "
                "offer() does not wait, owner=None says that another will dequeue, and a task with "
                "a context of its own is not part of the run"
            )

    def _leave(self, token: AnyToken, *, has_run: bool = True) -> bool:
        state = self._keys.get(token.key)
        if state is None:
            return False
        was_current = token is state.line[0]
        gives_up = not has_run if was_current else token.stage is _WAITING
        if was_current:
            token.stage = _ENDED
            if has_run and state.debt is not None:
                state.debt.repeat = token.repeat or state.debt.repeat
        elif token.stage.is_pending:
            self._stats.withdrawn += 1
            token.stage = TokenStage.WITHDRAWN
        self._depart(state, token, gives_up=gives_up)
        self._advance(state, token.key)
        return was_current

    def _depart(self, state: KeyState, token: AnyToken, *, gives_up: bool) -> None:
        if token.follows and token.is_declined:
            for one in state.line:
                if one is not None and token in one.followers:
                    one.followers = tuple(other for other in one.followers if other is not token)
        state.dequeue(token)
        # its followers ask again by themselves
        if gives_up and (count := token.covers - len(token.followers)) > 0:
            if state.waiter is not None:
                state.waiter.covers += count
            else:
                repeat = token.repeat or (state.debt.repeat if state.debt else None)
                state.debt = Debt(state.owed + count, repeat, token.is_cover)
        if token.followers:
            self._dismiss_followers(token)

    def _dismiss_followers(self, token: AnyToken, stage: TokenStage = TokenStage.ORPHANED) -> None:
        for follower in token.followers:
            follower.result = token.result
            follower.stage = stage if token.result is None else TokenStage.SHARED
            self._note(follower.wake, follower)
        token.followers = ()

    def _advance(self, state: KeyState, key: Key, *, retires: bool = True) -> None:
        """Do everything that is due on this key; mostly nothing."""
        now = clock.now_s() if self._is_timed else 0.0
        head, waiter = state.line
        safe_timeout_s = self.rules.safe_timeout_s
        if head is not None and safe_timeout_s and now >= head.began_s + safe_timeout_s:
            self._stats.evicted += 1
            self._note(self.rules.on_evicted, head)
            head.stage = TokenStage.EVICTED
            self._depart(state, head, gives_up=False)
            head = None
        if head is None and waiter is not None and (now >= state.due_s or self._is_closed):
            state.begin()
            self._stats.promoted += 1
            self._begin(state, waiter)
            self._note(waiter.wake, waiter)
        if retires and state.line == NOBODY:
            if (debt := state.debt) is not None:
                cover = self.cover or debt.repeat  # whoever knows how to do its work
                if cover is not None and not debt.is_tried:
                    token: Token[Key] = Token(key, None)
                    token.is_cover = True
                    state.enqueue(token)
                    self._stats.repeated += 1
                    self._begin(state, token)
                    self._note(cover, token)
                else:
                    log.warning("requests not covered yet key=%r count=%d", key, debt.count)
            if state.line == NOBODY and (self._is_closed or state.debt is None):
                self._keys.pop(key, None)
                return
        self._watch(state, key)

    def _watch(self, state: KeyState, key: Key) -> None:
        """Let the timer look at the key as soon as something is due there."""
        if not self._is_timed:
            return
        look_s = state.wanted_look_s(self.rules.safe_timeout_s)
        if look_s >= state.look_s:
            return
        state.look_s = look_s
        if len(self._looks) > 2 * len(self._keys) + 64:
            self._looks = [one for one in self._looks if self._awaited(one)]
            heapq.heapify(self._looks)
        self._looks_noted += 1
        heapq.heappush(self._looks, (look_s, self._looks_noted, key))
        if self._timer is None:
            timer = Service("leaderq-coalescing-timer", self._tend)
            timer.start()
            self._timer = timer
        elif self._looks[0][1] == self._looks_noted:
            self._timer.wake()

    def _awaited(self, look: tuple[float, int, Key]) -> KeyState | None:
        """The key that the timer must look at for this entry; ``None`` if the entry does not count
        any more.
        """
        state = self._keys.get(look[2])
        return None if state is None or state.look_s != look[0] else state

    # -- without the lock ----------------------------------------------------------------------

    def _tend(self, timer: Service) -> None:
        wait_s: float | None = 0.0
        while wait_s is not None and timer.wait(wait_s):
            try:
                wait_s = self.tend_due()
            except BaseException:  # a user's function raised it, and other keys are waited for
                log.exception("calls about overdue keys failed")
                wait_s = 0.0

    def _deliver(self, calls: Sequence[Call] = ()) -> None:
        """Make the calls, and after them the calls that they lead to. In a loop, because a line of
        waiting requests may be longer than the stack allows.
        """
        if self._dropped:
            with self._lock:
                while self._dropped:
                    self._leave(self._dropped.popleft(), has_run=False)
                calls = [*calls, *self._noted()]
        if self._is_closed and not self._keys:
            self.emptied.set()
        if not calls:
            return
        todo, is_inner = _mine.value, bool(_mine.value)
        todo.extend((self, call, token) for call, token in calls)
        error: BaseException | None = None
        while todo and not is_inner:
            try:
                todo[0][0]._told(*todo[0][1:])
            except BaseException as exc:  # noqa: BLE001 - raised after the rest
                error = exc
            todo.popleft()
        if error is not None:
            raise error

    def _told(self, call: Wake, token: AnyToken) -> None:
        try:
            require_done(call(token), "what is called with a token")
        except Exception:
            log.exception("call failed, the key goes to the next token=%r", token)
            self.leave(token)
        except BaseException:
            self.drop(token)
            raise


_mine: PerThread[deque[tuple[KeyTable[Any], Wake, AnyToken]]] = PerThread(deque)
"""The calls that this thread makes; the first of them is under way."""
