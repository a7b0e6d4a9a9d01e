"""The keys of a coordinator, and all that happens to them under one lock.

The lock is held for about a microsecond, never during a wait or a call of the user's functions
(except ``__hash__`` and ``__eq__`` of keys). Whoever has to be told is noted under the lock and
called after it is released. ``docs/design/coalescing.md`` says what becomes of declined requests
whose waiter gives up (a *debt*), and how debouncing works. Under a merging overflow a debt has a
value, which nobody else has: each is merged, or run for, by itself.

On each failure: an exception in a call is logged, and its token leaves; an owner that never
dequeues is evicted after the safe time-out, if there is one; an interrupt after a change and before
the calls leaves them to the next event. A scope that the garbage collector closes may find its own
thread holding the lock: then it only leaves a note.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import reduce
from operator import is_
from typing import Any, Generic

from leaderq.coalescing.automaton import EnqueueOutcome, Refusal, TrafficAutomaton
from leaderq.coalescing.rules import CoordinatorStats, Debounce, KeyCounts, Overflow, Rules
from leaderq.coalescing.timer import KeyTimer
from leaderq.coalescing.token import Key, RunResult, Token, TokenStage, require_done
from leaderq.errors import CoordinatorClosed, WaitTimedOut, WouldDeadlock
from leaderq.threads import PerThread, primitives
from leaderq.timeouts import Deadline

log = logging.getLogger(__name__)

AnyToken = Token[Any]
runs_here: ContextVar[tuple[AnyToken, ...]] = ContextVar("runs_here", default=())
"""The runs that the current task is part of. A task inherits them from the one that made it, a
thread by ``asyncio.to_thread``."""
Wake = Callable[[AnyToken], object]
Call = tuple[Wake, AnyToken]
"""The function to call once the lock is released, and its argument."""
_ASKING, _WAITING = TokenStage.ASKING, TokenStage.WAITING
_RUNNING, _ENDED = TokenStage.RUNNING, TokenStage.ENDED
_LOOK_S = 60.0


@dataclass(slots=True)
class DebounceWindow:
    """When a debounced key may run. ``token``: the head that stands for the window."""

    debounce: Debounce
    token: AnyToken
    first_s: float | None = None
    """When the first request since the last run began came."""
    due_s: float = 0.0

    def request_came(self, now: float) -> None:
        self.first_s = now if self.first_s is None else self.first_s
        self.due_s = min(now + self.debounce.delay_s, self.first_s + self.debounce.max_delay_s)


@dataclass(slots=True, eq=False)
class Debt:
    """``count`` declined requests whose waiter gave up; ``value``: what it waited with; ``repeat``:
    does its work, if it said how. ``is_tried``: a run in the background was begun for it and did
    not finish; the next request pays.
    """

    count: int
    value: Any
    repeat: Wake | None
    is_tried: bool
    is_logged: bool = False


@dataclass(slots=True, eq=False)
class PendingMerge:
    """Values to merge with the newcomer's, without the lock; ``of``: their owner; the result."""

    of: AnyToken | tuple[Debt, ...]
    values: tuple[Any, ...]
    value: Any = None


class KeyState(TrafficAutomaton[AnyToken]):
    """The automaton of one key with its counts, debounce window and debts."""

    __slots__ = ("blocked", "debts", "declined", "idle_since_s", "is_watched", "runs", "window")

    def __init__(self, waiters: int) -> None:
        self.line: tuple[AnyToken, ...] = ()
        self.waiters = waiters
        self.runs = self.blocked = self.declined = 0
        self.idle_since_s = 0.0
        self.is_watched = False
        self.window: DebounceWindow | None = None
        self.debts: tuple[Debt, ...] = ()

    @property
    def owed(self) -> int:
        """How many declined requests nobody has covered."""
        return sum(debt.count for debt in self.debts)

    @property
    def is_debouncing(self) -> bool:
        return self.window is not None and bool(self.line) and self.line[0] is self.window.token

    def due_s(self, safe_timeout_s: float | None) -> float | None:
        """When something must be done about this key although nobody comes."""
        if self.is_debouncing and self.window is not None:
            return self.window.due_s
        if safe_timeout_s is None or not self.line:
            return None
        is_wanted = len(self.line) > 1 or self.line[0].followers or self.debts
        return self.line[0].began_s + safe_timeout_s if is_wanted else None


