"""A :class:`~leaderq.kafka.clients.consumer.ConsumerClient` on confluent-kafka (librdkafka); needs
the extra ``leaderq[confluent]``.

Facts of librdkafka 2.x that this file leans on (each has a test in the consumer contract, or was
met in its source):

* It runs the group protocol on threads of its own, and **offers no gate before a JoinGroup
  request**. ``allowed`` is asked right before ``subscribe`` and again when partitions are assigned,
  before they are accepted. What that leaves open: a process that is frozen between the two, or
  whose session has run out at the broker (5 minutes) and that thaws after its term, sends a
  JoinGroup without having been asked, and fences its successor, who stands again. Nothing is read
  or committed by the thawed one: its assignment is refused by ``allowed``. A zombie whose successor
  has joined already does *not* do that: its next heartbeat or commit is answered with
  FENCED_INSTANCE_ID, which is fatal to this client for ever, and it never joins again. kafka-python
  has no such gap.
* A fenced consumer is told by its heartbeat (3 s), without a commit: ``poll`` then raises
  ``KafkaFenced``, for ever. Until then it may still give records: brokers refuse commits of a
  fenced member, not its fetches.
* With all brokers away ``consume`` gives nothing and no error, as on an idle topic: only requests
  (:meth:`ConfluentConsumer.end_offsets`, a commit) tell.
* A commit waits for a coordinator up to the session time-out, and cannot be called back. So commits
  go through a thread of their own, in order; :meth:`ConfluentConsumer.close` waits neither for it
  nor for librdkafka.
* ``pause`` and ``resume`` race with the client's own threads, which then drop either of them or the
  offset of an ``assign`` before them: a partition stands still for ever, without an error
  (librdkafka issues 2190 and 5591; met in one of 300 rounds under load). So neither is ever called.
  What is not to be read is **not assigned**, and reading begins by assigning with offsets: an
  ``assign`` is carried out by one thread, in order. A member stays a member without it.
* Prefetched records are thrown away by each ``assign``. So :meth:`ConfluentConsumer.attend` leaves
  it as it is: it takes one record at a time into a stash, from which the next ``poll`` begins, and
  stops reading only after 100 of them without a poll.
* A position stays before the transaction markers at the end of a partition, until the news that its
  end was reached (``enable.partition.eof``) carries the offset behind them.
* Static members send no LeaveGroup when closed; ``unsubscribe`` would send one, and is never
  called.
* ``offsets_for_times`` with the "times" -1 and -2 is ListOffsets for all partitions in one request
  to each broker, with the isolation level of the consumer: the LSO.

The consumer keeps what it knows of the topics, their partitions and ids, to itself. So an admin
client (a connection and a few threads of librdkafka more) asks instead: once at the beginning, and
then no more than every 10 s, without anybody waiting for the answer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient

from leaderq.clock import now_s
from leaderq.errors import KafkaError, KafkaFenced, LeaderqError, ServersUnreachable, UnknownTopic
from leaderq.kafka.clients.confluent_connection import (
    UNKNOWN,
    ErrorCallback,
    confluent_errors_translated,
    connection_options,
    refused_options,
    require,
    translated,
)
from leaderq.kafka.clients.confluent_record import by_partition, has_errors
from leaderq.kafka.clients.consumer import (
    CommitFuture,
    ConsumerSettings,
    KafkaAway,
    MembershipLost,
    Offsets,
    SerialExecutor,
    SubmittedWork,
    TopicPattern,
)
from leaderq.kafka.record import Partition, Record

log = logging.getLogger(__name__)

_LATEST, _EARLIEST = -1, -2  # of the protocol
_STEP_S = 0.1
_STASH = 100
_CLOSE_S = 1.0
_FILL_S = 0.005  # how long a poll waits for more, where records come so fast that a batch is full in that time
_FAST_SHARE = 8
ASK_EVERY_S = 10.0
_LOOK_S = 0.05


class ConfluentConsumer:
    """See :class:`~leaderq.kafka.clients.consumer.ConsumerClient`."""

    slice_records = 5000

    def __init__(self, settings: ConsumerSettings) -> None:
        self._confluent = require()
        self._settings = settings
        self._errors = ErrorCallback()
        self._client: Any = None
        self._topics: ConfluentTopics | None = None
        self._commits = SerialExecutor(f"leaderq-confluent-commit-{settings.member}")
        self._allowed: Callable[[], None] = _never
        self._is_subscribed = False
        self._joins = self._joins_before = 0
        self._held: frozenset[Partition] = frozenset()
        self._next: dict[Partition, int] = {}
        self._ends: dict[Partition, int] = {}
        self._resting: frozenset[Partition] = frozenset()
        self._stash: list[Any] = []
        self._is_reading = self._is_revoked = False
        self._fenced: KafkaFenced | None = None
        topics = settings.topics
        self._the_only = topics[0] if not isinstance(topics, TopicPattern) and len(topics) == 1 else None

    # ---- connecting ------------------------------------------------------------------------------

    def open(self) -> None:
        settings, began = self._settings, now_s()
        try:
            shared = {**connection_options(settings.address, settings.security, self._errors), **settings.options}
            self._client = self._made(self._confluent.Consumer, consumer_options(settings, self._errors))
            self._topics = self._made(
                ConfluentTopics, shared, settings.address, settings.topics, self._errors, settings.request_timeout_s
            )
            self._topics.learn(settings.open_timeout_s)
            self._warm_up(began + settings.open_timeout_s)
        except KafkaAway as exc:
            self.close()
            waited_s, remedy = now_s() - began, self._errors.remedy()
            raise ServersUnreachable("Kafka", settings.address, waited_s=waited_s, remedy=remedy) from exc
        except BaseException:
            self.close()
            raise

    def _made(self, kind: Callable[..., Any], *words: Any) -> Any:
        try:
            return kind(*words)
        except self._confluent.KafkaException as exc:
            raise refused_options(exc) or self._error(exc, "connecting") from exc

    def _warm_up(self, end: float) -> None:
        """A topic just made, or an election going on: what is not ready is asked again."""
        while True:
            try:
                return self.refresh(max(_STEP_S, end - now_s()))
            except KafkaAway:
                if now_s() >= end:
                    raise
                self._serve(_STEP_S)

    def refresh(self, timeout_s: float) -> None:
        self._known.keep_known()
        self.committed(timeout_s)
        self.end_offsets(timeout_s)

    # ---- membership ------------------------------------------------------------------------------

    def join(self, allowed: Callable[[], None], timeout_s: float) -> bool:
        self._allowed = allowed
        if not self._settings.membership:
            return self._take_all()
        if not self._is_subscribed:
            self._joins_before = self._joins
            self._subscribe()
        self._serve_until(lambda: self._joins > self._joins_before, timeout_s)
        return self._joins > self._joins_before

    def _subscribe(self) -> None:
        consumer = self._consumer
        self._allowed()
        with self._errors_translated("joining the group"):
            consumer.subscribe(list(self._known.names), on_assign=self._on_assign, on_revoke=self._on_revoke)
        self._is_subscribed = True

    def _take_all(self) -> bool:
        self._allowed()
        existing = self.existing()
        with self._errors_translated("taking partitions"):
            self._hold(self._consumer, existing)
        return bool(existing)

    def _on_assign(self, consumer: Any, assigned: list[Any]) -> None:
        self._allowed()
        self._hold(consumer, frozenset(Partition(one.topic, one.partition) for one in assigned))

    def _on_revoke(self, consumer: Any, _revoked: list[Any]) -> None:
        self._begin_anew(frozenset())
        self._is_revoked = True
        consumer.unassign()  # only then does the client join again

    def _hold(self, consumer: Any, partitions: frozenset[Partition]) -> None:
        """Take these; nothing is read from them until their positions are set."""
        self._joins += 1
        self._is_revoked = False
        self._begin_anew(partitions)
        consumer.assign([])

    def _begin_anew(self, partitions: frozenset[Partition]) -> None:
        self._held, self._stash, self._next, self._ends, self._resting = partitions, [], {}, {}, frozenset()
        self._is_reading = False

    @property
    def joins(self) -> int:
        return self._joins

    @property
    def is_joining(self) -> bool:
        return self._is_revoked

    def rejoin(self) -> None:
        self._known.hurry()
        if not self._settings.membership:
            self._take_all()
        elif self._is_subscribed:
            self._joins_before = self._joins
            self._subscribe()  # to the same topics: joins again, without leaving

    def attend(self, timeout_s: float) -> None:
        self._known.keep_known()
        if not self._settings.membership:
            return
        if self._is_subscribed and (self._is_revoked or self._joins == self._joins_before):
            self._serve_until(lambda: not self._is_revoked and self._joins > self._joins_before, timeout_s)
        else:
            self._serve(0.0)

    def _serve_until(self, fact: Callable[[], bool], timeout_s: float) -> None:
        end = now_s() + timeout_s
        while not fact() and now_s() < end:
            self._serve(max(0.0, min(_STEP_S, end - now_s())))

    def _serve(self, wait_s: float) -> None:
        """Let the client call back; a record that comes by is kept for the next poll."""
        if len(self._stash) >= _STASH and self._is_reading:
            self._read({})
        came = self._consume(1, wait_s)
        self._stash += came  # not in one line with the call: that may have emptied the stash

    def assigned(self) -> frozenset[Partition]:
        return self._held

    def existing(self) -> frozenset[Partition]:
        return frozenset().union(*self._known.partitions.values())

    def topic_ids(self) -> dict[str, str]:
        return dict(self._known.ids)

    def group_metadata(self) -> Any:
        return self._consumer.consumer_group_metadata()

    # ---- reading ---------------------------------------------------------------------------------

    def poll(self, timeout_s: float, max_records: int) -> dict[Partition, Sequence[Record]]:
        self._known.keep_known()
        if self._next and not self._is_reading:
            self._read(self._next | {Partition(row.topic(), row.partition()): row.offset() + 1 for row in self._stash})
        found = self._taken(timeout_s, max_records)
        polled = by_partition(found, self._the_only) if found and self._next else {}
        for where, rows in polled.items():
            self._next[where] = max(rows[-1].offset + 1, self._next.get(where, 0))
        if not self._stash:  # all that came before the news of an end is given
            self._next |= {at: max(end, self._next[at]) for at, end in self._ends.items() if at in self._next}
            self._ends.clear()
        return polled

    def _taken(self, timeout_s: float, most: int) -> list[Any]:
        """Records in the order in which they came, at most so many."""
        joins = self._joins
        found, self._stash = self._stash[:most], self._stash[most:]
        try:
            found += self._consume(most - len(found), 0.0)
            if not found and timeout_s > 0:
                # Asked for more than one, the client would wait the whole time although one is
                # there.
                found += self._consume(1, timeout_s)
                found += self._consume(most - len(found), 0.0) if found else ()
            elif timeout_s > 0 and len(found) * _FAST_SHARE >= most:
                found += self._consume(most - len(found), min(timeout_s, _FILL_S))
        except LeaderqError:
            self._stash = found + self._stash
            raise
        return found if joins == self._joins else []  # the client's own idea of positions is not ours

    def _consume(self, most: int, wait_s: float) -> list[Any]:
        if self._fenced is not None:
            raise KafkaFenced(str(self._fenced)) from self._fenced
        if most <= 0:
            return []
        with self._errors_translated("reading"):
            messages: list[Any] = self._consumer.consume(most, wait_s)
        return self._heeded(messages) if has_errors(messages) else messages

    def _heeded(self, messages: list[Any]) -> list[Any]:
        """The records among these; raises what is news of an error, after having kept the records."""
        records = [message for message in messages if message.error() is None]
        for message in messages:
            error = message.error()
            if error is None:
                continue
            if error.name() == "_PARTITION_EOF":
                self._ends[Partition(message.topic(), message.partition())] = message.offset()
                continue
            found = self._error(error, "reading")
            if isinstance(found, KafkaAway | MembershipLost | UnknownTopic):  # passes, or shows in joins, or in topic_ids
                log.debug("%s", found)
                continue
            self._stash += records
            raise found
        return records

    def seek(self, offsets: Offsets, resting: Collection[Partition] = ()) -> None:
        if lost := set(offsets) - self._held:  # lost to a rebalance since: the next join sets positions again
            raise KafkaAway(f"partitions {', '.join(map(str, sorted(lost)))} are not held any more")
        self._next.update(offsets)
        self._stash, self._ends, self._resting = [], {}, frozenset(resting)
        self._read(self._next)

    def _read(self, offsets: Offsets) -> None:
        """Let the client read these partitions from these offsets, and no others; not ``seek``,
        which waits for its fetcher.
        """
        with self._errors_translated("setting positions"):
            self._consumer.assign(self._named({at: offset for at, offset in offsets.items() if at not in self._resting}))
        self._is_reading = bool(offsets)

    def positions(self) -> dict[Partition, int]:
        return dict(self._next)

    # ---- offsets ---------------------------------------------------------------------------------

    def committed(self, timeout_s: float) -> dict[Partition, int]:
        asked = self._named(dict.fromkeys(self._held or self.existing(), 0))
        with self._errors_translated("reading committed offsets"):
            stored = self._consumer.committed(asked, timeout_s)
        return self._answered(stored, "reading committed offsets")

    def commit(self, offsets: Offsets, note: str) -> CommitFuture:
        return self._commits.submit(partial(self._commit, self._consumer, self._named(offsets, note)))

    def _commit(self, consumer: Any, named: list[Any]) -> None:
        """On the thread of the commits."""
        with self._errors_translated("committing"):
            answer = consumer.commit(offsets=named, asynchronous=False)
        self._answered(answer, "committing")

    def start_offsets(self, timeout_s: float) -> dict[Partition, int]:
        return self._ask(_EARLIEST, timeout_s)

    def end_offsets(self, timeout_s: float) -> dict[Partition, int]:
        return self._ask(_LATEST, timeout_s)

    def _ask(self, what: int, timeout_s: float) -> dict[Partition, int]:
        asked = self._named(dict.fromkeys(self.existing(), what))
        by_pattern = isinstance(self._settings.topics, TopicPattern)
        try:
            with self._errors_translated("asking for offsets"):
                answer = self._consumer.offsets_for_times(asked, timeout_s)
        except UnknownTopic as exc:
            if by_pattern:  # deleted a moment ago, and found out soon
                self._known.hurry()
                raise KafkaAway(str(exc)) from exc
            raise
        if by_pattern:
            answer = [one for one in answer if one.error is None or one.error.name() not in UNKNOWN]
        return self._answered(answer, "asking for offsets")

    def _answered(self, answer: list[Any], doing: str) -> dict[Partition, int]:
        for one in answer:
            if one.error is not None:
                raise self._error(one.error, doing)
        return {Partition(one.topic, one.partition): one.offset for one in answer if one.offset >= 0}

    def _named(self, offsets: Mapping[Partition, int], *note: str) -> list[Any]:
        kind = self._confluent.TopicPartition
        return [kind(where.topic, where.number, offset, *note) for where, offset in sorted(offsets.items())]

    # ---- errors and the end ----------------------------------------------------------------------

    @contextmanager
    def _errors_translated(self, doing: str) -> Iterator[None]:
        """Let no ``KafkaException`` out of the block."""
        try:
            yield
        except self._confluent.KafkaException as exc:
            raise self._error(exc, doing) from exc
        except RuntimeError as exc:
            if "closed" in str(exc):  # by its owner, while this thread had it in hand
                raise KafkaError("this consumer is closed") from exc
            raise

    def _error(self, exc: Any, doing: str) -> KafkaError:
        """Ours for the client's, which is remembered if it is the last."""
        error = exc.args[0] if isinstance(exc, BaseException) and exc.args else exc
        found: Any = translated(exc, doing, self._settings.address, self._errors)
        # Of a consumer of the classic protocol only the fencing is fatal; asked again, the client
        # says just "_FATAL".
        if hasattr(error, "fatal") and (error.fatal() or error.name() == "_FATAL") and not isinstance(found, KafkaFenced):
            found = KafkaFenced(f"{found}; a newer member of the same name has taken over")
        if isinstance(found, KafkaFenced):
            self._fenced = found
        return found  # type: ignore[no-any-return]

    def close(self) -> None:
        self._allowed = _never
        client, topics, self._client, self._topics = self._client, self._topics, None, None
        if topics is not None:
            topics.close()
        if client is None:
            return
        ended = self._commits.submit(client.close)  # behind the last commit, which uses the client
        self._commits.close()
        try:
            ended.done(_CLOSE_S)
        except Exception:
            log.debug("closing a Kafka consumer failed; it is dropped", exc_info=True)

    @property
    def _consumer(self) -> Any:
        if self._client is None:
            raise KafkaError("this consumer is not open")
        return self._client

    @property
    def _known(self) -> ConfluentTopics:
        if self._topics is None:
            raise KafkaError("this consumer is not open")
        return self._topics


