"""The keys of a coordinator that share one lock.

There is no lock for all keys: a key belongs to one of 64 stripes (or as many as wished), each with a lock and dictionaries
of its own. The lock is held for about a microsecond, never while anything is waited for or a function of the user's runs
(but ``__hash__`` and ``__eq__`` of keys).

*With or without a GIL:* lanes, dictionaries and counters are touched under the stripe's lock only, whatever the interpreter.
Read without it are ``Token.stage``, one reference, old or new, and the outbox, a ``deque``, each of whose operations is
atomic in either build.

*Interrupts:* the lock is taken by ``with`` only, which an interrupt cannot cut in two; what it leaves half done inside, the
next event on the key completes (see :mod:`leaderq.coalescing.traffic`). Signal handlers and finalizers (``__del__``) must
not call a coordinator: they may run while their own thread holds the lock.
"""

from __future__ import annotations

import threading
from collections import deque

from leaderq.coalescing.counters import Counts, KeyCounters
from leaderq.coalescing.lane import Lane, Pace
from leaderq.coalescing.outcome import Refusal
from leaderq.coalescing.results import Result
from leaderq.coalescing.rules import Merging, Rules
from leaderq.coalescing.token import Key, Stage, Token
from leaderq.coalescing.traffic import AnyToken, BellMaker, Hooks, Traffic
from leaderq.errors import CoordinatorClosed

_RUNNING, _ENDED = Stage.RUNNING, Stage.ENDED