class KeyTable(Generic[Key]):
    """See the module. ``cover`` is called with a token that is current."""

    def __init__(self, rules: Rules, clock: Callable[[], float], on_evicted: Wake | None) -> None:
        self.rules = rules
        self.cover: Wake | None = None
        self.emptied = primitives.Event()
        """Set once it is closed and nobody works on a key."""
        self.timer = KeyTimer(clock, self.tend)
        self._merge = None if isinstance(rules.overflow, Overflow) else rules.overflow
        self._clock = clock
        self._on_evicted = on_evicted
        self._is_timed = rules.safe_timeout_s is not None or rules.debounce is not None
        self._is_closed = False
        self._stats = CoordinatorStats()
        self._keys: dict[Key, KeyState] = {}
        self._idle: dict[Key, KeyState] = {}
        """Kept although nobody works on them, the longest idle first."""
        self._lock = primitives.Lock()
        self._uncovered: Counter[Key] = Counter()
        """Declined requests that nobody will cover any more."""
        self._calls: list[Call] = []
        self._dropped: deque[AnyToken] = deque()

    def start(self, token: Token[Key]) -> bool:
        with self._lock:
            state = self._state(token.key)
            if state.line or state.window is not None or (state.debts and self._merge):
                return False
            state.enqueue(token)
            self._begin(state, token)
            return True

    def ask(self, token: Token[Key], wake: Wake | None) -> None:
        """Let the request run, wait, follow or be declined: its stage says which. ``wake`` is
        called if the request waited and is pending no more; without it, the request is declined
        rather than wait.
        """
        merging: PendingMerge | None = None
        try:
            self._deliver()
            while token.stage is _ASKING:
                with self._lock:
                    merging = self._contend(self._state(token.key), token, wake, merging)
                    calls = self._noted()
                self._deliver(calls)
                if merging is not None and self._merge is not None:
                    merging.value = reduce(self._merge, (*merging.values, token.value))
                    require_done(merging.value, "overflow")
        except BaseException:
            self.drop(token)
            raise

    def wait_s(self, token: Token[Key], deadline: Deadline) -> float | None:
        """For how long to wait to be woken, at most; ``None``: the wait is over."""
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

    def leave(
        self, token: Token[Key], result: RunResult | None = None, *, may_repeat: bool = False
    ) -> bool:
        """The request is over: it ran, or waits no more. Return whether it was current. With
        ``may_repeat`` it is current again, with a new number, if there is a debt that nobody waits
        to pay: its owner runs again.
        """
        with self._lock:
            was_current = self._leave(token, result, may_repeat=may_repeat)
            calls = self._noted()
        self._deliver(calls)
        return was_current

    @contextmanager
    def ended(self, token: Token[Key]) -> Iterator[Token[Key]]:
        """The block is the run: leave at its end, and drop what it was if it is interrupted."""
        try:
            yield token
        except BaseException as exc:
            (self.leave if isinstance(exc, Exception) else self.drop)(token)
            raise
        self.leave(token)

    def drop(self, token: Token[Key]) -> None:
        """As :meth:`leave`, for one that was interrupted, or whose owner never knew that its turn
        had come: those it covers are still to be covered. If the garbage collector calls this in
        the thread that holds the lock, that thread does it later, or the next caller.
        """
        self._dropped.append(token)
        if self._lock.acquire(timeout=0.05):
            self._lock.release()
            self._deliver()

    def tend(self, key: Key) -> None:
        """Evict an overdue head, end a debounce window, forget an old idle key."""
        with self._lock:
            state = self._keys.get(key)
            if state is not None:
                state.is_watched = False
                self._advance(state, key)
            idle_s = self.rules.idle.idle_s if self.rules.idle else None
            if key in self._idle and idle_s is not None:
                due_s = self._idle[key].idle_since_s + idle_s
                if due_s > self._clock():
                    self.timer.watch(due_s, key)
                else:
                    self._forget(key)
            calls = self._noted()
        self._deliver(calls)

    def sweep(self) -> None:
        with self._lock:
            keys = [*self._keys, *self._idle]
        for key in keys:
            self.tend(key)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
        self.sweep()
        self._deliver()

    def abandon_all(self) -> tuple[AnyToken, ...]:
        """Tell all who wait that they will not run, log the declined requests that nobody will
        cover; return those who run."""
        with self._lock:
            for key, state in list(self._keys.items()):
                lost = state.owed
                for token in reversed(state.line):
                    followers = len(token.followers or ())
                    self._dismiss_followers(token, None, TokenStage.ABANDONED)
                    if token.stage is _WAITING:
                        lost += (token.covers - followers) * bool(state.waiters)
                        self._stats.abandoned += 1
                        token.stage = TokenStage.ABANDONED
                        state.dequeue(token)
                        self._note(token.wake, token)
                state.debts = ()
                self._uncovered[key] += lost
                self._advance(state, key)
            uncovered, self._uncovered = +self._uncovered, Counter()
            heads = tuple(state.line[0] for state in self._keys.values() if state.line)
            calls = self._noted()
        if uncovered:
            keys, count, first = len(uncovered), sum(uncovered.values()), next(iter(uncovered))
            log.warning("drained, requests not covered keys=%d count=%d key=%r", keys, count, first)
        self._deliver(calls)
        return heads

    def begin_again(self) -> None:
        """In a forked child: all who ran or waited do so in the parent, and so do the threads."""
        self._lock = primitives.Lock()
        self.emptied = primitives.Event()
        self.timer.begin_again()
        for state in self._keys.values():
            for token in state.line:
                token.stage = TokenStage.ABANDONED
        self._keys, self._idle, self._calls, self._dropped = {}, {}, [], deque()

    def line(self, key: Key) -> tuple[AnyToken, ...]:
        """All in line for a key, the head (or the debounce window) first."""
        with self._lock:
            state = self._keys.get(key)
            return state.line if state is not None else ()

    def counts_of(self, key: Key) -> KeyCounts | None:
        with self._lock:
            state = self._keys.get(key) or self._idle.get(key)
            return KeyCounts(state.runs, state.blocked, state.declined) if state else None

    def stats(self) -> CoordinatorStats:
        with self._lock:
            states = [state for state in self._keys.values() if state.line]
            return replace(
                self._stats,
                running=sum(not state.is_debouncing for state in states),
                waiting=sum(len(state.line) - 1 for state in states),
                idle=len(self._idle),
                owed=sum(state.owed for state in self._keys.values()),
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
            state = self._idle.pop(key, None) if self._idle else None
            state = self._keys[key] = state or KeyState(self.rules.waiters)
            if self.rules.debounce is not None and state.window is None:
                token: AnyToken = Token(key, None, None)
                token.stage = _RUNNING
                state.window = DebounceWindow(self.rules.debounce, token)
        return state

    def _begin(self, state: KeyState, token: AnyToken) -> None:
        self._stats.runs = token.number = self._stats.runs + 1
        if self._is_timed:
            token.began_s = self._clock()
            if state.window is not None:
                state.window.first_s = None
        state.runs += 1
        token.stage = _RUNNING
        if state.debts and self._merge is None:
            self._take(state, token, state.debts)

    def _contend(
        self, state: KeyState, token: Token[Key], wake: Wake | None, merging: PendingMerge | None
    ) -> PendingMerge | None:
        """A request to a key that somebody works on, that is debounced, or that has debts. Return
        the values to merge first, unless ``merging`` was.
        """
        self._advance(state, token.key, retires=False)
        if wake is None and (state.line or state.window is not None):
            self._decline(state, token, Refusal.BUSY)
            self._advance(state, token.key)
            return None
        self._refuse_to_wait_for_oneself(state, token)
        if (unmerged := self._unmerged(state, merging)) is not None:
            return unmerged
        if merging is not None and merging.of is state.debts:
            token.value = merging.value
            self._take(state, token, state.debts)
        if state.window is not None:
            state.window.request_came(self._clock())
            if not state.line:
                state.enqueue(state.window.token)
        outcome = state.enqueue(token)
        if outcome is EnqueueOutcome.ACCEPT:
            self._begin(state, token)
        elif outcome is EnqueueOutcome.BLOCK:
            self._let_wait(state, token, wake)
        elif self.rules.overflow is Overflow.DECLINE_NEW:
            self._decline(state, token, Refusal.FULL, state.line[-1], wake)
            self._watch(state, token.key)
        elif self.rules.overflow is Overflow.REPLACE_OLDEST:
            displaced = state.displace(token)
            token.followers, displaced.followers = displaced.followers, None
            self._let_wait(state, token, wake)
            self._decline(state, displaced, Refusal.REPLACED, token, wake)
        else:
            assert merging is not None  # otherwise something was unmerged
            state.line[-1].value = merging.value
            self._decline(state, token, Refusal.MERGED, state.line[-1], wake)
        return None

    def _refuse_to_wait_for_oneself(self, state: KeyState, token: AnyToken) -> None:
        if not state.line or token.owner is None or not _is_of(token.owner, state.line[0]):
            return
        may_wait = token.follows or len(state.line) <= state.waiters
        if may_wait or self.rules.overflow is Overflow.REPLACE_OLDEST:
            raise WouldDeadlock(
                f"key {token.key!r}: its owner asks again while it runs, or a task that it began "
                "does, and would wait for itself; offer() does not wait, owner=None says that "
                "another will dequeue, and a task with a context of its own is not part of the run"
            )

    def _unmerged(self, state: KeyState, merging: PendingMerge | None) -> PendingMerge | None:
        """The values to merge with the newcomer's, unless ``merging`` was."""
        if self._merge is None:
            return None
        of: AnyToken | tuple[Debt, ...] = state.debts
        values = tuple(debt.value for debt in state.debts)
        if len(state.line) > state.waiters:
            of, values = state.line[-1], (state.line[-1].value,)
        if not values:
            return None
        if merging is None or merging.of is not of:
            return PendingMerge(of, values)
        return None if all(map(is_, merging.values, values)) else PendingMerge(of, values)

    def _let_wait(self, state: KeyState, token: AnyToken, wake: Wake | None) -> None:
        token.wake = wake
        token.has_waited = True
        token.stage = _WAITING
        state.blocked += 1
        self._stats.blocked += 1
        if self._merge is None:
            self._take(state, token, state.debts)
        self._watch(state, token.key)

    def _decline(
        self,
        state: KeyState,
        token: AnyToken,
        refusal: Refusal,
        covering: AnyToken | None = None,
        wake: Wake | None = None,
    ) -> None:
        """The token does not run; ``covering`` does its work too."""
        if covering is not None and state.waiters:
            covering.covers += 1 + token.covers
        state.declined += 1
        name = "declined" if refusal is Refusal.FULL else refusal.value
        setattr(self._stats, name, getattr(self._stats, name) + 1)
        token.refusal = refusal
        if covering is not None and token.follows:
            token.wake = token.wake or wake
            token.stage = TokenStage.FOLLOWING
            covering.followers = [*(covering.followers or ()), token]
            return
        token.stage = TokenStage.DECLINED
        self._note(token.wake, token)

    def _take(self, state: KeyState, token: AnyToken, debts: tuple[Debt, ...]) -> None:
        token.covers += sum(debt.count for debt in debts)
        state.debts = tuple(debt for debt in state.debts if debt not in debts)

    def _leave(
        self,
        token: AnyToken,
        result: RunResult | None = None,
        *,
        may_repeat: bool = False,
        has_run: bool = True,
    ) -> bool:
        state = self._keys.get(token.key)
        if token.stage is _RUNNING and (state is None or token not in state.line):
            token.stage = _ENDED
            log.error(
                "token is not in any line, its key has changed or it belongs elsewhere token=%r",
                token,
            )
            return False
        was_current = token.stage is _RUNNING
        if state is None:
            return was_current
        if may_repeat and was_current and state.debts and len(state.line) == 1:
            self._dismiss_followers(token, result)
            self._begin_for(state, token, state.debts[0])
            return True
        gives_up = token.stage is _WAITING or (was_current and not has_run)
        if was_current:
            token.stage = _ENDED
        elif token.stage.is_pending:
            self._stats.withdrawn += 1
            token.stage = TokenStage.WITHDRAWN
        self._depart(state, token, result, gives_up=gives_up)
        self._advance(state, token.key)
        return was_current

    def _begin_for(self, state: KeyState, token: AnyToken, debt: Debt) -> None:
        self._stats.repeated += 1
        token.value = debt.value
        self._take(state, token, (debt,))
        self._begin(state, token)

    def _depart(
        self, state: KeyState, token: AnyToken, result: RunResult | None, *, gives_up: bool
    ) -> None:
        if token.follows and token.refusal is not None:
            for one in state.line:
                if one.followers and token in one.followers:
                    one.followers.remove(token)
        state.dequeue(token)
        # its followers ask again by themselves
        if gives_up and (count := token.covers - len(token.followers or ())) > 0 and state.waiters:
            if len(state.line) > 1 and self._merge is None:
                state.line[-1].covers += count
            else:
                debt = Debt(count, token.value, token.repeat, token.is_cover)
                state.debts = (*state.debts, debt)
        self._dismiss_followers(token, result)

    def _dismiss_followers(
        self, token: AnyToken, result: RunResult | None, stage: TokenStage = TokenStage.ORPHANED
    ) -> None:
        for follower in token.followers or ():
            if follower.stage is not TokenStage.FOLLOWING:
                continue
            follower.result = result
            follower.stage = stage if result is None else TokenStage.SHARED
            self._stats.shared += result is not None
            self._stats.orphaned += follower.stage is TokenStage.ORPHANED
            self._note(follower.wake, follower)
        token.followers = None

    def _advance(self, state: KeyState, key: Key, *, retires: bool = True) -> None:
        """Do all that is due on this key: nothing, mostly."""
        now = self._clock() if self._is_timed else 0.0
        while state.line and self._has_new_head(state, state.line[0], now):
            pass
        if retires and not state.line and state.debts:
            self._pay(state, key)
        if retires and not state.line and (self._is_closed or not state.debts):
            if state.debts:
                self._uncovered[key] += state.owed
            self._retire(state, key)
        else:
            self._watch(state, key)

    def _pay(self, state: KeyState, key: Key) -> None:
        """Have the work of one debt of an idle key done, if anybody knows how."""
        for debt in state.debts:
            cover = self.cover or debt.repeat
            if cover is not None and not debt.is_tried:
                token: Token[Key] = Token(key, None, None)
                token.is_cover = True
                state.enqueue(token)
                self._begin_for(state, token, debt)
                self._note(cover, token)
                return
        for debt in state.debts:
            if not debt.is_logged:
                debt.is_logged = True
                log.warning("requests not covered yet key=%r count=%d", key, debt.count)

    def _has_new_head(self, state: KeyState, head: AnyToken, now: float) -> bool:
        """Whether there is now another head to look at."""
        safe_timeout_s, window = self.rules.safe_timeout_s, state.window
        may_run = window is None or window.first_s is None or now >= window.due_s
        if state.is_debouncing:
            if len(state.line) > 1 and not (may_run or self._is_closed):
                return False
            state.dequeue(head)
        elif head.stage is _WAITING:
            if window is not None and not (may_run or self._is_closed):
                state.line = (window.token, *state.line)
                return False
            self._stats.promoted += 1
            self._begin(state, head)
            self._note(head.wake, head)
            return False
        elif safe_timeout_s is not None and now >= head.began_s + safe_timeout_s:
            self._stats.evicted += 1
            self._note(head.on_evicted, head)
            self._note(self._on_evicted, head)
            head.stage = TokenStage.EVICTED
            self._depart(state, head, None, gives_up=False)
        else:
            return False
        return True

    def _retire(self, state: KeyState, key: Key) -> None:
        self._keys.pop(key, None)
        if self._is_timed:
            state.is_watched = False
            self.timer.forget(key)
        if (idle := self.rules.idle) is None:
            return
        state.idle_since_s = self._clock()
        if state.window is not None:
            state.window.first_s = None
        self._idle[key] = state
        if idle.idle_s is not None:
            self.timer.watch(state.idle_since_s + idle.idle_s, key)
        if len(self._idle) > idle.cap:
            self._forget(next(iter(self._idle)))

    def _forget(self, key: Key) -> None:
        del self._idle[key]
        self._stats.forgotten += 1

    def _watch(self, state: KeyState, key: Key) -> None:
        if not self._is_timed or state.is_watched:
            return
        due_s = state.due_s(self.rules.safe_timeout_s)
        if due_s is not None:
            self.timer.watch(due_s, key)
            state.is_watched = True

    # -- without the lock ----------------------------------------------------------------------

    def _deliver(self, calls: Sequence[Call] = ()) -> None:
        """Make the calls; those that they lead to after them, in a loop, because the stack is
        shorter than a line of waiting requests may be.
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


def _is_of(owner: object, head: AnyToken) -> bool:
    """Whether the head would be dequeued by this very thread, or by a task that led to this call.
    A run may have begun the task that asks now, and wait for it.
    """
    return owner == head.owner or head in runs_here.get()


_mine: PerThread[deque[tuple[KeyTable[Any], Wake, AnyToken]]] = PerThread(deque)
"""The calls that this thread makes; the first of them is under way."""
