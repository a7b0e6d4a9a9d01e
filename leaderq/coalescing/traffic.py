"""What happens to the keys of one stripe: all changes of lanes and tokens. The caller holds the stripe's lock, and rings the
bells afterwards.

Each change is one assignment, and they come in an order such that :meth:`Traffic.settle`, which runs with every contended
event on a key, completes what an interrupt (Ctrl-C falls between any two bytecodes) left half done:

* a token's stage says that it left before it leaves the line: one in line that is over is taken out;
* a request stands in line before it is told that it runs: a head that is still pending is told (again);
* a bell is put into the outbox before the stage says so: who is woken too early looks again, and who is called is so later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic

from leaderq.coalescing.bells import Bell, CallBell
from leaderq.coalescing.counters import Counts
from leaderq.coalescing.lane import Lane
from leaderq.coalescing.outcome import Outcome, Refusal
from leaderq.coalescing.results import Result
from leaderq.coalescing.rules import Overflow, Rules
from leaderq.coalescing.token import Key, Stage, Token
from leaderq.errors import WouldDeadlock

AnyToken = Token[Any]
BellMaker = Callable[[], Bell]


@dataclass(frozen=True, slots=True)
class Hooks:
    """What a stripe needs done by others."""

    clock: Callable[[], float]
    watch: Callable[[float, Any], object]
    """Look at this key at this time."""
    emptied: Callable[[], object]
    """Called when a closed stripe has nobody left."""
    on_evicted: Callable[[AnyToken], object] | None


class Traffic(Generic[Key]):
    """See the module."""

    __slots__ = ("counts", "hooks", "idle", "is_closed", "is_plain", "is_timed", "lanes", "outbox", "rules", "runs")

    def __init__(self, rules: Rules, hooks: Hooks) -> None:
        self.rules = rules
        self.hooks = hooks
        self.is_timed = rules.safe_timeout_s is not None or rules.debounce is not None
        self.is_plain = rules.idle is None and rules.debounce is None
        self.is_closed = False
        self.runs = 0
        """Runs begun, and the number of the last: rises from run to run of a key, whatever is forgotten of it."""
        self.counts = Counts()
        self.lanes: dict[Key, Lane] = {}
        self.idle: dict[Key, Lane] = {}
        """Kept although nobody works on them, the longest idle first."""
        self.outbox: deque[tuple[Bell, AnyToken]] = deque()
        """Bells to be rung once the lock is free."""

    def begin(self, lane: Lane, token: AnyToken) -> None:
        """The token's run begins."""
        self.runs = token.number = self.runs + 1
        if self.is_timed:
            token.began_s = self.hooks.clock()
            if lane.pace is not None:
                lane.pace.first_s = None
        lane.runs += 1
        token.stage = Stage.RUNNING

    def contend(self, lane: Lane, token: Token[Key], bell: BellMaker | None) -> None:
        """A request to a key that somebody works on, or that is debounced."""
        self.settle(lane, token.key, retires=False)
        if bell is None and (lane.line or lane.pace is not None):
            self.decline(lane, token, Refusal.BUSY)
            self.settle(lane, token.key)
            return
        if lane.pace is not None:
            lane.pace.request_came(self.hooks.clock())
            if not lane.line:
                lane.enqueue(lane.pace.quiet)
        _refuse_to_wait_for_oneself(lane, token, self.rules.overflow)
        outcome = lane.enqueue(token)
        if outcome is Outcome.ACCEPT:
            self.begin(lane, token)
        elif bell is not None and outcome is Outcome.BLOCK:
            self._let_wait(lane, token, bell)
        elif bell is not None:
            self._overflow(lane, token, bell)

    def _let_wait(self, lane: Lane, token: Token[Key], bell: BellMaker) -> None:
        token.bell = bell()
        token.stage = Stage.WAITING
        lane.blocked += 1
        self.counts.blocked += 1
        self._watch(lane, token.key)

    def _overflow(self, lane: Lane, token: Token[Key], bell: BellMaker) -> None:
        if self.rules.overflow is Overflow.DECLINE_NEW:
            self.decline(lane, token, Refusal.FULL, lane.line[-1], bell)
            self._watch(lane, token.key)
        elif self.rules.overflow is Overflow.REPLACE_OLDEST:
            displaced = lane.line[1]
            token.covers += displaced.covers
            token.followers, displaced.followers = displaced.followers, None
            self.decline(lane, displaced, Refusal.REPLACED, token, bell)
            lane.displace(token)  # after it was told: nobody is left who waits for nothing
            self._let_wait(lane, token, bell)

    def decline(
        self, lane: Lane, token: AnyToken, refusal: Refusal, covering: AnyToken | None = None, bell: BellMaker | None = None
    ) -> None:
        """The token does not run; ``covering`` does its work, and gives it the result if it wants one."""
        if covering is not None and lane.waiters:
            covering.covers += 1
        lane.declined += 1
        self._count(refusal)
        token.refusal = refusal
        if covering is not None and token.follows:
            token.bell = token.bell or (bell() if bell else None)
            token.stage = Stage.FOLLOWING
            if covering.followers is None:
                covering.followers = []
            covering.followers.append(token)
        else:
            if token.bell is not None:
                self.outbox.append((token.bell, token))
            token.stage = Stage.DECLINED

    def _count(self, refusal: Refusal) -> None:
        counts = self.counts
        if refusal is Refusal.FULL:
            counts.declined += 1
        elif refusal is Refusal.REPLACED:
            counts.replaced += 1
        elif refusal is Refusal.MERGED:
            counts.merged += 1
        else:
            counts.busy += 1

    def depart(self, lane: Lane | None, token: AnyToken, result: Result | None, stage: Stage = Stage.WITHDRAWN) -> None:
        """The token leaves the line, if it stands in it; who follows it gets the result, or asks again if there is none."""
        if token.stage.is_pending:
            self.counts.withdrawn += stage is Stage.WITHDRAWN
            token.stage = stage
        elif token.stage is Stage.RUNNING:
            token.stage = Stage.ENDED
        if lane is None:
            return
        _stop_following(lane, token)
        lane.dequeue(token)
        self._dismiss_followers(token, result)

    def _dismiss_followers(self, token: AnyToken, result: Result | None, stage: Stage = Stage.ORPHANED) -> None:
        for follower in token.followers or ():
            if follower.stage is not Stage.FOLLOWING:
                continue
            follower.result = result
            if follower.bell is not None:
                self.outbox.append((follower.bell, follower))
            follower.stage = stage if result is None else Stage.SHARED
            self.counts.shared += result is not None
            self.counts.orphaned += follower.stage is Stage.ORPHANED
        token.followers = None

    def abandon(self, lane: Lane, key: Key) -> None:
        """Whoever waits or follows is told that it will not run."""
        for token in reversed(lane.line):
            self._dismiss_followers(token, None, Stage.ABANDONED)
            if token.stage is Stage.WAITING:
                self.outbox.extend([(token.bell, token)] if token.bell else ())
                self.counts.abandoned += 1
                self.depart(lane, token, None, Stage.ABANDONED)
        self.settle(lane, key)

    def settle(self, lane: Lane, key: Key, *, retires: bool = True) -> None:
        """Do all that is due on this key: nothing, mostly; see the module."""
        now = self.hooks.clock() if self.is_timed else 0.0
        while lane.line and self._settle_head(lane, lane.line[0], now):
            pass
        if not lane.line and retires:
            self.retire(lane, key)
        else:
            self._watch(lane, key)

    def _settle_head(self, lane: Lane, head: AnyToken, now: float) -> bool:
        """Whether there is now another head to look at."""
        if lane.is_quiet:
            if len(lane.line) > 1 and not self._may_follow_quiet(lane, now):
                return False
            lane.dequeue(head)
        elif head.stage.is_pending:
            if not self._may_follow_quiet(lane, now):
                lane.put_quiet_first()
            else:
                self.counts.promoted += 1
                if head.bell is not None:
                    self.outbox.append((head.bell, head))
                self.begin(lane, head)
        elif head.stage is not Stage.RUNNING:
            self.depart(lane, head, None)
        elif lane.is_head_overdue(self.rules.safe_timeout_s, now):
            self._evict(lane, head)
        else:
            return False
        return True

    def _may_follow_quiet(self, lane: Lane, now: float) -> bool:
        return self.is_closed or lane.is_next_due(now)

    def _evict(self, lane: Lane, head: AnyToken) -> None:
        self.counts.evicted += 1
        for listener in (head.on_evicted, self.hooks.on_evicted):
            if listener is not None:
                self.outbox.append((CallBell(listener), head))
        head.stage = Stage.EVICTED
        self.depart(lane, head, None)

    def retire(self, lane: Lane, key: Key) -> None:
        """Nobody works on the key any more."""
        if self.rules.idle is None:
            self.lanes.pop(key, None)
            return
        lane.idle_since_s = self.hooks.clock()
        lane.is_watched = False
        if lane.pace is not None:
            lane.pace.first_s = None
        self.idle[key] = lane
        self.lanes.pop(key, None)
        while len(self.idle) > self.rules.idle.cap // self.rules.stripes:
            del self.idle[next(iter(self.idle))]
            self.counts.forgotten += 1

    def forget_idle_since(self, before_s: float) -> None:
        """Forget the keys that were idle then already."""
        for key in [key for key, lane in self.idle.items() if lane.idle_since_s <= before_s]:
            del self.idle[key]
            self.counts.forgotten += 1

    def newest_waiting(self, key: Key) -> AnyToken | None:
        """Whoever came last of those who wait for this key."""
        lane = self.lanes.get(key)
        return lane.line[-1] if lane is not None and len(lane.line) > 1 else None

    def _watch(self, lane: Lane, key: Key) -> None:
        due_s = lane.due_s(self.rules.safe_timeout_s)
        if due_s is not None and not lane.is_watched:
            self.hooks.watch(due_s, key)
            lane.is_watched = True


def _refuse_to_wait_for_oneself(lane: Lane, token: AnyToken, overflow: object) -> None:
    if not lane.line or token.owner is None or token.owner != lane.line[0].owner:
        return
    if token.follows or len(lane.line) <= lane.waiters or overflow is Overflow.REPLACE_OLDEST:
        raise WouldDeadlock(
            f"key {token.key!r}: its owner asks again while it runs, and would wait for itself; "
            "offer() does not wait, and owner=None says that another will dequeue"
        )


def _stop_following(lane: Lane, token: AnyToken) -> None:
    if token.follows and token.refusal is not None:
        for covering in lane.line:
            if covering.followers and token in covering.followers:
                covering.followers = [follower for follower in covering.followers if follower is not token] or None
