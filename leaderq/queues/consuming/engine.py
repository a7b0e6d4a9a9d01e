"""One thread that keeps the workers of a queue supplied.

The servers are authoritative about which items wait and whose they are;
:class:`~leaderq.queues.consuming.pending.PendingNames` is this process's idea of the former, used
by this thread only. Whoever has news for it (watches, workers, answers) leaves them in its inbox,
which it reads between two steps; so nobody ever waits for it.

States: **out** (no member, or no session), **standing** (claims and hands out), **paused** (by the
user or an operator, or the connection is suspended: nothing is claimed or handed out, what is begun
goes on), **closing**.

What happens on each failure:

* **session over**: with a lock path all claims are void, and are forgotten unless begun; what is
  begun cannot be acknowledged any more, and another consumer gets it. Without one, claims stand. A
  new member is made as soon as there is a session;
* **the process is frozen**: with a lock path nothing is begun when it goes on, no further value of
  a znode and no further attempt either, before it is certain that the session is not over;
* **a worker hangs**: after a second nothing more is claimed, and what was claimed ahead is
  released (with a lock path);
* **any other error**: logged, a pause, the loop goes on (Curator's F12).
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from leaderq.base import chance, clock, host
from leaderq.base.timeouts import Deadline
from leaderq.engine.members import OTHERS_S, Membership
from leaderq.engine.reading_ahead import RowsAhead
from leaderq.errors import (
    ConnectionLost,
    FromOutside,
    LeaderqError,
    NodeExists,
    NoNode,
    QueueClosed,
)
from leaderq.observability.figures import QueueFigures
from leaderq.queues.consumers import QueueConsumer, QueueOptions
from leaderq.queues.consuming import items
from leaderq.queues.consuming.items import (
    TROUBLE_S,
    Claim,
    ClaimResult,
    ItemOutcome,
    ItemSettlement,
    claim,
    judged,
)
from leaderq.queues.consuming.listing import SCAN_S, QueueListing
from leaderq.queues.consuming.members import PauseSwitch, QueueMembers
from leaderq.queues.consuming.pending import PendingNames
from leaderq.queues.consuming.prefetch import Prefetch
from leaderq.queues.wire.names import QueueKind, sort_key
from leaderq.queues.wire.znodes import QueuePaths
from leaderq.threads import Service, primitives
from leaderq.zookeeper import Delete, Session, SessionState
from leaderq.zookeeper.reading import SizedReader, existing
from leaderq.zookeeper.retrying import retry_until_connected
from leaderq.zookeeper.writing import SequencedWriter
from leaderq.zookeeper.writing.groups import OperationGroup, estimated_bytes

log = logging.getLogger(__name__)

HANGS_S = 0.15
"""If no worker has asked for so long, items claimed ahead are released."""
MAX_BATCH = 250
MAX_LOCKS = 125
AHEAD_BYTES = 4 << 20
"""Nothing more is claimed while items of that many bytes wait to be begun."""
_NAMES_BYTES = 16 * 1024
"""Of the names of one claim: its multi contains each twice, and once more in the record."""
_MOST_SKIPPED = 5
_COUNTED = {
    ItemOutcome.ACKNOWLEDGED: "acknowledged",
    ItemOutcome.DELETED: "acknowledged",
    ItemOutcome.REQUEUED: "returned",
    ItemOutcome.RELEASED: "returned",
    ItemOutcome.SET_ASIDE: "dead_letters",
}
JoinWorkers = Callable[[float | None], bool]
_AFTER_ERROR_S = 0.5
_AFTER_LOSS_S = 0.1


class Engine:
    """Supplies the workers of one queue; see the module. ``workers``: how many may be busy at a
    time; 0: items are taken on request.
    """

    def __init__(
        self,
        session: Session,
        paths: QueuePaths,
        kind: QueueKind,
        name: str,
        options: QueueOptions[Any],
        workers: int,
    ) -> None:
        self._session, self._paths, self.path = session, paths, paths.path
        self._pid, self._workers, self.options = host.pid(), workers, options
        self._is_shared_out = kind in (QueueKind.PLAIN, QueueKind.ID)
        self._is_simple = kind is QueueKind.SIMPLE
        self.is_locking = paths.lock_path is not None
        self._losses = 0
        """Claims in a row whose items others had: of a lost one it is known at once, so that the
        same loss is not counted again at the next look.
        """
        self._service = Service(f"leaderq-queue-{name}", self._run)
        self._inbox: deque[Callable[[], object]] = deque()
        self._has_failed = False
        """Whether a settlement has, since it was last asked for."""
        self.figures = QueueFigures(paths.path, self._live)
        self._waiting = PendingNames(kind)
        self.is_closing = primitives.Event()
        self._ahead = RowsAhead(SizedReader(session, paths.path), self.is_closing.is_set)
        wake = self._service.wake
        slack, most = options.min_items_before_refresh, options.claim_ahead
        self.ready = Prefetch(sort_key(kind), self._may_begin, wake, slack, most, max(1, workers))
        come = self.ready.has_come
        self._listing = QueueListing(session, paths, kind, self._waiting, self._ahead, wake, come)
        self._members = QueueMembers(session, paths, name, wake)
        self.pause_switch = PauseSwitch(session, paths, self.notify)
        self._membership: Membership | None = None
        self._per_znode = 1.0  # values, in what was claimed last
        self.give_back_idle: Callable[[], bool] = bool
        """Gives back values of znodes that nobody takes; returns whether any are left."""

    def start(self) -> None:
        """Begin to consume; returns when this consumer is a member of the queue, or raises what
        prevents that.
        """
        self._session.add_listener(self._on_state)
        try:
            self._enter()
        except BaseException:
            self._session.remove_listener(self._on_state)
            raise
        self._service.start()

    def close(self, timeout_s: float, join_workers: JoinWorkers) -> bool:
        """Stop claiming, let begun items be finished, release the rest; return whether all of that
        was done in ``timeout_s``.
        """
        deadline = Deadline(timeout_s)
        self.is_closing.set()
        self._service.stop(timeout_s)
        membership = self._membership
        if self.is_locking:
            self._release(self.ready.drain())
        self.ready.close()
        is_clean = join_workers(deadline.remaining_s) and self._service.stop(deadline.remaining_s)
        self._release(self.ready.drain())
        self._listing.close()
        self.pause_switch.close()
        self._members.close()
        self._session.remove_listener(self._on_state)
        if membership is None:
            return is_clean
        # What a worker or a claim is busy with is not to be touched yet; and what is released while
        # there is no connection must be, once there is one: the session may last for long. So are
        # the locks of what was taken and is not settled, because nobody can settle it any more.
        is_all = not (self.is_locking and not self._workers and self._waiting.in_hand)
        left_s = max(0.5, deadline.left_s(timeout_s))
        if not (is_clean and is_all and membership.writer.flush(left_s)):

            def leave_later(_service: Service) -> None:
                while not (join_workers(60.0) and self._service.stop(60.0)):
                    continue
                while not membership.writer.flush(60.0):
                    continue
                if not is_all:
                    self._read_inbox()
                    self._free(membership, self._waiting.in_hand)
                self._members.leave(membership, 5.0)

            Service("leaderq-queue-close", leave_later).start()
            return False
        is_clean = self._members.leave(membership, max(0.5, deadline.left_s(timeout_s)))
        self._has_failed = False
        self._read_inbox()
        return is_clean and not self._has_failed

    def _free(self, membership: Membership, names: Collection[str]) -> None:
        """Delete the locks of these, unless others have them since."""
        locks = [*map(self._paths.lock, names)]
        with suppress(LeaderqError):  # then they go with the session
            found = retry_until_connected(partial(existing, self._session, locks))
            for path, (data, _) in found.items():
                if data == membership.mark.encode():
                    membership.writer.submit([Delete(path)])

    def settle(self, settlements: Sequence[ItemSettlement]) -> None:
        """Send the settlements of items that were handed out to their writers; never blocks."""
        counts = Counter[str]()
        for settlement in settlements:
            if (what := _COUNTED.get(settlement.outcome)) is not None:
                counts[what] += settlement.claim.count
        for what, count in counts.items():
            self.figures.add(what, count)
        self._send(settlements)

    def _send(self, settlements: Sequence[ItemSettlement]) -> None:
        by_writer: dict[SequencedWriter, list[OperationGroup]] = {}
        for settlement in settlements:
            writer = settlement.claim.membership.writer
            if settlement.is_return and not settlement.rest_until_ms:
                # what is ready behind it waits for it
                name = settlement.claim.name
                self._inbox.append(partial(self._waiting.returns, name))
                self.ready.has_come(name)
            if settlement.operations:
                settlement.size = estimated_bytes(settlement.operations, writer.chroot_bytes)
                settlement.told = self._on_settled
                by_writer.setdefault(writer, []).append(settlement)
            elif self.is_locking:
                self._on_settled([settlement])
        for writer, of_one in by_writer.items():
            writer.send(of_one)

    def is_ours(self, claim: Claim) -> bool:
        """Whether a claim still stands, as far as this process knows."""
        membership = claim.membership
        if not self.is_locking:
            return True
        is_present = membership is self._membership and self._members.is_standing(membership)
        return is_present and not claim.is_lost

    def may_be_begun(self, claims: Sequence[Claim]) -> bool:
        """Whether these still stand for certain: when a process goes on that was frozen, workers
        may come before the thread that hears of the end of the session. May wait for a moment.
        """
        if not self.is_locking:
            return not self.is_in_child
        if not all(map(self.is_ours, claims)):
            return False
        return all(one.writer.surely_stands() for one in {one.membership for one in claims})

    @property
    def is_in_child(self) -> bool:
        """Whether this is a copy in a child that the user's code has forked."""
        return host.pid() != self._pid

    def _on_settled(
        self, settlements: list[ItemSettlement], error: LeaderqError | None = None
    ) -> None:
        self._inbox.append(partial(self._settled, settlements, error))
        are_done = all(one.outcome is ItemOutcome.ACKNOWLEDGED for one in settlements)
        if self.ready.wanted or not are_done or not self.ready:
            self._service.wake()

    def _may_begin(self) -> bool:
        """Whether items may be handed out now. Called under the lock of the prefetched items."""
        return self._session.state is SessionState.CONNECTED and not self.pause_switch.is_paused

    def notify(self) -> None:
        self._service.wake()
        self.ready.recheck()

    def _on_state(self, state: SessionState) -> None:
        self._inbox.append(partial(self._tell_state, state))
        self._service.wake()

    def _run(self, service: Service) -> None:
        while not self.is_closing.is_set():
            try:
                self._round()
            except (ConnectionLost, QueueClosed) as exc:
                log.debug("round of a consumer cut short queue=%s error=%s", self.path, exc)
                self._listing.invalidate()
                service.wait(_AFTER_LOSS_S)
            except Exception:
                log.exception("round of a consumer failed, it continues queue=%s", self.path)
                self._listing.invalidate()
                self.is_closing.wait(_AFTER_ERROR_S)
        # nobody waited for this thread: release its claims here
        if self.ready.is_closed:
            self._release(self.ready.drain())

    def _round(self) -> None:
        self._service.wait(0)  # from here on news is looked at, whatever woke us
        came = self.ready.came  # before the news is applied: what comes later is not among it
        self._read_inbox()
        if self._session.state is not SessionState.CONNECTED:
            self._service.wait(SCAN_S)
            return
        membership = self._membership
        if membership is None or not self._members.is_standing(membership):
            membership = self._enter()
        if self._is_shared_out or self.is_locking:
            self._members.refresh()
        self.pause_switch.refresh()
        if self.figures.is_asked(clock.now_s()):
            self.figures.note(clock.now_s(), self._depths())
        self._listing.apply_events()
        if self.pause_switch.is_paused:
            self.give_back_idle()
            asks = self.ready.asks
            self._release_ahead()
            self.ready.answer(asks)
            self._service.wait(SCAN_S)
            return
        if self.ready and self.ready.busy_s() > HANGS_S and not self._is_simple:
            self._release_ahead()
        if came is not None:  # items held back for it may go on
            self.ready.refreshed(came, self._waiting.first_key(clock.now_ms()))
        self._claim(membership)

    def _live(self, counts: Counter[str]) -> dict[str, float]:
        taken = counts["taken"] + self.ready.taken
        ended = counts["acknowledged"] + counts["returned"] + counts["dead_letters"]
        held = max(0, taken - ended)
        return {"taken": taken, "redelivered": self.ready.taken_again, "held": held}

    def _depths(self) -> dict[str, float]:
        paths, now_ms, asks = self._paths, clock.now_ms(), self._session.exists
        first = self._waiting.first(now_ms)
        wanted = (paths.path, paths.lock_path, paths.dead, first and paths.item(first))
        items, locks, dead, head = (asks(path) if path else None for path in wanted)
        in_flight, late = locks.num_children if locks else 0, self._waiting.late(now_ms)
        since_ms = (first and self._waiting.due_ms_of(first)) or (head.ctime_ms if head else now_ms)
        return {
            "ready": max(0, (items.num_children if items else 0) - in_flight - late),
            "delayed": late,
            "in_flight": in_flight,
            "dead": dead.num_children if dead else 0,
            "oldest_due_s": max(0.0, (now_ms - since_ms) / 1000),
        }

    def _read_inbox(self) -> None:
        while self._inbox:
            self._inbox.popleft()()

    def _tell_state(self, state: SessionState) -> None:
        self.ready.recheck()
        if state is not SessionState.CONNECTED:
            self._listing.invalidate()
        try:
            if isinstance(consumer := self.options.consumer, QueueConsumer):
                consumer.state_changed(state)
        except FromOutside:
            raise
        except BaseException:  # SystemExit too: nothing would be claimed any more
            said = "state_changed of the consumer failed, the queue continues state=%s"
            log.exception(said, state.name)

    def _settled(self, settlements: list[ItemSettlement], error: LeaderqError | None) -> None:
        gone = [one.claim.name for one in settlements if self._is_gone(one, error)]
        self._waiting.drop(gone)
        self._members.deaths.settled(gone)

    def _is_gone(self, settlement: ItemSettlement, error: LeaderqError | None) -> bool:
        """Whether the name of this item is of no concern here any more."""
        name, outcome = settlement.claim.name, settlement.outcome
        self._waiting.is_settled(name)
        if error is not None:
            self._has_failed = True
            said = "item not settled queue=%s item=%s outcome=%s error=%s"
            log.warning(said, self.path, name, outcome.value, error)
            self._listing.invalidate()
            if self._has_another_way(settlement, error):
                again = items.released(settlement.claim, is_renamed=outcome is ItemOutcome.RELEASED)
                settlement.claim.is_lost = True
                if not isinstance(error, NoNode | NodeExists):
                    again.rest_until_ms = clock.now_ms() + int(TROUBLE_S * 1000)
                self._send([again])
                return False
        elif outcome is ItemOutcome.KEPT:
            self._members.deaths.settled([name])  # from now on its note tells of them
            return False
        elif settlement.is_return:
            if settlement.rest_until_ms:
                self._waiting.rest(name, settlement.rest_until_ms)
            else:
                self._waiting.release([name])
            return False
        return True

    def _has_another_way(self, settlement: ItemSettlement, error: LeaderqError) -> bool:
        """Whether to release the item in another way after a refusal: with a lock path, its lock
        must not stay as long as our session; without one, the item must not be lost. An item whose
        old name is taken, because the queue was made again, gets a new one.
        """
        if settlement.outcome is ItemOutcome.RELEASED:
            return not self.is_locking and isinstance(error, NodeExists)
        if settlement.outcome is ItemOutcome.KEPT and not self.is_locking:
            return False
        return self.is_ours(settlement.claim) and not isinstance(error, ConnectionLost)

    def _enter(self) -> Membership:
        former = self._membership
        if former is not None and self.is_locking:
            self.figures.add("lost", len(self._waiting.in_hand))
            lost = self.ready.drain(lambda claim: claim.membership is former)
            self._waiting.drop([claim.name for claim in lost])
            phrase = "session over, items claimed ahead go to others queue=%s items=%d"
            log.warning(phrase, self.path, len(lost))
            former.writer.close(0.0)
            self._members.deaths.close()
        self._session.ensure_path(self.path)
        self._membership = membership = self._members.enter()
        self._listing.invalidate()
        return membership

    def _claim(self, membership: Membership) -> None:
        wanted, deaths, in_hand = self._wanted(), self._members.deaths, self._waiting.in_hand
        if deaths.has_suspects and any(map(deaths.is_suspect, in_hand)):
            wanted = 0  # it is alone until it is settled
        count = max(1, int(wanted / self._per_znode))
        names = self._without_suspects(self._names(count)) if wanted > 0 else []
        while len(names) > 1 and sum(map(len, names)) > _NAMES_BYTES:
            half = len(names) // 2
            self._waiting.release(names[half:])
            names = names[:half]
        if not names:
            self._sleep(wanted)
            return
        record, found = deaths.note(in_hand), ClaimResult(again=names)
        try:
            locks = self._listing.ask_locks() if self._losses else None  # else they are known
            rows = self._ahead.read(names)
            held = self._listing.locked(locks)
            found = judged(membership, names, rows, held, max(wanted, 1))
            claim(found, record, self._read_next)
        finally:
            self._claimed(found)

    def _read_next(self) -> None:
        """Begin to read what is likely to be claimed next, unless others are quicker."""
        if not self._losses and (most := self._ahead.room):
            self._ahead.begin(self._waiting.upcoming(most, clock.now_ms()))

    def _without_suspects(self, names: list[str]) -> list[str]:
        """All of ``names`` or, of suspects, one, and only while nothing else is in hand."""
        deaths = self._members.deaths
        suspects = [name for name in names if deaths.has_suspects and deaths.is_suspect(name)]
        if not suspects:
            return names
        chosen = [] if self._waiting.in_hand.difference(names) else suspects[:1]
        self._waiting.release([name for name in names if name not in chosen])
        return chosen

    def _wanted(self) -> int:
        """How many more values to claim now."""
        ready, wanted = self.ready.values, self.ready.wanted
        if self.ready.is_overtaken:  # nothing is handed out while anything is being claimed
            return 1
        if not wanted and (not self._workers or self.ready.busy_s() > HANGS_S):
            return 0
        if self.ready.bytes > AHEAD_BYTES:
            return 0
        ahead = self.options.claim_ahead
        if not self._is_simple:
            ahead = self.ready.appetite() if self._workers or self.is_locking else 0
        target = wanted + ahead
        room = target - ready
        most = min(self._ahead.reader.most, MAX_LOCKS if self.is_locking else MAX_BATCH)
        # Small claims cost as much as large ones: with plenty ready, wait until many can be claimed
        # at once.
        return min(room, most) if room >= min(most, target) // 2 or not ready else 0

    def _names(self, wanted: int) -> list[str]:
        waiting, now_ms = self._waiting, clock.now_ms()
        if self._is_shared_out:
            waiting.share_out(self._members.share, now_ms)
        # Without shares all would be at the same names again, and the quickest get everything.
        steps = min(self._losses, _MOST_SKIPPED) if self._is_simple else 0
        skip = chance.randrange(wanted << steps) if steps else 0
        names = waiting.take(wanted, now_ms, skip=skip, of_others=False)
        if not names:
            asks = self.ready.asks  # before the look that answers them
            if self._listing.stale_in_s <= 0 or asks > self.ready.answered:
                self._listing.look(is_second=self._is_second)
            names = waiting.take(wanted, clock.now_ms(), skip=skip)
            if not names and not waiting.has_returning:
                self.ready.answer(asks)
        return names

    @property
    def _is_second(self) -> bool:
        """Whether others are to go first. Once is not enough: a consumer beside a slow one is
        beaten now and then, and what comes next must not wait for it.
        """
        return self._losses > 1

    def _claimed(self, found: ClaimResult) -> None:
        won = [one.name for one in found.claims]
        is_loss = not won and (found.gone or found.locked)
        self._losses = self._losses + 1 if is_loss else 0
        if found.is_record_gone:
            self._members.deaths.close()  # from now on no death of this consumer is counted
        if not won:  # what was read ahead may be another's, too
            self._ahead.forget()
        for name, until in found.resting.items():
            self._waiting.rest(name, until)
        self._waiting.drop(found.gone)
        self._members.deaths.settled(found.gone)
        self._waiting.release(found.again)
        if found.locked:
            self._listing.note_locked(found.locked)
        if not self.is_locking:  # they are deleted: no listing contains them any more
            self._waiting.drop(won)
        if self._members.deaths.has_suspects:
            found.claims = [one for one in found.claims if not self._is_given_up(one)]
        if not found.claims:
            return
        self._per_znode = sum(one.count for one in found.claims) / len(found.claims)
        try:  # later arrivals may go before these
            self._listing.apply_events()
        finally:  # they are ours, even if the connection was lost just now
            before = None if self._is_simple else self._waiting.first_key(clock.now_ms())
            self.ready.put(found.claims, before=before)

    def _is_given_up(self, claim: Claim) -> bool:
        claim.deaths = self._members.deaths.deaths_of(claim.name)
        settlement = items.died(claim, self.options)
        if claim.deaths:
            self.figures.add("timeouts", claim.count)
        if settlement is None:
            return False
        self.figures.add("taken", claim.count)
        outcome = settlement.outcome.value
        log.error(
            "item taken from dead consumers queue=%s item=%s deaths=%d outcome=%s",
            *(self.path, claim.name, claim.deaths, outcome),
        )
        self.settle([settlement])
        return True

    def _release_ahead(self) -> None:
        if claims := self.ready.drain():
            log.info("items claimed ahead released queue=%s items=%d", self.path, len(claims))
            self._release(claims)

    def _release(self, claims: Sequence[Claim]) -> None:
        if claims:
            self._send([items.released(claim) for claim in claims])

    def _sleep(self, wanted: int) -> None:
        """Wait for news, or for the time at which something is due."""
        wait_s, has_taken = SCAN_S, self.give_back_idle()
        if wanted > 0 or self.ready.wanted:
            wait_s = max(0.001, min(wait_s, self._listing.stale_in_s))
            if (next_ms := self._waiting.later_ms()) is not None:
                # Not 0: what is another's for now would be looked for round and round.
                wait_s = min(wait_s, max(0.001, (next_ms - clock.now_ms()) / 1000))
        if (self.ready or has_taken) and not self.ready.wanted:
            wait_s = min(wait_s, HANGS_S)
        lets_others_go_first = self._is_second and self.ready.wanted and not self.ready
        if not self._inbox and not self._listing.has_news:
            self._service.wait(wait_s)
        if lets_others_go_first:
            self.is_closing.wait(OTHERS_S)
