"""A :class:`~leaderq.kafka.clients.consumer.ConsumerClient` on confluent-kafka (librdkafka); needs
the extra ``leaderq[confluent]``.

Commits are asynchronous, one at a time: records are read meanwhile, and the answer comes with them
(B25). What is not to be read is not assigned (B30). Which partitions there are, and where they
begin and end, is asked of a consumer of kafka-python without membership, the *scout* (B23). Besides
these it leans on B9, B16, B17, B24, B28, B29, B31 and B32.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from leaderq.base import clock
from leaderq.errors import KafkaFenced, LeaderqError, OffsetOutOfRange, UnknownTopic
from leaderq.kafka.clients.client_options import consumer_table
from leaderq.kafka.clients.confluent_connection import ConfluentConnection
from leaderq.kafka.clients.confluent_record import by_partition, has_errors
from leaderq.kafka.clients.consumer import (
    CommitFuture,
    ConsumerClient,
    ConsumerSettings,
    KafkaAway,
    LogTruncated,
    MembershipLost,
    Offsets,
)
from leaderq.kafka.clients.kafka_python_consumer import KafkaPythonConsumer, require_same_log
from leaderq.kafka.record import Offset, Partition, Record, after, epoch_of
from leaderq.threads import SerialExecutor

log = logging.getLogger(__name__)

_LATEST = -1  # the protocol's code, in place of a time
_STEP_S = 0.1
_STASH = 100
# when to look again for the answer to a commit, as a share of the time that it has taken so far
_LOOK_SHARE, _LOOK_S = 0.1, 0.0001
_CLOSE_S = 1.0
# how long a poll waits for more, if records come so fast that a batch is full in that time
_FILL_S = 0.005
_FAST_SHARE = 8
FETCHED_A_MS = 20


class _Membership(Enum):
    """``JOINING``: this member has asked to join, and was assigned nothing since. ``REVOKED``: its
    partitions were taken away, and it was assigned none since.
    """

    NONE = "none"
    JOINING = "joining"
    MEMBER = "member"
    REVOKED = "revoked"


class ConfluentConsumer(ConsumerClient):
    """See :class:`~leaderq.kafka.clients.consumer.ConsumerClient`."""

    _natives = (KafkaException,)

    def __init__(self, settings: ConsumerSettings) -> None:
        super().__init__(settings)
        self._connection = ConfluentConnection(settings.address, settings.security)
        self._scout = KafkaPythonConsumer(replace(settings, membership=False, options={}))
        self._committing: _Commit | None = None
        self._fenced: KafkaFenced | None = None
        self._unproved: dict[Partition, int] = {}
        self._begin_again(frozenset(), _Membership.NONE)

    # ---- connecting ------------------------------------------------------------------------------

    def _find_topics(self, until_s: float) -> None:
        self._scout.open()
        options = consumer_options(self._settings, self._connection, len(self.existing()))
        options["on_commit"] = self._on_commit
        self._client = self._connection.made(Consumer, options)

    def _remedy(self) -> str:
        return self._connection.remedy()

    def refresh(self, timeout_s: float) -> None:
        super().refresh(timeout_s)
        # The connections that fetch ask again what the scout was just asked.
        with suppress(UnknownTopic), self._errors_translated("asking for offsets"):
            self._consumer.offsets_for_times(
                self._named(dict.fromkeys(self.existing(), _LATEST)), timeout_s
            )

    def existing(self) -> frozenset[Partition]:
        return self._scout.existing()

    def topic_ids(self) -> dict[str, str]:
        return self._scout.topic_ids()

    def start_offsets(self, timeout_s: float) -> dict[Partition, int]:
        return self._scout.start_offsets(timeout_s)

    def end_offsets(self, timeout_s: float) -> dict[Partition, int]:
        return self._scout.end_offsets(timeout_s)

    # ---- membership ------------------------------------------------------------------------------

    def _join(self, timeout_s: float) -> bool:
        if self._membership is _Membership.NONE:
            self._subscribe()
        self._serve_until_joined(timeout_s)
        return self._membership is _Membership.MEMBER

    def _subscribe(self) -> None:
        consumer = self._consumer
        self._allowed()
        with self._errors_translated("joining the group"):
            consumer.subscribe(
                list(self._scout.topics), on_assign=self._on_assign, on_revoke=self._on_revoke
            )
        self._membership = _Membership.JOINING

    def _hold(self, partitions: frozenset[Partition]) -> None:
        with self._errors_translated("taking partitions"):
            self._now_held(self._consumer, partitions)

    def _on_assign(self, consumer: Any, assigned: list[Any]) -> None:
        self._allowed()
        self._now_held(consumer, frozenset(Partition(one.topic, one.partition) for one in assigned))

    def _on_revoke(self, consumer: Any, _revoked: list[Any]) -> None:
        self._begin_again(frozenset(), _Membership.REVOKED)
        consumer.unassign()  # only then does the client join again

    def _now_held(self, consumer: Any, partitions: frozenset[Partition]) -> None:
        """Note that ``partitions`` are held now; nothing is read from them before :meth:`seek`."""
        self.joins += 1
        self._begin_again(partitions, _Membership.MEMBER)
        consumer.assign([])

    def _begin_again(self, partitions: frozenset[Partition], membership: _Membership) -> None:
        self._held, self._membership = partitions, membership
        self._resting: frozenset[Partition] = frozenset()
        self._stash: list[Any] = []
        self._next: dict[Partition, int] = {}
        self._ends: dict[Partition, int] = {}
        self._gone: OffsetOutOfRange | None = None
        self._is_reading = False

    @property
    def is_joining(self) -> bool:
        return self._membership is _Membership.REVOKED

    def _ask_to_join(self) -> None:
        if self._membership is not _Membership.NONE:
            self._subscribe()  # to the same topics: joins again, without leaving

    def attend(self, timeout_s: float) -> None:
        if not self._settings.membership:
            return
        if self._membership in (_Membership.JOINING, _Membership.REVOKED):
            self._serve_until_joined(timeout_s)
        else:
            self._serve(0.0)

    def _serve_until_joined(self, timeout_s: float) -> None:
        end = clock.now_s() + timeout_s
        while self._membership is not _Membership.MEMBER and clock.now_s() < end:
            self._serve(max(0.0, min(_STEP_S, end - clock.now_s())))

    def _serve(self, wait_s: float) -> None:
        """Let the client run its callbacks, for up to ``wait_s``; a record that arrives meanwhile
        is kept for the next :meth:`poll`.
        """
        if len(self._stash) >= _STASH and self._is_reading:
            self._read({})
        try:
            came = self._consume(1, wait_s)
        except OffsetOutOfRange as exc:  # of what is read: whoever polls has to know
            self._gone = exc
        else:
            self._stash += came  # not in one line with the call: that may have emptied the stash

    def assigned(self) -> frozenset[Partition]:
        return self._held

    def group_metadata(self) -> Any:
        is_member = self._membership is _Membership.MEMBER
        return self._consumer.consumer_group_metadata() if is_member else None

    # ---- reading ---------------------------------------------------------------------------------

    def poll(self, timeout_s: float, max_records: int) -> dict[Partition, Sequence[Record]]:
        if self._next and not self._is_reading:
            self._read(
                self._next
                | {Partition(row.topic(), row.partition()): row.offset() + 1 for row in self._stash}
            )
        found = self._taken(timeout_s, max_records)
        # Without positions it was joined again meanwhile: these were read from the client's own.
        polled = by_partition(found) if found and self._next else {}
        if self._unproved:
            self._prove(polled, found)
        for where, rows in polled.items():
            self._next[where] = max(after(rows[-1]), self._next.get(where, Offset(0)))
        if not self._stash:  # all records before the news of an end are returned
            self._next |= {
                at: max(end, self._next[at]) for at, end in self._ends.items() if at in self._next
            }
            self._ends.clear()
        return polled

    def _prove(self, polled: Mapping[Partition, Sequence[Record]], found: list[Any]) -> None:
        """If the first record of a partition has a newer leader epoch than its position, ask the
        broker whether the log was cut off in front of that position; raise ``LogTruncated`` if it
        was. librdkafka asks only when the leader changes while it reads (B24).
        """
        unproved = self._unproved
        proved = unproved.keys() & polled.keys()
        epochs = {at: polled[at][0].leader_epoch or 0 for at in proved}
        if newer := {at: now for at, now in epochs.items() if now > epoch_of(unproved[at])}:
            try:
                proved |= require_same_log(self._settings, unproved, newer)
            except LeaderqError:
                self._stash = found + self._stash
                raise
        for at in proved:
            del unproved[at]

    def _taken(self, timeout_s: float, most: int) -> list[Any]:
        if (gone := self._gone) is not None:
            self._gone = None
            raise gone
        found, self._stash = self._stash[:most], self._stash[most:]
        try:
            found += self._consume(most - len(found), 0.0)
            if not found and timeout_s > 0:
                # Asked for more than one, it would wait the whole time although one is there.
                found += self._consume(1, timeout_s)
                found += self._consume(most - len(found), 0.0) if found else ()
            elif timeout_s > 0 and len(found) * _FAST_SHARE >= most:
                found += self._consume(most - len(found), min(timeout_s, _FILL_S))
        except LeaderqError:
            self._stash = found + self._stash
            raise
        return found

    def _consume(self, most: int, wait_s: float) -> list[Any]:
        if self._fenced is not None:
            raise KafkaFenced(str(self._fenced)) from self._fenced
        if most <= 0:
            return []
        with self._errors_translated("reading"):
            messages: list[Any] = self._consumer.consume(most, wait_s)
        return self._heeded(messages) if has_errors(messages) else messages

    def _heeded(self, messages: list[Any]) -> list[Any]:
        """Return the records among ``messages``. If one is an error that does not pass by itself,
        keep the records for the next poll, and raise.
        """
        records = [message for message in messages if message.error() is None]
        for message in messages:
            error = message.error()
            if error is None:
                continue
            where = Partition(message.topic(), message.partition())
            if error.name() == "_PARTITION_EOF":
                self._ends[where] = message.offset()
                continue
            found: LeaderqError = self._translated(error, "reading")
            if isinstance(found, OffsetOutOfRange) and "truncation" in error.str():
                at = f"reading at Kafka {self._settings.address!r}: {error.str()}"
                found = LogTruncated(at, frozenset([where]))
            # passes, or shows in joins, or in topic_ids
            if isinstance(found, KafkaAway | MembershipLost | UnknownTopic):
                log.debug("%s", found)
                continue
            self._stash += records
            raise found
        return records

    def seek(self, offsets: Offsets, resting: Collection[Partition] = ()) -> None:
        # lost to a rebalance since: the next join sets positions again
        if lost := set(offsets) - self._held:
            raise KafkaAway(f"partitions {', '.join(map(str, sorted(lost)))} are not held any more")
        self._next.update(offsets)
        self._stash, self._ends, self._resting, self._gone = [], {}, frozenset(resting), None
        self._unproved = {at: to for at, to in offsets.items() if epoch_of(to) >= 0}
        self._read(self._next)

    def _read(self, offsets: Offsets) -> None:
        """Let the client read only these partitions, from ``offsets``, except resting ones. The
        client's ``seek`` is not used, because it waits for its fetcher.
        """
        with self._errors_translated("setting positions"):
            self._consumer.assign(
                self._named(
                    {at: offset for at, offset in offsets.items() if at not in self._resting}
                )
            )
        self._is_reading = bool(offsets)

    def positions(self) -> dict[Partition, int]:
        return dict(self._next)

    # ---- offsets ---------------------------------------------------------------------------------

    def _stored(
        self, partitions: Collection[Partition], timeout_s: float
    ) -> dict[Partition, tuple[Offset, str]]:
        doing = "reading committed offsets"
        with self._errors_translated(doing):
            stored = self._consumer.committed(self._named(dict.fromkeys(partitions, 0)), timeout_s)
        self._check(stored, doing)
        return {
            Partition(one.topic, one.partition): (Offset(one.offset, one.leader_epoch), _note(one))
            for one in stored
            if one.offset >= 0
        }

    def _begin_commit(self, offsets: Offsets, note: str) -> CommitFuture:
        if not offsets:  # (B28)
            return _Commit(self, clock.now_s(), (None, []))
        if self._committing is not None:  # librdkafka may carry out the later one first
            raise KafkaAway("the commit before has not been answered yet")
        with self._errors_translated("committing"):
            self._consumer.commit(offsets=self._named(offsets, note), asynchronous=True)
        self._committing = _Commit(self, clock.now_s())
        return self._committing

    def _on_commit(self, error: Any, answer: list[Any]) -> None:
        if (commit := self._committing) is not None:
            commit.answer, self._committing = (error, answer), None

    def _require_committed(self, error: Any, answer: list[Any]) -> None:
        try:
            if error is not None:
                raise self._translated(error, "committing")
            self._check(answer, "committing")
        except UnknownTopic as exc:
            if self._pattern is None:
                raise
            raise KafkaAway(str(exc)) from exc  # deleted a moment ago, which shows soon

    def log_ends(self) -> dict[Partition, int]:
        found = {}
        for where in self._held:
            try:
                marks = self._consumer.get_watermark_offsets(TopicPartition(*where), cached=True)
            except KafkaException:  # it has never read this partition
                continue
            if marks and marks[1] >= 0:
                found[where] = int(marks[1])
        return found

    def _check(self, answer: list[Any], doing: str) -> None:
        for one in answer:
            if one.error is not None:
                raise self._translated(one.error, doing)

    def _named(self, offsets: Mapping[Partition, int], note: str = "") -> list[Any]:
        return [
            TopicPartition(where.topic, where.number, offset, note, epoch_of(offset))
            for where, offset in sorted(offsets.items())
        ]

    # ---- errors and the end ----------------------------------------------------------------------

    def _translated(self, exc: Any, doing: str) -> LeaderqError:
        error = exc.args[0] if isinstance(exc, BaseException) and exc.args else exc
        found = self._connection.error(exc, doing)
        # With the classic protocol only the fencing is fatal; asked again it says "_FATAL".
        if (
            hasattr(error, "fatal")
            and (error.fatal() or error.name() == "_FATAL")
            and not isinstance(found, KafkaFenced)
        ):
            found = KafkaFenced(f"{found}; a newer member of the same name has taken over")
        if isinstance(found, KafkaFenced):
            self._fenced = found
        return found

    def close(self) -> None:
        self._scout.close()
        super().close()
        self._begin_again(frozenset(), _Membership.NONE)

    def _let_go(self) -> None:
        closing = SerialExecutor(f"leaderq-confluent-close-{self._settings.member}")
        closing.submit(self._client.close)
        closing.close(_CLOSE_S)


@dataclass(eq=False)
class _Commit:
    """A commit under way; ``answer``: an error, or what is said of each partition. It comes with
    what is read: whoever waits reads hardly anything, a record now and then, into the stash.
    """

    consumer: ConfluentConsumer
    began_s: float
    answer: tuple[Any, list[Any]] | None = None

    def done(self, wait_s: float) -> bool:
        until_s = clock.now_s() + wait_s
        while True:
            if self.answer is None:
                self.consumer._serve(0.0)
            if self.answer is not None:
                self.consumer._require_committed(*self.answer)
                return True
            if (now := clock.now_s()) >= until_s:
                return False
            pause_s = max(_LOOK_S, _LOOK_SHARE * (now - self.began_s))
            clock.sleep(min(pause_s, until_s - now))


def consumer_options(
    settings: ConsumerSettings, connection: ConfluentConnection, partitions: int = 0
) -> dict[str, Any]:
    return {
        **connection.options(),
        **consumer_table(settings),
        "group.protocol": "classic",  # the newer one fences the newcomer instead of the old member
        "partition.assignment.strategy": "range",
        "enable.auto.offset.store": False,
        # Any other value would jump silently when the offset is gone; leaderq decides that.
        "auto.offset.reset": "error",
        "socket.timeout.ms": int(settings.request_timeout_s * 1000),
        "topic.metadata.refresh.interval.ms": 30_000,
        "enable.partition.eof": True,
        # otherwise records that a disk or the network has altered would be handled
        "check.crcs": True,
        # A fetch that waits for quiet partitions delays a busy one (500 ms by default); but each
        # names all of them, and 10,000 named 20 times a second keep a broker busy.
        "fetch.wait.max.ms": max(50, min(500, partitions // FETCHED_A_MS)),
        # 64 MB by default, besides the batches in hand and ahead
        "queued.max.messages.kbytes": 16_384,
        # How long nothing is fetched when enough is there; at 1 s a fast reader has nothing to do.
        "fetch.queue.backoff.ms": 10,
        **settings.options,
    }


def _note(stored: Any) -> str:
    """Return what was noted beside an offset; ``""`` if that is no text (B27)."""
    try:
        return stored.metadata or ""
    except UnicodeDecodeError:
        return ""