class Stripe(Traffic[Key]):
    """See the module."""

    __slots__ = ("_lock", "_lost", "_waiters")

    def __init__(self, rules: Rules, hooks: Hooks) -> None:
        super().__init__(rules, hooks)
        self._lock = threading.Lock()
        self._waiters = rules.waiters
        self._lost: deque[Token[Key]] = deque()

    def enter(self, token: Token[Key], bell: BellMaker | None = None) -> None:
        """Let the request run, wait, follow or be declined: its stage says which. If it is still ASKING, it is to be merged.

        :param bell: makes what wakes the request if it waits; without, it is declined rather than wait.
        :raises CoordinatorClosed: it is.
        :raises WouldDeadlock: the owner of the head would wait for itself.
        """
        with self._lock:
            if self.is_closed:
                raise CoordinatorClosed(f"key {token.key!r}: the coordinator was closed")
            lane = self.lanes.get(token.key)
            if lane is None:
                lane = self.lanes[token.key] = Lane(self._waiters) if self.is_plain else self.make_lane(token.key)
            if not lane.line and lane.pace is None:
                lane.enqueue(token)
                if self.is_timed:
                    self.begin(lane, token)
                else:  # the same, without the call: this is the way that has to be fast
                    self.runs = token.number = self.runs + 1
                    lane.runs += 1
                    token.stage = _RUNNING
                return
            self._take_lost(lane)
            self.contend(lane, token, bell)
        self.deliver()

    def make_lane(self, key: Key) -> Lane:
        """The automaton of a key that nobody works on: the one kept, or a new one."""
        lane = self.idle.pop(key, None) or Lane(self._waiters)
        if self.rules.debounce and lane.pace is None:
            quiet = Token(key, None, None, self)
            quiet.stage = _RUNNING
            lane.pace = Pace(self.rules.debounce, quiet)
        return lane

    def leave(self, token: Token[Key], result: Result | None = None) -> bool:
        """The request is over: it ran, or waits no more. Whether it was current; if not, nobody else is disturbed."""
        with self._lock:
            lane = self.lanes.get(token.key)
            was_current = token.stage is _RUNNING
            if was_current and lane is not None and len(lane.line) == 1 and token.followers is None:
                token.stage = _ENDED
                lane.dequeue(token)
                if self.is_plain and not self.is_closed:
                    del self.lanes[token.key]
                    return True
                self.retire(lane, token.key)
            else:
                self.depart(lane, token, result)
                if lane is not None:
                    self.settle(lane, token.key)
        self.deliver()
        return was_current

    def withdraw(self, token: Token[Key]) -> None:
        """The request waits no more, unless its wait is over already."""
        with self._lock:
            self._take_lost()
            if token.stage.is_pending:
                lane = self.lanes.get(token.key)
                self.depart(lane, token, None)
                if lane is not None:
                    self.settle(lane, token.key)
        self.deliver()

    def lose(self, token: Token[Key]) -> None:
        """The request is over, and perhaps it is the garbage collector that says so. The only thing here that a finalizer
        may call: it may strike while its own thread holds the lock."""
        self._lost.append(token)
        if (
            not self._lock.locked()
        ):  # so this thread does not hold it; if another one does, the next event on a key does this
            self.tend(token.key)

    def _take_lost(self, in_use: Lane | None = None) -> None:
        while self._lost:
            token = self._lost[0]
            lane = self.lanes.get(token.key)
            self.depart(lane, token, None)
            if lane is not None:
                self.settle(lane, token.key, retires=lane is not in_use)
            self._lost.popleft()

    def merge(self, token: Token[Key], merging: Merging, bell: BellMaker) -> None:
        """Give the newest waiting request both values, if it still waits when they are merged; else the token is still
        ASKING."""
        with self._lock:
            newest = self.newest_waiting(token.key)
            value = newest.value if newest is not None else None
        if newest is None:
            return
        merged = merging(value, token.value)
        with self._lock:
            lane = self.lanes.get(token.key)
            if lane is not None and newest is self.newest_waiting(token.key) and newest.value is value:
                newest.value = merged
                self.decline(lane, token, Refusal.MERGED, newest, bell)

    def tend(self, key: Key) -> float | None:
        """Evict an overdue head, end a quiet that is over; gives when this key is to be looked at again, if so."""
        due_s = None
        with self._lock:
            self._take_lost()
            lane = self.lanes.get(key)
            if lane is not None:
                lane.is_watched = True  # by who calls this
                self.settle(lane, key)
                due_s = lane.due_s(self.rules.safe_timeout_s)
                lane.is_watched = due_s is not None
        self.deliver()
        return due_s

    def sweep(self) -> None:
        """Tend all keys, and forget those that were idle for too long."""
        with self._lock:
            keys = list(self.lanes)
            if self.rules.idle is not None and self.rules.idle.idle_s is not None:
                self.forget_idle_since(self.hooks.clock() - self.rules.idle.idle_s)
        for key in keys:
            self.tend(key)

    def close(self) -> None:
        """Take no further request; whoever waits for quiet runs as soon as it may."""
        with self._lock:
            self.is_closed = True
        self.sweep()

    def abandon_all(self) -> list[AnyToken]:
        """All who wait are told that they will not run; gives those who run."""
        with self._lock:
            for key, lane in list(self.lanes.items()):
                self.abandon(lane, key)
            heads = [lane.line[0] for lane in self.lanes.values() if lane.line]
        self.deliver()
        return heads

    def is_pending(self, token: Token[Key]) -> bool:
        """Whether it is, once the change that another thread may be in the midst of has come about."""
        with self._lock:
            return token.stage.is_pending

    def deliver(self) -> None:
        """Ring what is to be rung by now; whoever adds more rings it. Never under the lock."""
        for _ in range(len(self.outbox)):
            try:
                bell, token = entry = self.outbox[0]
            except IndexError:
                break
            bell.ring(token)
            try:
                self.outbox.remove(entry)  # after the ring, so that an interrupt cannot lose it
            except (ValueError, IndexError):
                pass  # another thread rang it too
        if self.is_closed and not self.lanes:
            self.hooks.emptied()

    def line(self, key: Key) -> tuple[AnyToken, ...]:
        """Who stands in line for a key; the head first, and the quiet is one."""
        with self._lock:
            lane = self.lanes.get(key)
            return lane.line if lane is not None else ()

    def counters_of(self, key: Key) -> KeyCounters | None:
        """Of a key that is not forgotten."""
        with self._lock:
            lane = self.lanes.get(key) or self.idle.get(key)
            return KeyCounters(runs=lane.runs, blocked=lane.blocked, declined=lane.declined) if lane is not None else None

    def reading(self) -> tuple[Counts, int, int, int]:
        """What was counted; keys worked on, requests waiting, keys kept idle."""
        with self._lock:
            lines = [lane.line[lane.is_quiet :] for lane in self.lanes.values()]
            running = sum(1 for lane in self.lanes.values() if lane.line and not lane.is_quiet)
            counts = self.counts + Counts(runs=self.runs)
            return counts, running, sum(map(len, lines)) - running, len(self.idle)
