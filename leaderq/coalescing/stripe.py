"""The keys of a coordinator that share one lock, and all that happens to them.

Who is authoritative: the key's state (the automaton with what is kept beside it), touched under
the lock of its stripe only. There is no lock for all keys: a key belongs to one of 64 stripes. The
lock is held for about a microsecond, never while anything is waited for or a function of the
user's runs (but ``__hash__`` and ``__eq__`` of keys). Who has to be told is noted under the lock
and called after it is released.

**Debt.** A request is declined because somebody waits who begins later. If that one gives up, those
it covered pass to another one that still waits; if nobody does, the key has a *debt*. Whoever comes
next takes it over. If nobody comes before the head leaves, then the head runs again, if it knows
its function (``run``, ``coalesced``); or ``cover`` is called, or the function of the one that gave
up; or the debt is kept and logged.

**Debouncing** needs no state of its own: the *debounce window* is a head like any other. A request
to an idle key finds it running, so it waits; further ones are declined, or replace it, and prolong
the window; when that is over it leaves, and the waiting one is the head.

What happens on each failure: an exception in a call is logged, and its token leaves; an owner that
never dequeues is evicted after the safe time-out, if there is one; an interrupt after a change and
before the calls leaves waiters that look again by themselves within a minute. A scope that is
closed by the garbage collector may find its own thread holding the lock: it leaves a note then.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic

from leaderq.coalescing.automaton import EnqueueOutcome, Refusal, TrafficAutomaton
from leaderq.coalescing.rules import CoordinatorStats, Debounce, KeyCounts, Merging, Overflow, Rules
from leaderq.coalescing.token import Key, RunResult, Token, TokenStage
from leaderq.errors import CoordinatorClosed, WouldDeadlock

log = logging.getLogger(__name__)

AnyToken = Token[Any]
Wake = Callable[[AnyToken], object]
Calls = list[tuple[Wake, AnyToken]]
"""Whom to call once the lock is released."""
_RUNNING, _ENDED, _WAITING = TokenStage.RUNNING, TokenStage.ENDED, TokenStage.WAITING


@dataclass(slots=True)
class Hooks:
    """What a stripe needs done by others. ``cover`` is called with a token that is current."""

    clock: Callable[[], float]
    watch: Callable[[float, Any], object]
    unwatch: Callable[[Any], object]
    emptied: Callable[[], object]
    on_evicted: Wake | None
    cover: Wake | None = None


@dataclass(slots=True)
class DebounceWindow:
    """When a debounced key may run. ``token``: the head that stands for the window."""

    debounce: Debounce
    token: AnyToken
    first_s: float | None = None
    """When the first request since the last run began came."""
    due_s: float = 0.0

    def request_came(self, now: float) -> None:
        """Prolong the window, if it may be."""
        self.first_s = now if self.first_s is None else self.first_s
        self.due_s = self.debounce.due_s(first_s=self.first_s, now=now)


@dataclass(slots=True)
class Debt:
    """Requests declined, ``count`` of them, whose waiter gave up; ``value``: what it waited with;
    ``repeat``: does its work with the token that it is called with, if it said how. ``is_tried``:
    a run in the background was begun for it and did not come to its end; the next request pays.
    """

    count: int
    value: Any
    repeat: Wake | None
    is_tried: bool = False
    is_logged: bool = False


class KeyState(TrafficAutomaton[AnyToken]):
    """The automaton of one key with its counts, debounce window and debt."""

    __slots__ = ("blocked", "debt", "declined", "idle_since_s", "is_watched", "runs", "window")

    def __init__(self, waiters: int) -> None:
        self.line: tuple[AnyToken, ...] = ()
        self.waiters = waiters
        self.runs = 0
        self.blocked = 0
        self.declined = 0
        self.idle_since_s = 0.0
        self.is_watched = False
        self.window: DebounceWindow | None = None
        self.debt: Debt | None = None

    @property
    def is_debouncing(self) -> bool:
        """Whether the head is the debounce window."""
        return self.window is not None and bool(self.line) and self.line[0] is self.window.token

    def due_s(self, safe_timeout_s: float | None) -> float | None:
        """When something is to be done about this key although nobody comes."""
        if self.is_debouncing and self.window is not None:
            return self.window.due_s
        is_wanted = len(self.line) > 1 or bool(self.line and self.line[0].followers)
        if safe_timeout_s is not None and (is_wanted or (self.line and self.debt)):
            return self.line[0].began_s + safe_timeout_s
        return None


class Stripe(Generic[Key]):
    """See the module."""

    __slots__ = (
        "_left",
        "_lock",
        "hooks",
        "idle",
        "is_closed",
        "is_timed",
        "keys",
        "rules",
        "runs",
        "stats",
    )

    def __init__(self, rules: Rules, hooks: Hooks) -> None:
        self.rules = rules
        self.hooks = hooks
        self.is_timed = rules.safe_timeout_s is not None or rules.debounce is not None
        self.is_closed = False
        self.runs = 0
        """Runs begun, and the number of the last, which is why it never falls."""
        self.stats = CoordinatorStats()
        self.keys: dict[Key, KeyState] = {}
        self.idle: dict[Key, KeyState] = {}
        """Kept although nobody works on them, the longest idle first."""
        self._lock = threading.Lock()
        self._left: deque[AnyToken] = deque()

    # -- requests ------------------------------------------------------------------------------

    def start(self, token: Token[Key]) -> bool:
        """Let the request run if nobody works on its key; return whether it does.

        :raises CoordinatorClosed: nothing runs any more.
        """
        with self._lock:
            state = self._state(token.key)
            if state.line or state.window is not None or self._has_to_merge(state):
                return False
            state.enqueue(token)
            self._begin(state, token)
            return True

    def enter(self, token: Token[Key], wake: Wake | None = None) -> None:
        """Let the request run, wait, follow or be declined: its stage says which. If that is still
        ASKING, it is to be merged.

        :param wake: called if the request waited and is pending no more; without it, the request
            is declined rather than wait.
        :raises CoordinatorClosed: nothing runs any more.
        :raises WouldDeadlock: the owner of the head would wait for itself.
        """
        calls: Calls = []
        try:
            with self._lock:
                self._collect_left(calls)
                self._contend(self._state(token.key), token, wake, calls)
        finally:
            self._deliver(calls)

    def merge(self, token: Token[Key], merging: Merging, wake: Wake | None) -> None:
        """Give the newest waiting request both values; or, if there is a debt, let this one ask
        with both. If either changed meanwhile the token is still ASKING.
        """
        with self._lock:
            state = self._state(token.key)
            target: AnyToken | Debt | None = state.debt
            if target is None and len(state.line) > 1:
                target = state.line[-1]
            value = None if target is None else target.value
        if target is None:
            return
        merged = merging(value, token.value)
        calls: Calls = []
        try:
            with self._lock:
                state = self._state(token.key)
                if isinstance(target, Debt):
                    if target is state.debt:
                        token.value = merged
                        self._take_debt(state, token)
                        self._contend(state, token, wake, calls)
                elif (
                    target in state.line[-1:] and target.stage is _WAITING and target.value is value
                ):
                    target.value = merged
                    self._decline(state, token, Refusal.MERGED, calls, target, wake)
        finally:
            self._deliver(calls)

    def leave(
        self,
        token: Token[Key],
        result: RunResult | None = None,
        *,
        may_repeat: bool = False,
        has_run: bool = True,
    ) -> bool:
        """The request is over: it ran, or waits no more. Return whether it was current; if not,
        nobody else is disturbed. ``has_run`` is false if it was interrupted, or its
        owner never knew that its turn had come: then those it covers are still to be covered.

        With ``may_repeat``, a current token is current again, with a new number, if there is a
        debt that nobody waits to pay: its owner runs again.
        """
        calls: Calls = []
        with self._lock:
            was_current = token.stage is _RUNNING
            state = self.keys.get(token.key)
            is_astray = was_current and (state is None or token not in state.line)
            if is_astray:
                token.stage = _ENDED
            elif state is not None and not self._has_repeated(
                state, token, result, may_repeat, calls
            ):
                self._depart(state, token, result, calls, has_run=has_run)
                self._advance(state, token.key, calls)
        self._deliver(calls)
        if is_astray:
            log.error(
                "token stands in no line, the key has changed or it is of elsewhere token=%r", token
            )
        return was_current and not is_astray

    def withdraw(self, token: Token[Key]) -> None:
        """The request waits no more, unless its wait is over already."""
        calls: Calls = []
        with self._lock:
            self._collect_left(calls)
            state = self.keys.get(token.key)
            if state is not None and token.stage.is_pending:
                self._depart(state, token, None, calls)
                self._advance(state, token.key, calls)
        self._deliver(calls)

    def leave_from_finalizer(self, token: Token[Key]) -> None:
        """As :meth:`leave`, perhaps by the garbage collector while this very thread holds the lock:
        then the next one that comes does it.
        """
        self._left.append(token)
        if self._lock.acquire(timeout=0.05):
            self._lock.release()
            self.tend(token.key)

    def tend(self, key: Key) -> None:
        """Evict an overdue head, end a debounce window, forget an old idle key; have the key looked
        at again when something else is due.
        """
        calls: Calls = []
        due_s = None
        with self._lock:
            self._collect_left(calls)
            state = self.keys.get(key)
            if state is not None:
                state.is_watched = True  # by whoever calls this
                self._advance(state, key, calls)
                due_s = state.due_s(self.rules.safe_timeout_s)
                state.is_watched = due_s is not None
            if key in self.idle and self.rules.idle is not None and self.rules.idle.idle_s:
                due_s = self.idle[key].idle_since_s + self.rules.idle.idle_s
                if due_s <= self.hooks.clock():
                    del self.idle[key]
                    self.stats.forgotten += 1
                    due_s = None
            if due_s is not None:
                self.hooks.watch(due_s, key)
        self._deliver(calls)

    # -- how it stands, and the end ------------------------------------------------------------

    def sweep(self) -> None:
        """Tend all keys."""
        with self._lock:
            keys = [*self.keys, *self.idle]
        for key in keys:
            self.tend(key)

    def close(self) -> None:
        """Take no further request; whoever waits for a debounce window runs as soon as it may."""
        with self._lock:
            self.is_closed = True
        self.sweep()

    def abandon_all(self) -> list[AnyToken]:
        """Tell all who wait that they will not run; return those who run."""
        calls: Calls = []
        with self._lock:
            for key, state in list(self.keys.items()):
                for token in reversed(state.line):
                    self._dismiss_followers(token, None, calls, TokenStage.ABANDONED)
                    if token.stage is _WAITING:
                        self.stats.abandoned += 1
                        token.stage = TokenStage.ABANDONED
                        state.dequeue(token)
                        calls.extend([(token.wake, token)] if token.wake else [])
                state.debt = None
                self._advance(state, key, calls)
            heads = [state.line[0] for state in self.keys.values() if state.line]
        self._deliver(calls)
        return heads

    def begin_again(self) -> None:
        """In a forked child: whoever ran or waited does so in the parent."""
        self._lock = threading.Lock()
        for state in self.keys.values():
            for token in state.line:
                token.stage = TokenStage.ABANDONED
        self.keys, self.idle, self._left = {}, {}, deque()

    def line(self, key: Key) -> tuple[AnyToken, ...]:
        """Who stands in line for a key; the head first, and the debounce window is one."""
        with self._lock:
            state = self.keys.get(key)
            return state.line if state is not None else ()

    def counts_of(self, key: Key) -> KeyCounts | None:
        """Of a key that is not forgotten."""
        with self._lock:
            state = self.keys.get(key) or self.idle.get(key)
            return KeyCounts(state.runs, state.blocked, state.declined) if state else None

    def reading(self) -> CoordinatorStats:
        """What was counted, and what is in hand."""
        with self._lock:
            states = list(self.keys.values())
            lines = [state.line[state.is_debouncing :] for state in states]
            running = sum(bool(state.line) and not state.is_debouncing for state in states)
            in_hand = CoordinatorStats(
                runs=self.runs,
                running=running,
                waiting=sum(map(len, lines)) - running,
                idle=len(self.idle),
                owed=sum(state.debt.count for state in states if state.debt),
            )
            return self.stats + in_hand

    # -- under the lock ------------------------------------------------------------------------

    def _state(self, key: Key) -> KeyState:
        """The state of a key that is asked for: the one in use, the one kept, or a new one."""
        if self.is_closed:
            raise CoordinatorClosed(f"key {key!r}: the coordinator was closed")
        state = self.keys.get(key)
        if state is None:
            state = self.idle.pop(key, None) if self.idle else None
            state = self.keys[key] = state or KeyState(self.rules.waiters)
            if self.rules.debounce is not None and state.window is None:
                token: AnyToken = Token(key, None, None)
                token.stage = _RUNNING
                state.window = DebounceWindow(self.rules.debounce, token)
        return state

    def _begin(self, state: KeyState, token: AnyToken) -> None:
        self.runs = token.number = self.runs + 1
        if self.is_timed:
            token.began_s = self.hooks.clock()
            if state.window is not None:
                state.window.first_s = None
        state.runs += 1
        token.stage = _RUNNING
        if state.debt is not None and isinstance(self.rules.overflow, Overflow):
            self._take_debt(state, token)

    def _contend(self, state: KeyState, token: Token[Key], wake: Wake | None, calls: Calls) -> None:
        """A request to a key that somebody works on, or that is debounced."""
        self._advance(state, token.key, calls, retires=False)
        if wake is None and (state.line or state.window is not None):
            self._decline(state, token, Refusal.BUSY, calls)
            self._advance(state, token.key, calls)
            return
        if self._has_to_merge(state):
            return
        if state.window is not None:
            state.window.request_came(self.hooks.clock())
            if not state.line:
                state.enqueue(state.window.token)
        _refuse_to_wait_for_oneself(state, token, self.rules.overflow)
        outcome = state.enqueue(token)
        if outcome is EnqueueOutcome.ACCEPT:
            self._begin(state, token)
        elif outcome is EnqueueOutcome.BLOCK:
            self._let_wait(state, token, wake)
        elif self.rules.overflow is Overflow.DECLINE_NEW:
            self._decline(state, token, Refusal.FULL, calls, state.line[-1], wake)
            self._watch(state, token.key)
        elif self.rules.overflow is Overflow.REPLACE_OLDEST:
            displaced = state.displace(token)
            token.followers, displaced.followers = displaced.followers, None
            self._let_wait(state, token, wake)
            self._decline(state, displaced, Refusal.REPLACED, calls, token, wake)

    def _let_wait(self, state: KeyState, token: AnyToken, wake: Wake | None) -> None:
        token.wake = wake
        token.has_waited = True
        token.stage = _WAITING
        state.blocked += 1
        self.stats.blocked += 1
        if state.debt is not None and isinstance(self.rules.overflow, Overflow):
            self._take_debt(state, token)
        self._watch(state, token.key)

    def _decline(
        self,
        state: KeyState,
        token: AnyToken,
        refusal: Refusal,
        calls: Calls,
        covering: AnyToken | None = None,
        wake: Wake | None = None,
    ) -> None:
        """The token does not run; ``covering`` does its work, and shares its result if wanted."""
        if covering is not None and state.waiters:
            covering.covers += 1 + token.covers
        state.declined += 1
        name = "declined" if refusal is Refusal.FULL else refusal.value
        setattr(self.stats, name, getattr(self.stats, name) + 1)
        token.refusal = refusal
        if covering is not None and token.follows:
            token.wake = token.wake or wake
            token.stage = TokenStage.FOLLOWING
            covering.followers = [*(covering.followers or ()), token]
            return
        token.stage = TokenStage.DECLINED
        if token.wake is not None:
            calls.append((token.wake, token))

    def _has_to_merge(self, state: KeyState) -> bool:
        """Whether a newcomer has to merge its value with that of a debt first."""
        return state.debt is not None and not isinstance(self.rules.overflow, Overflow)

    def _take_debt(self, state: KeyState, token: AnyToken) -> None:
        if state.debt is not None:
            token.covers += state.debt.count
            state.debt = None

    def _has_repeated(
        self,
        state: KeyState,
        token: Token[Key],
        result: RunResult | None,
        may_repeat: bool,
        calls: Calls,
    ) -> bool:
        """Whether the head runs once more, for a debt that nobody waits to pay."""
        if not may_repeat or token.stage is not _RUNNING or state.line != (token,):
            return False
        if state.debt is None:
            return False
        self._dismiss_followers(token, result, calls)
        self.stats.repeated += 1
        token.value = state.debt.value
        self._take_debt(state, token)
        self._begin(state, token)
        return True

    def _depart(
        self,
        state: KeyState,
        token: AnyToken,
        result: RunResult | None,
        calls: Calls,
        *,
        has_run: bool = True,
    ) -> None:
        """The token leaves the line, if it stands in it; its followers are told."""
        gives_up = token.stage is _WAITING or (token.stage is _RUNNING and not has_run)
        if token.stage.is_pending:
            self.stats.withdrawn += 1
            token.stage = TokenStage.WITHDRAWN
        elif token.stage is _RUNNING:
            token.stage = _ENDED
        if token.follows and token.refusal is not None:
            for one in state.line:
                if one.followers and token in one.followers:
                    one.followers.remove(token)
        state.dequeue(token)
        if gives_up:
            self._pass_on_covers(state, token)
        self._dismiss_followers(token, result, calls)

    def _pass_on_covers(self, state: KeyState, token: AnyToken) -> None:
        """A waiting one gives up. Those it covered pass to another one that waits, or are a debt;
        those that follow it ask again by themselves.
        """
        count = token.covers - len(token.followers or ())
        if count <= 0 or not self.rules.waiters:
            return
        if len(state.line) > 1 and isinstance(self.rules.overflow, Overflow):
            state.line[-1].covers += count
            return
        before, state.debt = state.debt, Debt(count, token.value, token.repeat, token.is_cover)
        if before is not None:
            state.debt.count += before.count
            state.debt.repeat = token.repeat or before.repeat

    def _dismiss_followers(
        self,
        token: AnyToken,
        result: RunResult | None,
        calls: Calls,
        stage: TokenStage = TokenStage.ORPHANED,
    ) -> None:
        for follower in token.followers or ():
            if follower.stage is not TokenStage.FOLLOWING:
                continue
            follower.result = result
            follower.stage = stage if result is None else TokenStage.SHARED
            self.stats.shared += result is not None
            self.stats.orphaned += follower.stage is TokenStage.ORPHANED
            if follower.wake is not None:
                calls.append((follower.wake, follower))
        token.followers = None

    def _advance(self, state: KeyState, key: Key, calls: Calls, *, retires: bool = True) -> None:
        """Do all that is due on this key: nothing, mostly."""
        now = self.hooks.clock() if self.is_timed else 0.0
        while state.line and self._has_new_head(state, state.line[0], now, calls):
            pass
        if state.line or not retires:
            self._watch(state, key)
        elif state.debt is None:
            self._retire(state, key)
        elif (
            not state.debt.is_tried and (cover := self.hooks.cover or state.debt.repeat) is not None
        ):
            token: Token[Key] = Token(key, state.debt.value, None)
            token.is_cover = True
            state.enqueue(token)
            self.stats.repeated += 1
            self._take_debt(state, token)
            self._begin(state, token)
            calls.append((cover, token))
        elif not state.debt.is_logged:
            state.debt.is_logged = True
            log.warning("requests not covered yet key=%r count=%d", key, state.debt.count)
        if self.is_closed and not state.line and retires:
            self._retire(state, key)

    def _has_new_head(self, state: KeyState, head: AnyToken, now: float, calls: Calls) -> bool:
        """Whether there is now another head to look at."""
        if state.is_debouncing:
            if len(state.line) > 1 and not self._may_run(state, now):
                return False
            state.dequeue(head)
        elif head.stage is _WAITING:
            if not self._may_run(state, now) and state.window is not None:
                state.line = (state.window.token, *state.line)
                return False
            self.stats.promoted += 1
            self._begin(state, head)
            if head.wake is not None:
                calls.append((head.wake, head))
            return False
        elif self._is_overdue(head, now):
            self.stats.evicted += 1
            for listener in (head.on_evicted, self.hooks.on_evicted):
                if listener is not None:
                    calls.append((listener, head))
            head.stage = TokenStage.EVICTED
            self._depart(state, head, None, calls)
        else:
            return False
        return True

    def _may_run(self, state: KeyState, now: float) -> bool:
        window = state.window
        return self.is_closed or window is None or window.first_s is None or now >= window.due_s

    def _is_overdue(self, head: AnyToken, now: float) -> bool:
        safe_timeout_s = self.rules.safe_timeout_s
        return safe_timeout_s is not None and now >= head.began_s + safe_timeout_s

    def _retire(self, state: KeyState, key: Key) -> None:
        """Nobody works on the key any more."""
        self.keys.pop(key, None)
        if state.is_watched:
            state.is_watched = False
            self.hooks.unwatch(key)
        idle = self.rules.idle
        if idle is None:
            return
        state.idle_since_s = self.hooks.clock()
        if state.window is not None:
            state.window.first_s = None
        self.idle[key] = state
        if idle.idle_s is not None:
            self.hooks.watch(state.idle_since_s + idle.idle_s, key)
        while len(self.idle) > idle.cap // self.rules.stripes:
            del self.idle[next(iter(self.idle))]
            self.stats.forgotten += 1

    def _watch(self, state: KeyState, key: Key) -> None:
        due_s = state.due_s(self.rules.safe_timeout_s)
        if due_s is not None and not state.is_watched:
            self.hooks.watch(due_s, key)
            state.is_watched = True

    def _collect_left(self, calls: Calls) -> None:
        while self._left:
            token = self._left.popleft()
            state = self.keys.get(token.key)
            if state is not None:
                self._depart(state, token, None, calls, has_run=False)
                self._advance(state, token.key, calls)

    # -- without the lock ----------------------------------------------------------------------

    def _deliver(self, calls: Calls) -> None:
        """Make the calls. Those that they lead to are made after them, in a loop, because the stack
        is shorter than a line of waiting requests may be.
        """
        if calls:
            _calls.make(self, calls)
        if self.is_closed and not self.keys:
            self.hooks.emptied()

    def call(self, call: Wake, token: AnyToken) -> None:
        """Make one call; if it fails, the token leaves, because nobody else would dequeue it."""
        try:
            call(token)
        except Exception:
            log.exception("call failed, the key goes to the next token=%r", token)
            self.leave(token)
        except BaseException:
            self.leave(token, has_run=False)
            raise


class _Calls(threading.local):
    def __init__(self) -> None:
        self.waiting: deque[tuple[Stripe[Any], Wake, AnyToken]] = deque()
        self.are_made = False

    def make(self, stripe: Stripe[Any], calls: Calls) -> None:
        self.waiting.extend((stripe, call, token) for call, token in calls)
        if self.are_made:
            return
        self.are_made = True
        interruption: BaseException | None = None
        try:
            while self.waiting:
                whose, call, token = self.waiting.popleft()
                try:
                    whose.call(call, token)
                except BaseException as error:  # noqa: BLE001 - raised after the rest
                    interruption = error
        finally:
            self.are_made = False
        if interruption is not None:
            raise interruption


_calls = _Calls()


def _refuse_to_wait_for_oneself(state: KeyState, token: AnyToken, overflow: object) -> None:
    if not state.line or token.owner is None or token.owner != state.line[0].owner:
        return
    may_wait = token.follows or len(state.line) <= state.waiters
    if may_wait or overflow is Overflow.REPLACE_OLDEST:
        raise WouldDeadlock(
            f"key {token.key!r}: its owner asks again while it runs, and would wait for itself; "
            "offer() does not wait, and owner=None says that another will dequeue"
        )