def _never() -> None:
    raise KafkaError("this consumer is kept warm and may not join its group")


def _is_over(work: SubmittedWork) -> bool:
    try:
        return work.done(0.0)
    except Exception:
        log.debug("topics could not be listed; asked again later", exc_info=True)
        return True


class ConfluentTopics:
    """Names, partitions and ids of the topics to be read. Not thread-safe."""

    def __init__(
        self,
        options: dict[str, Any],
        address: str,
        topics: tuple[str, ...] | TopicPattern,
        errors: ErrorCallback,
        request_timeout_s: float,
    ) -> None:
        self._admin = AdminClient(options)
        self._address = address
        self._pattern = topics if isinstance(topics, TopicPattern) else None
        self.names = () if isinstance(topics, TopicPattern) else topics
        self._lister = SerialExecutor("leaderq-confluent-topics")  # begins with the first pattern
        self._listing: SubmittedWork | None = None
        self._errors = errors
        self._request_timeout_s = request_timeout_s
        self._asked: dict[str, Future[Any]] = {}
        self._asked_at = 0.0
        self.partitions: dict[str, frozenset[Partition]] = {}
        self.ids: dict[str, str] = {}

    def learn(self, timeout_s: float) -> None:
        """Ask, and wait for the answer.

        Raises :class:`~leaderq.errors.UnknownTopic`, :class:`~leaderq.errors.AccessRefused` or
        :class:`~leaderq.kafka.clients.consumer.KafkaAway`.
        """
        end = now_s() + timeout_s
        if self._pattern is not None:
            with confluent_errors_translated("asking for topics", self._address, self._errors):
                self._list(timeout_s)
            if not self.names:
                raise UnknownTopic(
                    f"no topic on Kafka {self._address!r} matches {self._pattern.regex.pattern!r}; "
                    "create one, or correct the career's 'topics'"
                )
        self._ask(timeout_s)
        for topic, answer in self._asked.items():
            while not answer.done():
                if self._errors.refusal is not None:  # known at once, while the question would go on until its time is up
                    raise translated(self._errors.refusal, "connecting", self._address)
                if now_s() > end:
                    raise KafkaAway(f"asking for the topic {topic!r} at Kafka {self._address!r}: no answer")
                self._admin.poll(_LOOK_S)  # also calls back with errors
            with confluent_errors_translated(f"asking for the topic {topic!r}", self._address, self._errors):
                self._note(topic, answer.result())
        self._asked = {}

    def keep_known(self) -> None:
        """Take in what was answered, and ask again from time to time; waits for nothing."""
        for topic, answer in list(self._asked.items()):
            if answer.done():
                del self._asked[topic]
                error = answer.exception()
                if error is None:
                    self._note(topic, answer.result())
                elif isinstance(translated(error, "asking for topics", self._address), UnknownTopic):
                    self.partitions.pop(topic, None)
                    self.ids.pop(topic, None)
        if self._listing is not None and _is_over(self._listing):
            self._listing = None
            self._ask(self._request_timeout_s)
        if self._asked or self._listing is not None or now_s() <= self._asked_at + ASK_EVERY_S:
            return
        if self._pattern is None:
            self._ask(self._request_timeout_s)
        else:  # the client waits for the answer to this one
            self._listing = self._lister.submit(partial(self._list, self._request_timeout_s))

    def close(self) -> None:
        """Let the thread end, if there is one."""
        self._lister.close()

    def _list(self, timeout_s: float) -> None:
        assert self._pattern is not None
        self.names = self._pattern.among(self._admin.list_topics(timeout=timeout_s).topics)

    def hurry(self) -> None:
        """Ask at the next :meth:`keep_known`."""
        self._asked_at = 0.0

    def _ask(self, timeout_s: float) -> None:
        self._asked_at = now_s()
        for topic in self.partitions.keys() - set(self.names):
            del self.partitions[topic]
            self.ids.pop(topic, None)
        if self.names:
            wanted = TopicCollection(list(self.names))
            self._asked = self._admin.describe_topics(wanted, request_timeout=timeout_s)

    def _note(self, topic: str, found: Any) -> None:
        self.partitions[topic] = frozenset(Partition(topic, partition.id) for partition in found.partitions)
        self.ids[topic] = str(found.topic_id)


