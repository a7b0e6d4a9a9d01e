"""One term's reading: takes over, reads batches ahead of the handler, saves what was handled.

Runs on the drain thread (:mod:`leaderq.kafka.pump`) only. Taking over is always *fence, load, read*: first the store refuses the
former leader, then the offsets are loaded, then the first record is asked for.

What happens on each failure:

* **Kafka away**: the same step is tried again, with a back-off up to 1 s, for as long as ``term.check()`` passes; after 30 s with
  a new consumer. The batch in hand stays in hand.
* **membership lost** (broker restarted, session run out): joined again, offsets loaded again; if nobody moved them the batch in
  hand is saved under the new membership, else it is let go of and reading goes on where the store says. Nothing is skipped.
* **fenced**: the term is deposed. An idle leader learns it too: every 3 s it saves its offsets again, since a fenced consumer's
  ``poll`` is silent.
* **stalled**: a new consumer, and a :class:`~leaderq.events.DrainStalled`.
* **anything else**: the error is given to the career, whose term fails with it.

However it ends, the consumer is closed at once: a consumer that is left alone would join again by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from leaderq.clock import now_s
from leaderq.errors import Deposed, KafkaError, KafkaFenced, ServersUnreachable
from leaderq.events import DrainStalled, EventBus
from leaderq.kafka import stall
from leaderq.kafka.drain import Drain, KafkaAway, MembershipLost
from leaderq.kafka.offsets import OffsetStore
from leaderq.kafka.progress import Progress
from leaderq.kafka.record import Batch, Partition, batch_of
from leaderq.term import OpenTerm, Reason, Term

log = logging.getLogger(__name__)

POLL_S = 0.2
ATTEND_S = 1.0
REQUEST_S = 1.0
CONFIRM_S = 3.0
INSPECT_S = 5.0
TELL_AFTER_S = 2.0
REBUILD_AFTER_S = 30.0
_MIN_BACKOFF_S, _MAX_BACKOFF_S = 0.05, 1.0


@dataclass(frozen=True)
class Plan:
    """What every term of a career drains, and how."""

    address: str
    make: Callable[[], Drain]
    store: OffsetStore
    events: EventBus
    career: str
    candidate: str
    max_records: int = 1000
    start: str = "earliest"
    limits: stall.Limits = field(default_factory=stall.Limits)


class Draining:
    """The reading of one term, driven by :meth:`round`. Not thread-safe."""

    def __init__(self, plan: Plan, term: Term, drain: Drain | None, allowed: Callable[[], None], rebuilds: int) -> None:
        self._plan = plan
        self._term = term
        self._drain = drain
        self._allowed = allowed
        self.rebuilds = rebuilds
        self._progress: Progress | None = None
        self._joined = False
        self._joins = 0
        self._missing: frozenset[Partition] = frozenset()
        self._warned = False
        self._last_saved: Batch | None = None
        self._memory: dict[Partition, stall.Stillness] = {}
        self._polls = self._empty_polls = 0
        self._backoff_s = 0.0
        self._away_since: float | None = None
        self._client_since = 0.0
        self._told_away = False
        self._not_before = self._attended = self._confirmed = self._inspected = 0.0
        self._to_save = False

    @property
    def taken_over(self) -> bool:
        """Whether the former leader is fenced and the offsets are known."""
        return self._joined

    @property
    def in_hand(self) -> Batch | None:
        """The batch read and not yet saved."""
        return self._progress.in_hand if self._progress else None

    def save(self) -> None:
        """Save the batch in hand, at the next rounds: :attr:`in_hand` becomes ``None`` once that is done."""
        self._to_save = True

    def was_saved(self, batch: Batch | None) -> bool:
        """Whether ``batch``, not in hand any more, was saved rather than let go of."""
        return batch is not None and batch is self._last_saved

    def mend(self) -> None:
        """The client library broke: go on with a new consumer, after a pause."""
        self._discard()
        self._not_before = now_s() + _MAX_BACKOFF_S

    def wait_s(self) -> float:
        """How long until the next round is worth it (seconds)."""
        now = now_s()
        if self._not_before > now:
            return self._not_before - now
        if self._joined and self.in_hand and not self._to_save:
            return max(0.0, min(self._attended + ATTEND_S, self._confirmed + CONFIRM_S) - now)
        return 0.0

    def round(self) -> None:
        """Do the next step, bounded by about a second.

        Raises :class:`~leaderq.errors.Deposed`, or the error with which the term must fail.
        """
        if now_s() < self._not_before:
            return
        try:
            self._term.check()
            self._step(self._drain or self._rebuilt())
            self._back()
        except KafkaFenced as exc:
            if isinstance(self._term, OpenTerm):
                self._term.wind_up(Reason.FENCED)
            raise Deposed(term=self._term.number, reason=Reason.FENCED) from exc
        except (KafkaAway, ServersUnreachable, MembershipLost) as exc:
            self._away(exc)

    def close(self) -> None:
        """Close the consumer; the group keeps its member."""
        if self._drain is not None:
            self._drain.close()
            self._drain = None

    def _step(self, drain: Drain) -> None:
        if not self._joined:
            self._take_over(drain)
        elif self.in_hand is None:
            self._read(drain)
        elif self._to_save:
            self._save(drain, self.in_hand)
        else:
            drain.attend(REQUEST_S)
            self._attended = now_s()
            self._settle_membership(drain)
        if self._joined:
            self._confirm(drain)
            self._inspect(drain)

    def _take_over(self, drain: Drain) -> None:
        if not self._plan.store.fence(drain, self._term, self._allowed, REQUEST_S):
            raise KafkaAway("the group has not let this member in yet")
        if self._misses(drain):
            drain.rejoin()
            drain.attend(REQUEST_S)
        self._reposition(drain)
        self._joined = True
        self._attended = self._confirmed = self._inspected = now_s()

    def _reposition(self, drain: Drain) -> None:
        """Set every position anew, from the store; before any record of the new membership is used."""
        joins = drain.joins
        held = drain.assigned()
        stored = {
            where: offset for where, offset in self._plan.store.load(drain, self._term, REQUEST_S).items() if where in held
        }
        if self._progress is None:
            self._progress = Progress(stored)
        elif moved := self._progress.resume(stored, held):
            log.warning("somebody moved the offsets of %s; reading goes on there", ", ".join(map(str, sorted(moved))))
        progress = self._progress
        fresh = held - set(progress.given)
        if fresh:
            starts = self._starts(drain, fresh, stored)
            self._plan.store.save(drain, self._term, starts, REQUEST_S)
            progress.add(starts)
        drain.seek(progress.given)
        self._joins = joins
        self._memory = {}

    def _starts(self, drain: Drain, fresh: frozenset[Partition], stored: dict[Partition, int]) -> dict[Partition, int]:
        """Where to begin in partitions that have no offset yet.

        Saved before the first record is read: otherwise "latest" would be a later place for the next leader. A partition added
        to a topic that is being read begins at its first record, whatever the policy: none of its records was ever skipped on
        purpose.
        """
        policy = self._plan.start
        known = {where.topic for where in stored}
        new_topics = {where for where in fresh if where.topic not in known}
        if new_topics and policy == "none":
            raise KafkaError(
                f"the group has no offset for {', '.join(map(str, sorted(new_topics)))} and auto_offset_reset is 'none'; "
                "set the group's offsets, or choose 'earliest' or 'latest'"
            )
        first = drain.start_offsets(REQUEST_S)
        last = drain.end_offsets(REQUEST_S) if policy == "latest" else first
        return {where: (last if where in new_topics else first)[where] for where in fresh}

    def _settle_membership(self, drain: Drain) -> bool:
        """Whether positions still stand; sets them anew if the group was joined again meanwhile."""
        if drain.joins == self._joins:
            return True
        self._reposition(drain)
        return False

    def _read(self, drain: Drain) -> None:
        self._to_save = False
        records = drain.poll(POLL_S, self._plan.max_records)
        self._polls += 1
        self._empty_polls += not records
        self._attended = now_s()
        # What came in the same poll as a new assignment was read from the client's idea of the positions, not from ours.
        if self._settle_membership(drain) and records and self._progress:
            self._progress.give(batch_of(records))

    def _save(self, drain: Drain, batch: Batch) -> None:
        if not self._settle_membership(drain):
            return
        try:
            self._plan.store.save(drain, self._term, batch.ends, REQUEST_S)
        except MembershipLost:
            drain.attend(REQUEST_S)
            if self._settle_membership(drain):
                raise
            return
        self._confirmed = now_s()
        if self._progress:
            self._progress.settle()
        self._last_saved = batch
        self._to_save = False

    def _confirm(self, drain: Drain) -> None:
        """Prove from time to time that the store still accepts this leader."""
        if now_s() < self._confirmed + CONFIRM_S or self._progress is None:
            return
        offsets = dict(self._progress.saved)
        if self.in_hand is None:
            self._progress_positions(drain, offsets)
        self._plan.store.save(drain, self._term, offsets, REQUEST_S)
        if self.in_hand is None:
            self._progress.advance(offsets)
        self._confirmed = now_s()

    def _progress_positions(self, drain: Drain, offsets: dict[Partition, int]) -> None:
        """Nothing is in hand: markers stepped over count as read, so that lag tools show 0."""
        for where, position in drain.positions().items():
            offsets[where] = max(position, offsets.get(where, position))

    def _inspect(self, drain: Drain) -> None:
        """Look for a stall and for partitions added."""
        if now_s() < self._inspected + INSPECT_S:
            return
        self._inspected = now_s()
        if self._misses(drain):
            drain.rejoin()
        ends, positions = drain.end_offsets(REQUEST_S), drain.positions()
        sights = {
            where: stall.Sight(self._inspected, positions[where], end, self._polls, self._empty_polls)
            for where, end in ends.items()
            if where in positions
        }
        self._memory, stalled = stall.judge(self._memory, sights, self._plan.limits)
        if stalled and self.in_hand is None:
            self._stalled(stalled[0], sights[stalled[0]])

    def _misses(self, drain: Drain) -> bool:
        """Whether the topics have partitions that are not held, seen for the first time; the second time they are another's."""
        missing = drain.existing() - drain.assigned()
        if missing and missing != self._missing:
            self._missing, self._warned = missing, False
            return True
        if missing and not self._warned:
            self._warned = True
            log.warning(
                "partitions %s are not given to this leader; who else uses its group?", ", ".join(map(str, sorted(missing)))
            )
        self._missing = missing
        return False

    def _stalled(self, where: Partition, sight: stall.Sight) -> None:
        memory = stall.rebuilt(self._memory)
        self._discard()
        self.rebuilds += 1
        log.warning(
            "%s stands at %d although records wait up to %d; the consumer is made anew", where, sight.position, sight.end
        )
        self._plan.events.publish(
            DrainStalled(
                career=self._plan.career,
                candidate=self._plan.candidate,
                partition=str(where),
                position=sight.position,
                end=sight.end,
                rebuilt=self.rebuilds,
            )
        )
        self._take_over(self._rebuilt())
        self._memory = memory

    def _rebuilt(self) -> Drain:
        drain = self._plan.make()
        drain.open()
        self._drain = drain
        self._polls = self._empty_polls = 0
        return drain

    def _discard(self) -> None:
        self.close()
        self._joined = False

    def _away(self, exc: Exception) -> None:
        now = now_s()
        if self._away_since is None:
            self._away_since = self._client_since = now
        if not self._told_away and now - self._away_since > TELL_AFTER_S:
            self._told_away = True
            log.warning("Kafka is away (%s); the term goes on and tries again", exc)
        if now - self._client_since > REBUILD_AFTER_S:
            self._client_since = now
            self._discard()
        self._backoff_s = min(_MAX_BACKOFF_S, max(_MIN_BACKOFF_S, self._backoff_s * 2))
        self._not_before = now + self._backoff_s

    def _back(self) -> None:
        if self._told_away and self._away_since is not None:
            log.info("Kafka answers again, after %.1f s", now_s() - self._away_since)
        self._away_since, self._told_away = None, False
        self._backoff_s = 0.0
