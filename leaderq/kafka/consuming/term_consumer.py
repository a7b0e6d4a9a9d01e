"""One term's reading: takes over, reads batches ahead of the handler, commits what was handled.

Runs on the consumer thread only. Taking over is always *fence, load, read*: the store refuses the
former leader, the offsets are loaded, the first record is asked for. At most one batch is *in hand*
(handed to the career and not committed), so a crash repeats one batch at most.

On each failure:

* **Kafka or the offset store is unreachable**: the same step is tried again, with a back-off up to
  1 s, for as long as ``term.check()`` passes; after 30 s (10 s while joining) with a new consumer.
  So it is if only commits fail or hang for 30 s, although records are read.
* **membership lost**: joined again, offsets loaded again. If nobody moved them the batch in hand is
  committed under the new membership; otherwise it is dropped, and reading follows the store.
* **partitions are taken away**: a batch in hand with one of them is abandoned. If its commit was
  under way, that is waited for, then the store is fenced and loaded again.
* **the effects of the batch are lost** (:class:`~leaderq.kafka.clients.consumer.BatchLost`): fenced
  and loaded again. If the store holds the batch's ends, it was committed after all; otherwise its
  records are handed out again.
* **an effect of the batch is refused**: the batch stays in hand, and the career is told.
* **fenced**: the term is deposed. Where a fenced leader is not told (``store.in_group``), it
  learns it within 3 s, because it commits its positions again.
* **stalled**: a new consumer, and a :class:`~leaderq.events.DrainStalled`.
* **the client library breaks** (raises what is not an error of ours): a new consumer, after 1 s. At
  the fourth time within a minute the term fails, whatever succeeded in between.
* **anything else**, what a store of the user's raises too: the term fails with it.

However it ends, the consumer is closed at once, because otherwise it would join again by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice

from leaderq.base import clock
from leaderq.base.arguments import require_finished
from leaderq.errors import (
    Deposed,
    KafkaError,
    KafkaFenced,
    LeaderqError,
    OffsetOutOfRange,
    ServersUnreachable,
)
from leaderq.kafka.clients.consumer import (
    BatchLost,
    ConsumerClient,
    EffectRefused,
    GroupIncompatible,
    KafkaAway,
    LogTruncated,
    MembershipLost,
    Offsets,
)
from leaderq.kafka.consuming.commits import CommitState, OffsetCommits, abandoned
from leaderq.kafka.consuming.consumer_check import ConsumerCheck
from leaderq.kafka.consuming.positions import Positions, forgotten, may_reset, resets, starts
from leaderq.kafka.consuming.rate_limit import RateLimiter
from leaderq.kafka.consuming.read_ahead import BatchLimits, ReadAhead
from leaderq.kafka.consuming.report import ProgressReports
from leaderq.kafka.groups import Deployment
from leaderq.kafka.record import Batch, Partition
from leaderq.kafka.stores.offset_store import (
    OffsetStore,
    StoreAway,
    checked_offsets,
    errors_of,
)
from leaderq.term import OpenTerm, Reason, Term
from leaderq.threads.retry import Backoff, Retry

log = logging.getLogger(__name__)

POLL_S, LONGEST_POLL_S = 0.2, 1.0
SLICE_RECORDS = 5000
"""The most records of one poll while a handler works: some milliseconds' worth, because only
between polls does the loop see that something is to be committed; each change of threads costs a
part of one.
"""
ATTEND_S = 1.0
REQUEST_S = 1.0
PARTITIONS_A_SECOND = 1000
"""For each so many partitions, requests and joins, which start over when they are late, may take a
second more; and idle polls wait longer, because some clients look over all partitions in each.
"""
CONFIRM_S = 3.0
MIRROR_ALL_S = 60.0
INSPECT_S = 5.0
FIRST_LOOK_S = 0.5
READ_AHEAD_AFTER_S = 0.002
"""How long after a batch was handed out the next one is read, unless a commit is under way. One
thread at a time runs in Python, so if the handler is done by then, reading would only delay the
commit, whose round trip leaves time for it.
"""
# With a batch in hand, how long to leave a consumer alone that had nothing (doubled).
_MIN_AHEAD_S, _MAX_AHEAD_S = 0.005, 0.2
TELL_AFTER_S = 2.0
FREE_GROUP_AFTER_S = 2.0
REBUILD_AFTER_S = 30.0
REBUILD_JOINING_AFTER_S = 10.0
"""A join may take minutes; if its answer was lost, the client is best replaced."""
MOST_BREAKS, BREAKS_WITHIN_S = 3, 60.0
_NAMED = 20
_MIN_BACKOFF_S, MAX_BACKOFF_S = 0.05, 1.0


@dataclass(frozen=True)
class ConsumingPlan:
    """What a career's consumer reads, and how. ``free_group()`` removes members for which the group
    waits in vain, and returns a text for the log. ``begin_at()`` returns where partitions without
    an offset begin; ``None``: as ``start`` says. ``explain_group()`` returns a sentence about who
    keeps this member out of the group, or ``""``.
    """

    address: str
    make: Callable[[], ConsumerClient]
    store: OffsetStore
    career: str
    reports: ProgressReports
    batch_limits: BatchLimits = field(default_factory=BatchLimits)
    rate: RateLimiter | None = None
    start: str | None = None
    begin_at: Callable[[], Offsets] | None = None
    by_pattern: bool = False
    free_group: Callable[[], str] | None = None
    explain_group: Callable[[], str] = str
    deployment: Deployment | None = None

    def opened(self) -> ConsumerClient:
        consumer = self.make()
        consumer.open()
        return consumer


@dataclass(eq=False)
class JoinGate:
    """Raises when called if this process may not be the group's member: its term is over, or the
    gate was shut.
    """

    term: Term
    is_shut: bool = False

    def __call__(self) -> None:
        if self.is_shut:
            raise Deposed(term=self.term.number, reason=self.term.reason or Reason.WITHDRAWN)
        self.term.check()


class NotLetIn(KafkaAway):
    """The group waits for other members before it lets this one in."""


class TermConsumer:
    """Reads and commits within one term; each step is done by :meth:`round`. Not thread-safe."""

    def __init__(
        self, plan: ConsumingPlan, gate: JoinGate, consumer: ConsumerClient | None
    ) -> None:
        self._plan, self._store = plan, plan.store
        self._gate, self._term = gate, gate.term
        self._consumer = consumer
        self._outage = Outage()
        self._check = ConsumerCheck(plan.by_pattern)
        self._ahead = ReadAhead(plan.batch_limits, plan.rate)
        self.positions = Positions({})
        self._has_loaded = False
        self._request_s, self._poll_s = REQUEST_S, POLL_S
        self.joined = False  # the former leader is fenced, and the offsets are known
        self._joins = 0
        self.commits = OffsetCommits(plan.store, gate.term)
        self._attended = self._confirmed = self._inspected = 0.0
        self._look_ahead_at = self._ahead_pause_s = 0.0
        self._is_to_place = False
        self._mirrored: dict[Partition, int] = {}
        self._mirror_all_at = 0.0
        self._waits_since: float | None = None
        self._reached: dict[str, int] = {}
        self._broke_s: list[float] = []  # when the client library broke

    def offer(self) -> Batch | None:
        """Return the batch to hand out: the one in hand again, else the next; ``None``: neither."""
        if not self.joined or self.commits.wanted is not None:
            return None
        if not self.positions.parts and self._handed() is None:
            return None
        self.positions.is_lost = False
        return self.positions.in_hand

    def offer_beside(self) -> Batch | None:
        """Return more records for the batch in hand; ``None`` if there are none, or no room. If no
        batch is in hand, return the next one. Raises ``BatchLost`` if the batch was dropped.
        """
        if self.positions.is_lost:
            raise abandoned()
        if not self.positions.parts:
            return self.offer()
        is_busy = not self.joined or self.commits.wanted is not None
        return None if is_busy or not self._ahead.fits(self.positions.parts) else self._handed()

    def offer_behind(self) -> Batch | None:
        """Return the next batch while the whole batch in hand is being committed; else ``None``."""
        parts = self.positions.parts
        is_whole = len(parts) == 1 and self.commits.wanted == parts[0].ends
        return self._handed() if self.joined and is_whole else None

    def request_commit(self, ends: Offsets) -> None:
        """Commit these ends of the batch that the career was handed."""
        positions = self.positions
        self.commits.request(ends, in_hand=bool(positions.parts) and not positions.is_lost)

    def _handed(self) -> Batch | None:
        """Hand out the next batch, if there is one."""
        now = clock.now_s()
        if (batch := self._ahead.take(now)) is None:
            return None
        self._look_ahead_at, self._ahead_pause_s = now + READ_AHEAD_AFTER_S, 0.0
        self.positions.parts.append(batch)
        return batch

    def rest(self, partition: Partition, for_s: float) -> bool:
        """Give up the records of ``partition`` in hand. In ``for_s`` seconds read it again from the
        stored offset. ``False``: nothing was done, because there is no other partition.
        """
        if len(self.positions.committed) < 2:
            return False
        self.positions.rest(partition, clock.now_s() + for_s)
        self._ahead.clear()  # nothing is read before the next place(): it would leave a gap
        self._is_to_place = True
        return True

    def wait_s(self, *, is_asked: bool) -> float:
        """Return the seconds until the next step is due. ``is_asked``: the career waits for a
        batch. While it does not, a batch that is complete is no reason to hurry.
        """
        now = clock.now_s()
        if self._outage.not_before_s > now:
            return self._outage.not_before_s - now
        if not self.joined or self.commits.is_busy or self._is_to_place or self._is_idle:
            return 0.0
        looks = self._confirmed + CONFIRM_S, self._inspected + INSPECT_S
        due = min(self._attended + ATTEND_S, *looks, self.positions.wakes_s)
        if self._ahead.room:
            due = min(due, self._look_ahead_at)
        has_room = not self.positions.parts or self._ahead.fits(self.positions.parts)
        if is_asked and has_room and (left_s := self._ahead.wait_s(now)) is not None:
            due = min(due, now + left_s)
        return max(0.0, due - now)

    def close(self) -> None:
        """Close the consumer, and what the store has open for the term. Do not leave the group."""
        try:
            with errors_of(self._store, "closing"):
                self._store.close()
        except Exception:  # a store of the user's; the consumer would stay open
            what = "offset store could not be closed career=%s store=%s"
            log.exception(what, self._plan.career, self._store.word)
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def round(self) -> None:
        """Do the next step, within about a second. Raises only an error that ends the term."""
        if clock.now_s() < self._outage.not_before_s:
            return
        try:
            self._term.check()
            if self._consumer is None:
                self._consumer = self._plan.opened()
            self._step(self._consumer)
            self._outage.over(clock.now_s())
            if self._store.in_group and self.commits.silent_s > REBUILD_AFTER_S:
                what = "commits do not succeed, replacing the client after_s=%.0f"
                log.warning(what, self.commits.silent_s)
                self._discard()
        except LeaderqError as exc:
            self._judge(exc)
        except Exception as exc:
            kind = type(exc).__name__
            log.warning("Kafka client failed kind=%s error=%s", kind, exc, exc_info=True)
            self._mend(exc)

    def _judge(self, error: LeaderqError) -> None:
        match error:
            case KafkaFenced():
                if isinstance(self._term, OpenTerm):
                    self._term.wind_up(Reason.FENCED)
                log.warning("Kafka refuses this leader error=%s", self._explained(error))
                raise Deposed(term=self._term.number, reason=Reason.FENCED) from error
            case GroupIncompatible():
                raise KafkaError(self._explained(error)) from error
            case BatchLost():
                what = "effects of a batch may be lost, the stored offsets decide error=%s"
                log.warning(what, error)
                self.joined = False
                if not self.commits.lost():
                    self.positions.drop()
            case EffectRefused():
                self._confirmed = clock.now_s()  # the store has heard this leader
                self.commits.refused(error)
            case KafkaAway() | ServersUnreachable() | MembershipLost():
                if self._outage.met(error, clock.now_s(), joining=not self.joined):
                    self._discard()
            case _:
                raise error

    def _mend(self, why: Exception) -> None:
        """Continue with a new consumer after a pause, because the client library broke; but not for
        ever.
        """
        now = clock.now_s()
        self._broke_s = [at_s for at_s in self._broke_s if at_s > now - BREAKS_WITHIN_S] + [now]
        if len(self._broke_s) > MOST_BREAKS:
            times = f"{len(self._broke_s)} times within {BREAKS_WITHIN_S:.0f} s"
            error = f"the Kafka client broke {times}: {type(why).__name__}: {why}"
            raise KafkaError(error) from why
        self._discard()
        self._outage.not_before_s = now + MAX_BACKOFF_S

    def _explained(self, exc: KafkaError) -> str:
        explanation = self._plan.explain_group() if self._store.in_group else ""
        return f"{exc}; {explanation}" if explanation else str(exc)

    def _step(self, consumer: ConsumerClient) -> None:
        if not self.joined:
            self._take_over(consumer)
            return  # a term that has taken over must hear of it before anything else can fail
        self._settle_membership(consumer)
        if (committed := self.commits.finish_positions()) is not None:
            self.positions.advance(committed)
        # a commit now might concern partitions that belong to another member
        if consumer.is_joining:
            self._attend(consumer)
            return
        if self.commits.is_abandoning:
            # It may be committed after the offsets were loaded: these are loaded again afterwards.
            self.joined = not self.commits.is_abandonment_over()
            return
        self.commits.start(consumer)
        if self.positions.wake(clock.now_s()) or self._is_to_place:
            self._place(consumer)
        has_read = self._read(consumer)
        self._finish_committing(consumer, may_wait=not has_read)
        if clock.now_s() >= self._attended + ATTEND_S:
            self._attend(consumer)
        if not self.commits.is_busy and not consumer.is_joining:
            self._confirm(consumer)
            self._inspect(consumer)

    def _attend(self, consumer: ConsumerClient) -> None:
        consumer.attend(self._request_s)
        self._attended = clock.now_s()
        self._settle_membership(consumer)

    @property
    def _is_idle(self) -> bool:
        return not self.positions.parts and self._ahead.is_empty

    def _take_over(self, consumer: ConsumerClient) -> None:
        more_s = len(consumer.existing()) / PARTITIONS_A_SECOND
        self._request_s, self._poll_s = REQUEST_S + more_s, min(LONGEST_POLL_S, POLL_S + more_s / 2)
        with errors_of(self._store, "fencing the former leader"):
            is_fenced = self._store.fence(consumer, self._term, self._gate, self._request_s)
        require_finished(is_fenced, f"fence() of the offset store {self._store.word!r}")
        if not is_fenced:
            self._wait_for_group()
        if self._check.misses(consumer):
            consumer.rejoin()
            consumer.attend(self._request_s)
        if not self._has_loaded:
            former = self._plan.reports.former()
            self._check.topic_ids = dict(former.topic_ids)
            self._reached = {name: lag.position for name, lag in former.partitions.items()}
        self._waits_since = None
        is_first = not self._has_loaded
        self._reposition(consumer)
        here = self._plan.deployment
        if is_first and here is not None and (rivals := here.rivals(consumer.notes)):
            what = "another leaderq deployment has led this group, or does so now root=%s"
            log.warning(what, ", ".join(rivals))
        self.joined = True
        self._attended = self._confirmed = clock.now_s()
        self._inspected = self._attended - INSPECT_S + FIRST_LOOK_S

    def _wait_for_group(self) -> None:
        now = clock.now_s()
        self._waits_since = self._waits_since or now
        if now < self._waits_since + FREE_GROUP_AFTER_S or self._plan.free_group is None:
            raise NotLetIn("the group has not let this member in yet")
        self._waits_since = now
        raise NotLetIn(self._plan.free_group())

    def _reposition(self, consumer: ConsumerClient) -> None:
        """Set every position from the store. Called before records of a new membership are used."""
        joins, held = consumer.joins, consumer.assigned()
        with errors_of(self._store, "loading offsets"):
            loaded = self._store.load(consumer, self._term, self._request_s)
        loaded = checked_offsets(loaded, f"load() of the offset store {self._store.word!r}")
        stored = {where: at for where, at in loaded.items() if where in held}
        self._ahead.clear()  # its records follow abandoned ones; the next steps may fail
        self._resume(stored, held)
        positions, self._has_loaded = self.positions, True
        changed = self._check.changed_topics(consumer)
        if fresh := held - positions.committed.keys():
            first = consumer.start_offsets(self._request_s)
            last = consumer.end_offsets(self._request_s)
            # Committed before the first record is read: "latest" would else be a later place for
            # the next leader. A topic made later begins at its first, as an added partition does.
            known = fresh if self._plan.by_pattern and stored else stored
            begin = starts(self._plan.start, fresh, known, first, last, self._plan.begin_at)
            self._check_forgotten(forgotten(self._reached, fresh, changed, first))
            self.commits.commit_positions_now(consumer, begin, 2 * self._request_s)
            self._tell_of_beginning(begin, {where: last[where] - first[where] for where in fresh})
            positions.settle(begin)
        self._reset(consumer, changed)
        self._place(consumer)
        self._joins = joins

    def _tell_of_beginning(self, begin: Offsets, records: Offsets) -> None:
        """Log where reading begins without a stored offset. A warning if there are records already:
        a group may have read them whose offsets expired, or that had another name.
        """
        count = sum(records.values())
        where = "latest" if self._plan.start == "latest" else "earliest"
        if self._plan.begin_at is not None:
            where = "begin_at"
        what = "no offset is stored, reading begins at=%s records=%d group=%s partitions=%s"
        said = where, count, self._plan.reports.group, _places(begin)
        log.log(logging.WARNING if count else logging.INFO, what, *said)

    def _place(self, consumer: ConsumerClient) -> None:
        """Let the consumer read from the positions; records that were read ahead are read again."""
        self._is_to_place = True
        self._ahead.clear()
        handed = self.positions.handed
        consumer.seek(handed, handed.keys() & self.positions.resting.keys())
        self._is_to_place = False
        self._look_ahead_at = 0.0
        self._check.stalls.restart()

    def _check_forgotten(self, reached: Offsets) -> None:
        """Raise ``OffsetOutOfRange`` if stored offsets are gone (``reached`` is not empty), unless
        the user has set ``auto_offset_reset``; then log that.
        """
        self._reached = {}  # logged once in a term
        if not reached or self._store.remedy is None:
            return
        where = _places(reached)
        if not may_reset(self._plan.start):
            raise OffsetOutOfRange(
                f"no offset is stored any more for {len(reached)} partitions that this career has"
                f" read ({where}). Nothing is repeated or skipped silently: {self._store.remedy},"
                " or set auto_offset_reset to 'earliest' or 'latest' if reading shall go on there"
            )
        what = "stored offsets are gone, reading resumes begin=%s reached=%s"
        log.warning(what, self._plan.start, where)

    def _resume(self, stored: Offsets, held: frozenset[Partition]) -> None:
        positions = self.positions
        parts, before = positions.parts, positions.committed.keys() | held
        if moved := positions.resume(stored, held, *self.commits.own):
            log.warning(
                "offsets moved by somebody else, reading continues there partitions=%s",
                _names(sorted(moved)),
            )
        if lost := before - held:
            log.warning("partitions taken away by the group partitions=%s", _names(sorted(lost)))
        if parts and not positions.parts:
            abandoned = set().union(*(part.ends for part in parts))
            log.warning("batch in hand abandoned partitions=%s", _names(sorted(abandoned)))
        if self.commits.state is CommitState.UNKNOWN:
            wanted = self.commits.wanted or {}
            if wanted.items() <= stored.items():
                positions.settle(wanted)
                self.commits.stored()
            else:
                positions.drop()
        if not positions.parts:
            self.commits.drop()

    def _settle_membership(self, consumer: ConsumerClient) -> bool:
        """Whether positions are still valid. If the group was joined again meanwhile, set them from
        the store, and return ``False``.
        """
        if consumer.joins == self._joins:
            return True
        self._reposition(consumer)
        return False

    def _read(self, consumer: ConsumerClient) -> bool:
        """Read ahead if there is room; returns whether records came."""
        now = clock.now_s()
        room = self._ahead.room
        busy = not self._is_idle or self.commits.wanted is not None
        waits = busy and not self.commits.is_busy and now < self._look_ahead_at
        if not room or waits:
            return False
        wait_s = 0.0 if busy else self._poll_s
        try:
            records = consumer.poll(wait_s, min(room, SLICE_RECORDS) if busy else room)
        except OffsetOutOfRange as exc:
            if not may_reset(self._plan.start):
                raise
            cut = exc.partitions if isinstance(exc, LogTruncated) else frozenset()
            self._look_ahead_at = now + _MAX_AHEAD_S
            # A cut-off log is reported once; any other loss is found again.
            if not self._reset(consumer, frozenset(), cut, reread=True) and (cut or not busy):
                raise
            return False
        if wait_s:
            self._attended = clock.now_s()
        # Records of a new assignment were read from the client's own positions.
        if not self._settle_membership(consumer):
            return False
        now = clock.now_s()
        self._ahead.add(records, now)
        if wait_s or records:
            self._check.polled(empty=not records)
        pause_s = min(max(self._ahead_pause_s * 2, _MIN_AHEAD_S), _MAX_AHEAD_S)
        self._ahead_pause_s = 0.0 if records else pause_s
        self._look_ahead_at = now + self._ahead_pause_s
        return bool(records)

    def _reset(
        self,
        consumer: ConsumerClient,
        recreated: frozenset[str],
        cut: frozenset[Partition] = frozenset(),
        *,
        reread: bool = False,
    ) -> bool:
        """Move positions that are gone to where ``auto_offset_reset`` says, or raise if it is not
        set; returns whether one was moved.
        """
        if not recreated and not reread:
            return False
        if not may_reset(self._plan.start):
            raise KafkaError(
                f"topic {', '.join(map(repr, sorted(recreated)))} was deleted and created again"
                " since it was last read; offsets of the former one say nothing about it. Set"
                " auto_offset_reset to 'earliest' or 'latest' if reading shall go on there"
            )
        if self.positions.parts or self.commits.wanted is not None:
            return False  # found again, once the batch in hand is committed
        first, last = consumer.start_offsets(self._request_s), consumer.end_offsets(self._request_s)
        new = resets(self._plan.start, self.positions.handed, recreated, cut, first, last)
        if new:
            what = "positions are gone, reading resumes begin=%s partitions=%s"
            log.warning(what, self._plan.start, _names(sorted(new)))
            self.commits.commit_positions_now(consumer, new, 2 * self._request_s)
            self.positions.settle(new)
            self._place(consumer)
        self._check.accept(consumer, recreated)
        return bool(new)

    def _finish_committing(self, consumer: ConsumerClient, *, may_wait: bool) -> None:
        try:
            ends = self.commits.finish(may_wait=may_wait)
        except MembershipLost:
            consumer.attend(self._request_s)
            if self._settle_membership(consumer):
                raise
            return
        if ends is not None:
            self._confirmed = clock.now_s()
            self.positions.settle(ends)

    def _confirm(self, consumer: ConsumerClient) -> None:
        """Commit again every 3 s, to prove that the store accepts this leader, or, with a store
        outside the group, to show lag tools its position.
        """
        if clock.now_s() < self._confirmed + CONFIRM_S:
            return
        committed = self.positions.committed
        new: dict[Partition, int] = {}
        if self._is_idle:
            # Markers stepped over count as read, so that lag tools show 0.
            found = consumer.positions().items()
            new = {where: at for where, at in found if at > committed.get(where, -1)}
        self._confirmed = clock.now_s()
        if self._store.in_group:
            # One partition proves as much as all of them.
            self.commits.commit_positions(consumer, new or dict(islice(committed.items(), 1)))
        else:
            self._mirror(consumer, committed | new)

    def _mirror(self, consumer: ConsumerClient, offsets: Offsets) -> None:
        """Commit this leader's position to the group for lag tools only; a failure does no harm."""
        if clock.now_s() >= self._mirror_all_at:  # the group has no member, so its offsets expire
            self._mirrored, self._mirror_all_at = {}, clock.now_s() + MIRROR_ALL_S
        changed = dict(offsets.items() - self._mirrored.items())
        note = f"leaderq term {self._term.number}, for information"
        try:
            if changed and consumer.commit(changed, note).done(self._request_s):
                self._mirrored.update(changed)
        except KafkaError as exc:
            log.debug("offsets of the group not set for lag tools error=%s", exc)

    def _inspect(self, consumer: ConsumerClient) -> None:
        if clock.now_s() < self._inspected + INSPECT_S:
            return
        self._inspected = clock.now_s()
        resting = self.positions.resting
        found = self._check.look(consumer, self._inspected, self._request_s, resting)
        if found.added:
            consumer.rejoin()
            consumer.attend(self._request_s)
            self._settle_membership(consumer)
        self._reset(consumer, found.recreated)
        reports = self._plan.reports
        known = self.positions.committed, found.ends, found.blocked, self._check.topic_ids
        reports.tell(self._term, self._inspected, *known, sum(map(len, self.positions.parts)))
        if found.stalled:
            where, at = found.stalled
            self._discard()  # a batch in hand is committed with the next one
            what = "consumer stalled, replacing it partition=%s position=%d end=%d"
            log.warning(what, where, at.position, at.end)
            reports.stalled(where, at.position, at.end)

    def _discard(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
        self.joined = False
        self.commits.forget()


def _places(offsets: Offsets) -> str:
    return _names(f"{each}@{offsets[each]}" for each in sorted(offsets))


def _names(places: Iterable[object]) -> str:
    names = [str(place) for place in places]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


class Outage:
    """Remembers how long the present outage lasts; times are ``clock.now_s``. Not thread-safe."""

    def __init__(self) -> None:
        self.not_before_s = 0.0
        self._since_s: float | None = None
        self._client_since_s = 0.0
        self._backoff = Backoff(Retry(first_s=_MIN_BACKOFF_S, most_s=MAX_BACKOFF_S, jitter=0.0))
        self._told = False

    def met(self, why: Exception, now_s: float, *, joining: bool) -> bool:
        """Note that an attempt failed; returns whether to replace the client now."""
        if self._since_s is None:
            self._since_s = self._client_since_s = now_s
        if not self._told and now_s - self._since_s > TELL_AFTER_S:
            self._told = True
            what = "Kafka is unreachable"
            if isinstance(why, StoreAway):
                what = "offset store is unreachable"
            elif isinstance(why, NotLetIn):
                what = "group has not admitted this leader"
            log.warning("%s, the term continues and retries error=%s", what, why)
        self.not_before_s = now_s + self._backoff.next_s()
        patience_s = REBUILD_JOINING_AFTER_S if joining else REBUILD_AFTER_S
        if now_s - self._client_since_s <= patience_s:
            return False
        self._client_since_s = now_s
        return True

    def over(self, now_s: float) -> None:
        if self._told and self._since_s is not None:
            log.info("the outage is over unreachable_s=%.1f", now_s - self._since_s)
        self._since_s, self._told = None, False
        self._backoff.reset()