def consumer_options(settings: ConsumerSettings, errors: ErrorCallback) -> dict[str, Any]:
    """What the consumer is made with."""
    session_ms = int(settings.session_timeout_s * 1000)
    options = {
        **connection_options(settings.address, settings.security, errors),
        "client.id": settings.client_id,
        "group.id": settings.group,
        "group.protocol": "classic",  # the newer one fences the newcomer instead of the old member
        "partition.assignment.strategy": "range",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        # Also makes OffsetFetch ask for stable offsets only, and ListOffsets for the last stable
        # one.
        "isolation.level": "read_committed",
        # Any other value would jump silently when the offset to read on from is gone; leaderq
        # decides that.
        "auto.offset.reset": "error",
        "allow.auto.create.topics": False,
        "session.timeout.ms": session_ms,
        "heartbeat.interval.ms": min(3000, session_ms // 3),
        "max.poll.interval.ms": max(session_ms, int(settings.max_poll_interval_s * 1000)),
        "socket.timeout.ms": int(settings.request_timeout_s * 1000),
        "topic.metadata.refresh.interval.ms": 30_000,
        "enable.partition.eof": True,
        "check.crcs": True,  # else what a disk or the network has altered is handled as if it were right
        # A fetch that waits for quiet partitions holds up a busy one on the same broker (500 ms by
        # default).
        "fetch.wait.max.ms": 50,
        "queued.max.messages.kbytes": 16_384,  # 64 MB by default, besides the batches in hand and ahead
        # How long fetching rests when enough is prefetched; at the default of 1 s a fast reader
        # runs dry in between.
        "fetch.queue.backoff.ms": 10,
    }
    if settings.membership:
        options["group.instance.id"] = settings.member
    if settings.partition_fetch_bytes is not None:
        options["fetch.message.max.bytes"] = settings.partition_fetch_bytes
    return {**options, **settings.options}
