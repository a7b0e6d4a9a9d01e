"""One thread that keeps the workers of a queue supplied.

Who is authoritative: the servers, about what waits and whose it is; :class:`~leaderq.queues.consuming.waiting.Waiting` is this process's
idea of the former, used by this thread only. What watches, workers and answers have to say is put into a queue of news that this thread
takes in between two steps; none of those threads is ever kept waiting.

States: **out** (no member, or no session), **standing** (claims and hands out), **paused** (by the user or an operator, or the connection
is suspended: nothing is claimed or handed out, what is begun goes on), **closing**.

What happens on each failure:

* **session over**: with a lock path all claims are void, and are forgotten unless begun; what is begun cannot be acknowledged any more,
  and another consumer gets it. Without one, claims stand. A new member is made as soon as there is a session;
* **a worker is stuck**: after a second nothing more is claimed, and what was claimed ahead is given back (with a lock path);
* **any other error**, in ZooKeeper or here: logged, a pause, the loop goes on (Curator's F12).
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from leaderq.clock import now_s
from leaderq.errors import ConnectionLost, LeaderqError
from leaderq.queues.consuming import judging
from leaderq.queues.consuming.claim import Claim, Hold
from leaderq.queues.consuming.claiming import Claimed, Claiming
from leaderq.queues.consuming.looking import SCAN_S, Looking
from leaderq.queues.consuming.members import Members
from leaderq.queues.consuming.operations import now_ms
from leaderq.queues.consuming.pausing import Pausing
from leaderq.queues.consuming.ready import Ready
from leaderq.queues.consuming.settling import Part, settle
from leaderq.queues.consuming.waiting import Waiting
from leaderq.queues.places import Places
from leaderq.queues.wire.kinds import Kind
from leaderq.queues.wire.names import sort_key
from leaderq.zookeeper import Session, SessionState

log = logging.getLogger(__name__)

START_S = 10.0
STUCK_S = 1.0
GRACE_S = 0.05
DEPTH = 4
MAX_BATCH = 250
_STEAL = 64
_AFTER_ERROR_S = 0.5
_AFTER_LOSS_S = 0.1


class Engine:
    """See the module. ``workers``: how many may be busy at a time; 0: items are taken on request."""

    def __init__(self, session: Session, places: Places, kind: Kind, name: str, workers: int, slack: int) -> None:
        self._session = session
        self._places = places
        self._name = name
        self._workers = workers
        self._woken = threading.Event()
        self._finished: deque[tuple[Part, LeaderqError | None, Any]] = deque()
        self._done: deque[list[str]] = deque()
        self._waiting = Waiting(kind)
        self.ready = Ready(sort_key(kind), self._may_begin, self._woken.set, slack=slack)
        self._looking = Looking(session, places, kind, self._waiting, stirred=self._woken.set, created=self.ready.has_come)
        self._members = Members(session, places, name, self._woken.set)
        self.pausing = Pausing(session, places, self._stirred)
        self._hold: Hold | None = None
        self._session_id: int | None = None
        self._underway: deque[Claiming] = deque()
        self._underway_names = 0
        self._steal_at: float | None = None
        self._is_stealing = False
        self.is_closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"leaderq-queue-{name}", daemon=True)
        self.on_state: Callable[[SessionState], object] | None = None
        self._states: deque[SessionState] = deque()

    # -- its life -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin; returns when this consumer stands among the others. Raises what prevents that; a connection that breaks only
        does so after :data:`START_S`."""
        self._session.add_listener(self._heard)
        end = now_s() + START_S
        try:
            while True:
                try:
                    self._session.ensure_path(self._places.path)
                    self._enter()
                    break
                except ConnectionLost:
                    if now_s() >= end:
                        raise
                    self.is_closing.wait(_AFTER_LOSS_S)
        except BaseException:
            self._session.remove_listener(self._heard)
            raise
        self._thread.start()

    def close(self, timeout_s: float, join_workers: Callable[[float], bool]) -> bool:
        """Stop claiming, let what is begun be finished, give back the rest; whether all of that was done in ``timeout_s``."""
        end = now_s() + timeout_s
        self.is_closing.set()
        self._woken.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)
        hold = self._hold
        if hold is not None and hold.is_locking:
            self._give_back(self.ready.drain())
        self.ready.close()
        is_clean = join_workers(max(0.0, end - now_s()))
        self._give_back(self.ready.drain())
        self._looking.close()
        self.pausing.close()
        self._session.remove_listener(self._heard)
        if hold is None:
            return is_clean
        if not is_clean:  # a worker is still at it: what it has in hand is its own until it is done
            threading.Thread(
                target=self._leave_later, args=(hold, join_workers), name="leaderq-queue-close", daemon=True
            ).start()
            return False
        return self._members.leave(hold, max(0.5, end - now_s()))

    def _leave_later(self, hold: Hold, join_workers: Callable[[float], bool]) -> None:
        while not join_workers(60.0):
            continue
        self._members.leave(hold, 5.0)

    # -- for workers and takers -----------------------------------------------------------------------------------------

    def settle(self, parts: Sequence[Part]) -> None:
        """Write what has become of items; never blocks."""
        done = [part.claim.name for part in parts if not part.operations and part.what == "acknowledged"]
        if done:  # without a lock path nothing is to be written, and this is all there is to tell
            self._done.append(done)
            if self.ready.takers or not self.ready:
                self._woken.set()
        if len(done) < len(parts):
            settle([part for part in parts if part.operations or part.what != "acknowledged"], self._told)

    def is_ours(self, claim: Claim) -> bool:
        """Whether a claim still stands, as far as is known here."""
        hold = claim.hold
        return not (hold.is_locking and (hold.tally.is_over or hold is not self._hold))

    def _told(self, part: Part, error: LeaderqError | None, results: Any) -> None:
        """On any thread: what was written, or not."""
        self._finished.append((part, error, results))
        if self.ready.takers or not self.ready or part.what != "acknowledged":
            self._woken.set()

    def _may_begin(self) -> bool:
        """Asked under the lock of what is ready: may anything be handed out?"""
        return self._session.state is SessionState.CONNECTED and not self.pausing.is_paused

    def _stirred(self) -> None:
        self._woken.set()
        self.ready.nudge()

    def _heard(self, state: SessionState) -> None:
        self._states.append(state)
        self._woken.set()

    # -- the thread -----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self.is_closing.is_set():
            try:
                self._round()
            except ConnectionLost as exc:
                log.debug("queue %s: %s", self._places.path, exc)
                self._looking.spoil()
                self._woken.wait(_AFTER_LOSS_S)
            except Exception:
                log.exception("queue %s: something went wrong; the consumer goes on", self._places.path)
                self._looking.spoil()
                self.is_closing.wait(_AFTER_ERROR_S)
        for claiming in self._underway:
            self._claimed(claiming.finish())

    def _round(self) -> None:
        self._woken.clear()
        self._tell_states()
        self._note_finished()
        if self._session.state is not SessionState.CONNECTED:
            self._woken.wait(SCAN_S)
            return
        hold = self._standing()
        self._members.refresh(hold)
        self.pausing.refresh()
        came = self.ready.came  # before the news is heeded: what comes later is not among it
        self._looking.heed()
        if self.pausing.is_paused:
            self._woken.wait(SCAN_S)
            return
        self._give_back_if_stuck(hold)
        self._refresh(came)
        self._claim(hold)

    def _tell_states(self) -> None:
        while self._states:
            state = self._states.popleft()
            self.ready.nudge()
            if state is not SessionState.CONNECTED:
                self._looking.spoil()
            if self.on_state is not None:
                try:
                    self.on_state(state)
                except Exception:
                    log.exception("the consumer failed on hearing of %s; the queue goes on", state.name)

    def _note_finished(self) -> None:
        """Free the names of what is settled, and let rest what was put back."""
        freed: list[str] = []
        while self._done:
            freed += self._done.popleft()
        while self._finished:
            part, error, results = self._finished.popleft()
            name = part.claim.name
            if error is not None:
                log.warning("item %s could not be %s: %s", name, part.what, error)
                self._looking.spoil()
                if self._free_lock(part, error):
                    continue
            elif part.what == "kept":
                continue
            elif part.what == "requeued" and (created := part.created(results)) is not None:
                self._waiting.rest(created, part.rest_until_ms)
            elif part.what == "given back" and part.claim.hold.is_locking:
                self._waiting.give_back([name])
                continue
            freed.append(name)
        self._waiting.drop(freed)

    def _free_lock(self, part: Part, error: LeaderqError) -> bool:
        """An item that was deleted behind our back, or may not be written: its lock must not stand for as long as our session."""
        claim = part.claim
        if (
            part.what == "given back"
            or not claim.hold.is_locking
            or not self.is_ours(claim)
            or isinstance(error, ConnectionLost)
        ):
            return False
        self.settle([judging.given_back(claim)])
        return True

    # -- standing among the consumers -----------------------------------------------------------------------------------

    def _standing(self) -> Hold:
        if self._hold is not None and self._members.is_standing(self._hold, self._session_id):
            return self._hold
        return self._enter()

    def _enter(self) -> Hold:
        former = self._hold
        if former is not None and former.is_locking:
            self._forget(former)
        self._session_id = self._session.id
        self._hold = hold = self._members.enter()
        self._looking.spoil()
        return hold

    def _forget(self, former: Hold) -> None:
        """The session of these claims is over: they are anybody's."""
        while self._underway:
            self._claimed(self._underway.popleft().finish())
        lost = self.ready.drain(lambda claim: claim.hold is former)
        self._waiting.drop([claim.name for claim in lost])
        log.warning(
            "queue %s: the session of this consumer is over; %d items claimed ahead go to others",
            self._places.path,
            len(lost),
        )
        former.tally.close(0.0)

    # -- claiming -------------------------------------------------------------------------------------------------------

    def _claim(self, hold: Hold) -> None:
        wanted = self._wanted()
        names = self._names(wanted) if wanted > 0 else []
        if names:
            self._underway.append(Claiming(self._session, hold, names, self.is_closing.is_set))
            self._underway_names += len(names)
        if self._underway and (not names or len(self._underway) >= DEPTH):
            self._claimed(self._underway.popleft().finish())
        elif not names:
            self._rest(wanted)

    def _refresh(self, came: Any) -> None:
        """Let go on what was held back for a newcomer, once that is ready, or somebody else's."""
        if came is not None and not self._underway:
            self.ready.refreshed(came, self._waiting.first_key(now_ms()))

    def _wanted(self) -> int:
        """How many more to claim now."""
        ready, takers = len(self.ready), self.ready.takers
        if self.ready.is_overtaken:
            return 1
        if not takers and (not self._workers or self.ready.busy_s() > STUCK_S):
            return 0
        lock_less_pull = not self._workers and not self._places.lock_path
        target = takers if lock_less_pull else self.ready.appetite(max(self._workers, takers))
        room = target - ready - self._underway_names
        # Small claims cost as much as large ones: with plenty ready, wait until a good many can be claimed at once.
        return min(room, MAX_BATCH) if room >= min(MAX_BATCH, target) // 2 or not ready + self._underway_names else 0

    def _names(self, wanted: int) -> list[str]:
        share = self._members.share
        names = self._waiting.take(wanted, now_ms(), share)
        if names or self._underway:
            return names
        if self._waiting.has_others:
            return self._steal(wanted)
        if self._looking.is_stale:
            self._looking.look()
            self._steal_at = None
            names = self._waiting.take(wanted, now_ms(), share)
        return names

    def _steal(self, wanted: int) -> list[str]:
        """What is others' share: look whether it still lies there after a moment; then take it, until there is none left."""
        if not self._is_stealing:
            if self._steal_at is None:
                self._steal_at = now_s() + GRACE_S
            if now_s() < self._steal_at:
                return []
            self._looking.look()
            if names := self._waiting.take(wanted, now_ms(), self._members.share):
                self._steal_at = None
                return names
            self._is_stealing = True
        names = self._waiting.take_of_others(min(wanted, _STEAL))
        if not self._waiting.has_others:
            self._is_stealing, self._steal_at = False, None
        return names

    def _claimed(self, found: Claimed) -> None:
        self._underway_names = max(
            0, self._underway_names - sum(map(len, (found.claims, found.resting, found.gone, found.locked, found.again)))
        )
        for name, until in found.resting.items():
            self._waiting.rest(name, until)
        self._waiting.drop(found.gone)
        self._waiting.give_back(found.again)
        if found.locked:
            self._looking.hold(found.locked)
        if found.claims:
            self._looking.heed()  # what came meanwhile may go before these
            self.ready.put(found.claims, before=self._waiting.first_key(now_ms()))

    def _give_back_if_stuck(self, hold: Hold) -> None:
        if hold.is_locking and self.ready.has_unbegun and self.ready.busy_s() > STUCK_S:
            claims = self.ready.drain()
            log.info("queue %s: the consumer is slow; %d items claimed ahead go back", self._places.path, len(claims))
            self._give_back(claims)

    def _give_back(self, claims: Sequence[Claim]) -> None:
        if claims:
            self.settle([judging.given_back(claim) for claim in claims])

    def _rest(self, wanted: int) -> None:
        """Wait for news, or for the time at which something is due."""
        wait_s = SCAN_S
        if wanted > 0 or self.ready.takers:
            due = self._waiting.next_ms()
            if due is not None:
                wait_s = min(wait_s, max(0.0, (due - now_ms()) / 1000))
            if self._steal_at is not None:
                wait_s = min(wait_s, max(0.0, self._steal_at - now_s()))
        if self.ready.has_unbegun and not self.ready.takers:
            wait_s = min(wait_s, STUCK_S)
        if wait_s > 0 and not self._finished and not self._looking.has_news:
            self._woken.wait(wait_s)
